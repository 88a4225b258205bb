"""The one sequence in which an engine comes up, and its way back; each phase for all ranks before the next.

evidence, prepare, stop, memory, room, start, ready, prove, policy, serving
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.step.plan import Step

Steps = tuple[Step, ...]
SERVING_LIMIT_S = 90.0
"""A Docker Engine that is being restarted is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """How one rank's engine comes up, or stays down, and what brings back the one before: the steps of each phase,
    none where it needs none."""

    is_head: bool = True
    prepare: Steps = ()
    """Before anything stops: what can be rejected is rejected here."""
    memory: Steps = ()
    room: Steps = ()
    """Once its memory is back: /dev/shm, caches."""
    left_out: Steps = ()
    """What would make room too, but needs root there."""
    before_start: Steps = ()
    """Before the first rank starts: its change is written, its guard armed where its container is there already."""
    start: Steps = ()
    """The start alone: one rank may wait for another only so long."""
    guard_load: Steps = ()
    """The guard while it loads, where its container is there only now."""
    ready: Steps = ()
    """See it come up, or stay down."""
    guard_request: Steps = ()
    """The guard during the first request."""
    prove: Steps = ()
    """The first request; of the head alone."""
    restore_guard: Steps = ()
    on_ready: Steps = ()
    """What it gets once it has served: its restart policy."""

    # the way back

    take_back: Steps = ()
    """Stop what has come up."""
    restore_guard_first: Steps = ()
    """The guard as it was, where the container that the plan's own is over is gone by now."""
    undo_change: Steps = ()
    old_memory: Steps = ()
    start_old: Steps = ()
    old_ready: Steps = ()
    settle_old: Steps = ()
    """Its guard and its restart policy, once it answers: Docker would restart a failing engine forever."""


def sequence(
    ranks: Sequence[Phases],
    *,
    before: Iterable[Step],
    stop: Iterable[Step],
    up: Sequence[Phases] = (),
    is_proven: bool = True,
    then: Iterable[Step] = (),
) -> Iterator[Step]:
    """The steps that bring the engine up, or down.

    Args:
        ranks: head first.
        before: evidence, downloads: what comes first of all.
        stop: what stops the engines that run now.
        up: the ranks in start order; empty where none starts.
        is_proven: send the first request.
        then: what is waited for once it serves; the check that it still does comes last.
    """
    yield from before
    yield from (step for rank in ranks for step in rank.prepare)
    yield from stop
    yield from (step for rank in ranks for step in rank.memory)
    yield from (step for rank in ranks for step in rank.room)
    yield from (step for rank in ranks for step in rank.before_start)
    yield from (step for rank in up for step in rank.start)
    yield from (step for rank in ranks for step in rank.guard_load)
    ready = [step for rank in ranks for step in rank.ready]
    yield from ready
    if is_proven:
        yield from (step for rank in ranks for step in rank.guard_request)
        yield from ranks[0].prove
    yield from (step for rank in ranks for step in rank.restore_guard)
    yield from (step for rank in ranks for step in rank.on_ready)
    yield from then
    yield from serving(ready)


def serving(ready: Iterable[Step]) -> Iterator[Step]:
    """Check, when all else is done, that what became ready in these steps still serves."""
    for step in ready:
        if not isinstance(step.act, AwaitReady):
            continue
        act = AwaitServing(name=step.act.name, container_id=step.act.container_id, is_worker=step.act.is_worker)
        yield replace(
            step,
            id=step.id.replace("ready", "serving", 1),
            likely_s=None,
            title=f"Check that {act.name} still {'runs' if act.is_worker else 'serves'}",
            act=act,
            limit_s=SERVING_LIMIT_S,
            verifies="it still runs, not restarted since it was ready" + ("" if act.is_worker else ", and answers"),
        )


def rollback(down: Sequence[Phases], up: Sequence[Phases]) -> Iterator[Step]:
    """The steps that bring back what ran before; each does nothing where its result is there already.

    Args:
        down: the ranks in stop order.
        up: in start order.
    """
    yield from (step for rank in down for step in rank.take_back)
    yield from (step for rank in up for step in rank.restore_guard_first)
    yield from (step for rank in up for step in rank.undo_change)
    yield from (step for rank in up for step in rank.old_memory)
    yield from (step for rank in up for step in rank.start_old)
    ready = [step for rank in sorted(up, key=lambda rank: not rank.is_head) for step in rank.old_ready]
    yield from ready
    yield from (step for rank in up for step in rank.settle_old)
    yield from serving(ready)
