"""A node's figures: what counts as an alarm."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import engine, node
from tests.table import over

from sparktop.documents.node_figures import collectors, empty_line, headline_tone
from sparktop.model.engine import EngineState
from sparktop.model.fleet import Trend
from sparktop.model.telemetry import Collector, CollectorState

FAR = [(-900.0, 45.0), (-5.0, 45.0), (-2.0, 26.0), (0.0, 14.0)]
LITTLE = [(-900.0, 16.0), (-5.0, 16.0), (-2.0, 15.0), (0.0, 14.0)]


@over(
    "state, up_s, falls, empty_in_s, words",
    [
        (EngineState.SERVING, 900.0, FAR, 7.0, "empty in 0:07"),
        (EngineState.SERVING, 900.0, FAR, 138.0, ""),
        (EngineState.SERVING, 900.0, LITTLE, 45.0, ""),
        (EngineState.LOADING, 30.0, FAR, 7.0, ""),
        (EngineState.UNKNOWN, 30.0, FAR, 7.0, ""),
        (EngineState.UNKNOWN, 7200.0, FAR, 7.0, "empty in 0:07"),
    ],
    ids=["far and fast", "slowly", "a little", "a load", "a worker that says nothing", "one that can't load any more"],
)
def test_memory_that_falls_is_an_alarm_where_the_findings_say_so(
    state: EngineState, up_s: float, falls: list[tuple[float, float]], empty_in_s: float, words: str
) -> None:
    trend = Trend(bytes_per_s=-2.4e9, time_to_empty_s=empty_in_s)
    view = node(available_gib=falls, engines=(replace(engine(), state=state, uptime_s=up_s),), trend=trend)
    assert empty_line(view).plain == words
    assert headline_tone(view) == ("critical" if words else "warning")


def test_it_is_sparktops_list_that_is_paused() -> None:
    paused = Collector(name="processes", state=CollectorState.PAUSED, detail="memory pressure is high")
    (line,) = collectors(replace(node(), collectors={"processes": paused}), 80)
    assert line.plain == "• process list paused: memory pressure is high"
