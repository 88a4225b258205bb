"""One finding as lines of a width: all details, or a summary for below the list. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import cause_of, families
from sparktop.documents.finding_tree import SIGNS, AttentionState, nodes_cells, row_line, rows, unmarked
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, LogPlace, Phase, Remedy
from sparktop.text.lines import BLANK, UNCUT, Line, hanging, indented, is_uncut, noted, spaced, titled, wrapped
from sparktop.text.sentences import counted
from sparktop.text.units import clock_time, duration

INDENT = 2


SOURCE_CELLS = 30
"""Longer source names are cut, to leave room for the evidence's text."""


SHORT_EVIDENCE = 3


LISTED_EVIDENCE = 2


MUCH = 14
"""From this height on the beginning of the details is shown instead of a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding with what is needed to show it."""

    finding: Finding
    findings: tuple[Finding, ...] = ()
    """All findings of the fleet state, to find its cause and its consequences."""
    standing: AttentionState = AttentionState.OPEN
    snoozed_until_s: float | None = None
    now_wall_s: float = 0.0
    """0: not known."""


def headline(findings: Sequence[Finding]) -> str:
    """The first finding's nodes and title, and how many more there are."""
    first = findings[0]
    where = f"{counted(first.nodes)}: " if first.nodes and not first.names_its_nodes else ""
    more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
    return f"{where}{first.title}{more}"


def details(view: FindingView, width: int) -> list[Line]:
    """All details of a finding."""
    return [*heading(view, width), BLANK, *_details_body(view, width)]


def pages(findings: Sequence[Finding], width: int) -> list[Line]:
    """All details of several findings, for the command line; what follows from one is folded under it."""
    views = [FindingView(finding=family[0], findings=tuple(family)) for family in families(findings)]
    return spaced(
        [*heading(view, width), BLANK, *indented(_details_body(view, width - INDENT, is_printed=True))]
        for view in views
    )


def listing(findings: Sequence[Finding], width: int, fleet: Sequence[str], now_wall_s: float) -> list[Line]:
    """The findings as a tree, each with a summary below and the rule that found it, for the command line."""

    tree = rows(findings, unmarked)
    nodes = nodes_cells(tree, fleet)
    blocks: list[list[Line]] = []
    for row in tree:
        cells = len(row.stem) + INDENT
        line = row_line(row, width, fleet, now_wall_s, nodes=nodes)
        is_cut = row.finding.figures not in line.plain
        figures = wrapped(row.finding.figures, width - cells, "value") if is_cut else []
        summary = [
            *figures,
            *_explanation(row.finding, width - cells),
            *_evidence(row.finding.evidence[:LISTED_EVIDENCE], width - cells),
            *_first_remedy(row.finding, width - cells),
            Line.of((f"rule {row.finding.rule}", "quiet")),
        ]
        blocks.append([line, *indented(summary, cells)])
    return spaced(blocks)


def _details_body(view: FindingView, width: int, *, is_printed: bool = False) -> list[Line]:
    """The details without the heading."""
    finding, room = view.finding, width - INDENT
    remedies = [
        line
        for number, remedy in enumerate(finding.remedies, 1)
        for line in remedy_lines(number, remedy, room, is_printed=is_printed)
    ]
    is_to_be_settled = finding.confidence is Confidence.SUSPECTED and finding.settles
    sections = (
        ("What was seen", _evidence(finding.evidence, room, now_wall_s=view.now_wall_s)),
        ("To be sure", wrapped(finding.settles, room) if is_to_be_settled else []),
        ("What to do, surest and cheapest first" if finding.remedies[1:] else "What to do", remedies),
        ("Why this and nothing else", noted("·", "faint", finding.distinction, room)),
        ("Holds for", wrapped(finding.scope, room) if finding.scope else []),
        ("Belongs to", [] if is_printed else _cause(view, room)),
        ("What belongs to it", _folded(view, room) if is_printed else _consequences(view, room)),
        ("Sources", noted("·", "faint", (*finding.references, f"rule {finding.rule}"), room, "quiet")),
    )
    explanation = indented(wrapped(finding.explanation, room)) if finding.explanation else []
    return spaced([explanation, *(titled(title, body, indent=INDENT) for title, body in sections)])


def short(view: FindingView, width: int, height: int, *, with_brief: bool = False) -> list[Line]:
    """The details if they fit in `height` lines, else a summary: explanation, best evidence, first remedy.

    `with_brief`: begin with the figures, which had no room in the list.
    """
    finding = view.finding
    brief = wrapped(finding.figures, width, "value", 1) if with_brief and finding.figures else []
    height -= len(brief)
    whole = _details_body(view, width)
    if len(whole) <= height:
        return [*brief, *whole]
    if height >= MUCH:
        return [*brief, *whole[: height - 1], Line.of(("  … ", "quiet"), ("d", "key"), (" shows all", "quiet"))]
    remedy = [line.cut(width) for line in _first_remedy(finding, UNCUT)[:3]]
    explanation = _explanation(finding, width)
    evidence = _evidence(finding.evidence[:SHORT_EVIDENCE], width, now_wall_s=view.now_wall_s, one_line=True)
    for end in (remedy, remedy[: max(0, len(remedy) - 2)]):  # the remedy's steps go before the evidence does
        if len(explanation) + len(evidence) + len(end) + 2 <= height:
            return [*brief, *[*explanation, BLANK, *evidence, BLANK, *end][:height]]
    room = max(1, height - len(remedy[:1]))
    explanation = wrapped(finding.explanation, width, "", room) if finding.explanation else []
    return [*brief, *[*explanation, *remedy[:1]][:height]]


def _explanation(finding: Finding, width: int) -> list[Line]:
    """The explanation, and what would make a suspected finding sure."""
    lines = wrapped(finding.explanation, width) if finding.explanation else []
    if finding.confidence is Confidence.SUSPECTED and finding.settles:
        lines += wrapped(f"To be sure: {finding.settles}", width, "quiet")
    return lines


def _first_remedy(finding: Finding, width: int) -> list[Line]:
    """The first remedy with its cost, and its steps as they would be typed."""
    if not finding.remedies:
        return []
    remedy = finding.remedies[0]
    lines = hanging(Line.of(("→ ", "info")), remedy.title, width, "value")
    lines[-1] += Line.of((f"  costs {remedy.cost}" if remedy.cost else "", "quiet"))
    return [*lines, *(Line.of("  ", (step, "quiet")) for step in remedy.steps)]


def heading(view: FindingView, width: int) -> list[Line]:
    """The title, then severity, confidence, duration, nodes and figures."""
    finding = view.finding
    glyph, tone = SIGNS[finding.severity]
    is_resolved = finding.phase is Phase.RESOLVED
    head = Line.of((f"{glyph} ", "quiet" if is_resolved else tone))
    lines = hanging(head, finding.title, width, "quiet" if is_resolved else "title")
    facts = [str(finding.severity), str(finding.confidence)]
    if finding.since_wall_s is not None and not is_resolved:
        lasted = f", {duration(view.now_wall_s - finding.since_wall_s)}" if view.now_wall_s else ""
        facts.append(f"since {clock_time(finding.since_wall_s, view.now_wall_s).strip()}{lasted}")
    if finding.resolved_wall_s is not None and is_resolved:
        facts.append(f"resolved {duration(view.now_wall_s - finding.resolved_wall_s)} ago")
    if finding.nodes:
        facts.append(" + ".join(finding.nodes))
    if finding.is_unseen:
        facts.append("as last seen: the node doesn't answer")
    if view.snoozed_until_s is not None:
        facts.append(f"snoozed until {clock_time(view.snoozed_until_s)}")
    elif view.standing is AttentionState.ACKNOWLEDGED:
        facts.append("acknowledged")
    tone = tone if finding.severity is not Severity.INFO and not is_resolved else "quiet"
    state = Line.of((facts[0], tone), (" · " + " · ".join(facts[1:]), "quiet"))
    lines += [Line.of("  ") + state] if state.width + 2 <= width else indented(wrapped(state.plain, width - 2, "quiet"))
    if finding.figures:
        lines += indented(wrapped(finding.figures, width - INDENT, "value"))
    return lines


def _evidence(
    evidence: Sequence[Evidence], width: int, *, now_wall_s: float = 0.0, one_line: bool = False
) -> list[Line]:
    """The evidence: time, source and text, in columns where there is room."""
    times = [clock_time(item.wall_s, now_wall_s) if item.wall_s is not None else "" for item in evidence]
    sources = [item.source + (f":{item.line}" if item.line is not None else "") for item in evidence]
    time_cells = max(map(len, times), default=0)
    longest = UNCUT if is_uncut(width) else SOURCE_CELLS
    columned = [len(source) for source in sources if one_line or len(source) <= longest]
    source_cells = min(longest, max(columned, default=0))
    most_cells = width // 2 if one_line else width * 2 // 5  # a narrow column of text takes many lines
    lines: list[Line] = []
    for time_text, source, item in zip(times, sources, evidence, strict=True):
        head = Line.of((f"{time_text:<{time_cells}}  ", "quiet")) if time_cells else Line()
        head += Line.of((source, "quiet")).fit(source_cells) + Line.of("  ")
        if head.width > most_cells or (len(source) > longest and not one_line):  # a file's line number is never cut
            lines.append(Line.of((f"{time_text}  {source}".strip(), "quiet")))
            lines += indented(wrapped(item.text, width - 2)[: 1 if one_line else None])
            continue
        lines += hanging(head, item.text, width, "", 1 if one_line else 0)
    return lines


def remedy_lines(number: int, remedy: Remedy, width: int, *, is_printed: bool = False) -> list[Line]:
    """A remedy with its number, steps and cost; `is_printed`: steps on one line each, to be pasted."""
    lines = hanging(Line.of((f"{number}  ", "info")), remedy.title, width, "value")
    for step in remedy.steps:
        tone = {"- ": "critical", "+ ": "ok"}.get(step[:2], "")  # lines of a diff
        lines += (
            [Line.of("     ", (step, tone))]
            if is_printed
            else hanging(Line.of("   ", ("› ", "faint")), step, width, tone)
        )
    if remedy.cost:
        lines += indented(wrapped(f"costs {remedy.cost}", width - 3, "quiet"), 3)
    return lines


def _cause(view: FindingView, width: int) -> list[Line]:
    finding = view.finding
    if (cause := cause_of(finding, view.findings)) is not None:
        return [_named(cause, width)]
    return [Line.of((finding.caused_by, "quiet"))] if finding.caused_by else []


def _consequences(view: FindingView, width: int) -> list[Line]:
    finding, findings = view.finding, view.findings
    followers = [other for other in findings if other.caused_by == finding.rule and other.key != finding.key]
    return [_named(other, width) for other in followers if cause_of(other, findings) is finding]


def _folded(view: FindingView, width: int) -> list[Line]:
    """All that follows from the finding, each with the place where it was seen."""
    lines = []
    for other in dict.fromkeys(other for other in view.findings if other.key != view.finding.key):
        seen = next((f"  {each.source}:{each.line}" for each in other.evidence if each.line is not None), "")
        lines.append(_named(other, width - len(seen)) + Line.of((seen, "quiet")))
    return lines


def _named(finding: Finding, width: int) -> Line:
    glyph, tone = SIGNS[finding.severity]
    nodes = f"{counted(finding.nodes)}  " if finding.nodes else ""
    return Line.of((f"{glyph} ", tone), (nodes, "quiet"), (finding.title, "")).cut(width)


def evidence_log(finding: Finding) -> LogPlace | None:
    """The log of the first evidence that is from a log; None where none is."""
    return next((evidence.log for evidence in finding.evidence if evidence.log is not None), None)
