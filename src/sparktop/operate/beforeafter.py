"""How a run ended as words, its figures before and after among them: "available 22.9 → 21.7 GiB".

Pure, and light enough for the first screen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparktop.model.plan import Run, StepState

UNITS = {"gib": "GiB", "w": "W", "c": "°C", "percent": "%", "s": "s", "mhz": "MHz"}
ALWAYS = ("available_gib",)
"""Told even where it hasn't changed."""

Figures = Mapping[str, float | str]


def told(before: Figures, after: Figures, *, only: Collection[str] = ()) -> str:
    """One node's, those that have changed, or `only` these; before a run is over only what was before."""
    parts = []
    for name, value in before.items():
        if only and name not in only:
            continue
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


def brief(run: Run) -> str:
    """The same without what its steps say of themselves, for where they stand beside it."""
    text = ending(run)
    for told in lists(run):
        text = text.replace(f" {told}", "", 1)
    return text


def lists(run: Run) -> tuple[str, ...]:
    """What is not known, what was done, what was not begun: a sentence each."""
    titles = {
        state: "; ".join(one.step.title for one in run.steps if one.state is state)
        for state in (StepState.UNKNOWN, StepState.DONE, StepState.SKIPPED)
    }
    unknown, done, skipped = titles.values()
    parts = [f"Not known: {unknown}."] if unknown else []
    if done or not unknown:
        parts.append(f"Done: {done}." if done else "Nothing was done.")
    if skipped:
        parts.append(f"Not begun: {skipped}.")
    return tuple(parts)


def _figure(value: float | str) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else value
