"""The verdict: what is wrong now, root causes first, one line each; one quiet line when nothing is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.reactive import var

from sparktop.clock import Clock
from sparktop.documents.finding_tree import (
    SIGNS,
    STEP,
    AttentionState,
    FindingRow,
    StandingOf,
    counts,
    missing,
    nodes_cells,
    notes,
    row_line,
    rows,
    unmarked,
    with_own_stems,
)
from sparktop.engines.memory_needs import is_loading
from sparktop.engines.ranks import rank_of
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView, Notice
from sparktop.model.telemetry import CollectorState
from sparktop.text.lines import BLANK, Line, joined, spread
from sparktop.text.sentences import counted
from sparktop.text.units import countdown, duration
from sparktop.ui.widgets.line_widget import LineWidget

MAX_LINES = 6


HINTS_FROM = 72
"""Width from which the keys are shown at the right of the lines."""


BOTH_HINTS_FROM = 112


MOST_BESIDE = 24
"""Most cells for the counts at the right; longer ones get a line of their own."""


NOTICE_CELLS = 54
"""So much of a notice's text comes before what stands at its right."""


FIX = Line.of(("f", "key"), (" fix", "quiet"))


DETAILS = Line.of(("d", "key"), (" details", "quiet"))


_WATCHED = {"nvml": "GPU figures", "kernel": "kernel log", "processes": "processes"}
"""Collector -> what can't be seen without it."""


REPLACES_NOTICE = "memory.starved"
"""The rule whose finding replaces the notice of a lost node."""


Item = Notice | FindingRow


class VerdictPane(LineWidget):
    """Shows the fleet's notices and open findings."""

    is_listed: var[bool] = var(False, init=False)
    """Whether the list of findings is open below, and has them."""
    has_run: var[bool] = var(False, init=False)
    """Whether to name the key that shows the last run's result, which has no line of its own."""
    watch_is_listed = watch_has_run = LineWidget.redraw

    def __init__(self, clock: Clock, *, standing_of: StandingOf | None = None) -> None:
        """`standing_of` returns what is acknowledged or snoozed; without it nothing is."""
        super().__init__(id="verdict")
        self._clock = clock
        self._standing_of = standing_of or unmarked
        self._fleet = FleetState()
        self._failure = ""
        self._drawn_keys: tuple[object, ...] = ()
        """The keys of the findings that have a line."""

    @property
    def wanted_lines(self) -> int:
        """How many lines there are to show; 0 where the list below has them all."""
        items = self._items()
        shown = self._shown_items(items)
        return max(0 if items and not shown else 1, min(MAX_LINES, len(shown) + bool(self._failure)))

    @property
    def first(self) -> Finding | None:
        """The first finding shown; None without one."""
        return next((item.finding for item in self._items() if isinstance(item, FindingRow)), None)

    @property
    def note(self) -> Finding | None:
        """The note that stands where nothing is wrong; None without one."""
        return next(iter(notes(self._fleet.findings, self._standing_of)), None)

    @property
    def fixable(self) -> Finding | None:
        """What `f` is for: the first finding shown, else an engine that was stopped on purpose, else the first note."""
        return self.first or next(iter(missing(self._fleet.findings)), None) or self.note

    @property
    def roots(self) -> tuple[Finding, ...]:
        """The findings shown, without consequences."""
        return tuple(item.finding for item in self._items() if isinstance(item, FindingRow) and not item.stem)

    def has_line_of(self, finding: Finding) -> bool:
        """Whether the finding has a line of its own, also where the next layout gives it one."""
        width, height = self.size
        if (given := self.styles.height) is not None and given.cells is not None:
            height = given.cells
        if width:
            self.draw(width, height)
        return finding.key in self._drawn_keys

    def show(self, fleet: FleetState) -> None:
        """Show what is wrong in this fleet state."""
        self._fleet = fleet
        self.redraw()

    def fail(self, text: str) -> None:
        """Show for good, above all else, that watching has ended."""
        self._failure = text
        self.redraw()

    def _items(self) -> list[Item]:
        """The notices and findings with a line each, worst first; a family of findings ranks as its worst member."""
        starved_nodes = {
            name
            for entry in self._fleet.findings
            if entry.rule == REPLACES_NOTICE and self._standing_of(entry) is AttentionState.OPEN
            for name in entry.nodes
        }
        notices = [entry for entry in self._fleet.notices if entry.node not in starved_nodes]
        ranked: list[tuple[int, Item]] = [(-entry.severity.weight, entry) for entry in notices]
        family: list[FindingRow] = []
        wrong = [
            row
            for row in rows(self._fleet.findings, self._standing_of)
            if row.standing is AttentionState.OPEN and row.finding.severity is not Severity.INFO
        ]
        for row in with_own_stems(wrong):  # what follows from a note alone is a root here
            if not row.stem:
                ranked += _ranked(family)
                family = []
            family.append(row)
        ranked += _ranked(family)
        return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]

    def _shown_items(self, items: list[Item]) -> list[Item]:
        return [item for item in items if isinstance(item, Notice)] if self.is_listed else items

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        self._drawn_keys = ()
        if self._failure:
            lines.append(Line.of((f" ✖ {self._failure}", "critical")).bar("critical", width))
        all_items = self._items()
        items = self._shown_items(all_items)
        if not items:
            is_quiet = not all_items and not lines  # what is in the list instead is wrong all the same
            return ([self._quiet(width)] if is_quiet else lines)[:height]
        count_texts = counts(self._fleet.findings, self._standing_of)
        is_narrow = HINTS_FROM <= width < BOTH_HINTS_FROM
        counts_cells = _counts_line([f"{len(items)} more", *count_texts]).width
        is_apart = width < HINTS_FROM or (not is_narrow and counts_cells > MOST_BESIDE)
        shown_items = _fitting(items, height - len(lines), keeps_one=is_apart)
        names = [view.name for view in self._fleet.nodes]
        finding_rows = with_own_stems([item for item in shown_items if isinstance(item, FindingRow)])
        self._drawn_keys = tuple(row.finding.key for row in finding_rows)
        next_row = iter(finding_rows)
        shown_items = [item if isinstance(item, Notice) else next(next_row) for item in shown_items]
        now_s = self._clock.wall()
        hidden = len(items) - len(shown_items)
        counts_line = _counts_line(
            ([f"+{hidden}"] if is_narrow else [f"{hidden} more", *count_texts]) if hidden else count_texts
        )
        has_own_line = bool(hidden) and len(lines) + len(shown_items) < height
        # At the right, ever shorter: the keys for the first finding, and in the last line what is counted. The counts
        # are in the last line of the screen too; only the number of hidden lines is not.
        first = finding_rows[0] if finding_rows else None
        last = None if has_own_line else shown_items[-1]
        fix = FIX if first is not None and first.finding.remedies else BLANK
        least = Line.of((f"+{hidden}", "quiet")) if hidden else BLANK
        has_hint = width >= HINTS_FROM
        ends = [(self._hint(first, width), counts_line), (fix, counts_line), (fix, least)]
        rights = [
            [_beside(key if item is first else BLANK, count if item is last else BLANK) for key, count in ends]
            if has_hint
            else [BLANK]
            for item in shown_items
        ]
        # All lines have as many cells for them, rounded up: "2 notes" instead of "1 note" moves nothing.
        cells = -(-max(right[0].width for right in rights) // STEP) * STEP
        nodes = nodes_cells(finding_rows, names)
        for item, right in zip(shown_items, rights, strict=True):
            if isinstance(item, Notice):
                line = self._notice(item, width, right)
            else:
                hints = [right[0].right(cells if has_hint else 0), *right[1:]]
                line = Line.of(" ") + row_line(item, width - 2, names, now_s, nodes=nodes, hints=hints)
            severity = item.severity if isinstance(item, Notice) else item.finding.severity
            lines.append(line if lines else line.bar(SIGNS[severity][1], width))
        if has_own_line:
            lines.append(Line.of((" … and ", "quiet")) + counts_line)
        return lines[:height]

    def _hint(self, row: FindingRow | None, width: int) -> Line:
        """The hints of the keys for the first finding; on a narrow screen only the most important one."""
        if row is None or not row.finding.remedies:
            return DETAILS
        return FIX + Line.of("  ") + DETAILS if width >= BOTH_HINTS_FROM else FIX

    def _notice(self, notice: Notice, width: int, hint_lines: Sequence[Line]) -> Line:
        """The notice with as much at its right as leaves its first part whole; the rest of its text may be cut."""
        glyph, tone = SIGNS[notice.severity]
        name = f"{notice.node}  " if notice.node else ""
        text_tone = "strong" if notice.severity is Severity.CRITICAL else ""
        head = Line.of((f" {glyph} ", tone), (name, tone))
        text = head + Line.of((notice.text, text_tone))
        first_cells = head.width + min(cell_len(notice.text), NOTICE_CELLS)
        attempts = self._next_attempt(notice)
        rights = [_beside(attempt, hint) for hint in hint_lines for attempt in attempts]
        right = next((line for line in rights if first_cells + 3 + line.width <= width), rights[-1])
        return spread(width - 1, text, right)

    def _next_attempt(self, notice: Notice) -> tuple[Line, ...]:
        """For a lost link: the time until the next attempt, and in fewer cells."""
        view = self._fleet.node(notice.node) if notice.node else None
        if view is None or view.link.state is not LinkState.LOST:
            return (Line(),)
        if notice is not next((other for other in self._fleet.notices if other.node == notice.node), None):
            return (Line(),)
        wait_s = (view.link.next_attempt_s or 0.0) - self._clock.monotonic()
        if wait_s <= 0:
            return (Line.of(("trying now", "quiet")), Line())
        countdown_text = countdown(wait_s)
        return tuple(
            Line.of((text, "quiet")) for text in (f"next try in {countdown_text}  r now", f"{countdown_text}  r now")
        )

    def _quiet(self, width: int) -> Line:
        last_run = Line.of(("o", "key"), (" last run", "quiet")) if self.has_run else Line()
        right = _beside(_counts_line(counts(self._fleet.findings, self._standing_of)), last_run)
        return spread(width - 1, self.calm(width - right.width), right)

    def calm(self, width: int) -> Line:
        """What is said where nothing is wrong: a tick only where all that can be seen was looked at and serves."""
        states = {view.link.state for view in self._fleet.nodes}
        if not states or states == {LinkState.CONNECTING}:
            return Line.of((" connecting…", "quiet"))
        if states & {LinkState.CONNECTING}:
            waiting = ", ".join(v.name for v in self._fleet.nodes if v.link.state is LinkState.CONNECTING)
            return Line.of((f" nothing wrong on the node that answers; {waiting} is still connecting", "quiet"))
        unread = [
            v.name
            for v in self._fleet.nodes
            if v.sample is not None and not (v.containers.is_asked and v.has_looked_for_engines)
        ]
        if unread:
            return Line.of((f" OK so far · looking for engines on {counted(unread, ' and ')}", "quiet"))
        count = self._fleet.rules_watching
        has_hidden = any(
            finding.phase is Phase.FIRING
            and finding.severity is not Severity.INFO
            and self._standing_of(finding) is not AttentionState.OPEN
            for finding in self._fleet.findings
        )
        watching = f" ({count} live rules)" if count else " seen from here"
        calm = f"{'nothing new' if has_hidden else 'nothing wrong'}{watching}"
        line = Line.of((" ✓", "ok"), (f" {calm}", "quiet"))
        glyph, tone = SIGNS[Severity.INFO]
        if down := missing(self._fleet.findings):
            titles = "; ".join(_with_age(finding, self._clock.wall()) for finding in down)
            line = Line.of((f" {glyph} ", tone), (titles, ""), (f"; nothing else{watching}", "quiet"))
        elif starting := [
            engine.name
            for view in self._fleet.nodes
            for engine in view.engines
            if is_loading(engine) and rank_of(engine, view).is_head  # a worker is ready when its head is
        ]:
            verb = "is" if len(starting) == 1 else "are"
            text = f" OK so far; {' and '.join(starting)} {verb} starting{watching}"
            line = Line.of((text, "quiet"))
        elif note := self.note:
            figures = f"  {note.figures}" if note.figures else ""
            line = Line.of((f" {glyph} ", tone), (note.title, ""), (figures, "quiet"))
            line += Line.of((f"; {calm}" if line.width + cell_len(calm) < width - 6 else "", "quiet"))
        if count and (blind := blindness(self._fleet.nodes)):
            line += Line.of((f", without {blind}", "quiet"))
        return line


def blindness(nodes: Sequence[NodeView]) -> str:
    """What can't be seen, by node: "spark1's kernel log and containers"; "" where all can be."""
    texts = []
    for view in nodes:
        missed = [
            label
            for name, label in _WATCHED.items()
            if (collector := view.collectors.get(name)) is not None and collector.state is not CollectorState.OK
        ]
        if view.sample is not None and not view.containers.available:
            missed.append("containers")
        if missed:
            texts.append(f"{view.name}'s {', '.join(missed[:-1]) + ' and ' if missed[1:] else ''}{missed[-1]}")
    return "; ".join(texts)


def _with_age(finding: Finding, now_wall_s: float) -> str:
    """ "vllm is down: stopped by you (40 s ago)"."""
    since_s = finding.since_wall_s
    return finding.title if since_s is None else f"{finding.title} ({duration(now_wall_s - since_s)} ago)"


def _beside(*parts: Line) -> Line:
    """What there is of these, beside one another."""
    return joined([part for part in parts if part.runs], "  ")


def _counts_line(texts: Sequence[str]) -> Line:
    """The counts of what has no line of its own, and the key that shows it."""
    return Line.of((f"{', '.join(texts)}  ", "quiet"), ("A", "key"), (" all", "quiet")) if texts else Line()


def _ranked(family: Sequence[FindingRow]) -> list[tuple[int, Item]]:
    """A root cause and its consequences, all with the rank of the worst."""
    worst = min((-row.finding.severity.weight for row in family), default=0)
    return [(worst, row) for row in family]


def _fitting(items: Sequence[Item], room: int, *, keeps_one: bool) -> list[Item]:
    """The items that fit in `room` lines: causes come before consequences, and settings that may do harm last.

    `keeps_one` leaves a line for the count of the others.
    """
    if len(items) <= room:
        return list(items)
    room = max(1, room - 1 if keeps_one else room)
    kept_ids = {id(item) for item in sorted(items, key=_urgency)[:room]}
    return [item for item in items if id(item) in kept_ids]


def _urgency(item: Item) -> int:
    """Smaller: shown before the others. A lint's warning tells of what may come, a consequence of what is."""
    if isinstance(item, Notice):
        return 0
    if item.stem:
        return 1
    is_setting = item.finding.rule.startswith("config.") and item.finding.severity is not Severity.CRITICAL
    return 2 if is_setting else 0
