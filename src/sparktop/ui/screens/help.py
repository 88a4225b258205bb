"""All keys, from the registry, and what the signs on the screen mean."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktop.ui.commands import Command, by_group, keys_text
from sparktop.ui.panes.engine_columns import STATES as ENGINE_SIGNS
from sparktop.ui.panes.link_text import SIGNS as LINK_SIGNS
from sparktop.ui.panes.verdict import SIGNS as SEVERITY_SIGNS
from sparktop.ui.theme import tones
from sparktop.ui.widgets.ink import BLANK, Line, wrapped

KEY_CELLS = 10
TITLE_CELLS = 16
DESCRIPTION_FROM = 64
"""From this many cells on a command's sentence stands beside its title; below, keys and titles alone."""
OTHERS = (
    ("g G", "in a log: to its first line, to its newest"),
    ("← →", "in a log: sideways, while lines are not wrapped"),
    ("E W", "before a log line: an error, a warning"),
    ("‹ ›", "beside a log line: it goes on there"),
    ("n/a", "can't be read here; the reason stands beside it or in the details"),
)


def help_lines(width: int) -> list[Line]:
    """The page at a width in cells."""
    lines: list[Line] = []
    for group, commands in by_group():
        lines += [BLANK, Line.of((group, "title"))] if lines else [Line.of((group, "title"))]
        for command in commands:
            lines += _command(command, width)
    lines += [BLANK, Line.of(("Signs", "title"))]
    for signs in (SEVERITY_SIGNS, LINK_SIGNS, ENGINE_SIGNS):
        lines += _signs([Line.of((f"{sign} ", tone), (str(state), "")) for state, (sign, tone) in signs.items()], width)
    for sign, meaning in OTHERS:
        lines += _entry(Line.of((f"{sign:<{KEY_CELLS}} ", "key")), meaning, width)
    return lines


def _command(command: Command, width: int) -> list[Line]:
    head = Line.of((f"{keys_text(command):<{KEY_CELLS}} ", "key"), (f"{command.title:<{TITLE_CELLS}} ", "value"))
    return [head.cut(width)] if width < DESCRIPTION_FROM else _entry(head, command.description, width)


def _entry(head: Line, text: str, width: int) -> list[Line]:
    first, *rest = wrapped(text, max(10, width - head.width), "quiet")
    return [head + first, *(Line.of(" " * head.width) + line for line in rest)]


def _signs(signs: list[Line], width: int) -> list[Line]:
    """Side by side, as many to a line as there is room for."""
    lines = [BLANK]
    for sign in signs:
        if lines[-1].runs and lines[-1].width + 3 + sign.width <= width:
            lines[-1] = lines[-1] + Line.of("   ") + sign
        else:
            lines.append(sign)
    return [line for line in lines if line.runs]


class HelpScreen(ModalScreen[None]):
    """One scrolling page; Esc, q or ? closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "close", "Close", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home,g", "page(-1000)", "First", show=False),
        Binding("end,G", "page(1000)", "Last", show=False),
    ]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > .dialog { width: 104; max-width: 96%; height: auto; max-height: 96%; }
    HelpScreen VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    HelpScreen .page { height: auto; width: 1fr; }
    """

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Text("help")
            box.border_subtitle = Text("Esc close   ↑↓ scroll")
            with VerticalScroll(can_focus=False):
                yield Static(classes="page", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self._fill)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        page = self.query_one(".page", Static)
        styles = tones(self.app, page.background_colors[1])
        width = max(20, self.query_one(VerticalScroll).size.width - 2)
        text = Text(no_wrap=True)
        for line in help_lines(width):
            for run, tone in line.runs:
                text.append(run, styles[tone])
            text.append("\n")
        text.rstrip()
        page.update(text)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        body = self.query_one(VerticalScroll)
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)
