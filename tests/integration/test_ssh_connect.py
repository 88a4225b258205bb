"""Connecting over a real OpenSSH server: every stage, each failure by its name, and nothing left behind."""

# ruff: noqa: ASYNC220, ASYNC221 - the tests prepare files and processes while nothing else runs
from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.sshd import Sshd, make_key, sshd
from tests.integration.terminal import terminal
from tests.support import needs, poll

from sparktop.cli.composition import connector_for
from sparktop.errors import AuthRefused, HostKeyRefused, LinkLost, NoBanner, NoRoute, PortClosed, TransportError
from sparktop.model.fleet import Reach
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.transport.ssh.connector import SshConnector
from sparktop.transport.ssh.host_keys import SeenHosts

__all__ = ["sshd"]
pytestmark = pytest.mark.integration


class Answers:
    """A Prompter with its answers given beforehand, and a record of what it was asked."""

    def __init__(self, *, host_key: bool | None = None, secrets: list[str | None] | None = None) -> None:
        self._host_key = host_key
        self._secrets = list(secrets or [])
        self.questions: list[HostKeyQuestion | SecretQuestion] = []

    async def host_key(self, question: HostKeyQuestion) -> bool:
        self.questions.append(question)
        assert self._host_key is not None, f"not to be asked: {question}"
        return self._host_key

    async def secret(self, question: SecretQuestion) -> str | None:
        self.questions.append(question)
        assert self._secrets, f"not to be asked: {question}"
        return self._secrets.pop(0)


def connector(text: str, prompter: Answers | None = None, seen: SeenHosts | None = None) -> SshConnector:
    made = connector_for(text, prompter or Answers(), seen or SeenHosts())
    assert isinstance(made, SshConnector)
    return made


async def says(transport: object, *argv: str) -> bytes:
    channel = await transport.run(argv)  # type: ignore[attr-defined]
    heard = b""
    while piece := await channel.read():
        heard += piece
    assert await channel.exit_status() == 0, channel.error_tail()
    return heard


async def test_an_alias_of_the_ssh_configuration_leads_to_the_host(sshd: Sshd) -> None:
    sshd.trust()
    sshd.alias("spark1")
    transport = await connector("spark1").connect(patience_s=10)
    assert transport.host_key_fingerprint == sshd.fingerprint
    assert await says(transport, "printf", "%s|", "a b", "c'd", "$HOME") == b"a b|c'd|$HOME|"
    await transport.close()
    assert await transport.wait_closed() == "closed here"
    with pytest.raises(LinkLost):
        await transport.run(["true"])


async def test_user_host_and_port_on_the_command_line_go_before_the_configuration(sshd: Sshd) -> None:
    sshd.trust()
    sshd.alias("127.0.0.*", User="nobody-here", Port="1")
    transport = await connector(f"{sshd.user}@{sshd.host}:{sshd.port}").connect(patience_s=10)
    assert await says(transport, "id", "-un") == sshd.user.encode() + b"\n"
    await transport.close()


async def test_a_first_contact_shows_the_fingerprint_and_writes_the_key_down(sshd: Sshd, tmp_path: Path) -> None:
    sshd.alias("spark1", HashKnownHosts="no")
    asked = Answers(host_key=True)
    seen = SeenHosts()
    transport = await connector("spark1", asked, seen).connect(patience_s=10)
    await transport.close()
    [question] = asked.questions
    assert isinstance(question, HostKeyQuestion)
    known_hosts = Path(os.environ["HOME"], ".ssh/known_hosts")
    assert (question.host, question.fingerprint) == (sshd.known_name, sshd.fingerprint)
    assert question.known_hosts_path == known_hosts
    assert known_hosts.read_text() == sshd.known_hosts_line
    assert known_hosts.stat().st_mode & 0o777 == 0o600
    again = await connector("spark1").connect(patience_s=10)  # asks nothing
    await again.close()


async def test_what_was_written_down_hashed_is_found_again(sshd: Sshd) -> None:
    sshd.alias("spark1", HashKnownHosts="yes")
    transport = await connector("spark1", Answers(host_key=True)).connect(patience_s=10)
    await transport.close()
    text = Path(os.environ["HOME"], ".ssh/known_hosts").read_text()
    assert text.startswith("|1|")
    assert sshd.host not in text
    again = await connector("spark1").connect(patience_s=10)
    await again.close()


async def test_a_refused_first_contact_sends_nothing_and_writes_nothing(sshd: Sshd) -> None:
    sshd.alias("spark1")
    with pytest.raises(HostKeyRefused, match="was not accepted"):
        await connector("spark1", Answers(host_key=False)).connect(patience_s=10)
    assert not Path(os.environ["HOME"], ".ssh/known_hosts").exists()
    assert "Accepted publickey" not in sshd.log


@pytest.mark.parametrize(("strict", "written"), [("yes", False), ("accept-new", True), ("no", True)])
async def test_strict_host_key_checking_decides_without_asking(sshd: Sshd, strict: str, written: bool) -> None:
    sshd.alias("spark1", StrictHostKeyChecking=strict, HashKnownHosts="no")
    if written:
        transport = await connector("spark1").connect(patience_s=10)
        assert any("accepted unseen" in warning for warning in transport.warnings)
        await transport.close()
    else:
        with pytest.raises(HostKeyRefused, match="not in known_hosts"):
            await connector("spark1").connect(patience_s=10)
    assert Path(os.environ["HOME"], ".ssh/known_hosts").exists() == written


@pytest.mark.parametrize("strict", ["ask", "no"])
async def test_a_changed_host_key_is_refused_with_the_line_to_look_at(sshd: Sshd, strict: str) -> None:
    sshd.alias("spark1", StrictHostKeyChecking=strict)
    known_hosts = Path(os.environ["HOME"], ".ssh/known_hosts")
    known_hosts.write_text("# a comment\nnot a line\n")
    sshd.trust()
    before = sshd.fingerprint
    sshd.restart(new_host_key=True)
    with pytest.raises(HostKeyRefused) as caught:
        await connector("spark1").connect(patience_s=10)
    assert f"look at {known_hosts}:3:" in caught.value.message
    assert f"there stands {before}" in caught.value.message
    assert sshd.fingerprint in caught.value.message
    assert f"-R '{sshd.known_name}'" in (caught.value.hint or "")
    assert "Accepted publickey" not in sshd.log


async def test_a_revoked_host_key_is_refused_with_its_line(sshd: Sshd) -> None:
    sshd.alias("spark1")
    path = sshd.trust()
    path.write_text(path.read_text() + "@revoked * " + " ".join(sshd.known_hosts_line.split()[1:]) + "\n")
    with pytest.raises(HostKeyRefused, match="revoked") as caught:
        await connector("spark1").connect(patience_s=10)
    assert f"{path}:2" in caught.value.message


async def test_a_host_certificate_of_a_known_authority_is_trusted(sshd: Sshd, tmp_path: Path) -> None:
    authority = make_key(tmp_path / "authority")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "spark", "-h", "-n", sshd.host, f"{sshd.host_key}.pub"], check=True
    )
    sshd.options["HostCertificate"] = f"{sshd.host_key}-cert.pub"
    sshd.restart()
    sshd.alias("spark1")
    line = Path(f"{authority}.pub").read_text()
    Path(os.environ["HOME"], ".ssh/known_hosts").write_text(f"@cert-authority {sshd.known_name} {line}")
    transport = await connector("spark1").connect(patience_s=10)
    assert transport.warnings == ()
    await transport.close()


async def test_two_nodes_with_one_host_key_are_told_apart_by_a_warning(sshd: Sshd) -> None:
    sshd.trust()
    sshd.alias("spark1 spark2")
    seen = SeenHosts()
    one = await connector("spark1", seen=seen).connect(patience_s=10)
    two = await connector("spark2", seen=seen).connect(patience_s=10)
    assert not one.warnings
    assert any("same host key as spark1" in warning for warning in two.warnings)
    await one.close()
    await two.close()


async def test_a_wrong_key_says_what_was_tried(sshd: Sshd, tmp_path: Path) -> None:
    wrong = make_key(tmp_path / "wrong")
    sshd.trust()
    sshd.alias("spark1", IdentityFile=str(wrong))
    with pytest.raises(AuthRefused) as caught:
        await connector("spark1").connect(patience_s=10)
    assert f"key {wrong}" in caught.value.message
    assert "ssh-copy-id" in (caught.value.hint or "")


async def test_a_missing_identity_file_and_a_broken_one_are_passed_over(sshd: Sshd, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n-----END OPENSSH PRIVATE KEY-----\n")
    sshd.trust()
    path = sshd.alias("spark1")
    path.write_text(path.read_text() + f"Host *\n    IdentityFile {tmp_path}/absent\n    IdentityFile {broken}\n")
    transport = await connector("spark1").connect(patience_s=10)
    assert transport.warnings == ()
    await transport.close()


async def test_a_locked_key_asks_for_its_passphrase_once(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", kind="ecdsa", passphrase="correct horse", form="PEM")
    other = make_key(tmp_path / "other", kind="ecdsa", passphrase="not asked for: not authorised", form="PEM")
    (sshd.folder / "authorized_keys").write_bytes(Path(f"{locked}.pub").read_bytes())
    sshd.trust()
    path = sshd.alias("spark1", IdentityFile=str(other))
    path.write_text(path.read_text() + f"    IdentityFile {locked}\n")
    asked = Answers(secrets=["correct horse"])
    transport = await connector("spark1", asked).connect(patience_s=10)
    await transport.close()
    assert [q.prompt for q in asked.questions if isinstance(q, SecretQuestion)] == [f"passphrase of {locked}"]
    with pytest.raises(AuthRefused, match="was cancelled"):
        await connector("spark1", Answers(secrets=[None])).connect(patience_s=10)


async def test_a_wrong_passphrase_may_be_tried_again_twice(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="correct horse")
    (sshd.folder / "authorized_keys").write_bytes(Path(f"{locked}.pub").read_bytes())
    sshd.trust()
    sshd.alias("spark1", IdentityFile=str(locked))
    asked = Answers(secrets=["wrong", "wrong too", "correct horse"])
    transport = await connector("spark1", asked).connect(patience_s=10)
    await transport.close()
    prompts = [q.prompt for q in asked.questions if isinstance(q, SecretQuestion)]
    again = f"that passphrase was wrong; passphrase of {locked}"
    assert prompts == [f"passphrase of {locked}", again, again]
    with pytest.raises(AuthRefused, match="its passphrase was wrong 3 times"):
        await connector("spark1", Answers(secrets=["wrong"] * 3)).connect(patience_s=10)
    with pytest.raises(AuthRefused, match="was cancelled"):
        await connector("spark1", Answers(secrets=["wrong", None])).connect(patience_s=10)


def test_a_wrong_passphrase_is_asked_for_again_on_a_terminal(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="correct horse")
    (sshd.folder / "authorized_keys").write_bytes(Path(f"{locked}.pub").read_bytes())
    sshd.trust()
    sshd.alias("spark1", IdentityFile=str(locked))
    with terminal("status", "spark1") as at:
        place = at.reads("passphrase of")
        at.types("wrong\n")
        place = at.reads("that passphrase was wrong; passphrase of", after=place)
        at.types("correct horse\n")
        at.reads("available ", after=place)
        assert at.ends() in (0, 1)
        assert "horse" not in at.text


async def test_a_locked_key_of_the_newer_format_is_unlocked_or_says_what_that_takes(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="correct horse")
    (sshd.folder / "authorized_keys").write_bytes(Path(f"{locked}.pub").read_bytes())
    sshd.trust()
    sshd.alias("spark1", IdentityFile=str(locked))
    if find_spec("bcrypt"):
        transport = await connector("spark1", Answers(secrets=["correct horse"])).connect(patience_s=10)
        await transport.close()
    else:
        with pytest.raises(AuthRefused, match=f"ssh-add {locked}"):
            await connector("spark1").connect(patience_s=10)


async def test_time_spent_on_a_question_does_not_count(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", kind="ecdsa", passphrase="slow typist", form="PEM")
    (sshd.folder / "authorized_keys").write_bytes(Path(f"{locked}.pub").read_bytes())
    sshd.trust()
    sshd.alias("spark1", IdentityFile=str(locked))

    class Slow(Answers):
        async def secret(self, question: SecretQuestion) -> str | None:
            await asyncio.sleep(2.5)  # longer than the patience: the thing under test
            return await super().secret(question)

    asked = Slow(secrets=["slow typist"])
    transport = await connector("spark1", asked).connect(patience_s=2)
    assert len(asked.questions) == 1
    await transport.close()


async def test_an_agent_signs(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "agent"
    needs("ssh-agent", "openssh-client")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    try:
        poll(place.exists, what="the agent's socket")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
        subprocess.run(["ssh-add", "-q", str(sshd.client_key)], check=True)
        sshd.trust()
        sshd.alias("spark1", IdentityFile="none")
        sockets = _sockets()
        transport = await connector("spark1").connect(patience_s=10)
        await transport.close()
        assert _sockets() == sockets, "the line to the agent ends with the login"
        wrong = make_key(tmp_path / "wrong")
        sshd.alias("spark2", IdentityFile=str(wrong), IdentitiesOnly="yes")
        with pytest.raises(AuthRefused, match=r"agent \(1 key\)"):
            await connector("spark2").connect(patience_s=10)
    finally:
        agent.terminate()
        agent.wait(10)


async def test_a_refused_port_and_an_unknown_name_are_told_apart() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        with pytest.raises(PortClosed, match="nothing listens"):
            await connector(f"127.0.0.1:{taken.getsockname()[1]}").connect(patience_s=5)
    with pytest.raises(NoRoute, match=r"no host is known by the name no-such-host\.invalid|name service"):
        await connector("no-such-host.invalid").connect(patience_s=5)


async def test_a_configuration_that_cannot_be_read_says_what_ssh_says(sshd: Sshd) -> None:
    path = sshd.alias("spark1")
    path.write_text("Host spark1\n    NoSuchKeyword yes\n")
    with pytest.raises(TransportError, match=r"(?i)nosuchkeyword"):
        await connector("spark1").connect(patience_s=5)


async def test_a_stopped_sshd_gives_no_banner_and_the_same_attempt_succeeds_when_it_goes_on(sshd: Sshd) -> None:
    sshd.trust()
    sshd.alias("spark1")
    with sshd.frozen():
        with pytest.raises(NoBanner, match="SSH sent nothing within 1 s"):
            await connector("spark1").connect(patience_s=1)
        assert (await connector("spark1").reach())[0] == Reach.SSH_SILENT
        attempt = asyncio.create_task(connector("spark1").connect(patience_s=30))
        done, _ = await asyncio.wait([attempt], timeout=1)
        assert not done
    transport = await attempt
    assert await says(transport, "echo", "back") == b"back\n"
    assert (await connector("spark1").reach())[0] == Reach.ANSWERS
    await transport.close()
    sshd.stop()
    assert (await connector("spark1").reach())[0] == Reach.NO_SSHD


def _relay(folder: Path) -> Path:
    """A program that carries bytes to a host and a port, as nc does."""
    script = folder / "relay.py"
    script.write_text(
        "import os, select, socket, sys\n"
        "line = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "os.write(2, b'some words that are not SSH\\n')\n"
        "while True:\n"
        "    ready, _, _ = select.select([0, line], [], [])\n"
        "    for source in ready:\n"
        "        data = os.read(0, 65536) if source == 0 else line.recv(65536)\n"
        "        if not data: sys.exit()\n"
        "        line.sendall(data) if source == 0 else os.write(1, data)\n"
    )
    return script


async def test_a_proxy_command_is_a_way_and_its_words_explain_its_failure(sshd: Sshd) -> None:
    sshd.trust()
    script = _relay(sshd.folder)
    sshd.alias("spark1", ProxyCommand=f"python3 {script} %h %p")
    transport = await connector("spark1").connect(patience_s=10)
    assert await says(transport, "echo", "through") == b"through\n"
    assert (await connector("spark1").reach())[0] == Reach.ANSWERS
    relay = next(int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and str(script) in _command_line(pid))
    os.kill(relay, signal.SIGKILL)
    assert f"ProxyCommand `python3 {script}" in (reason := await transport.wait_closed())
    assert "was killed by SIGKILL: some words that are not SSH" in reason
    await transport.close()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("sh -c 'echo the gate is shut >&2; exit 1'", r"ProxyCommand `.*` exited with code 1: the gate is shut"),
        ("no-such-program-here %h", r"ProxyCommand `no-such-program-here .*` exited with code 127: .*not found"),
        ("sh -c 'kill -9 $$'", r"ProxyCommand `.*` was killed by SIGKILL"),
        ("true", r"`true` closed the connection before .* sent anything"),
        ("sleep 60", r"gave no answer within 2 s through `sleep 60`"),
    ],
)
async def test_a_proxy_command_that_fails_is_blamed_and_not_the_spark(sshd: Sshd, command: str, says: str) -> None:
    sshd.trust()
    sshd.alias("spark2", ProxyCommand=command)
    with pytest.raises(TransportError, match=f"spark2.*{says}") as failure:
        await connector("spark2").connect(patience_s=2)
    assert "took the connection" not in str(failure.value)


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


WRITER = """
import asyncio, os, signal, sys, time
from sparktop import faults
from sparktop.cli.composition import connector_for
from sparktop.transport.ssh.host_keys import SeenHosts

async def main():
    if sys.argv[1] == "as sparktop":
        faults.keep_off_the_terminal(asyncio.get_running_loop())
    transport = await connector_for("spark1", None, SeenHosts()).connect(patience_s=10)
    channels = [await transport.run(["cat"]) for _ in range(5)]
    pid = transport._line.proxy._process.pid
    os.killpg(pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{pid}"):  # and the loop hears nothing of it yet
        time.sleep(0.01)
    for channel in channels:  # as when a link is dropped
        await channel.close()
    await transport.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["as a library", "as sparktop"])
def test_a_link_that_broke_under_its_channels_writes_nothing_to_the_terminal(sshd: Sshd, how: str) -> None:
    sshd.trust()
    sshd.alias("spark1", ProxyCommand=f"{sys.executable} {_relay(sshd.folder)} %h %p")
    said = subprocess.run([sys.executable, "-c", WRITER, how], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert ("socket.send() raised exception." in said.stderr) is (how == "as a library")


async def test_a_jump_host_is_checked_and_carries_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "bastion", host="127.0.0.2") as bastion:
        bastion.alias("bastion", HashKnownHosts="no")
        sshd.alias("spark1", ProxyJump="bastion", HashKnownHosts="no")
        path = Path(os.environ["HOME"], ".ssh/config")
        path.write_text(path.read_text() + "Host *\n    ProxyJump bastion\n")  # also of the bastion: no circle
        asked = Answers(host_key=True)
        one = connector("spark1", asked)
        transport = await one.connect(patience_s=10)
        assert [q.host for q in asked.questions] == [bastion.known_name, sshd.known_name]
        assert await says(transport, "echo", "through") == b"through\n"
        assert bastion.session_pids()
        assert (await one.reach())[0] == Reach.UNTESTED
        await transport.close()
        sshd.stop()
        with pytest.raises(PortClosed, match="asked through bastion"):
            await one.connect(patience_s=10)
        bastion.stop_listener()
        with pytest.raises(PortClosed, match=f"^jump host {bastion.host}:{bastion.port}"):
            await one.connect(patience_s=10)
        assert (await one.reach())[0] == Reach.NO_SSHD


async def test_several_jump_hosts_follow_one_another_and_the_one_that_breaks_is_named(
    sshd: Sshd, tmp_path: Path
) -> None:
    with Sshd.start(tmp_path / "inner", host="127.0.0.2") as inner:
        for server in (sshd, inner):
            server.trust()
        sshd.alias("outer1 outer2")
        inner.alias("spark1", ProxyJump="outer1,outer2")
        transport = await connector("spark1").connect(patience_s=10)
        assert await says(transport, "echo", "through") == b"through\n"
        assert len(re.findall("Accepted publickey", sshd.log)) == 2
        sshd.kill_sessions()
        assert "jump host outer2" in await transport.wait_closed()
        await transport.close()
        inner.alias("spark2", ProxyJump="a:b:c")
        with pytest.raises(TransportError):
            await connector("spark2").connect(patience_s=10)


async def test_a_silent_target_behind_a_jump_host_leaks_no_connection(sshd: Sshd, tmp_path: Path) -> None:
    sshd.trust()
    sshd.alias("bastion")
    with _full_listener() as (host, port):
        sshd.alias("spark1", HostName=host, Port=str(port), ProxyJump="bastion")
        with pytest.raises((NoRoute, NoBanner)):
            await connector("spark1").connect(patience_s=1)
        poll(lambda: not sshd.session_pids(), what="the end of the jump host's sessions")
        assert len(asyncio.all_tasks()) == 1


def _sockets() -> int:
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return count


@contextlib.contextmanager
def _full_listener() -> Iterator[tuple[str, int]]:
    """A port whose queue is full: further SYNs are dropped, as by a firewall or a host that is off."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()


async def test_a_host_that_drops_packets_is_no_route() -> None:
    with _full_listener() as (host, port):
        one = connector(f"{host}:{port}")
        with pytest.raises(NoRoute, match="gave no answer to TCP within 3 s"):
            await one.connect(patience_s=5)
        assert (await one.reach())[0] == Reach.NO_HOST


async def test_a_killed_session_is_a_lost_link_at_once(sshd: Sshd) -> None:
    transport = await sshd.connector().connect(patience_s=10)
    channel = await transport.run(["cat"])
    await channel.write(b"x")
    assert await channel.read() == b"x"
    assert sshd.kill_sessions(signal.SIGKILL)
    with pytest.raises(LinkLost, match="closed the connection"):
        await channel.read()
    assert "closed the connection" in await transport.wait_closed()
    with pytest.raises(LinkLost):
        await transport.run(["true"])
    with pytest.raises(LinkLost):
        await channel.write(b"y")
    await channel.close()
    await transport.close()


async def test_a_frozen_session_is_noticed_by_keepalives_and_closing_it_does_not_hang(sshd: Sshd) -> None:
    transport = await sshd.connector().connect(patience_s=10)
    channel = await transport.run(["cat"])
    pids = sshd.kill_sessions(signal.SIGSTOP)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(LinkLost, match="keepalives"):
                await channel.read()
        await transport.close()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_many_connections_leave_no_descriptor_and_no_task(sshd: Sshd) -> None:
    async def cycle() -> None:
        transport = await sshd.connector().connect(patience_s=10)
        channel = await transport.run(["cat"])
        await channel.write(b"hello")
        assert await channel.read() == b"hello"
        async with transport.tcp_socket("127.0.0.1", 9):
            pass
        await transport.close()

    await cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await cycle()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_the_pinned_key_is_the_only_one_trusted(sshd: Sshd) -> None:
    one = sshd.connector()
    sshd.restart(new_host_key=True)
    with pytest.raises(HostKeyRefused, match="CHANGED"):
        await one.connect(patience_s=10)


async def test_cancelling_an_attempt_leaves_nothing_open(sshd: Sshd) -> None:
    one = sshd.connector()
    before = len(os.listdir("/proc/self/fd"))
    with sshd.frozen():
        attempt = asyncio.create_task(one.connect(patience_s=60))
        await asyncio.wait([attempt], timeout=0.5)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert len(asyncio.all_tasks()) == 1
