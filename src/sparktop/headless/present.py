"""The picture as data and as plain words."""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from sparktop.headless.findings import as_data as finding_data
from sparktop.headless.findings import as_rows
from sparktop.headless.paper import lines_for
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.recipe.labels import starter_words

JSON_VERSION = 1
_GIB = 1024**3
_MARKS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "·"}
_LINKS = {
    LinkState.CONNECTING: "◌",
    LinkState.LIVE: "●",
    LinkState.STALE: "◐",
    LinkState.LOST: "○",
    LinkState.REFUSED: "✖",
}


def as_data(state: FleetState) -> dict[str, Any]:
    """The picture as JSON-ready data under the model's own names; times are seconds since the epoch."""
    return {
        "version": JSON_VERSION,
        "wall_s": state.wall_s,
        "findings": [finding_data(finding) for finding in state.findings],
        "rules_watching": state.rules_watching,
        "nodes": [_node_data(node, state) for node in state.nodes],
        "notices": [_plain(notice) for notice in state.notices],
    }


def _node_data(node: NodeView, state: FleetState) -> dict[str, Any]:
    sample = _plain(node.sample) if node.sample else {}
    memory = sample.pop("memory", None)
    if memory is not None and node.sample is not None:
        held = node.sample.memory
        memory |= {
            "used_bytes": held.used_bytes,
            "page_cache_bytes": held.page_cache_bytes,
            "swap_used_bytes": held.swap_used_bytes,
        }
    gpus = _plain(node.gpu.gpus) if node.gpu else None
    return {
        "name": node.name,
        "link": str(node.link.state),
        "link_reason": node.link.reason,
        "link_hint": node.link.hint or None,
        "reach": str(node.link.reach),
        "age_s": node.age_s(state.monotonic_s),
        "memory": memory,
        "trend": _plain(node.trend),
        "ledger": _plain(node.ledger),
        "cpu_busy_percent": node.cpu_busy_percent,
        "probe_cpu_percent": node.probe_cpu_percent,
        "sample": sample or None,
        "gpus": gpus,
        "bandwidth": _plain(node.bandwidth),
        "engines": _plain(node.engines),
        "containers": {"available": node.containers.available, "detail": node.containers.detail},
        "kernel_source": node.kernel_source or None,
        "kernel_events": _plain(node.kernel_events),
        "collectors": _plain(node.collectors),
        "facts": _plain(node.facts),
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def as_text(state: FleetState, *, is_snapshot: bool = False, out: TextIO | None = None) -> str:
    """The picture in plain words, understandable without colour: what is wrong first; `out` is where it goes."""
    lines = [*_verdict(state, is_snapshot=is_snapshot, out=out or io.StringIO())]
    for node in state.nodes:
        lines += ["", *_node_text(node, state)]
    return "\n".join(lines).strip()


def _verdict(state: FleetState, *, is_snapshot: bool, out: TextIO) -> list[str]:
    lines = lines_for(as_rows(state.findings, short=True, now_wall_s=state.wall_s), out)
    if state.findings:
        lines.append("  all evidence, remedies and sources: `sparktop status --json`, or the console")
    lines += [f"{_MARKS[n.severity]} {n.node + ': ' if n.node else ''}{n.text}" for n in state.notices]
    live = [node.name for node in state.nodes if node.link.state is LinkState.LIVE]
    count = state.rules_watching
    if not live or not count:
        return lines
    if not lines:
        lines.append(f"✓ nothing wrong on {' and '.join(live)} that {count} rules could see")
    if is_snapshot:
        lines.append(
            "  one look: what must be watched to be told (a stall, a leak, a loop) takes --watch or the console"
        )
    return lines


def _node_text(node: NodeView, state: FleetState) -> list[str]:
    age_s = node.age_s(state.monotonic_s)
    age = "" if age_s is None else f" {age_s:.1f} s ago"
    reason = "" if node.link.reason == node.link.state else node.link.reason
    lines = [f"{node.name}  {_LINKS[node.link.state]} {node.link.state}{age}  {reason}".rstrip()]
    if node.link.hint:
        lines.append(f"  {node.link.hint}")
    if (sample := node.sample) is not None:
        memory = sample.memory
        trend = ""
        if node.trend and node.trend.time_to_empty_s is not None:
            trend = f", falling {-node.trend.bytes_per_s / 1e9:.1f} GB/s, empty in {node.trend.time_to_empty_s:.0f} s"
        lines.append(
            f"  memory   {memory.available_bytes / _GIB:.1f} of {memory.total_bytes / _GIB:.1f} GiB available{trend}; "
            f"page cache {memory.page_cache_bytes / _GIB:.1f}, swap used {memory.swap_used_bytes / _GIB:.1f} GiB"
        )
        if node.ledger:
            shown = [h for h in node.ledger.holders if h.held_bytes >= 0.05 * _GIB]
            lines.append("  held by  " + ", ".join(f"{h.label} {h.held_bytes / _GIB:.1f}" for h in shown) + " GiB")
    lines += _gpu_text(node)
    for engine in node.engines:
        progress = f" {engine.progress.done}/{engine.progress.total}" if engine.progress else ""
        speed = engine.rates.generation_tokens_per_s if engine.rates else None
        told = "" if speed is None else f", {speed:.1f} tok/s"
        by = starter_words(engine.container.labels if engine.container else None)
        told += f", by {by}" if by else ""
        lines.append(f"  engine   {engine.name} ({engine.kind}): {engine.state}{progress} {engine.model or ''}{told}")
    if not node.containers.available and node.sample is not None:
        lines.append(f"  docker   {node.containers.detail}")
    for collector in node.collectors.values():
        if collector.state is not CollectorState.OK:
            lines.append(f"  {collector.name:8} {collector.state}: {collector.detail}")
    for event in node.kernel_events[-3:]:
        times = f"{event.count} × " if event.count > 1 else ""
        lines.append(f"  kernel   {_clock(event.last_wall_s)}{times}{event.title}")
    return lines


def _clock(wall_s: float | None) -> str:
    return "" if wall_s is None else time.strftime("%H:%M:%S  ", time.localtime(wall_s))


def _gpu_text(node: NodeView) -> list[str]:
    lines = []
    for gpu in node.gpu.gpus if node.gpu else ():

        def said(value: float | None, unit: str, name: str, gaps: Mapping[str, Any] = gpu.gaps) -> str:
            return f"n/a ({gaps.get(name, 'not read')})" if value is None else f"{value:.0f} {unit}"

        parts = [
            f"SM {said(gpu.utilisation_percent, '%', 'utilisation_percent')}",
            said(gpu.power_w, "W", "power_w"),
            said(gpu.sm_clock_mhz, "MHz", "sm_clock_mhz"),
            said(gpu.temperature_c, "°C", "temperature_c"),
        ]
        lines.append(f"  gpu      {gpu.name}: {', '.join(parts)}")
    return lines
