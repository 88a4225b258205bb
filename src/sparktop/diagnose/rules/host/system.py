"""Rules on the machine itself: drivers and kernels that wait for a reboot, full disks, clocks, zombies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparktop.checks.host import (
    DRIVER_BACK_STEP,
    SUPPORTED_BRANCH,
    DiskFacts,
    DriverFacts,
    judge_clock,
    judge_disk_room,
    judge_driver_branch,
    judge_driver_pending,
    judge_next_kernel,
)
from sparktop.checks.judgement import Judgement
from sparktop.checks.machine import ADVISORY_KERNEL, handover_facts, judge_handover
from sparktop.diagnose.rule import SEVERITY, check_rule, live_rule
from sparktop.diagnose.rules.window import seen
from sparktop.knowledge.card import card, found
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView, is_current, node_wall_s
from sparktop.model.telemetry import HostFacts
from sparktop.text.units import duration, gib

MANY_ZOMBIES = 100


@check_rule(judge_driver_pending)
def driver_pending(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-pending: the installed driver is not the loaded one."""
    for node, host, judgement in _problems(fleet, judge_driver_pending):
        loaded, installed = node.driver_version, host.driver_installed
        is_refused = "is_refused" in judgement.figures
        nvml = node.collectors.get("nvml") if is_refused else None
        yield found(
            judge_driver_pending.id,
            "pending",
            {"loaded": loaded, "installed": installed, "is_refused": is_refused},
            severity=SEVERITY[judgement.state],
            evidence=(
                seen(node, "facts", f"/proc/driver/nvidia/version: {loaded}; module on disk: {installed}"),
                *((seen(node, "nvml", nvml.detail),) if nvml else ()),
            ),
            nodes=(node.name,),
        )


@check_rule(judge_next_kernel)
def next_kernel(fleet: FleetState) -> Iterator[Finding]:
    """host.next-kernel-without-driver: after the next boot there would be no GPU driver."""
    for node, facts, judgement in _problems(fleet, judge_next_kernel):
        kernel, upcoming = facts.kernel, facts.kernel_next
        yield found(
            judge_next_kernel.id,
            "lacks",
            {"kernel": kernel, "upcoming": upcoming},
            severity=SEVERITY[judgement.state],
            evidence=(seen(node, "facts", f"running {kernel}; newest {upcoming}, without an NVIDIA module"),),
            nodes=(node.name,),
        )


@check_rule(judge_driver_branch)
def driver_branch(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-branch: a GB10 on a driver branch that isn't DGX OS's."""
    for node, host, judgement in _problems(fleet, lambda node: judge_driver_branch(DriverFacts(node=node))):
        version, gpu = node.driver_version, node.first_gpu
        yield found(
            judge_driver_branch.id,
            judgement.case,
            {"version": version, "branch": SUPPORTED_BRANCH, "back": DRIVER_BACK_STEP},
            severity=SEVERITY[judgement.state],
            evidence=(seen(node, "facts", f"driver {version}, {host.product or (gpu.name if gpu else 'GB10')}"),),
            scope=card(judge_driver_branch.id).scope,
            nodes=(node.name,),
        )


@check_rule(judge_handover)
def kernel_advisory(fleet: FleetState) -> Iterator[Finding]:
    """host.kernel-advisory: a kernel with known problems on DGX Spark."""
    for node, facts in _nodes_with_facts(fleet):
        if not facts.kernel.startswith(ADVISORY_KERNEL) or node.sample is None:
            continue
        memory = node.sample.memory
        is_affected = judge_handover(handover_facts(facts.kernel, memory)).is_problem
        kernel_text = f"kernel {facts.kernel}"
        if is_affected:
            kernel_text += f"; CmaTotal 0 with CmaFree {(memory.cma_free_bytes or 0) // 1024} kB"
        yield found(
            judge_handover.id,
            "named",
            {"kernel": facts.kernel, "is_affected": is_affected, "seen": kernel_text},
            severity=Severity.WARNING if is_affected else Severity.INFO,
            evidence=(seen(node, "facts", kernel_text),),
            nodes=(node.name,),
        )


@check_rule(judge_disk_room)
def disk_low(fleet: FleetState) -> Iterator[Finding]:
    """host.disk-low: a filesystem for containers, logs or downloads is nearly full."""
    for node, facts in _nodes_with_facts(fleet):
        for disk in facts.disks:
            judgement = judge_disk_room(DiskFacts(free_bytes=disk.free_bytes, disk=disk))
            if not judgement.is_problem:
                continue
            mount, free, total = disk.mount, gib(disk.free_bytes), gib(disk.total_bytes)
            yield found(
                judge_disk_room.id,
                "low",
                {"mount": mount, "free": free, "total": total, "is_full": judgement.case == "full"},
                severity=SEVERITY[judgement.state],
                evidence=(seen(node, "facts", f"{mount}: {free} of {total} free"),),
                nodes=(node.name,),
                subject=mount,
            )


@check_rule(judge_clock, hold_s=10.0)
def clock(fleet: FleetState) -> Iterator[Finding]:
    """host.clock: a node's clock is minutes off; where several nodes agree with one another, this machine's is."""
    ahead_s = {node.name: _ahead_s(node, fleet) for node in fleet.nodes if is_current(node)}
    off_s = {name: by_s for name, by_s in ahead_s.items() if by_s is not None and judge_clock(by_s).is_problem}
    is_ours = 1 < len(off_s) == len(ahead_s) and not judge_clock(max(off_s.values()) - min(off_s.values())).is_problem
    for names in [tuple(off_s)] if is_ours else [(name,) for name in off_s]:
        by_s = off_s[names[0]]
        difference = f"{duration(abs(by_s))} {'behind' if (by_s > 0) is is_ours else 'ahead of'}"
        yield found(
            judge_clock.id,
            "ours" if is_ours else "of-a-node",
            {"node": names[0], "difference": difference, "theirs": tuple(f"{name}'s" for name in names)},
            severity=SEVERITY[judge_clock(by_s).state],
            evidence=tuple(
                seen(node, "clock", f"{off_s[node.name]:+.0f} s against this machine")
                for node in fleet.nodes
                if node.name in names
            ),
            nodes=names,
        )


def _ahead_s(node: NodeView, fleet: FleetState) -> float | None:
    """How far the node's clock is ahead of this machine's."""
    node_s = node_wall_s(node, fleet)
    return None if node_s is None or not fleet.wall_s else node_s - fleet.wall_s


@live_rule("host.zombies")
def zombies(fleet: FleetState) -> Iterator[Finding]:
    """host.zombies: many ended processes that their parent doesn't collect."""
    for node in fleet.nodes:
        table = node.processes
        if not is_current(node) or table is None or table.zombie_count < MANY_ZOMBIES:
            continue
        text = f"{table.zombie_count} of {table.total_count} processes in state Z"
        evidence = (seen(node, "processes", text),)
        yield found("host.zombies", "many", {"number": table.zombie_count}, evidence=evidence, nodes=(node.name,))


def _nodes_with_facts(fleet: FleetState) -> Iterator[tuple[NodeView, HostFacts]]:
    for node in fleet.nodes:
        if is_current(node) and node.facts is not None:
            yield node, node.facts


def _problems(
    fleet: FleetState, judge: Callable[[NodeView], Judgement]
) -> Iterator[tuple[NodeView, HostFacts, Judgement]]:
    for node, facts in _nodes_with_facts(fleet):
        if (judgement := judge(node)).is_problem:
            yield node, facts, judgement
