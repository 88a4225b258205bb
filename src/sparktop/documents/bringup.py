"""The bring-up page: chapters, their checks, what each found, and what to do. Pure."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from sparktop.bringup.card import by_action
from sparktop.bringup.catalogue import BY_ID
from sparktop.documents.data import fields, fields_or_none
from sparktop.documents.prospect import SIGNS
from sparktop.model.bringup import CHAPTER_TITLES, Changed, Chapter, CheckResult, Gauge
from sparktop.model.finding import Remedy
from sparktop.model.state import State
from sparktop.text.bars import gauge
from sparktop.text.lines import BLANK, Line, hanging, indented, wrapped
from sparktop.text.sentences import listed
from sparktop.text.units import age

_NOUNS = {
    State.FAILED: "failed",
    State.WARNING: "to look at",
    State.UNREACHED: "not reached",
    State.UNKNOWN: "unknown",
    State.SKIPPED: "skipped",
    State.PASSED: "passed",
}


def chapter_lines(chapter: Chapter, rows: Sequence[CheckResult], width: int, *, now_wall_s: float) -> list[Line]:
    """One chapter: its title with counts, a row for each check and node, and below what is wrong why and what to do."""
    lines = [Line.of((CHAPTER_TITLES[chapter], "heading"), (f"  {counts(rows)}", "quiet"))]
    several = len({row.nodes for row in rows if len(row.nodes) == 1}) > 1
    for row in merged(rows):
        lines += row_lines(row, width, now_wall_s=now_wall_s, names_node=several or len(row.nodes) > 1)
    return [*lines, BLANK]


COMMON_STATES = (State.PASSED, State.SKIPPED, State.UNREACHED)
"""What is told once of several nodes."""


def merged(rows: Sequence[CheckResult]) -> list[CheckResult]:
    """The rows, with one in place of those of one check in which every node passed, or skipped, with equal words."""
    shown: list[CheckResult] = []
    for row in rows:
        last = shown[-1] if shown else None
        is_same = last is not None and (last.check, last.subject, last.state, last.found, last.is_kept) == (
            row.check, row.subject, row.state, row.found, row.is_kept,
        )  # fmt: skip
        if last is not None and is_same and row.state in COMMON_STATES:
            shown[-1] = replace(last, nodes=(*last.nodes, *row.nodes))
        else:
            shown.append(row)
    return shown


def counts(rows: Iterable[CheckResult]) -> str:
    """ "1 failed, 2 to look at, 7 passed": the worst first."""
    states = [row.state for row in rows]
    return ", ".join(f"{states.count(state)} {noun}" for state, noun in _NOUNS.items() if state in states)


def row_lines(row: CheckResult, width: int, *, now_wall_s: float, names_node: bool) -> list[Line]:
    """A check's row: sign, node, title, what it found; for a problem also why and its remedies."""
    card = BY_ID[row.check]
    glyph, tone = SIGNS[row.state]
    node = about(row) if names_node or row.subject else ""
    first = Line.of(
        (f"{glyph} ", tone),
        (f"{node}  " if node else "", "quiet"),
        (f"{card.title}:" if row.found else card.title, "value"),
    )
    text = f"{row.found}, {_since(row, now_wall_s)}" if row.is_kept else row.found
    text_tone = tone if row.is_problem else "quiet"
    if len(text) <= width - first.width - 3:
        lines = [first + Line.of(("  ", ""), (text, text_tone))]
    else:
        lines = [first, *_paragraph(text, width, text_tone)]
    lines += gauge_lines(row, width)
    if row.is_problem:
        lines += _paragraph(card.why, width, "quiet")
    if row.state is not State.PASSED or row.remedies:
        lines += indented(_remedy_lines(row, width - 4), 4)
    return lines


def detail_lines(row: CheckResult, width: int, *, now_wall_s: float) -> list[Line]:
    """All of one check: what it found, what to do, what it looks at and why, its sources."""
    card = BY_ID[row.check]
    glyph, tone = SIGNS[row.state]
    lines = [Line.of((f"{glyph} {row.state}  ", tone), (card.title, "title"), (f"  {about(row)}", "quiet"))]
    lines += [BLANK, *wrapped(row.found or "nothing found", width, tone if row.is_problem else "value")]
    if row.is_kept and row.proven_wall_s is not None:
        lines += wrapped(f"{_since(row, now_wall_s)}, and nothing it depends on has changed", width, "quiet")
    if row.gauges:
        lines += [BLANK, *gauge_lines(row, width, indent=0)]
    if row.remedies:
        lines += [BLANK, *_remedy_lines(row, width)]
    lines += [BLANK, *_entry("looks at", card.looks_at, width), *_entry("why", card.why, width)]
    if row.is_kept and (again := measuring(row)) is not None:
        lines += [BLANK, *_entry("again", typed(again, row), width)]
    if card.root:
        lines += [BLANK, *_entry("root", card.root, width)]
    return [*lines, BLANK, *_entry("source", "; ".join(card.sources), width)]


def gauge_lines(row: CheckResult, width: int, indent: int = 4) -> list[Line]:
    """Its figures as bars to one scale, each beside what is healthy; without bars where there is no room."""
    if not row.gauges:
        return []
    full = max(max(one.value, one.healthy[1]) for one in row.gauges)
    labels = max(cell_len(one.label) for one in row.gauges)
    figures = max(cell_len(_gauge_text(one)) for one in row.gauges)
    room = min(BAR_CELLS, width - indent - labels - figures - 4)
    lines = []
    for one in row.gauges:
        tone = SIGNS[one.state][1]
        bar = gauge(one.value, one.healthy, full, room, tone) + Line.of("  ") if room >= BAR_LEAST_CELLS else Line()
        label = one.label + " " * (labels - cell_len(one.label)) + "  "
        lines.append(Line.of(" " * indent, (label, "label")) + bar + Line.of((_gauge_text(one), tone)))
    return lines


BAR_CELLS, BAR_LEAST_CELLS = 40, 8


def _gauge_text(one: Gauge) -> str:
    low, high = one.healthy
    return f"{_amount(one.value)} {one.unit}, healthy {_amount(low)} to {_amount(high)}"


def _amount(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}".removesuffix(".0")


def about(row: CheckResult) -> str:
    """ "spark1 and spark2", "vllm-qwen36 on spark1": what the row is about."""
    nodes = listed(row.nodes)
    return f"{row.subject} on {nodes}" if row.subject else nodes


def measuring(row: CheckResult) -> Remedy | None:
    """What measures it again; None where a look is enough."""
    action = BY_ID[row.check].measured_by
    return by_action(action, "Measure it again") if action else None


def _since(row: CheckResult, now_wall_s: float) -> str:
    """ "proven 3 min ago"."""
    ago = age(max(0.0, now_wall_s - (row.proven_wall_s or 0.0)))
    return f"{'measured' if BY_ID[row.check].measured_by else 'proven'} {ago} ago"


def _entry(name: str, text: str, width: int) -> list[Line]:
    return hanging(Line.of((f"{name:<9} ", "label")), text, width)


def commands(row: CheckResult) -> list[str]:
    """What the operator would type for the row's remedies, without the node that it is typed on."""
    places = [f"on {node}: " for node in row.nodes]
    steps = (step for remedy in row.remedies for step in _steps(remedy, row))
    return [step.removeprefix(next(filter(step.startswith, places), "")) for step in steps]


def _remedy_lines(row: CheckResult, width: int) -> list[Line]:
    lines: list[Line] = []
    for remedy in row.remedies:
        lines += hanging(Line.of(("→ ", "info")), remedy.title, width, "info")
        lines += [line for step in _steps(remedy, row) for line in hanging(Line.of("  "), step, width)]
    return lines


def _steps(remedy: Remedy, row: CheckResult) -> tuple[str, ...]:
    return (*((typed(remedy, row),) if remedy.action else ()), *remedy.steps)


def typed(remedy: Remedy, row: CheckResult) -> str:
    """The command that carries a remedy's action out."""
    nodes = shlex.join(row.nodes)
    engine = f" --engine {shlex.quote(row.subject)}" if row.subject else ""
    if remedy.action == "launch":
        return f"sparktop launch RECIPE {nodes}"
    if remedy.action == "expose":
        return f"sparktop expose HOSTNAME {nodes}{engine} --on {shlex.quote(row.nodes[0])}"
    options = "".join(f" --set {shlex.quote(f'{name}={value}')}" for name, value in remedy.options)
    return f"sparktop act {remedy.action} {nodes}{engine}{options}"


def _paragraph(text: str, width: int, tone: str) -> list[Line]:
    return indented(wrapped(text, max(20, width - 4), tone), 4)


def summary(rows: Sequence[CheckResult], width: int) -> list[Line]:
    """The end of the page: what is left to do, the worst first."""
    failed = [row for row in rows if row.state is State.FAILED]
    warned = [row for row in rows if row.state is State.WARNING]
    unknown = [row for row in rows if row.state in (State.UNREACHED, State.UNKNOWN)]
    if not (failed or warned):
        passed = [row for row in rows if row.state is State.PASSED]
        rest = counts(row for row in rows if row not in passed)
        if not passed:
            return wrapped(f"? Nothing was looked at: {rest or 'no check'}", width, "warning")
        tail = f"; {rest}" if rest else ""
        return wrapped(f"✔ {len(passed)} checks found nothing wrong{tail}", width, "warning" if unknown else "ok")
    lines = [Line.of(("Left to do", "heading"), (f"  {counts([*failed, *warned, *unknown])}", "quiet"))]
    for row in (*failed, *warned):
        glyph, tone = SIGNS[row.state]
        text = f"{about(row)}  {row.check}  {row.found}"
        lines += [Line.of((f"{glyph} ", tone)) + line for line in wrapped(text, width - 2, "")][:1]
    return lines


def as_data(rows: Sequence[CheckResult]) -> dict[str, Any]:
    """The page as JSON-ready data."""
    return {"checks": [_row_data(row) for row in rows]}


def _row_data(row: CheckResult) -> dict[str, Any]:
    remedies = [
        fields(one, "title", "steps", "action") | {"command": typed(one, row) if one.action else None}
        for one in row.remedies
    ]
    return {
        **fields(row, "check", "chapter", "nodes", "state", "found", "gauges", "proven_wall_s", "is_kept"),
        **fields_or_none(row, "subject"),
        **fields(BY_ID[row.check], "title", "looks_at", "why", "sources", "root"),
        "remedies": remedies,
    }


def page_text(
    rows: Sequence[CheckResult],
    *,
    is_html: bool,
    hosts: Sequence[str],
    now_wall_s: float,
    changes: Sequence[Changed] = (),
) -> str:
    """The page to keep, Markdown or one HTML file (no script, nothing loaded from elsewhere): the machines, what was
    proven with figures, what was changed, what is left."""
    from jinja2 import Environment, StrictUndefined  # late: it takes 30 ms, and most looks keep no page

    environment = Environment(
        autoescape=is_html,  # noqa: S701 - what Markdown would read is escaped by the filters
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"plain": _plain, "cell": _cell}
    template = Path(__file__).with_name(f"bringup.{'html' if is_html else 'md'}.j2")
    by_chapter = {CHAPTER_TITLES[chapter]: [row for row in rows if row.chapter is chapter] for chapter in Chapter}
    return environment.from_string(template.read_text("utf-8")).render(
        rows=rows,
        chapters={title: own for title, own in by_chapter.items() if own},
        cards=BY_ID,
        signs=SIGNS,
        hosts=hosts,
        changes=changes,
        now_wall_s=now_wall_s,
        date=_date,
        counts=counts,
        about=about,
        commands=commands,
        gauge_lines=gauge_lines,
        gauge_text=_gauge_text,
    )


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Without what Markdown or HTML would take for its own: parts of it come from the nodes."""
    return text.replace("<", "&lt;").replace("`", "'").replace("\n", " ")


def _date(wall_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(wall_s))
