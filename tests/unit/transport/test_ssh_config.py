"""Options from the text of `ssh -G`, and from asyncssh's parser where there is no ssh."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runner_support import is_alive, until
from tests.table import over

from sparktop.errors import TransportError, UsageError
from sparktop.transport.shell import shell_argv
from sparktop.transport.ssh.config import SshOptions, parse, resolve, split_paths
from sparktop.transport.targets import parse_target

SPARK1 = parse_target("spark1")


def test_the_values_that_ssh_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "my key"
    key.touch()
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    options = parse(
        f"""host spark1
user nvidia
hostname 10.0.0.7
port 2222
addressfamily inet
batchmode no
identitiesonly yes
identityfile {key}
identityfile ~/.ssh/absent
stricthostkeychecking accept-new
hashknownhosts yes
hostkeyalias cluster
proxyjump me@a:1,b
passwordauthentication no
kbdinteractiveauthentication yes
userknownhostsfile /a/Library/Application Support/known_hosts ~/.ssh/known_hosts2
globalknownhostsfile /etc/ssh/ssh_known_hosts
unknownkeyword some value
""",
        SPARK1,
    )
    assert (options.host, options.port, options.user, options.family) == ("10.0.0.7", 2222, "nvidia", socket.AF_INET)
    assert options.identity_files == (key,)
    assert (options.identities_only, options.agent_socket) == (True, "/run/agent")
    assert (options.strict, options.hash_known_hosts, options.host_key_alias) == ("accept-new", True, "cluster")
    assert (options.proxy_jump, options.proxy_command) == (("me@a:1", "b"), None)
    assert (options.password, options.keyboard_interactive, options.questions) == (False, True, True)
    assert options.user_known_hosts == (
        Path("/a/Library/Application Support/known_hosts"),
        Path(os.environ["HOME"], ".ssh/known_hosts2"),
    )


def test_what_nobody_says_is_as_openssh_has_it() -> None:
    options = SshOptions(host="spark1", user="me")
    assert (options.port, options.strict, options.hash_known_hosts) == (22, "ask", False)
    assert (options.public_key, options.password, options.keyboard_interactive, options.questions) == (True,) * 4


@over(
    "value, expected",
    [
        ("true", "yes"), ("yes", "yes"), ("ask", "ask"), ("accept-new", "accept-new"), ("off", "no"), ("false", "no"),
        ("?", "ask"),
    ],
)  # fmt: skip
def test_strictness(value: str, expected: str) -> None:
    assert parse(f"stricthostkeychecking {value}", SPARK1).strict == expected


@over(
    "value, expected",
    [
        ("", []),
        ("none", ["none"]),
        ("/a /b", ["/a", "/b"]),
        ("~/a ~/b", ["~/a", "~/b"]),
        ("/a b/c d /e", ["/a b/c d", "/e"]),
        ("%d/a ${HOME}/b", ["%d/a", "${HOME}/b"]),
    ],
)
def test_a_list_of_paths_that_ssh_prints_unquoted(value: str, expected: list[str]) -> None:
    assert split_paths(value) == expected


def test_placeholders_of_a_proxy_command() -> None:
    options = parse("hostname 10.0.0.7\nport 2222\nuser me\nproxycommand nc -x p:1 %h %p %r %n 100%%", SPARK1)
    assert options.proxy_command == "nc -x p:1 10.0.0.7 2222 me spark1 100%"
    assert parse("proxycommand none\nproxyjump none", SPARK1).proxy_command is None


def test_an_agent_can_be_named_or_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("MY_AGENT", "/run/mine")
    home = os.environ["HOME"]
    for value, expected in [
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("none", None),
        ("$MY_AGENT", "/run/mine"),
        ("$UNSET_AGENT", None),
        ("~/agent.sock", f"{home}/agent.sock"),
    ]:
        assert parse(f"identityagent {value}", SPARK1).agent_socket == expected


def test_the_passwd_home_is_read_as_the_home_that_is_meant() -> None:
    passwd_home = pwd.getpwuid(os.getuid()).pw_dir
    options = parse(f"userknownhostsfile {passwd_home}/.ssh/known_hosts /etc/elsewhere", SPARK1)
    assert options.user_known_hosts == (Path(os.environ["HOME"], ".ssh/known_hosts"), Path("/etc/elsewhere"))


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert parse(text, SPARK1).port > 0


CONFIG = """
Host spark1
    HostName 10.0.0.7
    User nvidia
    Port 2222
    IdentityFile "{key}"
    IdentityFile ~/.ssh/absent
    ProxyJump bastion
    HostKeyAlias cluster
    UserKnownHostsFile ~/.ssh/mine
Host spark2
    ProxyCommand nc %h %p
    PasswordAuthentication no
"""


@pytest.mark.parametrize("without_ssh", [False, True])
async def test_both_parsers_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_ssh: bool) -> None:
    if without_ssh:
        monkeypatch.setattr("shutil.which", lambda name: None)
    key = tmp_path / "my key"
    key.touch()
    folder = Path(os.environ["HOME"], ".ssh")
    folder.mkdir(parents=True)
    (folder / "config").write_text(CONFIG.format(key=key))
    one = await resolve(parse_target("spark1"))
    assert (one.host, one.port, one.user, one.identity_files) == ("10.0.0.7", 2222, "nvidia", (key,))
    assert (one.proxy_jump, one.host_key_alias, one.user_known_hosts) == (("bastion",), "cluster", (folder / "mine",))
    two = await resolve(parse_target("me@spark2:2200"))
    assert (two.user, two.port, two.proxy_command, two.password) == ("me", 2200, "nc spark2 2200", False)
    three = await resolve(parse_target("10.9.9.9"))
    assert (three.host, three.port, three.identity_files) == ("10.9.9.9", 22, ())
    assert three.user_known_hosts[0] == folder / "known_hosts"


async def test_a_shell_goes_the_way_that_the_connection_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, home = tmp_path / "my key", Path(os.environ["HOME"], ".ssh")
    key.touch()
    home.mkdir(parents=True)
    (home / "config").write_text(CONFIG.format(key=key))
    (tmp_path / "other").write_text(f"Host spark1\n  UserKnownHostsFile {tmp_path}/known\n")
    kept = ["-o", f'UserKnownHostsFile="{home}/mine"', "-i", str(key)]
    argv = await shell_argv(parse_target("spark1"))
    assert argv == ["ssh", "-t", *kept, "-F", str(home / "config"), "--", "spark1"], "which has its port and jump host"
    argv = await shell_argv(
        parse_target("me@spark1:2200"), container_id="a" * 12, docker_socket="/a b", config=tmp_path / "other"
    )
    assert argv[-6:] == ["me", "-p", "2200", "--", "spark1", "docker -H 'unix:///a b' exec -it aaaaaaaaaaaa sh"]
    assert argv[argv.index("-F") + 1] == str(tmp_path / "other")
    assert f'UserKnownHostsFile="{tmp_path}/known"' in argv
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert await shell_argv(parse_target("local")) == ["/bin/sh"]
    for wrong in ("a" * 11, "$(reboot)aaaa", "-v"):
        with pytest.raises(UsageError):
            await shell_argv(parse_target("spark1"), container_id=wrong)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match="ssh isn't"):
        await shell_argv(parse_target("spark1"))


@pytest.mark.parametrize("without_ssh", [False, True])
async def test_a_broken_configuration_is_a_refusal(monkeypatch: pytest.MonkeyPatch, without_ssh: bool) -> None:
    if without_ssh:
        monkeypatch.setattr("shutil.which", lambda name: None)
    folder = Path(os.environ["HOME"], ".ssh")
    folder.mkdir(parents=True)
    (folder / "config").write_text("Host spark1\n    Port \n")
    with pytest.raises(TransportError) as caught:
        await resolve(SPARK1)
    assert caught.value.hint


async def test_a_configuration_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.transport.ssh.config._RESOLVE_LIMIT_S", 0.2)
    folder = Path(os.environ["HOME"], ".ssh")
    folder.mkdir(parents=True)
    pid = folder / "pid"
    (folder / "config").write_text(f'Match exec "echo $$ >{pid}; exec sleep 30"\n    Port 1\n')
    with pytest.raises(TransportError, match="did not end"):
        await resolve(SPARK1)
    await until(lambda: not is_alive(int(pid.read_text())))  # it isn't left behind


async def test_another_file_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "sync config"
    file.write_text("Host spark1\n    Port 2022\n")
    assert (await resolve(SPARK1, config=file)).port == 2022
