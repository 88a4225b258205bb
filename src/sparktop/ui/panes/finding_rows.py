"""Findings as rows of a tree, each line drawn in columns that stand under one another: pure, from the picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from sparktop.diagnose.order import cause_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase
from sparktop.ui.attention import Standing
from sparktop.ui.format import duration
from sparktop.ui.widgets.ink import Line

SIGNS: dict[Severity, tuple[str, str]] = {
    Severity.CRITICAL: ("✖", "critical"),
    Severity.WARNING: ("▲", "warning"),
    Severity.INFO: ("•", "info"),
}
"""Severity -> (glyph, tone)."""
TITLE_TONES = {Severity.CRITICAL: "strong", Severity.WARNING: "", Severity.INFO: ""}
MIN_BRIEF = 14
"""Fewer cells of its figures aren't worth showing, unless they are all."""
MIN_SINCE = 6
"""As "59 min": a longer time moves nothing."""
STEP = 8

StandingOf = Callable[[Finding], Standing]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding in its place in the tree."""

    finding: Finding
    standing: Standing
    stem: str = ""
    """What is drawn before it: "", "└ ", "│ ├ "."""

    @property
    def key(self) -> object:
        return self.finding.key


def rows(findings: Sequence[Finding], standing_of: StandingOf) -> tuple[FindingRow, ...]:
    """All that is to be shown, in order: what is so now, each consequence under its cause; then what is over.

    Snoozed ones are left out.
    """
    known = [(finding, standing_of(finding)) for finding in findings]
    current = [finding for finding, standing in known if standing in (Standing.OPEN, Standing.ACKNOWLEDGED)]
    stems = _stems(current)
    standings = {id(finding): standing for finding, standing in known}
    firing = [FindingRow(one, standings[id(one)], stem) for one, stem in zip(current, stems, strict=True)]
    over = [finding for finding, standing in known if standing is Standing.RESOLVED]
    over.sort(key=lambda one: -(one.resolved_wall_s or 0.0))
    return (*firing, *(FindingRow(finding, Standing.RESOLVED) for finding in over))


def family(finding: Finding, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding and all that follows from it now."""
    firing = [one for one in findings if one.phase is not Phase.RESOLVED]
    own = [finding]
    for other in firing:  # a cause stands before its consequences
        cause = cause_of(other, firing)
        if cause is not None and any(cause.key == one.key for one in own) and other.key != finding.key:
            own.append(other)
    return tuple(own)


def _stems(findings: Sequence[Finding]) -> list[str]:
    """The tree's lines, for findings in reading order. A cause that stands later counts as none."""
    place = {id(finding): index for index, finding in enumerate(findings)}
    parents: list[int | None] = []
    for index, finding in enumerate(findings):
        cause = cause_of(finding, findings)
        parents.append(place[id(cause)] if cause is not None and place[id(cause)] < index else None)
    stems: list[str] = []
    for index, parent in enumerate(parents):
        if parent is None:
            stems.append("")
            continue
        stem = "├ " if _has_later(parents, index) else "└ "
        above = parent
        while (higher := parents[above]) is not None:
            stem = ("│ " if _has_later(parents, above) else "  ") + stem
            above = higher
        stems.append(stem)
    return stems


def planted(shown: Sequence[FindingRow]) -> list[FindingRow]:
    """The same rows with the tree's lines as among these: what isn't shown hangs nowhere."""
    stems = _stems([row.finding for row in shown])
    return [replace(row, stem=stem) for row, stem in zip(shown, stems, strict=True)]


def _has_later(parents: Sequence[int | None], index: int) -> bool:
    """True when another consequence of the same cause comes below this one."""
    return parents[index] in parents[index + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Cells of each column."""

    nodes: int
    """Of those rows that name them."""
    said: int
    """Tree, sign, nodes and title, then the figures in what cells a title leaves."""
    word: int
    """0 leaves it out."""
    since: int
    says_sure: bool = True
    """Whether "confirmed" is said, or only what is less sure."""


def columns(shown: Sequence[FindingRow], width: int, fleet: Sequence[str], now_wall_s: float) -> Columns:
    """Columns for these rows in so many cells; `fleet` are the names of all nodes watched.

    The title is the verdict and goes before all, its figures follow it; that something is confirmed is said where
    that cuts no figure. What is said takes a multiple of `STEP` cells, so that a figure of one digit more or less
    moves nothing.
    """
    nodes = max((cell_len(nodes_text(row.finding, fleet)) for row in shown), default=0)
    since = max((cell_len(since_text(row, now_wall_s)) for row in shown), default=0)
    since = max(since, MIN_SINCE) if since else 0
    wanted = max((_said(row, nodes, fleet).width for row in shown), default=0)
    wanted = -(-wanted // STEP) * STEP
    word = room = 0
    for says_sure in (True, False):
        word = max((cell_len(word_text(row, says_sure=says_sure)) for row in shown), default=0)
        room = width - (since + 2 if since else 0) - (word + 2 if word else 0)
        if wanted <= room:
            break
    return Columns(nodes=nodes, said=max(1, min(wanted, room)), word=word, since=since, says_sure=says_sure)


def row_line(row: FindingRow, to: Columns, fleet: Sequence[str], now_wall_s: float) -> Line:
    """One row in these columns."""
    said = _said(row, to.nodes, fleet)
    head = _head(row, to.nodes, fleet)
    word = word_text(row, says_sure=to.says_sure)
    room = _room(row, to)
    if said.width > room and room - head.width < MIN_BRIEF + 2:
        said = head  # a word or two of the figures would say nothing
    cells = [said.fit(room)]
    if word:
        cells.append(Line.of("  ", (word, "warning" if word == Confidence.SUSPECTED else "quiet")).fit(to.word + 2))
    if to.since:
        cells.append(Line.of("  ") + Line.of((since_text(row, now_wall_s), "quiet")).right(to.since))
    return Line(tuple(run for cell in cells for run in cell.runs if run[0]))


def cuts_brief(row: FindingRow, to: Columns, fleet: Sequence[str]) -> bool:
    """Whether its row has no room for all of its figures."""
    return bool(row.finding.figures) and _said(row, to.nodes, fleet).width > _room(row, to)


def _room(row: FindingRow, to: Columns) -> int:
    """Cells for what is said: a row without a word has that column too."""
    has_word = not to.word or word_text(row, says_sure=to.says_sure)
    return to.said if has_word else to.said + 2 + to.word


def _said(row: FindingRow, nodes: int, fleet: Sequence[str]) -> Line:
    """Its head, and the figures beside the title: as bright as may be told from it."""
    head = _head(row, nodes, fleet)
    tone = "" if head.runs[-1][1] == "strong" else "quiet"
    return head + Line.of("  ", (row.finding.figures, tone)) if row.finding.figures else head


def _head(row: FindingRow, nodes: int, fleet: Sequence[str]) -> Line:
    """Tree, sign, nodes where the title doesn't name them, title."""
    finding = row.finding
    glyph, tone = SIGNS[finding.severity]
    is_quiet = row.standing is not Standing.OPEN
    line = Line.of((row.stem, "faint"), (f"{glyph} ", "quiet" if is_quiet else tone))
    if where := nodes_text(finding, fleet):
        own = "quiet" if is_quiet or finding.severity is Severity.INFO else tone
        line += Line.of((f"{where:<{nodes}}  ", own))
    # Among what is bad, what it comes from stands out.
    return line + Line.of((finding.title, "quiet" if is_quiet else "" if row.stem else TITLE_TONES[finding.severity]))


def nodes_text(finding: Finding, fleet: Sequence[str]) -> str:
    """ "spark1", "both"; nothing where one node alone is watched, none is meant, or the title names them."""
    if len(fleet) < 2 or not finding.nodes or finding.names_its_nodes:
        return ""
    if len(finding.nodes) == len(fleet) == 2:
        return "both"
    return "+".join(finding.nodes)


def _is_sure(row: FindingRow) -> bool:
    return row.finding.confidence is Confidence.CONFIRMED and not row.finding.is_unseen


def word_text(row: FindingRow, *, says_sure: bool) -> str:
    """How sure, or what became of it."""
    if row.standing is not Standing.OPEN:
        return row.standing.value
    if row.finding.is_unseen:
        return "last seen"
    return row.finding.confidence.value if says_sure or not _is_sure(row) else ""


def since_text(row: FindingRow, now_wall_s: float) -> str:
    """How long it has been so: "2 min"; of one that is over how long ago: "3 min ago"."""
    finding = row.finding
    if row.standing is Standing.RESOLVED:
        return "" if finding.resolved_wall_s is None else f"{duration(now_wall_s - finding.resolved_wall_s)} ago"
    return "" if finding.since_wall_s is None else duration(now_wall_s - finding.since_wall_s)


def counts(findings: Sequence[Finding], standing_of: StandingOf) -> list[str]:
    """What takes no line of its own at the top: "2 notes", "1 acknowledged", "1 snoozed"."""
    standings = [(one, standing_of(one)) for one in findings]
    notes = sum(one.severity is Severity.INFO and standing is Standing.OPEN for one, standing in standings)
    told = [f"{notes} note{'s' if notes > 1 else ''}"] if notes else []
    for standing in (Standing.ACKNOWLEDGED, Standing.SNOOZED):
        count = sum(found is standing for _, found in standings)
        told += [f"{count} {standing}"] if count else []
    return told
