"""One row a measure, and the table of them as text and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured thing."""

    measure: str
    result: str
    baseline: str = ""
    """The same of the thing it is compared with, and the ratio."""
    goal: str = ""
    met: bool | None = None
    """None where there is no goal, or nothing could be measured."""
    how: str = ""

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "NO", None: "-"}[self.met]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed; nan of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * share // 1) - 1))] if ordered else float("nan")


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """ "0.41 (0.39-0.44)": the median, with the smallest and the largest."""
    if not values:
        return "nothing measured"
    low, high = form.format(min(values)), form.format(max(values))
    middle = form.format(median(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def ratio(value: float, base: float) -> str:
    return f"x {value / base:.1f}" if base else ""


HEAD = ("measure", "result", "compared with", "goal", "met")


def _cells(row: Row) -> tuple[str, ...]:
    return row.measure, row.result, row.baseline, row.goal, row.verdict


def plain(rows: Sequence[Row]) -> str:
    """For a terminal."""
    cells = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEAD))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
                     for line in cells)  # fmt: skip


def markdown(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """For RESULTS.md."""
    lines = ["# What `make bench` measured", "", "Written by `make bench`; don't edit.", ""]
    lines += [f"- {fact}" for fact in facts]
    lines += ["", "| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in _cells(row)) + " |" for row in rows]
    lines += ["", "## How each was measured", ""]
    told: dict[str, list[str]] = {}
    for row in rows:
        if row.how:
            told.setdefault(row.how, []).append(row.measure)
    lines += [f"- **{'; '.join(measures)}**: {how}" for how, measures in told.items()]
    return "\n".join(lines) + "\n"
