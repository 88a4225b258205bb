"""Small dialogs: yes or no, one of several, some values. The harmless answer has the focus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from sparktop.operate.actions import Option
from sparktop.ui.screens.dialog import Dialog
from sparktop.ui.widgets.ink import BLANK, Line, wrapped


class ConfirmScreen(Dialog[bool]):
    """One question; `no` has the focus and is what Esc says."""

    AUTO_FOCUS = "#no"
    is_opaque = False

    def __init__(self, title: str, paragraphs: Sequence[str], *, yes: str, no: str) -> None:
        super().__init__(classes="small")
        self._heading = title
        self._paragraphs = paragraphs
        self._yes, self._no = yes, no

    def heading(self) -> str:
        return self._heading

    def keys(self) -> str:
        return f"Esc {self._no.lower()}"

    def content(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for text in self._paragraphs:
            lines += [*([BLANK] if lines else []), *wrapped(text, width)]
        return lines

    def answers(self) -> list[Button]:
        return [
            Button(Text(self._no), id="no", compact=True),
            Button(Text(self._yes), id="yes", compact=True),
        ]

    @on(Button.Pressed, "#yes")
    def _agree(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#no")
    def action_close(self) -> None:
        self.dismiss(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several."""

    label: Line
    value: Any = None
    """What choosing it answers; None: it can only be read."""
    aside: Line = BLANK
    """Beside it where all of them have room there; else below it while the cursor is there."""
    notes: tuple[Line, ...] = ()
    """Below it; each is wrapped."""
    heading: str = ""
    """Stands above it, where a group begins."""


class ChooseScreen(Dialog[Any]):
    """Arrows or a digit and Enter choose; the answer is the choice's value, None when nothing was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Choose", show=False),
        Binding("home,g", "move(-1000)", "First", show=False),
        Binding("end,G", "move(1000)", "Last", show=False),
        Binding("q", "close", "Close", show=False),
    ]
    AUTO_FOCUS = ""
    is_opaque = False

    def __init__(
        self, title: str, choices: Sequence[Choice], *, intro: Sequence[Line] = (), verb: str = "", at: int = 0
    ) -> None:
        """The cursor begins on the `at`-th of those that can be chosen."""
        super().__init__()
        self._heading = title
        self._choices = choices
        self._intro = intro
        self._verb = verb or "choose"
        self._open = [number for number, choice in enumerate(choices) if choice.value is not None]
        self._at = max(0, min(at, len(self._open) - 1))
        self._places: dict[int, int] = {}
        """Line -> index among those that can be chosen."""
        self.watched_line = 0

    def heading(self) -> str:
        return self._heading

    def keys(self) -> str:
        return f"Enter {self._verb}   Esc close" if self._open else "Esc close"

    def content(self, width: int) -> list[Line]:
        lines = [line for text in self._intro for line in (_folded(text, width) if text.runs else [BLANK])]
        lines += [BLANK] if lines else []
        self._places = {}
        told = [choice for choice in self._choices if choice.aside.runs]
        has_room = all(choice.label.width + choice.aside.width <= width - 4 for choice in told)
        for number, choice in enumerate(self._choices):
            if choice.heading:
                lines += [*([BLANK] if number else []), Line.of((choice.heading, "title"))]
            begin = len(lines)
            is_at = bool(self._open) and self._open[self._at] == number
            place = self._open.index(number) if number in self._open else None
            digit = f"{place + 1} " if place is not None and place < 9 else "  "
            mark = Line.of(("▌" if is_at else " ", "frame-focus"))
            head = Line.of((digit, "key" if place is not None else "quiet"))
            label, notes = choice.label, choice.notes
            if has_room:
                label += choice.aside
            elif choice.aside.runs and is_at:
                notes = (choice.aside, *notes)
            first, *rest = _folded(label, width - 4)
            rows = [head + first, *(Line.of("  ") + line for line in rest)]
            rows += [Line.of("    ") + line for note in notes for line in _folded(note, width - 6)]
            for row in rows:
                drawn = (Line.of(" ") + row).fit(width - 1)
                lines.append(mark + (drawn.on("cursor") if is_at else drawn))
            if place is not None:
                self._places |= dict.fromkeys(range(begin, len(lines)), place)
            if is_at:
                self.watched_line = begin
        return lines

    def action_scroll(self, lines: int) -> None:
        if self._open:
            self.action_move(lines)
        else:
            super().action_scroll(lines)

    def action_move(self, by: int) -> None:
        """The cursor down by so many, or up."""
        if self._open:
            self._at = max(0, min(len(self._open) - 1, self._at + by))
            self.renew()

    def clicked(self, line: int) -> None:
        if (place := self._places.get(line)) is not None:
            self._at = place
            self.action_choose()

    def action_choose(self) -> None:
        if self._open:
            self.dismiss(self._choices[self._open[self._at]].value)

    def on_key(self, event: events.Key) -> None:
        if event.key.isdigit() and 0 < int(event.key) <= len(self._open):
            event.stop()
            self._at = int(event.key) - 1
            self.action_choose()


def _folded(line: Line, width: int) -> list[Line]:
    """A line as it is where it fits, else its words on several in its last run's tone."""
    if line.width <= width or len(line.runs) == 0:
        return [line]
    if len(line.runs) == 1:
        return wrapped(line.plain, width, line.runs[0][1])
    (text, tone) = line.runs[-1]
    head = Line((*line.runs[:-1], (" " * (len(text) - len(text.lstrip(" "))), "")))
    tail = (text.lstrip(" "), tone)
    if head.width >= width - 12:
        return wrapped(line.plain, width, tail[1])
    first, *rest = wrapped(tail[0], width - head.width, tail[1])
    return [head + first, *(Line.of(" " * head.width) + more for more in rest)]


class OptionsScreen(Dialog[Mapping[str, str] | None]):
    """Values of an action's options, prefilled; the answer holds those that aren't the default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Up", show=False),
        Binding("down", "app.focus_next", "Down", show=False),
    ]
    AUTO_FOCUS = "Input"
    is_opaque = False

    def __init__(
        self, title: str, options: Sequence[Option], given: Mapping[str, str], *, intro: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._heading = title
        self._options = options
        self._given = given
        self._intro = intro
        self._problem = ""

    def heading(self) -> str:
        return self._heading

    def keys(self) -> str:
        return "Enter review   Esc cancel"

    def content(self, width: int) -> list[Line]:
        lines = [line for text in self._intro for line in wrapped(text, width)]
        return [*lines, *(wrapped(f"▲ {self._problem}", width, "warning") if self._problem else []), BLANK]

    def below(self) -> list[Widget]:
        rows: list[Widget] = []
        for option in self._options:
            said = option.description + (f" ({', '.join(option.choices)})" if option.choices else _unit(option))
            field = Input(
                self._given.get(option.name, option.default), name=option.name, compact=True, placeholder="automatic"
            )
            rows += [Label(Text(said), markup=False), field]
        return [Vertical(*rows, classes="fields")]

    def answers(self) -> list[Button]:
        return [
            Button(Text("Cancel"), id="cancel", compact=True),
            Button(Text("Review"), id="review", compact=True),
        ]

    @on(Button.Pressed, "#cancel")
    def action_close(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#review")
    @on(Input.Submitted)
    def _take(self) -> None:
        given = {}
        for option, field in zip(self._options, self.query(Input), strict=True):
            value = field.value.strip()
            if option.choices and value not in option.choices:
                self._problem = f"{option.description}: one of {', '.join(option.choices)}"
                field.focus()
                self.renew()
                return
            if value != option.default:
                given[option.name] = value
        self.dismiss(given)


_UNITS = {"gib": "GiB", "s": "seconds", "minutes": "minutes"}


def _unit(option: Option) -> str:
    """In what it is said, where its description doesn't tell."""
    unit = _UNITS.get(option.name.rpartition("_")[2], "")
    return f", {unit}" if unit and unit not in option.description else ""


class WaitScreen(Dialog[bool]):
    """Something is being asked for; True when it came, False when the operator would not wait."""

    AUTO_FOCUS = ""
    is_opaque = False

    def __init__(self, text: str, until: asyncio.Future[Any]) -> None:
        super().__init__(classes="small")
        self._text = text
        self._until = until

    def on_mount(self) -> None:
        super().on_mount()
        self._until.add_done_callback(lambda _: self._come())

    def on_screen_resume(self) -> None:
        self._come()

    def _come(self) -> None:
        if self._until.done() and self.is_active:
            self.dismiss(True)

    def heading(self) -> str:
        return "planning"

    def keys(self) -> str:
        return "Esc give up"

    def content(self, width: int) -> list[Line]:
        return wrapped(f"{self._text} …", width)

    def action_close(self) -> None:
        self.dismiss(False)
