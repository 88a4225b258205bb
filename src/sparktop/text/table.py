"""Tables whose columns have a width: their heading and their rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktop.text.lines import Line, joined

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    cells: int
    is_right: bool = False


def heading(columns: Sequence[Column], gap: str = GAP) -> Line:
    """The line of column titles."""
    return table_row(columns, {column.title: Line.of((column.title, "quiet")) for column in columns}, gap)


def table_row(columns: Sequence[Column], values: Mapping[str, Line], gap: str = GAP) -> Line:
    """One row, from its cells by their column's title; each is cut or padded to its column."""
    cells = [(values[column.title], column) for column in columns]
    return joined(
        [cell.right(column.cells) if column.is_right else cell.fit(column.cells) for cell, column in cells], gap
    )
