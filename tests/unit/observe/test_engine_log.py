"""A log is read in frames: however slow its lines are, the loop that answers keys goes on between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tests.hostile_lines import REQUEST
from tests.pictures_support import container, engine
from tests.support import engine_of
from tests.table import over

from sparktop.diagnose.ended_by import failed
from sparktop.diagnose.logs.routine import routine
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.engine import EngineKind, EngineMetrics, EngineState, LogFacts
from sparktop.model.telemetry import LogLine
from sparktop.observe.engines.engine_log import Feed
from sparktop.observe.frames import FRAME_S
from sparktop.transport.docker import log_follower
from sparktop.transport.docker.log_follower import Pump
from sparktop.transport.docker.log_frames import SplitState, lines_from_chunk

FAULT = LogLine(text="RuntimeError: CUDA error: an illegal memory access was encountered")
READY = LogLine(text="INFO:     Application startup complete.")
STARTED = count(1.0)
"""Starts of a container; lines without a time are of the run that was started last."""
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
    one.begin(next(STARTED))
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


@over(
    "text, kind",
    [
        ('(APIServer pid=1) INFO:     127.0.0.1:50422 - "GET /metrics HTTP/1.1" 200 OK', "scrapes"),
        ('[2026-11-28 01:10:17] INFO:     127.0.0.1:50424 - "GET /metrics HTTP/1.1" 200 OK', "scrapes"),
        ('INFO:     127.0.0.1:53466 - "GET /version HTTP/1.1" 200 OK', "scrapes"),
        ("srv  log_server_r: request: GET /metrics 127.0.0.1 200", "scrapes"),
        ('INFO:     127.0.0.1:50422 - "GET /health HTTP/1.1" 200 OK', "probes"),
        ('INFO:     10.0.0.7:50422 - "GET /health_generate HTTP/1.1" 200 OK', "probes"),
        ('INFO:     127.0.0.1:50422 - "GET /v1/models?client=sparktop HTTP/1.1" 401 Unauthorized', "ours"),
        (
            "(APIServer pid=1) INFO 11-20 02:15:11 [loggers.py:257] Engine 000: Avg prompt throughput: 12.4 tokens/s",
            "statistics",
        ),
        (
            "[2026-11-28 01:10:17 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 36.60, #queue-req: 0",
            "statistics",
        ),
        ('INFO:     127.0.0.1:50422 - "GET /health HTTP/1.1" 503 Service Unavailable', ""),
        ('INFO:     127.0.0.1:50422 - "GET /metrics HTTP/1.1" 404 Not Found', ""),
        ('INFO:     127.0.0.1:50422 - "POST /v1/chat/completions HTTP/1.1" 200 OK', ""),
        ('INFO:     127.0.0.1:50422 - "GET /v1/models HTTP/1.1" 200 OK', ""),
        ('prompt: what does "GET /metrics HTTP/1.1" mean?', ""),
    ],
)
def test_routine_lines_are_folded_and_counted_and_none_is_lost(text: str, kind: str) -> None:
    """As vLLM 0.32, SGLang 0.5.23 and llama.cpp write them."""
    one = feed(0.0)
    one.name(SCRAPED)
    one.accept((READY, LogLine(text=text), WEIGHTS))
    assert routine(text) == kind
    assert one.folded == ({kind: 1} if kind else {})
    assert (len(one.ring), len(one.brief)) == (3, 2 if kind else 3)


def test_statistics_are_folded_only_once_the_table_has_them() -> None:
    one = feed(0.0)
    line = LogLine(text="INFO 11-20 02:15:11 [loggers.py:257] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg")
    one.accept((READY, line, replace(line, replaces_last=True), replace(WEIGHTS, replaces_last=True)))
    assert (len(one.brief), dict(one.folded)) == (2, {})
    one.accept((line,))
    one.name(SCRAPED)
    one.accept((line,))
    assert [kept[0] for kept in one.brief.snapshot().entries(0, 9)] == [READY.text, WEIGHTS.text]
    assert one.folded == {"statistics": 2}


def test_who_asks_an_engine_does_not_break_its_silence() -> None:
    one = feed(0.0)
    one.accept((READY,), arrived_wall_s=100.0)
    one.accept((LogLine(text='INFO:     127.0.0.1:50422 - "GET /metrics HTTP/1.1" 200 OK'),), arrived_wall_s=200.0)
    assert one.facts().last_line_wall_s == 100.0


SCRAPED = engine_of(key="e", kind=EngineKind.VLLM, name="vllm", metrics=EngineMetrics(wall_s=0.0))


WEIGHTS = LogLine(text="INFO Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:02<00:03]", wall_s=140.0)


def test_what_ended_a_run_is_over_once_a_start_comes_further() -> None:
    """A memory that was freed between two starts of a loop: the next one loads, which no start before it did."""
    one = feed(0.0)
    one.accept((FAULT,))
    one.begin(next(STARTED))
    one.accept((replace(STARTS, wall_s=130.0),))
    assert not one.facts(is_restarted=True).has_come_further
    one.accept((WEIGHTS,))
    assert one.facts(is_restarted=True).has_come_further
    assert one.facts(is_restarted=True).findings == ()


def test_what_ends_each_load_stays_told_while_the_next_one_loads() -> None:
    one = feed(0.0)
    one.accept((WEIGHTS, FAULT))
    one.begin(next(STARTED))
    one.accept((FAULT,))  # this one did not even load
    one.begin(next(STARTED))
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
        one.begin(wall_s + 12)
    (finding,) = one.facts(is_restarted=True).findings
    assert finding.since_wall_s == 100.0
    one.accept((READY,))
    one.begin(800.0)
    one.accept((replace(FAULT, wall_s=900.0),))
    (finding,) = one.facts(is_restarted=True).findings
    assert finding.since_wall_s is None, "it served between: this is another failure"


def test_what_ended_a_run_stays_told_while_docker_starts_it_again() -> None:
    one = feed(0.0)
    one.accept((FAULT,))
    one.begin(next(STARTED))
    assert one.facts().findings == (), "somebody started it"
    assert [finding.rule for finding in one.facts(is_restarted=True).findings] == ["cuda.illegal-memory-access"]
    one.accept((READY,))
    assert one.facts(is_restarted=True).findings == (), "it serves: that is over"


def at(wall_s: float, *lines: LogLine) -> tuple[LogLine, ...]:
    return tuple(replace(line, wall_s=wall_s + number) for number, line in enumerate(lines))


@over("is_listed_late", [False, True])
def test_a_container_s_start_begins_a_run_whatever_its_log_says(is_listed_late: bool) -> None:
    """Nothing that vLLM logs need say so: the stop of the run before, its faults and that it served are history."""
    stop = LogLine(text="(APIServer pid=1) INFO 11-28 [launcher.py:147] [shutdown] API server: shutdown triggered")
    one = feed(0.0)
    one.begin(90.0 if is_listed_late else 200.0)
    one.accept(at(100.0, READY, FAULT, stop))
    if not is_listed_late:
        assert one.facts() == LogFacts(last_line_wall_s=102.0), "before the first line of the run"
    one.accept(at(200.0, LogLine(text="another line"), LogLine(text="OSError: [Errno 98] Address already in use")))
    one.begin(200.0)
    facts = one.facts()
    assert (facts.has_served, facts.is_stopping) == (False, False)
    assert {finding.rule for finding in facts.findings} == {"start.port-in-use"}
    assert [finding.evidence[0].line for finding in facts.findings] == [5]


@pytest.mark.parametrize(
    ("before_s", "lines_s", "listed_s", "is_awaited"),
    [
        pytest.param(100.0, (101.0, 160.0), 170.0, True, id="started again"),
        pytest.param(None, (100.1, 102.0), 100.0, False, id="listed as created while its run was read"),
        pytest.param(40.0, (60.0, 101.0), 100.0, False, id="listed with the start before while its run was read"),
        pytest.param(None, (), 100.0, True, id="created, nothing to read, then started"),
        pytest.param(100.0, (101.0,), 100.0, False, id="listed as before"),
    ],
)
def test_a_start_is_followed_that_is_of_a_later_run(
    before_s: float | None, lines_s: tuple[float, ...], listed_s: float, is_awaited: bool
) -> None:
    one = feed(0.0)
    one.begin(before_s)
    one.accept(tuple(LogLine(text="a line", wall_s=wall_s) for wall_s in lines_s))
    one.begin(listed_s)
    assert one.is_awaited is is_awaited


def real_lines(name: str) -> tuple[LogLine, ...]:
    """A capture: `docker logs -t` of a real engine, long lines cut, without routes and what changes nothing."""
    text = (Path(__file__).parents[2] / "cases" / "engine_logs" / name).read_bytes()
    return lines_from_chunk(SplitState(), text, stamped=True)[1]


def test_a_vllm_whose_core_is_killed_has_failed_although_it_shuts_down_and_exits_with_0() -> None:
    one = feed(0.0)
    lines = real_lines("vllm_0.32.0_core_killed.txt")
    died = next(number for number, line in enumerate(lines) if "[shutdown]" in line.text)
    one.begin(lines[0].wall_s)
    one.accept(lines[:died])
    assert (one.said.state, one.facts().failure, one.facts().findings) == (EngineState.SERVING, "", ())
    one.accept(lines[died:])
    facts = one.facts()
    assert (facts.has_served, bool(facts.failure)) == (True, True)
    box = container(status="exited", exit_code=0)
    assert failed(engine(state=EngineState.EXITED, container=box, log=facts))
