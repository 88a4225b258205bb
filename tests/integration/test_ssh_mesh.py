"""ssh between the nodes, on two real OpenSSH servers: keys made there, our connections' host keys, real logins."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.newspark import NewSpark
from tests.integration.sshd import make_key
from tests.integration.terminal import sparktop, terminal
from tests.support import poll

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAMES = ("spark1", "spark2")
SETTINGS = ("BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ConnectTimeout=5")
BATCH = tuple(word for setting in SETTINGS for word in ("-o", setting))
Pair = tuple[NewSpark, NewSpark]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two with a key of the operator's, on ports of their own."""
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    key = make_key(folder / "id_ed25519")
    with contextlib.ExitStack() as stack:
        sparks = [
            stack.enter_context(NewSpark.start(name, host))
            for name, host in zip(NAMES, ("127.0.0.2", "127.0.0.3"), strict=True)
        ]
        for spark in sparks:
            spark.known_as()
            spark.write(spark.authorized_keys, Path(f"{key}.pub").read_text())
        config = folder / "config"
        config.write_text(config.read_text().replace("IdentityFile none", f"IdentityFile {key}"))
        yield sparks[0], sparks[1]


def logs_in(spark: NewSpark, other: NewSpark) -> bool:
    return spark.run("ssh", *BATCH, "--", other.sshd.host, "true").returncode == 0


def mesh(*more: str) -> str:
    out = sparktop("act", "ssh-mesh", *NAMES, "--yes", *more)
    assert out.returncode == 0, out.stdout + out.stderr
    return out.stdout + out.stderr


def row() -> dict[str, Any]:
    out = sparktop("bringup", *NAMES, "--only", "addresses.ssh", "--json")
    (found,) = json.loads(out.stdout)["checks"]
    return dict(found)


def files(spark: NewSpark) -> dict[str, str]:
    return {path.name: path.read_text() for path in spark.ssh_folder.iterdir() if not path.name.startswith("id_")}


def test_two_nodes_log_in_at_each_other_and_no_more_after_it_is_taken_away(pair: Pair) -> None:
    first, second = pair
    before = files(first)
    assert row()["state"] == "warning"
    assert row()["remedies"][0]["action"] == "ssh-mesh"
    mesh()
    assert logs_in(first, second)
    assert logs_in(second, first)
    assert row()["state"] == "passed"
    private = [(spark.ssh_folder / "id_ed25519").read_text() for spark in pair]
    assert private[0] != private[1]
    assert [oct((spark.ssh_folder / "id_ed25519").stat().st_mode & 0o777) for spark in pair] == ["0o600"] * 2
    known = (first.ssh_folder / "known_hosts").read_text()
    assert known == f"[{second.sshd.host}]:{second.sshd.port} {' '.join(second.sshd.known_hosts_line.split()[1:])}\n"
    again = sparktop("act", "ssh-mesh", *NAMES, "--yes")
    assert (again.returncode, "log in to each other already" in again.stderr + again.stdout) == (1, True)

    mesh("--set", "remove=yes")
    assert not logs_in(first, second)
    assert {name: text for name, text in files(first).items() if text} == before


def test_three_log_in_at_one_another(pair: Pair) -> None:
    key = Path(os.environ["HOME"]) / ".ssh/id_ed25519"
    with NewSpark.start("spark3", "127.0.0.4") as third:
        third.known_as()
        third.sshd.alias("third", User="owner", IdentityFile=str(key))
        third.write(third.authorized_keys, Path(f"{key}.pub").read_text())
        out = sparktop("act", "ssh-mesh", *NAMES, "third", "--yes")
        assert out.returncode == 0, out.stdout + out.stderr
        everyone = (*pair, third)
        assert all(logs_in(near, far) for near in everyone for far in everyone if near is not far)


def test_a_run_that_was_cut_off_is_finished_by_the_next(pair: Pair) -> None:
    first, second = pair
    with terminal("act", "ssh-mesh", *NAMES, "--yes") as at:
        poll(lambda: (first.ssh_folder / "id_ed25519.pub").exists(), what="the first key")
        os.kill(at.pid, signal.SIGKILL)
        at.ends()
    mesh()
    assert logs_in(first, second)
    assert logs_in(second, first)
    for spark in pair:
        assert spark.authorized_keys.read_text().count("sparktop-") == 1
        assert (spark.ssh_folder / "config").read_text().count("begin") == 1


def test_a_key_with_a_passphrase_stays_and_another_is_made_beside_it(pair: Pair) -> None:
    first, second = pair
    first.ssh_folder.chmod(0o700)
    locked = first.ssh_folder / "id_ed25519"
    made = first.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(locked))
    assert made.returncode == 0, made.stderr
    before = locked.read_text()
    mesh()
    assert locked.read_text() == before
    assert logs_in(first, second)
    assert "IdentityFile" in (first.ssh_folder / "config").read_text()


def test_a_login_that_fails_is_reported_with_what_ssh_said(pair: Pair) -> None:
    first, second = pair
    operator = make_key(Path(os.environ["HOME"]) / ".ssh/ecdsa", kind="ecdsa")
    second.write(second.authorized_keys, Path(f"{operator}.pub").read_text())
    second.sshd.stop_listener()
    second.sshd.options["PubkeyAcceptedAlgorithms"] = "ecdsa-sha2-nistp256"  # not the key that is made on spark1
    second.sshd.options["PasswordAuthentication"] = "no"
    second.sshd.run()
    second.sshd.alias("spark2e", User="owner", IdentityFile=str(operator))
    out = sparktop("act", "ssh-mesh", "spark1", "spark2e", "--yes")
    assert out.returncode == 1
    assert "Permission denied" in out.stdout + out.stderr
    sparktop("act", "ssh-mesh", "spark1", "spark2e", "--set", "remove=yes", "--yes")
    assert "sparktop" not in second.authorized_keys.read_text()
    assert not files(first)["known_hosts"]
