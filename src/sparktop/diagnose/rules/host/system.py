"""Rules on the machine itself: drivers and kernels that wait for a reboot, full disks, clocks, zombies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparktop.checks.host import (
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
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView, is_current, node_wall_s
from sparktop.model.telemetry import Disk, HostFacts
from sparktop.text.units import duration, gib

MANY_ZOMBIES = 100
DRIVER_BACK_STEP = "run the update in the DGX Dashboard, or reinstall its nvidia-driver-580-open packages"
_REBOOT = Remedy(
    title="Reboot at the next quiet moment, which stops the engines",
    steps=("sudo reboot",),
    cost="what runs there now, and the time to load the models again",
    action="reboot",
)


@check_rule(judge_driver_pending, Severity.CRITICAL)
def driver_pending(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-pending: the installed driver is not the loaded one."""
    for node, host, judgement in _problems(fleet, judge_driver_pending):
        loaded, installed = node.driver_version, host.driver_installed
        refused = judgement.case == "refused"
        nvml = node.collectors.get("nvml")
        yield Finding(
            rule=judge_driver_pending.id,
            severity=SEVERITY[judgement.state],
            title=f"Driver {installed} waits for a reboot: {loaded} still runs",
            explanation=(
                f"An update installed the NVIDIA driver {installed}, but the kernel module {loaded} is still loaded. "
                + (
                    "NVML already refuses, so no new program can use the GPU. Running engines keep working until "
                    "they stop."
                    if refused
                    else 'Running engines keep working; a new one may fail with "Driver/library version mismatch".'
                )
            ),
            distinction=("The GPU is fine: only the versions differ.",),
            evidence=(
                seen(
                    node,
                    "facts",
                    f"/proc/driver/nvidia/version: {loaded}; module on disk: {installed}",
                ),
                *((seen(node, "nvml", nvml.detail),) if refused and nvml else ()),
            ),
            remedies=(_REBOOT,),
            references=("NVIDIA driver", "NVIDIA DGX Spark user guide"),
            nodes=(node.name,),
            brief=f"{loaded} loaded, {installed} installed",
        )


@check_rule(judge_next_kernel, Severity.WARNING)
def next_kernel(fleet: FleetState) -> Iterator[Finding]:
    """host.next-kernel-without-driver: after the next boot there would be no GPU driver."""
    for node, facts, judgement in _problems(fleet, judge_next_kernel):
        upcoming = facts.kernel_next
        yield Finding(
            rule=judge_next_kernel.id,
            severity=SEVERITY[judgement.state],
            title=f"The next boot loses the GPU: kernel {upcoming} has no NVIDIA module",
            explanation=(
                f"Kernel {upcoming} is the newest installed, so the boot loader most likely boots it. No NVIDIA "
                f"module is installed for it. The machine runs {facts.kernel} now, with a GPU. After a reboot it "
                "would have none, and no engine would start."
            ),
            evidence=(seen(node, "facts", f"running {facts.kernel}; newest {upcoming}, without an NVIDIA module"),),
            remedies=(
                Remedy(
                    title="Install the module for that kernel before the next reboot",
                    steps=("complete the update in the DGX Dashboard", f"dkms status | grep {upcoming}"),
                    cost="minutes",
                ),
                Remedy(
                    title="Or boot the running kernel again",
                    steps=(
                        f'choose {facts.kernel} under "Advanced options" in GRUB',
                        "or remove the newer kernel's package",
                    ),
                    cost="no security fixes of the newer kernel",
                ),
            ),
            references=("hasso5703/dgx-spark-qwen38 (doctor.py)",),
            nodes=(node.name,),
            brief=f"{upcoming} has no NVIDIA module",
        )


@check_rule(judge_driver_branch, Severity.WARNING)
def driver_branch(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-branch: a GB10 on a driver branch that isn't DGX OS's."""
    for node, host, judgement in _problems(fleet, lambda node: judge_driver_branch(DriverFacts(node=node))):
        version, gpu = node.driver_version, node.first_gpu
        yield Finding(
            rule=judge_driver_branch.id,
            severity=SEVERITY[judgement.state],
            title=f"Driver {version} isn't from the {SUPPORTED_BRANCH} branch that DGX Spark supports",
            explanation=(
                f"DGX OS ships drivers {SUPPORTED_BRANCH}.x for GB10. NVIDIA says that DGX Spark doesn't support 595 "
                f"yet, and field report 002 describes CUDA graphs that deadlock on 590.x. {version} may work. If "
                "engines hang or memory behaves oddly, change the driver first."
            ),
            evidence=(seen(node, "facts", f"driver {version}, {host.product or (gpu.name if gpu else 'GB10')}"),),
            remedies=(
                Remedy(
                    title=f"Go back to DGX OS's own {SUPPORTED_BRANCH} driver",
                    steps=(DRIVER_BACK_STEP,),
                    cost="a reboot",
                ),
            ),
            references=judge_driver_branch.sources,
            scope="GB10 under DGX OS up to 7.6; a later release may ship another branch",
            nodes=(node.name,),
            brief=f"driver {version}",
        )


@check_rule(judge_handover, Severity.WARNING)
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
        yield Finding(
            rule="host.kernel-advisory",
            severity=Severity.WARNING if is_affected else Severity.INFO,
            title=f"Kernel {facts.kernel} has an advisory for DGX Spark",
            explanation=(
                "Owners and NVIDIA's forum report trouble with this kernel on DGX Spark. Its sign is a /proc/meminfo "
                "with CmaTotal 0 but some CmaFree"
                + (
                    ", and this machine has it."
                    if is_affected
                    else ". This machine doesn't show it now, so it may be fixed or not concern you."
                )
            ),
            evidence=(seen(node, "facts", kernel_text),),
            remedies=(
                Remedy(
                    title="Update DGX OS, or boot the previous 6.17 kernel",
                    steps=("run the update in the DGX Dashboard", "uname -r   # after the reboot"),
                    cost="a reboot",
                ),
            ),
            references=judge_handover.sources,
            nodes=(node.name,),
            brief=kernel_text,
        )


@check_rule(judge_disk_room, Severity.CRITICAL)
def disk_low(fleet: FleetState) -> Iterator[Finding]:
    """host.disk-low: a filesystem for containers, logs or downloads is nearly full."""
    for node, facts in _nodes_with_facts(fleet):
        for disk in facts.disks:
            judgement = judge_disk_room(DiskFacts(free_bytes=disk.free_bytes, disk=disk))
            if judgement.is_problem:
                yield _disk(node, disk, judgement)


def _disk(node: NodeView, disk: Disk, judgement: Judgement) -> Finding:
    is_full = judgement.case == "full"
    free_text = f"{gib(disk.free_bytes)} of {gib(disk.total_bytes)} free"
    return Finding(
        rule=judge_disk_room.id,
        severity=SEVERITY[judgement.state],
        title=f"{disk.mount} {'is full' if is_full else 'is nearly full'}: {gib(disk.free_bytes)} free",
        explanation=(
            "Containers, their logs, compile caches and model downloads are on this disk. When it is full they fail "
            'with "No space left on device", Docker can\'t start or log, and a cut download looks like a broken '
            "model."
        ),
        evidence=(seen(node, "facts", f"{disk.mount}: {free_text}"),),
        remedies=(
            Remedy(
                title="Find what fills it, then remove unused images and models",
                steps=(
                    "docker system df",
                    "docker image prune -a   # images without a container",
                    "du -xhd1 ~/.cache/huggingface/hub | sort -h | tail",
                    "sudo journalctl --vacuum-size=500M",
                ),
                cost="a new pull of what you remove",
            ),
        ),
        references=("Docker documentation: docker system df, docker image prune",),
        nodes=(node.name,),
        subject=disk.mount,
        brief=free_text,
    )


@check_rule(judge_clock, Severity.WARNING, hold_s=10.0)
def clock(fleet: FleetState) -> Iterator[Finding]:
    """host.clock: a node's clock is minutes off; where several nodes agree with one another, this machine's is."""
    ahead_s = {node.name: _ahead_s(node, fleet) for node in fleet.nodes if is_current(node)}
    off_s = {name: by_s for name, by_s in ahead_s.items() if by_s is not None and judge_clock(by_s).is_problem}
    is_ours = 1 < len(off_s) == len(ahead_s) and not judge_clock(max(off_s.values()) - min(off_s.values())).is_problem
    for names in [tuple(off_s)] if is_ours else [(name,) for name in off_s]:
        by_s = off_s[names[0]]
        difference = f"{duration(abs(by_s))} {'behind' if (by_s > 0) is is_ours else 'ahead of'}"
        theirs = " and ".join(f"{name}'s" for name in names)
        yield Finding(
            rule=judge_clock.id,
            severity=SEVERITY[judge_clock(by_s).state],
            title=f"This machine's clock is {difference} {theirs}"
            if is_ours
            else f"The clock of {names[0]} is {difference} this machine's",
            explanation=(
                "With a wrong clock, downloads and image pulls fail with certificate errors, and you can't compare "
                "the logs of two machines. sparktop's figures aren't affected: it measures by the node's own clock."
            ),
            distinction=(
                "The nodes agree with each other, so this machine's clock is probably wrong."
                if is_ours
                else "sparktop can't tell which of the two clocks is wrong: check both.",
            ),
            evidence=tuple(
                seen(node, "clock", f"{off_s[node.name]:+.0f} s against this machine")
                for node in fleet.nodes
                if node.name in names
            ),
            remedies=(
                Remedy(
                    title="Set the clock over the network" + (", on this machine" if is_ours else ""),
                    steps=("timedatectl", "sudo timedatectl set-ntp true"),
                ),
            ),
            references=judge_clock.sources,
            nodes=names,
            brief=f"clock {difference} {theirs if is_ours else 'ours'}",
        )


def _ahead_s(node: NodeView, fleet: FleetState) -> float | None:
    """How far the node's clock is ahead of this machine's."""
    node_s = node_wall_s(node, fleet)
    return None if node_s is None or not fleet.wall_s else node_s - fleet.wall_s


@live_rule(
    "host.zombies",
    "Many zombie processes",
    Severity.INFO,
    scope="every node",
    sources=("Docker documentation",),
)
def zombies(fleet: FleetState) -> Iterator[Finding]:
    """host.zombies: many ended processes that their parent doesn't collect."""
    for node in fleet.nodes:
        table = node.processes
        if not is_current(node) or table is None or table.zombie_count < MANY_ZOMBIES:
            continue
        yield Finding(
            rule="host.zombies",
            severity=Severity.INFO,
            title=f"{table.zombie_count} zombie processes: their parent doesn't collect them",
            explanation=(
                "They hold no memory, only their process numbers. Usually the parent is a container without an init: "
                "its engine leaves dead workers behind."
            ),
            evidence=(seen(node, "processes", f"{table.zombie_count} of {table.total_count} processes in state Z"),),
            remedies=(Remedy(title="Start that container with an init", steps=("docker run --init ...",)),),
            references=("Docker documentation: docker run --init",),
            nodes=(node.name,),
            brief=f"{table.zombie_count} zombies",
        )


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
