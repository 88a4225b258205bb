"""`sparktop check`: a line for each finding that counts, a summary, and an exit code, for cron and CI."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from sparktop.headless.findings import firing_at
from sparktop.headless.status import MakeWatch, exit_code, is_known, settled
from sparktop.headless.terminal import draw
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.text.lines import Line


async def check(make: MakeWatch, level: Severity, *, timeout_s: float) -> int:
    """Watch until every node has answered in full, print what counts at this level, and return the exit code."""
    fresh = asyncio.Event()
    observation = make(lambda _: fresh.set())
    running = asyncio.create_task(observation.run())
    try:
        await settled(observation, fresh, timeout_s, settle_s=timeout_s)
        state = observation.state
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    draw((Line.of(text) for text in check_lines(state, level)), sys.stdout)
    return check_code(state, level)


def check_code(state: FleetState, level: Severity) -> int:
    """As status has it; a node that hasn't answered in full is 1."""
    return exit_code(state, level) or int(not all(map(is_known, state.nodes)))


def check_lines(state: FleetState, level: Severity) -> Iterator[str]:
    """A line for each finding at the level or above and for each node that can't be judged, then a summary."""
    counting = firing_at(state.findings, level)
    yield from map(_finding_line, counting)
    live = [node for node in state.nodes if node.link.state is LinkState.LIVE]
    for node in state.nodes:
        if node not in live:
            yield f"unreachable {node.name}: {node.link.trouble}"
        elif why := node.containers.unknown:
            yield f"unknown {node.name}: containers and engines: {why}"
        elif not is_known(node):
            yield f"unknown {node.name}: its GPU or its engines have not answered yet"
    said = f"{len(counting)} findings" if len(counting) > 1 else "1 finding" if counting else "nothing"
    where = "" if len(live) == len(state.nodes) else f"{len(live)} of "
    hosts = f"{where}{len(state.nodes)} {'host' if len(state.nodes) == 1 else 'hosts'}"
    above = "" if level is Severity.CRITICAL else " or above"
    yield f"{said} at {level}{above} on {hosts}, by {state.rules_watching} rules"


def _finding_line(finding: Finding) -> str:
    """ "critical spark1 memory.low: spark1 has 3.1 GiB of memory available (2 % of 119 GiB), suspected"."""
    where = "+".join(finding.nodes) or "-"
    figures = f" ({finding.figures})" if finding.figures else ""
    doubt = ", suspected" if finding.confidence is Confidence.SUSPECTED else ""
    return f"{finding.severity} {where} {finding.rule}: {finding.title}{figures}{doubt}"
