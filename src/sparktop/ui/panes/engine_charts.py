"""The charts of one engine's figures over time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine, figures_of
from sparktop.model.telemetry import EngineMoment, Series
from sparktop.text.graph import columns, span_of
from sparktop.text.lines import Line, joined
from sparktop.text.units import count, latency, ratio, speed
from sparktop.ui.panes.node_graphs import Chart, charts, highest


@dataclass(frozen=True, slots=True)
class _Figure:
    """How one of `engine.figures_of` is charted."""

    label: str
    text: Callable[[float | None], str]
    least_top: float
    """The chart's top, unless a value is higher."""
    tone: str = "graph"


FIGURES = (
    _Figure("tok/s", speed, 10.0, "ok"),
    _Figure("prompt/s", speed, 100.0, "ok"),
    _Figure("running", count, 4.0),
    _Figure("waiting", count, 4.0, "graph-warning"),
    _Figure("KV cache", ratio, 1.0),
    _Figure("prefix", ratio, 1.0),
    _Figure("TTFT", latency, 1.0, "graph-power"),
    _Figure("ITL", latency, 0.05, "graph-power"),
)
COLUMN_CELLS = 36
"""Least cells of a column of charts; with room for two the latter half stands beside the first."""


def engine_charts(
    engine: Engine, history: Series, width: int, rows: int, *, age_s: float = 0.0, window_s: float | None = None
) -> list[Line]:
    """All figures of FIGURES as charts in at most `rows` lines, with one time axis each column; none without room."""
    beside = 2 if width >= 2 * COLUMN_CELLS else 1
    each = len(FIGURES) // beside
    height = (rows - 1) // each
    if height < 1 or not history.times:
        return []
    shown: list[Chart] = []
    for index, (figure, now) in enumerate(zip(FIGURES, figures_of(engine), strict=True)):
        values = tuple([value.figures[index] if isinstance(value, EngineMoment) else None for value in history.values])
        series = Series(times=history.times, values=values)
        shown.append((figure.label, figure.text(now), series, highest(series, figure.least_top), figure.tone))
    span_s, now_s = span_of(history, window_s), history.times[-1] + age_s
    cells = (width - 2 * (beside - 1)) // beside
    moments = partial(_moments, now_s=now_s, span_s=span_s)
    drawn = [
        charts(shown[start : start + each], cells, height * each, moments, axis_s=span_s)
        for start in range(0, len(shown), each)
    ]
    return [joined([line.fit(cells) for line in parts], "  ") for parts in zip(*drawn, strict=True)]


def _moments(series: Series, cells: int, *, now_s: float, span_s: float) -> list[float | None]:
    return columns(series, now_s=now_s, count=cells, span_s=span_s, takes_highest=True)
