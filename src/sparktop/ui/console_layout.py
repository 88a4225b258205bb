"""How many lines each part of the console gets: pure, from the terminal's size and what there is to show."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sparktop.dataclass import dataclass

SIDE_BY_SIDE = 116
"""Terminal width in cells from which two nodes are side by side."""
TILES_FROM = 3
"""Number of nodes from which each is a tile."""
MIN_TILE_CELLS, MIN_TILE_ROWS = 36, 4
LOGS_SIDE_BY_SIDE = 100
MIN_NODE_ROWS = 9
MAX_NODE_ROWS = 24
MIN_LOG_ROWS = 4
STACKED_NODES_LOG_ROWS = 14
"""What is left below two nodes, one above the other."""
STACKED_LOG_ROWS = 14


VERDICT_LINES = ((22, 1), (36, 2), (48, 4), (math.inf, 6))
"""(Terminal lines below which it holds, most lines of the verdict)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutInputs:
    """What the layout depends on."""

    width: int
    height: int
    view: str = "overview"
    nodes: int = 1
    is_solo: bool = False
    """A single node is maximised."""
    verdict_lines: int = 1
    run_lines: int = 0
    """Runs under way, a line each."""
    engine_lines: int = 2
    """Heading and rows."""
    detail_lines: int = 0
    """Lines for the selected engine's details; 0: closed."""
    bottom: str = "log"
    """Which of "log" and "kernel" is shown when there is room for one."""
    is_kernel_quiet: bool = False
    """The kernel pane has nothing to look at: the log gets its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Lines of each part of the console; 0 hides it."""

    runs: int
    verdict: int
    findings: int
    nodes: int
    engines: int
    logs: int
    columns: int
    """Node panes side by side."""
    panes: int
    """Node panes shown; the other nodes are named in the frame's title, or counted in the last tile's."""
    bottom: tuple[str, ...]
    """The panes of the lower part that are shown."""
    logs_stacked: bool


def arrange(inputs: LayoutInputs) -> Arrangement:
    """The layout for this terminal size and this view."""
    max_verdict_lines = next(lines for limit_rows, lines in VERDICT_LINES if inputs.height < limit_rows)
    verdict = min(inputs.verdict_lines, max_verdict_lines)
    free_rows = max(3, inputs.height - 2 - verdict - inputs.run_lines)
    nodes = engines = findings = logs = 0
    columns = rows = 1
    if inputs.view == "overview":
        engines = min(inputs.engine_lines, 3 if free_rows < 24 else 5 if free_rows < 34 else 9)
        engines = min(engines + inputs.detail_lines, max(engines, free_rows - MIN_NODE_ROWS))
        remaining_rows = free_rows - engines
        is_tiled = inputs.nodes >= TILES_FROM
        columns, rows = _grid(inputs, remaining_rows - (0 if is_tiled else STACKED_NODES_LOG_ROWS))
        share = 13 if columns * rows > 2 else 11
        nodes = remaining_rows * share // 20 if remaining_rows > 24 else remaining_rows // 2
        nodes = min(MAX_NODE_ROWS, max(MIN_TILE_ROWS if columns * rows > 2 else MIN_NODE_ROWS, nodes // rows)) * rows
        if remaining_rows - nodes < MIN_LOG_ROWS:
            over = remaining_rows % rows  # tiles are of one height
            nodes, engines, remaining_rows = remaining_rows - over, engines + over, remaining_rows - over
        logs = remaining_rows - nodes
    elif inputs.view == "nodes":
        columns, rows = _grid(inputs, free_rows)
        nodes = free_rows
    elif inputs.view == "engines":
        engines = free_rows
    elif inputs.view == "findings":
        findings = free_rows
    else:  # a pane of the lower part, alone
        logs = free_rows
    bottom: tuple[str, ...] = (inputs.bottom,) if inputs.view == "overview" else (inputs.view,)
    has_room = inputs.width >= LOGS_SIDE_BY_SIDE or logs >= STACKED_LOG_ROWS
    if inputs.view == "overview" and has_room and not (inputs.is_kernel_quiet and inputs.bottom == "log"):
        bottom = ("log", "kernel")
    return Arrangement(
        runs=inputs.run_lines,
        verdict=verdict,
        findings=findings,
        nodes=nodes,
        engines=engines,
        logs=logs,
        columns=columns,
        panes=min(inputs.nodes, columns * rows),
        bottom=bottom if logs else (),
        logs_stacked=len(bottom) > 1 and inputs.width < LOGS_SIDE_BY_SIDE,
    )


def _grid(inputs: LayoutInputs, room: int) -> tuple[int, int]:
    """(Columns, rows) of the nodes' panes in so many lines: of all, else of as many tiles as have room, else (1, 1)."""
    if inputs.is_solo:
        return 1, 1
    is_tiled = inputs.nodes >= TILES_FROM
    beside = max(1, inputs.width // MIN_TILE_CELLS) if is_tiled else 1 + (inputs.width >= SIDE_BY_SIDE)
    rows = math.ceil(inputs.nodes / beside)
    if rows > 1 and room < rows * (MIN_TILE_ROWS if is_tiled else MIN_NODE_ROWS):
        some = (room - (MIN_LOG_ROWS if inputs.view == "overview" else 0)) // MIN_TILE_ROWS
        return (beside, some) if is_tiled and beside * some >= TILES_FROM else (1, 1)
    return math.ceil(inputs.nodes / rows), rows


def shown_nodes(weights: Sequence[int], panes: int, *, selected: int, before: Collection[int]) -> frozenset[int]:
    """Which nodes get a pane: the selected one, then the worst, of equal ones those that had one.

    Args:
        weights: of each node's trouble; 0: none.
    """
    order = sorted(range(len(weights)), key=lambda at: (at != selected, -weights[at], at not in before, at))
    return frozenset(order[:panes])
