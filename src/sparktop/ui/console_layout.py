"""How many lines each part of the console gets: pure, from the terminal's size and what there is to show."""

from __future__ import annotations

import math

from sparktop.dataclass import dataclass

SIDE_BY_SIDE = 116
"""Terminal width in cells from which nodes are side by side."""
MIN_NODE_CELLS = 30
"""Least width of a node's pane beside others."""
LOGS_SIDE_BY_SIDE = 100
MIN_NODE_ROWS = 9
MAX_NODE_ROWS = 24
MIN_LOG_ROWS = 4
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
    """Node panes side by side: all of them, or 1."""
    panes: int
    """Node panes shown; the other nodes are named in the frame's title."""
    bottom: tuple[str, ...]
    """The panes of the lower part that are shown."""
    logs_stacked: bool


def arrange(inputs: LayoutInputs) -> Arrangement:
    """The layout for this terminal size and this view."""
    has_width = inputs.width >= max(SIDE_BY_SIDE, inputs.nodes * MIN_NODE_CELLS)
    is_side_by_side = has_width and inputs.nodes > 1 and not inputs.is_solo
    max_verdict_lines = next(lines for limit_rows, lines in VERDICT_LINES if inputs.height < limit_rows)
    verdict = min(inputs.verdict_lines, max_verdict_lines)
    free_rows = max(3, inputs.height - 2 - verdict - inputs.run_lines)
    if inputs.view == "nodes":
        stacked = not is_side_by_side and not inputs.is_solo and free_rows >= inputs.nodes * (MIN_NODE_ROWS + 1)
        panes = inputs.nodes if is_side_by_side or stacked else 1
        return _arrangement(inputs, verdict, nodes=free_rows, side=is_side_by_side, panes=panes)
    if inputs.view == "engines":
        return _arrangement(inputs, verdict, engines=free_rows, side=is_side_by_side)
    if inputs.view == "findings":
        return _arrangement(inputs, verdict, findings=free_rows, side=is_side_by_side)
    if inputs.view != "overview":  # a pane of the lower part, alone
        return _arrangement(inputs, verdict, logs=free_rows, side=is_side_by_side, only=inputs.view)
    engines = min(inputs.engine_lines, 3 if free_rows < 24 else 5 if free_rows < 34 else 9)
    engines = min(engines + inputs.detail_lines, max(engines, free_rows - MIN_NODE_ROWS))
    remaining_rows = free_rows - engines
    if remaining_rows < MIN_NODE_ROWS + MIN_LOG_ROWS:
        return _arrangement(inputs, verdict, nodes=remaining_rows, engines=engines, side=is_side_by_side)
    stacked = not is_side_by_side and inputs.nodes > 1 and remaining_rows >= inputs.nodes * MIN_NODE_ROWS + 14
    share = remaining_rows * 11 // 20 if remaining_rows > 24 else remaining_rows // 2
    panes_below = inputs.nodes if stacked else 1
    nodes = min(MAX_NODE_ROWS * panes_below, max(MIN_NODE_ROWS * panes_below, share))
    panes = inputs.nodes if is_side_by_side or stacked else 1
    return _arrangement(
        inputs, verdict, nodes=nodes, engines=engines, logs=remaining_rows - nodes, side=is_side_by_side, panes=panes
    )


def _arrangement(
    inputs: LayoutInputs,
    verdict: int,
    *,
    side: bool,
    findings: int = 0,
    nodes: int = 0,
    engines: int = 0,
    logs: int = 0,
    panes: int = 1,
    only: str = "",
) -> Arrangement:
    has_room = inputs.width >= LOGS_SIDE_BY_SIDE or logs >= STACKED_LOG_ROWS
    shows_both = not only and has_room and not (inputs.is_kernel_quiet and inputs.bottom == "log")
    return Arrangement(
        runs=inputs.run_lines,
        verdict=verdict,
        findings=findings,
        nodes=nodes,
        engines=engines,
        logs=logs,
        columns=inputs.nodes if side else 1,
        panes=panes,
        bottom=() if not logs else ("log", "kernel") if shows_both else (only or inputs.bottom,),
        logs_stacked=shows_both and inputs.width < LOGS_SIDE_BY_SIDE,
    )
