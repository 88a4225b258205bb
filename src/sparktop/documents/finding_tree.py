"""Findings as rows of a tree, causes above consequences, drawn in aligned columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from rich.cells import cell_len

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import ENGINE_DOWN, cause_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase
from sparktop.text.lines import UNCUT, Line, fitting, spread
from sparktop.text.sentences import MOST_NAMED, counted
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


LEAST_TITLE = 18
"""Cells down to which a title is cut for its figures; below, the figures are."""


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
    shown = [FindingRow(finding, standing_of(finding)) for finding in findings]
    current = [row for row in shown if row.standing in (AttentionState.OPEN, AttentionState.ACKNOWLEDGED)]
    resolved = [row for row in shown if row.standing is AttentionState.RESOLVED]
    resolved.sort(key=lambda row: -(row.finding.resolved_wall_s or 0.0))
    return (*with_own_stems(current), *resolved)


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

    def stem(index: int, last: str = "└ ", more: str = "├ ") -> str:
        parent = parents[index]
        if parent is None:
            return ""
        has_later = parent in parents[index + 1 :]  # another consequence of the same cause
        return stem(parent, "  ", "│ ") + (more if has_later else last)

    return [stem(index) for index in range(len(findings))]


def with_own_stems(visible: Sequence[FindingRow]) -> list[FindingRow]:
    """The rows with tree lines for these rows alone, as a cause may be hidden."""
    stems = _stems([row.finding for row in visible])
    return [replace(row, stem=stem) for row, stem in zip(visible, stems, strict=True)]


def row_line(
    row: FindingRow,
    width: int,
    fleet: Sequence[str],
    now_wall_s: float,
    *,
    nodes: int = 0,
    hints: Sequence[Line] = (Line(),),
) -> Line:
    """One finding in `width` cells: sign, nodes, title and figures; at the right how sure, since when, and a hint.

    Where not all has room, the time goes first, then the longer hints; after them the title is cut: its figures and the
    last hint stay. The time is in its column or nowhere, so it stands only before the widest hint. `fleet` are the
    names of all watched nodes, `nodes` the cells for a finding's own, and `hints` the widest first; a blank one only
    keeps what stands before it aligned.
    """
    head, word, since = _head(row, nodes, fleet), word_text(row), since_text(row, now_wall_s)
    is_suspected = word == Confidence.SUSPECTED
    least_word = "?" if is_suspected else word
    time = Line.of((since, "quiet")).right(max(cell_len(since), MIN_SINCE)) if since else Line()

    def tail(word: str, *more: Line) -> Line:
        return fitting((Line.of((word, "warning" if is_suspected else "quiet")), *more), UNCUT, "  ")

    tails = [tail(word, time, hints[0]), *(tail(word, hint) for hint in hints if hint.plain.strip()),
             tail(word, hints[-1]), tail(least_word, hints[-1])]  # fmt: skip
    figures = Line.of((row.finding.figures, "" if head.runs[-1][1] == "strong" else "quiet"))
    gap = Line.of("  " if row.finding.figures else "")
    right = next((right for right in tails if head.width + gap.width + figures.width + 2 + right.width <= width), None)
    if right is None:
        right = tails[-1]
        least_head = head.width - cell_len(row.finding.title) + LEAST_TITLE
        room = width - (right.width + 2 if right.runs else 0)
        head = head.cut(max(room - gap.width - figures.width, min(least_head, room)))
        if room - head.width - gap.width < min(MIN_BRIEF, figures.width):
            figures, gap, head = Line(), Line(), _head(row, nodes, fleet).cut(max(0, room))
    return spread(width, head + gap + figures, right)


def nodes_cells(visible: Sequence[FindingRow], fleet: Sequence[str]) -> int:
    """Cells for the names of the nodes before the titles of these rows."""
    return max((cell_len(nodes_text(row.finding, fleet)) for row in visible), default=0)


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
    """ "spark1", "both", "all 8 nodes"; "" where only one is watched, the finding has none, or its title names them."""
    if len(fleet) < 2 or not finding.nodes or finding.names_its_nodes:
        return ""
    if len(finding.nodes) == len(fleet) == 2:
        return "both"
    text = counted(finding.nodes, "+")
    return f"all {text}" if len(finding.nodes) == len(fleet) > MOST_NAMED else text


def word_text(row: FindingRow) -> str:
    """The operator's mark or "resolved", else "suspected", else ""."""
    if row.standing is not AttentionState.OPEN:
        return row.standing.value
    if row.finding.is_unseen:
        return "last seen"
    return Confidence.SUSPECTED.value if row.finding.confidence is Confidence.SUSPECTED else ""


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


def notes(findings: Sequence[Finding], standing_of: StandingOf) -> list[Finding]:
    """The open findings that are only notes, the first first."""
    return [
        finding
        for finding in findings
        if finding.severity is Severity.INFO and standing_of(finding) is AttentionState.OPEN
    ]


def worst(findings: Sequence[Finding], standing_of: StandingOf) -> Finding | None:
    """The first of the worst open findings that are more than a note."""
    wrong = [one for one in findings if one.severity is not Severity.INFO and standing_of(one) is AttentionState.OPEN]
    return max(wrong, key=lambda one: one.severity.weight, default=None)


def counts(findings: Sequence[Finding], standing_of: StandingOf) -> list[str]:
    """The findings without a line of their own at the top, counted: "2 notes", "1 acknowledged", "1 snoozed"."""
    count = len(notes(findings, standing_of))
    texts = [f"{count} note{'s' if count > 1 else ''}"] if count else []
    for standing in (AttentionState.ACKNOWLEDGED, AttentionState.SNOOZED):
        count = sum(standing_of(finding) is standing for finding in findings)
        texts += [f"{count} {standing}"] if count else []
    return texts
