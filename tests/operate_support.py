"""A node that plays its runner: scripted faults on the line, a journal that outlives it, and a clock that is moved.

stage = Stage(tmp_path)                      # one node, spark1; an executor's means
stage.node.cuts["stop"] = "after"            # the link breaks after the step "stop" is done, before its answer
run = await stage.carry_out(plan(step("stop"), step("start")))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.pictures_support import link, node

from sparktop.clock import ManualClock
from sparktop.errors import LinkLost
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Answer, NoteRun
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.audit_file import Audit, entries
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.runner.api import LockHolder, OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.operate.step.run import Run
from sparktop.operate.step.run_context import RunContext
from sparktop.operate.step.wait import WaitStatus, WaitVerdict

ID = "ab" * 32


class Node:
    """What is true on the node, whatever the console knows of it."""

    def __init__(self, name: str = "spark1") -> None:
        self.name = name
        self.cuts: dict[str, str] = {}
        """Step id to where the link breaks: before (the node hears nothing of it), begun (it is at it), after."""
        self.fails: dict[str, Outcome] = {}
        self.begun: list[str] = []
        """Every step that was begun, as often as it was."""
        self.journal: dict[tuple[str, str], Outcome] = {}
        self.stays_running = 2
        """How often the node says that it is still at a step that was cut short."""
        self.holder: LockHolder | None = None
        self.locked_by: FakeLine | None = None
        self.locks = 0
        self.back_after = 0
        """How many looks find no line after a cut."""
        self.is_back = True
        self.has_rebooted = False
        self.always_dead = False
        """Every line after the first breaks at once."""
        self.asks_secret: dict[str, list[str | None]] = {}
        self.output = ""
        self.progress: dict[str, list[Progress]] = {}
        """Step id to what is told of it, one at a time: while it is performed, and then when it is asked about."""
        self.ended: list[str] = []
        """Steps that were told to end; one that waits at the gate does."""
        self.gate: asyncio.Event | None = None
        """Steps wait for it, where there is one."""
        self.at: Callable[[str], None] = lambda step_id: None
        self.notes: list[NoteRun] = []
        self.does: Callable[[Remote], Outcome] | None = None
        """What a step does to the node, where that is more than to be noted."""


class FakeLine:
    def __init__(self, lines: FakeLines, truth: Node) -> None:
        self._lines = lines
        self._truth = truth
        self.node = truth.name
        self.is_dead = False

    @property
    def transport(self) -> Any:
        raise AssertionError("not used here")

    def _die(self) -> LinkLost:
        self.is_dead = True
        self._lines.drop(self)
        return LinkLost("the connection ended")

    def _alive(self) -> None:
        if self.is_dead:
            raise LinkLost("the connection ended")

    async def ask(self, questions: Sequence[Any]) -> Mapping[Any, Answer]:
        self._alive()
        self._truth.notes += [ask for ask in questions if isinstance(ask, NoteRun)]
        return {ask: Answer(value=f"answer of {self.node}") for ask in questions}

    async def lock(self, who: str, what: str) -> LockHolder | None:
        self._alive()
        if self._truth.holder is not None:
            return self._truth.holder
        self._truth.locked_by = self
        self._truth.locks += 1
        return None

    async def unlock(self) -> None:
        self._alive()
        self._truth.locked_by = None

    async def perform(self, run_id: str, step_id: str, act: Remote, *, told: Any, secret: Any) -> Outcome:
        self._alive()
        truth = self._truth
        if act.only_fetches:
            assert truth.locked_by is None, "what only fetches holds the node"
        else:
            assert truth.locked_by is self, "a step was begun without the lock"
        truth.at(step_id)
        if truth.cuts.get(step_id) == "before":
            del truth.cuts[step_id]
            raise self._die()
        if (run_id, step_id) in truth.journal:
            return truth.journal[run_id, step_id]
        truth.begun.append(step_id)
        did = truth.does(act) if truth.does is not None and step_id not in truth.fails else None
        outcome = (
            truth.fails.get(step_id)
            or did
            or Outcome(
                state=OutcomeState.DONE,
                results=tuple(
                    OperationResult(index=index, code=0, output=truth.output, seconds=0.5)
                    for index in range(len(act.operations))
                ),
            )
        )
        truth.journal[run_id, step_id] = outcome
        for answer in truth.asks_secret.get(step_id, []):
            assert await secret(self.node, 0) == answer
        while (coming := truth.progress.get(step_id)) and truth.cuts.get(step_id) != "begun":
            told(coming.pop(0))
            await self._lines.pause(1.0)
        if truth.gate is not None:
            await truth.gate.wait()
        outcome = truth.journal[run_id, step_id]
        if (cut := truth.cuts.pop(step_id, "")) in ("begun", "after"):
            truth.stays_running = truth.stays_running if cut == "begun" else 0
            raise self._die()
        for result in outcome.results:
            told(result)
        return outcome

    async def outcome(self, run_id: str, step_id: str) -> Outcome:
        self._alive()
        truth = self._truth
        if truth.has_rebooted:
            return Outcome(state=OutcomeState.GONE, problem="another boot id")
        if (run_id, step_id) not in truth.journal:
            return Outcome(state=OutcomeState.NOT_STARTED)
        if truth.stays_running > 0 and step_id not in truth.ended:
            truth.stays_running -= 1
            coming = truth.progress.get(step_id)
            return Outcome(state=OutcomeState.RUNNING, progress=coming.pop(0) if coming else None)
        return truth.journal[run_id, step_id]

    async def end(self, run_id: str, step_id: str) -> Outcome:
        self._alive()
        if step_id in self._truth.ended:
            return self._truth.journal[run_id, step_id]
        self._truth.ended.append(step_id)
        self._truth.journal[run_id, step_id] = ENDED
        if self._truth.gate is not None:
            self._truth.gate.set()
        return Outcome(state=OutcomeState.RUNNING)


class FakeLines:
    def __init__(self, *nodes: Node) -> None:
        self.pause: Callable[[float], Any] = asyncio.sleep
        self.truths = {one.name: one for one in nodes}
        self._lines: dict[str, FakeLine] = {one.name: FakeLine(self, one) for one in nodes}

    def drop(self, line: FakeLine) -> None:
        self._lines.pop(line.node, None)
        self.truths[line.node].locked_by = None

    def line(self, name: str) -> FakeLine | None:
        return self._lines.get(name)

    async def wait(self, name: str) -> FakeLine:
        while name not in self._lines:
            await asyncio.sleep(0)
            truth = self.truths[name]
            truth.back_after -= 1
            if truth.is_back and truth.back_after < 0:
                self._lines[name] = FakeLine(self, truth)
                self._lines[name].is_dead = truth.always_dead
        return self._lines[name]

    def problem(self, name: str) -> str:
        return ""


class FakeActs:
    """Stands in for acts: waits are met at once unless a test says otherwise."""

    def __init__(self) -> None:
        self.judgements: dict[str, WaitStatus] = {}
        self.smokes: list[Any] = []
        self.measured: Any = None
        self.collected: Any = None

    def stand_in(self, act: Any) -> Any:
        """An act of the same kind that is answered here."""
        fake = _FAKES.get(type(act))
        if fake is None:
            return act
        stands = fake(**{field.name: getattr(act, field.name) for field in fields(act)})
        object.__setattr__(stands, "acts", self)
        return stands

    def judged(self, what: str) -> WaitStatus:
        return self.judgements.get(what, WaitStatus(verdict=WaitVerdict.MET, detail=f"{what} is well"))


class _Memory(AwaitMemory):
    def judge(self, *seen: Any) -> WaitStatus:
        return self.acts.judged("memory")


class _Ready(AwaitReady):
    def judge(self, *seen: Any) -> WaitStatus:
        return self.acts.judged("ready")


class _Serving(AwaitServing):
    async def request(self, *asked: Any) -> Any:
        return None

    def judge(self, *seen: Any) -> WaitStatus:
        return self.acts.judged("serving")


class _Guard(GuardOrder):
    def words(self) -> dict[str, object]:
        return {"guard": self.container_id}

    def judge(self, *seen: Any) -> WaitStatus:
        return self.acts.judged("guard")


class _Smoke(SmokeTest):
    async def request(self, line: Any, picture: Any, node: str, progress: Any) -> Any:
        progress("asked", None)
        found = self.acts.smokes.pop(0)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, asyncio.Event):
            await found.wait()
        return found


class _Measure(Measure):
    async def request(self, line: Any, picture: Any, node: str, progress: Any) -> Any:
        progress("measuring", None)
        if isinstance(self.acts.measured, Exception):
            raise self.acts.measured
        return self.acts.measured


class _Collect(CollectEvidence):
    async def archive(self, hands: Any) -> Any:
        if isinstance(self.acts.collected, Exception):
            raise self.acts.collected
        return self.acts.collected


_FAKES: dict[type, Any] = {
    fake.__bases__[0]: fake for fake in (_Memory, _Ready, _Serving, _Guard, _Smoke, _Measure, _Collect)
}


@cache
def _healthy(name: str) -> NodeView:
    """Made once: a wait of hours looks at it thousands of times."""
    return node(name, step_s=300.0)


class Stage:
    """An executor's surroundings; time passes only while somebody pauses."""

    def __init__(self, tmp_path: Path, *names: str, **means: Any) -> None:
        self.nodes = tuple(Node(name) for name in names or ("spark1",))
        self.node = self.nodes[0]
        self.lines = FakeLines(*self.nodes)
        self.clock = ManualClock()
        self.lines.pause = self.pause
        self.acts = FakeActs()
        self.audit_path = tmp_path / "state" / "audit.jsonl"
        self.picture_fields: dict[str, Any] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.runs: list[Run] = []
        self.told: list[tuple[str, Any]] = []
        self.read_again: list[str] = []
        """Nodes whose probe was asked for the host's facts."""
        self.passwords: list[str | None] = []
        self.at_state: Callable[[Run], None] = lambda run: None
        self.at_pause: Callable[[], None] = lambda: None
        self.means = RunContext(
            picture=self.picture,
            lines=self.lines,
            audit=Audit(self.audit_path, clock=self.clock, who="me@laptop"),
            clock=self.clock,
            pause=self.pause,
            tell=self.tell,
            stand_in=self.acts.stand_in,
            evidence_folder=tmp_path / "evidence",
            **{"link_patience_s": 5.0, "first_line_s": 0.2, "abort_grace_s": 0.05, **means},
        )

    async def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.at_pause()
        await asyncio.sleep(0)

    def tell(self, name: str, words: Any) -> bool:
        if "facts" in words:
            self.read_again.append(name)
            return True
        self.told.append((name, words))
        return True

    def picture(self) -> FleetState:
        """Every look is at a sample of this moment."""
        now_s = self.clock.monotonic()
        views = []
        for one in self.nodes:
            view = _healthy(one.name)
            assert view.sample is not None
            fresh = replace(view, sample=replace(view.sample, boot_s=view.sample.boot_s + now_s), sample_at_s=now_s)
            views.append(replace(fresh, **self.views.get(one.name, {})))
        return FleetState(nodes=tuple(views), wall_s=self.clock.wall(), monotonic_s=now_s, **self.picture_fields)

    def silence(self, name: str = "spark1") -> None:
        """The node can be seen no longer."""
        self.views[name] = {"link": link(LinkState.LOST, reason="no packets")}

    def changed(self, run: Run) -> None:
        self.runs.append(run)
        self.at_state(run)

    async def secret(self, name: str, wrong: int) -> str | None:
        return self.passwords.pop(0) if self.passwords else None

    def execution(self, made: Plan, run_id: str = "run-1") -> PlanExecution:
        return PlanExecution(run_id, made, context=self.means, secret=self.secret, changed=self.changed)

    async def carry_out(self, made: Plan) -> Run:
        execution = self.execution(made)
        execution.start()
        async with asyncio.timeout(20):
            return await execution.finished()

    @property
    def audited(self) -> list[dict[str, Any]]:
        return entries(self.audit_path)[0]


def step(step_id: str, act: Any = None, name: str = "spark1", undone_by: str = "", **more: Any) -> Step:
    made = act if act is not None else Remote(operations=(Command(argv=("do", step_id)),), reverse=undone_by or None)
    return Step(id=step_id, title=f"Do {step_id}", node=name, act=made, **more)


def plan(*steps: Step, back: Sequence[Step] = (), action: str = "safe-restart", **more: Any) -> Plan:
    nodes = tuple(dict.fromkeys(one.node for one in steps))
    options: dict[str, Any] = {"title": "A plan", "risk": Risk.DISRUPTIVE, "seen_monotonic_s": 1000.0, **more}
    return Plan(request=Request(action=action, nodes=nodes), steps=steps, rollback=tuple(back), **options)


ROLL_BACK, GO_ON = OnFailure.ROLL_BACK, OnFailure.GO_ON
ENDED = Outcome(
    state=OutcomeState.FAILED,
    results=(
        OperationResult(index=0, ok=False, was_ended=True, problem="it was ended, and the part that arrived stays"),
    ),
    problem="it was ended, and the part that arrived stays",
)
FAILED = Outcome(
    state=OutcomeState.FAILED,
    results=(OperationResult(index=0, ok=False, code=1, problem="it would not"),),
    problem="it would not",
)
