"""How a run's end is told: one honest sentence on what was done and what was not, and what to do next. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.plan import Run, StepRun
from sparktop.operate.beforeafter import lists
from sparktop.operate.undoing import by_hand


def message(run: Run, how: str, *, but: Sequence[str] = ()) -> str:
    """`how` it ended, then what is done and what is not; `but` are things that went wrong on the way."""
    return " ".join(part for part in (_sentence(how), *lists(run), *map(_sentence, but)) if part)


def plain(how: str, *, but: Sequence[str] = ()) -> str:
    """How it ended, and no list."""
    return " ".join(map(_sentence, (how, *but)))


def success(run: Run, seconds: float, *, but: Sequence[str] = ()) -> str:
    """All is done."""
    return " ".join((f"{run.plan.title}: done in {clock(seconds)}.", *map(_sentence, but)))


def failed(one: StepRun) -> str:
    """A step that failed, with its reason."""
    why = one.detail.removeprefix("failed: ")
    return f"{one.step.title} failed{': ' + why if why else ''}"


def hint(run: Run, *, can_go_back: bool) -> str:
    """What to do next: the way back as a plan, and as commands for whom that is no longer there."""
    lines = by_hand(run)
    if can_go_back:
        parts = [f"The way back can be taken: {_listed([step.title for step in run.plan.way_back])}."]
        parts += [f"By hand it is: {_listed(lines)}"] if lines else []
        return " ".join(parts)
    return f"How to undo what was done: {_listed(lines)}" if lines else ""


def clock(seconds: float) -> str:
    """ "4:07", "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _listed(titles: Sequence[str]) -> str:
    return "; ".join(titles)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."
