"""Lines of toned text, and the widget that draws them: the stuff all panes are made of.

A pane is one widget and draws itself as lines; a line that did not change is not painted again. Text goes into
terminal segments as it is: nothing here parses markup, so remote text can't style anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from sparktop.ui.theme import tones

Run = tuple[str, str]
"""Text and its tone, a name of `theme.TONES`; "" is plain text."""

PAGE_CELLS = 104
"""Wider, and the eye loses the line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen: runs of text, each in a tone."""

    runs: tuple[Run, ...] = ()

    @staticmethod
    def of(*parts: str | Run) -> Line:
        """A line from plain texts and (text, tone) pairs."""
        return Line(tuple((part, "") if isinstance(part, str) else part for part in parts))

    @property
    def width(self) -> int:
        """Terminal cells."""
        return sum(cell_len(text) for text, _ in self.runs)

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.runs)

    def __add__(self, other: Line) -> Line:
        return Line(self.runs + other.runs)

    def faded(self) -> Line:
        """The same in faded tones: what it says is not of now."""
        return Line(tuple((text, tone if tone.startswith("~") else f"~{tone}") for text, tone in self.runs))

    def on(self, behind: str) -> Line:
        """The same text with another tone's background behind it."""
        return Line(tuple((text, f"{tone}@{behind}") for text, tone in self.runs))

    def cut(self, width: int, ellipsis: str = "…") -> Line:
        """At most `width` cells; what is cut off is marked."""
        if self.width <= width:
            return self
        room = max(0, width - cell_len(ellipsis))
        kept: list[Run] = []
        tone = ""
        for text, tone in self.runs:
            size = cell_len(text)
            if size <= room:
                kept.append((text, tone))
                room -= size
                continue
            if room:
                kept.append((set_cell_size(text, room).rstrip() if ellipsis else set_cell_size(text, room), tone))
            break
        return Line((*kept, (ellipsis[: max(0, width)], tone)))

    def fit(self, width: int) -> Line:
        """Exactly `width` cells: cut or padded with spaces."""
        cut = self.cut(width)
        missing = width - cut.width
        return Line((*cut.runs, (" " * missing, ""))) if missing > 0 else cut

    def right(self, width: int) -> Line:
        """Exactly `width` cells, set against the right edge."""
        cut = self.cut(width)
        missing = width - cut.width
        return Line(((" " * missing, ""), *cut.runs)) if missing > 0 else cut


BLANK = Line()


def spread(width: int, left: Line, right: Line, gap: int = 2) -> Line:
    """One line with a left and a right part; the right part goes first when there is no room for both."""
    room = width - right.width - gap
    if room < min(left.width, 8) or not right.runs:
        return left.cut(width)
    return left.fit(room) + Line.of(" " * gap) + right


def fitting(items: Iterable[Line], width: int, gap: str = "   ") -> Line:
    """As many of the items, in their order, as fit; one that is too wide is left out and the next is tried."""
    runs: list[Run] = []
    used = 0
    for item in items:
        size = item.width
        if not size:
            continue
        extra = cell_len(gap) if runs else 0
        if used + extra + size > width:
            continue
        if runs:
            runs.append((gap, ""))
        runs += item.runs
        used += extra + size
    return Line(tuple(runs))


def wrapped(text: str, width: int, tone: str = "", limit: int = 0) -> list[Line]:
    """Text broken at spaces to `width` cells; at most `limit` lines, the last one cut, when a limit is given."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if cell_len(candidate) <= width or not current:
            current = candidate
            continue
        lines.append(current)
        current = word
    lines.append(current)
    if limit and len(lines) > limit:
        lines = [*lines[: limit - 1], " ".join(lines[limit - 1 :])]
    return [Line(((text, tone),)).cut(width) for text in lines]


def broken(text: str, width: int) -> list[str]:
    """Broken at spaces where there are any, else wherever the line ends: nothing of a command is left out."""
    lines: list[str] = []
    rest = text
    while len(rest) > width > 8:
        at = rest.rfind(" ", width // 2, width)
        at = at if at > 0 else width - 1
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
        width = width if lines[1:] else width - 2
    return [*lines, rest]


def framed(body: Sequence[Line], *, width: int, height: int, title: Line, right: Line, tone: str) -> list[Line]:
    """A round frame around lines, with a title on the left and another on the right of its upper edge."""
    inner = width - 4
    if inner < 1 or height < 3:
        return [line.fit(width) for line in body[:height]]
    room = width - 8 - title.width
    right = right if right.width <= room else BLANK
    top = Line.of(("╭─ ", tone)) + title.cut(width - 6)
    tail = Line.of((" ", tone), *right.runs, (" ─╮", tone)) if right.runs else Line.of(("─╮", tone))
    rule = width - top.width - tail.width - 1
    lines = [top + Line.of((" " + "─" * rule, tone)) + tail]
    for index in range(height - 2):
        content = body[index] if index < len(body) else BLANK
        lines.append(Line((("│ ", tone), *content.fit(inner).runs, (" │", tone))))
    lines.append(Line.of(("╰" + "─" * (width - 2) + "╯", tone)))
    return lines


class LineWidget(Widget):
    """A widget that draws itself as lines and paints again only those that changed."""

    DEFAULT_CSS = "LineWidget { height: 1; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._drawn: tuple[int, int] = (0, 0)

    def draw(self, width: int, height: int) -> list[Line]:
        """The lines to show, from what the widget was last told; called when that or the size changed."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again and paint the lines that differ."""
        width, height = self.size
        if not width or not height or not self.is_attached:
            return
        old, self._lines = self._lines, self._draw(width, height)
        if self._drawn != (width, height):
            self._drawn = (width, height)
            self.refresh()
            return
        lines = self._lines
        changed: list[Region] = []
        for y in range(height):
            span = changed_span(_at(old, y), _at(lines, y), width)
            if span is not None:
                changed.append(Region(span[0], y, span[1], 1))
        if changed:
            self.refresh(*changed)

    def _draw(self, width: int, height: int) -> list[Line]:
        return self.draw(width, height)[:height]

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._drawn != (width, height):
            self._lines, self._drawn = self._draw(width, height), (width, height)
        palette = tones(self.app, self.background_colors[1])
        line = _at(self._lines, y).fit(width)
        plain = palette[""]
        return Strip([Segment(text, palette.get(tone, plain)) for text, tone in line.runs if text], width)

    def on_focus(self, event: events.Focus) -> None:
        self.redraw()

    def on_blur(self, event: events.Blur) -> None:
        self.redraw()

    def text(self) -> str:
        """What is shown, as plain text."""
        return "\n".join(line.plain.rstrip() for line in self._lines)


def changed_span(old: Line, new: Line, width: int) -> tuple[int, int] | None:
    """Where two lines of a widget differ, as (column, cells); None where they don't."""
    if old == new:
        return None
    start = 0
    for before, after in zip(old.runs, new.runs, strict=False):
        if before != after:
            break
        start += cell_len(before[0])
    stop = width
    if old.width == new.width:
        stop = new.width
        for before, after in zip(reversed(old.runs), reversed(new.runs), strict=False):
            if before != after:
                break
            stop -= cell_len(before[0])
    return (start, stop - start) if start < stop else (0, width)


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else BLANK
