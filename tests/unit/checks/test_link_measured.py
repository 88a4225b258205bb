"""Measurements of the fabric, judged: healthy, each look-alike by itself, and what can't be told."""

from __future__ import annotations

from typing import Any

from tests.table import over

from sparktop.checks.link import (
    BandwidthFacts,
    CollectiveFacts,
    LatencyFacts,
    judge_bandwidth,
    judge_collective,
    judge_latency,
)
from sparktop.model.state import State

PASSED, NOTE, WARNING, FAILED, UNKNOWN = State.PASSED, State.NOTE, State.WARNING, State.FAILED, State.UNKNOWN
WITNESSED = {"counted_percent": 101.4}


@over(
    "given, state, case",
    [
        ({"gbps": 111.86, **WITNESSED}, PASSED, ""),
        ({"gbps": 109.22}, PASSED, "unwitnessed"),
        ({"gbps": 95.0, **WITNESSED}, PASSED, ""),
        ({"gbps": 92.57, "mtu_bytes": 1024, **WITNESSED}, WARNING, "small-packets"),
        ({"gbps": 92.57, "mtu_bytes": 4096, **WITNESSED}, WARNING, "low"),
        ({"gbps": 50.0, **WITNESSED}, WARNING, "low"),
        ({"gbps": 49.9, **WITNESSED}, FAILED, "fault"),
        ({"gbps": 12.86, **WITNESSED}, FAILED, "fault"),
        ({"gbps": 111.86, "counted_percent": 0.1}, FAILED, "elsewhere"),
        ({"gbps": 196.05, "halves": 2, **WITNESSED}, PASSED, ""),
        ({"gbps": 189.85, "halves": 2, **WITNESSED}, PASSED, ""),
        ({"gbps": 111.86, "halves": 2, **WITNESSED}, WARNING, "low"),
        ({"gbps": 26.0, "halves": 2, **WITNESSED}, FAILED, "fault"),
        ({"gbps": None}, UNKNOWN, "unread"),
    ],
)
def test_a_bandwidth_is_judged_by_what_a_half_or_both_can(given: dict[str, Any], state: State, case: str) -> None:
    judgement = judge_bandwidth(BandwidthFacts(**given))
    assert (judgement.state, judgement.case) == (state, case)


def test_why_there_is_no_figure_is_passed_on() -> None:
    assert judge_bandwidth(BandwidthFacts(gbps=None, problem="no server")).unknown == "no server"
    assert judge_latency(LatencyFacts(typical_us=None, problem="no server")).unknown == "no server"


@over(
    "typical_us, size, state",
    [(1.42, 2, PASSED), (10.0, 2, PASSED), (10.1, 2, WARNING), (13.0, 65536, UNKNOWN), (None, 2, UNKNOWN)],
)
def test_a_latency_is_judged_where_the_message_is_small(typical_us: float | None, size: int, state: State) -> None:
    assert judge_latency(LatencyFacts(typical_us=typical_us, message_bytes=size)).state is state


MOVED = {"counted_percent": 102.0, "transport": "IB"}


@over(
    "given, state, case",
    [
        ({"gbps": 187.0, **MOVED}, PASSED, ""),
        ({"gbps": 180.0, "transport": "IB"}, PASSED, "unwitnessed"),
        ({"gbps": 187.0, "counted_percent": 101.0}, PASSED, "unwitnessed"),
        ({"gbps": 16.35, **MOVED, "transport": "Socket"}, FAILED, "socket"),
        ({"gbps": 187.0, **MOVED, "counted_percent": 0.0}, FAILED, "elsewhere"),
        ({"gbps": 24.2, **MOVED}, FAILED, "unseparated"),
        ({"gbps": 24.2, **MOVED, "rdma_gbps": 26.0}, FAILED, "cable"),
        ({"gbps": 24.2, **MOVED, "rdma_gbps": 196.0, "rtt_ms": 1.016}, FAILED, "churned"),
        ({"gbps": 24.0, **MOVED, "rdma_gbps": 196.0, "rtt_ms": 0.282}, FAILED, "gpu"),
        ({"gbps": 24.0, **MOVED, "rdma_gbps": 196.0, "rtt_ms": 0.95}, FAILED, "gpu"),
        ({"gbps": 150.0, **MOVED, "rdma_gbps": 196.0}, WARNING, "gpu"),
        ({"gbps": None}, UNKNOWN, "unread"),
    ],
)
def test_a_collective_is_judged_with_what_separates_its_causes(given: dict[str, Any], state: State, case: str) -> None:
    judgement = judge_collective(CollectiveFacts(**given))
    assert (judgement.state, judgement.case) == (state, case)
