"""Rules on low memory, memory pressure and swap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.memory.relief import engine_to_stop, is_unguarded
from sparktop.diagnose.rules.window import newest, seen
from sparktop.engines.memory_target import share_flags
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView, current_nodes
from sparktop.text.units import GIB, gib

LOW_SHARE, LOW_BYTES = 0.07, 8 * GIB
SCARCE_SHARE, SCARCE_BYTES = 0.033, 4 * GIB
SMALL_MACHINE_BYTES = 64 * GIB
"""A machine with less memory is no Spark: only the shares apply."""
_HOLDERS = ("engine", "gpu", "desktop", "processes", "shared", "huge", "kernel", "unaccounted")
PRESSURE_PERCENT = 10.0
SWAP_STORM_BYTES_PER_S = 20e6
ROOMY_SHARE = 0.5
"""With so much available, what moves is read back from swap after a shortage."""
DECAYS_S = 30.0
"""An average over ten seconds tells of a shortage this long after its end."""
SILENT_AT_MOST_S = 600.0
"""How far back a shortage is looked for: a node that is out of memory may be silent for minutes."""
SWAP_INFO_BYTES = 1 * GIB
SWAP_WARNING_BYTES = 4 * GIB


@live_rule("memory.low", hold_s=2.0, by_samples=True, follows=("memory.first-request-spike", "memory.falling"))
def low(fleet: FleetState) -> Iterable[Finding]:
    """memory.low: little memory is available, rising or falling."""
    for node, sample in current_nodes(fleet):
        memory = sample.memory
        warning, critical = _limits(memory.total_bytes)
        left = memory.available_bytes
        if left >= warning:
            continue
        is_scarce = left < critical
        holders = [holder for holder in node.holders(*_HOLDERS) if holder.held_bytes > GIB][:3]
        top_holders = tuple(f"{holder.label} ({gib(holder.held_bytes)})" for holder in holders[:2])
        yield found(
            "memory.low",
            "scarce" if is_scarce else "little",
            {
                "node": node.name,
                "available": gib(left),
                "total": gib(memory.total_bytes),
                "percent": 100 * left / memory.total_bytes,
                "holders": top_holders,
                "hold": "hold" if len(top_holders) > 1 else "holds",
                "flags": _share_flags(node),
                "smaller_share": SMALLER_SHARE,
                "is_unguarded": is_unguarded(node),
                **(engine_to_stop(node) if is_scarce else {}),
            },
            evidence=(
                seen(node, "memory", f"available {gib(left)}, swap used {gib(memory.swap_used_bytes)}"),
                *(seen(node, "memory", f"{holder.label} {gib(holder.held_bytes)}") for holder in holders),
            ),
            nodes=(node.name,),
        )


@live_rule(
    "memory.pressure",
    hold_s=5.0,
    by_samples=True,
    follows=("memory.first-request-spike", "memory.falling", "memory.low"),
)
def pressure(fleet: FleetState) -> Iterable[Finding]:
    """memory.pressure: tasks wait for memory, or swap is busy both ways."""
    for node, sample in current_nodes(fleet):
        psi, swap_rate = sample.memory_pressure, node.swap_bytes_per_s or 0.0
        stalls = psi.full_avg10 if psi else 0.0
        memory = sample.memory
        roomy_bytes = ROOMY_SHARE * memory.total_bytes
        is_recovering = memory.available_bytes >= roomy_bytes and (_was_short(node, roomy_bytes) or stalls < 1.0)
        if is_recovering or (stalls < PRESSURE_PERCENT and swap_rate <= SWAP_STORM_BYTES_PER_S):
            continue
        yield found(
            "memory.pressure",
            "stalling" if stalls >= PRESSURE_PERCENT else "swapping",
            {
                "node": node.name,
                "stalls": stalls,
                "available": gib(memory.available_bytes),
                "swap_mb_per_s": swap_rate / 1e6 if swap_rate > 1e6 else None,
                "flags": _share_flags(node),
                "smaller_share": SMALLER_SHARE,
            },
            evidence=(
                seen(node, "pressure", f"memory full avg10 {stalls:.1f} %, some avg10 {psi.some_avg10:.1f} %")
                if psi
                else seen(node, "swap", f"{swap_rate / 1e6:.0f} MB/s"),
                seen(
                    node, "memory", f"available {gib(memory.available_bytes)}, swap used {gib(memory.swap_used_bytes)}"
                ),
            ),
            nodes=(node.name,),
        )


@live_rule(
    "memory.swap-used",
    hold_s=10.0,
    follows=("memory.first-request-spike", "memory.falling", "memory.low", "memory.pressure"),
)
def swap_used(fleet: FleetState) -> Iterable[Finding]:
    """memory.swap-used: memory has been swapped out."""
    for node, sample in current_nodes(fleet):
        used = sample.memory.swap_used_bytes
        if used < SWAP_INFO_BYTES:
            continue
        slows_loads = used >= SWAP_WARNING_BYTES and any(is_alive(engine) for engine in node.engines)
        processes = node.processes.processes if node.processes else ()
        swapped = [process for process in processes if process.swapped_bytes > GIB // 4]
        swapped = sorted(swapped, key=lambda process: -process.swapped_bytes)[:3]
        yield found(
            "memory.swap-used",
            "slows-loads" if slows_loads else "idle",
            {
                "node": node.name,
                "used": gib(used),
                "swapped": ", ".join(f"{p.command} {gib(p.swapped_bytes)}" for p in swapped[:2]),
                "flags": _share_flags(node),
                "smaller_share": SMALLER_SHARE if slows_loads else None,
            },
            evidence=(
                seen(node, "memory", f"swap used {gib(used)} of {gib(sample.memory.swap_total_bytes)}"),
                *(
                    seen(node, "processes", f"{p.command} (pid {p.pid}): {gib(p.swapped_bytes)} swapped")
                    for p in swapped
                ),
            ),
            nodes=(node.name,),
        )


def _limits(total: int) -> tuple[int, int]:
    warning, critical = int(total * LOW_SHARE), int(total * SCARCE_SHARE)
    if total < SMALL_MACHINE_BYTES:
        return warning, critical
    return max(warning, LOW_BYTES), max(critical, SCARCE_BYTES)


def _was_short(node: NodeView, roomy_bytes: float) -> bool:
    """Whether memory came back within DECAYS_S; a node that didn't answer in a shortage has no samples of its end."""
    points = list(newest(node.available_history, SILENT_AT_MOST_S))
    roomy = list(takewhile(lambda point: point[1] >= roomy_bytes, points))
    return len(roomy) < len(points) and (not roomy or points[0][0] - roomy[-1][0] <= DECAYS_S)


def _share_flags(node: NodeView) -> str:
    """The flags of the shares of the engines that run there."""
    return share_flags(engine.kind for engine in node.engines if is_alive(engine))
