"""Tables as data: columns that take the cells of a width by turns, their heading and their rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

from sparktop.dataclass import dataclass
from sparktop.text.lines import Line, joined

GAP = "  "
_ANY: Mapping[StrEnum, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: StrEnum
    """Which it is: a member of its table's own enumeration, whose value is the title."""
    cells: int
    """The fewest; once fitted, those that it has."""
    turn: int = 0
    """When it takes them, the lowest first; without room then, it is left out."""
    is_right: bool = False
    grows: tuple[tuple[int, int], ...] = ()
    """(turn, most cells): when it takes more, as far as its content needs them."""

    def of(self, cell: Line) -> Line:
        """A cell, cut or padded to the column."""
        return cell.right(self.cells) if self.is_right else cell.fit(self.cells)


_C = TypeVar("_C", bound=Column)


def fitted(columns: Sequence[_C], width: int, content: Mapping[StrEnum, int] = _ANY, gap: str = GAP) -> tuple[_C, ...]:
    """The columns that fit the width; `content` is the widest cell of those that needn't grow beyond it."""
    turns = [(column.turn, False, column.cells, column) for column in columns]
    turns += [(turn, True, most, column) for column in columns for turn, most in column.grows]
    taken: dict[StrEnum, int] = {}
    free = width + len(gap)
    for _, is_more, cells, column in sorted(turns, key=itemgetter(0, 1)):
        key = column.key
        if is_more and key in taken:
            more = max(0, min(free, min(cells, content.get(key, cells)) - taken[key]))
            taken[key], free = taken[key] + more, free - more
        elif not is_more and cells + len(gap) <= free:
            taken[key], free = cells, free - cells - len(gap)
    return tuple(replace(column, cells=taken[column.key]) for column in columns if column.key in taken)


def heading(columns: Sequence[Column], gap: str = GAP, *, hidden: int = 0, by: StrEnum | None = None) -> Line:
    """The line of column titles; `hidden` is the number of rows that have no room, `by` the column sorted by."""
    titles = [column.key.value for column in columns]
    if hidden and titles:
        titles[0] += f" +{hidden}"
    cells = [
        column.of(Line.of((f"{title}▼", "strong") if column.key is by else (title, "quiet")))
        for column, title in zip(columns, titles, strict=True)
    ]
    return joined(cells, gap)


def table_row(columns: Sequence[Column], values: Mapping[Any, Line], gap: str = GAP) -> Line:
    """One row, from its cells by their column's key."""
    return joined([column.of(values[column.key]) for column in columns], gap)
