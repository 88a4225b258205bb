"""Waits of a run: for the verdict of a judge, for figures to settle, or until the operator aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from sparktop.dataclass import dataclass
from sparktop.diagnose.stall import STALLED, stall_of
from sparktop.engines.pair import Pair, pair_of, state_of
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.run import Figures, Run, StepState
from sparktop.operate.run.run_context import RunContext
from sparktop.operate.run.run_text import stops
from sparktop.operate.waits.wait_state import Since, WaitStatus, WaitVerdict
from sparktop.text.units import GIB, span


def figures(picture: FleetState, nodes: Iterable[str]) -> dict[str, Figures]:
    """Figures by node: "available_gib", "free_gib", "cache_gib", "swap_used_gib", and "engine NAME" with its state
    or "stalled"; "link" where the link is not live, because the figures are then old."""
    pair = pair_of(picture)
    findings = picture.findings
    return {name: _node_figures(view, findings, pair) for name in nodes if (view := picture.node(name)) is not None}


def _node_figures(view: NodeView, findings: Sequence[Finding], pair: Pair | None) -> Figures:
    values: dict[str, float | str] = {}
    if view.link.state is not LinkState.LIVE:
        values["link"] = str(view.link.state)
    if view.sample is not None:
        memory = view.sample.memory
        values["available_gib"] = round(memory.available_bytes / GIB, 2)
        values["free_gib"] = round(memory.free_bytes / GIB, 2)
        values["cache_gib"] = round(memory.page_cache_bytes / GIB, 2)
        values["swap_used_gib"] = round(memory.swap_used_bytes / GIB, 2)
    for engine in view.engines:
        is_stalled = stall_of(engine, view.name, findings, pair) is not None
        values[f"engine {engine.name}"] = STALLED if is_stalled else str(state_of(engine, pair))
    return values


def is_newer(picture: FleetState, nodes: Iterable[str], than_s: float) -> bool:
    """Whether every one of the nodes that is live has been sampled after that moment (operator's monotonic clock)."""
    views = [view for name in nodes if (view := picture.node(name)) is not None]
    return all(
        view.sample_at_s is not None and view.sample_at_s >= than_s
        for view in views
        if view.link.state is LinkState.LIVE
    )


def lists_newer_containers(picture: FleetState, nodes: Iterable[str], than_s: float) -> bool:
    """Whether Docker on each of the nodes that is live has been asked for its containers after that moment.

    A node whose Docker can't be asked counts as asked: nothing newer will come.
    """
    views = [view for name in nodes if (view := picture.node(name)) is not None]
    return all(
        view.containers_at_s is None or view.containers_at_s >= than_s
        for view in views
        if view.link.state is LinkState.LIVE and view.containers.available
    )


NEWER_FIGURES_S = 3.0
"""How long a run waits at its end for figures newer than its last step."""
NEWER_CONTAINERS_S = 6.0
"""How long it waits for a newer list of containers, which comes every 3 s: a plan made at once must not see a container
that this run has removed."""
COMING_BACK_S = 12.0
"""How long it waits in all while memory is still being released."""
RISING_BYTES_PER_S = 0.2 * GIB


async def settled(context: RunContext, run: Run, nodes: Collection[str]) -> None:
    """Wait until the picture shows how the run has left its nodes, or for COMING_BACK_S at most."""
    is_rolled_back = len(run.steps) > len(run.plan.steps)
    has_stopped = is_rolled_back or any(
        step_run.state is StepState.DONE and stops(step_run.step.act) for step_run in run.steps
    )
    began_s = since_s = context.clock.monotonic()
    last_picture: FleetState | None = None
    while True:
        picture, now_s = context.picture(), context.clock.monotonic()
        has_containers = not has_stopped or lists_newer_containers(picture, nodes, began_s)
        if has_containers and is_newer(picture, nodes, since_s):
            if not has_stopped or (last_picture is not None and not rises(last_picture, picture, nodes)):
                return
            last_picture, since_s = picture, now_s + POLL_S
        limit_s = NEWER_FIGURES_S if has_containers else NEWER_CONTAINERS_S
        if now_s - since_s > limit_s or now_s - began_s > COMING_BACK_S:
            return
        await context.pause(POLL_S)


def rises(before: FleetState, after: FleetState, nodes: Collection[str]) -> bool:
    """Whether available memory of one of the nodes is still rising, by two samples of each."""
    for name in nodes:
        old_view, view = before.node(name), after.node(name)
        if old_view is None or view is None or old_view.sample is None or view.sample is None:
            continue
        if view.link.state is not LinkState.LIVE:
            continue
        elapsed_s = view.sample.boot_s - old_view.sample.boot_s
        gained = view.sample.memory.available_bytes - old_view.sample.memory.available_bytes
        if elapsed_s > 0 and gained / elapsed_s > RISING_BYTES_PER_S:
            return True
    return False


_T = TypeVar("_T")


class Aborted(Exception):
    """The operator aborted the run while it waited."""


class Abort:
    """The operator's request to abort a run."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return self._event.is_set()

    def want(self) -> None:
        self._event.set()

    def heeded(self) -> None:
        """The abort is being carried out; the operator may request another, of the rollback."""
        self._event.clear()

    async def wanted(self) -> None:
        """Wait until the operator aborts."""
        await self._event.wait()

    async def unless(self, work: Coroutine[Any, Any, _T], *, grace_s: float = 0.0) -> _T:
        """The work's result; the work is cancelled when the operator aborts, `grace_s` later where that is given.

        Raises:
            Aborted: the operator aborted first.
        """
        task = asyncio.ensure_future(work)
        aborting = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({task, aborting}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and grace_s:
                await asyncio.wait({task}, timeout=grace_s)
            if task.done():
                return task.result()
            raise Aborted
        finally:
            aborting.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


POLL_S = 0.25
KEPT_SAMPLES = 4000
Judge = Callable[[FleetState, Since], WaitStatus]
OnStatus = Callable[[WaitStatus, str], None]
"""(the wait's status, why the node can't be heard: empty while it can)."""


class Ending(StrEnum):
    """How a wait ended."""

    MET = "met"
    FAILED = "failed"
    LATE = "late"
    """The limit passed before the condition was met."""
    SILENT = "silent"
    """The node did not come back."""
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """How a wait ended, with its last detail."""

    ending: Ending
    detail: str


async def wait_for(
    judge: Judge,
    *,
    node: str,
    context: RunContext,
    abort: Abort,
    limit_s: float,
    on_status: OnStatus,
    before: NodeView | None = None,
    stands_s: float = 0.0,
    hears_silence: bool = False,
) -> WaitResult:
    """Ask the judge with each picture until the wait is over.

    `stands_s`: the condition must have been met for so long without a break. `hears_silence`: the judge wants to see
    the node's absence too (a reboot), and the limit runs on through it.
    """
    began_s, began_wall_s = context.clock.monotonic(), context.clock.wall()
    available: list[tuple[float, int]] = []
    silent_s, last_s, met_s = 0.0, began_s, None
    silence_s: float | None = None
    while True:
        now_s = context.clock.monotonic()
        picture = context.picture()
        view = picture.node(node)
        is_silent = not hears_silence and (view is None or view.link.state is not LinkState.LIVE)
        if is_silent:
            silence_s = now_s if silence_s is None else silence_s
            silent_s += now_s - last_s
            why = view.link.reason if view is not None else "not watched"
            status = WaitStatus(
                verdict=WaitVerdict.WAITING, detail=f"no word from {node} for {span(now_s - silence_s)} ({why})"
            )
            on_status(status, status.detail)
            met_s = None
        else:
            silence_s = None
            _keep_sample(available, view, began_s)
            since = Since(
                began_monotonic_s=began_s, began_wall_s=began_wall_s, before=before, available=tuple(available)
            )
            status = judge(picture, since)
            on_status(status, "")
            if status.verdict is WaitVerdict.FAILED:
                return WaitResult(ending=Ending.FAILED, detail=status.detail)
            if status.verdict is WaitVerdict.MET:
                met_s = now_s if met_s is None else met_s
                if now_s - met_s >= stands_s:
                    return WaitResult(ending=Ending.MET, detail=status.detail)
            else:
                met_s = None
        last_s = now_s
        if abort.is_wanted:
            return WaitResult(ending=Ending.ABORTED, detail=status.detail)
        if silence_s is not None and now_s - silence_s > context.link_patience_s:
            return WaitResult(ending=Ending.SILENT, detail=status.detail)
        if met_s is None and now_s - began_s - silent_s >= limit_s:
            return WaitResult(ending=Ending.LATE, detail=_late_detail(limit_s, status))
        await context.pause(POLL_S)


def _late_detail(limit_s: float, status: WaitStatus) -> str:
    return "; ".join(filter(None, (f"not within {span(limit_s)}: {status.detail}", status.late)))


def _keep_sample(available: list[tuple[float, int]], view: NodeView | None, began_s: float) -> None:
    """Keep a sample taken since the wait began; a reboot starts the list anew."""
    if view is None or view.sample is None or view.sample_at_s is None or view.sample_at_s < began_s:
        return
    boot_s = view.sample.boot_s
    if available and boot_s < available[-1][0]:
        available.clear()
    if not available or boot_s > available[-1][0]:
        available.append((boot_s, view.sample.memory.available_bytes))
        del available[:-KEPT_SAMPLES]
