"""Tables whose columns have a width: their heading and their rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.text.lines import Line, joined

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: StrEnum
    """Which it is: a member of its table's own enumeration, whose value is the title."""
    cells: int
    is_right: bool = False


def heading(columns: Sequence[Column], gap: str = GAP) -> Line:
    """The line of column titles."""
    return table_row(columns, {column.key: Line.of((column.key.value, "quiet")) for column in columns}, gap)


def table_row(columns: Sequence[Column], values: Mapping[Any, Line], gap: str = GAP) -> Line:
    """One row, from its cells by their column's key; each is cut or padded to its column."""
    cells = [(values[column.key], column) for column in columns]
    return joined(
        [cell.right(column.cells) if column.is_right else cell.fit(column.cells) for cell, column in cells], gap
    )
