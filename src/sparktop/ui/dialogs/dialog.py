"""Modal dialogs: the base with scrolling lines and buttons; yes or no, one of several, option values, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

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
from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, hanging, plain, wrapped
from sparktop.ui.dialogs.page import SCROLLING, Answer, CoveringScreen
from sparktop.ui.widgets.filtered import Filtered
from sparktop.ui.widgets.line_widget import BAR_CELLS, Sheet
from sparktop.ui.widgets.search_bar import SearchBar

PLAIN_DIGITS = 9
"""So many choices have a number of one digit; of more, a filter is offered."""
PAGES = 10_000
"""More than any dialog has: scrolls to its first or last line."""


def button(label: str) -> Button:
    """A dialog's button; its id is the label in lower case, and Cancel and Close close the dialog."""
    return Button(Text(label), id=label.lower(), compact=True)


class DialogBody(Sheet):
    """The dialog's scrolling lines."""

    def __init__(self, dialog: Dialog[Answer]) -> None:
        super().__init__(dialog.content)
        self._dialog = dialog

    def watched(self, lines: list[Line]) -> int | None:
        return self._dialog.watched_line

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._dialog.clicked(self.line_at(event.y))


class Dialog(CoveringScreen[Answer], ModalScreen[Answer]):
    """A modal dialog; subclasses give its lines, buttons and keys. Esc always closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False),
        *SCROLLING,
        Binding("left", "app.focus_previous", "Previous answer", show=False),
        Binding("right", "app.focus_next", "The next answer", show=False),
    ]
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > .dialog { width: 106; max-width: 100%; height: auto; max-height: 100%; }
    Dialog .pinned { margin-bottom: 1; }
    Dialog Horizontal.answers { height: 1; margin-top: 1; align-horizontal: right; }
    Dialog Horizontal.answers Button { margin-left: 2; }
    """
    FRAME_ROWS = 2
    COPY_KEY = "y copy   "
    """The hint, where there is more to copy than a question."""
    news = ""
    """A critical finding that appeared since the dialog opened, on one line: "new: …", "again: …"."""
    watched_line: int | None = None
    """Index of the line that stays in sight; None: none."""

    def __init__(self, title: str = "", *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._heading = title

    def heading(self) -> str:
        """The title in the frame's upper edge; remote text in it is sanitised."""
        return self._heading

    def content(self, width: int) -> list[Line]:
        """The scrolling lines, at a width in cells."""
        raise NotImplementedError

    def pinned(self, width: int) -> list[Line]:
        """The fixed lines above those that scroll; hidden when there are none."""
        return []

    def _news_and_pinned(self, width: int) -> list[Line]:
        news_lines = [Line.of((f"✖ {self.news}", "critical")).cut(width)] if self.news else []
        return [*news_lines, *self.pinned(width)]

    def clicked(self, line: int) -> None:
        """The line of this index was clicked."""

    def keys(self) -> str:
        """The key hints in the frame's lower edge."""
        return "Esc close"

    def answers(self) -> list[Button]:
        """The buttons, from left to right."""
        return []

    def below(self) -> list[Widget]:
        """Widgets between the lines and the buttons."""
        return []

    def tell(self, text: str) -> None:
        """Show a new critical finding in the dialog, as a toast would cover its buttons; an empty text ends that."""
        self.news = text
        self.renew()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Sheet(self._news_and_pinned, classes="pinned")
            yield DialogBody(self)
            yield from self.below()
            if answers := self.answers():
                with Horizontal(classes="answers"):
                    yield from answers

    def on_mount(self) -> None:
        self.app.clear_notifications()  # older toasts would cover the buttons
        self.renew()
        self.call_after_refresh(self.renew)  # how high what stands below the lines is, is known only then

    def on_resize(self, event: events.Resize) -> None:
        self.renew()

    @on(events.DescendantFocus)
    def _show_keys(self) -> None:
        self.renew()

    def copied(self) -> tuple[str, str]:
        lines = [*self.pinned(CLIPBOARD_CELLS), *self.content(CLIPBOARD_CELLS)]
        return f"{self.heading()}\n\n{plain(lines)}", "what the dialog says"

    def renew(self) -> None:
        """Render title, lines and keys again after a change."""
        if not self.is_attached or not self.query(DialogBody):
            return
        dialog = self.query_one(".dialog")
        dialog.border_title = Text(self.heading())
        body, pinned = self.query_one(DialogBody), self.query_one(".pinned", Sheet)
        pinned.display = bool(pinned.content(max(1, (body.size.width or 1) - BAR_CELLS)))
        used_rows = pinned.changed() + 1 if pinned.display else 0
        children = (child for child in dialog.children if child not in (body, pinned) and child.display)
        used_rows += sum(max(1, child.outer_size.height) + 1 for child in children)
        max_rows = max(3, self.app.size.height - self.FRAME_ROWS - 1 - used_rows)
        body.styles.max_height = max_rows
        scroll_hint = "↑↓ scroll   " if body.changed() > max_rows else ""
        is_typing = isinstance(self.focused, (Input, TextArea))
        dialog.border_subtitle = Text(scroll_hint + ("" if is_typing else self.COPY_KEY) + self.keys())

    @on(Button.Pressed, "#cancel, #close, #no")
    def _close_pressed(self) -> None:
        self.action_close()

    def action_scroll(self, lines: int) -> None:
        self.query_one(DialogBody).scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self.query_one(DialogBody).scroll_pages(pages)


class ConfirmScreen(Dialog[bool]):
    """A yes-or-no question; `no` has the focus, and Esc answers it."""

    AUTO_FOCUS = "#no"
    COPY_KEY = ""
    is_opaque = False

    def __init__(self, title: str, paragraphs: Sequence[str], *, yes: str, no: str) -> None:
        super().__init__(title, classes="small")
        self._paragraphs = paragraphs
        self._yes, self._no = yes, no

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

    def action_close(self) -> None:
        self.dismiss(False)


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
    """Title above the row, where a group begins."""
    verb: str = ""
    """What Enter does on this row, where it isn't what it does on the others."""


class ChooseScreen(Dialog[Any], Filtered):
    """Choose one row with the arrows and Enter, or with its number; answers its value, None when nothing was chosen.

    A digit that may begin a longer number only moves the cursor there: another digit or Enter follows.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False),
        Binding("slash", "filter", "Filter", show=False),
        Binding("enter", "choose", "Choose", show=False),
        Binding("home,g", "move(-1000)", "First", show=False),
        Binding("end,G", "move(1000)", "Last", show=False),
        Binding("q", "close", "Close", show=False),
    ]
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
        self.filter_bar = SearchBar()

    def _number(self) -> list[int]:
        return [number for number, choice in enumerate(self._choices) if choice.value is not None]

    def below(self) -> list[Widget]:
        return [self.filter_bar]

    def refill(self) -> None:
        """Show the rows that the filter finds, each group's heading with its first."""
        heading, headings = "", {}
        for choice in self._all:
            heading = choice.heading or heading
            headings[id(choice)] = heading
        kept: list[Choice] = []
        for choice in self.matching(
            self._all, lambda row: " ".join((headings[id(row)], row.label.plain, row.aside.plain)).strip()
        ):
            is_first = not kept or headings[id(choice)] != heading
            heading = headings[id(choice)]
            kept.append(replace(choice, heading=heading if is_first else ""))
        self._choices, self._at, self._typed = kept, 0, ""
        self._open = self._number()
        self.renew()

    def focus(self, scroll_visible: bool = True) -> Self:
        """Give the keys back to the list."""
        self.set_focus(None)
        self.renew()
        return self

    def action_filter(self) -> None:
        super().action_filter()
        self.call_after_refresh(self.renew)

    def action_close(self) -> None:
        if self.filter_bar.is_open:
            self.action_end_filter()
        else:
            super().action_close()

    def on_mount(self) -> None:
        super().on_mount()
        if callable(self._intro):
            self.set_interval(1.0, self.renew)

    def keys(self) -> str:
        if not self._open:
            return "Esc close"
        hints = f"{self._typed}_   " if self._typed else "/ filter   " if len(self._all) > PLAIN_DIGITS else ""
        return f"{hints}Enter {self._choices[self._open[self._at]].verb or self._verb}   Esc close"

    def content(self, width: int) -> list[Line]:
        intro = self._intro() if callable(self._intro) else self._intro
        lines = [line for text in intro for line in (_wrapped_line(text, width) if text.runs else [BLANK])]
        lines += [BLANK] if lines else []
        self._choice_of_line = {}
        with_aside = [choice for choice in self._choices if choice.aside.runs]
        cells = len(str(len(self._open)))
        has_room = all(choice.label.width + choice.aside.width <= width - cells - 3 for choice in with_aside)
        for number, choice in enumerate(self._choices):
            if choice.heading:
                lines += [*([BLANK] if number else []), Line.of((choice.heading, "title"))]
            first_line = len(lines)
            is_at = bool(self._open) and self._open[self._at] == number
            choice_index = self._open.index(number) if number in self._open else None
            digit = f"{'' if choice_index is None else choice_index + 1:>{cells}} "
            cursor_mark = Line.of(("▌" if is_at else " ", "frame-focus"))
            head = Line.of((digit, "key" if choice_index is not None else "quiet"))
            label, notes = choice.label, choice.notes
            if has_room:
                label += choice.aside
            elif choice.aside.runs and is_at:
                notes = (choice.aside, *notes)
            first, *rest = _wrapped_line(label, width - cells - 3)
            rows = [head + first, *(Line.of(" " * (cells + 1)) + line for line in rest)]
            indent = Line.of(" " * (cells + 3))
            rows += [indent + line for note in notes for line in _wrapped_line(note, width - cells - 5)]
            for row in rows:
                drawn = (Line.of(" ") + row).fit(width - 1)
                lines.append(cursor_mark + (drawn.on("cursor") if is_at else drawn))
            if choice_index is not None:
                self._choice_of_line |= dict.fromkeys(range(first_line, len(lines)), choice_index)
            if is_at:
                self.watched_line = first_line
        return lines

    def action_scroll(self, lines: int) -> None:
        if self._open:
            self.action_move(lines)
        else:
            super().action_scroll(lines)

    def action_move(self, rows: int) -> None:
        """Move the cursor down by this many rows, or up."""
        self._typed = ""
        if self._open:
            self._at = max(0, min(len(self._open) - 1, self._at + rows))
            self.renew()

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


def _wrapped_line(line: Line, width: int) -> list[Line]:
    """The line if it fits, else its text wrapped, the last run's tone on the lines below."""
    if line.width <= width or len(line.runs) == 0:
        return [line]
    if len(line.runs) == 1:
        return wrapped(line.plain, width, line.runs[0][1])
    (text, tone) = line.runs[-1]
    head = Line((*line.runs[:-1], (" " * (len(text) - len(text.lstrip(" "))), "")))
    tail = (text.lstrip(" "), tone)
    if head.width >= width - 12:
        return wrapped(line.plain, width, tail[1])
    return hanging(head, tail[0], width, tail[1])


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

    def keys(self) -> str:
        return "Enter review   Esc cancel"

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
    COPY_KEY = ""
    is_opaque = False

    def __init__(self, text: str, until: asyncio.Future[Any]) -> None:
        super().__init__("planning", classes="small")
        self._text = text
        self._until = until

    def on_mount(self) -> None:
        super().on_mount()
        self._until.add_done_callback(lambda _: self._dismiss_when_done())

    def on_screen_resume(self) -> None:
        self._dismiss_when_done()

    def _dismiss_when_done(self) -> None:
        if self._until.done() and self.is_active:
            self.dismiss(True)

    def keys(self) -> str:
        return "Esc cancel"

    def content(self, width: int) -> list[Line]:
        return wrapped(f"{self._text} …", width)

    def action_close(self) -> None:
        self.dismiss(False)
