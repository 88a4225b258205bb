"""The one sequence in which an engine comes up, and its way back; each phase for all ranks before the next.

evidence, prepare, stop, memory, room, start, ready, prove, policy, serving
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparktop.model.survey import Survey
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.starter import Starter
from sparktop.operate.step.plan import Step


def sequence(
    ranks: Sequence[Starter],
    *,
    before: Iterable[Step],
    stop: Iterable[Step],
    survey: Survey,
    up: Sequence[Starter] = (),
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
    for rank in ranks:
        yield from rank.prepare()
    yield from stop
    for rank in ranks:
        yield from rank.await_memory()
    for rank in ranks:
        yield from rank.make_room(survey)
    for rank in ranks:
        yield from rank.before_start()
    for rank in up:
        yield from rank.start()
    for rank in ranks:
        yield from rank.guard_load()
    ready = [step for rank in ranks for step in rank.await_ready()]
    yield from ready
    if is_proven:
        for rank in ranks:
            yield from rank.guard_request()
        yield from ranks[0].prove()
    for rank in ranks:
        yield from rank.restore_guard()
    for rank in ranks:
        yield from rank.on_ready()
    yield from then
    yield from start_steps.serving(ready)


def way_back(down: Sequence[Starter], up: Sequence[Starter], grace_s: float) -> Iterator[Step]:
    """The steps that bring back what ran before; each does nothing where its result is there already.

    Args:
        down: the ranks in stop order.
        up: in start order.
    """
    for rank in down:
        yield from rank.take_back(grace_s)
    for rank in up:
        yield from rank.restore_guard_first()
    for rank in up:
        yield from rank.undo_change()
    for rank in up:
        yield from rank.await_old_memory()
    for rank in up:
        yield from rank.start_old()
    ready = [step for rank in sorted(up, key=lambda rank: not rank.is_head) for step in rank.await_old_ready()]
    yield from ready
    for rank in up:
        yield from rank.settle_old()
    yield from start_steps.serving(ready)
