"""What a run notes on its nodes, and what a console on another machine makes of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.operate_support import Stage, plan, step
from tests.runner_support import NODE, Bench, bench

from sparktop.model.operation import DockerCall
from sparktop.model.survey import NoteRun, RunNotes
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.elsewhere import RunsElsewhere, runs_elsewhere
from sparktop.operate.audit.interrupted_runs import InterruptedRun, interrupted_runs
from sparktop.operate.step.run import RunState

ID = "a" * 64
STOP = Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop"),))
START = Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/start"),))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "state") as made:
        yield made


def noted(*entries: dict[str, Any], run: str = "run-1", held: bool = False) -> list[dict[str, Any]]:
    """A node's answer to RunNotes."""
    return [{"run": run, "held": held, "entries": [json.dumps(entry) for entry in entries]}]


def told(found: RunsElsewhere) -> tuple[InterruptedRun, ...]:
    return interrupted_runs(
        found.entries, is_under_way=lambda run: run in found.under_way, now_wall_s=found.entries[-1]["wall_s"]
    )


async def entries_of_a_run(tmp_path: Path, *nodes: str) -> dict[str, list[dict[str, Any]]]:
    """By node, what it was given to note of a run that stops an engine and starts it again."""
    stage = Stage(tmp_path, *nodes)
    steps = [step(f"{verb}@{name}", act, name) for name in nodes for verb, act in (("stop", STOP), ("start", START))]
    back = [step(f"back@{name}", START, name) for name in nodes]
    run = await stage.carry_out(plan(*steps, back=tuple(back)))
    assert run.state is RunState.DONE
    return {node.name: [json.loads(ask.entry) for ask in node.notes] for node in stage.nodes}


async def test_each_node_gets_the_runs_audit(tmp_path: Path) -> None:
    by_node = await entries_of_a_run(tmp_path, "spark1", "spark2")
    for name, entries in by_node.items():
        assert [entry["kind"] for entry in entries] == ["intent", *["step"] * 4, "end"]
        assert {entry["as"] for entry in entries} == {name}
        assert {entry["run"] for entry in entries} == {"run-1"}


async def test_a_run_of_another_console_is_told_in_this_ones_names(tmp_path: Path) -> None:
    intent, stopped, *_, end = (await entries_of_a_run(tmp_path, "spark1"))["spark1"]
    (run,) = told(runs_elsewhere({"left": noted(intent, stopped)}, own=()))
    assert run.run.state is RunState.INTERRUPTED
    assert run.run.plan.request.nodes == ("left",)
    assert {one.step.node for one in run.run.steps} | {one.node for one in run.run.plan.rollback} == {"left"}
    assert run.stopped == (ID,)
    assert run.run.asked == {}, "nor its secrets"
    assert run.who == "me@laptop"
    assert told(runs_elsewhere({"left": noted(intent, stopped, end)}, own=())) == ()
    assert told(runs_elsewhere({"left": noted(intent, stopped, held=True)}, own=())) == ()
    assert runs_elsewhere({"left": noted(intent, stopped)}, own=("run-1",)).entries == ()


async def test_a_node_plans_nothing_for_another(tmp_path: Path) -> None:
    by_node = await entries_of_a_run(tmp_path, "spark1", "spark2")
    both = {name: noted(*entries[:2]) for name, entries in by_node.items()}
    (whole,) = told(runs_elsewhere(both, own=()))
    assert {one.node for one in whole.run.plan.rollback} == {"spark1", "spark2"}
    (alone,) = told(runs_elsewhere({"spark1": both["spark1"]}, own=()))
    assert alone.run.plan.rollback == ()
    lone, done = by_node["spark1"][:2]
    hidden = {**lone, "nodes": ["spark1"], "steps": [one for one in lone["steps"] if one["node"] == "spark1"]}
    (other,) = told(runs_elsewhere({"spark1": noted(hidden, done), "spark2": []}, own=()))
    assert other.run.plan.rollback == (), "its rollback names spark2, which has noted nothing"
    assert {one.step.node for one in alone.run.steps} == {"spark1"}
    intent, *rest = by_node["spark2"][:2]
    forged = {**intent, "kept": [{**one, "node": "spark1"} for one in intent["kept"]]}
    (mixed,) = told(runs_elsewhere({**both, "spark2": noted(forged, *rest)}, own=()))
    assert mixed.run.plan.rollback == ()


@pytest.mark.parametrize("answer", [None, "text", [None], [{"run": 3}], [{"run": "x", "entries": [3, "{", "[]"]}]])
def test_a_node_that_says_what_it_likes_is_survived(answer: object) -> None:
    assert runs_elsewhere({"spark1": answer}, own=()).entries == ()


# --- the real runner


async def test_the_runner_keeps_notes_for_whoever_questions(desk: Bench) -> None:
    line = await desk.line()
    notes = [NoteRun(node=NODE, run_id="20261121T031211-4f2a9c", entry=f'{{"n": {number}}}') for number in range(3)]
    for note in notes:
        assert (await line.ask([note]))[note].problem == ""
    other = await desk.line(key="another console")
    (run,) = (await other.ask([RunNotes(node=NODE)]))[RunNotes(node=NODE)].value
    assert run == {"run": notes[0].run_id, "held": False, "entries": [note.entry for note in notes]}
    assert await line.lock("me@laptop", f"restart vllm [{notes[0].run_id}]") is None
    (run,) = (await other.ask([RunNotes(node=NODE)]))[RunNotes(node=NODE)].value
    assert run["held"] is True


async def test_what_is_no_note_is_refused(desk: Bench) -> None:
    line = await desk.line()
    for run_id, entry in (("../x", "{}"), ("", "{}"), ("run", "a\nb"), ("run", "x" * (1 << 20))):
        ask = NoteRun(node=NODE, run_id=run_id, entry=entry)
        assert (await line.ask([ask]))[ask].problem
    assert (await line.ask([RunNotes(node=NODE)]))[RunNotes(node=NODE)].value in (
        [],
        [{"run": "run", "held": False, "entries": []}],
    )
