"""What the observing side makes of the probe's guard: kept in the picture, gone with its probe, told without a look."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import facts
from tests.table import over

from sparktop.clock import ManualClock
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import Hello, Message
from sparktop.observe.monitor import Monitor
from sparktop.observe.node_state import NodeState

ARMED = GuardState(phase=GuardPhase.ARMED, container_id="a" * 64, container_name="vllm", floor_bytes=4 << 30)
FIRED = replace(ARMED, phase=GuardPhase.FIRED, available_bytes=3 << 30)
HELLO = Hello(protocol=1, pid=7, probe_digest="0" * 8, facts=facts())


def after(*messages: Message) -> GuardState | None:
    book = NodeState("spark1", clock=ManualClock(), changed=lambda urgent: None)
    for message in messages:
        book.message(message, 1.0)
    return book.view().guard


@over(
    "messages, kept",
    [
        ((HELLO,), None),
        ((HELLO, ARMED), ARMED),
        ((ARMED, HELLO), None),  # another probe: it has none
        ((HELLO, ARMED, FIRED), FIRED),
        ((FIRED, HELLO), FIRED),  # what happened stays to be seen
        ((replace(FIRED, phase=GuardPhase.FAILED), HELLO), replace(FIRED, phase=GuardPhase.FAILED)),
        ((replace(ARMED, phase=GuardPhase.FAILED), HELLO), None),  # it was only out of Docker's sight
    ],
)
def test_a_guard_goes_with_its_probe_and_what_it_did_stays(
    messages: tuple[Message, ...], kept: GuardState | None
) -> None:
    assert after(*messages) == kept


def test_nobody_hears_without_a_probe() -> None:
    monitor = Monitor((), publish=lambda picture: None)
    assert monitor.tell("spark1", {"guard": {}}) is False
