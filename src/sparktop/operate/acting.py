"""One step that isn't the runner's: a wait, a first request, an archive of evidence, an order to the guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sparktop.errors import SparktopError, TransportError
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.plan import (
    AwaitBack,
    AwaitGone,
    AwaitMemory,
    AwaitReady,
    AwaitResolved,
    CollectEvidence,
    GuardOrder,
    Measure,
    SmokeTest,
    Step,
    StepState,
)
from sparktop.operate.aborting import Abort, Aborted
from sparktop.operate.arrivals import FindingKey, judge_back, judge_gone, judge_resolved
from sparktop.operate.ended import Ended
from sparktop.operate.hold import Hold, NoLine, Taken
from sparktop.operate.judging import Judgement, Since, Verdict
from sparktop.operate.means import Means
from sparktop.operate.waiting import Ending, Judge, wait_for

RESOLVED_STANDS_S = 5.0
"""An engine that has just begun has no symptoms yet."""
_T = TypeVar("_T")
Waits = AwaitGone | AwaitMemory | AwaitReady | AwaitResolved | AwaitBack
Told = Callable[[str, float | None, str], None]
"""(what it is at, how far, why its node can't be heard)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """How things were when the run began."""

    picture: FleetState

    @property
    def findings(self) -> frozenset[FindingKey]:
        return frozenset(one.key for one in self.picture.findings if one.phase is not Phase.RESOLVED)

    def node(self, name: str) -> NodeView | None:
        return self.picture.node(name)


class LocalStep:
    """Does the steps of a run that are done from here."""

    def __init__(
        self, *, means: Means, hold: Hold, abort: Abort, beginning: Beginning, secrets: Collection[str]
    ) -> None:
        self._means = means
        self._hold = hold
        self._abort = abort
        self._beginning = beginning
        self._secrets = tuple(secrets)

    async def carry_out(self, step: Step, told: Told) -> Ended:
        """Until it is over, or the operator wants out."""
        try:
            match step.act:
                case SmokeTest():
                    return await self._smoke(step, step.act, told)
                case Measure():
                    return await self._measure(step, step.act, told)
                case CollectEvidence():
                    return await self._collect(step.act, told)
                case GuardOrder():
                    return await self._order(step, step.act, told)
                case AwaitGone() | AwaitMemory() | AwaitReady() | AwaitResolved() | AwaitBack():
                    return await self._wait(step, step.act, told)
        except Aborted:
            return Ended(state=StepState.SKIPPED, detail="given up", is_aborted=True)
        raise AssertionError(f"no local step: {type(step.act).__name__}")

    # waits

    async def _wait(self, step: Step, act: Waits, told: Told) -> Ended:
        return await self._until(
            self._judge(act, step.node),
            step,
            told,
            stands_s=RESOLVED_STANDS_S if isinstance(act, AwaitResolved) else 0.0,
            hears_silence=isinstance(act, AwaitBack),
        )

    async def _until(
        self,
        judge: Judge,
        step: Step,
        told: Told,
        *,
        before: NodeView | None = None,
        stands_s: float = 0.0,
        hears_silence: bool = False,
    ) -> Ended:
        waited = await wait_for(
            judge,
            node=step.node,
            means=self._means,
            abort=self._abort,
            limit_s=step.limit_s,
            told=lambda judgement, why: told(judgement.detail, judgement.ratio, why),
            before=before or self._beginning.node(step.node),
            stands_s=stands_s,
            hears_silence=hears_silence,
        )
        if waited.ending is Ending.MET:
            return Ended(state=StepState.DONE, detail=waited.detail)
        if waited.ending is Ending.ABORTED:
            return Ended(state=StepState.SKIPPED, detail=f"given up: {waited.detail}", is_aborted=True)
        return Ended(state=StepState.FAILED, detail=waited.detail)

    def _judge(self, act: Waits, node: str) -> Judge:
        performers = self._means.performers

        def judge(picture: FleetState, since: Since) -> Judgement:
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
                    return judge_resolved(act, picture, self._beginning.findings, self._beginning.picture)

        return judge

    # the first request

    async def _smoke(self, step: Step, test: SmokeTest, told: Told) -> Ended:
        """Once; and once more only where the line broke in it and the engine is seen to have lived through it."""
        for is_second in (False, True):
            try:
                line = await self._hold.line(step.node, patience_s=self._patience_s(is_second))
                work = self._means.performers.smoke(
                    line,
                    self._means.picture,
                    step.node,
                    test,
                    progress=lambda detail, ratio: told(detail, ratio, ""),
                )
                result = await self._abort.unless(_bounded(work, step.limit_s))
            except NoLine as gone:
                return Ended(state=StepState.FAILED, detail=f"{gone}: whether the engine serves is not known")
            except TimeoutError:
                return Ended(state=StepState.FAILED, detail=f"no answer within {step.limit_s:.0f} s")
            except TransportError as error:
                told(error.message, None, error.message)
                if is_second or not await self._lived(step, test, told):
                    why = f"the line broke during the first request ({error.message})"
                    return Ended(state=StepState.FAILED, detail=f"{why}: whether the engine serves is not known")
                continue
            return Ended(state=StepState.DONE if result.ok else StepState.FAILED, detail=result.detail)
        raise AssertionError("the second try returns")

    def _patience_s(self, is_second: bool) -> float:
        return self._means.link_patience_s if is_second else self._means.first_line_s

    async def _lived(self, step: Step, test: SmokeTest, told: Told) -> bool:
        """Whether the node is back, the same boot, with the engine there and memory above the floor."""
        old = self._beginning.node(step.node)

        def judge(picture: FleetState, since: Since) -> Judgement:
            view = picture.node(step.node)
            if view is None or view.sample is None or not since.available:
                return Judgement(verdict=Verdict.WAITING, detail=f"waiting for {step.node}")
            has_booted = bool(old and old.facts and view.facts and old.facts.boot_id != view.facts.boot_id)
            there = any(test.engine in (one.name, one.key) and one.exited_wall_s is None for one in view.engines)
            is_well = there and not has_booted and view.sample.memory.available_bytes >= test.floor_bytes
            return Judgement(verdict=Verdict.MET if is_well else Verdict.FAILED, detail=f"{step.node} is back")

        ended = await self._until(judge, step, told)
        if ended.is_aborted:
            raise Aborted
        return ended.state is StepState.DONE

    async def _measure(self, step: Step, wanted: Measure, told: Told) -> Ended:
        """Once; what breaks it off says nothing of the engine, which has served."""
        try:
            line = await self._hold.line(step.node, patience_s=self._means.first_line_s)
            work = self._means.performers.measure(
                line,
                self._means.picture,
                step.node,
                wanted,
                progress=lambda detail, ratio: told(detail, ratio, ""),
            )
            result = await self._abort.unless(_bounded(work, step.limit_s))
        except NoLine as gone:
            return Ended(state=StepState.FAILED, detail=f"{gone}: nothing was measured")
        except TimeoutError:
            return Ended(state=StepState.FAILED, detail=f"no answer within {step.limit_s:.0f} s")
        except TransportError as error:
            return Ended(state=StepState.FAILED, detail=f"the line broke ({error.message}): nothing was measured")
        return Ended(state=StepState.DONE if result.ok else StepState.FAILED, detail=result.detail)

    # evidence

    async def _collect(self, act: CollectEvidence, told: Told) -> Ended:
        await self._runners(act.nodes)
        try:
            self._means.evidence_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = await self._abort.unless(
                self._means.performers.collect(
                    act.nodes,
                    self._means.lines,
                    self._means.picture(),
                    engines=act.engines,
                    folder=self._means.evidence_folder,
                    secrets=self._secrets,
                    progress=lambda detail, ratio: told(detail, ratio, ""),
                )
            )
        except SparktopError as error:
            return Ended(state=StepState.FAILED, detail=error.message)
        except OSError as error:
            return Ended(state=StepState.FAILED, detail=f"the archive can't be written: {error.strerror or error}")
        count = len(found.problems)
        missing = f"; {count} thing{'s' if count > 1 else ''} missing: {'; '.join(found.problems)}" if count else ""
        return Ended(state=StepState.DONE, detail=f"{found.path}{missing}", evidence_path=str(found.path))

    async def _runners(self, nodes: Collection[str]) -> None:
        """A session that has just begun may not have them yet; where none can be had, none is waited for."""
        lines = self._means.lines
        for node in nodes:
            view = self._means.picture().node(node)
            is_live = view is not None and view.link.state is LinkState.LIVE
            if is_live and lines.line(node) is None and not lines.problem(node):
                with suppress(NoLine):
                    await self._hold.line(node, patience_s=self._means.first_line_s)

    # the guard

    async def _order(self, step: Step, order: GuardOrder, told: Told) -> Ended:
        try:
            await self._hold.take(await self._hold.line(step.node, patience_s=self._means.first_line_s))
        except (NoLine, Taken, TransportError) as why:
            return Ended(state=StepState.FAILED, detail=f"{why}. The guard was not told.")
        view = self._means.picture().node(step.node)
        words = self._means.performers.guard_words(order)
        if self._means.tell is None or not self._means.tell(step.node, words):
            return Ended(state=StepState.FAILED, detail=f"there is no probe on {step.node} to tell")

        def judge(picture: FleetState, since: Since) -> Judgement:
            return self._means.performers.judge_guard(order, picture, step.node, since)

        ended = await self._until(judge, step, told, before=view)
        if ended.state is not StepState.DONE and order.container_id and not self._has_fired(step.node):
            # What is told as failed or given up must not come true later.
            self._means.tell(step.node, self._means.performers.guard_words(GuardOrder(container_id="")))
        has_touched = ended.state is StepState.DONE and bool(order.container_id)
        return Ended(state=ended.state, detail=ended.detail, has_touched=has_touched, is_aborted=ended.is_aborted)

    def _has_fired(self, node: str) -> bool:
        view = self._means.picture().node(node)
        return view is not None and view.guard is not None and view.guard.has_acted


async def _bounded(work: Coroutine[Any, Any, _T], limit_s: float) -> _T:
    async with asyncio.timeout(limit_s):
        return await work
