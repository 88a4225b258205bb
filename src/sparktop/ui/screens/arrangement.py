"""Who gets how many lines: pure, from the size of the terminal and what there is to show."""

from __future__ import annotations

import math
from dataclasses import dataclass

SIDE_BY_SIDE = 116
"""From this width on, nodes stand side by side."""
LOGS_SIDE_BY_SIDE = 100
MIN_NODE_ROWS = 9
MAX_NODE_ROWS = 24
MIN_LOG_ROWS = 4
STACKED_LOG_ROWS = 14
VIEWS = ("overview", "nodes", "engines", "log", "kernel", "findings")


VERDICT_LINES = ((22, 1), (36, 2), (48, 4), (math.inf, 6))
"""(Below how many lines of the terminal, the most lines of the verdict)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What decides the arrangement."""

    width: int
    height: int
    view: str = "overview"
    nodes: int = 1
    is_solo: bool = False
    """One node alone has been maximised."""
    verdict_lines: int = 1
    run_lines: int = 0
    """Runs under way, a line each."""
    engine_lines: int = 2
    """Heading and rows."""
    detail_lines: int = 0
    """Room wanted for the selected engine's details."""
    bottom: str = "log"
    """Which of log and kernel stands there when there is room for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Lines for each part; 0 hides it."""

    runs: int
    verdict: int
    findings: int
    nodes: int
    engines: int
    logs: int
    columns: int
    """Nodes beside one another: as many as there are, or 1."""
    panes: int
    """Node panes shown at all; the others stand in the frame's title."""
    log: bool
    kernel: bool
    logs_stacked: bool


def arrange(asked: Asked) -> Arrangement:
    """The arrangement for this terminal and this view."""
    side = asked.width >= SIDE_BY_SIDE and asked.nodes > 1 and not asked.is_solo
    most = next(lines for below, lines in VERDICT_LINES if asked.height < below)
    verdict = min(asked.verdict_lines, most)
    rest = max(3, asked.height - 2 - verdict - asked.run_lines)
    if asked.view == "nodes":
        stacked = not side and not asked.is_solo and rest >= 2 * MIN_NODE_ROWS + 2
        panes = asked.nodes if side or stacked else 1
        return _of(asked, verdict, nodes=rest, side=side, panes=panes)
    if asked.view == "engines":
        return _of(asked, verdict, engines=rest, side=side)
    if asked.view == "findings":
        return _of(asked, verdict, findings=rest, side=side)
    if asked.view in ("log", "kernel"):
        return _of(asked, verdict, logs=rest, side=side, only=asked.view)
    engines = min(asked.engine_lines, 3 if rest < 24 else 5 if rest < 34 else 9)
    engines = min(engines + asked.detail_lines, max(engines, rest - MIN_NODE_ROWS))
    left = rest - engines
    if left < MIN_NODE_ROWS + MIN_LOG_ROWS:
        return _of(asked, verdict, nodes=left, engines=engines, side=side)
    stacked = not side and asked.nodes > 1 and left >= 2 * MIN_NODE_ROWS + 14
    share = left * 11 // 20 if left > 24 else left // 2
    nodes = min(MAX_NODE_ROWS * (2 if stacked else 1), max(MIN_NODE_ROWS, share))
    panes = asked.nodes if side or stacked else 1
    return _of(asked, verdict, nodes=nodes, engines=engines, logs=left - nodes, side=side, panes=panes)


def _of(
    asked: Asked,
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
    both = not only and (asked.width >= LOGS_SIDE_BY_SIDE or logs >= STACKED_LOG_ROWS)
    shown = only or asked.bottom
    return Arrangement(
        runs=asked.run_lines,
        verdict=verdict,
        findings=findings,
        nodes=nodes,
        engines=engines,
        logs=logs,
        columns=asked.nodes if side else 1,
        panes=panes,
        log=bool(logs) and (both or shown == "log"),
        kernel=bool(logs) and (both or shown == "kernel"),
        logs_stacked=both and asked.width < LOGS_SIDE_BY_SIDE,
    )
