"""How long an engine is given to end: by the operator's word, else by whether memory leaves the time."""

from __future__ import annotations

import pytest

from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.container.lifecycle import GRACE_S
from sparktop.operate.plan.stop_steps import URGENT_GRACE_S, grace_of, is_urgent

FALLING = Finding(rule="memory.falling", severity=Severity.CRITICAL, title="Memory is falling")
OTHER = Finding(rule="gpu.spin-deadlock", severity=Severity.CRITICAL, title="It spins")


def request(finding: Finding | None, **options: str) -> Request:
    return Request(action="relaunch", nodes=("spark1",), target="vllm", finding=finding, options=options)


def test_memory_that_runs_out_leaves_no_minute() -> None:
    assert is_urgent(request(FALLING), (), FleetState())
    assert grace_of(request(FALLING), (), FleetState()) == URGENT_GRACE_S
    assert grace_of(request(OTHER), (), FleetState()) == grace_of(request(None), (), FleetState()) == GRACE_S


def test_the_operators_word_wins() -> None:
    assert grace_of(request(FALLING, grace_s="30"), (), FleetState()) == 30.0
    with pytest.raises(ValueError, match="the grace must be between"):
        grace_of(request(FALLING, grace_s="soon"), (), FleetState())
