"""All there is to say of one finding, as lines of a width: the details, and in short below the list. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparktop.diagnose.order import cause_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase, Remedy
from sparktop.ui.attention import Standing
from sparktop.ui.format import clock_time, duration
from sparktop.ui.panes.finding_rows import SIGNS
from sparktop.ui.widgets.ink import BLANK, Line, wrapped

INDENT = 2
SOURCE_CELLS = 30
"""A longer name of a source is cut: the text beside it is what counts."""
SHORT_EVIDENCE = 3
MUCH = 14
"""From so many lines on the beginning of all there is to say is better than a gist."""
KERNEL_LOG = " kernel log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One finding and what else is needed to tell of it."""

    finding: Finding
    findings: tuple[Finding, ...] = ()
    """All of the picture, for what it follows from and what follows from it."""
    standing: Standing = Standing.OPEN
    snoozed_until_s: float | None = None
    now_wall_s: float = 0.0


def details(told: Told, width: int) -> list[Line]:
    """The whole of it."""
    return [*heading(told, width), BLANK, *_body(told, width)]


def _body(told: Told, width: int) -> list[Line]:
    """All but what stands in its row of the list."""
    finding = told.finding
    lines = _indented(wrapped(finding.explanation, width - INDENT)) if finding.explanation else []
    lines += _section("What was seen", _evidence(finding.evidence, width - INDENT))
    if finding.confidence is Confidence.SUSPECTED and finding.settles:
        lines += _section("What would settle it", wrapped(finding.settles, width - INDENT))
    remedies = [line for n, each in enumerate(finding.remedies, 1) for line in _remedy(n, each, width - INDENT)]
    lines += _section("What to do, the surest and cheapest first" if finding.remedies[1:] else "What to do", remedies)
    lines += _section("Why this and nothing else", _points(finding.distinction, width - INDENT))
    lines += _section("Holds for", wrapped(finding.scope, width - INDENT) if finding.scope else [])
    lines += _relations(told, width)
    sources = [*finding.references, f"rule {finding.rule}"]
    return lines + _section("Sources", _points(sources, width - INDENT, tone="quiet"))


def short(told: Told, width: int, height: int, *, with_brief: bool = False) -> list[Line]:
    """In so many lines all of it, or the gist: what a colleague would say, the best of the evidence, a remedy.

    `with_brief`: its figures had no room in the list.
    """
    finding = told.finding
    brief = wrapped(finding.figures, width, "value", 1) if with_brief and finding.figures else []
    return [*brief, *_short(told, width, height - len(brief))]


def _short(told: Told, width: int, height: int) -> list[Line]:
    whole = _body(told, width)
    if len(whole) <= height:
        return whole
    if height >= MUCH:
        return [*whole[: height - 1], Line.of(("  … ", "quiet"), ("d", "key"), (" shows all", "quiet"))]
    finding = told.finding
    remedy = finding.remedies[0] if finding.remedies else None
    end: list[Line] = []
    if remedy is not None:
        cost = f"  costs {remedy.cost}" if remedy.cost else ""
        end = [Line.of(("→ ", "info"), (remedy.title, "value"), (cost, "quiet")).cut(width)]
        end += [Line.of(("  ", ""), (step, "quiet")).cut(width) for step in remedy.steps[:2]]
    said = wrapped(finding.explanation, width) if finding.explanation else []
    if finding.confidence is Confidence.SUSPECTED and finding.settles:
        said += wrapped(f"To be sure: {finding.settles}", width, "quiet")
    seen = _evidence(finding.evidence[:SHORT_EVIDENCE], width, one_line=True)
    for drop in (0, 2):  # the remedy's steps go before the evidence does
        kept = end[: len(end) - drop] if drop else end
        if len(said) + len(seen) + len(kept) + 2 <= height:
            return [*said, BLANK, *seen, BLANK, *kept][:height]
    said = wrapped(finding.explanation, width, "", max(1, height - len(end[:1]))) if finding.explanation else []
    return [*said, *end[:1]][:height]


def plain(told: Told) -> str:
    """For the clipboard: as it is drawn, a hundred cells wide."""
    return "\n".join(line.plain.rstrip() for line in details(told, 100))


def heading(told: Told, width: int) -> list[Line]:
    """What it is in a sentence, then how bad, how sure, since when and where."""
    finding = told.finding
    glyph, tone = SIGNS[finding.severity]
    over = finding.phase is Phase.RESOLVED
    first, *rest = wrapped(finding.title, width - INDENT, "quiet" if over else "title")
    lines = [Line.of((f"{glyph} ", "quiet" if over else tone)) + first, *_indented(rest)]
    facts = [str(finding.severity), str(finding.confidence)]
    if finding.since_wall_s is not None and not over:
        facts.append(f"since {clock_time(finding.since_wall_s)}, {duration(told.now_wall_s - finding.since_wall_s)}")
    if finding.resolved_wall_s is not None and over:
        facts.append(f"resolved {duration(told.now_wall_s - finding.resolved_wall_s)} ago")
    if finding.nodes:
        facts.append(" + ".join(finding.nodes))
    if finding.is_unseen:
        facts.append("as last seen: the node doesn't answer")
    if told.snoozed_until_s is not None:
        facts.append(f"snoozed until {clock_time(told.snoozed_until_s)}")
    elif told.standing is Standing.ACKNOWLEDGED:
        facts.append("acknowledged")
    tone = tone if finding.severity is not Severity.INFO and not over else "quiet"
    state = Line.of((facts[0], tone), (" · " + " · ".join(facts[1:]), "quiet"))
    lines += (
        [Line.of("  ") + state] if state.width + 2 <= width else _indented(wrapped(state.plain, width - 2, "quiet"))
    )
    if finding.figures:
        lines += _indented(wrapped(finding.figures, width - INDENT, "value"))
    return lines


def _section(title: str, body: Sequence[Line]) -> list[Line]:
    return [BLANK, Line.of((title, "title")), *_indented(body)] if body else []


def _indented(lines: Iterable[Line], cells: int = INDENT) -> list[Line]:
    return [Line.of(" " * cells) + line for line in lines]


def _points(texts: Sequence[str], width: int, tone: str = "") -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        first, *rest = wrapped(text, width - 2, tone)
        lines += [Line.of(("· ", "faint")) + first, *_indented(rest)]
    return lines


def _evidence(evidence: Sequence[Evidence], width: int, *, one_line: bool = False) -> list[Line]:
    """When, where, what: the times and places in columns, where there is room for them."""
    times = [clock_time(one.wall_s) if one.wall_s is not None else "" for one in evidence]
    places = [one.source + (f":{one.line}" if one.line is not None else "") for one in evidence]
    at = max(map(len, times), default=0)
    named = min(SOURCE_CELLS, max(map(len, places), default=0))
    lines: list[Line] = []
    for time_text, place, one in zip(times, places, evidence, strict=True):
        head = Line.of((f"{time_text:<{at}}  ", "quiet")) if at else Line()
        head += Line.of((place, "quiet")).fit(named) + Line.of("  ")
        if head.width > width // 2:
            lines.append(Line.of((f"{time_text}  {place}".strip(), "quiet")).cut(width))
            lines += _indented(wrapped(one.text, width - 2)[: 1 if one_line else None])
            continue
        first, *rest = wrapped(one.text, width - head.width, "", 1 if one_line else 0)
        lines += [head + first, *_indented(rest, head.width)]
    return lines


def _remedy(number: int, remedy: Remedy, width: int) -> list[Line]:
    first, *rest = wrapped(remedy.title, width - 3, "value")
    lines = [Line.of((f"{number}  ", "info")) + first, *_indented(rest, 3)]
    for step in remedy.steps:
        begin, *more = wrapped(step, width - 5)
        lines += [Line.of("   ", ("› ", "faint")) + begin, *_indented(more, 5)]
    if remedy.cost:
        lines += _indented(wrapped(f"costs {remedy.cost}", width - 3, "quiet"), 3)
    return lines


def _relations(told: Told, width: int) -> list[Line]:
    """What it follows from, and what follows from it."""
    finding, all_of_them = told.finding, told.findings
    cause = cause_of(finding, all_of_them)
    lines = _section("Follows from", [_named(cause, width - INDENT)] if cause is not None else [])
    if cause is None and finding.caused_by:
        lines += _section("Follows from", [Line.of((finding.caused_by, "quiet"))])
    after = [one for one in all_of_them if one.key != finding.key and cause_of(one, all_of_them) is finding]
    return lines + _section("What follows from it", [_named(one, width - INDENT) for one in after])


def _named(finding: Finding, width: int) -> Line:
    glyph, tone = SIGNS[finding.severity]
    nodes = f"{' + '.join(finding.nodes)}  " if finding.nodes else ""
    return Line.of((f"{glyph} ", tone), (nodes, "quiet"), (finding.title, "")).cut(width)


@dataclass(frozen=True, slots=True)
class Place:
    """Where evidence stands: a node's kernel log, or an engine's log."""

    node: str
    engine: str = ""
    """Empty: the kernel's."""


def place_of(finding: Finding) -> Place | None:
    """The log that holds the first evidence that is from one."""
    for evidence in finding.evidence:
        if evidence.source.endswith(KERNEL_LOG):
            return Place(evidence.source.removesuffix(KERNEL_LOG))
        engine, at, node = evidence.source.rpartition(" @ ")
        if at:
            return Place(node, engine)
    return None
