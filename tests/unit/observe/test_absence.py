"""A node that was away while the console watched; not one that the console itself left alone."""

from __future__ import annotations

import json
from typing import Any

from tests.table import over
from tests.wire_messages import MESSAGES

from sparktop.clock import ManualClock
from sparktop.model.fleet import Absence, LinkState, Reach
from sparktop.model.telemetry import Hello, Sample
from sparktop.observe.node_state import NodeState
from sparktop.wire.decode import decode


def message(kind: str, **changes: Any) -> Any:
    return decode(json.dumps({**MESSAGES[kind], **changes}).encode())


def after(missed_s: float, heard_s: float, boot_s: float, *, boot: str = "") -> Absence | None:
    """A sample; the silence is noticed `missed_s` later, and after `heard_s` in all there is another, by the node's own
    clock `boot_s` after the first."""
    clock = ManualClock()
    state = NodeState("spark1", clock=clock, changed=lambda _: None)
    hello = message("hello")
    first = message("sample")
    assert isinstance(first, Sample)
    assert isinstance(hello, Hello)
    state.message(hello, clock.monotonic())
    state.message(first, clock.monotonic())
    clock.advance(missed_s)
    state.link(LinkState.STALE, "samples stopped")
    state.link(LinkState.LOST, "no answer", reach=Reach.SSH_SILENT)
    clock.advance(heard_s - missed_s)
    if boot:
        again = message("hello", facts={**MESSAGES["hello"]["facts"], "boot_id": boot})
        assert isinstance(again, Hello)
        state.message(again, clock.monotonic())
    second = message("sample", boot=first.boot_s + boot_s)
    assert isinstance(second, Sample)
    state.message(second, clock.monotonic())
    return state.view().absence


def test_a_silence_is_kept_with_what_the_host_showed() -> None:
    absence = after(5, 100, 100)
    assert absence is not None
    assert (absence.away_s, absence.reaches) == (100.0, (Reach.SSH_SILENT,))


@over(
    "what, missed_s, heard_s, boot_s",
    [
        ("it was short", 5, 20, 20),
        ("the laptop slept, and its clock with it", 5, 10, 7200),
        ("sparktop was stopped", 7190, 7200, 7200),
    ],
)
def test_no_absence_where(what: str, missed_s: float, heard_s: float, boot_s: float) -> None:
    assert after(missed_s, heard_s, boot_s) is None, what


def test_a_reboot_is_none() -> None:
    assert after(5, 100, 100, boot="another") is None
