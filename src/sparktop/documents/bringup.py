"""The bring-up page: chapters, their checks, what each found, and what to do. Pure."""

from __future__ import annotations

import html
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len

from sparktop.bringup.card import by_action
from sparktop.bringup.catalogue import BY_ID
from sparktop.documents.prospect import SIGNS
from sparktop.model.bringup import CHAPTER_TITLES, Changed, Chapter, CheckResult, Gauge
from sparktop.model.finding import Remedy
from sparktop.model.state import State
from sparktop.text.bars import gauge
from sparktop.text.lines import BLANK, Line, hanging, wrapped
from sparktop.text.units import age

PAGE_CELLS = 100
"""Width of the bars in the page to keep."""
_NOUNS = {
    State.FAILED: "failed",
    State.WARNING: "to look at",
    State.UNREACHED: "not reached",
    State.UNKNOWN: "unknown",
    State.SKIPPED: "skipped",
    State.PASSED: "passed",
}


def chapter_lines(
    chapter: Chapter, rows: Sequence[CheckResult], width: int, *, now_wall_s: float, shows_all: bool = True
) -> list[Line]:
    """One chapter: its title with counts, a row for each check and node, and below what is wrong why and what to do.

    Args:
        shows_all: False: rows that passed are only counted.
    """
    lines = [heading(chapter, rows)]
    several = len({row.nodes for row in rows if len(row.nodes) == 1}) > 1
    for row in merged(rows):
        if shows_all or row.state is not State.PASSED:
            lines += row_lines(row, width, now_wall_s=now_wall_s, names_node=several or len(row.nodes) > 1)
    return [*lines, BLANK]


def heading(chapter: Chapter, rows: Iterable[CheckResult]) -> Line:
    """ "Machine   7 passed, 1 failed"."""
    return Line.of((CHAPTER_TITLES[chapter], "heading"), (f"  {counts(rows)}", "quiet"))


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
    head = [
        (f"{glyph} ", tone),
        (f"{node}  " if node else "", "quiet"),
        (f"{card.title}:" if row.found else card.title, "value"),
    ]
    kept = f", {_since(row, now_wall_s)}" if row.is_kept else ""
    text = f"{row.found}{kept}"
    first = Line.of(*head)
    room = width - first.width - 3
    is_short = len(text) <= room
    lines = [first + Line.of(("  ", ""), (text, tone if row.is_problem else "quiet"))] if is_short else [first]
    if not is_short:
        lines += _indented(text, width, tone if row.is_problem else "quiet")
    lines += gauge_lines(row, width)
    if row.is_problem:
        lines += _indented(card.why, width, "quiet")
    if row.state is not State.PASSED or row.remedies:
        for remedy in row.remedies:
            lines += _remedy_lines(remedy, row, width)
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
        lines += [BLANK]
    for remedy in row.remedies:
        lines += _remedy_lines(remedy, row, width, indent=0)
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
    """ "spark1 & spark2", "vllm-qwen36 on spark1": what the row is about."""
    nodes = " & ".join(row.nodes)
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
    return [
        step.removeprefix(f"on {node}: ") if (node := _node_of(step, row)) else step
        for remedy in row.remedies
        for step in (*((typed(remedy, row),) if remedy.action else ()), *remedy.steps)
    ]


def _node_of(step: str, row: CheckResult) -> str:
    return next((node for node in row.nodes if step.startswith(f"on {node}: ")), "")


def _remedy_lines(remedy: Remedy, row: CheckResult, width: int, indent: int = 4) -> list[Line]:
    margin = Line.of(" " * indent)
    lines = [margin + line for line in hanging(Line.of(("→ ", "info")), remedy.title, width - indent, "info")]
    for step in (*((typed(remedy, row),) if remedy.action else ()), *remedy.steps):
        lines += [margin + line for line in hanging(Line.of("  "), step, width - indent)]
    return lines


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


def _indented(text: str, width: int, tone: str) -> list[Line]:
    return [Line.of("    ") + line for line in wrapped(text, max(20, width - 4), tone)]


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
    return {"version": 1, "checks": [_row_data(row) for row in rows]}


def _row_data(row: CheckResult) -> dict[str, Any]:
    card = BY_ID[row.check]
    return {
        "check": row.check,
        "chapter": str(row.chapter),
        "nodes": list(row.nodes),
        "subject": row.subject or None,
        "state": str(row.state),
        "title": card.title,
        "looks_at": card.looks_at,
        "why": card.why,
        "found": row.found,
        "remedies": [
            {
                "title": remedy.title,
                "steps": list(remedy.steps),
                "action": remedy.action,
                "command": typed(remedy, row) if remedy.action else None,
            }
            for remedy in row.remedies
        ],
        "gauges": [
            {
                "label": one.label,
                "value": one.value,
                "unit": one.unit,
                "healthy": list(one.healthy),
                "state": str(one.state),
            }
            for one in row.gauges
        ],
        "proven_wall_s": row.proven_wall_s,
        "is_kept": row.is_kept,
        "sources": list(card.sources),
        "root": card.root,
    }


# --- the page to keep


def as_markdown(
    rows: Sequence[CheckResult], *, hosts: Sequence[str], now_wall_s: float, changes: Sequence[Changed] = ()
) -> str:
    """The page to keep: the machines, what was proven with figures, what was changed, what is left."""
    title = f"# Bring-up of {' and '.join(hosts)}\n\n{_date(now_wall_s)}. {counts(rows)}.\n"
    return title + "".join(_chapter_markdown(chapter, rows) for chapter in Chapter) + _changes_markdown(changes)


def _changes_markdown(changes: Sequence[Changed]) -> str:
    if not changes:
        return ""
    rows = "".join(f"| {' | '.join(map(_cell, _change_cells(change)))} |\n" for change in changes)
    return f"\n## {_CHANGED}\n\n| when | where | what | result |\n| --- | --- | --- | --- |\n{rows}"


_CHANGED = "What was changed from this machine"


def _change_cells(change: Changed) -> tuple[str, ...]:
    return (_date(change.wall_s), " & ".join(change.nodes), change.title, change.result)


def _chapter_markdown(chapter: Chapter, rows: Sequence[CheckResult]) -> str:
    own = [row for row in rows if row.chapter is chapter]
    if not own:
        return ""
    body = [f"\n## {CHAPTER_TITLES[chapter]}\n\n| | check | node | found |\n| --- | --- | --- | --- |\n"]
    for row in own:
        cells = (row.state.value, BY_ID[row.check].title, about(row), row.found)
        body.append("| " + " | ".join(_cell(cell) for cell in cells) + " |\n")
    for row in own:
        if bars := gauge_lines(row, PAGE_CELLS, indent=0):
            body += [
                f"\n{_plain(about(row))}, {row.check}:\n\n```text\n",
                *(f"{line.plain}\n" for line in bars),
                "```\n",
            ]
    for row in own:
        if row.is_problem and row.remedies:
            body.append(f"\n{_plain(about(row))}, {row.check}:\n\n")
            body += [f"- {_plain(remedy.title)}\n" for remedy in row.remedies]
            body += ["\n```sh\n", *(f"{step.replace('`', chr(39))}\n" for step in commands(row)), "```\n"]
    return "".join(body)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Without what Markdown or HTML would take for its own: parts of it come from the nodes."""
    return text.replace("<", "&lt;").replace("`", "'").replace("\n", " ")


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c }
h2 { margin-top: 2rem } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top; border-bottom: 1px solid #ddd }
.passed { color: #2d7d2d } .warning { color: #9a6700 } .failed { color: #c0262d } .skipped, .unknown { color: #666 }
pre { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto } .why { color: #555 }
.gauge { display: grid; grid-template-columns: 18rem 14rem 1fr; gap: .8rem; align-items: center }
meter { width: 100% }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd } pre { background: #222 }
td, th { border-color: #333 } .why { color: #aaa } }
"""


def as_html(
    rows: Sequence[CheckResult], *, hosts: Sequence[str], now_wall_s: float, changes: Sequence[Changed] = ()
) -> str:
    """The page as one HTML file: no script, nothing loaded from elsewhere."""
    title = f"Bring-up of {' and '.join(hosts)}"
    chapters = "".join(_chapter_html(chapter, rows) for chapter in Chapter)
    if changes:
        lines = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _change_cells(change))}</tr>\n"
            for change in changes
        )
        chapters += f"<h2>{_CHANGED}</h2>\n<table>\n{lines}</table>\n"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style>\n<h1>{html.escape(title)}</h1>\n"
        f"<p>{_date(now_wall_s)}. {html.escape(counts(rows))}.</p>\n{chapters}</html>\n"
    )


def _chapter_html(chapter: Chapter, rows: Sequence[CheckResult]) -> str:
    own = [row for row in rows if row.chapter is chapter]
    if not own:
        return ""
    cells = "".join(_row_html(row) for row in own)
    return f"<h2>{html.escape(CHAPTER_TITLES[chapter])}</h2>\n<table>\n{cells}</table>\n"


def _row_html(row: CheckResult) -> str:
    card = BY_ID[row.check]
    found = html.escape(row.found) + "".join(map(_gauge_html, row.gauges))
    if row.is_problem:
        found += f'<div class="why">{html.escape(card.why)}</div>'
        found += "".join(f"<div>→ {html.escape(remedy.title)}</div>" for remedy in row.remedies)
        steps = html.escape("\n".join(commands(row)))
        found += f"<pre>{steps}</pre>" if steps else ""
    sign = f'<td class="{row.state}">{SIGNS[row.state][0]} {row.state}</td>'
    nodes = html.escape(about(row))
    return f"<tr>{sign}<td>{html.escape(card.title)}</td><td>{nodes}</td><td>{found}</td></tr>\n"


def _gauge_html(one: Gauge) -> str:
    full = max(one.value, one.healthy[1])
    low = one.healthy[0]
    return (
        f'<div class="gauge {one.state}"><span class="why">{html.escape(one.label)}</span>'
        f'<meter min="0" max="{full:g}" low="{low:g}" value="{one.value:g}"></meter>'
        f"<span>{html.escape(_gauge_text(one))}</span></div>"
    )


def _date(wall_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(wall_s))
