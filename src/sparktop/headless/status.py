"""`sparktop status` and `sparktop check`: snapshots of the fleet, and what counts of one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from sparktop.diagnose.findings import as_data as finding_data
from sparktop.diagnose.findings import firing_at
from sparktop.documents.data import fields, plain
from sparktop.documents.snapshot import snapshot_lines
from sparktop.headless.look import MakeWatch, is_known, looking
from sparktop.headless.terminal import draw, drawn, put_json, width_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.text.lines import Line


def as_data(state: FleetState) -> dict[str, Any]:
    """The fleet state as JSON-ready data, with the model's field names; times are seconds since the epoch."""
    return {
        "wall_s": state.wall_s,
        "findings": [finding_data(finding) for finding in state.findings],
        "rules_watching": state.rules_watching,
        "nodes": [_node_data(node, state) for node in state.nodes],
        "notices": plain(state.notices),
    }


_AS_THEY_ARE = (
    *("name", "trend", "ledger", "cpu_busy_percent", "probe_cpu_percent", "bandwidth", "guard", "engines"),
    *("kernel_events", "collectors", "facts"),
)
"""Fields of a node."""


def _node_data(node: NodeView, state: FleetState) -> dict[str, Any]:
    sample = plain(node.sample) or {}
    memory = sample.pop("memory", None)
    if node.sample is not None:
        memory |= fields(node.sample.memory, "used_bytes", "page_cache_bytes", "swap_used_bytes")
    return fields(node, *_AS_THEY_ARE) | {
        "link": str(node.link.state),
        "link_reason": node.link.reason,
        "link_hint": node.link.hint or None,
        "reach": str(node.link.reach),
        "age_s": node.age_s(state.monotonic_s),
        "memory": memory,
        "sample": sample or None,
        "gpus": plain(node.gpu.gpus) if node.gpu else None,
        "containers": fields(node.containers, "available", "detail"),
        "kernel_source": node.kernel_source or None,
    }


async def status(make: MakeWatch, *, as_json: bool, watch: bool, timeout_s: float, interval_s: float) -> int:
    """Print one snapshot, or with `watch` the newest once per interval, none twice, until interrupted; the exit code.

    Raises what ends the watch.
    """
    async with looking(make) as look:
        await look.settle(timeout_s)
        while True:
            look.fresh.clear()
            state = look.state
            if as_json:
                put_json(as_data(state), indent=None if watch else 2)
            else:
                # Not `draw`, which goes on where nobody reads: that ends a stream.
                print(drawn(snapshot_lines(state, width_of(sys.stdout), is_one_look=not watch), sys.stdout), flush=True)
            if not watch:
                return exit_code(state)
            await asyncio.sleep(interval_s)
            await look.next()


async def check(make: MakeWatch, level: Severity, *, timeout_s: float) -> int:
    """Watch until every node has answered in full, print what counts at this level, and return the exit code."""
    async with looking(make) as look:
        await look.settle(timeout_s, settle_s=timeout_s)
        state = look.state
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


def exit_code(state: FleetState, level: Severity = Severity.WARNING) -> int:
    """3 when a node has no live link, else 1 when a finding at this level or above fires or containers are not known,
    else 0."""
    if not all(node.link.state is LinkState.LIVE for node in state.nodes):
        return 3
    return int(bool(firing_at(state.findings, level)) or any(node.containers.unknown for node in state.nodes))
