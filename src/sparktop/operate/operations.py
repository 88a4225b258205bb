"""The operating side as one thing: plans, and the one gate through which they are run.

operations = Operations(picture=lambda: monitor.state, lines=lines, read_only=config.read_only,
                        protected=config.protected, tell=monitor.tell, clock=clock)
operations.see(picture)        # with each new picture: guards stay armed, and what they do is audited
await operations.aclose()      # at the end: runs are left, and say so
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.errors import SparktopError, TransportError
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request, Risk, Run
from sparktop.operate.actions import ACTIONS, Action, Planner, planner_of
from sparktop.operate.asked import stops
from sparktop.operate.audit import Audit, entries, is_under_way
from sparktop.operate.beforeafter import brief
from sparktop.operate.cutoff import READ, CutOff, cut_off
from sparktop.operate.executor import PlanExecution
from sparktop.operate.gate import bars, bars_request, changes, is_away
from sparktop.operate.guarding import Guarding
from sparktop.operate.guardlog import GuardLog
from sparktop.operate.line import AskSecret, NodeLines
from sparktop.operate.means import Means, OwnPerformers, Performers, Picture, Tell
from sparktop.operate.operating import Changed
from sparktop.operate.saved import filled
from sparktop.operate.survey import ROUNDS_AT_MOST, Answer, Ask, DockerLog, HubModel, ModelsOnDisk, Output, Survey
from sparktop.transport.threads import in_thread

LINE_LIMIT_S = 10.0
"""How long a survey waits for a node's runner."""
ROUND_LIMIT_S = 20.0
"""Beyond what its commands may take themselves."""
RECALLED_BYTES = 2 << 20
"""How far back the audit is read for runs that nobody has ended."""
FindPlanner = Callable[[Action], Planner]


class Operations:
    """Implements `operating.Operating`."""

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
        performers: Performers | None = None,
        planner_of: FindPlanner = planner_of,
        evidence_folder: Path | None = None,
        recalls: bool = True,
    ) -> None:
        """`recalls`: what earlier consoles have left is told; False where the nodes are new each time, as a demo's."""
        clock = clock or SystemClock()
        self._guarding = Guarding(tell, monotonic=clock.monotonic) if tell is not None else None
        self._means = Means(
            picture=picture,
            lines=lines,
            audit=audit or Audit(clock=clock),
            clock=clock,
            pause=pause,
            tell=self._guarding.tell if self._guarding is not None else None,
            performers=performers or OwnPerformers(),
            evidence_folder=evidence_folder or state_home() / "evidence",
        )
        self._is_read_only = read_only
        self._protected = frozenset(protected)
        self._planner_of = planner_of
        self._executions: list[PlanExecution] = []
        self._recalls = recalls
        self._guards = GuardLog(self._means.audit)

    @property
    def is_read_only(self) -> bool:
        return self._is_read_only

    @property
    def executions(self) -> tuple[PlanExecution, ...]:
        return tuple(self._executions)

    def see(self, picture: FleetState) -> None:
        """Keep the guards armed that were ordered, and note what is new of them; called with each new picture."""
        self._guards.see(picture)
        if self._guarding is not None:
            self._guarding.saw(picture)

    async def aclose(self) -> None:
        """Leave every run: nothing more is begun, and each says in the audit where it was left."""
        await asyncio.gather(*(one.leave() for one in self._executions))

    # planning

    async def plan(self, request: Request) -> Plan | Refusal:
        picture = self._means.picture()
        action = next((one for one in ACTIONS if one.name == request.action), None)
        if action is None:
            names = ", ".join(one.name for one in ACTIONS)
            return Refusal(
                request=request, reason=f"There is no action {request.action}.", remedies=(f"one of {names}",)
            )
        barred = bars_request(request, is_read_only=self._is_read_only, protected=self._protected)
        if barred is not None:
            return Refusal(request=request, reason=barred.reason, remedies=barred.remedies)
        if unknown := [name for name in request.nodes if picture.node(name) is None]:
            return Refusal(request=request, reason=f"{unknown[0]} is not watched by this session.")
        if (away := is_away(request, picture)) is not None:
            return Refusal(request=request, reason=away.reason, remedies=away.remedies)
        try:
            planner = self._planner_of(action)
            survey = await self._survey(planner, request, picture)
            return planner.plan(request, picture, survey)
        except ModuleNotFoundError as error:
            return Refusal(request=request, reason=f"This sparktop can't {action.title.lower()} yet ({error.name}).")
        except Exception as error:  # noqa: BLE001 - a fault in planning must not take the console down that watches
            why = f"A fault in sparktop kept it from planning this: {type(error).__name__}."
            return Refusal(request=request, reason=why, remedies=("nothing was changed; please report it",))

    async def _survey(self, planner: Planner, request: Request, picture: FleetState) -> Survey:
        survey = Survey()
        for _ in range(ROUNDS_AT_MOST):
            asks = [ask for ask in planner.asks(request, picture, survey) if ask not in survey.answers]
            if not asks:
                break
            by_node: dict[str, list[Ask]] = {}
            for ask in dict.fromkeys(asks):
                by_node.setdefault(ask.node, []).append(ask)
            answers = await asyncio.gather(*(self._answers(node, mine) for node, mine in by_node.items()))
            survey = Survey(answers={**survey.answers, **{ask: one for each in answers for ask, one in each.items()}})
        return survey

    async def _answers(self, node: str, asks: Sequence[Ask]) -> Mapping[Ask, Answer]:
        """One node's answers; what can't be had is an answer with a problem."""
        try:
            async with asyncio.timeout(0 if self._is_read_only else LINE_LIMIT_S):
                line = self._means.lines.line(node) or await self._means.lines.wait(node)
        except TimeoutError:
            why = self._means.lines.problem(node)
            return _unanswered(asks, f"there is no runner on {node}{': ' + why if why else ''}")
        limits = sum(ask.limit_s for ask in asks if isinstance(ask, Output | DockerLog | ModelsOnDisk | HubModel))
        try:
            async with asyncio.timeout(ROUND_LIMIT_S + limits):
                found = await line.ask(asks)
        except TimeoutError:
            return _unanswered(asks, f"{node} did not answer within {ROUND_LIMIT_S + limits:.0f} s")
        except TransportError as error:
            return _unanswered(asks, f"{node}: {error.message}")
        return {ask: found.get(ask, Answer(problem=f"{node} did not answer this")) for ask in asks}

    # running

    def start(self, plan: Plan, *, secret: AskSecret, changed: Changed) -> PlanExecution:
        execution = PlanExecution(self._new_id(), plan, means=self._means, secret=secret, changed=changed)
        barred = bars(
            plan,
            self._means.picture(),
            now_s=self._means.clock.monotonic(),
            is_read_only=self._is_read_only,
            protected=self._protected,
            busy=self._busy(),
        )
        self._executions.append(execution)
        if barred is not None:
            execution.refuse(barred)
        else:
            execution.start()
        return execution

    def _busy(self) -> Mapping[str, str]:
        """What this session changes at the moment, by node."""
        running = [one.run.plan for one in self._executions if not one.run.state.is_over]
        return {step.node: plan.title for plan in running for step in plan.steps if changes(step)}

    def _new_id(self) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._means.clock.wall()))
        return f"{stamp}-{secrets.token_hex(3)}"

    # what an earlier console has left

    async def cut_off(self) -> tuple[CutOff, ...]:
        """Runs of this machine whose console was killed in the middle; empty where the audit can't be read."""
        return await in_thread(self._cut_off) if self._recalls else ()

    def _cut_off(self) -> tuple[CutOff, ...]:
        path = self._means.audit.path
        try:
            found, _ = entries(path, limit_bytes=RECALLED_BYTES)
        except SparktopError:
            return ()
        now_s = self._means.clock.wall()
        return cut_off(found, is_under_way=lambda run_id: is_under_way(run_id, path), now_wall_s=now_s)

    def read(self, run_id: str) -> None:
        """The operator has seen how it was left: it is told no more."""
        with contextlib.suppress(SparktopError):
            self._means.audit.note("note", {"run": run_id, "text": "how it was left has been read", READ: True})

    def way_back(self, run: Run) -> Plan | None:
        if not run.can_go_back or not run.state.is_over or not run.plan.way_back:
            return None
        plan = run.plan
        filled_in = [(step, filled(step.act, run.saved.get(step.node, {}))) for step in plan.way_back]
        acts = [act for _, act in filled_in if act is not None]
        return replace(
            plan,
            request=replace(plan.request, finding=None),
            title=f"Way back: {plan.title}",
            risk=Risk.SAFE if plan.risk is Risk.SAFE and not any(map(stops, acts)) else Risk.DISRUPTIVE,
            steps=tuple(replace(step, act=act) for step, act in filled_in if act is not None),
            way_back=(),
            effect="It leads back to how it was before.",
            outcome="",  # what was to be there then, and what a launch would find, is no more of this
            outcome_command="",
            prospect=None,
            warnings=(f"It undoes: {brief(run)}",),
            differences=tuple(replace(one, before=one.after, after=one.before) for one in plan.differences),
            equivalent=(),
            typed="",
            seen_monotonic_s=self._means.picture().monotonic_s,
        )


def _unanswered(asks: Sequence[Ask], problem: str) -> Mapping[Ask, Answer]:
    return {ask: Answer(problem=problem) for ask in asks}
