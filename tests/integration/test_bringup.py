"""`sparktop bringup` as it is typed, over real sshd with the real probe and runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sshd import Sshd, sshd
from tests.integration.terminal import SPARKTOP, sparktop

from sparktop.model.bringup import CHAPTER_TITLES, Chapter

pytestmark = pytest.mark.integration
__all__ = ["sshd"]


@pytest.fixture
def spark(sshd: Sshd) -> Sshd:
    sshd.trust()
    sshd.alias("spark1")
    sshd.alias("spark2")
    return sshd


def looked(*words: str) -> tuple[int, dict[tuple[str, ...], dict[str, Any]]]:
    out = sparktop("bringup", *words, "--json")
    assert out.stdout, out.stderr
    rows = json.loads(out.stdout)["checks"]
    return out.returncode, {(row["check"], *row["nodes"]): row for row in rows}


def test_one_machine_under_two_names_is_told_and_every_chapter_is_looked_at(spark: Sshd) -> None:
    code, rows = looked("spark1", "spark2")
    assert code == 1
    assert rows["reach.ssh", "spark1"]["state"] == "passed"
    assert "are one machine under two names" in rows["identity.clones", "spark1", "spark2"]["found"]
    assert rows["machine.memory", "spark1"]["found"].endswith("GiB in all")
    assert {row["chapter"] for row in rows.values()} == {str(chapter) for chapter in Chapter}
    faults = [row for row in rows.values() if "fault in sparktop" in row["found"]]
    assert faults == []


@pytest.mark.slow
def test_what_is_proven_is_kept_until_it_is_asked_for_again(spark: Sshd) -> None:
    _, rows = looked("spark1", "--only", "identity", "--only", "machine.headers")
    assert {name for name, _ in rows} == {"identity.product", "identity.name", "machine.headers"}
    kept = Path(os.environ["XDG_STATE_HOME"]) / "sparktop" / "bringup.json"
    assert oct(kept.stat().st_mode & 0o777) == "0o600"
    proven = {row["check"]: row for row in json.loads(kept.read_text())["proven"]}
    first = looked("spark1")[1]["machine.headers", "spark1"]
    if first["state"] == "passed":
        assert "machine.headers" in proven
        assert looked("spark1")[1]["machine.headers", "spark1"]["is_kept"] is True
        assert looked("spark1", "--again")[1]["machine.headers", "spark1"]["is_kept"] is False
    kept.write_text("{")  # whatever becomes of the file, the look goes on
    assert looked("spark1", "--only", "reach")[0] == 0


@pytest.mark.slow
def test_a_look_that_is_killed_in_each_chapter_goes_on_where_it_was(spark: Sshd) -> None:
    whole = looked("spark1", "spark2")[1]
    kept = Path(os.environ["XDG_STATE_HOME"]) / "sparktop" / "bringup.json"
    proven = {row["check"] for row in json.loads(kept.read_text())["proven"]}
    assert proven
    kept.unlink()
    told: list[str] = []
    for chapter in dict.fromkeys(row["chapter"] for row in whole.values()):
        title = CHAPTER_TITLES[Chapter(chapter)]
        killed = subprocess.Popen(
            [*SPARKTOP, "bringup", "spark1", "spark2"], stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert killed.stdout is not None
        for line in killed.stdout:
            if line.strip().startswith(title):
                told.append(chapter)
                break
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        killed.stdout.close()
    assert told == list(dict.fromkeys(row["chapter"] for row in whole.values()))
    again = looked("spark1", "spark2")[1]  # as from another terminal
    of_engines = {key for key in {*again, *whole} if key[0].startswith("endpoint.")}  # other tests start some
    assert set(again) - of_engines == set(whole) - of_engines
    goes_on = {row["check"] for row in again.values() if row["is_kept"]}
    # what both looks found passed; this machine runs other tests meanwhile
    assert goes_on >= proven & {row["check"] for row in again.values() if row["state"] == "passed"}
    assert goes_on


def test_the_page_is_printed_and_kept(spark: Sshd, tmp_path: Path) -> None:
    page = tmp_path / "sparks.md"
    out = sparktop("bringup", "spark1", "--page", str(page))
    assert out.returncode == 1
    assert "Machine" in out.stdout
    assert "Left to do" in out.stdout
    assert page.read_text().startswith("# Bring-up of spark1\n")
    assert f"the page is in {page}" in out.stderr


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_3_and_the_other_is_looked_at(spark: Sshd) -> None:
    gone = "nobody@127.0.0.1:9"
    code, rows = looked("spark1", gone, "--timeout", "6")
    assert code == 3
    assert rows["reach.ssh", gone]["state"] == "failed"
    assert rows["machine.cuda", gone]["state"] == "not reached"
    assert rows["machine.memory", "spark1"]["state"] in ("passed", "failed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bringup",), "on which Spark?"),
        (("bringup", "spark1", "--only", "machin"), "did you mean machine?"),
        (("bringup", "spark1", "--only", "xyz"), "the chapters: reach, identity"),
    ],
)
def test_what_is_mistyped_is_told(words: tuple[str, ...], said: str) -> None:
    out = sparktop(*words)
    assert (out.returncode, said in out.stderr) == (2, True), out.stderr
