"""Planning and running actions: surveys the nodes, makes plans, and starts runs through the one gate.

operations = Operations(picture=lambda: monitor.state, lines=lines, read_only=config.read_only,
                        protected=config.protected, tell=monitor.tell, clock=clock)
operations.see(picture)        # with each new picture: guards stay armed, and what they do is audited
await operations.aclose()      # at the end: runs are left, and say so
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktop import faults
from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.errors import SparktopError, TransportError
from sparktop.model.bringup import Changed
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.request import Request
from sparktop.model.survey import (
    ROUNDS_AT_MOST,
    Answer,
    DockerLog,
    HubModel,
    ModelsOnDisk,
    NoteRun,
    OperatorKeys,
    Output,
    Question,
    RunNotes,
    Survey,
)
from sparktop.operate.audit_file import Audit, entries, is_under_way
from sparktop.operate.run.guard_orders import GuardAuditLog, StandingOrders
from sparktop.operate.step.run_context import Picture, RunContext, Tell
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:  # what only plans and runs need is imported with the first of them
    from sparktop.model.recipe import RecipeSource
    from sparktop.operate.actions import Action, Planner
    from sparktop.operate.audit.interrupted_runs import InterruptedRun
    from sparktop.operate.run.executor import PlanExecution
    from sparktop.operate.run.operating import KeepMeasured, OnChange
    from sparktop.operate.runner.api import AskSecret, NodeLines
    from sparktop.operate.step.act import Act
    from sparktop.operate.step.plan import Plan, Refusal
    from sparktop.operate.step.run import Run
    from sparktop.transport.base import Connector

LINE_LIMIT_S = 10.0
NOTING_S = 2.0
"""How long a console that closes waits until its nodes have noted that a run was read."""
"""How long a survey waits for a node's runner."""
ROUND_LIMIT_S = 20.0
"""How long one round of questions may take, beyond the limits of its own commands."""
RECALLED_BYTES = 2 << 20
"""How far back the audit is read for interrupted runs."""


class Operations:
    """Plans actions and runs them, through one gate; implements `run.operating.Operating`."""

    def __init__(
        self,
        *,
        picture: Picture,
        lines: NodeLines,
        read_only: bool = False,
        protected: Collection[str] = (),
        audit: Audit | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tell: Tell | None = None,
        stand_in: Callable[[Act], Act] = lambda act: act,
        planner_of: Callable[[Action], Planner] | None = None,
        evidence_folder: Path | None = None,
        keep_measured: KeepMeasured | None = None,
        recalls: bool = True,
        connectors: Sequence[Connector] = (),
    ) -> None:
        """`connectors`: how the nodes are logged in to, for what is asked of the operator's own keys.

        `recalls`: report runs that an earlier console left interrupted, and keep what the operator agrees to; False
        where the nodes are new each time (a demo)."""
        clock = clock or SystemClock()
        self._standing_orders = StandingOrders(tell, monotonic=clock.monotonic) if tell is not None else None
        self._context = RunContext(
            picture=picture,
            lines=lines,
            audit=audit or Audit(clock=clock),
            clock=clock,
            pause=pause,
            tell=self._standing_orders.tell if self._standing_orders is not None else None,
            stand_in=stand_in,
            evidence_folder=evidence_folder or state_home() / "evidence",
            keep_measured=keep_measured,
            connectors={connector.name: connector for connector in connectors},
        )
        self._is_read_only = read_only
        self._protected = frozenset(protected)
        self._planner_of = planner_of
        self._executions: list[PlanExecution] = []
        self._recalls = recalls
        self._notes: dict[str, object] = {}
        """By node, its newest answer to `RunNotes`."""
        self._noting: asyncio.Future[Any] | None = None
        self._elsewhere: frozenset[str] = frozenset()
        """Runs by other consoles that are under way."""
        self._guard_log = GuardAuditLog(self._context.audit)

    @property
    def is_read_only(self) -> bool:
        return self._is_read_only

    def see(self, picture: FleetState) -> None:
        """Take in a new picture: keep ordered guards armed, and audit what guards have done."""
        self._guard_log.see(picture)
        if self._standing_orders is not None:
            self._standing_orders.saw(picture)

    async def aclose(self) -> None:
        """Leave every run: no further step starts, and each run notes in the audit where it was left."""
        await asyncio.gather(*(execution.leave() for execution in self._executions))
        if self._noting is not None:
            await asyncio.wait({self._noting}, timeout=NOTING_S)

    # planning

    async def plan(self, request: Request) -> Plan | Refusal:
        from sparktop.operate.refused import Refused
        from sparktop.operate.step.plan import Refusal

        try:
            return await self._plan(request)
        except Refused as refused:
            return refused.refusal(request)
        except Exception as error:  # noqa: BLE001 - a fault in planning must not take the console down that watches
            why = f"A fault in sparktop kept it from planning this: {type(error).__name__}."
            return Refusal(request=request, reason=why, remedies=("nothing was changed; please report it",))

    async def _plan(self, request: Request) -> Plan:
        from sparktop.operate.actions import ACTIONS, action, planner_of
        from sparktop.operate.audit.obligations import owed_notes
        from sparktop.operate.plan.likely import as_before
        from sparktop.operate.refused import Refused
        from sparktop.operate.run.gate import request_refusal, unreachable_refusal

        picture = self._context.picture()
        chosen = action(request.action)
        if chosen is None:
            names = ", ".join(candidate.name for candidate in ACTIONS)
            raise Refused(f"There is no action {request.action}.", (f"one of {names}",))
        if barred := request_refusal(request, is_read_only=self._is_read_only, protected=self._protected):
            raise barred
        if unknown := [name for name in request.nodes if picture.node(name) is None]:
            raise Refused(f"{unknown[0]} is not watched by this session.")
        if unreachable := unreachable_refusal(request, picture):
            raise unreachable
        try:
            planner = (self._planner_of or planner_of)(chosen)
        except ModuleNotFoundError as error:
            raise Refused(f"This sparktop can't {chosen.phrase} yet ({error.name}).") from error
        survey = await self._survey(planner, request, picture)
        plan = planner.plan(request, picture, survey)
        if self._recalls:
            plan = as_before(plan, await in_thread(self._recalled))
        warnings = (*plan.warnings, *owed_notes(plan, survey))
        equivalent = plan.equivalent or tuple(_typed(plan))
        return replace(plan, warnings=warnings, equivalent=equivalent, seen_monotonic_s=picture.monotonic_s)

    async def _survey(self, planner: Planner, request: Request, picture: FleetState) -> Survey:
        """The answers to the planner's questions, asked round by round until it asks nothing new."""
        if self._recalls:
            await self._read_notes(request.nodes)
        survey = await in_thread(self._read_owed, picture) if self._recalls else Survey()
        for _ in range(ROUNDS_AT_MOST):
            questions = [
                question for question in planner.questions(request, picture, survey) if question not in survey.answers
            ]
            if not questions:
                break
            survey = replace(survey, answers={**survey.answers, **await self.ask(questions)})
        return survey

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        by_node: dict[str, list[Question]] = {}
        keys: list[OperatorKeys] = []
        for question in dict.fromkeys(questions):
            if isinstance(question, OperatorKeys):
                keys.append(question)
            else:
                by_node.setdefault(question.node, []).append(question)
        answers = await asyncio.gather(
            *(self._answers(node, node_questions) for node, node_questions in by_node.items()),
            *(self._own_keys(question) for question in keys),
        )
        return {question: answer for node_answers in answers for question, answer in node_answers.items()}

    async def _own_keys(self, question: OperatorKeys) -> Mapping[Question, Answer]:
        connector = self._context.connectors.get(question.node)
        if connector is None:
            return _unanswered((question,), f"nothing is known here of a login at {question.node}")
        try:
            return {question: Answer(value=await connector.own_keys())}
        except TransportError as error:
            return _unanswered((question,), error.message)

    async def _answers(self, node: str, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        """One node's answers; a question that can't be answered gets an Answer with a problem."""
        try:
            async with asyncio.timeout(0 if self._is_read_only else LINE_LIMIT_S):
                line = self._context.lines.line(node) or await self._context.lines.wait(node)
        except TimeoutError:
            why = self._context.lines.problem(node)
            return _unanswered(questions, f"there is no runner on {node}{': ' + why if why else ''}")
        limits = sum(
            question.limit_s
            for question in questions
            if isinstance(question, Output | DockerLog | ModelsOnDisk | HubModel)
        )
        try:
            async with asyncio.timeout(ROUND_LIMIT_S + limits):
                answers = await line.ask(questions)
        except TimeoutError:
            return _unanswered(questions, f"{node} did not answer within {ROUND_LIMIT_S + limits:.0f} s")
        except TransportError as error:
            return _unanswered(questions, f"{node}: {error.message}")
        return {
            question: answers.get(question, Answer(problem=f"{node} did not answer this")) for question in questions
        }

    # running

    def start(self, plan: Plan, *, secret: AskSecret, changed: OnChange) -> PlanExecution:
        from sparktop.operate.run.executor import PlanExecution
        from sparktop.operate.run.gate import plan_refusal

        execution = PlanExecution(self._new_id(), plan, context=self._context, secret=secret, changed=changed)
        refusal = plan_refusal(
            plan,
            self._context.picture(),
            now_s=self._context.clock.monotonic(),
            is_read_only=self._is_read_only,
            protected=self._protected,
            busy=self._busy(),
        )
        self._executions.append(execution)
        if refusal is not None:
            execution.refuse(refusal)
        else:
            for source in plan.new_sources if self._recalls else ():
                self._trust(source)
            execution.start()
        return execution

    def _trust(self, source: RecipeSource) -> None:
        """Note that the operator agreed to a source of recipes; where it can't be noted, the next launch asks again."""
        from sparktop.recipe.sources.sources import trust

        try:
            trust(source)
        except OSError as error:
            faults.report(f"agreeing to @{source.name}", error)

    def _busy(self) -> Mapping[str, str]:
        """What this session is changing at the moment: node to plan title."""
        running = [execution.run.plan for execution in self._executions if not execution.run.state.is_over]
        return {step.node: plan.title for plan in running for step in plan.steps if step.act.changes}

    def _new_id(self) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._context.clock.wall()))
        return f"{stamp}-{secrets.token_hex(3)}"

    # what an earlier console has left

    async def interrupted_runs(self) -> tuple[InterruptedRun, ...]:
        """Runs whose console was killed halfway, by this machine's audit and by what the nodes have noted."""
        if not self._recalls:
            return ()
        await self._read_notes([view.name for view in self._context.picture().nodes])
        return await in_thread(self._read_cut_off)

    async def _read_notes(self, nodes: Sequence[str]) -> None:
        """Read what these nodes have noted of runs by other consoles."""
        if self._is_read_only:
            return
        picture = self._context.picture()
        live = [name for name in nodes if (view := picture.node(name)) and view.link.state is LinkState.LIVE]
        for question, answer in (await self.ask([RunNotes(node=name) for name in live])).items():
            if isinstance(question, RunNotes) and answer.value is not None:
                self._notes[question.node] = answer.value

    async def changes(self, nodes: Collection[str]) -> tuple[Changed, ...]:
        """What ended runs changed on these nodes, by the audit and by what the nodes have noted; oldest first."""
        from sparktop.operate.audit.changes import changes_on

        return changes_on(nodes, await in_thread(self._recalled))

    def _recalled(self) -> Sequence[Mapping[str, Any]]:
        """What the audit has of late, and of runs by other consoles what the nodes have noted."""
        own: list[dict[str, Any]] = []
        with contextlib.suppress(SparktopError):
            own = entries(self._context.audit.path, limit_bytes=RECALLED_BYTES)[0]
        if not self._notes:
            return own
        from sparktop.operate.audit.elsewhere import runs_elsewhere

        elsewhere = runs_elsewhere(self._notes, {str(entry.get("run")) for entry in own if entry["kind"] == "intent"})
        self._elsewhere = elsewhere.under_way
        return sorted((*elsewhere.entries, *own), key=lambda entry: float(entry["wall_s"]))

    def _is_under_way(self, run_id: str) -> bool:
        return run_id in self._elsewhere or is_under_way(run_id, self._context.audit.path)

    def _read_cut_off(self) -> tuple[InterruptedRun, ...]:
        if not (audit_entries := self._recalled()):
            return ()
        from sparktop.operate.audit.interrupted_runs import interrupted_runs

        now_s = self._context.clock.wall()
        return interrupted_runs(
            audit_entries, is_under_way=self._is_under_way, now_wall_s=now_s, own=self._context.audit.who
        )

    def _read_owed(self, picture: FleetState) -> Survey:
        """A survey without answers, with what earlier runs of this machine owe."""
        from sparktop.operate.audit.obligations import guards_to_restore, obligations

        now_s = self._context.clock.wall()
        owed = obligations(self._recalled(), is_under_way=self._is_under_way, now_wall_s=now_s)
        return Survey(owed=owed.containers, guards_to_restore=guards_to_restore(owed, picture))

    def read(self, run_id: str) -> None:
        """Note that the operator has read how the run was left: it is not reported again."""
        from sparktop.operate.audit.interrupted_runs import READ

        with contextlib.suppress(SparktopError):
            words = {"run": run_id, "text": "how it was left has been read", READ: True}
            entry = json.dumps(self._context.audit.note("note", words))
            questions = [NoteRun(node=node, run_id=run_id, entry=entry) for node in self._notes]
            self._noting = asyncio.ensure_future(self.ask(questions))

    def rollback(self, run: Run) -> Plan | None:
        from sparktop.operate.run.rollback import rollback

        plan = rollback(run)
        return plan and replace(plan, seen_monotonic_s=self._context.picture().monotonic_s)


def _typed(plan: Plan) -> Iterator[str]:
    """What its steps change, as it is typed, but for what depends on an earlier step."""
    from sparktop.operate.step.placeholders import fill_command

    for step in plan.steps:
        yield from (f"on {step.node}: {line}" for line in step.act.commands() if fill_command(line, {}))


def _unanswered(questions: Sequence[Question], problem: str) -> Mapping[Question, Answer]:
    return {question: Answer(problem=problem) for question in questions}
