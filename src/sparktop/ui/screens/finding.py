"""The details of one finding, updated with each fleet state while they are open."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from sparktop.documents.finding import FindingView, details, evidence_log
from sparktop.model.finding import Finding, Phase
from sparktop.text.lines import Line
from sparktop.ui.dialogs.page import Page, PageScreen

Act = Callable[[Finding], None]


class FindingPage(Page):
    """All of one finding, as a page."""

    def __init__(self, finding_view: FindingView) -> None:
        super().__init__()
        self.finding_view = finding_view

    def title(self) -> Line:
        return Line.of(("finding", "quiet"))

    def keys(self) -> tuple[str, ...]:
        log_key = ("l its log",) if evidence_log(self.finding_view.finding) else ()
        attention_keys = () if self.finding_view.finding.phase is Phase.RESOLVED else ("a acknowledge", "z snooze")
        fix_key = ("f fix",) if self.finding_view.finding.remedies else ()
        return (*log_key, *attention_keys, *fix_key)

    def content(self, width: int) -> tuple[Line, ...]:
        return tuple(details(self.finding_view, width))


class FindingScreen(PageScreen):
    """Shows one finding's details; its keys call the functions given by the console."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,enter", "close", "Close", show=False),
        Binding("a", "acknowledge", "Acknowledge", show=False),
        Binding("z", "snooze", "Snooze", show=False),
        Binding("l", "place", "Its log", show=False),
        Binding("f", "fix", "Fix", show=False),
    ]

    def __init__(self, finding_view: FindingView, *, acknowledge: Act, snooze: Act, open_log: Act, fix: Act) -> None:
        self._finding_page = FindingPage(finding_view)
        super().__init__(self._finding_page)
        self._acknowledge = acknowledge
        self._snooze = snooze
        self._open_log = open_log
        self._fix = fix

    @property
    def finding(self) -> Finding:
        """The finding as last shown."""
        return self._finding_page.finding_view.finding

    def show(self, finding_view: FindingView) -> None:
        """Show the same finding as in the newest fleet state."""
        self._finding_page.finding_view = finding_view
        self._finding_page.redraw()

    def action_acknowledge(self) -> None:
        self._acknowledge(self.finding)

    def action_snooze(self) -> None:
        self.dismiss(None)
        self._snooze(self.finding)

    def action_place(self) -> None:
        if evidence_log(self.finding) is not None:
            self.dismiss(None)
            self._open_log(self.finding)

    def action_fix(self) -> None:
        self.dismiss(None)
        self._fix(self.finding)
