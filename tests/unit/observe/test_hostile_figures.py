"""Whatever a Spark sends as figures: its state, the rules, the documents and the JSON are made of it all the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.wire_messages import MESSAGES

from sparktop.clock import ManualClock
from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.diagnosis import RULE_FAILED, Diagnosis
from sparktop.diagnose.notices import notices
from sparktop.documents.snapshot import snapshot_lines
from sparktop.headless.status import as_data
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import Garbled
from sparktop.observe.node_state import NodeState
from sparktop.wire.decode import decode

FIGURE = (
    st.sampled_from([0, -1, 1, 2**63, 2**64, 10**400, 1e-320, 1e300, 1e11, -0.0, 5e-324, "9" * 400, "nan", None])
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def figures(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all numbers in a message."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in figures(inner, (*path, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in figures(inner, (*path, index))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


@st.composite
def hostile(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(list(MESSAGES.values())))))
    paths = figures(message)
    for path in draw(st.lists(st.sampled_from(paths), max_size=4)) if paths else ():
        inner: Any = message
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = draw(FIGURE)
    return message


@given(messages=st.lists(hostile(), min_size=1, max_size=8), pause_s=st.floats(0.0, 3.0))
def test_hostile_figures_make_a_picture(messages: list[dict[str, Any]], pause_s: float) -> None:
    clock = ManualClock()
    books = [NodeState(name, clock=clock, changed=lambda _: None) for name in ("spark1", "spark2")]
    diagnosis = Diagnosis(live_rules())
    for number, message in enumerate([MESSAGES["hello"], MESSAGES["sample"], *messages]):
        decoded = decode(json.dumps(message).encode())
        if decoded is not None:
            books[number % 2].message(decoded, clock.monotonic())
        clock.advance(pause_s)
        nodes = tuple(book.view() for book in books)
        fleet = FleetState(
            nodes=nodes, wall_s=clock.wall(), monotonic_s=clock.monotonic(), notices=notices(nodes), findings=()
        )
        fleet = FleetState(
            nodes=nodes, wall_s=fleet.wall_s, monotonic_s=fleet.monotonic_s, findings=diagnosis.update(fleet)
        )
        assert not [finding for finding in fleet.findings if finding.rule == RULE_FAILED.id], fleet.findings
        assert snapshot_lines(fleet, 100)
        json.dumps(as_data(fleet), allow_nan=False)


def test_an_available_memory_of_400_digits_is_told_as_garbled() -> None:
    sample = MESSAGES["sample"]
    line = json.dumps({**sample, "meminfo": {**sample["meminfo"], "MemAvailable": 10**399}}).encode()
    assert isinstance(decode(line), Garbled)
