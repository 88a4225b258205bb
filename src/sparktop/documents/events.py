"""What happened, and the nodes' kernel events, as lines; what is said where there are none. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel.incident import counted, victim_text
from sparktop.documents.finding_tree import SIGNS
from sparktop.model.event import Event, EventKind, KernelEvent, Severity
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.text.lines import Line, joined, labelled, titled
from sparktop.text.units import clock_time, day_time

TONES = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: ""}


NODE_CELLS = 10


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of one node, and when it last happened by that node's clock."""

    node: str
    event: KernelEvent
    wall_s: float | None

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the event while its count grows."""
        event = self.event
        return (self.node, event.kind, event.code, event.first_boot_s, event.first_wall_s, event.text)


def rows(fleet: FleetState) -> tuple[EventRow, ...]:
    """The events of all nodes, sorted by when they last happened, the newest last."""
    event_rows = [
        EventRow(node.name, event, event_wall_s(node, event)) for node in fleet.nodes for event in node.kernel_events
    ]
    event_rows.sort(key=lambda row: row.wall_s if row.wall_s is not None else 0.0)
    return tuple(event_rows)


def searched_text(row: EventRow) -> str:
    """What a filter of the events looks at: node, title, process or container, and the kernel's own line."""
    return f"{row.node} {row.event.title} {victim_text(row.event)} {row.event.text}"


def event_wall_s(node: NodeView, event: KernelEvent) -> float | None:
    """When an event last happened: its wall-clock stamp, else computed from its boot clock, else None."""
    wall_s = event.last_wall_s if event.last_wall_s is not None else event.first_wall_s
    boot_s = event.last_boot_s if event.last_boot_s is not None else event.first_boot_s
    if wall_s is None and boot_s is not None and node.sample is not None:
        return node.sample.wall_s - (node.sample.boot_s - boot_s)
    return wall_s


def event_line(row: EventRow, width: int, *, show_node: bool, now_wall_s: float | None = None) -> Line:
    """One row of the pane: time, node, sign, what happened and how often, then which process or container."""
    sign, tone = SIGNS[row.event.severity]
    title, culprit = counted(row.event), victim_text(row.event)
    node = (f"{row.node[:NODE_CELLS]} ", "quiet") if show_node else ("", "")
    line = Line.of(
        (f"{clock_time(row.wall_s, now_wall_s)} ", "quiet"),
        node,
        (f"{sign} ", tone),
        (title, TONES[row.event.severity]),
    )
    return (line + Line.of("  ", culprit) if culprit else line).cut(width)


def details(row: EventRow) -> list[list[Line]]:
    """All of one event, in blocks: facts, what each source says about it, and the kernel's own line."""
    event = row.event
    is_repeated = event.count > 1
    happened = {
        "node": row.node,
        "severity": str(event.severity),
        "last": _time_text(row.wall_s, event.last_boot_s),
        "first": _time_text(event.first_wall_s, event.first_boot_s) if is_repeated else "",
        "count": counted(event) if is_repeated else "",
        "process": _beside(event.process, f"pid {event.pid}" if event.pid is not None else ""),
        "container": _beside(event.container, (event.container_id or "")[:12]),
        "follows": f"Xid {event.follows}, which came first: look at that first" if event.follows is not None else "",
    }
    advice = [
        titled(
            one.source,
            [Line.of(one.meaning), *([Line.of((f"What to do: {one.remedy}", "strong"))] if one.remedy else [])],
        )
        for one in event.advice
    ]
    return [
        titled("What happened", labelled([(label, text) for label, text in happened.items() if text])),
        *(advice or [titled("No known meaning", [Line.of("It is shown as it came.")])]),
        titled("As the kernel wrote it", [Line.of(event.text)]),
    ]


def _beside(*texts: str | None) -> str:
    return "  ".join(filter(None, texts))


def _time_text(wall_s: float | None, boot_s: float | None) -> str:
    texts = [clock_time(wall_s)] if wall_s is not None else []
    if boot_s is not None:
        texts.append(f"{boot_s:,.1f} s after boot")
    return ", ".join(texts) or "not stamped"


def summary(visible: Sequence[EventRow]) -> Line:
    """The summary in the pane's title: "2 Xids", "3 to look at", "quiet"."""
    events = [row.event for row in visible]
    xids = [event for event in events if event.kind == "xid"]
    others = [event for event in events if event.kind != "xid" and event.severity is not Severity.INFO]
    texts: list[Line] = []
    if xids:
        count = sum(event.count for event in xids)
        texts.append(Line.of((f"{count:,} Xid{'s' if count > 1 else ''}", _worst_tone(xids))))
    if others:
        count, words = sum(event.count for event in others), "other" if xids else "to look at"
        texts.append(Line.of((f"{count:,} {words}", "warning" if xids else _worst_tone(others))))
    if not texts:
        return Line.of((f"{len(visible)} noted" if visible else "quiet", "quiet"))
    return joined(texts, " · ", "quiet")


def _worst_tone(events: Sequence[KernelEvent]) -> str:
    return "critical" if any(event.severity is Severity.CRITICAL for event in events) else "warning"


def is_quiet(visible: Sequence[EventRow]) -> bool:
    """Whether none of these events is to be looked at."""
    return all(row.event.severity is Severity.INFO for row in visible)


def troubles(fleet: FleetState) -> list[tuple[str, str]]:
    """(node, why its kernel log can't be read and how to permit it), for each such node."""
    unreadable = []
    for node in fleet.nodes:
        collector = node.collectors.get("kernel")
        if collector is not None and collector.state is not CollectorState.OK:
            unreadable.append((node.name, collector.detail or f"kernel log: {collector.state}"))
    return unreadable


def nothing(fleet: FleetState) -> str:
    """The text shown where there is no event; "" where `troubles` explains it."""
    reading = [f"{node.name} ({node.kernel_source})" for node in fleet.nodes if node.kernel_source]
    if not reading:
        return "" if troubles(fleet) else "The kernel log has not been read yet."
    return f"No kernel line that matters since the boot: {', '.join(reading)}."


KIND_CELLS = max(len(kind) for kind in EventKind)


def happened_line(event: Event, *, nodes: int) -> Line:
    """One line; the node's name where there are several."""
    sign, tone = SIGNS[event.severity] if event.severity and event.kind is not EventKind.RESOLVED else ("·", "quiet")
    node = Line.of((f"{'+'.join(event.nodes) or '-'}  ", "quiet")) if nodes > 1 else Line()
    indent = "└ " if event.is_consequence else ""
    words = Line.of(indent, event.text) if event.kind is not EventKind.RESOLVED else Line.of((event.text, "quiet"))
    head = Line.of(
        (clock_time(event.at_s), "quiet"), " ", (sign, tone), " ", (f"{event.kind:<{KIND_CELLS}}  ", "quiet")
    )
    return head + node + words


def happened_details(event: Event) -> list[list[Line]]:
    """All of what happened."""
    when = f"{day_time(event.at_s)[:7]}{clock_time(event.at_s)}  {'+'.join(event.nodes)}"
    return [titled(when, [Line.of(event.text), Line.of((event.subject, "quiet"))])]


def event_words(event: Event) -> str:
    """What a filter looks in."""
    return f"{event.kind} {' '.join(event.nodes)} {event.subject} {event.text}"
