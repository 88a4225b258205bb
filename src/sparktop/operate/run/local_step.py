"""Carries out the steps that are not the runner's: waits, first requests, measurements, evidence, guard orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from sparktop.errors import SparktopError, TransportError
from sparktop.files import private_folder
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.plan import (
    AwaitBack,
    AwaitGone,
    AwaitMemory,
    AwaitReady,
    AwaitResolved,
    AwaitServing,
    CheckExposed,
    CheckLogin,
    CollectEvidence,
    GuardOrder,
    Measure,
    MeasureCollective,
    MeasureLink,
    MeasurePower,
    SmokeTest,
    Step,
)
from sparktop.model.proof import Prove
from sparktop.model.run import StepState
from sparktop.operate.run.node_lock import RETRY_S, NodeLocks, NodeTaken, NoLine
from sparktop.operate.run.run_context import RequestResult, RunContext
from sparktop.operate.run.step_result import StepResult
from sparktop.operate.run.wait import Abort, Aborted, Ending, Judge, wait_for
from sparktop.operate.waits.arrivals import judge_back, judge_gone, judge_resolved
from sparktop.operate.waits.wait_state import Since, WaitStatus, WaitVerdict
from sparktop.transport.endpoint import Reply

RESOLVED_STANDS_S = 5.0
"""An engine that has just started has no symptoms yet."""
_T = TypeVar("_T")
Measurement = MeasureLink | MeasureCollective | MeasurePower
Waits = AwaitGone | AwaitMemory | AwaitReady | AwaitResolved | AwaitBack
OnProgress = Callable[[str, float | None, str], None]
"""(what it is doing, how far: 0 to 1, why its node can't be heard)."""


class LocalStep:
    """Carries out the local steps of a run."""

    def __init__(
        self,
        *,
        context: RunContext,
        locks: NodeLocks,
        abort: Abort,
        start_picture: FleetState,
        ready_views: Mapping[tuple[str, str], NodeView],
        secrets: Collection[str],
    ) -> None:
        """`start_picture`: as it was when the run, or its rollback, began; `ready_views`: (node, engine) -> its node
        as it was when it became ready."""
        self._context = context
        self._locks = locks
        self._abort = abort
        self._start_picture = start_picture
        self._ready_views = ready_views
        self._secrets = tuple(secrets)

    async def carry_out(self, step: Step, on_progress: OnProgress) -> StepResult:
        """Carry out the step; returns when it is over, or the operator aborts."""
        try:
            match step.act:
                case SmokeTest():
                    return await self._smoke(step, step.act, on_progress)
                case Measure():
                    return await self._measure(step, step.act, on_progress)
                case CheckExposed():
                    return await self._exposed(step, step.act, on_progress)
                case CheckLogin():
                    return await self._login(step, step.act, on_progress)
                case MeasureLink() | MeasureCollective() | MeasurePower():
                    return await self._measured(step, step.act, on_progress)
                case Prove():
                    return await self._prove(step, step.act, on_progress)
                case AwaitServing():
                    return await self._serving(step, step.act, on_progress)
                case CollectEvidence():
                    return await self._collect(step.act, on_progress)
                case GuardOrder():
                    return await self._order_guard(step, step.act, on_progress)
                case AwaitGone() | AwaitMemory() | AwaitReady() | AwaitResolved() | AwaitBack():
                    return await self._wait(step, step.act, on_progress)
        except Aborted:
            return StepResult(state=StepState.SKIPPED, detail="given up", is_aborted=True)
        raise AssertionError(f"no local step: {type(step.act).__name__}")

    # waits

    async def _wait(self, step: Step, act: Waits, on_progress: OnProgress) -> StepResult:
        return await self._wait_until(
            self._judge(act, step.node),
            step,
            on_progress,
            stands_s=RESOLVED_STANDS_S if isinstance(act, AwaitResolved) else 0.0,
            hears_silence=isinstance(act, AwaitBack),
        )

    async def _wait_until(
        self,
        judge: Judge,
        step: Step,
        on_progress: OnProgress,
        *,
        before: NodeView | None = None,
        stands_s: float = 0.0,
        hears_silence: bool = False,
    ) -> StepResult:
        wait_result = await wait_for(
            judge,
            node=step.node,
            context=self._context,
            abort=self._abort,
            limit_s=step.limit_s,
            on_status=lambda status, why: on_progress(status.detail, status.ratio, why),
            before=before or self._start_picture.node(step.node),
            stands_s=stands_s,
            hears_silence=hears_silence,
        )
        if wait_result.ending is Ending.MET:
            return StepResult(state=StepState.DONE, detail=wait_result.detail)
        if wait_result.ending is Ending.SILENT and isinstance(step.act, AwaitServing):
            return StepResult(state=StepState.UNKNOWN, detail=wait_result.detail)
        if wait_result.ending is Ending.ABORTED:
            return StepResult(state=StepState.SKIPPED, detail=f"given up: {wait_result.detail}", is_aborted=True)
        return StepResult(state=StepState.FAILED, detail=wait_result.detail)

    def _judge(self, act: Waits, node: str) -> Judge:
        performers = self._context.performers

        def judge(picture: FleetState, since: Since) -> WaitStatus:
            match act:
                case AwaitMemory():
                    return performers.judge_memory(act, picture, node, since)
                case AwaitReady():
                    return performers.judge_ready(act, picture, node, since)
                case AwaitGone():
                    return judge_gone(act, picture, node, since)
                case AwaitBack():
                    return judge_back(act, picture, node, since)
                case AwaitResolved():
                    begun = self._start_picture
                    known = {finding.key for finding in begun.findings if finding.phase is not Phase.RESOLVED}
                    return judge_resolved(act, picture, known, begun)

        return judge

    # the first request

    async def _smoke(self, step: Step, test: SmokeTest, on_progress: OnProgress) -> StepResult:
        """Send the first request; again only where the connection broke and the engine has survived that."""
        for is_second in (False, True):
            try:
                patience_s = self._context.link_patience_s if is_second else self._context.first_line_s
                return await self._ask_engine(self._context.performers.smoke, step, test, on_progress, patience_s)
            except NoLine as no_line:
                return StepResult(state=StepState.FAILED, detail=f"{no_line}: whether the engine serves is not known")
            except TimeoutError:
                return StepResult(state=StepState.FAILED, detail=f"no answer within {step.limit_s:.0f} s")
            except TransportError as error:
                on_progress(error.message, None, error.message)
                if is_second or not await self._has_survived(step, test, on_progress):
                    why = f"the connection broke during the first request ({error.message})"
                    return StepResult(state=StepState.FAILED, detail=f"{why}: whether the engine serves is not known")
        raise AssertionError("the second try returns")

    async def _ask_engine(
        self,
        perform: Callable[..., Coroutine[Any, Any, RequestResult]],
        step: Step,
        act: SmokeTest | Measure | CheckExposed | Prove,
        on_progress: OnProgress,
        patience_s: float,
    ) -> StepResult:
        """Have a performer ask the engine, within the step's limit; raises as the performer and the locks do."""
        line = await self._locks.line(step.node, patience_s=patience_s)
        work = perform(
            line,
            self._context.picture,
            step.node,
            act,
            progress=lambda detail, ratio: on_progress(detail, ratio, ""),
        )
        result = await self._abort.unless(_bounded(work, step.limit_s))
        state = StepState.DONE if result.ok else StepState.FAILED
        return StepResult(state=state, detail=result.detail, figures=result.figures, is_last=result.is_last)

    async def _has_survived(self, step: Step, test: SmokeTest, on_progress: OnProgress) -> bool:
        """Whether the node is back in the same boot, with the engine running and memory above the floor."""
        start_view = self._start_picture.node(step.node)

        def judge(picture: FleetState, since: Since) -> WaitStatus:
            view = picture.node(step.node)
            if view is None or view.sample is None or not since.available:
                return WaitStatus(verdict=WaitVerdict.WAITING, detail=f"waiting for {step.node}")
            has_booted = bool(
                start_view and start_view.facts and view.facts and start_view.facts.boot_id != view.facts.boot_id
            )
            has_engine = any(
                test.engine in (engine.name, engine.key) and engine.exited_wall_s is None for engine in view.engines
            )
            is_well = has_engine and not has_booted and view.sample.memory.available_bytes >= test.floor_bytes
            return WaitStatus(verdict=WaitVerdict.MET if is_well else WaitVerdict.FAILED, detail=f"{step.node} is back")

        result = await self._wait_until(judge, step, on_progress)
        if result.is_aborted:
            raise Aborted
        return result.state is StepState.DONE

    # the last check

    async def _serving(self, step: Step, act: AwaitServing, on_progress: OnProgress) -> StepResult:
        """Ask the engine, then judge its answer with what is read of the node from now on."""
        reply = None
        if not act.is_worker:
            try:
                reply = await self._answer(step.node, act.name, on_progress)
            except NoLine as no_line:
                detail = f"{no_line}: whether {act.name} still serves is not known"
                return StepResult(state=StepState.UNKNOWN, detail=detail)

        def judge(picture: FleetState, since: Since) -> WaitStatus:
            return self._context.performers.judge_serving(act, picture, step.node, since, reply)

        return await self._wait_until(judge, step, on_progress, before=self._ready_views.get((step.node, act.name)))

    async def _answer(self, node: str, name: str, on_progress: OnProgress) -> Reply:
        """The engine's answer, asked for again on each new connection."""
        clock, patience_s = self._context.clock, self._context.link_patience_s
        until_s = clock.monotonic() + patience_s
        while True:
            line = await self._locks.line(node, patience_s=max(0.0, until_s - clock.monotonic()))
            try:
                return await self._abort.unless(
                    self._context.performers.answer(line, self._context.picture, node, name)
                )
            except TransportError as error:
                on_progress(error.message, None, error.message)
                if clock.monotonic() >= until_s:
                    raise NoLine(error.message) from error
                await self._context.pause(RETRY_S)

    async def _measure(self, step: Step, measurement: Measure, on_progress: OnProgress) -> StepResult:
        """Measure once; a failure says nothing about the engine, which has served."""
        try:
            measure, patience_s = self._context.performers.measure, self._context.first_line_s
            return await self._ask_engine(measure, step, measurement, on_progress, patience_s)
        except NoLine as no_line:
            return StepResult(state=StepState.FAILED, detail=f"{no_line}: nothing was measured")
        except TimeoutError:
            return StepResult(state=StepState.FAILED, detail=f"no answer within {step.limit_s:.0f} s")
        except TransportError as error:
            return StepResult(state=StepState.FAILED, detail=f"the line broke ({error.message}): nothing was measured")

    async def _measured(
        self, step: Step, act: MeasureLink | MeasureCollective | MeasurePower, on_progress: OnProgress
    ) -> StepResult:
        """Measure once; an abort ends what runs for it."""
        performers, patience_s = self._context.performers, self._context.first_line_s

        def progress(detail: str, ratio: float | None) -> None:
            on_progress(detail, ratio, "")

        try:
            line = await self._locks.line(step.node, patience_s=patience_s)
            if isinstance(act, MeasureLink):
                peer_line = await self._locks.line(act.peer, patience_s=patience_s)
                work = performers.measure_link(line, peer_line, self._context.picture, act, progress=progress)
            elif isinstance(act, MeasurePower):
                work = performers.measure_power(line, self._context.picture, act, progress=progress)
            else:
                work = performers.measure_collective(line, act, progress=progress)
            result = await self._abort.unless(_bounded(work, step.limit_s))
        except NoLine as no_line:
            return StepResult(state=StepState.FAILED, detail=f"{no_line}: nothing was measured")
        except TimeoutError:
            return StepResult(state=StepState.FAILED, detail=f"no result within {step.limit_s:.0f} s")
        except TransportError as error:
            return StepResult(state=StepState.FAILED, detail=f"the line broke ({error.message}): nothing was measured")
        state = StepState.DONE if result.ok else StepState.FAILED
        return StepResult(state=state, detail=result.detail, figures=result.figures)

    async def _exposed(self, step: Step, check: CheckExposed, on_progress: OnProgress) -> StepResult:
        """Ask the proxy once."""
        try:
            perform, patience_s = self._context.performers.exposed, self._context.first_line_s
            return await self._ask_engine(perform, step, check, on_progress, patience_s)
        except NoLine as no_line:
            return StepResult(state=StepState.FAILED, detail=f"{no_line}: what {check.name} answers is not known")
        except (TimeoutError, TransportError) as error:
            why = getattr(error, "message", "") or f"no answer within {step.limit_s:.0f} s"
            return StepResult(state=StepState.FAILED, detail=f"{why}: what {check.name} answers is not known")

    # a login

    async def _login(self, step: Step, check: CheckLogin, on_progress: OnProgress) -> StepResult:
        """Log in once more, with the key alone."""
        connector = self._context.connectors.get(step.node)
        if connector is None:
            return StepResult(state=StepState.FAILED, detail=f"nothing is known here of a login at {step.node}")
        on_progress(f"logging in with {check.key.fingerprint}", None, "")
        try:
            await self._abort.unless(connector.log_in_with(check.key))
        except TransportError as error:
            detail = f"{error.message}. {error.hint}" if error.hint else error.message
            return StepResult(state=StepState.FAILED, detail=detail)
        return StepResult(state=StepState.DONE, detail=f"logged in with {check.key.fingerprint}, without a password")

    async def _prove(self, step: Step, act: Prove, on_progress: OnProgress) -> StepResult:
        """Prove once; without the connection nothing is proven, and nothing disproved."""
        try:
            perform, patience_s = self._context.performers.prove, self._context.first_line_s
            return await self._ask_engine(perform, step, act, on_progress, patience_s)
        except (NoLine, TimeoutError, TransportError) as error:
            why = getattr(error, "message", "") or str(error) or f"no answer within {step.limit_s:.0f} s"
            return StepResult(state=StepState.FAILED, detail=f"{why}: nothing was measured", is_last=True)

    # evidence

    async def _collect(self, act: CollectEvidence, on_progress: OnProgress) -> StepResult:
        await self._wait_for_runners(act.nodes)
        try:
            private_folder(self._context.evidence_folder)
            archive = await self._abort.unless(
                self._context.performers.collect(
                    act.nodes,
                    self._context.lines,
                    self._context.picture(),
                    engines=act.engines,
                    folder=self._context.evidence_folder,
                    secrets=self._secrets,
                    progress=lambda detail, ratio: on_progress(detail, ratio, ""),
                )
            )
        except SparktopError as error:
            return StepResult(state=StepState.FAILED, detail=error.message)
        except OSError as error:
            return StepResult(state=StepState.FAILED, detail=f"the archive can't be written: {error.strerror or error}")
        count = len(archive.problems)
        missing = f"; {count} thing{'s' if count > 1 else ''} missing" if count else ""
        return StepResult(
            state=StepState.DONE,
            detail=f"{archive.path}{missing}{': ' if count else ''}{'; '.join(archive.problems)}",
            brief=f"{archive.path.name}{missing}{', see README.txt in it' if count else ''}",
            evidence_path=str(archive.path),
        )

    async def _wait_for_runners(self, nodes: Collection[str]) -> None:
        """Wait for the nodes' runners, which a new session may not have yet; not where none can be had."""
        lines = self._context.lines
        for node in nodes:
            view = self._context.picture().node(node)
            is_live = view is not None and view.link.state is LinkState.LIVE
            if is_live and lines.line(node) is None and not lines.problem(node):
                with suppress(NoLine):
                    await self._locks.line(node, patience_s=self._context.first_line_s)

    # the guard

    async def _order_guard(self, step: Step, order: GuardOrder, on_progress: OnProgress) -> StepResult:
        try:
            await self._locks.take(await self._locks.line(step.node, patience_s=self._context.first_line_s))
        except (NoLine, NodeTaken, TransportError) as why:
            return StepResult(state=StepState.FAILED, detail=f"{why}. The guard was not told.")
        view = self._context.picture().node(step.node)
        words = self._context.performers.guard_words(order)
        if self._context.tell is None or not self._context.tell(step.node, words):
            return StepResult(state=StepState.FAILED, detail=f"there is no probe on {step.node} to tell")

        def judge(picture: FleetState, since: Since) -> WaitStatus:
            return self._context.performers.judge_guard(order, picture, step.node, since)

        result = await self._wait_until(judge, step, on_progress, before=view)
        if result.state is not StepState.DONE and order.container_id and not self._has_fired(step.node):
            # An order reported as failed or given up must not take effect later.
            self._context.tell(step.node, self._context.performers.guard_words(GuardOrder(container_id="")))
        has_touched = result.state is StepState.DONE and bool(order.container_id)
        return StepResult(
            state=result.state, detail=result.detail, has_touched=has_touched, is_aborted=result.is_aborted
        )

    def _has_fired(self, node: str) -> bool:
        view = self._context.picture().node(node)
        return view is not None and view.guard is not None and view.guard.has_acted


async def _bounded(work: Coroutine[Any, Any, _T], limit_s: float) -> _T:
    async with asyncio.timeout(limit_s):
        return await work
