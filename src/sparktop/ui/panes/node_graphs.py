"""The graphs of one node: available memory, load, power and tokens, over one time, with its findings marked. Pure."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.dataclass import dataclass
from sparktop.documents.finding_tree import SIGNS
from sparktop.documents.node_figures import available_tone
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import Series
from sparktop.text.graph import SPANS_S, Mark, area, columns, joined, span_of, spark, time_axis
from sparktop.text.lines import Line
from sparktop.text.units import GIB

BESIDE_FROM_CELLS = 84
"""Width from which the graphs of load, power and tokens stand beside the memory's, where there are GRAPH_ROWS."""


GRAPH_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a node's graphs show: how far back, and the findings that began then."""

    span_s: float | None = None
    """One of graph.WINDOWS_S."""
    findings: tuple[Finding, ...] = ()
    wall_s: float = 0.0
    """The present on the findings' clock."""

    def marks(self) -> list[Mark]:
        """The findings that still hold, the worst last, so that it is on top."""
        firing = [found for found in self.findings if found.phase is Phase.FIRING and found.since_wall_s is not None]
        firing.sort(key=lambda found: found.severity.weight)
        return [(self.wall_s - (found.since_wall_s or 0.0), SIGNS[found.severity]) for found in firing]


USUAL = Window()
"""As much as there is, and no findings."""


class Graphs:
    """The graphs of one node's figures, all over the same time."""

    def __init__(self, view: NodeView, now_s: float, window: Window) -> None:
        self._view = view
        self._now_s = _series_now(view, now_s)
        self._window = window
        self._available = self._history(view.earlier.available, view.available_history)
        self._span_s = span_of(self._available, window.span_s)

    def _history(self, earlier: Series, recent: Series) -> Series:
        """The history as far back as the window may reach."""
        is_long = self._window.span_s is not None and self._window.span_s > SPANS_S[-1]
        return joined(earlier, recent) if is_long else recent

    def _moments(self, series: Series, cells: int) -> list[float | None]:
        return columns(series, now_s=self._now_s, count=cells * 2, span_s=self._span_s)

    def others(self) -> list[tuple[str, Series, float, str, str]]:
        """(label, history, highest value drawn, its text, tone) of load, power and tokens, where they are known."""
        view, earlier = self._view, self._view.earlier
        utilisation = self._history(earlier.utilisation, view.utilisation_history)
        power = self._history(earlier.power, view.power_history)
        tokens = self._history(earlier.tokens, view.token_history)
        rows = []
        if utilisation.values or power.values:
            power_w = _highest(power, 50.0)
            rows.append(("SM", utilisation, 100.0, "100 %", "graph"))
            rows.append(("power", power, power_w, f"{power_w:.0f} W", "graph-power"))
        if tokens.values and _highest(tokens, 0.0) > 0:
            most = _highest(tokens, 10.0)
            rows.append(("tok/s", tokens, most, f"{most:.0f}", "ok"))
        return rows

    def lines(self, width: int, rows: int, *, axis: bool, is_beside: bool) -> list[Line]:
        """The graph of available memory; `is_beside`: with the others at its right."""
        left = width * 6 // 11 if is_beside else width
        lines = self._memory(left, rows, axis=axis)
        if not is_beside:
            return lines
        right = self._stacked(width - left - 2, rows, axis=axis)
        return [line.fit(left) + Line.of("  ") + other for line, other in zip(lines, right, strict=True)]

    def _memory(self, width: int, rows: int, *, axis: bool) -> list[Line]:
        assert self._view.sample is not None
        total = float(self._view.sample.memory.total_bytes)
        labels = [""] * rows
        labels[0], labels[-1] = f"{total / GIB:.0f}", "0"
        margin = 4
        cells = max(4, width - margin)

        def tone(value: float) -> str:
            level = available_tone(value, total)
            return f"graph-{level}" if level else "graph"

        drawn = area(self._moments(self._available, cells), top=total, rows=rows, tone=tone)
        lines = [line + Line.of((label.rjust(margin), "faint")) for line, label in zip(drawn, labels, strict=True)]
        return [*lines, time_axis(cells, self._span_s, self._window.marks())] if axis else lines

    def _stacked(self, width: int, rows: int, *, axis: bool) -> list[Line]:
        """Load, power and tokens below one another, in so many rows together."""
        margin = 7
        cells = width - margin
        others = self.others()
        lines: list[Line] = []
        for index, (label, series, top, unit, tone) in enumerate(others):
            height = rows // len(others) + (index < rows % len(others))
            drawn = area(self._moments(series, cells), top=top, rows=height, tone=_always(tone), fill=tone)
            labels = [(label, "quiet"), (unit, "faint"), *[("", "")] * height]
            for line, (text, colour) in zip(drawn, labels, strict=False):
                lines.append(line.fit(cells) + Line.of((f"{text:>{margin}}", colour)))
        return [*lines, time_axis(cells, self._span_s, self._window.marks())] if axis else lines

    def sparks(self, width: int) -> list[Line]:
        """Load and power, one row each."""
        if width < 24:
            return []
        cells = max(4, width - 12)
        lines: list[Line] = []
        for label, series, top, unit, tone in self.others()[:2]:
            drawn = spark(self._moments(series, cells), top=top, tone=tone).fit(cells)
            lines.append(Line.of((f"{label:<6}", "quiet")) + drawn + Line.of((unit.rjust(6), "faint")))
        return lines


def _always(tone: str) -> Callable[[float], str]:
    return lambda _: tone


def _highest(series: Series, least: float) -> float:
    return max([least, *(value for value in series.values if value is not None)])


def _series_now(view: NodeView, now_s: float) -> float:
    """The present on the histories' clock: their newest point plus the age of the sample."""
    times = view.available_history.times
    return (times[-1] if times else 0.0) + (view.age_s(now_s) or 0.0)
