"""How a run ended as words, its figures before and after among them: "available 22.9 → 21.7 GiB".

Pure, and light enough for the first screen.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.model.plan import Run

UNITS = {"gib": "GiB", "w": "W", "c": "°C", "percent": "%", "s": "s", "mhz": "MHz"}
ALWAYS = ("available_gib",)
"""Told even where it hasn't changed."""

Figures = Mapping[str, float | str]


def told(before: Figures, after: Figures) -> str:
    """One node's, those that have changed; before a run is over only what was before."""
    parts = []
    for name, value in before.items():
        then = after.get(name)
        if after and name not in ALWAYS and (then is None or _figure(then) == _figure(value)):
            continue
        words, _, unit = name.rpartition("_")
        if unit not in UNITS:
            words, unit = name, ""
        change = "" if then is None else f" → {_figure(then)}"
        parts.append(f"{words.replace('_', ' ')} {_figure(value)}{change} {UNITS.get(unit, '')}".rstrip())
    return ", ".join(parts)


def ending(run: Run) -> str:
    """How it ended, without the plan's title that stands before it already."""
    title = f"{run.plan.title}: "
    rest = run.message.removeprefix(title)
    return rest[:1].upper() + rest[1:] if run.message.startswith(title) else run.message


def _figure(value: float | str) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else value
