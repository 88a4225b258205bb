"""What a launch would find, as lines of a width: the verdict first, then the picture, the gates, what is on disk. Pure.

The launch screen shows it while parameters change, the review above its steps, the run's screen on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.model.prospect import Budget, Fit, Gate, GateState, Prospect
from sparktop.operate.wording import masked
from sparktop.ui.panes.budget_bar import budget_lines, spaced
from sparktop.ui.widgets.ink import Line, broken, wrapped

FIT_SIGNS: dict[Fit, tuple[str, str]] = {
    Fit.FITS: ("✔", "ok"),
    Fit.TIGHT: ("▲", "warning"),
    Fit.NO: ("✖", "critical"),
    Fit.UNKNOWN: ("?", "info"),
}
"""Fit -> (sign, tone)."""
GATE_SIGNS: dict[GateState, tuple[str, str]] = {
    GateState.FAILED: ("✖", "critical"),
    GateState.WARNED: ("▲", "warning"),
    GateState.UNKNOWN: ("?", "info"),
    GateState.PASSED: ("✔", "ok"),
}
"""Gate's state -> (sign, tone), what stands in the way first."""
_LOUD = {"ok": "verdict-ok", "warning": "warning", "critical": "critical", "info": "verdict-info"}
"""A verdict's tone -> the bold one of the same colour."""
_WORDS = {Fit.FITS: "Fits", Fit.TIGHT: "Tight", Fit.NO: "Does not fit", Fit.UNKNOWN: "Not known whether it fits"}


def verdict(budget: Budget) -> str:
    """The verdict's sentence, beginning with its word."""
    said = masked(budget.sentence)
    word = _WORDS[budget.fit]
    if said.lower().startswith((word.lower(), str(budget.fit).lower(), "not known")):
        return said
    return f"{word}: {said}" if said else word


def verdict_lines(prospect: Prospect | None, width: int, *, reason: str = "", limit: int = 3) -> list[Line]:
    """The one sentence the eye has to land on; `reason` is a refusal's, and comes before whether it fits."""
    budget = prospect.budget if prospect is not None else None
    told = verdict(budget) if budget is not None else ""
    if not reason:
        return [] if budget is None else _verdict(budget.fit, told, width, limit)
    why = masked(reason)
    is_said = (
        budget is None or told.rstrip(".") in why or (budget.sentence and masked(budget.sentence).strip(".") in why)
    )
    if budget is not None and budget.fit is Fit.NO and is_said:
        return _verdict(budget.fit, why, width, limit)
    lines = signed("✖", "critical", why, width, "strong", limit)
    if budget is None or is_said:
        return lines
    return [*lines, *_verdict(budget.fit, told, width, max(1, limit - len(lines)))]


def _verdict(fit: Fit, sentence: str, width: int, limit: int) -> list[Line]:
    """Its sign and its word loud, the rest as it is."""
    sign, tone = FIT_SIGNS[fit]
    first, *rest = signed(sign, tone, sentence, width, "value", limit)
    word, colon, _ = sentence.partition(":")
    if colon and len(word) < 30 and first.plain.startswith(f"{sign} {word}:"):
        first = Line.of((f"{sign} {word}", _LOUD[tone]), (first.plain[len(sign) + 1 + len(word) :], "value"))
    return [first, *rest]


def picture_lines(prospect: Prospect, width: int, *, is_brief: bool = False) -> list[Line]:
    """Each node's memory before and after; nothing where nothing is known of it."""
    return budget_lines(prospect.budget, width, is_brief=is_brief) if prospect.budget is not None else []


def gate_lines(gates: Sequence[Gate], width: int, *, names_node: bool = True) -> list[Line]:
    """What failed, what warns, what couldn't be looked at, each with its remedy; what passed in one line."""
    lines: list[Line] = []
    for state, (sign, tone) in GATE_SIGNS.items():
        if state is GateState.PASSED:
            continue
        for gate in (one for one in gates if one.state is state):
            lines += _gate(gate, sign, tone, width, names_node=names_node)
    passed = [gate for gate in gates if gate.state is GateState.PASSED]
    if passed:
        sign, tone = GATE_SIGNS[GateState.PASSED]
        count = "1 gate passed" if len(passed) == 1 else f"{len(passed)} gates passed"
        names = ", ".join(dict.fromkeys(masked(gate.name) for gate in passed))
        lines.append(Line.of((f"{sign} ", tone), (count, ""), (f"  {names}", "quiet")).cut(width))
    return lines


def without_verdict(gates: Sequence[Gate], budget: Budget | None) -> list[Gate]:
    """All but the gate that says once more what the verdict above says: that it does not fit, or hardly."""
    said = {Fit.NO: GateState.FAILED, Fit.TIGHT: GateState.WARNED}.get(budget.fit) if budget is not None else None
    return [one for one in gates if one.name != "memory" or one.state is not said]


def _gate(gate: Gate, sign: str, tone: str, width: int, *, names_node: bool) -> list[Line]:
    name = masked(gate.name)
    where = f" on {masked(gate.node)}" if gate.node and names_node else ""
    state = "" if gate.state is not GateState.UNKNOWN else "not known: "
    head = Line.of((f"{sign} ", tone), (f"{name}{where}", "value"), ("  ", ""))
    detail = f"{state}{masked(gate.detail)}"
    if head.width + len(detail) <= width:
        lines = [head + Line.of((detail, ""))]
    else:
        lines = [head.cut(width), *(Line.of("  ") + line for line in wrapped(detail, width - 2))]
    return [*lines, *remedy_lines(gate.remedy, width)]


def remedy_lines(text: str, width: int) -> list[Line]:
    """What to do, as it would be typed: nothing of it is left out."""
    if not text:
        return []
    first, *rest = broken(masked(text), max(10, width - 4))
    return [Line.of("  ", ("› ", "key"), (first, "quiet")), *(Line.of("    ", (line, "quiet")) for line in rest)]


def fetch_lines(prospect: Prospect, width: int) -> list[Line]:
    """What would be fetched first."""
    return [line for text in prospect.fetches for line in signed("↓", "info", masked(text), width)]


def risk_lines(texts: Iterable[str], width: int) -> list[Line]:
    """Known risks, told before every launch."""
    return [line for text in texts for line in signed("▲", "warning", masked(text), width)]


def unknown_lines(budget: Budget | None, width: int) -> list[Line]:
    """What was guessed."""
    return [line for text in (budget.unknowns if budget else ()) for line in signed("~", "info", masked(text), width)]


def share_lines(budget: Budget | None, width: int) -> list[Line]:
    """Which share of memory it gets and why, and what its cache holds."""
    lines: list[Line] = []
    if budget is None:
        return lines
    if budget.share is not None:
        head = Line.of(("share  ", "quiet"), (f"{budget.share:.2f}  ", "value"))
        first, *rest = wrapped(masked(budget.share_source), max(10, width - head.width), "quiet")
        lines += [head + first, *(Line.of(" " * head.width) + line for line in rest)]
    if budget.cache_tokens is not None:
        line = Line.of(("cache  ", "quiet"), (f"{budget.cache_tokens:,} tokens", "value"))
        if budget.context_tokens:
            line += Line.of((f"  for a context of {budget.context_tokens:,}", "quiet"))
        lines.append(line.cut(width))
    return lines


def told_lines(prospect: Prospect, width: int) -> list[Line]:
    """All but verdict and picture: what was found, what would be fetched, what is known to go wrong."""
    several = len(prospect.nodes) > 1
    blocks = [
        titled("Gates", gate_lines(without_verdict(prospect.gates, prospect.budget), width, names_node=several)),
        titled("Memory", [*share_lines(prospect.budget, width), *unknown_lines(prospect.budget, width)]),
        titled("Would be fetched first", fetch_lines(prospect, width)),
        titled("Known risks", risk_lines(prospect.risks, width)),
    ]
    return spaced(blocks)


def compact_lines(prospect: Prospect, width: int, *, reason: str = "") -> list[Line]:
    """Verdict and picture: above a plan's steps."""
    return [
        *verdict_lines(prospect, width, reason=reason),
        *picture_lines(prospect, width, is_brief=width < 90),
    ]


def looked_lines(prospect: Prospect, width: int) -> list[Line]:
    """What its gates found."""
    return gate_lines(without_verdict(prospect.gates, prospect.budget), width, names_node=len(prospect.nodes) > 1)


def titled(title: str, lines: Sequence[Line]) -> list[Line]:
    """A block under its title; nothing where it says nothing."""
    return [Line.of((title, "title")), *lines] if lines else []


def signed(sign: str, tone: str, text: str, width: int, own: str = "", limit: int = 0) -> list[Line]:
    """A sign, and its text beside it on as many lines as it takes."""
    first, *rest = wrapped(text, max(10, width - 2), own, limit)
    return [Line.of((f"{sign} ", tone)) + first, *(Line.of("  ") + line for line in rest)]
