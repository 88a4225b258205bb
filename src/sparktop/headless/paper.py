"""Findings on a terminal: broken at words under their own indentation, and coloured where that is wanted."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from sparktop.headless.findings import Kind, Row
from sparktop.model.event import Severity

WIDEST = 100
"""Wider, and the eye loses the line."""
_SEVERITIES = {Severity.CRITICAL: "1;31", Severity.WARNING: "1;33", Severity.INFO: "1"}
_KINDS = {Kind.FIGURES: "1", Kind.SEEN: "2", Kind.REMEDY: "36"}
_HANGING = {Kind.TITLE: 2, Kind.SEEN: 2, Kind.REMEDY: 2}


def lines_for(rows: Sequence[Row], out: TextIO) -> list[str]:
    """The rows as lines for this stream: as they are for a file or a pipe, drawn for a terminal."""
    if not out.isatty():
        return [" " * row.indent + row.text for row in rows]
    width = min(WIDEST, shutil.get_terminal_size().columns)
    return drawn(rows, width, is_coloured=not os.environ.get("NO_COLOR"))


def drawn(rows: Sequence[Row], width: int, *, is_coloured: bool) -> list[str]:
    """Rows broken to so many cells, incidents apart, with SGR codes around each line where colour is wanted."""
    lines: list[str] = []
    for row in rows:
        code = _code(row) if is_coloured else ""
        lines += [""] if lines and row.kind is Kind.TITLE and not row.indent else []
        lines += [f"\x1b[{code}m{line}\x1b[0m" if code else line for line in _broken(row, width)]
    return lines


def _broken(row: Row, width: int) -> list[str]:
    if row.kind is Kind.STEP:
        return [" " * row.indent + row.text]
    return textwrap.wrap(
        row.text,
        max(width, row.indent + 20),
        initial_indent=" " * row.indent,
        subsequent_indent=" " * (row.indent + _HANGING.get(row.kind, 0)),
        break_on_hyphens=False,
    )


def _code(row: Row) -> str:
    if row.kind is Kind.TITLE:
        return _SEVERITIES[row.severity]
    if row.kind is Kind.STEP:  # the lines of a change
        return {"- ": "31", "+ ": "32"}.get(row.text[:2], "")
    return _KINDS.get(row.kind, "")
