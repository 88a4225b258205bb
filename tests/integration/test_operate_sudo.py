"""The real sudo, as a user logs in by SSH: asked for once at the terminal, wrong, not needed, not permitted.

The user and what sudo permits stand in the machine's own /etc, and go with it.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.spark import Spark
from tests.integration.terminal import sparktop, terminal
from tests.support import free_port, unavailable

from sparktop.operate.audit_file import audit_path, entries

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@dataclass
class Person:
    """Somebody who logs in to spark1, and is not root there."""

    spark: Spark
    name: str
    password: str

    def may(self, *rules: str) -> None:
        """Lines of /etc/sudoers.d/sparktop, as an administrator would install them: `visudo -c` has to take them."""
        text = "".join(f"{rule}\n" for rule in rules)
        self.spark.run("visudo", "-c", "-f", "-", said=text)
        self.spark.run("sh", "-c", "umask 337; rm -f /etc/sudoers.d/sparktop; cat >/etc/sudoers.d/sparktop", said=text)

    def kept(self) -> bytes:
        """All that was kept, there and here."""
        places = [self.spark.root / "run", audit_path().parent]
        return b"".join(
            path.read_bytes()
            for place in places
            for path in place.rglob("*")
            if path.is_file() and "docker" not in path.parts
        )


@pytest.fixture(scope="module")
def somebody() -> Iterator[Person]:
    for program in ("sudo", "visudo", "useradd", "chpasswd"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here: apt-get install sudo passwd")
    with Spark.start("spark1", "127.0.0.2") as spark:
        person = Person(spark, f"spk{secrets.token_hex(3)}", secrets.token_urlsafe(12))
        spark.run("useradd", "--no-create-home", "--home-dir", "/tmp", "--shell", "/bin/sh", person.name)
        spark.run("chpasswd", said=f"{person.name}:{person.password}\n")
        yield person


@pytest.fixture
def person(somebody: Person) -> Iterator[Person]:
    somebody.spark.sshd.trust()
    somebody.spark.sshd.alias("spark1", User=somebody.name)
    somebody.spark.run("rm", "-rf", "/run/sudo")
    yield somebody
    somebody.may()


def ends() -> list[dict[str, object]]:
    return [one for one in entries()[0] if one["kind"] == "end"]


@pytest.mark.fast
def test_the_password_is_asked_for_once_and_kept_nowhere(person: Person) -> None:
    person.may(f"{person.name} ALL=(ALL) ALL")
    with terminal("act", "drop-caches", "spark1") as at:
        at.reads("will ask for")
        asked = at.reads("Run this? (yes/no)")
        at.types("yes\r")
        asked = at.reads("sudo wants your password", after=asked)
        at.types(person.password + "\r")
        assert at.ends() == 0, at.text
        assert b"sudo wants your password" not in at.written[asked:]
        assert person.password not in at.text
    assert person.password.encode() not in person.kept()
    assert [one["state"] for one in ends()] == ["done"]


def test_three_wrong_passwords_end_it(person: Person) -> None:
    person.may(f"{person.name} ALL=(ALL) ALL")
    with terminal("act", "drop-caches", "spark1", "--yes") as at:
        asked = 0
        for count in range(3):
            asked = at.reads("sudo wants your password", after=asked)
            if count:
                at.reads(f"wrong {count} time", after=asked)
            at.types(f"wrong-{person.password}-{count}\r")
        assert at.ends() == 1, at.text
        assert "sudo refused the password 3 times" in at.text
        assert person.password not in at.text
    assert person.password.encode() not in person.kept()
    assert [one["state"] for one in ends()] == ["failed"]


def test_ctrl_c_at_the_question_is_the_way_out(person: Person) -> None:
    person.may(f"{person.name} ALL=(ALL) ALL")
    with terminal("act", "drop-caches", "spark1", "--yes") as at:
        at.reads("sudo wants your password")
        at.types("\x03")
        assert at.ends() == 130, at.text
    assert [one["state"] for one in ends()] == ["aborted"]


def test_without_a_terminal_it_says_what_is_missing(person: Person) -> None:
    person.may(f"{person.name} ALL=(ALL) ALL")
    out = sparktop("act", "drop-caches", "spark1", "--yes")
    assert out.returncode == 1
    assert "no terminal" in out.stderr
    assert "NOPASSWD" in out.stdout
    assert "ssh-agent" not in out.stderr, "a key is no help to sudo"


def test_the_line_that_is_shown_is_the_one_that_is_needed(person: Person) -> None:
    person.may(f"{person.name} ALL=(ALL) ALL")
    shown = sparktop("act", "drop-caches", "spark1", "--dry-run").stdout
    (line,) = [row.rpartition("/etc/sudoers.d/sparktop: ")[2] for row in shown.splitlines() if "NOPASSWD" in row]
    person.may(f"{person.name} ALL=(ALL) ALL", line)
    out = sparktop("act", "drop-caches", "spark1", "--yes", "--json")
    assert out.returncode == 0, out.stdout + out.stderr
    told = json.loads(out.stdout)
    assert "password" not in json.dumps(told["plan"]["warnings"])
    assert [step["state"] for step in told["run"]["steps"]] == ["done", "done"]
    person.may(line)  # and nothing beside it
    again = sparktop("act", "drop-caches", "spark1", "--dry-run", "--json")
    assert "password" not in json.dumps(json.loads(again.stdout)["plan"]["warnings"]), again.stdout
    other = person.spark.run("su", person.name, "-c", "sudo -n /usr/sbin/sysctl -w vm.drop_caches=1 2>&1 || true")
    assert "password is required" in other


def test_who_may_not_is_told_so_and_by_whom_it_can_be_mended(person: Person) -> None:
    with terminal("act", "drop-caches", "spark1", "--yes") as at:
        at.reads("sudo wants your password")
        at.types(person.password + "\r")
        assert at.ends() == 1, at.text
        assert "doesn't allow" in at.text
        assert person.password not in at.text


def test_who_may_not_use_docker_is_told_how(person: Person) -> None:
    port = free_port()
    person.spark.engines.start("vllm-closed", "--port", str(port), port=port, env={"ENGINE_LOAD_S": "0.3"})
    try:
        out = sparktop("act", "safe-restart", "spark1", "--yes")
    finally:
        person.spark.engines.remove_all()
    assert out.returncode == 1, out.stdout + out.stderr
    assert f"{person.name} may not use Docker on spark1" in out.stdout
    assert f"sudo usermod -aG docker {person.name}" in out.stdout
    assert not audit_path().exists()
