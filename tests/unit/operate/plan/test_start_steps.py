"""What stands before a start: whether caches are dropped for it."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.table import over

from sparktop.model.engine import EngineState, LogFacts
from sparktop.operate.plan.start_steps import LOAD_LONGEST_S, SLACK_BYTES, drop_for, load_s

GIB = 1 << 30


@over(
    "total_gib, reserved_gib, drops",
    [(32, 20, True), (32, 0, False), (32, None, False), (0, 20, False), (None, 20, False), (20, 20, True)],
    ids=["reserved", "none-reserved", "not-told", "torn", "of-nothing", "all-of-it"],
)
def test_what_is_reserved_for_devices_is_not_free_for_an_engine(
    total_gib: int | None, reserved_gib: int | None, drops: bool
) -> None:
    node = made.idle_node()
    assert node.sample is not None
    memory = replace(
        node.sample.memory,
        free_bytes=50 * GIB,
        cma_total_bytes=None if total_gib is None else total_gib * GIB,
        cma_free_bytes=None if reserved_gib is None else reserved_gib * GIB,
    )
    node = replace(node, sample=replace(node.sample, memory=memory))
    need_bytes = 45 * GIB - SLACK_BYTES
    assert (drop_for(node, "", need_bytes=need_bytes, back_bytes=0) is not None) is drops
    assert drop_for(node, "", need_bytes=need_bytes, back_bytes=20 * GIB) is None, "it comes back by then"


@over(
    "started_s, ready_s, state, took_s",
    [
        (1000.0, 1300.0, EngineState.READY, 300.0),
        (1000.0, 1000.0 + LOAD_LONGEST_S, EngineState.SERVING, LOAD_LONGEST_S),
        (1000.0, 1001.0 + LOAD_LONGEST_S, EngineState.READY, None),
        (1000.0, 999.0, EngineState.READY, None),
        (1000.0, 1000.0, EngineState.READY, None),
        (1000.0, 1300.0, EngineState.LOADING, None),
        (None, 1300.0, EngineState.READY, None),
        (1000.0, None, EngineState.READY, None),
    ],
)
def test_how_long_a_load_took_is_known_of_one_that_is_over(
    started_s: float | None, ready_s: float | None, state: EngineState, took_s: float | None
) -> None:
    box = made.container(started_wall_s=started_s)
    assert load_s(made.engine(container=box, state=state, log=LogFacts(ready_wall_s=ready_s))) == took_s
    assert load_s(made.engine(container=None, state=state, log=LogFacts(ready_wall_s=ready_s))) is None
    assert load_s(made.engine(container=box, state=state, log=None)) is None
