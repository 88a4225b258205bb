"""Modal dialogs: the base with scrolling lines and buttons; yes or no, one of several, details, options, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Label, TextArea

from sparktop.dataclass import dataclass
from sparktop.operate.actions import Option
from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, hanging, plain, spaced, wrapped
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.page import Answer, Body, CoveringScreen, FilteredScreen
from sparktop.ui.widgets.line_widget import BAR_CELLS, Sheet, marked

PLAIN_DIGITS = 9
"""So many choices have a number of one digit; of more, a filter is offered."""


def button(label: str, name: str = "") -> Button:
    """A dialog's button; its id is the name, else the label in lower case: cancel, close and no close the dialog."""
    return Button(Text(label), id=name or label.lower(), compact=True)


def folded(lines: Iterable[Line], width: int) -> list[Line]:
    """The lines that fit, and the others wrapped: the last run beside the ones before it, else below them."""
    return [row for line in lines for row in _folded(line, width)]


def _folded(line: Line, width: int) -> list[Line]:
    if line.width <= width:
        return [line]
    (text, tone) = line.runs[-1]
    head = Line((*line.runs[:-1], (" " * (len(text) - len(text.lstrip(" "))), "")))
    if head.width > width or len(line.runs) == 1:
        return wrapped(line.plain, width, tone)
    if head.width >= width - 12:
        return [Line(line.runs[:-1]), *wrapped(text.strip(" "), width, tone)]
    return hanging(head, text.lstrip(" "), width, tone)


class Dialog(CoveringScreen[Answer], ModalScreen[Answer]):
    """A modal dialog; subclasses give its lines, buttons and keys. Esc always closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bound(close="escape"),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]
    is_worth_copying = True
    """Whether there is more to copy than a question."""

    def __init__(self, title: str = "") -> None:
        super().__init__()
        self._heading = title
        self._is_cut = False
        """It has more lines than it can show."""

    def heading(self) -> str:
        return self._heading

    def pinned(self, width: int) -> list[Line]:
        """The fixed lines above those that scroll; hidden when there are none."""
        return []

    def _news_and_pinned(self, width: int) -> list[Line]:
        return [*self.alert_lines(width), *self.pinned(width)]

    def state_keys(self) -> Sequence[str]:
        """The key hints beside those to scroll and to copy, the most important last."""
        return ("Esc close",)

    def keys(self) -> Sequence[str]:
        is_typing = isinstance(self.focused, (Input, TextArea))
        scroll_hint = ("↑↓ scroll",) if self._is_cut else ()
        return (*scroll_hint, *(("y copy",) if self.is_worth_copying and not is_typing else ()), *self.state_keys())

    def answers(self) -> list[Button]:
        """The buttons, from left to right."""
        return []

    def below(self) -> list[Widget]:
        """Widgets between the lines and the buttons."""
        return []

    def compose(self) -> ComposeResult:
        with Vertical(classes="frame"):
            yield Sheet(self._news_and_pinned, classes="pinned")
            yield Body(self)
            yield from self.below()
            if answers := self.answers():
                with Horizontal(classes="answers"):
                    yield from answers

    def on_mount(self) -> None:
        self.call_after_refresh(self.renew)  # how high what stands below the lines is, is known only then

    @on(events.DescendantFocus)
    def _show_keys(self) -> None:
        self.renew()

    def copied(self) -> tuple[str, str]:
        lines = [*self.pinned(CLIPBOARD_CELLS), *self.content(CLIPBOARD_CELLS)]
        return f"{self.heading()}\n\n{plain(lines)}", "what the dialog says"

    def renew(self) -> None:
        if not self.is_attached or not self.query(Body):
            return
        dialog = self.query_one(".frame")
        body, pinned = self.query_one(Body), self.query_one(".pinned", Sheet)
        pinned.display = bool(pinned.content(max(1, (body.size.width or 1) - BAR_CELLS)))
        used_rows = pinned.changed() + 1 if pinned.display else 0
        children = (child for child in dialog.children if child not in (body, pinned) and child.display)
        used_rows += sum(max(1, child.outer_size.height) + 1 for child in children)
        max_rows = max(3, self.app.size.height - dialog.gutter.height - 1 - used_rows)
        body.styles.max_height = max_rows
        self._is_cut = body.changed() > max_rows
        self.write_frame()

    @on(Button.Pressed, "#cancel, #close, #no")
    def _close_pressed(self) -> None:
        self.action_close()


class ConfirmScreen(Dialog[bool]):
    """A yes-or-no question; `no` has the focus, and Esc answers it."""

    AUTO_FOCUS = "#no"
    closed = False
    is_worth_copying = False
    is_opaque = False

    def __init__(self, title: str, paragraphs: Sequence[Line], *, yes: str, no: str) -> None:
        super().__init__(title)
        self._paragraphs = paragraphs
        self._yes, self._no = yes, no

    def state_keys(self) -> Sequence[str]:
        return (f"Esc {self._no.lower()}",)

    def content(self, width: int) -> list[Line]:
        return folded(self._paragraphs, width)

    def answers(self) -> list[Button]:
        return [button(self._yes, "yes"), button(self._no, "no")]

    @on(Button.Pressed, "#yes")
    def _agree(self) -> None:
        self.dismiss(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One row of a ChooseScreen."""

    label: Line
    value: Any = None
    """The answer when it is chosen; None: it can't be chosen, only read."""
    aside: Line = BLANK
    """Text at the right of the label, where there is room in all rows; else below it while the cursor is on the row."""
    notes: tuple[Line, ...] = ()
    """Lines below the label; each is wrapped."""
    heading: str = ""
    """Title of its group, above the group's first row."""
    verb: str = ""
    """What Enter does on this row, where it isn't what it does on the others."""


class ChooseScreen(Dialog[Any], FilteredScreen[Any]):
    """Choose one row with the arrows and Enter, or with its number; answers its value, None when nothing was chosen.

    A digit that may begin a longer number only moves the cursor there: another digit or Enter follows.
    """

    AUTO_FOCUS = ""
    is_opaque = False

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        intro: Sequence[Line] | Callable[[], Sequence[Line]] = (),
        verb: str = "",
        at: int = 0,
    ) -> None:
        """The cursor begins on the `at`-th row that can be chosen; an `intro` that is called is newest each second."""
        super().__init__(title)
        self._all, self._choices = choices, choices
        self._intro = intro
        self._verb = verb or "choose"
        self._open = self._number()
        self._at = max(0, min(at, len(self._open) - 1))
        self._typed = ""
        """The digits typed so far of a number that may go on."""
        self._choice_of_line: dict[int, int] = {}
        """Line -> index among the rows that can be chosen."""
        self.watched_line = 0

    def _number(self) -> list[int]:
        return [number for number, choice in enumerate(self._choices) if choice.value is not None]

    def below(self) -> list[Widget]:
        return [self.search_bar]

    def refill(self) -> None:
        """Show the rows that the filter finds."""
        self._choices = self.matching(
            self._all, lambda row: " ".join((row.heading, row.label.plain, row.aside.plain)).strip()
        )
        self._at, self._typed = 0, ""
        self._open = self._number()
        self.renew()

    def on_mount(self) -> None:
        if callable(self._intro):
            self.set_interval(1.0, self.renew)

    def state_keys(self) -> Sequence[str]:
        if not self._open:
            return ("Esc close",)
        hint = f"{self._typed}_" if self._typed else "/ filter" if len(self._all) > PLAIN_DIGITS else ""
        verb = self._choices[self._open[self._at]].verb or self._verb
        return (*((hint,) if hint else ()), f"Enter {verb}", "Esc close")

    def content(self, width: int) -> list[Line]:
        intro = self._intro() if callable(self._intro) else self._intro
        lines = folded(intro, width)
        lines += [BLANK] if lines else []
        self._choice_of_line = {}
        with_aside = [choice for choice in self._choices if choice.aside.runs]
        cells = len(str(len(self._open)))
        has_room = all(choice.label.width + choice.aside.width <= width - cells - 3 for choice in with_aside)
        heading = ""
        for number, choice in enumerate(self._choices):
            if choice.heading != heading:
                heading = choice.heading
                lines += [*([BLANK] if number else []), Line.of((choice.heading, "title"))]
            first_line = len(lines)
            is_at = bool(self._open) and self._open[self._at] == number
            choice_index = self._open.index(number) if number in self._open else None
            digit = f"{'' if choice_index is None else choice_index + 1:>{cells}} "
            head = Line.of((digit, "key" if choice_index is not None else "quiet"))
            label, notes = choice.label, choice.notes
            if has_room:
                label += choice.aside
            elif choice.aside.runs and is_at:
                notes = (choice.aside, *notes)
            first, *rest = folded([label], width - cells - 3)
            rows = [head + first, *(Line.of(" " * (cells + 1)) + line for line in rest)]
            indent = Line.of(" " * (cells + 3))
            rows += [indent + line for line in folded(notes, width - cells - 5)]
            lines += [marked(Line.of(" ") + row, width, is_at=is_at) for row in rows]
            if choice_index is not None:
                self._choice_of_line |= dict.fromkeys(range(first_line, len(lines)), choice_index)
            if is_at:
                self.watched_line = first_line
        return lines

    def action_scroll(self, lines: int) -> None:
        """Move the cursor, or the lines where no row can be chosen."""
        self._typed = ""
        if self._open:
            self._at = max(0, min(len(self._open) - 1, self._at + lines))
            self.renew()
        else:
            super().action_scroll(lines)

    def clicked(self, line: int) -> None:
        if (choice_index := self._choice_of_line.get(line)) is not None:
            self._at = choice_index
            self.action_choose()

    def action_choose(self) -> None:
        if self._open:
            self.dismiss(self._choices[self._open[self._at]].value)

    def on_key(self, event: events.Key) -> None:
        if not event.key.isdigit():
            return
        numbers = (text for text in (self._typed + event.key, event.key) if 0 < int(text) <= len(self._open))
        if typed := next(numbers, ""):
            event.stop()
            self._at = int(typed) - 1
            self._typed = typed if int(typed) * 10 <= len(self._open) else ""
            if self._typed:
                self.renew()
            else:
                self.action_choose()


class DetailsScreen(Dialog[None]):
    """Shows blocks of lines; Esc, q, d or Enter closes it."""

    BINDINGS = bound(close="escape,q,d,enter")

    def __init__(self, title: str, blocks: Sequence[Sequence[Line]]) -> None:
        super().__init__(title)
        self._blocks = blocks

    def content(self, width: int) -> list[Line]:
        return spaced(folded(block, width) for block in self._blocks)


class OptionsScreen(Dialog[Mapping[str, str] | None]):
    """Edit an action's options; answers name -> value of those that differ from the default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Up", show=False),
        Binding("down", "app.focus_next", "Down", show=False),
    ]
    AUTO_FOCUS = "Input"
    is_opaque = False

    def __init__(
        self, title: str, options: Sequence[Option], values: Mapping[str, str], *, intro: Sequence[str] = ()
    ) -> None:
        super().__init__(title)
        self._options = options
        self._given = values
        self._intro = intro
        self._problem = ""

    def state_keys(self) -> Sequence[str]:
        return ("Enter review", "Esc cancel")

    def content(self, width: int) -> list[Line]:
        lines = [line for text in self._intro for line in wrapped(text, width)]
        return [*lines, *(wrapped(f"▲ {self._problem}", width, "warning") if self._problem else []), BLANK]

    def below(self) -> list[Widget]:
        rows: list[Widget] = []
        for option in self._options:
            label = option.text + (f" ({', '.join(option.choices)})" if option.choices else _unit(option))
            field = Input(
                self._given.get(option.name, option.default),
                name=option.name,
                compact=True,
                placeholder="" if option.is_required else "automatic",
            )
            rows += [Label(Text(label), markup=False), field]
        return [Vertical(*rows, classes="fields")]

    def answers(self) -> list[Button]:
        return [button("Review"), button("Cancel")]

    @on(Button.Pressed, "#review")
    @on(Input.Submitted)
    def _take(self) -> None:
        values = {}
        for option, field in zip(self._options, self.query(Input), strict=True):
            value = field.value.strip()
            is_missing = option.is_required and not value
            if is_missing or (option.choices and value not in option.choices):
                wanted = "it is needed" if is_missing else f"one of {', '.join(option.choices)}"
                self._problem = f"{option.text}: {wanted}"
                field.focus()
                self.renew()
                return
            if value != option.default:
                values[option.name] = value
        self.dismiss(values)


_UNITS = {"gib": "GiB", "s": "seconds", "minutes": "minutes"}


def _unit(option: Option) -> str:
    """The option's unit, where its description doesn't name it."""
    unit = _UNITS.get(option.name.rpartition("_")[2], "")
    return f" ({unit})" if unit and unit not in option.description else ""


class WaitScreen(Dialog[bool]):
    """Wait for a future; answers True when it is done, False when the operator gave up."""

    AUTO_FOCUS = ""
    closed = False
    is_worth_copying = False
    is_opaque = False

    def __init__(self, text: str, until: asyncio.Future[Any]) -> None:
        super().__init__("planning")
        self._text = text
        self._until = until

    def on_mount(self) -> None:
        self._until.add_done_callback(lambda _: self.settle(True))

    def state_keys(self) -> Sequence[str]:
        return ("Esc cancel",)

    def content(self, width: int) -> list[Line]:
        return wrapped(f"{self._text} …", width)
