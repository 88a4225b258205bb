"""Waits of a step: for the verdict of a judge, or until the operator aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.operate.step.run_context import RunContext
from sparktop.text.units import span


class WaitVerdict(StrEnum):
    """Whether a wait is over."""

    WAITING = "waiting"
    MET = "met"
    FAILED = "failed"
    """The condition will not be met any more, or has stalled for good: `detail` says what is in the way and what to
    do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStatus:
    """The state of a wait."""

    verdict: WaitVerdict
    detail: str = ""
    """For the run's screen: "96.4 of 108 GiB available, there in 0:20"."""
    ratio: float | None = None
    late: str = ""
    """Added to the message when the wait times out in this state: whether it is slow or stuck, and what to do."""


def waiting(detail: str, ratio: float | None = None) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.WAITING, detail=detail, ratio=ratio)


def met(detail: str, ratio: float | None = 1.0) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.MET, detail=detail, ratio=ratio)


def failed(detail: str) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.FAILED, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What has been seen since a wait began, one entry for each new sample of the node."""

    began_monotonic_s: float
    began_wall_s: float
    """Operator's clock, as FleetState has it."""
    before: NodeView | None = None
    """The node as the run began, before its first step."""
    available: tuple[tuple[float, int], ...] = ()
    """(boot seconds, MemAvailable in bytes)."""


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
