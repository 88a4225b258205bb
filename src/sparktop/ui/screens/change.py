"""The change of a relaunch, as lines to edit: what a remedy proposes, or an empty page; checked as it is typed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Button, TextArea

from sparktop.model.change import Change
from sparktop.operate.changelines import lines_of, read
from sparktop.operate.wording import masked
from sparktop.ui.screens.dialog import Dialog
from sparktop.ui.widgets.ink import BLANK, Line, LineWidget, wrapped

FORMS = (
    ("--flag=value", "sets a flag; --flag alone a switch"),
    ("NAME=value", "sets a variable; NAME alone takes its value from here, unseen"),
    ("unset NAME", "takes a flag or a variable away"),
    ("option Name=value", "a container option, as option IpcMode=host"),
    ("image NAME", "another image"),
    ("@NODE …", "any of these for one node alone"),
)


NOW_LINES = 4


class Standing(LineWidget):
    """What is wrong with what is typed, else what it amounts to: right above it, in sight at all times."""

    DEFAULT_CSS = "Standing { height: 1; margin-top: 1; }"

    def __init__(self, dialog: ChangeScreen) -> None:
        super().__init__()
        self._dialog = dialog

    def draw(self, width: int, height: int) -> list[Line]:
        return [self._dialog.state().cut(width)]


class ChangeScreen(Dialog[Change | None]):
    """Edits a change; the answer is the new one, None when it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "take", "Review", show=False, priority=True)]
    AUTO_FOCUS = "TextArea"

    def __init__(self, title: str, change: Change, *, intro: Sequence[str] = (), now: str = "") -> None:
        """`intro` are the remedy's own steps, `now` what it is started with: both to be read while editing."""
        super().__init__()
        self._heading = title
        self._change = change
        self._intro = intro
        self._now = now

    def on_mount(self) -> None:
        super().on_mount()
        self._edited()

    def heading(self) -> str:
        return self._heading

    def keys(self) -> str:
        return "Ctrl+S review   Tab answers   Esc cancel"

    def content(self, width: int) -> list[Line]:
        lines = [Line.of(("› ", "faint")) + line for text in self._intro for line in wrapped(text, width - 2)]
        lines += [BLANK] if lines else []
        if self._now:
            lines += [Line.of(("It is started with", "title"))]
            lines += [*wrapped(masked(self._now), width, "", NOW_LINES), BLANK]
        widest = max(len(form) for form, _ in FORMS)
        lines += [Line.of((f"{form:<{widest}}  ", "key"), (said, "quiet")).cut(width) for form, said in FORMS]
        return lines

    def below(self) -> list[Widget]:
        return [
            Standing(self),
            TextArea("\n".join(lines_of(self._change)), compact=True, show_line_numbers=False, tab_behavior="focus"),
        ]

    def answers(self) -> list[Button]:
        return [
            Button(Text("Cancel"), id="cancel", compact=True),
            Button(Text("Review"), id="review", compact=True, disabled=True),
        ]

    def _typed(self) -> str:
        fields = self.query(TextArea)
        return fields.first().text if fields else "\n".join(lines_of(self._change))

    def state(self) -> Line:
        """What is wrong with what is typed, else what it amounts to."""
        change, problems = read(self._typed().splitlines(), os.environ)
        if problems:
            return Line.of((f"▲ line {problems[0].line}: {problems[0].text}", "warning"))
        if change.is_empty:
            return Line.of(("nothing is changed yet", "quiet"))
        counts = (
            (len(change.flags), "flag"),
            (len(change.environment), "variable"),
            (len(change.options), "option"),
            (int(change.image is not None), "image"),
            (sum(len(lines_of(one)) for one in change.by_node.values()), "line for one node"),
        )
        told = ", ".join(
            f"{count} {word.replace(' ', 's ', 1) if ' ' in word else word + 's'}" if count > 1 else f"1 {word}"
            for count, word in counts
            if count
        )
        return Line.of(("✓ ", "ok"), (f"changes {told}", "quiet"))

    @on(TextArea.Changed)
    def _edited(self) -> None:
        change, problems = read(self._typed().splitlines(), os.environ)
        self.query_one("#review", Button).disabled = bool(problems) or change.is_empty
        self.query_one(Standing).redraw()
        self.call_after_refresh(self.renew)  # it may have grown: what stands above it makes room for the answers

    @on(Button.Pressed, "#review")
    def action_take(self) -> None:
        change, problems = read(self._typed().splitlines(), os.environ)
        if not problems and not change.is_empty:
            self.dismiss(change)

    @on(Button.Pressed, "#cancel")
    def action_close(self) -> None:
        self.dismiss(None)
