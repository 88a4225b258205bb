"""The bring-up page: every check by chapter with the selected one's details beside or below it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparktop.clock import Clock
from sparktop.documents.bringup import as_markdown, commands, counts, detail_lines, measuring, merged
from sparktop.documents.prospect import SIGNS
from sparktop.errors import SparktopError
from sparktop.model.bringup import Changed, Chapter, CheckResult, Key
from sparktop.model.finding import Remedy
from sparktop.model.state import State
from sparktop.operate.actions import action
from sparktop.text.lines import CLIPBOARD_CELLS, Line, plain
from sparktop.ui.screens.list_and_detail import ListAndDetail
from sparktop.ui.widgets.line_widget import CursorList, Sheet
from sparktop.ui.widgets.log_file import save

CHAPTER_CELLS = 10
Looking = Callable[[Collection[str], bool], AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]]
"""Looks at the checks of these ids (empty: all), also at what is proven if True."""


class CheckTable(CursorList[CheckResult]):
    """The checks with a cursor; a chapter's name stands at its first row."""

    def __init__(self, titles: Mapping[str, str], hosts: Sequence[str]) -> None:
        super().__init__(id="bring-up-table")
        self._titles = titles
        self._hosts = hosts
        self._names_subjects = False
        """The rows are about several engines: each is named."""

    def show(self, rows: Sequence[CheckResult]) -> None:
        """Show these rows; the cursor stays on its own."""
        key = self.selected.key if self.selected is not None else None
        self._rows = rows
        self._names_subjects = len({row.subject for row in rows if row.subject}) > 1
        self._at = next((index for index, row in enumerate(rows) if row.key == key), min(self._at, len(rows) - 1))
        self._at = max(0, self._at)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        if not self._rows:
            return [Line.of((" looking …", "quiet"))]
        node_cells = max(len(self._names(row)) for row in self._rows) if len(self._hosts) > 1 else 0
        lines, before = [], None
        for index in self.window(max(1, height)):
            row = self._rows[index]
            line = self._line(row, width - 1, node_cells=min(node_cells, 22), is_first=row.chapter is not before)
            before = row.chapter
            is_at = index == self._at
            lines.append(Line.of(("▌", "frame-focus")) + line.on("cursor") if is_at else Line.of(" ") + line)
        return lines

    def _line(self, row: CheckResult, width: int, *, node_cells: int, is_first: bool) -> Line:
        glyph, tone = SIGNS[row.state]
        chapter = Line.of((row.chapter.value if is_first else "", "heading")).fit(CHAPTER_CELLS)
        node = Line.of((self._names(row), "quiet")).fit(node_cells) + Line.of(" ") if node_cells else Line()
        title = Line.of((f"{glyph} ", tone), (self._titles.get(row.check, row.check), "value"))
        found = (row.found, tone if row.is_problem else "quiet")
        return (chapter + Line.of(" ") + node + title + Line.of("  ", found)).fit(width)

    def _names(self, row: CheckResult) -> str:
        is_all = len(row.nodes) == len(self._hosts)
        nodes = ("both" if len(row.nodes) == 2 else "all") if is_all else " & ".join(row.nodes)
        return f"{nodes} {row.subject}" if row.subject and self._names_subjects else nodes


class BringUpScreen(ListAndDetail[tuple[Remedy, CheckResult] | None, CheckTable]):
    """Looks chapter by chapter; answers a remedy that the operator wants planned, and its row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Close", show=False),
        Binding("n", "next_problem", "The next problem", show=False),
        Binding("p", "hide", "Hide what passed", show=False),
        Binding("r", "again", "Look at this check again", show=False),
        Binding("R", "all_again", "Look at everything again", show=False),
        Binding("enter,f", "choose", "Fix", show=False),
        Binding("e", "export", "Export the page", show=False),
    ]

    def __init__(
        self,
        looking: Looking,
        *,
        titles: Mapping[str, str],
        hosts: Sequence[str],
        rows: Mapping[Key, CheckResult],
        stale: Collection[str],
        also_proven: bool = True,
        at: Key | None = None,
        moves_on: bool = False,
        hides_passed: bool = False,
        clock: Clock,
        changes: Callable[[], Awaitable[Sequence[Changed]]],
    ) -> None:
        """`rows`: what an earlier opening found; `stale`: ids of checks to look at again, all where there are no
        rows; `also_proven`: those of them too whose basis is the same; `at`: the row to begin at, or, if the page
        `moves_on`, to go on from to the next problem once it has looked."""
        super().__init__("bring-up", CheckTable(titles, hosts), Sheet(self._detail, id="bring-up-detail"))
        self._looking = looking
        self._order = {check: place for place, check in enumerate(titles)}
        self._hosts = hosts
        self.rows = dict(rows)
        self._stale = stale
        self._also_proven = also_proven
        self._clock = clock
        self._changes = changes
        self.hides_passed = hides_passed
        self._is_looking = False
        self._first_at = at
        self._has_moved = at is not None and not moves_on
        """The operator has moved the cursor: it doesn't go to the first problem by itself any more."""
        self._problem = ""

    def on_mount(self) -> None:
        self.app.clear_notifications()
        self._show_rows()
        keys = [row.key for row in self.table.rows]
        if self._first_at in keys:
            self.table.select(keys.index(self._first_at))
        self.lay_out()
        if not self.rows or self._stale:
            self._look(self._stale if self.rows else (), also_proven=bool(self.rows) and self._also_proven)

    def list_lines(self, room: int) -> int:
        return max(4, room * 3 // 5)

    # looking

    def _look(self, checks: Collection[str], *, also_proven: bool) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.run_worker(self._work(checks, also_proven=also_proven), name="bring-up", exit_on_error=False)

    async def _work(self, checks: Collection[str], *, also_proven: bool) -> None:
        self.renew()
        try:
            async for chapter, found in self._looking(checks, also_proven):
                self._take(chapter, found, checks)
                self._show_rows()
        except SparktopError as error:
            self._problem = error.message
        finally:
            self._is_looking = False
            self._show_rows()
            if not self._has_moved:
                self.action_next_problem()

    def _take(self, chapter: Chapter, found: Sequence[CheckResult], checks: Collection[str]) -> None:
        """Show the chapter's new rows in place of those of the same checks: an engine may be gone."""
        still = {
            key: row
            for key, row in self.rows.items()
            if row.chapter is not chapter or (checks and row.check not in checks)
        }
        self.rows = still | {row.key: row for row in found}

    def _show_rows(self) -> None:
        rows = sorted(
            self.rows.values(), key=lambda row: (self._order.get(row.check, 999), _place(row.nodes, self._hosts))
        )
        self.table.show([row for row in merged(rows) if not (self.hides_passed and row.state is State.PASSED)])
        self.renew()

    def write_frame(self, frame: Widget) -> None:
        state = "  looking …" if self._is_looking else f"  {self._problem}" if self._problem else ""
        frame.border_title = Text(f"bring-up  {' & '.join(self._hosts)}  {counts(self.rows.values())}{state}")
        row = self.table.selected
        remedy = next((one for one in row.remedies if one.action), None) if row is not None else None
        fix = _enter(row, self._together(row, remedy)) if row is not None and remedy is not None else ""
        hide = f"p {'show' if self.hides_passed else 'hide'} passed   " if self.app.size.width >= 100 else ""
        frame.border_subtitle = Text(f"{fix}n next problem   {hide}r again   e export   Esc close")

    def _detail(self, width: int) -> list[Line]:
        row = self.table.selected
        return detail_lines(row, width, now_wall_s=self._clock.wall()) if row is not None else []

    # keys

    def action_move(self, rows: int) -> None:
        self._has_moved = True
        super().action_move(rows)

    def action_next_problem(self) -> None:
        """Select the next row that failed or is worth a look, beginning again at the end; where there is none, the next
        that an action leads on from."""
        rows = self.table.rows
        at = next((index for index, row in enumerate(rows) if row is self.table.selected), 0)
        places = [index for index, row in enumerate(rows) if row.is_problem]
        places = places or [index for index, row in enumerate(rows) if any(one.action for one in row.remedies)]
        if places:
            self.table.select(next((place for place in places if place > at), places[0]))

    def action_hide(self) -> None:
        self.hides_passed = not self.hides_passed
        self._show_rows()

    def action_again(self) -> None:
        """Look at the selected check again; leave with the action that measures it, where a look is not enough."""
        if (row := self.table.selected) is None:
            return
        if row.is_kept and (remedy := measuring(row)) is not None:
            self.dismiss((remedy, row))
        else:
            self._look((row.check,), also_proven=True)

    def action_all_again(self) -> None:
        self._look((), also_proven=True)

    @on(CheckTable.Opened)
    def action_choose(self) -> None:
        """Leave with the first remedy that sparktop carries out, to plan and review it."""
        row = self.table.selected
        remedy = next((remedy for remedy in row.remedies if remedy.action), None) if row is not None else None
        if row is not None and remedy is not None:
            self.dismiss((remedy, replace(row, nodes=self._together(row, remedy))))
        elif row is not None and row.remedies:
            self.say("its remedy is done by hand: y copies the commands")

    def _together(self, row: CheckResult, remedy: Remedy) -> tuple[str, ...]:
        """The nodes on which one plan of this remedy fixes what the row tells: also those with the same problem."""
        chosen = action(remedy.action or "")
        if chosen is None or chosen.target != "nodes":
            return row.nodes
        nodes = {
            node
            for other in self.rows.values()
            if (other.check, other.subject, other.state) == (row.check, row.subject, row.state)
            and any((one.action, one.options) == (remedy.action, remedy.options) for one in other.remedies)
            for node in other.nodes
        }
        return tuple(sorted(nodes, key=lambda node: _place((node,), self._hosts)))

    def copied(self) -> tuple[str, str]:
        row = self.table.selected
        if row is not None and (lines := commands(row)):
            return "\n".join(lines), "the commands"
        return plain(self._detail(CLIPBOARD_CELLS)), "what it found"

    async def action_export(self) -> None:
        """Write the page to keep to a file on this machine."""
        rows = list(self.rows.values())
        now_wall_s = self._clock.wall()
        text = as_markdown(rows, hosts=self._hosts, now_wall_s=now_wall_s, changes=await self._changes())
        try:
            lines = ((line, None, None, None, False) for line in text.splitlines())
            path = save(lines, title="bring-up", wall_s=now_wall_s, suffix="md")
        except OSError as error:
            self.say(f"nothing was exported: {error.strerror or error}")
            return
        self.notify(f"Saved to {path}", title="Bring-up page exported", markup=False, timeout=10)


def _enter(row: CheckResult, nodes: Sequence[str]) -> str:
    """What Enter does on the row, where it does something on these nodes."""
    first = next(remedy.action for remedy in row.remedies if remedy.action)
    measure = measuring(row)
    verb = "measure" if measure is not None and first == measure.action else "fix"
    return f"Enter {verb}{f' on {len(nodes)} nodes' if len(nodes) > len(row.nodes) else ''} …   "


def _place(nodes: Sequence[str], hosts: Sequence[str]) -> tuple[int, ...]:
    return tuple(hosts.index(node) if node in hosts else len(hosts) for node in nodes)
