"""Edit the change of a relaunch as lines of text, prefilled by a remedy or empty; checked as it is typed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Button, TextArea

from sparktop.cmdline.change_lines import Problem, lines_of, read
from sparktop.documents.step_text import masked
from sparktop.model.change import Change
from sparktop.text.lines import BLANK, Line, wrapped
from sparktop.ui.dialogs.dialog import Dialog, button
from sparktop.ui.widgets.line_widget import Sheet

FORMS = (
    ("--flag=value", "sets a flag; --flag alone a switch"),
    ("NAME=value", "sets a variable; NAME alone takes its value from your environment (never shown)"),
    ("unset NAME", "removes a flag or a variable"),
    ("option Name=value", "a container option: IpcMode=host, --device=/dev/infiniband"),
    ("image NAME", "another image"),
    ("@NODE …", "any of these for one node alone"),
)


COMMAND_LINES = 4


class ChangeScreen(Dialog[Change | None]):
    """Edit a relaunch's change; answers the new one, None when cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "take", show=False, priority=True)]
    AUTO_FOCUS = "TextArea"

    def __init__(self, title: str, change: Change, *, intro: Sequence[str] = (), running_command: str = "") -> None:
        """`intro`: the remedy's steps; `running_command`: the engine's command line; both are above the editor."""
        super().__init__(title)
        self._intro = intro
        self._now = running_command
        self._area = TextArea("\n".join(lines_of(change)), compact=True, show_line_numbers=False, tab_behavior="focus")
        self._status = Sheet(self._summary, classes="closing")

    def on_mount(self) -> None:
        self._check_input()
        self._area.move_cursor(self._area.document.end)  # what is typed is added to what the remedy gives
        if self._area.text:  # what a remedy gives need not be typed: Enter goes on
            self.query_one("#review", Button).focus()

    def state_keys(self) -> Sequence[str]:
        goes_on = ("Ctrl+S review", "Tab answers") if self._area.has_focus else ("Shift+Tab edit",)
        return (*goes_on, "Esc cancel")

    def content(self, width: int) -> list[Line]:
        lines = [Line.of(("› ", "faint")) + line for text in self._intro for line in wrapped(text, width - 2)]
        lines += [BLANK] if lines else []
        if self._now:
            lines += [Line.of(("Current command", "title"))]
            lines += [*wrapped(masked(self._now), width, "", COMMAND_LINES), BLANK]
        widest = max(len(form) for form, _ in FORMS)
        lines += [Line.of((f"{form:<{widest}}  ", "key"), (meaning, "quiet")).cut(width) for form, meaning in FORMS]
        return lines

    def below(self) -> list[Widget]:
        return [self._status, self._area]

    def answers(self) -> list[Button]:
        return [button("Review"), button("Cancel")]

    def _typed(self) -> tuple[Change, tuple[Problem, ...]]:
        return read(self._area.text.splitlines(), os.environ)

    def _summary(self, width: int) -> list[Line]:
        """The first problem in the typed text, else a summary of the change, on one line."""
        change, problems = self._typed()
        if problems:
            return [Line.of((f"▲ line {problems[0].line}: {problems[0].text}", "warning")).cut(width)]
        if change.is_empty:
            return [Line.of(("no change yet", "quiet"))]
        counts = (
            (len(change.flags), "flag"),
            (len(change.environment), "variable"),
            (len(change.options), "option"),
            (int(change.image is not None), "image"),
            (sum(len(lines_of(node_change)) for node_change in change.by_node.values()), "line for one node"),
        )
        summary = ", ".join(
            f"{count} {word.replace(' ', 's ', 1) if ' ' in word else word + 's'}" if count > 1 else f"1 {word}"
            for count, word in counts
            if count
        )
        return [Line.of(("✓ ", "ok"), (f"changes {summary}", "quiet")).cut(width)]

    @on(TextArea.Changed)
    def _check_input(self) -> None:
        change, problems = self._typed()
        self.query_one("#review", Button).disabled = bool(problems) or change.is_empty
        self._status.redraw()
        self.call_after_refresh(self.renew)  # the editor may have grown: the lines above it make room for the buttons

    @on(Button.Pressed, "#review")
    def action_take(self) -> None:
        change, problems = self._typed()
        if not problems and not change.is_empty:
            self.dismiss(change)
