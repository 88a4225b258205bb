"""An estimate says what is likely, from what was measured; where nothing was, the limit alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.table import over
from tests.ui.operating import restart

from sparktop.documents.plan import time_text
from sparktop.model.request import Request
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.plan.likely import as_before
from sparktop.operate.step.plan import Step

PLAN = restart(Request(action="safe-restart", nodes=("spark1",), target="vllm-minimax"))


def run(number: int, took_s: float, **more: Any) -> list[dict[str, Any]]:
    """The audit of a run of the same plan whose steps took so long each."""
    intent = {"kind": "intent", "run": f"r{number}", "action": "safe-restart", "target": "vllm-minimax", **more}
    steps = ({"kind": "step", "run": f"r{number}", "step": step.id, "node": step.node, "state": "done",
              "seconds": took_s} for step in PLAN.steps)  # fmt: skip
    return [intent, *steps]


def test_a_plan_that_was_run_before_is_likely_to_take_as_long_again() -> None:
    plan = as_before(PLAN, [*run(1, 100.0), *run(2, 15.0)])
    assert {step.likely_s for step in plan.steps} == {15.0}, "the newest run counts"
    assert time_text(PLAN.steps).startswith("at most ")
    assert time_text(plan.steps).startswith("about 2 min; gives up after ")


@over("more", [{"target": "another"}, {"action": "relaunch"}])
def test_another_run_tells_nothing(more: dict[str, Any]) -> None:
    assert as_before(PLAN, run(1, 15.0, **more)) == PLAN


@over("fields", [{"state": "failed"}, {"seconds": None}, {"seconds": float("nan")}, {"seconds": -1}, {"seconds": 1e9}])
def test_a_step_that_was_not_done_or_not_measured_tells_nothing(fields: dict[str, Any]) -> None:
    assert as_before(PLAN, [entry | fields for entry in run(1, 15.0)]) == PLAN


def test_what_is_only_known_in_part_takes_more() -> None:
    ready = replace(PLAN.steps[0], limit_s=3000.0, likely_s=120.0)
    assert time_text((ready, replace(ready, limit_s=15.0, likely_s=None))).startswith("about 2 min; ")
    slow: tuple[Step, ...] = (ready, replace(ready, limit_s=300.0, likely_s=None))
    assert time_text(slow) == "over 2 min; gives up after 55 min"


def test_loads_at_one_time_count_once() -> None:
    load = next(step for step in PLAN.steps if isinstance(step.act, AwaitReady))
    both = (replace(load, likely_s=120.0), replace(load, node="spark2", likely_s=130.0))
    assert time_text(both).startswith("about 2 min; ")
