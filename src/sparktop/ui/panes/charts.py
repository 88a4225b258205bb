"""The charts of a node (memory by holder, load, power, tokens; what began is marked) and of an engine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sparktop.dataclass import dataclass
from sparktop.documents.finding_tree import SIGNS
from sparktop.documents.node_figures import available_tone, gpu_age_s
from sparktop.model.engine import Engine, figures_of
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import Intervention, NodeView
from sparktop.model.guard import GuardPhase
from sparktop.model.telemetry import EngineMoment, Series
from sparktop.text.graph import SPANS_S, Mark, area, columns, span_of, stack, time_axis
from sparktop.text.graph import joined as joined_series
from sparktop.text.lines import Line, joined
from sparktop.text.units import GIB, NA, count, duration, latency, percent, ratio, speed, watts

Chart = tuple[str, str, Series, float, str]
"""Label, present figure, history, highest value drawn, tone."""
Moments = Callable[..., list[float | None]]
"""`graph.columns` of a window: so many moments (`count`) of a history."""
BESIDE_FROM_CELLS = 84
"""Width from which the charts of load, power and tokens stand beside the memory's, where there are BESIDE_ROWS."""

BESIDE_ROWS = 6
GAP_FROM_ROWS = 3
"""A chart of so many rows leaves the first one free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a node's charts show: how far back, and what began then."""

    span_s: float | None = None
    """One of graph.WINDOWS_S."""
    findings: tuple[Finding, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    wall_s: float = 0.0
    """The present on the findings' clock."""
    has_colour: bool = True
    is_tile: bool = False
    """One of several small panes, with its worst finding."""
    worst: Finding | None = None


USUAL = Window()
"""As much as there is, and nothing marked."""


def marks(view: NodeView, window: Window, age_s: float) -> list[Mark]:
    """The findings that still hold, worst first; the guard's kill, runs and starts of engines, with their words."""
    firing = [found for found in window.findings if found.phase is Phase.FIRING and found.since_wall_s is not None]
    firing.sort(key=lambda found: -found.severity.weight)
    shown: list[Mark] = [(window.wall_s - (found.since_wall_s or 0.0), SIGNS[found.severity], "") for found in firing]
    guard, sample = view.guard, view.sample
    if guard is not None and guard.since_wall_s is not None and guard.phase is GuardPhase.FIRED and sample is not None:
        shown.append((sample.wall_s + age_s - guard.since_wall_s, ("⊘", "critical"), "guard"))
    shown += [(window.wall_s - run.began_wall_s, ("◆", "info"), run.action) for run in window.interventions]
    starts = [engine.uptime_s for engine in view.engines if engine.uptime_s is not None]
    return [*shown, *((uptime_s + age_s, ("↑", "info"), "start") for uptime_s in starts)]


class Graphs:
    """The charts of one node's figures, all over the same time."""

    def __init__(self, view: NodeView, now_s: float, window: Window) -> None:
        self._view = view
        times = view.available_history.times
        self._age_s = view.age_s(now_s) or 0.0
        self._now_s = (times[-1] if times else 0.0) + self._age_s
        self._window = window
        self._available = self._history(view.earlier.available, view.available_history)
        self.span_s = span_of(self._available, window.span_s)
        self._moments = partial(columns, now_s=self._now_s, span_s=self.span_s)

    def _history(self, earlier: Series, recent: Series) -> Series:
        """The history as far back as the window may reach."""
        is_long = self._window.span_s is not None and self._window.span_s > SPANS_S[-1]
        return joined_series(earlier, recent) if is_long else recent

    def others(self) -> list[Chart]:
        """Load, power and tokens, where known."""
        view, earlier = self._view, self._view.earlier
        rows: list[Chart] = []
        if (gpu := view.first_gpu) is not None:
            utilisation = self._history(earlier.utilisation, view.utilisation_history)
            power = self._history(earlier.power, view.power_history)
            rows.append(("SM", percent(gpu.utilisation_percent), utilisation, 100.0, "graph"))
            rows.append(("power", watts(gpu.power_w), power, highest(power, 50.0), "graph-power"))
        rates = [engine.rates.generation_tokens_per_s for engine in view.engines if engine.rates is not None]
        tokens = self._history(earlier.tokens, view.token_history)
        if rates or tokens.values:
            known = [rate for rate in rates if rate is not None]
            figure = f"{sum(known):.0f}" if known else NA
            rows.append(("tok/s", figure, tokens, highest(tokens, 10.0), "ok"))
        return rows

    def memory(self, width: int, rows: int, *, axis: bool) -> list[Line]:
        """Who held the memory, stacked from below: engines, other processes, unaccounted, page cache; above is free."""
        assert self._view.sample is not None
        total = float(self._view.sample.memory.total_bytes)
        labels = [f"{total / GIB:.0f}", *[""] * (rows - 2), "0"] if rows > 1 else [duration(self.span_s)]
        margin = max(map(len, labels)) + 1
        cells = max(4, width - margin)

        def tone(available: float) -> str:
            level = available_tone(available, total)
            return f"graph-{level}" if level else ""

        moments = self._moments(self._available, count=cells)
        drawn = stack(moments, top=total, rows=rows, tone=tone, has_colour=self._window.has_colour)
        lines = [line + Line.of((label.rjust(margin), "faint")) for line, label in zip(drawn, labels, strict=True)]
        if not axis:
            return lines
        return [*lines, time_axis(cells, self.span_s, marks(self._view, self._window, self._age_s))]

    def charts(self, width: int, rows: int) -> list[Line]:
        """Load, power and tokens below one another, in so many rows together."""
        late = ("SM", "power") if gpu_age_s(self._view) else ()
        return charts(self.others(), width, rows, self._moments, late=late)


def charts(
    shown: Sequence[Chart],
    width: int,
    rows: int,
    moments: Moments,
    *,
    late: Sequence[str] = (),
    axis_s: float | None = None,
) -> list[Line]:
    """Charts below one another, in so many rows together.

    Args:
        late: the labels whose figures are outdated.
        axis_s: seconds of a time axis, for one more line below.
    """
    lines: list[Line] = []
    name_cells = max((len(chart[0]) for chart in shown), default=0)
    figure_cells = max((len(chart[1]) for chart in shown), default=6)
    cells = width
    for label, figure, series, top, tone in shown[:rows]:
        height = rows // min(rows, len(shown))
        head = [Line.of((f"{label:<{name_cells}}", "quiet"), (f" {figure:>{max(6, figure_cells)}}  ", "strong"))]
        if height > 1:
            both = max(name_cells, figure_cells, 6) + 2
            head = [Line.of((f"{label:<{both}}", "quiet")), Line.of((f"{figure:<{both}}", "strong"))]
        if label in late:
            head = [line.faded() for line in head]
        head += [Line.of(" " * head[0].width)] * (height - len(head))
        cells = max(1, width - head[0].width)
        gap = [Line()] if height >= GAP_FROM_ROWS else []  # else a full chart stands on the one below as its part
        drawn = [*gap, *area(moments(series, count=cells * 2), top=top, rows=height - len(gap), tone=tone)]
        lines += [left + line for left, line in zip(head, drawn, strict=True)]
    lines += [Line()] * (rows - len(lines))
    return lines if axis_s is None else [*lines, Line.of(" " * (width - cells)) + time_axis(cells, axis_s)]


def highest(series: Series, least: float) -> float:
    """The highest value, or `least` where that is higher."""
    return max([least, *(value for value in series.values if value is not None)])


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
    moments = partial(columns, now_s=now_s, span_s=span_s, takes_highest=True)
    drawn = [
        charts(shown[start : start + each], cells, height * each, moments, axis_s=span_s)
        for start in range(0, len(shown), each)
    ]
    return [joined([line.fit(cells) for line in parts], "  ") for parts in zip(*drawn, strict=True)]
