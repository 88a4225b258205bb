"""All there is to say of one finding, kept up with the pictures while it is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from sparktop.model.finding import Finding, Phase
from sparktop.ui.panes.finding_lines import Told, details, place_of, plain
from sparktop.ui.screens.page import Page, PageScreen
from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.log_file import mask

Act = Callable[[Finding], None]


class FindingPage(Page):
    """One finding at length."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told

    def title(self) -> Line:
        return Line.of(("finding", "quiet"))

    def keys(self) -> tuple[str, ...]:
        place = ("l its log",) if place_of(self.told.finding) else ()
        marks = () if self.told.finding.phase is Phase.RESOLVED else ("a acknowledge", "z snooze")
        fix = ("f fix",) if self.told.finding.remedies else ()
        return (*place, *marks, "y copy", *fix)

    def content(self, width: int) -> tuple[Line, ...]:
        return tuple(details(self.told, width))


class FindingScreen(PageScreen):
    """The details of one finding; what is done to it is done by whoever opened it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,enter", "close", "Close", show=False),
        Binding("y,c", "copy", "Copy", show=False),
        Binding("a", "acknowledge", "Acknowledge", show=False),
        Binding("z", "snooze", "Snooze", show=False),
        Binding("l", "place", "Its log", show=False),
        Binding("f", "fix", "Fix", show=False),
    ]

    def __init__(self, told: Told, *, acknowledge: Act, snooze: Act, open_place: Act, fix: Act) -> None:
        self._finding_page = FindingPage(told)
        super().__init__(self._finding_page)
        self._acknowledge = acknowledge
        self._snooze = snooze
        self._open_place = open_place
        self._fix = fix

    @property
    def finding(self) -> Finding:
        """As last shown."""
        return self._finding_page.told.finding

    def show(self, told: Told) -> None:
        """The same finding as the newest picture has it."""
        self._finding_page.told = told
        self._finding_page.redraw()

    def action_acknowledge(self) -> None:
        self._acknowledge(self.finding)

    def action_snooze(self) -> None:
        self.dismiss(None)
        self._snooze(self.finding)

    def action_place(self) -> None:
        if place_of(self.finding) is not None:
            self.dismiss(None)
            self._open_place(self.finding)

    def action_fix(self) -> None:
        self.dismiss(None)
        self._fix(self.finding)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(mask(plain(self._finding_page.told)))
        self.notify("Copied the finding.", markup=False, timeout=3)
