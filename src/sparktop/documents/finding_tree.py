"""Findings as rows of a tree, causes above consequences, drawn in aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from rich.cells import cell_len

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import ENGINE_DOWN, cause_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase
from sparktop.text.lines import Line
from sparktop.text.units import duration

SIGNS: dict[Severity, tuple[str, str]] = {
    Severity.CRITICAL: ("✖", "critical"),
    Severity.WARNING: ("▲", "warning"),
    Severity.INFO: ("•", "info"),
}
"""Severity -> (glyph, tone)."""


TITLE_TONES = {Severity.CRITICAL: "strong", Severity.WARNING: "", Severity.INFO: ""}


MIN_BRIEF = 14
"""Figures are left out when they would be cut to fewer cells than this."""


MIN_SINCE = 6
"""Least width of the column, that of "59 min", so that a longer time doesn't move the others."""


STEP = 8


class AttentionState(StrEnum):
    """What the operator has done about a finding."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    RESOLVED = "resolved"


StandingOf = Callable[[Finding], AttentionState]


def unmarked(finding: Finding) -> AttentionState:
    """Whether a finding is open or resolved, where the operator can't mark it."""
    return AttentionState.RESOLVED if finding.phase is Phase.RESOLVED else AttentionState.OPEN


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding as a row of the tree."""

    finding: Finding
    standing: AttentionState
    stem: str = ""
    """The tree lines before it: "", "└ ", "│ ├ "."""

    @property
    def key(self) -> object:
        return self.finding.key


def rows(findings: Sequence[Finding], standing_of: StandingOf) -> tuple[FindingRow, ...]:
    """The rows to show: current findings, each consequence under its cause, then the resolved ones, latest first.

    Snoozed findings are left out.
    """
    with_standing = [(finding, standing_of(finding)) for finding in findings]
    current = [
        finding for finding, standing in with_standing if standing in (AttentionState.OPEN, AttentionState.ACKNOWLEDGED)
    ]
    stems = _stems(current)
    standings = {id(finding): standing for finding, standing in with_standing}
    firing = [FindingRow(item, standings[id(item)], stem) for item, stem in zip(current, stems, strict=True)]
    resolved = [finding for finding, standing in with_standing if standing is AttentionState.RESOLVED]
    resolved.sort(key=lambda item: -(item.resolved_wall_s or 0.0))
    return (*firing, *(FindingRow(finding, AttentionState.RESOLVED) for finding in resolved))


class Order(StrEnum):
    """How the current findings follow one another; a cause keeps its consequences below it."""

    WORST = "worst first"
    NEWEST = "newest first"
    NODE = "by node"


def in_order(shown: Sequence[FindingRow], order: Order) -> list[FindingRow]:
    """The rows in this order; those of one rank stay worst first, resolved ones last."""
    families: list[list[FindingRow]] = []
    for row in shown:
        if row.stem and families:
            families[-1].append(row)
        else:
            families.append([row])
    ranks: Mapping[Order, Callable[[FindingRow], tuple[float | str, ...]]] = {
        Order.WORST: lambda root: (),
        Order.NEWEST: lambda root: (-(root.finding.since_wall_s or 0.0),),
        Order.NODE: lambda root: root.finding.nodes,
    }
    families.sort(key=lambda rows_: (rows_[0].standing is AttentionState.RESOLVED, *ranks[order](rows_[0])))
    return [row for members in families for row in members]


def searched_text(row: FindingRow) -> str:
    """What a filter of the findings looks at: severity, title, rule, nodes, engine and standing."""
    finding = row.finding
    return " ".join((finding.severity, finding.title, finding.rule, *finding.nodes, finding.subject, row.standing))


def family(finding: Finding, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding and all its current consequences."""
    firing = [member for member in findings if member.phase is not Phase.RESOLVED]
    members = [finding]
    for candidate in firing:  # a cause stands before its consequences
        cause = cause_of(candidate, firing)
        if cause is not None and any(cause.key == member.key for member in members) and candidate.key != finding.key:
            members.append(candidate)
    return tuple(members)


def _stems(findings: Sequence[Finding]) -> list[str]:
    """The tree lines of each finding, in reading order; a cause that comes later counts as none."""
    index_of = {id(finding): index for index, finding in enumerate(findings)}
    parents: list[int | None] = []
    for index, finding in enumerate(findings):
        cause = cause_of(finding, findings)
        parents.append(index_of[id(cause)] if cause is not None and index_of[id(cause)] < index else None)
    stems: list[str] = []
    for index, parent in enumerate(parents):
        if parent is None:
            stems.append("")
            continue
        stem = "├ " if _has_later(parents, index) else "└ "
        ancestor = parent
        while (grandparent := parents[ancestor]) is not None:
            stem = ("│ " if _has_later(parents, ancestor) else "  ") + stem
            ancestor = grandparent
        stems.append(stem)
    return stems


def with_own_stems(visible: Sequence[FindingRow]) -> list[FindingRow]:
    """The rows with tree lines for these rows alone, as a cause may be hidden."""
    stems = _stems([row.finding for row in visible])
    return [replace(row, stem=stem) for row, stem in zip(visible, stems, strict=True)]


def _has_later(parents: Sequence[int | None], index: int) -> bool:
    """Whether another consequence of the same cause comes below this one."""
    return parents[index] in parents[index + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The width of each column in cells."""

    nodes: int
    """Node names, in the rows that have them."""
    said: int
    """Tree lines, sign, nodes, title, and the figures in the cells that are left."""
    word: int
    """How sure, or the operator's mark; 0: no such column."""
    since: int
    says_sure: bool = True
    """Whether "confirmed" is shown, or only less sure words."""


def columns(visible: Sequence[FindingRow], width: int, fleet: Sequence[str], now_wall_s: float) -> Columns:
    """The columns for these rows in `width` cells; `fleet` are the names of all watched nodes.

    Titles take room first, then figures; "confirmed" is shown only where it cuts no figures. The column of titles is a
    multiple of `STEP` cells wide, so that one digit more or less doesn't move the others.
    """
    nodes = max((cell_len(nodes_text(row.finding, fleet)) for row in visible), default=0)
    since = max((cell_len(since_text(row, now_wall_s)) for row in visible), default=0)
    since = max(since, MIN_SINCE) if since else 0
    head_cells = max((_head_and_figures(row, nodes, fleet).width for row in visible), default=0)
    head_cells = -(-head_cells // STEP) * STEP
    word = room = 0
    for says_sure in (True, False):
        word = max((cell_len(word_text(row, says_sure=says_sure)) for row in visible), default=0)
        room = width - (since + 2 if since else 0) - (word + 2 if word else 0)
        if head_cells <= room:
            break
    return Columns(nodes=nodes, said=max(1, min(head_cells, room)), word=word, since=since, says_sure=says_sure)


def row_line(row: FindingRow, to: Columns, fleet: Sequence[str], now_wall_s: float) -> Line:
    """One row drawn in these columns."""
    text = _head_and_figures(row, to.nodes, fleet)
    head = _head(row, to.nodes, fleet)
    word = word_text(row, says_sure=to.says_sure)
    room = _room(row, to)
    if text.width > room and room - head.width < MIN_BRIEF + 2:
        text = head  # too few cells for the figures
    cells = [text.fit(room)]
    if word:
        cells.append(Line.of("  ", (word, "warning" if word == Confidence.SUSPECTED else "quiet")).fit(to.word + 2))
    if to.since:
        cells.append(Line.of("  ") + Line.of((since_text(row, now_wall_s), "quiet")).right(to.since))
    return Line(tuple(run for cell in cells for run in cell.runs if run[0]))


def cuts_title(row: FindingRow, to: Columns, fleet: Sequence[str]) -> bool:
    """Whether the columns have no room for all of the row's title."""
    return _head(row, to.nodes, fleet).width > _room(row, to)


def whole_titles(row: FindingRow, fleet: Sequence[str], now_wall_s: float) -> Iterator[tuple[Line, Line]]:
    """(the row without columns and figures, what stands beside it), each time with less of that: time, how sure.

    Where even the last is too wide, the title's end goes: not its node, as the pane below may show the other one, nor
    that it is suspected.
    """
    word = word_text(row, says_sure=False)
    since = since_text(row, now_wall_s)
    short_word = "?" if word == Confidence.SUSPECTED else word
    tone = "warning" if word == Confidence.SUSPECTED else "quiet"
    nodes = cell_len(nodes_text(row.finding, fleet))
    head = _head(row, nodes, fleet)
    least_word = short_word if word == Confidence.SUSPECTED else ""
    for told_word, told_since in ((word, since), (word, ""), (short_word, ""), (least_word, "")):
        tail = Line.of("  ", (told_word, tone)) if told_word else Line()
        yield head, tail + (Line.of("  ", (told_since, "quiet")) if told_since else Line())


def cuts_brief(row: FindingRow, to: Columns, fleet: Sequence[str]) -> bool:
    """Whether the row has no room for all of its figures."""
    return bool(row.finding.figures) and _head_and_figures(row, to.nodes, fleet).width > _room(row, to)


def _room(row: FindingRow, to: Columns) -> int:
    """Cells for title and figures: a row without a word has that column's cells too."""
    has_word = not to.word or word_text(row, says_sure=to.says_sure)
    return to.said if has_word else to.said + 2 + to.word


def _head_and_figures(row: FindingRow, nodes: int, fleet: Sequence[str]) -> Line:
    """The row's head and figures; the figures are dimmer than the title."""
    head = _head(row, nodes, fleet)
    tone = "" if head.runs[-1][1] == "strong" else "quiet"
    return head + Line.of("  ", (row.finding.figures, tone)) if row.finding.figures else head


def _head(row: FindingRow, nodes: int, fleet: Sequence[str]) -> Line:
    """The row's tree lines, sign, nodes (unless the title names them) and title."""
    finding = row.finding
    glyph, tone = SIGNS[finding.severity]
    is_quiet = row.standing is not AttentionState.OPEN
    line = Line.of((row.stem, "faint"), (f"{glyph} ", "quiet" if is_quiet else tone))
    if nodes_label := nodes_text(finding, fleet):
        nodes_tone = "quiet" if is_quiet or finding.severity is Severity.INFO else tone
        line += Line.of((f"{nodes_label:<{nodes}}  ", nodes_tone))
    # Only root causes are bright.
    return line + Line.of((finding.title, "quiet" if is_quiet else "" if row.stem else TITLE_TONES[finding.severity]))


def nodes_text(finding: Finding, fleet: Sequence[str]) -> str:
    """ "spark1", "both"; "" where only one node is watched, the finding has none, or its title names them."""
    if len(fleet) < 2 or not finding.nodes or finding.names_its_nodes:
        return ""
    if len(finding.nodes) == len(fleet) == 2:
        return "both"
    return "+".join(finding.nodes)


def word_text(row: FindingRow, *, says_sure: bool) -> str:
    """The operator's mark or "resolved", else how sure the finding is."""
    if row.standing is not AttentionState.OPEN:
        return row.standing.value
    if row.finding.is_unseen:
        return "last seen"
    confidence = row.finding.confidence
    return confidence.value if says_sure or confidence is not Confidence.CONFIRMED else ""


def since_text(row: FindingRow, now_wall_s: float) -> str:
    """How long the finding has lasted, "2 min"; for a resolved one how long ago it ended, "3 min ago".

    Empty while its node doesn't answer: whether it still lasts isn't known, and beside "last seen" it would be misread.
    """
    finding = row.finding
    if row.standing is AttentionState.RESOLVED:
        return "" if finding.resolved_wall_s is None else f"{duration(now_wall_s - finding.resolved_wall_s)} ago"
    if finding.since_wall_s is None or finding.is_unseen:
        return ""
    return duration(now_wall_s - finding.since_wall_s)


def missing(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of engines that are down, also where that was meant: while there is one, nothing is not wrong."""
    return tuple(finding for finding in findings if finding.rule == ENGINE_DOWN and finding.phase is Phase.FIRING)


def counts(findings: Sequence[Finding], standing_of: StandingOf) -> list[str]:
    """The findings without a line of their own at the top, counted: "2 notes", "1 acknowledged", "1 snoozed"."""
    standings = [(finding, standing_of(finding)) for finding in findings]
    notes = sum(
        finding.severity is Severity.INFO and standing is AttentionState.OPEN for finding, standing in standings
    )
    texts = [f"{notes} note{'s' if notes > 1 else ''}"] if notes else []
    for standing in (AttentionState.ACKNOWLEDGED, AttentionState.SNOOZED):
        count = sum(other is standing for _, other in standings)
        texts += [f"{count} {standing}"] if count else []
    return texts
