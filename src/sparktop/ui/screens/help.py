"""All keys, from the registry, and what the signs on the screen mean.

A screen of its own, opaque, with one widget on it: over a translucent one Textual blends the whole console anew at
each of its paints, and the help must come up at once also while a log floods.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Self

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import Screen

from sparktop.ui.commands import Command, by_group, keys_text
from sparktop.ui.panes.engine_columns import STATES as ENGINE_SIGNS
from sparktop.ui.panes.link_text import SIGNS as LINK_SIGNS
from sparktop.ui.panes.verdict import SIGNS as SEVERITY_SIGNS
from sparktop.ui.widgets.ink import BLANK, Line, LineWidget, framed, wrapped

KEY_CELLS = 10
TITLE_CELLS = 16
PAGE_CELLS = 104
"""Wider, and the eye loses the line between a title and its sentence."""
FRAME_CELLS = 4
DESCRIPTION_FROM = 64
"""From this many cells on a command's sentence stands beside its title; below, keys and titles alone."""
OTHERS = (
    ("g G", "in a log: to its first line, to its newest"),
    ("← →", "in a log: sideways, while lines are not wrapped"),
    ("E W", "before a log line: an error, a warning"),
    ("‹ ›", "beside a log line: it goes on there"),
    ("n/a", "can't be read here; the reason stands beside it or in the details"),
)


@lru_cache(maxsize=8)
def help_lines(width: int) -> tuple[Line, ...]:
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
    return tuple(lines)


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


class HelpPage(LineWidget):
    """The page in a frame, from one of its lines on; the frame's right edge says where in the page that is."""

    def __init__(self) -> None:
        super().__init__()
        self._top = 0

    def draw(self, width: int, height: int) -> list[Line]:
        cells = min(width, PAGE_CELLS)
        lines = help_lines(cells - FRAME_CELLS)
        height = min(height, len(lines) + 2)
        seen = max(1, height - 2)
        self._top = max(0, min(self._top, len(lines) - seen))
        right = Line.of(("Esc close" if seen >= len(lines) else "↑↓ scroll   Esc close", "quiet"))
        drawn = framed(
            lines[self._top : self._top + seen],
            width=cells,
            height=height,
            title=Line.of(("help", "title")),
            right=right,
            tone="frame",
        )
        if seen < len(lines):
            thumb = max(1, seen * seen // len(lines))
            start = 1 + round((seen - thumb) * self._top / (len(lines) - seen))
            for y in range(start, start + thumb):
                drawn[y] = Line((*drawn[y].runs[:-1], (" ┃", "frame-focus")))
        margin = Line.of(" " * ((width - cells) // 2))
        return [margin + line for line in drawn]

    def scroll_lines(self, lines: int) -> None:
        """Down by lines, or up."""
        self._top += lines
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        """Down by screens, one line kept."""
        self.scroll_lines(pages * max(1, self.size.height - 3))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)


class HelpScreen(Screen[None]):
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

    def __init__(self) -> None:
        super().__init__()
        self._page = HelpPage()

    def compose(self) -> ComposeResult:
        yield self._page

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but for regions: those are what was painted on the console below, where nobody sees it."""
        if regions:
            return self
        return super().refresh(repaint=repaint, layout=layout, recompose=recompose)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._page.scroll_pages(pages)
