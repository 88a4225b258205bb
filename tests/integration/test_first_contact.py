"""The first login to a new Spark, on real OpenSSH servers: by password, then by the operator's own key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.newspark import PASSWORD, NewSpark
from tests.integration.sshd import make_key
from tests.integration.terminal import sparktop, terminal
from tests.support import PATIENCE_S, needs, poll
from tests.table import few

from sparktop.operate.audit_file import entries

pytestmark = pytest.mark.integration


@pytest.fixture
def spark() -> Iterator[NewSpark]:
    with NewSpark.start("spark1", "127.0.0.2") as started:
        started.known_as()
        yield started


def own_key(name: str = "id_ed25519", **more: str) -> Path:
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    return make_key(folder / name, **more)


def with_password(*words: str) -> str:
    """What sparktop says where the password is typed when it is asked for: once."""
    with terminal(*words) as at:
        at.reads("password of owner")
        at.types(f"{PASSWORD}\n")
        at.ends()
        assert at.text.count("password of owner") == 1, at.text
        assert PASSWORD not in at.text
        return at.text


def row(check: str, *words: str) -> dict[str, Any]:
    out = sparktop("bringup", "spark1", "--only", check, "--json", *words)
    rows = json.loads(out.stdout)["checks"]
    return next(one for one in rows if one["check"] == check)


def test_a_password_becomes_a_key_and_can_be_taken_off_again(spark: NewSpark) -> None:
    key = own_key()
    line = Path(f"{key}.pub").read_text().strip()
    spark.write(spark.authorized_keys, "# mine\nssh-ed25519 AAAAold other", mode=0o664)  # without a last line break
    said = with_password("bringup", "spark1", "--only", "reach")
    assert "by a password, at every connection" in said
    assert f"Install the key id_ed25519.pub (id_ed25519), {_fingerprint(key)}" in said

    said = with_password("act", "install-key", "spark1", "--yes")
    assert "Log in to spark1 with the key alone" in said
    assert spark.authorized_keys.read_text() == f"# mine\nssh-ed25519 AAAAold other\n{line}\n"
    assert oct(spark.authorized_keys.stat().st_mode & 0o777) == "0o644"  # the others may not write it any more
    assert PASSWORD not in json.dumps(entries()[0])
    spark.sshd.stop_listener()
    spark.sshd.options["PasswordAuthentication"] = "no"
    spark.sshd.run()
    config = Path(os.environ["HOME"]) / ".ssh/config"
    config.write_text(config.read_text().replace("IdentityFile none", f"IdentityFile {key}"))
    assert row("reach.login")["state"] == "passed"

    again = sparktop("act", "install-key", "spark1", "--yes")
    assert (again.returncode, "already" in again.stderr + again.stdout) == (1, True)
    assert spark.authorized_keys.read_text().count(line) == 1

    off = sparktop("act", "install-key", "spark1", "--set", "remove=yes", "--yes")
    assert off.returncode == 0, off.stdout + off.stderr
    assert spark.authorized_keys.read_text() == "# mine\nssh-ed25519 AAAAold other\n"
    assert sparktop("bringup", "spark1", "--only", "reach").returncode == 3


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent that holds a key; its files are gone. Gives the public half's line."""
    needs("ssh-agent", "openssh-client")
    needs("ssh-add", "openssh-client")
    socket, key = tmp_path / "agent", make_key(tmp_path / "held")
    line = Path(f"{key}.pub")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        poll(socket.exists, what="the agent's socket")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)
        key.unlink()
        yield line
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_key_that_the_agent_holds_is_installed_and_proven(spark: NewSpark, agent: Path) -> None:
    said = with_password("act", "install-key", "spark1", "--yes")
    assert "without a password" in said
    assert spark.authorized_keys.read_text() == agent.read_text()
    assert row("reach.login")["state"] == "passed"


@pytest.mark.slow
def test_a_run_that_was_cut_off_is_finished_by_the_next(spark: NewSpark) -> None:
    key = own_key()
    line = Path(f"{key}.pub").read_text().strip()
    with terminal("act", "install-key", "spark1", "--yes") as at:
        at.reads("password of owner")
        at.types(f"{PASSWORD}\n")
        poll(spark.authorized_keys.exists, what="the line")
        os.kill(at.pid, signal.SIGKILL)
        at.ends()
    poll(lambda: line in spark.authorized_keys.read_text(), what="the line, which the Spark adds by itself")
    said = with_password("act", "install-key", "spark1", "--yes")
    assert "Log in to spark1 with the key alone" in said
    assert spark.authorized_keys.read_text() == f"{line}\n"
    assert oct(spark.authorized_keys.stat().st_mode & 0o777) == "0o600"
    assert oct(spark.ssh_folder.stat().st_mode & 0o777) == "0o700"


@pytest.mark.slow
def test_a_key_that_sshd_does_not_take_is_reported_and_can_be_rolled_back(spark: NewSpark) -> None:
    own_key()
    spark.sshd.stop_listener()
    spark.sshd.options["PubkeyAuthentication"] = "no"
    spark.sshd.run()
    with terminal("act", "install-key", "spark1", "--yes") as at:
        at.reads("password of owner")
        at.types(f"{PASSWORD}\n")
        assert at.ends() == 1
        assert "rejected every login method" in at.text


def read_only(spark: NewSpark) -> None:
    home = str(spark.home)
    for argv in (("mount", "--bind", home, home), ("mount", "-o", "remount,bind,ro", home)):
        done = spark.run(*argv, as_owner=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("spoil", "said"),
    few(
        [
            (lambda spark: None, "you have 2 keys: say which"),
            (lambda spark: spark.ssh_folder.symlink_to("/tmp"), ".ssh on spark1 is a link"),
            (lambda spark: spark.ssh_folder.mkdir(0o700), ".ssh on spark1 is not owner's (user id 0)"),
            (read_only, "read-only"),
        ],
        lambda row: row[0] is read_only,
    ),
)
def test_it_is_refused_where_it_can_not_be_done(spark: NewSpark, spoil: Callable[[NewSpark], None], said: str) -> None:
    own_key()
    if "several" in said or "2 keys" in said:
        own_key("work")
    spoil(spark)
    assert said in " ".join(with_password("act", "install-key", "spark1", "--yes").split())
    assert not spark.authorized_keys.exists()


def test_without_a_key_the_command_that_makes_one_is_said(spark: NewSpark) -> None:
    assert "ssh-keygen -t ed25519" in with_password("act", "install-key", "spark1", "--yes")


@pytest.mark.parametrize(
    ("name", "said"),
    [("spark-abcd.local", "(mDNS)"), ("no-such-spark", "the name service knows no no-such-spark")],
)
def test_a_name_that_does_not_resolve_has_its_next_steps(name: str, said: str) -> None:
    out = sparktop("bringup", name, "--only", "reach", "--json", "--timeout", "8")
    assert out.returncode == 3, out.stderr
    found = {one["check"]: one for one in json.loads(out.stdout)["checks"]}["reach.name"]
    assert (found["state"], said in found["found"]) == ("failed", True), found
    assert any("lease" in step for step in found["remedies"][0]["steps"])


def _fingerprint(key: Path) -> str:
    out = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True)
    return out.stdout.split()[1]
