"""A log is read in frames: however slow its lines are, the loop that answers keys goes on between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tests.hostile_lines import REQUEST

from sparktop.diagnose.logs.rule import shipped
from sparktop.model.engine import EngineKind, EngineState
from sparktop.model.telemetry import LogLine
from sparktop.observe.engine_log import Feed
from sparktop.observe.frames import FRAME_S
from sparktop.transport.docker import log_follower
from sparktop.transport.docker.log_follower import Pump

FAULT = LogLine(text="RuntimeError: CUDA error: an illegal memory access was encountered")
READY = LogLine(text="INFO:     Application startup complete.")
STARTS = LogLine(text="(APIServer pid=1) INFO 11-20 02:14:02 [utils.py:299] vLLM API server version 0.21.0")


def ticking(step_s: float) -> Iterator[float]:
    return count(0.0, step_s)


def feed(step_s: float) -> Feed:
    """A feed in which each line takes some time."""
    clock = ticking(step_s)
    return Feed("vllm @ spark1", EngineKind.VLLM, shipped(), now=lambda: next(clock))


def test_a_batch_is_read_for_one_frame() -> None:
    one = feed(FRAME_S / 4)
    lines = (*(LogLine(text=f"line {number}") for number in range(9)), FAULT, READY)
    assert not one.accept(lines)
    assert one.ring.end == len(lines), "all are shown at once"
    assert one.said.state is EngineState.UNKNOWN
    rounds = next(number for number in count(1) if one.accept(()))
    assert rounds == 2
    assert one.said.state is EngineState.READY
    assert [(finding.rule, finding.evidence[0].line) for finding in one.facts().findings] == [
        ("cuda.illegal-memory-access", 10)
    ]


def test_quick_lines_are_read_at_once() -> None:
    one = feed(0.0)
    assert one.accept((FAULT, READY) * 500)
    assert one.said.state is EngineState.READY


def test_a_line_that_takes_longer_than_a_frame_holds_none_but_itself() -> None:
    one = feed(2 * FRAME_S)
    assert not one.accept((FAULT, READY))
    assert one.accept(())


def test_the_end_of_a_run_leaves_nothing_of_it_to_read() -> None:
    one = feed(FRAME_S)
    one.accept((READY, FAULT, FAULT))
    one.forget()
    assert one.accept(())
    assert one.facts().findings == ()


async def test_a_batch_that_takes_long_to_mask_is_cut() -> None:
    """A clock that each mask sets forward stands for lines full of secrets."""
    passed_s = 0.0
    batches: list[int] = []

    def mask(text: str) -> str:
        nonlocal passed_s
        passed_s += 1.01 * log_follower.BATCH_WORK_S / 4
        return text

    pump = Pump(lambda lines: batches.append(len(lines)), mask=mask, stamped=False, now=lambda: passed_s)
    for number in range(10):
        pump.put(1, f"line {number}\n".encode())
    await asyncio.wait_for(pump.finish(), 20)
    assert batches == [4, 4, 2]


async def test_what_comes_faster_than_it_is_read_waits_where_it_is_bounded() -> None:
    """The taker is never given lines while it is busy, and gets all of them."""
    taken: list[str] = []
    asked = 0

    def take(lines: tuple[LogLine, ...]) -> bool:
        nonlocal asked
        taken.extend(line.text for line in lines)
        asked += 1
        return asked % 3 == 0

    pump = Pump(take, mask=lambda text: text, stamped=False)
    for number in range(3 * log_follower.BATCH_RECORDS):
        pump.put(1, f"{REQUEST}{number}\n".encode())
    await asyncio.wait_for(pump.finish(), 20)
    assert len(taken) == 3 * log_follower.BATCH_RECORDS
    assert asked > 3


WEIGHTS = LogLine(text="INFO Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:02<00:03]", wall_s=140.0)


def test_what_ended_a_run_is_over_once_a_start_comes_further() -> None:
    """A memory that was freed between two starts of a loop: the next one loads, which no start before it did."""
    one = feed(0.0)
    one.accept((FAULT,))
    one.forget()
    one.accept((replace(STARTS, wall_s=130.0),))
    assert not one.facts(is_restarted=True).has_come_further
    one.accept((WEIGHTS,))
    assert one.facts(is_restarted=True).has_come_further
    assert one.facts(is_restarted=True).findings == ()


def test_what_ends_each_load_stays_told_while_the_next_one_loads() -> None:
    one = feed(0.0)
    one.accept((WEIGHTS, FAULT))
    one.forget()
    one.accept((FAULT,))  # this one did not even load
    one.forget()
    one.accept((WEIGHTS,))
    facts = one.facts(is_restarted=True)
    assert not facts.has_come_further
    assert [finding.rule for finding in facts.findings] == ["cuda.illegal-memory-access"]


def test_what_ends_each_start_of_a_loop_is_told_since_the_first() -> None:
    one = feed(0.0)
    for wall_s in (100.0, 124.0, 148.0):
        one.accept((replace(FAULT, wall_s=wall_s),))
        (finding,) = one.facts(is_restarted=True).findings
        assert finding.since_wall_s in (None, 100.0)
        one.forget()
    (finding,) = one.facts(is_restarted=True).findings
    assert finding.since_wall_s == 100.0
    one.accept((READY,))
    one.forget()
    one.accept((replace(FAULT, wall_s=900.0),))
    (finding,) = one.facts(is_restarted=True).findings
    assert finding.since_wall_s is None, "it served between: this is another failure"


def test_what_ended_a_run_stays_told_while_docker_starts_it_again() -> None:
    one = feed(0.0)
    one.accept((FAULT,))
    one.forget()
    assert one.facts().findings == (), "somebody started it"
    assert [finding.rule for finding in one.facts(is_restarted=True).findings] == ["cuda.illegal-memory-access"]
    one.accept((READY,))
    assert one.facts(is_restarted=True).findings == (), "it serves: that is over"
