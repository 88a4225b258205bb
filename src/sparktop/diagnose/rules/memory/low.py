"""Rules on low memory, memory pressure and swap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.memory.relief import arm_guard, stop_engine
from sparktop.diagnose.rules.window import newest, seen
from sparktop.engines.memory_target import share_flags
from sparktop.engines.ranks import is_alive
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
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


@live_rule(
    "memory.low",
    "Little memory is available",
    Severity.CRITICAL,
    scope="any node",
    sources=("field report 001", "field report 003"),
    hold_s=2.0,
    by_samples=True,
    follows=("memory.first-request-spike", "memory.falling"),
)
def low(fleet: FleetState) -> Iterable[Finding]:
    """memory.low: little memory is available, rising or falling."""
    for node, sample in current_nodes(fleet):
        memory = sample.memory
        warning, critical = _limits(memory.total_bytes)
        left = memory.available_bytes
        if left >= warning:
            continue
        is_critical = left < critical
        holders = [holder for holder in node.holders(*_HOLDERS) if holder.held_bytes > GIB][:3]
        top_holders = " and ".join(f"{holder.label} ({gib(holder.held_bytes)})" for holder in holders[:2])
        yield Finding(
            rule="memory.low",
            severity=Severity.CRITICAL if is_critical else Severity.WARNING,
            title=f"{node.name} has {gib(left)} of memory available"
            + (": one more allocation can hang it" if is_critical else ""),
            explanation=(
                f"{gib(left)} of {gib(memory.total_bytes)} are available (MemAvailable, which counts cache as free)."
                + (
                    f" {top_holders} hold{'s' if ' and ' not in top_holders else ''} most of the rest."
                    if top_holders
                    else ""
                )
                + (
                    " On this machine CUDA uses the same memory and can take tens of GiB in seconds. Below 4 GiB "
                    "even SSH may get none."
                )
            ),
            evidence=(
                seen(node, "memory", f"available {gib(left)}, swap used {gib(memory.swap_used_bytes)}"),
                *(seen(node, "memory", f"{holder.label} {gib(holder.held_bytes)}") for holder in holders),
            ),
            remedies=(
                Remedy(
                    title=f"Reduce the engine's share: {_share_flags(node)}",
                    steps=(
                        "lower it so that 12 GiB (headless) or 20 GiB (with a desktop) stay available, and relaunch",
                    ),
                    cost="part of the KV cache; the time to load",
                    action="relaunch",
                    change=SMALLER_SHARE,
                ),
                *(stop_engine(node, cost="its current work") if is_critical else ()),
                Remedy(
                    title="Stop other programs that hold memory there",
                    steps=("the memory bar of this node names the holders",),
                    cost="their work",
                ),
                *arm_guard(node, "Arm the guard, which stops the engine before the host hangs"),
            ),
            references=("field report 001", "field report 003"),
            nodes=(node.name,),
            brief=f"{100 * left / memory.total_bytes:.0f} % of {gib(memory.total_bytes)}",
        )


@live_rule(
    "memory.pressure",
    "Tasks wait for memory",
    Severity.WARNING,
    scope="any node",
    sources=("field report 003",),
    hold_s=5.0,
    by_samples=True,
    follows=("memory.first-request-spike", "memory.falling", "memory.low"),
)
def pressure(fleet: FleetState) -> Iterable[Finding]:
    """memory.pressure: tasks wait for memory, or swap is busy both ways."""
    for node, sample in current_nodes(fleet):
        psi, swap_rate = sample.memory_pressure, node.swap_bytes_per_s
        stalls = psi.full_avg10 if psi else 0.0
        memory = sample.memory
        roomy_bytes = ROOMY_SHARE * memory.total_bytes
        is_recovering = memory.available_bytes >= roomy_bytes and (_was_short(node, roomy_bytes) or stalls < 1.0)
        is_swapping = swap_rate is not None and swap_rate > SWAP_STORM_BYTES_PER_S
        if is_recovering or (stalls < PRESSURE_PERCENT and not is_swapping):
            continue
        swap_text = f", swap moves {swap_rate / 1e6:.0f} MB/s" if swap_rate is not None and swap_rate > 1e6 else ""
        yield Finding(
            rule="memory.pressure",
            severity=Severity.WARNING,
            title=f"{node.name} is stalling: its tasks wait for memory"
            if stalls >= PRESSURE_PERCENT
            else f"{node.name} is swapping heavily",
            explanation=(
                f"In the last ten seconds all its tasks waited for memory {stalls:.0f} % of the time (PSI full "
                f"avg10){swap_text}. It reclaims or swaps instead of working: tokens slow down, and logins take long."
            ),
            distinction=(
                f"The kernel counts {gib(memory.available_bytes)} as available, but tasks stall all the same.",
            ),
            evidence=(
                seen(node, "pressure", f"memory full avg10 {stalls:.1f} %, some avg10 {psi.some_avg10:.1f} %")
                if psi
                else seen(node, "swap", f"{(swap_rate or 0) / 1e6:.0f} MB/s"),
                seen(
                    node, "memory", f"available {gib(memory.available_bytes)}, swap used {gib(memory.swap_used_bytes)}"
                ),
            ),
            remedies=(
                Remedy(
                    title=f"Reduce the engine's share: {_share_flags(node)}",
                    steps=("lower it and relaunch, or stop what you don't need",),
                    cost="part of the KV cache; the time to load",
                    action="relaunch",
                    change=SMALLER_SHARE,
                ),
            ),
            references=("field report 003",),
            nodes=(node.name,),
            brief=f"PSI full {stalls:.0f} %{swap_text}",
        )


@live_rule(
    "memory.swap-used",
    "Memory is in swap",
    Severity.WARNING,
    scope="any node",
    sources=("field report 003",),
    hold_s=10.0,
    follows=("memory.first-request-spike", "memory.falling", "memory.low", "memory.pressure"),
)
def swap_used(fleet: FleetState) -> Iterable[Finding]:
    """memory.swap-used: memory has been swapped out."""
    for node, sample in current_nodes(fleet):
        used = sample.memory.swap_used_bytes
        if used < SWAP_INFO_BYTES:
            continue
        is_heavy = used >= SWAP_WARNING_BYTES and any(is_alive(engine) for engine in node.engines)
        swapped = sorted(
            (
                process
                for process in (node.processes.processes if node.processes else ())
                if process.swapped_bytes > GIB // 4
            ),
            key=lambda process: -process.swapped_bytes,
        )[:3]
        yield Finding(
            rule="memory.swap-used",
            severity=Severity.WARNING if is_heavy else Severity.INFO,
            title=f"{node.name} has {gib(used)} in swap",
            explanation=(
                "Memory ran short at some time, and the kernel moved these pages to swap. "
                + (
                    "With a running engine, loads can take four times as long as on the other node, because the "
                    "kernel swaps while weights load. The engine's share of memory is too large."
                    if is_heavy
                    else "As long as nothing reads them they cost nothing."
                )
            ),
            evidence=(
                seen(node, "memory", f"swap used {gib(used)} of {gib(sample.memory.swap_total_bytes)}"),
                *(
                    seen(node, "processes", f"{p.command} (pid {p.pid}): {gib(p.swapped_bytes)} swapped")
                    for p in swapped
                ),
            ),
            remedies=(
                Remedy(
                    title=f"Before the next launch, reduce the engine's share: {_share_flags(node)}",
                    cost="part of the KV cache",
                    action="relaunch" if is_heavy else None,
                    change=SMALLER_SHARE if is_heavy else None,
                ),
            ),
            references=("field report 003 (5 GiB in swap, load four times slower)",),
            nodes=(node.name,),
            brief=", ".join(f"{p.command} {gib(p.swapped_bytes)}" for p in swapped[:2]),
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
