"""After the last step: until its nodes have been sampled anew, and what was let go of is there again.

An engine's memory comes back some seconds after its process: figures taken before say that less is there than is.
"""

from __future__ import annotations

from collections.abc import Collection

from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.plan import Run, StepState
from sparktop.operate.asked import stops
from sparktop.operate.figures import is_newer
from sparktop.operate.means import Means
from sparktop.operate.waiting import POLL_S

NEWER_FIGURES_S = 3.0
"""How long the end waits for figures that are newer than the last step, or than the last ones."""
COMING_BACK_S = 12.0
"""How long it waits for memory that still comes back; what takes longer is a finding's to tell."""
RISING_BYTES_PER_S = 0.2 * 1024**3


async def settled(means: Means, run: Run, nodes: Collection[str]) -> None:
    """Comes back when the picture tells how the run has left its nodes, or when that takes too long."""
    was_led_back = len(run.steps) > len(run.plan.steps)
    has_let_go = was_led_back or any(one.state is StepState.DONE and stops(one.step.act) for one in run.steps)
    began_s = since_s = means.clock.monotonic()
    before: FleetState | None = None
    while True:
        picture, now_s = means.picture(), means.clock.monotonic()
        if is_newer(picture, nodes, since_s):
            if not has_let_go or (before is not None and not rises(before, picture, nodes)):
                return
            before, since_s = picture, now_s + POLL_S
        if now_s - since_s > NEWER_FIGURES_S or now_s - began_s > COMING_BACK_S:
            return
        await means.pause(POLL_S)


def rises(before: FleetState, now: FleetState, nodes: Collection[str]) -> bool:
    """Whether available memory of one of the nodes still comes back, by two samples of each."""
    for name in nodes:
        then, view = before.node(name), now.node(name)
        if then is None or view is None or then.sample is None or view.sample is None:
            continue
        if view.link.state is not LinkState.LIVE:
            continue
        elapsed_s = view.sample.boot_s - then.sample.boot_s
        gained = view.sample.memory.available_bytes - then.sample.memory.available_bytes
        if elapsed_s > 0 and gained / elapsed_s > RISING_BYTES_PER_S:
            return True
    return False
