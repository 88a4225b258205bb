"""Operations: questions in rounds, plans or refusals, one gate for every run, and the way back as a plan of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operate_support import FAILED, ID, Stage, plan, step
from tests.pictures_support import link
from tests.runner_support import until

from sparktop.model.fleet import LinkState
from sparktop.model.operation import Command, DockerCall
from sparktop.model.recipe import Order
from sparktop.model.request import Request, Risk
from sparktop.model.survey import ROUNDS_AT_MOST, Answer, FileText, Output, PrivilegesQuestion, RunNotes, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.operations import Operations
from sparktop.operate.runner.api import Outcome, OutcomeState
from sparktop.operate.step.plan import OnFailure, Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.recipe.read.shelf import recipe
from sparktop.recipe.sources import sources

REQUEST = Request(action="safe-restart", nodes=("spark1",))


class Planner:
    """Asks what it is given, round after round, and plans one step."""

    def __init__(self, *rounds: tuple[Any, ...], made: Any = None) -> None:
        self.rounds = list(rounds)
        self.surveys: list[Survey] = []
        self.made = made

    def questions(self, request: Request, state: Any, survey: Survey) -> tuple[Any, ...]:
        self.surveys.append(survey)
        count = len(self.surveys)
        return tuple(ask for one in self.rounds[:count] for ask in one)

    def plan(self, request: Request, state: Any, survey: Survey) -> Plan | Refusal:
        self.surveys.append(survey)
        if isinstance(self.made, Exception):
            raise self.made
        return self.made or plan(step("stop"), seen_monotonic_s=0.0)


def operations(stage: Stage, planner: Any = None, **more: Any) -> Operations:
    def find(action: Any) -> Any:
        if planner is None:
            raise ModuleNotFoundError("no module", name="sparktop.operate.restart.restart")
        return planner

    return Operations(
        picture=stage.picture,
        lines=stage.lines,
        audit=stage.means.audit,
        clock=stage.clock,
        pause=stage.pause,
        tell=stage.tell,
        stand_in=stage.acts.stand_in,
        planner_of=find,
        **more,
    )


async def test_questions_are_asked_in_rounds_of_each_node_and_each_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    first = (PrivilegesQuestion(node="spark1"), PrivilegesQuestion(node="spark2"), PrivilegesQuestion(node="spark1"))
    second = (Output(node="spark1", argv=("uname",)),)
    asked: list[Any] = []
    line = stage.lines.line("spark1")
    assert line is not None
    ask = line.ask

    async def noted(questions: Any) -> Any:
        asked.append(list(questions))
        return await ask(questions)

    line.ask = noted  # type: ignore[method-assign]
    planner = Planner(first, second)
    made = await operations(stage, planner).plan(REQUEST)
    assert isinstance(made, Plan)
    assert asked == [[RunNotes(node="spark1")], [first[0]], [second[0]]]
    survey = planner.surveys[-1]
    assert survey.value(first[1]) == "answer of spark2"
    assert survey.value(second[0]) == "answer of spark1"
    assert "answer" not in repr(survey)


async def test_a_plan_says_as_it_is_typed_what_its_planner_does_not(tmp_path: Path) -> None:
    start = Remote(operations=(DockerCall(method="POST", path="/containers/{NEW}/start"),))
    bare = await operations(Stage(tmp_path), Planner(made=plan(step("stop"), step("start", start)))).plan(REQUEST)
    told = await operations(Stage(tmp_path), Planner(made=plan(step("stop"), equivalent=("all",)))).plan(REQUEST)
    assert isinstance(bare, Plan)
    assert isinstance(told, Plan)
    assert (bare.equivalent, told.equivalent) == (("on spark1: do stop",), ("all",))


def test_an_answer_that_is_no_text_reads_as_none() -> None:
    printed, parsed, failed, unasked = (Output(node="spark1", argv=(word,)) for word in ("a", "b", "c", "d"))
    answers = {printed: Answer(value="x\n"), parsed: Answer(value={"x": 1}), failed: Answer(problem="no such program")}
    survey = Survey(answers=answers)
    assert [survey.text(question) for question in (printed, parsed, failed, unasked)] == ["x\n", None, None, None]


async def test_a_planner_that_never_has_enough_is_stopped(tmp_path: Path) -> None:
    planner = Planner(*((FileText(node="spark1", path=str(n)),) for n in range(20)))
    assert isinstance(await operations(Stage(tmp_path), planner).plan(REQUEST), Plan)
    assert len(planner.surveys) == ROUNDS_AT_MOST + 1


async def test_a_node_that_does_not_answer_is_an_answer_with_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.operate.operations.LINE_LIMIT_S", 0.02)
    monkeypatch.setattr("sparktop.operate.operations.ROUND_LIMIT_S", 0.02)
    ask = PrivilegesQuestion(node="spark1")
    for fault, said in (
        ("none", "there is no runner on spark1"),
        ("dead", "connection ended"),
        ("hung", "did not answer"),
    ):
        stage = Stage(tmp_path)
        line = stage.lines.line("spark1")
        assert line is not None
        if fault == "none":
            stage.lines.drop(line)
            stage.node.is_back = False
        elif fault == "dead":
            line.is_dead = True
        else:
            line.ask = lambda questions: asyncio.sleep(10)  # type: ignore[method-assign, assignment]
        planner = Planner((ask,))
        await operations(stage, planner).plan(REQUEST)
        assert said in planner.surveys[-1].problem(ask)
        assert planner.surveys[-1].privileges("spark1") is None


async def test_a_session_that_only_looks_waits_for_no_runner(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.lines.drop(stage.lines.line("spark1"))  # type: ignore[arg-type]
    stage.node.is_back = False
    ask = PrivilegesQuestion(node="spark1")
    planner = Planner((ask,))
    async with asyncio.timeout(5):
        await operations(stage, planner, read_only=True).plan(Request(action="collect-evidence", nodes=("spark1",)))
    assert planner.surveys[-1].problem(ask) == "there is no runner on spark1"


@pytest.mark.parametrize(
    ("request_", "more", "said"),
    [
        (Request(action="dance", nodes=("spark1",)), {}, "There is no action dance"),
        (Request(action="safe-restart", nodes=("spark9",)), {}, "spark9 is not watched"),
        (REQUEST, {"read_only": True}, "read-only"),
        (REQUEST, {"protected": ("spark1",)}, "protected"),
    ],
)
async def test_what_can_not_be_is_refused_before_anything_is_asked(
    tmp_path: Path, request_: Request, more: dict[str, Any], said: str
) -> None:
    planner = Planner((PrivilegesQuestion(node="spark1"),))
    made = await operations(Stage(tmp_path), planner, **more).plan(request_)
    assert isinstance(made, Refusal)
    assert said in made.reason
    assert planner.surveys == []


async def test_a_planner_that_is_not_there_or_fails_is_a_refusal(tmp_path: Path) -> None:
    made = await operations(Stage(tmp_path)).plan(REQUEST)
    assert isinstance(made, Refusal)
    assert "sparktop.operate.restart.restart" in made.reason
    made = await operations(Stage(tmp_path), Planner(made=KeyError("HF_TOKEN=x"))).plan(REQUEST)
    assert isinstance(made, Refusal)
    assert "KeyError" in made.reason
    assert "HF_TOKEN" not in repr(made)  # what a fault quotes may be a secret


async def run_of(acting: Operations, made: Plan, runs: list[Run] | None = None) -> Run:
    async def secret(node: str, wrong: int) -> str | None:
        return None

    execution = acting.start(made, secret=secret, changed=(runs if runs is not None else []).append)
    async with asyncio.timeout(10):
        return await execution.finished()


async def test_a_plan_is_run_through_the_gate(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    acting = operations(stage, Planner())
    made = await acting.plan(REQUEST)
    assert isinstance(made, Plan)
    runs: list[Run] = []
    run = await run_of(acting, made, runs)
    assert run.state is RunState.DONE
    assert runs[-1] is run
    assert run.id.startswith("20260528T202640-")


@pytest.mark.parametrize("why", ["read-only", "protected", "2000 s old", "not live", "is gone"])
async def test_a_gate_that_lets_nothing_through_ends_it_at_once(tmp_path: Path, why: str) -> None:
    stage = Stage(tmp_path)
    more: dict[str, Any] = {"read-only": {"read_only": True}, "protected": {"protected": ("spark1",)}}.get(why, {})
    acting = operations(stage, Planner(), **more)
    made = plan(step("stop"))
    if why == "2000 s old":
        stage.clock.advance(2000)
    elif why == "not live":
        stage.views["spark1"] = {"link": link(LinkState.STALE)}
    elif why == "is gone":
        from sparktop.model.operation import DockerCall
        from sparktop.operate.acts.remote import Remote

        made = plan(step("stop", Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop"),))))
    runs: list[Run] = []
    run = await run_of(acting, made, runs)
    assert run.state is RunState.REFUSED
    assert why in run.message
    assert run.hint
    assert runs[-1] is run
    assert (stage.node.begun, stage.audited) == ([], [])


async def test_one_change_at_a_time_in_this_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    stage.node.gate = asyncio.Event()
    acting = operations(stage)
    first = asyncio.create_task(run_of(acting, plan(step("stop"), title="Stop it")))
    await until(lambda: stage.node.begun == ["stop"])
    refused = await run_of(acting, plan(step("stop")))
    assert "spark1 is in use by this session: Stop it" in refused.message
    assert (await run_of(acting, plan(step("stop", name="spark2")))).state is RunState.DONE
    stage.node.gate.set()
    assert (await first).state is RunState.DONE
    assert (await run_of(acting, plan(step("again")))).state is RunState.DONE


async def test_the_way_back_is_a_plan_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    acting = operations(stage)
    made = plan(
        step("stop"),
        step("start"),
        back=(step("old"), step("stop")),
        risk=Risk.DESTRUCTIVE,
        typed="spark1",
        secrets=("tops3cret",),
    )
    run = await run_of(acting, made)
    assert (run.state, run.can_go_back) == (RunState.FAILED, True)
    stage.clock.advance(500)  # the operator thought about it
    back = acting.rollback(run)
    assert back is not None
    assert [one.id for one in back.steps] == ["old", "stop"]
    assert (back.title, back.risk, back.typed, back.rollback) == ("Rollback: A plan", Risk.DISRUPTIVE, "", ())
    assert back.secrets == ("tops3cret",)
    again = await run_of(acting, back)
    assert again.state is RunState.DONE
    assert stage.node.begun == ["stop", "start", "old", "stop"]  # another run: "stop" is begun anew
    assert acting.rollback(again) is None


async def test_a_run_from_a_new_source_of_recipes_agrees_to_it_once_it_may_begin(tmp_path: Path) -> None:
    sources.add("team", str(tmp_path))
    made = replace(recipe("qwen3-0.6b"), source=sources.source("team"))
    launch = replace(
        plan(step("start"), typed="@team"),
        request=Request(action="launch", nodes=("spark1",), order=Order(recipe=made)),
    )
    stage = Stage(tmp_path)
    for more, is_trusted in (({"read_only": True}, False), ({"recalls": False}, False), ({}, True)):
        await run_of(operations(stage, **more), launch)
        assert sources.source("team").is_trusted is is_trusted, more


async def test_the_way_back_of_a_launch_promises_nothing_that_it_takes_away(tmp_path: Path) -> None:
    from sparktop.model.operation import DockerCall
    from sparktop.model.prospect import Prospect
    from sparktop.operate.acts.remote import Remote

    stage = Stage(tmp_path)
    stage.node.fails["ready"] = FAILED
    acting = operations(stage)
    stop = Remote(operations=(DockerCall(method="POST", path="/containers/x/stop"),))
    launch = plan(
        step("start"),
        step("ready"),
        back=(step("down", stop),),
        risk=Risk.SAFE,
        outcome="serves M at http://spark1:8000/v1",
        outcome_command="curl http://spark1:8000/v1/models",
        prospect=Prospect(recipe_id="m", title="M", nodes=("spark1",)),
    )
    back = acting.rollback(await run_of(acting, launch))
    assert back is not None
    assert (back.outcome, back.outcome_command, back.prospect) == ("", "", None)
    assert back.risk is Risk.DISRUPTIVE  # what it stops may run by now


async def test_the_way_back_knows_what_the_run_made(tmp_path: Path) -> None:
    from sparktop.model.operation import DockerCall
    from sparktop.operate.acts.remote import Remote

    stage = Stage(tmp_path)
    stage.node.fails["swap"] = Outcome(state=OutcomeState.DONE, saved={"NEW": ID})
    stage.node.fails["start"] = FAILED
    aside = Remote(operations=(DockerCall(method="POST", path="/containers/{NEW}/rename"),))
    never = Remote(operations=(DockerCall(method="POST", path="/containers/{ELSE}/rename"),))
    acting = operations(stage)
    run = await run_of(
        acting, plan(step("swap"), step("start"), back=(step("aside", aside), step("never", never), step("old")))
    )
    back = acting.rollback(run)
    assert back is not None
    assert [one.id for one in back.steps] == ["aside", "old"]
    act = back.steps[0].act
    assert isinstance(act, Remote)
    assert act.operations[0] == DockerCall(method="POST", path=f"/containers/{ID}/rename")


async def test_the_way_back_keeps_the_log_of_what_the_run_started(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = Outcome(state=OutcomeState.DONE, saved={"STARTED": ID})
    stage.node.fails["ready"] = FAILED
    stage.acts.collected = SimpleNamespace(path=tmp_path / "evidence.tar.gz", problems=())
    acting = operations(stage)
    keep = step("log", CollectEvidence(nodes=("spark1",), needs="STARTED"), on_failure=OnFailure.GO_ON)
    never = step("other", CollectEvidence(nodes=("spark1",), needs="ELSE"))
    run = await run_of(acting, plan(step("start"), step("ready"), back=(keep, never, step("remove"))))
    back = acting.rollback(run)
    assert back is not None
    again = await run_of(acting, back)
    assert [(one.step.id, one.state) for one in again.steps] == [("log", StepState.DONE), ("remove", StepState.DONE)]
    assert again.evidence_path == str(tmp_path / "evidence.tar.gz")


async def test_a_way_back_that_fails_names_what_is_left_of_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    acting = operations(stage)
    stop = DockerCall(method="POST", path="/containers/{NEW}/stop", accepts=(204, 404))
    back_steps = (
        step("aside", Remote(operations=(stop,))),
        step("old"),
        step("ready", Remote(operations=(Command(argv=("test", "-e", "/ready")),))),
        step("policy"),
    )
    run = await run_of(acting, plan(step("make"), step("start"), back=back_steps))
    run = replace(run, saved={"spark1": {"NEW": ID}}, evidence_path="/e/evidence.tar.gz")
    back = acting.rollback(run)
    assert back is not None
    assert "/e/evidence.tar.gz" in back.warnings[1]
    stage.node.fails["old"] = FAILED
    failed = await run_of(acting, back)
    assert failed.state is RunState.FAILED
    assert failed.hint == ("What is left of the rollback, by hand: do old; do policy")
    assert acting.rollback(run).steps[0].act.commands() == (f"docker stop {ID[:12]}",)  # type: ignore[union-attr]
    stage.node.fails.clear()
    stage.node.fails["ready"] = FAILED
    stage.node.begun.clear()
    later = await run_of(acting, replace(back, steps=back.steps[2:3]))
    assert later.hint == "No step of the rollback is left to do."


async def test_a_console_that_closes_leaves_every_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    acting = operations(stage)
    running = asyncio.create_task(run_of(acting, plan(step("stop"))))
    await until(lambda: stage.node.begun == ["stop"])
    await acting.aclose()
    run = await running
    assert run.state is RunState.ABORTED
    assert "The console was closed" in run.message
    assert stage.audited[-1]["kind"] == "end"


async def test_guards_are_audited_from_the_pictures(tmp_path: Path) -> None:
    from sparktop.model.guard import GuardPhase, GuardState

    stage = Stage(tmp_path)
    acting = operations(stage, read_only=True)
    acting.see(stage.picture())
    stage.views["spark1"] = {"guard": GuardState(phase=GuardPhase.FIRED, container_name="vllm")}
    acting.see(stage.picture())
    acting.see(stage.picture())
    assert [entry["phase"] for entry in stage.audited] == ["fired"]
