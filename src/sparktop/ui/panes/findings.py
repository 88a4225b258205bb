"""All findings as a tree with one selected, and below it what is to be said of that one."""

from __future__ import annotations

from textual import events
from textual.message import Message

from sparktop.clock import Clock
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState
from sparktop.ui.attention import SNOOZE_S, Attention, Standing
from sparktop.ui.commands import bindings
from sparktop.ui.panes.finding_lines import Told, plain, short
from sparktop.ui.panes.finding_rows import SIGNS, FindingRow, columns, cuts_brief, family, row_line, rows
from sparktop.ui.widgets.ink import PAGE_CELLS, Line, LineWidget, framed, wrapped
from sparktop.ui.widgets.log_file import mask

MIN_SHORT = 5
"""Lines worth giving to the selected finding's gist; with fewer the list has all."""


class FindingsPane(LineWidget, can_focus=True):
    """What is so now, each consequence under its cause, then what was resolved lately."""

    BINDINGS = bindings("findings")

    class DetailsWanted(Message):
        """The operator wants all of the selected finding."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    class PlaceWanted(Message):
        """The operator wants the log that the selected finding's evidence is from."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    class FixWanted(Message):
        """The operator wants to do something about the selected finding."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    class Changed(Message):
        """Something was acknowledged or put off, or that was taken back."""

    def __init__(self, clock: Clock, attention: Attention) -> None:
        super().__init__(id="findings")
        self._clock = clock
        self._attention = attention
        self._fleet = FleetState()
        self._rows: tuple[FindingRow, ...] = ()
        self._at = 0
        self._top = 0

    @property
    def selected(self) -> FindingRow | None:
        return self._rows[self._at] if self._rows else None

    def show(self, fleet: FleetState) -> None:
        """Show this picture's findings; the cursor stays on its finding."""
        self._fleet = fleet
        self.refill()

    def refill(self) -> None:
        """What is acknowledged or put off may have changed."""
        before = self.selected
        self._rows = rows(self._fleet.findings, self._attention.standing)
        same = [index for index, row in enumerate(self._rows) if before is not None and row.key == before.key]
        self._at = same[0] if same else max(0, min(self._at, len(self._rows) - 1))
        if self.display:
            self.redraw()

    def tick(self) -> None:
        """A second has passed: how long it has been so."""
        if self.display:
            self.refill()  # a snooze may have ended

    def select_first(self) -> None:
        self.select(0)

    def select(self, index: int) -> None:
        """Put the cursor on a row, as far as there is one."""
        self._at = max(0, min(len(self._rows) - 1, index))
        self.redraw()

    def told(self, finding: Finding) -> Told:
        """The finding with what is needed to tell all of it."""
        return Told(
            finding=finding,
            findings=self._fleet.findings,
            standing=self._attention.standing(finding),
            snoozed_until_s=self._attention.snoozed_until_s(finding),
            now_wall_s=self._clock.wall(),
        )

    def draw(self, width: int, height: int) -> list[Line]:
        inner, room = width - 4, height - 2
        tone = "frame-focus" if self.has_focus else "frame"
        title = Line.of(("findings", "quiet")) + self._summary()
        if not self._rows:
            body = wrapped(self._nothing(), inner, "quiet")
            return framed(body, width=width, height=height, title=title, right=self._hidden(), tone=tone)
        names = [view.name for view in self._fleet.nodes]
        below = min(room - len(self._rows) - 1, room * 3 // 5)
        listed = room - below - 1 if below >= MIN_SHORT else room
        listed = min(listed, len(self._rows)) if below >= MIN_SHORT else listed
        now_s = self._clock.wall()
        to = columns(self._rows, inner - 2, names, now_s)
        self._top = max(0, min(self._top, self._at, len(self._rows) - listed))
        self._top = max(self._top, self._at - listed + 1)
        body = []
        for index in range(self._top, min(len(self._rows), self._top + listed)):
            line = row_line(self._rows[index], to, names, now_s)
            body.append(self._cursor(line, inner) if index == self._at else Line.of("  ") + line)
        row = self.selected
        if listed < room and row is not None:
            body.append(Line.of(("─" * inner, "faint")))
            cells = min(inner - 2, PAGE_CELLS)
            is_cut = cuts_brief(row, to, names)
            gist = short(self.told(row.finding), cells, room - listed - 1, with_brief=is_cut)
            body += [Line.of("  ") + line for line in gist]
        return framed(body, width=width, height=height, title=title, right=self._hidden(), tone=tone)

    def _cursor(self, line: Line, width: int) -> Line:
        mark = Line.of(("▌", "frame-focus" if self.has_focus else "frame"))
        rest = (Line.of(" ") + line).fit(width - 1)
        return mark + (rest.on("cursor") if self.has_focus else rest)

    def _summary(self) -> Line:
        """ "2 critical, 1 warning", of what is so now."""
        line = Line()
        for severity in (Severity.CRITICAL, Severity.WARNING, Severity.INFO):
            count = sum(row.finding.severity is severity and row.standing is Standing.OPEN for row in self._rows)
            if count:
                word = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "note"}[severity]
                plural = "s" if count > 1 and severity is not Severity.CRITICAL else ""
                line += Line.of("  ", (f"{count} {word}{plural}", SIGNS[severity][1]))
        return line or Line()

    def _hidden(self) -> Line:
        snoozed = [one for one in self._fleet.findings if self._attention.standing(one) is Standing.SNOOZED]
        return Line.of((f"{len(snoozed)} snoozed", "quiet")) if snoozed else Line()

    def _nothing(self) -> str:
        count = self._fleet.rules_watching
        return f"Nothing is wrong that {count} rules could see." if count else "Nothing is wrong that can be seen."

    def on_click(self, event: events.Click) -> None:
        index = self._top + event.y - 1
        if event.y >= 1 and index < len(self._rows):
            self.select(index)
            if event.chain == 2:
                self.action_details()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.select(self._at - 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.select(self._at + 1)

    # Commands of the scope "findings"

    def action_down(self) -> None:
        self.select(self._at + 1)

    def action_up(self) -> None:
        self.select(self._at - 1)

    def action_page_down(self) -> None:
        self.select(self._at + max(1, self.size.height // 2))

    def action_page_up(self) -> None:
        self.select(self._at - max(1, self.size.height // 2))

    def action_first(self) -> None:
        self.select(0)

    def action_last(self) -> None:
        self.select(len(self._rows) - 1)

    def action_details(self) -> None:
        if (row := self.selected) is not None:
            self.post_message(self.DetailsWanted(row.finding))

    def action_open(self) -> None:
        self.action_details()

    def action_fix(self) -> None:
        if (row := self.selected) is not None:
            self.post_message(self.FixWanted(row.finding))

    def action_logs(self) -> None:
        if (row := self.selected) is not None:
            self.post_message(self.PlaceWanted(row.finding))

    def action_copy(self) -> None:
        if (row := self.selected) is not None:
            self.app.copy_to_clipboard(mask(plain(self.told(row.finding))))
            self.app.notify("Copied the finding.", markup=False, timeout=3)

    def action_acknowledge(self) -> None:
        if (row := self.selected) is not None:
            self.acknowledge(row.finding)

    def action_snooze(self) -> None:
        if (row := self.selected) is not None:
            self.snooze(row.finding)

    def acknowledge(self, finding: Finding) -> None:
        """Known, with all that follows from it; or no longer."""
        if finding.phase is Phase.RESOLVED:
            return
        on = self._attention.standing(finding) is not Standing.ACKNOWLEDGED
        self._tell(self._attention.acknowledge(family(finding, self._fleet.findings), on=on), "")

    def snooze(self, finding: Finding) -> None:
        """Out of sight for an hour, with all that follows from it; or back."""
        if finding.phase is Phase.RESOLVED:
            return
        on = self._attention.standing(finding) is not Standing.SNOOZED
        problem = self._attention.snooze(family(finding, self._fleet.findings), seconds=SNOOZE_S if on else 0.0)
        self._tell(problem, f"hidden for an hour: {finding.title}" if on else "")

    def action_wake(self) -> None:
        """Show all snoozed ones again."""
        snoozed = [one for one in self._fleet.findings if self._attention.standing(one) is Standing.SNOOZED]
        self._tell(self._attention.snooze(snoozed, seconds=0.0), "" if snoozed else "nothing is snoozed")

    def _tell(self, problem: str, done: str) -> None:
        self.refill()
        self.post_message(self.Changed())
        if problem or done:
            self.app.notify(problem or done, severity="warning" if problem else "information", markup=False, timeout=4)
