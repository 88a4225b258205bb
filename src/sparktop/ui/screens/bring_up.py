"""What the key B does: every check by chapter, with the selected one's details beside or below it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from textual import on
from textual.screen import Screen

from sparktop.bringup.catalogue import CARDS
from sparktop.bringup.kept import ResultFile
from sparktop.bringup.looking import run_checks
from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.documents.bringup import commands, counts, detail_lines, measuring, merged, page_text
from sparktop.documents.prospect import SIGNS
from sparktop.errors import SparktopError
from sparktop.model.bringup import Chapter, CheckResult, Key
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.operate.actions import action
from sparktop.operate.run.operating import Operating
from sparktop.text.lines import Line
from sparktop.text.sentences import listed
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.page import ListAndDetail
from sparktop.ui.widgets.line_widget import CursorList, marked
from sparktop.ui.widgets.log_file import export

CHAPTER_CELLS = 10
TITLES = {card.id: card.title for card in CARDS}
ORDER = list(TITLES)


def searched_text(row: CheckResult) -> str:
    """What a filter of the checks looks at."""
    return " ".join((row.chapter, TITLES[row.check], *row.nodes, row.subject, row.state, row.found))


class CheckTable(CursorList[CheckResult]):
    """The checks with a cursor; a chapter's name stands at its first row."""

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__(id="bring-up-table")
        self._hosts = hosts
        self.nothing = "looking …"
        """What stands where there is no row."""
        self._names_subjects = False
        """The rows are about several engines: each is named."""

    def key(self, row: CheckResult) -> object:
        return row.key

    def show_rows(self, rows: Sequence[CheckResult]) -> None:
        self._names_subjects = len({row.subject for row in rows if row.subject}) > 1
        super().show_rows(rows)

    def draw(self, width: int, height: int) -> list[Line]:
        if not self._rows:
            return [Line.of((f" {self.nothing}", "quiet"))]
        node_cells = max(len(self._names(row)) for row in self._rows) if len(self._hosts) > 1 else 0
        lines, before = [], None
        for index in self.window(max(1, height)):
            row = self._rows[index]
            line = self._line(row, node_cells=min(node_cells, 22), is_first=row.chapter is not before)
            before = row.chapter
            lines.append(marked(line, width, is_at=index == self._at))
        return lines

    def _line(self, row: CheckResult, *, node_cells: int, is_first: bool) -> Line:
        glyph, tone = SIGNS[row.state]
        chapter = Line.of((row.chapter.value if is_first else "", "heading")).fit(CHAPTER_CELLS)
        node = Line.of((self._names(row), "quiet")).fit(node_cells) + Line.of(" ") if node_cells else Line()
        subject = f" {row.subject}" if row.subject and self._names_subjects else ""
        title = Line.of((f"{glyph} ", tone), (TITLES[row.check], "value"), (subject, "value"))
        found = (row.found, tone if row.is_problem else "quiet")
        return chapter + Line.of(" ") + node + title + Line.of("  ", found)

    def _names(self, row: CheckResult) -> str:
        is_all = len(row.nodes) == len(self._hosts)
        return ("both" if len(row.nodes) == 2 else "all") if is_all else listed(row.nodes)


@dataclass(slots=True, kw_only=True)
class BringUpFlow:
    """Opens the page, keeps its rows while the console runs, and what was proven in a file."""

    ask: Callable[[Screen[Any]], Awaitable[Any]]
    picture: Callable[[], FleetState]
    clock: Clock
    kept: Path | None
    """The file of what is proven; None: it is forgotten with the console."""
    rows: dict[Key, CheckResult] = field(default_factory=dict)
    at: Key | None = None
    """The row whose remedy was chosen last."""
    hides_passed: bool = False
    has_acted: bool = False
    """A remedy was planned since the page was open: it may change more rows than its own, so all are looked at again
    but those whose basis is the same."""

    async def choose(self, operating: Operating, *, moves_on: bool) -> Request | None:
        """The request that fixes what the operator chose; None: they left. The page opens at the row that was chosen
        last, or, if it `moves_on`, at the next problem after it."""
        answer = await self.ask(BringUpScreen(self, operating, moves_on=moves_on))
        self.has_acted = answer is not None
        if answer is None:
            self.at = None
            return None
        remedy, row = answer
        return Request(action=remedy.action, nodes=row.nodes, target=row.subject, options=dict(remedy.options))

    @property
    def stale(self) -> list[str]:
        """Ids of the checks to look at when the page opens again; none, for all, where there are no rows yet."""
        return [
            card.id
            for card in CARDS
            if self.rows and (self.has_acted or card.measured_by or card.chapter is Chapter.ENDPOINT)
        ]

    async def run_checks(
        self, operating: Operating, checks: Collection[str], *, also_proven: bool
    ) -> AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]:
        """Look at the checks of these ids (empty: all), also at what is proven where its basis is the same."""
        kept = ResultFile(self.kept) if self.kept is not None else None
        cards = [card for card in CARDS if not checks or card.id in checks]
        proven = kept.read() if kept is not None else {}
        async for chapter, rows in run_checks(
            cards, self.picture, operating.ask, kept=proven, now_wall_s=self.clock.wall, again=also_proven
        ):
            yield chapter, rows
            if kept is not None:
                kept.keep(rows)


class BringUpScreen(ListAndDetail[tuple[Remedy, CheckResult] | None, CheckTable]):
    """Looks chapter by chapter; answers a remedy that the operator wants planned, and its row."""

    BINDINGS = bound(next_problem="n", hide="p", again="r", all_again="R", choose="enter,f", export="e")

    def __init__(self, flow: BringUpFlow, operating: Operating, *, moves_on: bool) -> None:
        """It begins at the flow's row, or, if it `moves_on`, goes on from there to the next problem once it has
        looked."""
        self._hosts = [view.name for view in flow.picture().nodes]
        super().__init__("bring-up", CheckTable(self._hosts))
        self._flow = flow
        self._operating = operating
        self._is_looking = False
        self._has_moved = flow.at is not None and not moves_on
        """The operator has moved the cursor: it doesn't go to the first problem by itself any more."""
        self._problem = ""

    @property
    def rows(self) -> Mapping[Key, CheckResult]:
        """What was found so far."""
        return self._flow.rows

    def on_mount(self) -> None:
        self.refill()
        keys = [row.key for row in self.table.rows]
        if self._flow.at in keys:
            self.table.select(keys.index(self._flow.at))
        self.lay_out()
        self._look(self._flow.stale, also_proven=bool(self.rows) and not self._flow.has_acted)

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
            async for chapter, found in self._flow.run_checks(self._operating, checks, also_proven=also_proven):
                self._take(chapter, found, checks)
                self.refill()
        except SparktopError as error:
            self._problem = error.message
        finally:
            self._is_looking = False
            self.refill()
            if not self._has_moved:
                self.action_next_problem()

    def _take(self, chapter: Chapter, found: Sequence[CheckResult], checks: Collection[str]) -> None:
        """Show the chapter's new rows in place of those of the same checks: an engine may be gone."""
        still = {
            key: row
            for key, row in self.rows.items()
            if row.chapter is not chapter or (checks and row.check not in checks)
        }
        self._flow.rows = still | {row.key: row for row in found}

    def refill(self) -> None:
        rows = sorted(self.rows.values(), key=lambda row: (ORDER.index(row.check), _place(row.nodes, self._hosts)))
        hides_passed = self._flow.hides_passed
        shown = [row for row in merged(rows) if not (hides_passed and row.state is State.PASSED)]
        self.table.nothing = "no check matches the filter" if self.is_filtered else "looking …"
        self.table.show_rows(self.matching(shown, searched_text))
        self.renew()

    def heading(self) -> str:
        state = "  looking …" if self._is_looking else f"  {self._problem}" if self._problem else ""
        return f"bring-up  {listed(self._hosts)}  {counts(self.rows.values())}{state}"

    def keys(self) -> Sequence[str]:
        row = self.table.selected
        remedy = _carried_out(row)
        fix = (_enter(row, remedy, self._together(row, remedy)),) if row is not None and remedy is not None else ()
        hide = f"p {'show' if self._flow.hides_passed else 'hide'} passed"
        return ("/ filter", hide, "e export", "r again", "n next problem", *fix, "Esc close")

    def content(self, width: int) -> list[Line]:
        row = self.table.selected
        return detail_lines(row, width, now_wall_s=self._flow.clock.wall()) if row is not None else []

    # keys

    def action_scroll(self, lines: int) -> None:
        self._has_moved = True
        super().action_scroll(lines)

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
        self._flow.hides_passed = not self._flow.hides_passed
        self.refill()

    def action_again(self) -> None:
        """Look at the selected check again; leave with the action that measures it, where a look is not enough."""
        if (row := self.table.selected) is None:
            return
        if row.is_kept and (remedy := measuring(row)) is not None:
            self._leave(remedy, row)
        else:
            self._look((row.check,), also_proven=True)

    def action_all_again(self) -> None:
        self._look((), also_proven=True)

    @on(CheckTable.Opened)
    def action_choose(self) -> None:
        """Leave with the first remedy that sparktop carries out, to plan and review it."""
        row = self.table.selected
        remedy = _carried_out(row)
        if row is not None and remedy is not None:
            self._leave(remedy, replace(row, nodes=self._together(row, remedy)))
        elif row is not None and row.remedies:
            self.say("its remedy is done by hand: y copies the commands")

    def _leave(self, remedy: Remedy, row: CheckResult) -> None:
        self._flow.at = self.table.selected.key if self.table.selected is not None else None
        self.dismiss((remedy, row))

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
        return super().copied()[0], "what it found"

    async def action_export(self) -> None:
        """Write the page to keep to a file on this machine."""
        rows = list(self.rows.values())
        now_wall_s = self._flow.clock.wall()
        changes = await self._operating.changes(self._hosts)
        text = page_text(rows, is_html=False, hosts=self._hosts, now_wall_s=now_wall_s, changes=changes)
        lines = [(line, None) for line in text.splitlines()]
        await export(self, lines, "The page", title="bring-up", wall_s=now_wall_s, suffix="md")


def _carried_out(row: CheckResult | None) -> Remedy | None:
    """The first remedy that sparktop carries out."""
    return next((remedy for remedy in row.remedies if remedy.action), None) if row is not None else None


def _enter(row: CheckResult, remedy: Remedy, nodes: Sequence[str]) -> str:
    """What Enter does on the row: it does the remedy on these nodes."""
    measure = measuring(row)
    verb = "measure" if measure is not None and remedy.action == measure.action else "fix"
    return f"Enter {verb}{f' on {len(nodes)} nodes' if len(nodes) > len(row.nodes) else ''} …"


def _place(nodes: Sequence[str], hosts: Sequence[str]) -> tuple[int, ...]:
    return tuple(hosts.index(node) if node in hosts else len(hosts) for node in nodes)
