"""Tables as data: columns that take the cells of a width by turns, their heading and their rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType
from typing import Generic, TypeVar

from sparktop.dataclass import dataclass
from sparktop.text.lines import Line, joined

GAP = "  "
_ANY: Mapping[str, int] = MappingProxyType({})
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column of a table of such rows."""

    title: str
    cells: int
    """The fewest; once fitted, those that it has."""
    cell: Callable[[R], Line]
    turn: int = 0
    """When it takes its cells, the lowest first; without room then, it is left out."""
    is_right: bool = False
    grows: tuple[tuple[int, int], ...] = ()
    """(turn, most cells): when it takes more, as far as its content needs them."""
    figure: Callable[[R], float] | None = None
    """What the rows can be sorted by, the highest first; None: not by this column."""

    def fit(self, cell: Line) -> Line:
        """A cell, cut or padded to the column."""
        return cell.right(self.cells) if self.is_right else cell.fit(self.cells)


def fitted(
    columns: Sequence[Column[R]], width: int, content: Mapping[str, int] = _ANY, gap: str = GAP
) -> tuple[Column[R], ...]:
    """The columns that fit the width; `content` is the widest cell of those that needn't grow beyond it, by title."""
    turns = [(column.turn, False, column.cells, column.title) for column in columns]
    turns += [(turn, True, most, column.title) for column in columns for turn, most in column.grows]
    taken: dict[str, int] = {}
    free = width + len(gap)
    for _, is_more, cells, title in sorted(turns, key=itemgetter(0, 1)):
        if is_more and title in taken:
            more = max(0, min(free, min(cells, content.get(title, cells)) - taken[title]))
            taken[title], free = taken[title] + more, free - more
        elif not is_more and cells + len(gap) <= free:
            taken[title], free = cells, free - cells - len(gap)
    return tuple(replace(column, cells=taken[column.title]) for column in columns if column.title in taken)


def heading(columns: Sequence[Column[R]], gap: str = GAP, *, hidden: int = 0, by: str | None = None) -> Line:
    """The line of column titles; `hidden` is the number of rows that have no room, `by` the column sorted by."""
    titles = [column.title for column in columns]
    if hidden and titles:
        titles[0] += f" +{hidden}"
    cells = [
        column.fit(Line.of((f"{title}▼", "strong") if column.title == by else (title, "quiet")))
        for column, title in zip(columns, titles, strict=True)
    ]
    return joined(cells, gap)


def table_row(columns: Sequence[Column[R]], row: R, gap: str = GAP) -> Line:
    """One row."""
    return joined([column.fit(column.cell(row)) for column in columns], gap)
