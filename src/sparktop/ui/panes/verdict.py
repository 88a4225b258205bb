"""What is wrong now, root cause first, one line each; a quiet line when nothing is."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.clock import Clock
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView, Notice
from sparktop.model.telemetry import CollectorState
from sparktop.ui.attention import Standing
from sparktop.ui.format import countdown
from sparktop.ui.panes.finding_rows import SIGNS, STEP, FindingRow, StandingOf, columns, counts, planted, row_line, rows
from sparktop.ui.widgets.ink import Line, LineWidget, spread

MAX_LINES = 6
HINTS_FROM = 72
"""Cells from which the keys stand beside the lines."""
BOTH_HINTS_FROM = 112
MOST_BESIDE = 24
"""Cells that the counts may take from the lines; more of them get a line of their own."""
FIX = Line.of(("f", "key"), (" fix ", "quiet"))
DETAILS = Line.of(("d", "key"), (" details ", "quiet"))
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_WATCHED = {"nvml": "GPU figures", "kernel": "kernel log", "processes": "processes"}
"""Collector -> what is missed without it."""

STARVED = "memory.starved"
"""It says of a lost node what its notice would say, and on what grounds."""

Item = Notice | FindingRow


class Verdict(LineWidget):
    """The fleet's notices and findings."""

    def __init__(self, clock: Clock, *, standing_of: StandingOf | None = None) -> None:
        """`standing_of` says what is acknowledged or put off; without it nothing is."""
        super().__init__(id="verdict")
        self._clock = clock
        self._standing_of = standing_of or _all_open
        self._fleet = FleetState()
        self._failure = ""
        self._is_listed = False

    @property
    def wanted_lines(self) -> int:
        """How many lines there are to say; 0 where all of them stand in the list below."""
        items = self._items()
        told = self._unlisted(items)
        return max(0 if items and not told else 1, min(MAX_LINES, len(told) + bool(self._failure)))

    @property
    def first(self) -> Finding | None:
        """The finding that the first of its lines is about."""
        return next((item.finding for item in self._items() if isinstance(item, FindingRow)), None)

    @property
    def roots(self) -> tuple[Finding, ...]:
        """What its lines are about, without what follows from another."""
        return tuple(item.finding for item in self._items() if isinstance(item, FindingRow) and not item.stem)

    def leave_to_list(self, is_listed: bool) -> None:
        """Whether the findings are listed right below, and needn't be said twice."""
        if is_listed is not self._is_listed:
            self._is_listed = is_listed
            self.redraw()

    def show(self, fleet: FleetState) -> None:
        """Show what this picture says is wrong."""
        self._fleet = fleet
        self.redraw()

    def fail(self, text: str) -> None:
        """The watching itself has ended: said before anything else, and it stays."""
        self._failure = text
        self.redraw()

    def tick(self) -> None:
        """A second has passed: times to the next attempt, and since when."""
        self.redraw()

    def _items(self) -> list[Item]:
        """What takes a line each, worst first; a finding stands where the worst of what follows from it would."""
        told = {
            name for one in self._fleet.findings if one.rule == STARVED and self._is_open(one) for name in one.nodes
        }
        notices = [one for one in self._fleet.notices if one.node not in told]
        ranked: list[tuple[int, Item]] = [(_RANK[one.severity], one) for one in notices]
        family: list[FindingRow] = []
        for row in rows(self._fleet.findings, self._standing_of):
            if row.standing is not Standing.OPEN or row.finding.severity is Severity.INFO:
                continue
            if not row.stem:
                ranked += _ranked(family)
                family = []
            family.append(row)
        ranked += _ranked(family)
        return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]

    def _unlisted(self, items: list[Item]) -> list[Item]:
        return [item for item in items if isinstance(item, Notice)] if self._is_listed else items

    def _is_open(self, finding: Finding) -> bool:
        return self._standing_of(finding) is Standing.OPEN

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        if self._failure:
            lines.append(Line.of((f" ✖ {self._failure}", "critical")).cut(width))
        items = self._unlisted(self._items())
        if not items:
            return (lines or [self._quiet(width)])[:height]
        told = counts(self._fleet.findings, self._standing_of)
        is_narrow = HINTS_FROM <= width < BOTH_HINTS_FROM
        counted = _more([f"{len(items)} more", *told]).width
        is_apart = width < HINTS_FROM or (not is_narrow and counted > MOST_BESIDE)
        shown = _fitting(items, height - len(lines), keeps_one=is_apart)
        names = [view.name for view in self._fleet.nodes]
        found = planted([item for item in shown if isinstance(item, FindingRow)])
        at = iter(found)
        shown = [item if isinstance(item, Notice) else next(at) for item in shown]
        now_s = self._clock.wall()
        hidden = len(items) - len(shown)
        more = _more(([f"+{hidden}"] if is_narrow else [f"{hidden} more", *told]) if hidden else told)
        has_own_line = bool(hidden) and len(lines) + len(shown) < height
        # The keys at the right keep their cells, so that the columns of all lines end before them.
        has_hint = width >= HINTS_FROM
        hint = self._hint(found[0].finding if found else None, width)
        last = more if not has_own_line and (hidden or shown[1:]) and has_hint else Line()
        first = hint + Line.of("  ") + more if more.runs and not shown[1:] and width >= BOTH_HINTS_FROM else hint
        hints = max(first.width, last.width)
        if hints > hint.width:
            hints = -(-hints // STEP) * STEP  # "2 notes" for "1 note" moves nothing
        room = width - 1 - (hints + 2 if has_hint else 0)
        to = columns(found, room, names, now_s)
        for item in shown:
            beside = first if found and item is found[0] else Line()
            if item is shown[-1] and last.runs and (shown[1:] or width < BOTH_HINTS_FROM):
                beside = last
            line = (
                self._notice(item, width - beside.width - 2 if beside.runs else width)
                if isinstance(item, Notice)
                else Line.of(" ") + row_line(item, to, names, now_s)
            )
            lines.append(spread(width, line, beside) if has_hint and beside.runs else line)
        if has_own_line:
            lines.append(Line.of((" … and ", "quiet")) + more)
        return lines[:height]

    def _hint(self, finding: Finding | None, width: int) -> Line:
        """The keys for its first finding; where there is little room the one that is wanted first."""
        if finding is None or not finding.remedies:
            return DETAILS
        return FIX + Line.of(" ") + DETAILS if width >= BOTH_HINTS_FROM else FIX

    def _notice(self, notice: Notice, width: int) -> Line:
        glyph, tone = SIGNS[notice.severity]
        name = f"{notice.node}  " if notice.node else ""
        text_tone = "strong" if notice.severity is Severity.CRITICAL else ""
        left = Line.of((f" {glyph} ", tone), (name, tone), (notice.text, text_tone))
        return spread(width, left, self._when(notice))

    def _when(self, notice: Notice) -> Line:
        """For a lost link: when it is tried again."""
        view = self._fleet.node(notice.node) if notice.node else None
        if view is None or view.link.state is not LinkState.LOST:
            return Line()
        if notice is not next((other for other in self._fleet.notices if other.node == notice.node), None):
            return Line()
        wait_s = (view.link.next_attempt_s or 0.0) - self._clock.monotonic()
        return Line.of((f"next try in {countdown(wait_s)}  r now " if wait_s > 0 else "trying now ", "quiet"))

    def _quiet(self, width: int) -> Line:
        states = {view.link.state for view in self._fleet.nodes}
        if not states or states == {LinkState.CONNECTING}:
            return Line.of((" connecting…", "quiet"))
        told = counts(self._fleet.findings, self._standing_of)
        if states & {LinkState.CONNECTING}:
            waiting = ", ".join(v.name for v in self._fleet.nodes if v.link.state is LinkState.CONNECTING)
            return Line.of((f" nothing wrong on the node that answers; {waiting} is still connecting", "quiet"))
        count = self._fleet.rules_watching
        known = any(
            one.phase is Phase.FIRING
            and one.severity is not Severity.INFO
            and self._standing_of(one) is not Standing.OPEN
            for one in self._fleet.findings
        )
        text = "nothing new" if known else "nothing wrong"
        text += f", {count} rules watching" if count else " that can be seen from here"
        line = Line.of((" ✓", "ok"), (f" {text}", "quiet"))
        if count and (blind := blindness(self._fleet.nodes)):
            line += Line.of((f", without {blind}", "quiet"))
        return spread(width, line, _more(told))


def blindness(nodes: Sequence[NodeView]) -> str:
    """What can't be seen of which node: "spark1's kernel log and containers"; "" where nothing is amiss."""
    told = []
    for view in nodes:
        missed = [
            what
            for name, what in _WATCHED.items()
            if (part := view.collectors.get(name)) is not None and part.state is not CollectorState.OK
        ]
        if view.sample is not None and not view.containers.available:
            missed.append("containers")
        if missed:
            told.append(f"{view.name}'s {', '.join(missed[:-1]) + ' and ' if missed[1:] else ''}{missed[-1]}")
    return "; ".join(told)


def _all_open(finding: Finding) -> Standing:
    return Standing.RESOLVED if finding.phase is Phase.RESOLVED else Standing.OPEN


def _more(told: Sequence[str]) -> Line:
    """What has no line of its own, and the key that shows it."""
    return Line.of((f"{', '.join(told)}  ", "quiet"), ("A", "key"), (" all ", "quiet")) if told else Line()


def _ranked(family: Sequence[FindingRow]) -> list[tuple[int, Item]]:
    """A root and what follows from it, all at the rank of the worst of them."""
    worst = min((_RANK[row.finding.severity] for row in family), default=0)
    return [(worst, row) for row in family]


def _fitting(items: Sequence[Item], room: int, *, keeps_one: bool) -> list[Item]:
    """What is shown where not everything can be: causes go before consequences.

    `keeps_one`: a line is left for the count of the others, which on a wide screen stands beside the last.
    """
    if len(items) <= room:
        return list(items)
    room = max(1, room - 1 if keeps_one else room)
    roots = [item for item in items if isinstance(item, Notice) or not item.stem][:room]
    kept = {id(item) for item in roots}
    for item in items:
        if len(kept) < room:
            kept.add(id(item))
    return [item for item in items if id(item) in kept]
