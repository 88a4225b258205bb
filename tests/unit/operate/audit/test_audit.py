"""The audit: only added to, on disk before step one, and read back whatever has happened to it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import stat
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.operate_support import FAILED, Stage, plan, step
from tests.pictures_support import node, picture

from sparktop.clock import ManualClock
from sparktop.headless.audit import audit as shown
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.audit_file import Audit, AuditError, audit_path, entries, operator
from sparktop.operate.run.guard_orders import NOTES_AT_MOST, GuardAuditLog
from sparktop.operate.runner.api import Outcome, OutcomeState
from sparktop.operate.step.run import RunState


def made(path: Path) -> Audit:
    return Audit(path, clock=ManualClock(), who="me@laptop")


async def test_an_entry_stands_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "state" / "sparktop" / "audit.jsonl"
    await made(file).keep("intent", {"run": "r1", "text": "\x1b[31m ü"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    raw = file.read_bytes()
    assert raw.isascii()
    assert raw.endswith(b"\n")
    entry = json.loads(raw)
    assert entry == {
        "v": 1,
        "kind": "intent",
        "at": "2026-05-28T20:26:40.000+00:00",
        "wall_s": 1_780_000_000.0,
        "who": "me@laptop",
        "run": "r1",
        "text": "\x1b[31m ü",
    }


def test_where_it_stands_and_who_writes() -> None:
    assert audit_path() == Path(os.environ["XDG_STATE_HOME"]) / "sparktop" / "audit.jsonl"
    assert "@" in operator()


async def test_it_is_synced_before_keep_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) or real(handle))
    one = made(tmp_path / "a.jsonl")
    await one.keep("intent", {})
    assert len(synced) == 2  # the file, and the folder that has a new name in it
    one.note("step", {})
    assert len(synced) == 2
    await one.keep("end", {})
    assert len(synced) == 3


async def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.touch(0o644)
    made(file).note("step", {})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["folder", "file", "full"])
async def test_what_can_not_be_written_is_said(tmp_path: Path, what: str) -> None:
    file = tmp_path / "folder" / "audit.jsonl"
    if what == "folder":
        file.parent.write_text("no folder")
    else:
        file.parent.mkdir()
        if what == "file":
            file.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if what == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(AuditError, match="can't be written") as caught:
            await made(file).keep("intent", {"run": "r"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_code == 1
    assert caught.value.hint


async def test_a_torn_line_does_not_take_the_next_with_it(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"kind":"end","wall_s":1,"ha')  # a disk was full here
    made(file).note("step", {"run": "r"})
    found, damaged = entries(file)
    assert ([entry["run"] for entry in found], damaged) == (["r"], 1)


def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    good = b'{"kind":"end","wall_s":5,"run":"r"}'
    bad = [b"", b"\xff\xfe", b"[]", b"{}", b'{"kind":3,"wall_s":1}', b'{"kind":"x","wall_s":"1"}', b"[" * 100_000]
    bad += [b'{"kind":"x","wall_s":1e99}', b'{"kind":"x","wall_s":true}', b'{"kind":"x","wall_s":NaN}']
    file.write_bytes(b"\n".join([*bad, good, b""]))
    found, damaged = entries(file)
    assert ([entry["run"] for entry in found], damaged) == (["r"], len(bad) - 1)
    assert entries(tmp_path / "absent") == ([], 0)
    with pytest.raises(AuditError):
        entries(tmp_path)


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    one = made(file)
    for number in range(100):
        one.note("step", {"run": str(number), "pad": "x" * 100})
    found, damaged = entries(file, limit_bytes=2000)
    assert damaged == 0
    assert found[-1]["run"] == "99"
    assert 3 < len(found) < 15


def test_an_entry_without_measure_is_kept_short(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    made(file).note("step", {"run": "r", "output": "x" * (2 << 20)})
    assert file.stat().st_size < 1000
    assert entries(file)[0][0]["run"] == "r"


def test_two_consoles_do_not_tear_one_anothers_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    code = (
        "import sys; from pathlib import Path; from sparktop.operate.audit_file import Audit\n"
        "a = Audit(Path(sys.argv[1]), who=sys.argv[2])\n"
        "for n in range(60): a.note('step', {'run': str(n), 'pad': sys.argv[2] * 9000})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(file), who]) for who in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found, damaged = entries(file)
    assert (len(found), damaged) == (120, 0)


# --- guards


def armed(**more: Any) -> GuardState:
    return replace(
        GuardState(
            phase=GuardPhase.ARMED,
            container_id="ab" * 32,
            container_name="vllm",
            floor_bytes=4 << 30,
            since_wall_s=100.0,
        ),
        **more,
    )


def test_what_a_guard_does_is_written_down_once(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    fired = armed(
        phase=GuardPhase.FIRED, available_bytes=3 << 30, since_wall_s=160.0, detail="below the floor; HF_TOKEN=abc"
    )
    for _ in range(2):  # the second is another console, which sees the same
        log = GuardAuditLog(made(file))
        for guard in (None, armed(), armed(), fired):
            log.see(picture(node("spark1", guard=guard), node("spark2")))
    kept = entries(file)[0]
    assert [(entry["phase"], entry["node"]) for entry in kept] == [("armed", "spark1"), ("fired", "spark1")]
    assert (kept[1]["available_gib"], kept[1]["floor_gib"], kept[1]["container"]) == (3.0, 4.0, "vllm")
    assert "abc" not in kept[1]["detail"]


def test_a_guard_that_is_gone_is_written_down(tmp_path: Path) -> None:
    log = GuardAuditLog(made(tmp_path / "a.jsonl"))
    log.see(picture(node("spark1", guard=armed())))
    log.see(picture(node("spark1")))
    assert [entry["phase"] for entry in entries(tmp_path / "a.jsonl")[0]] == ["armed", "disarmed"]


def test_a_guard_that_changes_all_the_time_fills_no_disk(tmp_path: Path) -> None:
    """A Spark may say so of its guard five times a second; the other one's is noted all the same."""
    file = tmp_path / "a.jsonl"
    log = GuardAuditLog(made(file))
    for second in range(2 * NOTES_AT_MOST):
        log.see(picture(node("spark1", guard=armed(since_wall_s=float(second))), node("spark2")))
    log.see(picture(node("spark1"), node("spark2", guard=armed())))
    kept = entries(file)[0]
    assert [entry["node"] for entry in kept] == ["spark1"] * NOTES_AT_MOST + ["spark2"]
    assert "no more entries" in kept[-2]["detail"]
    assert "notes no more" not in str(kept[:-2])


def test_an_audit_that_can_not_be_written_does_not_end_the_watching(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.mkdir()
    log = GuardAuditLog(made(file))
    log.see(picture(node("spark1", guard=armed())))
    file.rmdir()
    log.see(picture(node("spark1")))
    assert [entry["phase"] for entry in entries(file)[0]] == ["disarmed"], "what could be written again was"


# --- sparktop audit


def told(path: Path, **more: Any) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert shown(path=path, **more) == 0
    return out.getvalue(), err.getvalue()


async def test_the_command_tells_who_did_what_and_how_it_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    stage.node.output = "fine"
    assert (await stage.carry_out(plan(step("stop"), title="Restart vllm"))).state is RunState.DONE
    stage.nodes[1].fails["drop"] = FAILED
    execution = stage.execution(plan(step("drop", name="spark2"), title="Drop caches"), run_id="run-2")
    execution.start()
    await execution.finished()
    with stage.audit_path.open("a") as file:
        file.write('{"kind":"step","wall_s":1,"run":"run-3"}\nnot json\n')
        file.write('{"kind":"intent","wall_s":2,"run":"x\\u001b[2J","nodes":7}\n')
    out, err = told(stage.audit_path)
    assert "me@laptop  spark1  Restart vllm: done in" in out
    assert "me@laptop  spark2  Drop caches: failed in" in out
    assert "failed: Do drop: it would not." in out
    assert "not ended" in out
    assert "\x1b" not in out
    assert err == "sparktop: 1 damaged line passed over\n"
    out, _ = told(stage.audit_path, node="spark2")
    assert "Drop caches" in out
    assert "Restart" not in out
    assert told(stage.audit_path, count=1)[0].count("\n  ") <= 1
    data = json.loads(told(stage.audit_path, as_json=True, node="spark1")[0])
    assert data["version"] == 1
    assert [entry["kind"] for entry in data["entries"]] == ["intent", "step", "end"]
    assert data["entries"][1]["results"][0]["output"] == "fine"


async def test_what_is_left_of_a_run_is_told_with_how_to_undo_it(tmp_path: Path) -> None:
    """Whoever comes after a console that was closed, or killed, finds the commands here."""
    stage = Stage(tmp_path)
    steps = step("off", undone_by="docker update --restart=always vllm"), step("stop")
    stage.node.at = lambda step_id: before.append(stage.audit_path.read_bytes())
    before: list[bytes] = []
    stage.node.fails["stop"] = FAILED
    await stage.carry_out(plan(*steps))
    assert "To undo it: docker update --restart=always vllm\n" in told(stage.audit_path)[0]
    stage.audit_path.write_bytes(before[-1])  # as it was when the second step was begun
    out, _ = told(stage.audit_path)
    assert "not ended" in out
    assert "console ended" in out
    audit = Audit(stage.audit_path, who="me")
    audit.hold("run-1")
    out, _ = told(stage.audit_path)
    assert ": under way" in out
    assert "ended before" not in out
    audit.let_go("run-1")
    assert "    done: Do off (undone by: docker update --restart=always vllm)\n" in out
    assert "done: Do stop" not in out


async def test_figures_that_moved_are_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def freed(step_id: str) -> None:
        view = node("spark1", available_gib=110.0, engines=())
        stage.views["spark1"] = {"sample": view.sample, "engines": ()}

    stage.node.at = freed
    stage.node.fails["stop"] = Outcome(state=OutcomeState.DONE)
    await stage.carry_out(plan(step("stop"), title="Stop"))
    out, _ = told(stage.audit_path)
    assert "spark1: available 27.0 → 110.0 GiB" in out


def test_an_audit_that_is_damaged_from_end_to_end_is_no_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\0" * 4096)
    for as_json in (False, True):
        with redirect_stderr(io.StringIO()) as err:
            assert shown(path=file, as_json=as_json) == 1
        assert "what has been done is lost" in err.getvalue()
        assert "nothing has been done" not in err.getvalue()


def test_nothing_done_yet(tmp_path: Path) -> None:
    out, err = told(tmp_path / "absent")
    assert out == ""
    assert "nothing has been" in err
    assert json.loads(told(tmp_path / "absent", as_json=True)[0]) == {"version": 1, "entries": []}


async def test_what_comes_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl"
    one = made(file)
    one.note("end", {"run": "old", "state": "done", "message": "an old one"})
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            one.note("intent", {"run": "new", "title": "Restart it", "nodes": ["spark1"]})
            one.note("intent", {"run": "far", "title": "Elsewhere", "nodes": ["spark2"]})
            one.note("step", {"run": "new", "node": "spark1", "title": "Do stop", "state": "done"})
            one.note("end", {"run": "new", "state": "done", "message": "all well"})
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("sparktop.headless.audit.time.sleep", sleep)
    with redirect_stdout(io.StringIO()) as out, pytest.raises(KeyboardInterrupt):
        shown(path=file, node="spark1", follow=True)
    said = [line.split("  ", 2)[2] for line in out.getvalue().splitlines()]
    assert said == ["Restart it", "done: Do stop", "done: all well"]


async def test_a_guard_stands_among_the_runs(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    log = GuardAuditLog(made(file))
    log.see(picture(node("spark1", guard=armed(phase=GuardPhase.FIRED, available_bytes=3 << 30))))
    assert "spark1  guard fired: vllm below 4.0 GiB at 3.0 GiB available" in told(file)[0]
    await asyncio.sleep(0)
