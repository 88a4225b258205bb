"""Waiting for what a picture has to show: a judge asked four times a second until it is met, fails, or time is up.

While the node can't be heard nothing is judged and the limit stands still: silence is no failure of what is waited
for. Silence itself is bounded, and told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sparktop.diagnose.live.window import span
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.operate.aborting import Abort
from sparktop.operate.judging import Judgement, Since, Verdict
from sparktop.operate.means import Means

POLL_S = 0.25
KEPT_SAMPLES = 4000
Judge = Callable[[FleetState, Since], Judgement]
Told = Callable[[Judgement, str], None]
"""(where it is, why the node can't be heard: empty while it can)."""


class Ending(StrEnum):
    MET = "met"
    FAILED = "failed"
    LATE = "late"
    """The limit is over, and it was still being waited for."""
    SILENT = "silent"
    """The node hasn't come back."""
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How a wait ended."""

    ending: Ending
    detail: str


async def wait_for(
    judge: Judge,
    *,
    node: str,
    means: Means,
    abort: Abort,
    limit_s: float,
    told: Told,
    before: NodeView | None = None,
    stands_s: float = 0.0,
    hears_silence: bool = False,
) -> Waited:
    """Ask the judge until it is over.

    `stands_s`: it must have been met for so long without a break. `hears_silence`: the judge wants to see the node's
    absence too (a reboot), and the limit runs on through it.
    """
    began_s, began_wall_s = means.clock.monotonic(), means.clock.wall()
    available: list[tuple[float, int]] = []
    silent_s, last_s, met_s = 0.0, began_s, None
    silence_s: float | None = None
    while True:
        now_s = means.clock.monotonic()
        picture = means.picture()
        view = picture.node(node)
        is_silent = not hears_silence and (view is None or view.link.state is not LinkState.LIVE)
        if is_silent:
            silence_s = now_s if silence_s is None else silence_s
            silent_s += now_s - last_s
            why = view.link.reason if view is not None else "not watched"
            judgement = Judgement(
                verdict=Verdict.WAITING, detail=f"no word from {node} for {span(now_s - silence_s)} ({why})"
            )
            told(judgement, judgement.detail)
            met_s = None
        else:
            silence_s = None
            _take(available, view, began_s)
            since = Since(
                began_monotonic_s=began_s, began_wall_s=began_wall_s, before=before, available=tuple(available)
            )
            judgement = judge(picture, since)
            told(judgement, "")
            if judgement.verdict is Verdict.FAILED:
                return Waited(ending=Ending.FAILED, detail=judgement.detail)
            if judgement.verdict is Verdict.MET:
                met_s = now_s if met_s is None else met_s
                if now_s - met_s >= stands_s:
                    return Waited(ending=Ending.MET, detail=judgement.detail)
            else:
                met_s = None
        last_s = now_s
        if abort.is_wanted:
            return Waited(ending=Ending.ABORTED, detail=judgement.detail)
        if silence_s is not None and now_s - silence_s > means.link_patience_s:
            return Waited(ending=Ending.SILENT, detail=judgement.detail)
        if met_s is None and now_s - began_s - silent_s >= limit_s:
            return Waited(ending=Ending.LATE, detail=_late(limit_s, judgement))
        await means.pause(POLL_S)


def _late(limit_s: float, judgement: Judgement) -> str:
    return "; ".join(filter(None, (f"not within {span(limit_s)}: {judgement.detail}", judgement.late)))


def _take(available: list[tuple[float, int]], view: NodeView | None, began_s: float) -> None:
    """Keep a sample that is new, and was taken since the wait began; a reboot begins anew."""
    if view is None or view.sample is None or view.sample_at_s is None or view.sample_at_s < began_s:
        return
    boot_s = view.sample.boot_s
    if available and boot_s < available[-1][0]:
        available.clear()
    if not available or boot_s > available[-1][0]:
        available.append((boot_s, view.sample.memory.available_bytes))
        del available[:-KEPT_SAMPLES]
