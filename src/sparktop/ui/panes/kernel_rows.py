"""Kernel events of all nodes as rows, and what is known of one: pure, from the picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sparktop.diagnose.burst import describe
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.ui.panes.finding_rows import SIGNS
from sparktop.ui.screens.details import Section
from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.log_paint import clock

TONES = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: ""}
NODE_CELLS = 10


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of one node, and the moment it last happened by that node's clock."""

    node: str
    event: KernelEvent
    wall_s: float | None

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same event while its count grows."""
        event = self.event
        return (self.node, event.kind, event.code, event.first_boot_s, event.first_wall_s, event.text)


def rows(fleet: FleetState) -> tuple[EventRow, ...]:
    """All nodes' events by the time they last happened, newest last."""
    found = [
        EventRow(node.name, event, event_wall_s(node, event)) for node in fleet.nodes for event in node.kernel_events
    ]
    found.sort(key=lambda row: row.wall_s if row.wall_s is not None else 0.0)
    return tuple(found)


def event_wall_s(node: NodeView, event: KernelEvent) -> float | None:
    """When an event last happened: as stamped, else placed by the node's boot clock, else unknown."""
    wall_s = event.last_wall_s if event.last_wall_s is not None else event.first_wall_s
    boot_s = event.last_boot_s if event.last_boot_s is not None else event.first_boot_s
    if wall_s is None and boot_s is not None and node.sample is not None:
        return node.sample.wall_s - (node.sample.boot_s - boot_s)
    return wall_s


def event_line(row: EventRow, width: int, *, show_node: bool) -> Line:
    """One row of the pane: time, node, sign, what it is and how often, whose doing; cut at the right."""
    sign, tone = SIGNS[row.event.severity]
    what, _, which = describe(row.event).partition("  ")
    node = (f"{row.node[:NODE_CELLS]} ", "quiet") if show_node else ("", "")
    line = Line.of((f"{clock(row.wall_s)} ", "quiet"), node, (f"{sign} ", tone), (what, TONES[row.event.severity]))
    return (line + Line.of("  ", which) if which else line).cut(width)


def summary(shown: tuple[EventRow, ...]) -> Line:
    """What the pane's title says: "2 Xids", "3 warnings", "quiet"."""
    xids = sum(row.event.count for row in shown if row.event.kind == "xid")
    worst = Counter(row.event.severity for row in shown)
    parts: list[Line] = []
    if xids:
        tone = "critical" if any(r.event.kind == "xid" and r.event.severity is Severity.CRITICAL for r in shown) else ""
        parts.append(Line.of((f"{xids:,} Xid{'s' if xids > 1 else ''}", tone or "warning")))
    other = sum(row.event.count for row in shown if row.event.kind != "xid" and row.event.severity != Severity.INFO)
    if other:
        tone = "critical" if worst[Severity.CRITICAL] and not xids else "warning"
        parts.append(Line.of((f"{other:,} other" if xids else f"{other:,} to look at", tone)))
    if not parts:
        return Line.of((f"{len(shown)} noted" if shown else "quiet", "quiet"))
    line = parts[0]
    for part in parts[1:]:
        line = line + Line.of((" · ", "quiet")) + part
    return line


def troubles(fleet: FleetState) -> list[tuple[str, str]]:
    """(node, why its kernel log can't be read and what would permit it), for the nodes where that is so."""
    found = []
    for node in fleet.nodes:
        collector = node.collectors.get("kernel")
        if collector is not None and collector.state is not CollectorState.OK:
            found.append((node.name, collector.detail or f"kernel log: {collector.state}"))
    return found


def nothing(fleet: FleetState) -> str:
    """What to say where there is no event."""
    reading = [f"{node.name} ({node.kernel_source})" for node in fleet.nodes if node.kernel_source]
    if not reading:
        return "" if troubles(fleet) else "The kernel log has not been read yet."
    return f"No kernel line that matters since the boot: {', '.join(reading)}."


def sections(row: EventRow) -> tuple[Section, ...]:
    """All that is known of one event: what each source says it means and what to do, then the line itself."""
    event = row.event
    facts = [("node", row.node), ("severity", str(event.severity))]
    facts.append(("last", _moment(row.wall_s, event.last_boot_s)))
    if event.count > 1:
        facts.append(("first", _moment(event.first_wall_s, event.first_boot_s)))
        facts.append(("count", describe(event).partition("  ")[0]))
    if event.process or event.pid is not None:
        pid = f"pid {event.pid}" if event.pid is not None else ""
        facts.append(("process", "  ".join(part for part in (event.process or "", pid) if part)))
    if event.container or event.container_id:
        short = event.container_id[:12] if event.container_id else ""
        facts.append(("container", "  ".join(part for part in (event.container or "", short) if part)))
    if event.follows is not None:
        facts.append(("follows", f"Xid {event.follows}, which came first: look at that one"))
    said = tuple(
        Section(
            heading=advice.source,
            paragraphs=(
                Line.of(advice.meaning),
                *((Line.of(("What to do: ", "strong"), (advice.action, "strong")),) if advice.action else ()),
            ),
        )
        for advice in event.advice
    )
    if not said:
        said = (Section(heading="No source here explains this line", paragraphs=(Line.of("It is shown as it came."),)),)
    raw = Section(heading="As the kernel wrote it", paragraphs=(Line.of(event.text),))
    return (Section(heading="What happened", facts=tuple(facts)), *said, raw)


def _moment(wall_s: float | None, boot_s: float | None) -> str:
    parts = [clock(wall_s)] if wall_s is not None else []
    if boot_s is not None:
        parts.append(f"{boot_s:,.1f} s after boot")
    return ", ".join(parts) or "not stamped"
