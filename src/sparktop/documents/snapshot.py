"""The whole fleet at one moment, as `sparktop status` prints it: what is wrong first, then each node. Pure."""

from __future__ import annotations

from sparktop.documents.engine_table import choose, engine_rows, heading, identity, table_row
from sparktop.documents.finding import listing
from sparktop.documents.finding_tree import SIGNS
from sparktop.documents.kernel_events import event_line, rows
from sparktop.documents.node_figures import (
    bandwidth_line,
    collectors,
    empty_line,
    gpu_line,
    gpu_processes,
    headline_tone,
    host_line,
    memory_line,
    system_line,
    trend_line,
)
from sparktop.documents.status import badge, guard_line, trouble
from sparktop.engines.labels import starter_words
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.text.bars import legend
from sparktop.text.lines import BLANK, Line, fitting, hanging, indented, spaced, wrapped
from sparktop.text.units import bare_gib

PROCESSES = 6
KERNEL_EVENTS = 3


def snapshot_lines(fleet: FleetState, width: int, *, is_one_look: bool = False) -> list[Line]:
    """The fleet; `is_one_look` says what a single snapshot can't see."""
    return spaced(
        [_verdict(fleet, width, is_one_look=is_one_look), *(_node(view, fleet, width) for view in fleet.nodes)]
    )


def _verdict(fleet: FleetState, width: int, *, is_one_look: bool) -> list[Line]:
    lines = listing(fleet.findings, width, [view.name for view in fleet.nodes], fleet.wall_s)
    if fleet.findings:
        text = "all evidence, remedies and sources: `sparktop status --json`, or the console"
        lines += [BLANK, *wrapped(text, width, "quiet")]
    for notice in fleet.notices:
        sign, tone = SIGNS[notice.severity]
        node = f"{notice.node}: " if notice.node else ""
        lines += hanging(Line.of((f"{sign} ", tone)), f"{node}{notice.text}", width)
    for view in fleet.nodes:
        if view.link.state is LinkState.LIVE and (why := view.containers.unknown):
            text = f"{view.name}: containers and engines are not known: {why}"
            lines += hanging(Line.of(("▲ ", "warning")), text, width)
    live_names = [view.name for view in fleet.nodes if view.link.state is LinkState.LIVE]
    if not live_names or not fleet.rules_watching:
        return lines
    if not lines:
        text = f"nothing wrong on {' and '.join(live_names)} that {fleet.rules_watching} rules could see"
        lines += hanging(Line.of(("✓ ", "ok")), text, width)
    if is_one_look:
        text = "one look: what shows only over time (a stall, a leak, a loop) takes --watch or the console"
        lines += wrapped(text, width, "quiet")
    return lines


def _node(view: NodeView, fleet: FleetState, width: int) -> list[Line]:
    room = width - 2
    lines = [Line.of((view.name, "title"), "  ") + badge(view, fleet.monotonic_s)]
    body = [*trouble(view, fleet.monotonic_s, room), *guard_line(view, room)]
    if view.sample is not None:
        memory = view.sample.memory
        available = Line.of(
            ("available ", "quiet"),
            (f"{bare_gib(memory.available_bytes)} GiB", headline_tone(view)),
            (f" of {bare_gib(memory.total_bytes)}", "quiet"),
        )
        body += [fitting([available, trend_line(view), empty_line(view)], room), memory_line(view.sample, room)]
        body += legend(view.ledger.holders, room, len(view.ledger.holders)) if view.ledger is not None else []
        body += [gpu_line(view, room), bandwidth_line(view).cut(room), *gpu_processes(view, room, PROCESSES)]
        body += [host_line(view, room), system_line(view, room)]
    body += collectors(view, room, lines_each=0)
    body += _engines(view, fleet, room)
    events = [row for row in rows(fleet) if row.node == view.name][-KERNEL_EVENTS:]
    body += [event_line(row, room, show_node=False, now_wall_s=fleet.wall_s) for row in events]
    return [*lines, *indented(line for line in body if line.runs)]


def _engines(view: NodeView, fleet: FleetState, width: int) -> list[Line]:
    engine_lines = [row for row in engine_rows(fleet) if row.node == view.name]
    if not engine_lines:
        return []
    columns = choose(engine_lines, width, nodes=1)
    lines = [heading(columns)]
    for row in engine_lines:
        container = row.engine.container
        starter = starter_words(container.labels if container is not None else None)
        about = identity(row.engine) + (f" · started by {starter}" if starter else "")
        lines += [table_row(row, columns), *indented(wrapped(about, width - 2, "quiet"))]
    return lines
