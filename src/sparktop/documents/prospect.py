"""The prospect of a launch as lines of a width: verdict, picture of memory, gates, downloads, risks. Pure.

Shown by the launch screen while parameters change, by the review above the steps, by the run's screen on request, and
by `sparktop launch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparktop.documents.budget import MOST_ALIKE, budget_lines
from sparktop.documents.step_text import masked
from sparktop.model.prospect import Budget, Download, Fit, Gate, Lever, OnDisk, Prospect
from sparktop.model.state import State
from sparktop.text.lines import UNCUT, Line, broken, hanging, indented, spaced, titled, wrapped
from sparktop.text.sentences import listed
from sparktop.text.units import size

FIT_SIGNS: dict[Fit, tuple[str, str]] = {
    Fit.FITS: ("✔", "ok"),
    Fit.TIGHT: ("▲", "warning"),
    Fit.NO: ("✖", "critical"),
    Fit.UNKNOWN: ("?", "info"),
}
"""Fit -> (sign, tone)."""
SIGNS: Mapping[State, tuple[str, str]] = {
    State.FAILED: ("✖", "critical"),
    State.WARNING: ("▲", "warning"),
    State.UNREACHED: ("?", "warning"),
    State.UNKNOWN: ("?", "info"),
    State.SKIPPED: ("–", "quiet"),
    State.PASSED: ("✔", "ok"),
}
"""State of a gate or a row of the bring-up -> (sign, tone), in the order of display."""
_LOUD = {"ok": "verdict-ok", "warning": "warning", "critical": "critical", "info": "verdict-info"}
"""A verdict's tone -> the bold tone of the same colour."""
ON_DISK_AT_MOST = 8


def verdict_lines(prospect: Prospect | None, width: int, *, reason: str = "", limit: int = 3) -> list[Line]:
    """The verdict in at most `limit` lines; a refusal's `reason`, where it is not the verdict, comes first."""
    budget = prospect.budget if prospect is not None else None
    lines = signed("✖", "critical", masked(reason), width, "strong", limit) if reason else []
    return lines if budget is None else [*lines, *_verdict(budget, width, max(1, limit - len(lines)) if limit else 0)]


def _verdict(budget: Budget, width: int, limit: int) -> list[Line]:
    """A verdict with its sign and first words in bold."""
    sign, tone = FIT_SIGNS[budget.fit]
    first, *rest = signed(sign, tone, masked(budget.sentence), width, "value", limit)
    head = f"{sign} {budget.fit.words}"
    if first.width > len(head):  # else it is too narrow for them
        first = Line.of((head, _LOUD[tone]), (first.plain[len(head) :], "value"))
    return [first, *rest]


def picture_lines(prospect: Prospect, width: int, *, is_brief: bool = False) -> list[Line]:
    """Each node's memory before and after the launch; empty where the budget is not known."""
    return budget_lines(prospect.budget, width, is_brief=is_brief) if prospect.budget is not None else []


def gate_lines(gates: Sequence[Gate], width: int, *, names_node: bool = True, is_printed: bool = False) -> list[Line]:
    """Gates that failed, warn or could not be checked, each with its remedy; those that passed in one line.

    `is_printed`: those that passed with their details too.
    """
    lines: list[Line] = []
    for state, (sign, tone) in SIGNS.items():
        if state is State.PASSED and not is_printed:
            continue
        alike: dict[tuple[str, ...], list[Gate]] = {}
        for gate in (other for other in gates if other.state is state):
            texts = (gate.name, gate.detail, *gate.steps)
            alike.setdefault(tuple(text.replace(gate.node or "\n", "\n") for text in texts), []).append(gate)
        for group in alike.values():
            others = group[1:] if len(group) > MOST_ALIKE else []
            for gate in group[: len(group) - len(others)]:
                lines += _gate(gate, sign, tone, width, names_node=names_node, is_printed=is_printed)
            if others:
                text = f"the same on {listed(masked(gate.node) for gate in others)}"
                lines += indented(wrapped(text, width - 2, "quiet"))
    passed = [gate for gate in gates if gate.state is State.PASSED]
    if passed and not is_printed:
        sign, tone = SIGNS[State.PASSED]
        count = "1 gate passed" if len(passed) == 1 else f"{len(passed)} gates passed"
        names = ", ".join(dict.fromkeys(masked(gate.name) for gate in passed))
        lines.append(Line.of((f"{sign} ", tone), (count, ""), (f"  {names}", "quiet")).cut(width))
    return lines


def without_verdict(gates: Sequence[Gate], budget: Budget | None) -> list[Gate]:
    """The gates without the memory gate that repeats the verdict: does not fit, or tight."""
    verdict_state = {Fit.NO: State.FAILED, Fit.TIGHT: State.WARNING}.get(budget.fit) if budget is not None else None
    return [gate for gate in gates if gate.name != "memory" or gate.state is not verdict_state]


def _gate(gate: Gate, sign: str, tone: str, width: int, *, names_node: bool, is_printed: bool) -> list[Line]:
    name = masked(gate.name)
    place = f" on {masked(gate.node)}" if gate.node and names_node else ""
    is_said = gate.state is not State.UNKNOWN or "not known" in gate.detail
    state = "" if is_said else "not known: "
    head = Line.of((f"{sign} ", tone), (f"{name}{place}", "value"), ("  ", ""))
    detail = f"{state}{masked(gate.detail)}"
    if head.width + len(detail) <= width:
        lines = [head + Line.of((detail, ""))]
    else:
        lines = [head.cut(width), *indented(wrapped(detail, width - 2))]
    remedy = "" if gate.state is State.PASSED else gate.remedy
    return [*lines, *remedy_lines(remedy, width, is_printed=is_printed)]


def remedy_lines(text: str, width: int, *, is_printed: bool = False) -> list[Line]:
    """A remedy as it would be typed, never cut; `is_printed`: on one line, to be pasted."""
    if not text:
        return []
    first, *rest = broken(masked(text), UNCUT if is_printed else max(10, width - 4))
    return [Line.of("  ", ("› ", "key"), (first, "quiet")), *(Line.of("    ", (line, "quiet")) for line in rest)]


def fetch_lines(prospect: Prospect, width: int) -> list[Line]:
    """The downloads needed before the launch."""
    nodes: dict[Download, list[str]] = {}
    for download in prospect.fetches:
        nodes.setdefault(replace(download, node=""), []).append(download.node)
    texts = (replace(download, node=listed(names)).text for download, names in nodes.items())
    return [line for text in texts for line in signed("↓", "info", masked(text), width)]


def risk_lines(texts: Iterable[str], width: int) -> list[Line]:
    """The recipe's known risks."""
    return [line for text in texts for line in signed("▲", "warning", masked(text), width)]


def unknown_lines(budget: Budget | None, width: int) -> list[Line]:
    """What the budget had to guess."""
    return [line for text in (budget.unknowns if budget else ()) for line in signed("~", "info", masked(text), width)]


def figure_lines(budget: Budget | None, width: int) -> list[Line]:
    """Whose the figures are that the budget didn't compute."""
    return [line for text in (budget.figures if budget else ()) for line in signed("✔", "ok", masked(text), width)]


def _memory_lines(budget: Budget | None, width: int) -> list[Line]:
    return [*share_lines(budget, width), *figure_lines(budget, width), *unknown_lines(budget, width)]


def share_lines(budget: Budget | None, width: int) -> list[Line]:
    """The engine's share of memory with its source, and how many tokens its cache holds."""
    lines: list[Line] = []
    if budget is None:
        return lines
    if budget.share is not None:
        head = Line.of(("share  ", "quiet"), (f"{budget.share:.2f}  ", "value"))
        lines += hanging(head, masked(budget.share_source), width, "quiet")
    if budget.cache_tokens is not None:
        line = Line.of(("cache  ", "quiet"), (f"{budget.cache_tokens:,} tokens", "value"))
        if budget.context_tokens:
            line += Line.of((f"  for a context of {budget.context_tokens:,}", "quiet"))
        lines.append(line.cut(width))
    return lines


def prospect_lines(prospect: Prospect, width: int) -> list[Line]:
    """Gates, memory, downloads and risks: all but the verdict and the picture."""
    several = len(prospect.nodes) > 1
    blocks = [
        titled("Gates", gate_lines(without_verdict(prospect.gates, prospect.budget), width, names_node=several)),
        titled("Memory", _memory_lines(prospect.budget, width)),
        titled("Would be fetched first", fetch_lines(prospect, width)),
        titled("Known risks", risk_lines(prospect.risks, width)),
    ]
    return spaced(blocks)


def printed_lines(prospect: Prospect, width: int, *, levers: Sequence[Lever] = ()) -> list[Line]:
    """All but the verdict and the picture, for the command line: also the models on disk and the `levers`."""
    several = len(prospect.nodes) > 1
    shown_gates = without_verdict(prospect.gates, prospect.budget)
    gates = gate_lines(shown_gates, width, names_node=several, is_printed=True)
    lever_lines = [line for lever in levers for line in remedy_lines(lever.text, width, is_printed=True)]
    return spaced(
        [
            titled("Memory", _memory_lines(prospect.budget, width)),
            titled("Options", lever_lines),
            titled("On disk already", _on_disk_lines(prospect.on_disk, width)),
            titled("Would be fetched first", fetch_lines(prospect, width)),
            titled("Known risks", risk_lines(prospect.risks, width)),
            titled("Gates", gates),
        ]
    )


def _on_disk_lines(models: Sequence[OnDisk], width: int) -> list[Line]:
    lines: list[Line] = []
    for model in models[:ON_DISK_AT_MOST]:
        sign, tone = ("✔", "ok") if model.is_wanted and model.is_complete else ("·", "faint")
        about = ", ".join(filter(None, (size(model.size_bytes), masked(model.quantisation))))
        lines += signed(sign, tone, f"{masked(model.name)} ({about}): {masked(model.text)}", width)
    hidden_count = len(models) - ON_DISK_AT_MOST
    return [*lines, Line.of((f"  and {hidden_count} more", "quiet"))] if hidden_count > 0 else lines


def masked_prospect(prospect: Prospect, secrets: Sequence[str]) -> Prospect:
    """The prospect without these secrets in what is shown of it."""

    def text(value: str) -> str:
        return masked(value, secrets)

    def texts(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(text, values))

    budget = prospect.budget
    if budget is not None:
        levers = tuple(replace(lever, words=text(lever.text)) for lever in budget.levers)
        budget = replace(
            budget,
            why=text(budget.why),
            advice=text(budget.advice),
            levers=levers,
            unknowns=texts(budget.unknowns),
            figures=texts(budget.figures),
        )
    return replace(
        prospect,
        title=text(prospect.title),
        values={name: text(value) for name, value in prospect.values.items()},
        budget=budget,
        gates=tuple(replace(gate, detail=text(gate.detail), steps=texts(gate.steps)) for gate in prospect.gates),
        on_disk=tuple(
            replace(model, name=text(model.name), path=text(model.path), note=text(model.note))
            for model in prospect.on_disk
        ),
        fetches=tuple(
            replace(download, name=text(download.name), source=text(download.source)) for download in prospect.fetches
        ),
        risks=texts(prospect.risks),
    )


def compact_lines(prospect: Prospect, width: int, *, reason: str = "", is_printed: bool = False) -> list[Line]:
    """Verdict and picture, for above a plan's steps."""
    return [
        *verdict_lines(prospect, width, reason=reason, limit=0 if is_printed else 3),
        *picture_lines(prospect, width, is_brief=width < 90 and not is_printed),
    ]


def plan_gate_lines(prospect: Prospect, width: int) -> list[Line]:
    """Whose figures the verdict is by, and the gates, for below a plan's effect and warnings."""
    gates = gate_lines(without_verdict(prospect.gates, prospect.budget), width, names_node=len(prospect.nodes) > 1)
    return [*figure_lines(prospect.budget, width), *gates]


def signed(sign: str, tone: str, text: str, width: int, text_tone: str = "", limit: int = 0) -> list[Line]:
    """A sign with its text beside it, wrapped to at most `limit` lines (0: any number)."""
    return hanging(Line.of((f"{sign} ", tone)), text, width, text_tone, limit)
