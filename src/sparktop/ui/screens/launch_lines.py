"""What the launch screen says beside its choices: verdict and picture, what was found, what is in the way. Pure."""

from __future__ import annotations

from sparktop.model.plan import Refusal
from sparktop.model.prospect import GateState
from sparktop.operate.wording import masked
from sparktop.ui.panes.prospect import (
    gate_lines,
    picture_lines,
    remedy_lines,
    titled,
    told_lines,
    verdict_lines,
    without_verdict,
)
from sparktop.ui.screens.launch_choices import Known
from sparktop.ui.widgets.ink import BLANK, Line

ROOMY_ROWS = 30
"""From this many on the picture says in words what it shows."""


def head_lines(known: Known, width: int, height: int) -> list[Line]:
    """Verdict and picture on a screen of so many rows; faded while they are of another choice."""
    answer = known.answer
    if answer is None:
        nodes = " and ".join(masked(name) for name in known.draft.nodes)
        return [Line.of(("▸ ", "info"), (f"Asking {nodes} whether it fits and what stands in its way …", "strong"))]
    is_roomy = height >= ROOMY_ROWS
    reason = answer.reason if isinstance(answer, Refusal) else ""
    few = 4 if reason else 2  # why not is read to its end
    lines = verdict_lines(answer.prospect, width, reason=reason, limit=4 if is_roomy else few)
    if answer.prospect is not None:
        picture = picture_lines(answer.prospect, width, is_brief=not is_roomy)
        lines += [*([BLANK] if is_roomy and picture else []), *picture]
    if not lines:
        lines = [Line.of(("? ", "info"), ("Nothing is known of whether it fits", "strong"))]
    return [line.faded() for line in lines] if known.is_looking else lines


def found_lines(known: Known, width: int) -> list[Line]:
    """A refusal's remedies, gates, what would be fetched, risks."""
    answer = known.answer
    if answer is None:
        return []
    lines: list[Line] = []
    if isinstance(answer, Refusal):
        told = [line for text in _remedies(answer) for line in remedy_lines(text, width)]
        lines += titled("What would make it possible", told)
    if answer.prospect is not None:
        found = told_lines(answer.prospect, width)
        lines += [BLANK, *found] if lines and found else found
    return [line.faded() for line in lines] if known.is_looking else lines


def in_the_way(known: Known, width: int) -> list[Line]:
    """Gates that failed, where there is no room beside; not the one that says what the verdict does."""
    gates = known.prospect.gates if known.prospect is not None else ()
    failed = [one for one in without_verdict(gates, known.budget) if one.state is GateState.FAILED]
    lines = titled("In the way", gate_lines(failed, width, names_node=len(known.draft.nodes) > 1))
    return [line.faded() for line in lines] if known.is_looking else lines


def _remedies(refusal: Refusal) -> list[str]:
    """Those that stand neither among the levers nor below their gates."""
    prospect = refusal.prospect
    if prospect is None:
        return list(refusal.remedies)
    told = {gate.remedy for gate in prospect.gates} | set(prospect.budget.levers if prospect.budget is not None else ())
    return [text for text in refusal.remedies if text not in told]
