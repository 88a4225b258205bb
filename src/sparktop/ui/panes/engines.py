"""The engine pane: the inference servers of all nodes as a table, and the details of the selected one."""

from __future__ import annotations

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.reactive import var

from sparktop.documents.engine_table import (
    SORTS,
    EngineRow,
    columns,
    details,
    engine_rows,
    folded,
    row_line,
    searched_text,
    sorted_rows,
)
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.text.lines import BLANK, Line
from sparktop.text.table import heading
from sparktop.ui.commands import bindings
from sparktop.ui.console_layout import TILES_FROM
from sparktop.ui.panes.charts import engine_charts
from sparktop.ui.widgets.line_widget import CursorList, LineWidget, marked
from sparktop.ui.widgets.log_file import copy
from sparktop.ui.widgets.search import Query
from sparktop.ui.widgets.search_bar import Filtered

MAX_DETAIL_LINES = 12


class EnginePane(Filtered, CursorList[EngineRow], can_focus=True):
    """A table of engines with a cursor; below it the selected engine's details when they are open."""

    DEFAULT_CSS = "EnginePane > SearchBar { dock: bottom; }"
    BINDINGS = bindings("engines")
    head_rows = 1

    has_details: var[bool] = var(False, init=False)
    """Whether the selected engine's details are open."""
    is_alone: var[bool] = var(False, init=False)
    """Whether it has the whole screen: then the key / filters the engines, and the selected one has charts."""
    window_s: var[float | None] = var(None, init=False)
    """How far back the charts reach: one of graph.WINDOWS_S."""
    watch_has_details = watch_window_s = LineWidget.redraw

    def __init__(self) -> None:
        super().__init__(id="engines")
        self._fleet = FleetState()
        self._sorted_by: str | None = None
        self._folds = True

    def watch_is_alone(self) -> None:
        self.refill()

    def compose(self) -> ComposeResult:
        yield self.search_bar

    @property
    def wanted_lines(self) -> int:
        """Lines for heading and rows, without details."""
        return 1 + max(1, len(self._rows))

    def detail_lines(self, width: int) -> int:
        """Lines for the selected engine's details in a pane of this width."""
        return min(MAX_DETAIL_LINES, len(details(self.selected, width - 4))) if self.selected else 0

    def show(self, fleet: FleetState) -> None:
        """Show the engines of this fleet state; the cursor stays on its engine."""
        self._fleet = fleet
        self.refill()

    def refill(self) -> None:
        before = self.selected
        rows = engine_rows(self._fleet)
        if self._folds and not self.is_alone:
            rows = folded(rows, self._fleet)
        findings = self._fleet.findings if len(self._fleet.nodes) >= TILES_FROM else ()  # of many, the worst are seen
        self._rows = sorted_rows(self.matching(rows, searched_text), self._sorted_by, findings)
        self._at = self._index_of(before)
        self.redraw()

    def look_for(self, query: Query | None) -> None:
        super().look_for(query)
        self.post_message(self.Moved())  # perhaps to another engine

    def _index_of(self, before: EngineRow | None) -> int:
        if before is None or not self._rows:
            return 0
        rows = [(i, row.engine) for i, row in enumerate(self._rows) if row.node == before.node]
        same = [i for i, engine in rows if engine.key == before.engine.key]
        there = [i for i in same if not ((box := self._rows[i].engine.container) and box.is_gone)]
        heir = [i for i, engine in rows if engine.name == before.engine.name and is_alive(engine)]
        # a container made anew under its old name is followed
        return (there or heir or same or [min(self._at, len(self._rows) - 1)])[0]

    def find(self, node: str, name: str) -> bool:
        """Move the cursor to an engine by name; False where there is none."""
        index = next((i for i, row in enumerate(self._rows) if (row.node, row.engine.name) == (node, name)), None)
        if index is None and self._folds:  # perhaps one that has no row
            self._folds = False
            self.refill()
            return self.find(node, name)
        if index is not None:
            self.select(index)
        return index is not None

    def draw(self, width: int, height: int) -> list[Line]:
        inner, height = width - 2, height - self.search_bar.is_open
        if not self._rows:
            return [self._nothing(inner), *([BLANK] * (height - 1))]
        shown = columns(self._rows, inner, nodes=len(self._fleet.nodes))
        room = min(len(self._rows), max(1, height - 1 - (min(4, height // 2) if self.has_details else 0)))
        lines = [Line.of(" ") + heading(shown, hidden=len(self._rows) - room, by=self._sorted_by)]
        for index in self.window(room):
            line = row_line(self._rows[index], shown)
            lines.append(marked(line, width, is_at=index == self._at, has_focus=self.has_focus))
        if self.has_details and (row := self.selected):
            told = details(row, width - 4)
            if self.is_alone and (charts := self._charts(row, width - 4, height - len(lines) - len(told) - 2)):
                told = [BLANK, *charts, BLANK, *told]
            lines += [Line.of("   ") + line for line in told]
        return lines[:height]

    def _charts(self, row: EngineRow, width: int, rows: int) -> list[Line]:
        view = self._fleet.node(row.node)
        if view is None or (history := view.engine_histories.get(row.engine.key)) is None:
            return []
        age_s = view.age_s(self._fleet.monotonic_s) or 0.0
        return engine_charts(row.engine, history, width, rows, age_s=age_s, window_s=self.window_s)

    def _nothing(self, width: int) -> Line:
        blind = [view for view in self._fleet.nodes if view.sample is not None and not view.containers.available]
        if self.is_filtered:
            return Line.of((" no engine matches the filter: Esc ends it", "quiet"))
        text = " no inference server found: L launches one"
        if not self._fleet.nodes or all(view.sample is None for view in self._fleet.nodes):
            return Line.of((" engines: waiting for the nodes", "quiet"))
        if unread := [view.name for view in blind if not view.containers.is_asked]:
            return Line.of((f" engines: reading the containers of {' and '.join(unread)}…", "quiet")).cut(width)
        if looking := [v.name for v in self._fleet.nodes if v.sample is not None and not v.has_looked_for_engines]:
            return Line.of((f" engines: looking for those of {' and '.join(looking)}…", "quiet")).cut(width)
        if blind:
            reason = blind[0].containers.detail
            text += f"; containers of {', '.join(view.name for view in blind)} can't be read: {reason}"
        else:
            text += "; B checks a new machine first"
        return Line.of((text, "quiet")).cut(width)

    def action_sort(self) -> None:
        """Sort by the next of SORTS; after the last as the nodes have them."""
        orders = (None, *SORTS)
        self._sorted_by = orders[(orders.index(self._sorted_by) + 1) % len(orders)]
        self.show(self._fleet)

    def action_filter(self) -> None:
        if not self.is_alone:
            raise SkipAction
        super().action_filter()

    def action_copy(self) -> None:
        copy(self, self.text(), "the engines")
