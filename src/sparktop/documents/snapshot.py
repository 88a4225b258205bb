"""The fleet at one moment as `sparktop status` prints it, what is wrong first, then each node; or at a glance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.documents.engine_table import columns, engine_rows, identity
from sparktop.documents.engine_table import row_line as engine_line
from sparktop.documents.events import event_line, rows
from sparktop.documents.finding import listing
from sparktop.documents.finding_tree import SIGNS, FindingRow, StandingOf, row_line, worst
from sparktop.documents.node_figures import SIGNS as LINK_SIGNS
from sparktop.documents.node_figures import (
    badge,
    bandwidth_line,
    collectors,
    empty_line,
    gpu_line,
    gpu_processes,
    guard_line,
    headline_tone,
    host_line,
    memory_line,
    short_headline,
    system_line,
    trend_line,
    trouble,
)
from sparktop.engines.labels import starter_words
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.text.bars import legend, memory_bar
from sparktop.text.lines import BLANK, UNCUT, Line, fitting, indented, joined, signed, spaced, wrapped
from sparktop.text.table import heading
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
        lines += signed(*SIGNS[notice.severity], f"{notice.node}: {notice.text}" if notice.node else notice.text, width)
    for view in fleet.nodes:
        if view.link.state is LinkState.LIVE and (why := view.containers.unknown):
            text = f"{view.name}: containers and engines are not known: {why}"
            lines += signed("▲", "warning", text, width)
    live_names = [view.name for view in fleet.nodes if view.link.state is LinkState.LIVE]
    if not live_names or not fleet.rules_watching:
        return lines
    if not lines:
        text = f"nothing wrong on {' and '.join(live_names)} that {fleet.rules_watching} rules could see"
        lines += signed("✓", "ok", text, width)
    if is_one_look:
        text = "one look: what shows only over time (a stall, a leak, a loop) takes --watch or the console"
        lines += wrapped(text, width, "quiet")
    return lines


def _node(view: NodeView, fleet: FleetState, width: int) -> list[Line]:
    room = width - 2
    lines = [Line.of((view.name, "title"), "  ") + badge(view, fleet.monotonic_s)]
    body = [*trouble(view, fleet.monotonic_s, room, has_keys=False), *guard_line(view, room)]
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
    shown = columns(engine_lines, width, nodes=1)
    lines = [heading(shown)]
    for row in engine_lines:
        container = row.engine.container
        starter = starter_words(container.labels if container is not None else None)
        about = identity(row.engine) + (f" · started by {starter}" if starter else "")
        lines += [engine_line(row, shown), *indented(wrapped(about, width - 2, "quiet"))]
    return lines


GLANCE_ROOMY = (96, 30)
"""Width of the lines and height of the terminal from which the verdict and each node have a line of their own."""
FIGURE_CELLS = 56


def glance(
    fleet: FleetState,
    nodes: Sequence[str],
    width: int,
    height: int,
    *,
    now_wall_s: float,
    standing_of: StandingOf,
    calm: Line,
) -> list[Line]:
    """What is wrong now, `calm` where nothing is, and the memory of these nodes, in a terminal of so many lines; below
    GLANCE_ROOMY one line."""
    views = [view for name in nodes if (view := fleet.node(name)) is not None]
    if width < GLANCE_ROOMY[0] or height < GLANCE_ROOMY[1]:
        memory = joined([_glance_brief(view, has_name=len(fleet.nodes) > 1) for view in views], "  ")
        text, _ = _glance_verdict(fleet, width - memory.width - 2, now_wall_s, standing_of) or (calm, "")
        return [(memory + Line.of("  ") + text.cut(max(0, width - memory.width - 2))).cut(width)]
    wrong = _glance_verdict(fleet, width - 1, now_wall_s, standing_of)
    verdict = (Line.of(" ") + wrong[0]).bar(wrong[1], width) if wrong is not None else calm.cut(width)
    return [verdict, *(_glance_memory(view, width) for view in views[:2])]


def _glance_verdict(
    fleet: FleetState, width: int, now_wall_s: float, standing_of: StandingOf
) -> tuple[Line, str] | None:
    """(The worst notice or finding, its tone); None where nothing is wrong."""
    notice = max(fleet.notices, key=lambda one: one.severity.weight, default=None)
    finding = worst(fleet.findings, standing_of)
    if notice is not None and (finding is None or notice.severity.weight >= finding.severity.weight):
        glyph, tone = SIGNS[notice.severity]
        return Line.of((f"{glyph} ", tone), (f"{notice.node}  " if notice.node else "", tone), notice.text), tone
    if finding is None:
        return None
    names = [view.name for view in fleet.nodes]
    row = FindingRow(finding, standing_of(finding))
    return row_line(row, max(8, width), names, now_wall_s), SIGNS[finding.severity][1]


def _link_sign(view: NodeView) -> Line:
    glyph, tone = LINK_SIGNS[view.link.state]
    return Line.of((f"{glyph} {view.link.state}", tone))


def _glance_memory(view: NodeView, width: int) -> Line:
    """The node's figures and who holds its memory; as last seen where it doesn't answer."""
    line = Line.of((f" {view.name}  ", "title"))
    if view.link.state is not LinkState.LIVE or view.sample is None:
        line += _link_sign(view) + Line.of("  ")
        return line if view.sample is None else line + short_headline(view, FIGURE_CELLS).faded()
    figures = (line + short_headline(view, FIGURE_CELLS - line.width)).fit(FIGURE_CELLS)
    if view.ledger is None:
        return figures
    return figures + Line.of(" ") + memory_bar(view.ledger, width - FIGURE_CELLS - 1)[0]


def _glance_brief(view: NodeView, *, has_name: bool) -> Line:
    name = Line.of((f"{view.name} " if has_name else "", "quiet"))
    if view.link.state is not LinkState.LIVE or view.sample is None:
        return name + _link_sign(view)
    memory = view.sample.memory
    figure = Line.of((f"{bare_gib(memory.available_bytes)} GiB", headline_tone(view)))
    return name + fitting((figure, empty_line(view)), UNCUT, " ")
