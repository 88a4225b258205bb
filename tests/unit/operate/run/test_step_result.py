"""What a step that failed tells of what it left behind."""

from __future__ import annotations

from tests.table import over

from sparktop.model.operation import Command, Transfer
from sparktop.operate.acts.remote import Remote, step_result
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState
from sparktop.operate.step.plan import Step

STEP = Step(
    id="fetch",
    title="Download org/model",
    node="spark1",
    act=Remote(operations=(Transfer(command=Command(argv=("hf",)), grows="~/.cache/huggingface", key="k"),)),
)


@over(
    "brought, free, told",
    [
        (
            73_000_000,
            0,
            "73 MB downloaded by now stay in ~/.cache/huggingface on spark1. That disk is full: 0 bytes free. Free",
        ),
        (
            73_000_000,
            1 << 40,
            "73 MB downloaded by now stay in ~/.cache/huggingface on spark1. The next try goes on from there",
        ),
        (73_000_000, None, "on spark1. The next try goes on from there."),
        (None, None, "with code 1."),
    ],
)
def test_transfer_that_failed_says_what_stays_and_that_its_disk_is_full(
    brought: int | None, free: int | None, told: str
) -> None:
    result = OperationResult(index=0, ok=False, brought_bytes=brought, free_bytes=free)
    outcome = Outcome(state=OutcomeState.FAILED, results=(result,), problem="hf exited with code 1")
    detail = step_result(outcome, STEP.act, STEP.node).detail
    assert told in detail
    assert ("downloaded by now" in detail) == (brought is not None)
