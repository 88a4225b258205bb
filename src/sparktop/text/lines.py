"""Lines of toned text, and functions to cut, fit, wrap and frame them. Pure.

Markup is never parsed, so remote text can't style anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import groupby

from rich.cells import cell_len, set_cell_size

from sparktop.dataclass import dataclass

Run = tuple[str, str]
"""Text and its tone, a name of `theme.TONES`; "" is plain text."""


PAGE_CELLS = 104
"""Most cells of a line of prose: longer ones are hard to read."""


CLIPBOARD_CELLS = 100


UNCUT = 1_000_000
"""The width of a file or a pipe: a paragraph is one line there, and nothing is cut."""


def is_uncut(width: int) -> bool:
    """Whether a width is UNCUT, or what margins leave of it."""
    return width > UNCUT // 2


@dataclass(frozen=True, slots=True)
class Line:
    """One line on the screen: runs of text, each with a tone."""

    runs: tuple[Run, ...] = ()
    _cells: int = field(default=-1, init=False, compare=False, repr=False)
    """The width once it is counted: a line is cut, fitted and framed, and each asks for it."""

    @staticmethod
    def of(*parts: str | Run) -> Line:
        """A line from plain texts and (text, tone) pairs."""
        return Line(tuple((part, "") if isinstance(part, str) else part for part in parts))

    @property
    def width(self) -> int:
        """Width in terminal cells."""
        if self._cells < 0:
            object.__setattr__(self, "_cells", sum([cell_len(text) for text, _ in self.runs]))
        return self._cells

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.runs)

    def __add__(self, other: Line) -> Line:
        return Line(self.runs + other.runs)

    def faded(self) -> Line:
        """The line in faded tones, for outdated figures."""
        return Line(tuple((text, tone if tone.startswith("~") else f"~{tone}") for text, tone in self.runs))

    def on(self, background_tone: str) -> Line:
        """The line on another tone's background."""
        return Line(tuple((text, f"{tone}@{background_tone}") for text, tone in self.runs))

    def bar(self, tone: str, width: int) -> Line:
        """The line on a bar of `width` cells in this tone's colour; what is bright or a key stays bold."""
        runs = self.fit(width).runs
        return Line(
            tuple((text, f"bar-{tone}{'-bold' if own in ('strong', 'key', tone) else ''}") for text, own in runs)
        )

    def cut(self, width: int, ellipsis: str = "…") -> Line:
        """The line cut to at most `width` cells, with an ellipsis where it is cut."""
        if self.width <= width:
            return self
        room = max(0, width - cell_len(ellipsis))
        cut_runs: list[Run] = []
        tone = ""
        for text, tone in self.runs:
            size = cell_len(text)
            if size <= room:
                cut_runs.append((text, tone))
                room -= size
                continue
            if room:
                cut_runs.append((set_cell_size(text, room).rstrip() if ellipsis else set_cell_size(text, room), tone))
            break
        return Line((*cut_runs, (ellipsis[: max(0, width)], tone)))

    def fit(self, width: int) -> Line:
        """The line at exactly `width` cells: cut, or padded with spaces."""
        cut = self.cut(width)
        missing = width - cut.width
        return Line((*cut.runs, (" " * missing, ""))) if missing > 0 else cut

    def right(self, width: int) -> Line:
        """The line at exactly `width` cells, right-aligned."""
        cut = self.cut(width)
        missing = width - cut.width
        return Line(((" " * missing, ""), *cut.runs)) if missing > 0 else cut


def merged(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs, with neighbours of the same tone joined."""
    return tuple(("".join(text for text, _ in group), tone) for tone, group in groupby(runs, key=lambda run: run[1]))


BLANK = Line()


def plain(lines: Iterable[Line]) -> str:
    """The lines as plain text, for the clipboard."""
    return "\n".join(line.plain.rstrip() for line in lines)


def joined(items: Iterable[Line], gap: str = "", tone: str = "") -> Line:
    """The items on one line, with a gap between them."""
    runs: list[Run] = []
    for index, item in enumerate(items):
        runs += [(gap, tone), *item.runs] if index else item.runs
    return Line(tuple(runs))


def spread(width: int, left: Line, right: Line) -> Line:
    """One line with a left and a right part; without room for both, the right part is left out."""
    room = width - right.width - 2
    if room < min(left.width, 8) or not right.runs:
        return left.cut(width)
    return (left if is_uncut(width) else left.fit(room)) + Line.of("  ") + right


def fitting(items: Iterable[Line], width: int, gap: str = "   ") -> Line:
    """The items that fit on one line, in order; one that is too wide is skipped."""
    shown: list[Line] = []
    room = width
    for item in items:
        cells = item.width + (cell_len(gap) if shown else 0)
        if item.width and cells <= room:
            shown.append(item)
            room -= cells
    return joined(shown, gap)


def flowed(items: Iterable[Line], width: int, gap: str = "   ", limit: int = 0) -> list[Line]:
    """The items side by side, as many on a line as fit, in at most `limit` lines (0: any number)."""
    lines: list[Line] = []
    for item in items:
        if lines and lines[-1].width + cell_len(gap) + item.width <= width:
            lines[-1] = lines[-1] + Line.of(gap) + item
        elif limit and len(lines) == limit:
            break
        else:
            lines.append(item.cut(width))
    return lines


def wrapped(text: str, width: int, tone: str = "", limit: int = 0) -> list[Line]:
    """The text wrapped at spaces to `width` cells, longer words anywhere; at most `limit` lines (0: any number), the
    last one cut."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        while not limit and cell_len(word) > width > 0:  # nothing is left out
            lines += [current] if current else []
            piece = set_cell_size(word, width).rstrip(" ")
            lines.append(piece)
            current, word = "", word[len(piece) :]
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
    """The text broken at spaces, else anywhere, so that nothing of a command is left out."""
    lines: list[str] = []
    remaining = text
    while len(remaining) > width > 8:
        index = remaining.rfind(" ", width // 2, width)
        index = index if index > 0 else width - 1
        lines.append(remaining[:index].rstrip())
        remaining = remaining[index:].lstrip()
        width = width if lines[1:] else width - 2
    return [*lines, remaining]


def hanging(head: Line, text: str, width: int, tone: str = "", limit: int = 0) -> list[Line]:
    """The text beside a head, wrapped to `width` with it; its further lines begin below the first.

    At most `limit` lines (0: any number), the last one cut.
    """
    first, *rest = wrapped(text, max(8, width - head.width), tone, limit)
    return [head + first, *indented(rest, head.width)]


def signed(sign: str, tone: str, text: str, width: int, text_tone: str = "", limit: int = 0) -> list[Line]:
    """A sign with its text beside it, wrapped to at most `limit` lines (0: any number)."""
    return hanging(Line.of((f"{sign} ", tone)), text, width, text_tone, limit)


def noted(sign: str, tone: str, texts: Iterable[str], width: int, text_tone: str = "") -> list[Line]:
    """Each of the texts beside this sign."""
    return [line for text in texts for line in signed(sign, tone, text, width, text_tone)]


def indented(lines: Iterable[Line], cells: int = 2) -> list[Line]:
    """The lines moved to the right."""
    return [Line.of(" " * cells) + line if cells and line.runs else line for line in lines]


def labelled(pairs: Sequence[tuple[str, str]]) -> list[Line]:
    """A line for each (label, value); the values are in one column."""
    widest = max((len(label) for label, _ in pairs), default=0)
    return [Line.of((f"{label:<{widest}}  ", "quiet"), value) for label, value in pairs]


def titled(title: str, lines: Sequence[Line], *, aside: str = "", indent: int = 0) -> list[Line]:
    """The lines under a title, with quiet words beside it; empty without lines."""
    head = Line.of((title, "title"), *([(f"   {aside}", "quiet")] if aside else []))
    return [head, *indented(lines, indent)] if lines else []


def spaced(blocks: Iterable[Sequence[Line]]) -> list[Line]:
    """Blocks of lines with a blank one between them; empty ones leave none."""
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [*([BLANK] if lines else []), *block]
    return lines


def framed(body: Sequence[Line], *, width: int, height: int, title: Line, right: Line, tone: str) -> list[Line]:
    """The lines in a round frame, with a title at the left and one at the right of its upper edge."""
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
