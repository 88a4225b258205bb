"""The findings pane: all findings as a tree with one selected, and a summary of that one below."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.message import Message

from sparktop.clock import Clock
from sparktop.documents.attention import SNOOZE_S, Attention
from sparktop.documents.finding import FindingView, details, short
from sparktop.documents.finding_tree import (
    SIGNS,
    AttentionState,
    FindingRow,
    Order,
    family,
    in_order,
    nodes_cells,
    row_line,
    rows,
    searched_text,
    with_own_stems,
)
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState
from sparktop.text.lines import CLIPBOARD_CELLS, PAGE_CELLS, Line, framed, plain, wrapped
from sparktop.ui.commands import bindings
from sparktop.ui.widgets.line_widget import CursorList, marked
from sparktop.ui.widgets.log_file import copy
from sparktop.ui.widgets.search_bar import Filtered

MIN_SHORT = 5
"""Least lines for the summary of the selected finding; with fewer the tree takes them all."""


class FindingsPane(Filtered, CursorList[FindingRow], can_focus=True):
    """The tree of current findings, consequences under their causes, then those resolved lately."""

    DEFAULT_CSS = "FindingsPane > SearchBar { dock: bottom; }"
    BINDINGS = bindings("findings")
    head_rows = 1

    class Changed(Message):
        """A finding was acknowledged or snoozed, or that was withdrawn."""

    def __init__(self, clock: Clock, attention: Attention) -> None:
        super().__init__(id="findings")
        self._clock = clock
        self._attention = attention
        self._fleet = FleetState()
        self.has_failed = False
        """Watching has ended for good."""
        self._order = Order.WORST

    def compose(self) -> ComposeResult:
        yield self.search_bar

    def key(self, row: FindingRow) -> object:
        return row.key

    def show(self, fleet: FleetState) -> None:
        """Show the findings of this fleet state; the cursor stays on its finding."""
        self._fleet = fleet
        self.refill()

    def refill(self) -> None:
        """Build the rows again, as acknowledgements or snoozes may have changed."""
        before = self.selected
        found = in_order(rows(self._fleet.findings, self._attention.standing), self._order)
        if self.is_filtered:
            found = with_own_stems(self.matching(found, searched_text))
        self._at, self._rows = self.index_in(found), found
        was_resolved = before is not None and before.standing is AttentionState.RESOLVED
        if found and not was_resolved and found[self._at].standing is AttentionState.RESOLVED:
            self._at = self._worst()
        if self.display:
            self.redraw()

    def select_worst(self) -> None:
        """Move the cursor to the worst open finding, as the list is opened."""
        self._at = self._worst()
        self.redraw()

    def _worst(self) -> int:
        """The worst open row, the first of those."""
        open_rows = [index for index, row in enumerate(self._rows) if row.standing is AttentionState.OPEN]
        return min(open_rows, key=lambda index: -self._rows[index].finding.severity.weight, default=0)

    def tick(self) -> None:
        """A second has passed: redraw durations."""
        if self.display:
            self.refill()  # a snooze may have ended

    def finding_view(self, finding: Finding) -> FindingView:
        """The finding with what is needed to show its details."""
        return FindingView(
            finding=finding,
            findings=self._fleet.findings,
            standing=self._attention.standing(finding),
            snoozed_until_s=self._attention.snoozed_until_s(finding),
            now_wall_s=self._clock.wall(),
        )

    def draw(self, width: int, height: int) -> list[Line]:
        height -= self.search_bar.is_open
        inner, room = width - 4, height - 2
        tone = "frame-focus" if self.has_focus else "frame"
        title = Line.of(("findings", "quiet")) + self._severity_counts()
        if not self._rows:
            body = wrapped(self._nothing(), inner, "quiet")
            return framed(body, width=width, height=height, title=title, right=self._right(), tone=tone)
        names = [view.name for view in self._fleet.nodes]
        summary_rows = min(room - len(self._rows) - 1, room * 3 // 5)
        list_rows = room - summary_rows - 1 if summary_rows >= MIN_SHORT else room
        list_rows = min(list_rows, len(self._rows)) if summary_rows >= MIN_SHORT else list_rows
        now_s = self._clock.wall()
        nodes = nodes_cells(self._rows, names)
        body = []
        for index in self.window(list_rows):
            line = Line.of(" ") + row_line(self._rows[index], inner - 2, names, now_s, nodes=nodes)
            body.append(marked(line, inner, is_at=index == self._at, has_focus=self.has_focus))
        row = self.selected
        if list_rows < room and row is not None:
            body.append(Line.of(("─" * inner, "faint")))
            cells = min(inner - 2, PAGE_CELLS)
            is_cut = row.finding.figures not in row_line(row, inner - 2, names, now_s, nodes=nodes).plain
            summary = short(self.finding_view(row.finding), cells, room - list_rows - 1, with_brief=is_cut)
            body += [Line.of("  ") + line for line in summary]
        return framed(body, width=width, height=height, title=title, right=self._right(), tone=tone)

    def _severity_counts(self) -> Line:
        """ "2 critical  1 warning", of the open findings."""
        line = Line()
        for severity in (Severity.CRITICAL, Severity.WARNING, Severity.INFO):
            count = sum(row.finding.severity is severity and row.standing is AttentionState.OPEN for row in self._rows)
            if count:
                word = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "note"}[severity]
                plural = "s" if count > 1 and severity is not Severity.CRITICAL else ""
                line += Line.of("  ", (f"{count} {word}{plural}", SIGNS[severity][1]))
        return line

    def _right(self) -> Line:
        """The order, where it isn't the first, and how many are snoozed."""
        snoozed = self._snoozed()
        texts = [self._order.value] if self._order is not Order.WORST else []
        texts += [f"{len(snoozed)} snoozed"] if snoozed else []
        return Line.of(("  ".join(texts), "quiet")) if texts else Line()

    def _snoozed(self) -> list[Finding]:
        standing = self._attention.standing
        return [finding for finding in self._fleet.findings if standing(finding) is AttentionState.SNOOZED]

    def _nothing(self) -> str:
        if self.is_filtered:
            return "No finding matches the filter: Esc ends it."
        if self.has_failed:
            return "Watching has stopped, and nothing is known of the nodes now: the first line says why."
        count = self._fleet.rules_watching
        if self._snoozed():
            return "Nothing else is wrong; snoozed findings are counted above."
        lost = " and ".join(view.name for view in self._fleet.nodes if view.link.state is LinkState.LOST)
        if lost:
            return f"No problem found, but {lost} can't be reached: the first line has why."
        return f"No problem found by {count} rules." if count else "No problem found."

    # Commands of the scope "findings"

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height // 2))

    def action_sort(self) -> None:
        """Sort by the next of the orders."""
        orders = list(Order)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.refill()

    def action_copy(self) -> None:
        if (row := self.selected) is not None:
            copy(self, plain(details(self.finding_view(row.finding), CLIPBOARD_CELLS)), "the finding")

    def action_acknowledge(self) -> None:
        if (row := self.selected) is not None:
            self.acknowledge(row.finding)

    def action_snooze(self) -> None:
        if (row := self.selected) is not None:
            self.snooze(row.finding)

    def acknowledge(self, finding: Finding) -> None:
        """Acknowledge the finding and its consequences, or withdraw that."""
        if finding.phase is Phase.RESOLVED:
            return
        is_on = self._attention.standing(finding) is not AttentionState.ACKNOWLEDGED
        self._report(self._attention.acknowledge(family(finding, self._fleet.findings), on=is_on), "")

    def snooze(self, finding: Finding) -> None:
        """Snooze the finding and its consequences for an hour, or show them again."""
        if finding.phase is Phase.RESOLVED:
            return
        is_on = self._attention.standing(finding) is not AttentionState.SNOOZED
        problem = self._attention.snooze(family(finding, self._fleet.findings), seconds=SNOOZE_S if is_on else 0.0)
        self._report(problem, f"hidden for an hour: {finding.title}" if is_on else "")

    def action_wake(self) -> None:
        """Show all snoozed findings again."""
        snoozed = self._snoozed()
        self._report(self._attention.snooze(snoozed, seconds=0.0), "" if snoozed else "nothing is snoozed")

    def _report(self, problem: str, confirmation: str) -> None:
        self.refill()
        self.post_message(self.Changed())
        if problem or confirmation:
            self.app.notify(
                problem or confirmation, severity="warning" if problem else "information", markup=False, timeout=4
            )
