"""The pane of one node: memory, graph, GPU, processes, host and link.

The lines are taken in order of importance while there is room; a large pane has all of them and a larger graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.message import Message

from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.documents.finding_tree import SIGNS as FINDING_SIGNS
from sparktop.documents.node_figures import (
    SIGNS,
    bandwidth_line,
    collectors,
    empty_line,
    gpu_line,
    gpu_processes,
    guard_line,
    headline_tone,
    host_line,
    memory_line,
    short_headline,
    story,
    system_line,
    trend_line,
    trouble,
)
from sparktop.model.finding import Finding
from sparktop.model.fleet import LinkState, NodeView
from sparktop.text.bars import by_part, large, legend, memory_bar
from sparktop.text.lines import BLANK, Line, fitting, framed, hanging
from sparktop.text.units import bare_gib, percent, watts
from sparktop.ui.commands import bindings
from sparktop.ui.panes.charts import BESIDE_FROM_CELLS, BESIDE_ROWS, USUAL, Graphs, Window
from sparktop.ui.widgets.line_widget import LineWidget
from sparktop.ui.widgets.log_file import copy

MAX_GRAPH_ROWS = 14
MIN_CHART_ROWS = 3
"""Rows of the memory's chart from which it has an axis and a legend, in place of the bar."""
MIN_CHART_CELLS = 18
TALL_FROM_CELLS = 40
FRAMED_TILE_ROWS = 7
"""Rows from which a tile has a frame; a smaller one has its upper edge alone."""
TALL_TILE_ROWS = 12


@dataclass(slots=True)
class Room:
    """Counts the lines that are still free in a pane."""

    left: int

    def take(self, lines: Sequence[Line]) -> list[Line]:
        """Take all of these lines if they fit, else none."""
        if len(lines) > self.left:
            return []
        self.left -= len(lines)
        return list(lines)

    def some(self, lines: Sequence[Line]) -> list[Line]:
        """Take as many of these lines as fit."""
        return self.take(lines[: max(0, self.left)])


def node_body(view: NodeView, *, width: int, height: int, now_s: float, window: Window = USUAL) -> list[Line]:
    """The content of a node pane: at most `height` lines of at most `width` cells."""
    room = Room(height)
    sample = view.sample
    alert = room.some(trouble(view, now_s, width)[: height if sample is None else max(1, height // 2)])
    if sample is None:
        history = room.some(story(view, width, max(0, room.left - 1)))
        return alert + ([BLANK] if history and room.left else []) + history
    live = view.link.state is LinkState.LIVE
    is_short = window.is_tile and height < FRAMED_TILE_ROWS - 2
    head = room.take([short_headline(view, width) if is_short else _headline(view, width)])
    gpu = room.take([gpu_line(view, width)] if window.is_tile and not is_short else [])
    worst = room.some(_worst(window.worst, width) if window.worst is not None else [])
    bar = room.take([BLANK] if view.ledger is not None and (room.left > 1 or not window.is_tile) else [])
    guard = room.take(guard_line(view, width))
    gpu = gpu or room.take([gpu_line(view, width)] if not window.is_tile else [])
    unwell = room.some(collectors(view, width, 2 if room.left > 8 else 1)[: max(1, room.left // 3)])
    past = room.some(story(view, width, 3 if not live and room.left > 4 else 0))
    memory = room.take([memory_line(sample, width)])
    rows = len(room.take([BLANK] if width >= MIN_CHART_CELLS else []))
    is_tall = bool(
        width >= TALL_FROM_CELLS and (height >= TALL_TILE_ROWS or not window.is_tile) and room.take([BLANK, BLANK])
    )
    if axis := bool(rows and room.take([BLANK] * MIN_CHART_ROWS)):
        rows = MIN_CHART_ROWS
    host = room.take([host_line(view, width)])
    rows += len(room.some([BLANK] * (BESIDE_ROWS - MIN_CHART_ROWS) if axis else []))
    holders = by_part(view.ledger) if axis and view.ledger is not None else []
    names = legend(holders, width, 2, has_colour=window.has_colour)
    names = names if room.take(names[1:]) else names[:1]
    bandwidth = room.take([line] if (line := bandwidth_line(view).cut(width)).runs else [])
    processes = room.some(gpu_processes(view, width, min(2, room.left))) if room.left > 1 else []
    system = room.take([system_line(view, width)]) if view.facts is not None else []
    if room.left > 4 and processes:
        longer = gpu_processes(view, width, min(6, len(processes) + room.left // 2))
        processes, room.left = longer, room.left - (len(longer) - len(processes))
    if live and room.left > 3:
        past = room.some(story(view, width, min(4, room.left - 3)) if len(view.link_history) > 1 else [])
    gaps = [BLANK] if room.left > 3 and room.take([BLANK, BLANK, BLANK]) else []
    rows += len(room.some([BLANK] * (MAX_GRAPH_ROWS - rows))) if axis else 0
    graphs = Graphs(view, now_s, window)
    others = graphs.others() if is_tall else []
    is_beside = bool(others) and width >= BESIDE_FROM_CELLS and rows >= BESIDE_ROWS
    if is_tall:
        head, has_charts = _tall_headline(view, graphs if others and not is_beside else None, width)
        gpu = [gpu_line(view, width, rest=is_beside or has_charts)]
    if bar and not axis and view.ledger is not None:
        bar = [memory_bar(view.ledger, width)[0]]
    left = width * 6 // 11 if is_beside else width
    chart = [*head, *graphs.memory(left, rows, axis=axis)] if rows else head
    if is_beside:
        right = graphs.charts(width - left - 2, len(head) + rows)
        chart[: len(right)] = [line.fit(left + 2) + other for line, other in zip(chart, right, strict=False)]
    figures = [
        *chart[: len(head)], *(gpu if window.is_tile else []), *worst, *guard, *([] if axis else bar),
        *chart[len(head) :], *names, *gaps, *memory, *([] if window.is_tile else gpu), *bandwidth, *gaps, *processes,
        *host, *system,
    ]  # fmt: skip
    return [*alert, *(figures if live else [line.faded() for line in figures]), *unwell, *past]


def _worst(finding: Finding, width: int) -> list[Line]:
    """The node's worst finding, whole, with its figures where they have room on the last line."""
    glyph, tone = FINDING_SIGNS[finding.severity]
    lines = hanging(Line.of((f"{glyph} ", tone)), finding.title, width, tone)
    figures = Line.of((f"  {finding.figures}" if finding.figures else "", "quiet"))
    return [*lines[:-1], lines[-1] + figures] if lines[-1].width + figures.width <= width else lines


def _headline(view: NodeView, width: int) -> Line:
    assert view.sample is not None
    figure, tone = bare_gib(view.sample.memory.available_bytes), headline_tone(view)
    full = Line.of(("available ", "quiet"), (f"{figure:>5} GiB", tone))
    # The figure is the last to go: first its words, then its unit.
    shorter = (full, Line.of((f"{figure} GiB", tone)), Line.of((figure, tone)))
    available = next((line for line in shorter if line.width <= width), shorter[-1].cut(width))
    return fitting([available, empty_line(view), trend_line(view)], width, "  ")


def _tall_headline(view: NodeView, graphs: Graphs | None, width: int) -> tuple[list[Line], bool]:
    """(three lines: memory in large digits, with the charts of load, power and tokens at the right where they have
    room; whether they have).
    """
    assert view.sample is not None
    memory = view.sample.memory
    tone = headline_tone(view)
    digits = large(f"{bare_gib(memory.available_bytes):<5}")
    unit = Line.of(("GiB available", "value" if tone == "strong" else tone))
    left = [
        Line.of((row, tone), "  ") + text
        for row, text in zip(digits, (unit, trend_line(view), empty_line(view)), strict=True)
    ]
    total = Line.of((f" of {bare_gib(memory.total_bytes)}", "quiet"))
    room = width - max(line.width for line in left) - 3
    if graphs is None or room < MIN_CHART_CELLS:
        left[0] += total
        return [line.cut(width, "") for line in left], False
    if room > 2 * MIN_CHART_CELLS + total.width:
        left[0] += total
        room = width - left[0].width - 3
    return [line.fit(width - room) + chart for line, chart in zip(left, graphs.charts(room, 3), strict=True)], True


class NodePane(LineWidget, can_focus=True):
    """Shows one node; on a narrow screen the frame's title names the others, and a click on one selects it."""

    BINDINGS = bindings("node")

    class OtherNodeWanted(Message):
        """Another node in the frame's title was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.node_name = name

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(classes="pane")
        self.node_name = name
        self._clock = clock
        self.view: NodeView | None = None
        self._others: tuple[NodeView, ...] = ()
        self._window = USUAL

    def show(self, view: NodeView, others: tuple[NodeView, ...] = (), window: Window = USUAL) -> None:
        """Show this state of the node; `others` are the nodes whose panes are hidden."""
        if view is self.view and others == self._others and window.span_s == self._window.span_s:
            return
        self.view, self._others, self._window = view, others, window
        self.redraw()

    def tick(self) -> None:
        """A second has passed: redraw ages and countdowns; a live node is redrawn by its next sample."""
        if self.view is not None and self.view.link.state is not LinkState.LIVE:
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        tone = "frame-focus" if self.has_focus else "frame"
        now_s = self._clock.monotonic()
        is_tile = self._window.is_tile
        has_sides = not is_tile or height >= FRAMED_TILE_ROWS
        body = (
            []
            if view is None
            else node_body(
                view,
                width=width - (4 if has_sides else 2),
                height=height - 1 - has_sides,
                now_s=now_s,
                window=self._window,
            )
        )
        right = Line() if is_tile else self._release()
        if self._others:
            right = Line(tuple(run for _, tab in self._tabs(width) for run in tab.runs))
        if is_tile and view is not None:
            right += Line.of(SIGNS[view.link.state])
        lines = framed(
            body, width=width, height=max(3, height), title=Line.of((self.node_name, "title")), right=right, tone=tone
        )
        return lines if has_sides else [lines[0], *(Line.of(" ") + line for line in body)]

    def _release(self) -> Line:
        view = self.view
        if view is None or view.facts is None:
            return Line()
        gpu = view.first_gpu
        driver = view.facts.driver_version or (gpu.driver_version if gpu else None)
        release = f"DGX OS {view.facts.dgx_release}" if view.facts.dgx_release else view.facts.os_name or ""
        return Line.of((" · ".join(text for text in (release, driver) if text), "quiet"))

    def _tabs(self, width: int) -> list[tuple[NodeView, Line]]:
        """The other nodes, each in a few words, shorter where there is little room, and how many have none."""
        room = width - 10 - cell_len(self.node_name)
        if self._window.is_tile:
            return [(self._others[0], Line.of((f"+{len(self._others)} more ", "info")))]
        lines = [Line.of(("│ ", "faint")) + _brief(view) + Line.of(" ") for view in self._others]
        if sum(line.width for line in lines) <= room:
            return list(zip(self._others, lines, strict=True))
        fitting = max(1, room // LEAST_TAB_CELLS)
        others = sorted(self._others, key=lambda view: view.link.state is LinkState.LIVE)
        rest = [] if len(others) <= fitting else others[fitting - 1 :]
        others = others[: len(others) - len(rest)]
        more = [(rest[0], Line.of(("│ ", "faint"), (f"+{len(rest)} more ", "info")))] if rest else []
        each = (room - sum(line.width for _, line in more)) // max(1, len(others))
        named = [Line.of(("│ ", "faint")) + _briefest(view, each - 3) + Line.of(" ") for view in others]
        return [*zip(others, named, strict=True), *more]

    def on_click(self, event: events.Click) -> None:
        """Select the node clicked in the frame's title, which ends three cells before the right corner."""
        if event.y or not self._others:
            return
        tabs = self._tabs(self.size.width)
        start = self.size.width - 3 - self._window.is_tile - sum(tab.width for _, tab in tabs)
        for view, tab in tabs:
            if start <= event.x < start + tab.width:
                self.post_message(self.OtherNodeWanted(view.name))
            start += tab.width

    async def action_open(self) -> None:
        """Give the node the whole screen, or take it back."""
        await self.run_action("screen.maximise")

    def action_copy(self) -> None:
        copy(self, self.text(), self.node_name)


LEAST_TAB_CELLS = 13
"""Of another node in the frame's title: its name and a figure."""


def _briefest(view: NodeView, width: int) -> Line:
    """Another node in so many cells; while it is live, its available memory is the last to go."""
    line = _brief(view, has_gpu=False)
    if line.width <= width or view.link.state is not LinkState.LIVE or view.sample is None:
        return line.cut(width)
    figure = Line.of((bare_gib(view.sample.memory.available_bytes), ""))
    room = width - figure.width - 1
    return Line.of(view.name).cut(room) + Line.of(" ") + figure if room > 0 else figure.cut(width)


def _brief(view: NodeView, *, has_gpu: bool = True) -> Line:
    """Another node in a few words: its link, and its figures while it is live."""
    glyph, tone = SIGNS[view.link.state]
    line = Line.of((view.name, ""), " ", (glyph, tone))
    if view.link.state is not LinkState.LIVE:
        return line + Line.of((f" {view.link.state}", tone))
    if view.sample is not None:
        line += Line.of((f" {bare_gib(view.sample.memory.available_bytes)} GiB", ""))
    gpu = view.first_gpu
    if gpu is not None and has_gpu:
        line += Line.of((f" {percent(gpu.utilisation_percent)} {watts(gpu.power_w)}", "quiet"))
    return line
