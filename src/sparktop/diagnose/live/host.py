"""The machine itself: drivers and kernels that wait for a reboot, disks that fill up, zombies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sparktop.diagnose.live.blind import collectors, docker_denied
from sparktop.diagnose.live.window import GIB, gib, is_current, seen
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import CollectorState, Disk, HostFacts

SUPPORTED_BRANCH = "580."
DISK_LOW_BYTES = 20 * GIB
DISK_FULL_BYTES = 2 * GIB
MANY_ZOMBIES = 100
ADVISORY_KERNEL = "7.0.0-1019"

_REBOOT = Remedy(
    title="Stop the engines and reboot at the next quiet moment",
    steps=("sudo reboot",),
    cost="everything on the machine, and the time to load the models again",
    action="reboot",
)
_FORUM_595 = 'NVIDIA developer forum, 2026-06-08: "Driver 595 is not yet supported on DGX Spark"'
_ADVISORY = ("hasso5703/dgx-spark-qwen38 (platforms.json)", "NVIDIA developer forum, threads 383254 and 383023")


def driver_pending(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-pending: the driver on disk is not the one that runs."""
    for node, facts in _known(fleet):
        loaded, installed = facts.driver_version, facts.driver_installed
        if loaded is None or installed is None or loaded == installed:
            continue
        nvml = node.collectors.get("nvml")
        refused = nvml is not None and nvml.state is CollectorState.FAILED and "differ" in nvml.detail
        yield Finding(
            rule="host.driver-pending",
            severity=Severity.CRITICAL if refused else Severity.WARNING,
            title=f"Driver {installed} is installed and {loaded} still runs: reboot to load it",
            explanation=(
                f"An update put the NVIDIA driver {installed} on disk while the kernel module {loaded} stayed loaded. "
                + (
                    "NVML refuses already, so nothing new can use the GPU; engines that run keep going until they stop."
                    if refused
                    else 'Engines that run go on; a new one may fail with "Driver/library version mismatch".'
                )
            ),
            distinction=("The GPU is well: it is a matter of versions only.",),
            evidence=(
                seen(node, "facts", f"/proc/driver/nvidia/version: {loaded}; module on disk: {installed}"),
                *((seen(node, "nvml", nvml.detail),) if refused and nvml else ()),
            ),
            remedies=(_REBOOT,),
            references=("NVIDIA driver", "NVIDIA DGX Spark user guide"),
            nodes=(node.name,),
            brief=f"{loaded} loaded, {installed} installed",
        )


def next_kernel(fleet: FleetState) -> Iterator[Finding]:
    """host.next-kernel-without-driver: the next boot would have no GPU."""
    for node, facts in _known(fleet):
        upcoming = facts.kernel_next
        if facts.kernel_next_has_driver is not False or upcoming is None or upcoming == facts.kernel:
            continue
        if facts.driver_version is None:
            continue  # no GPU to lose
        yield Finding(
            rule="host.next-kernel-without-driver",
            severity=Severity.WARNING,
            title=f"The next boot takes kernel {upcoming}, which has no NVIDIA module",
            explanation=(
                f"Kernel {upcoming} is the newest installed, so the boot loader most likely takes it, and no NVIDIA "
                f"module is installed for it. The machine runs {facts.kernel} now, with a GPU; after a reboot it would "
                "come up without one, and no engine would start."
            ),
            evidence=(seen(node, "facts", f"running {facts.kernel}; newest {upcoming}, without an NVIDIA module"),),
            remedies=(
                Remedy(
                    title="Install the module for that kernel before the next reboot",
                    steps=("run the update in the DGX Dashboard to its end", f"dkms status | grep {upcoming}"),
                    cost="minutes",
                ),
                Remedy(
                    title="Or boot the kernel that runs now",
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


def driver_branch(fleet: FleetState) -> Iterator[Finding]:
    """host.driver-branch: a GB10 on a driver branch that isn't DGX OS's."""
    for node, facts in _known(fleet):
        version, gpu = facts.driver_version, node.first_gpu
        if version is None or gpu is None or not gpu.is_gb10 or version.startswith(SUPPORTED_BRANCH):
            continue
        yield Finding(
            rule="host.driver-branch",
            severity=Severity.WARNING,
            title=f"Driver {version} is not of the 580 branch that DGX Spark is supported with",
            explanation=(
                "DGX OS ships drivers 580.x for GB10. NVIDIA says that 595 isn't supported on DGX Spark yet, and field "
                f"report 002 tells of CUDA graphs that deadlock on 590.x. {version} may work; with hangs or odd memory "
                "behaviour it is the first thing to take out of the question."
            ),
            evidence=(seen(node, "facts", f"driver {version}, {facts.product or gpu.name}"),),
            remedies=(
                Remedy(
                    title="Go back to the 580 driver that DGX OS brings",
                    steps=("run the update in the DGX Dashboard, or reinstall its nvidia-driver-580-open packages",),
                    cost="a reboot",
                ),
            ),
            references=(_FORUM_595, "field report 002"),
            scope="GB10 under DGX OS up to 7.6; a later release may ship another branch",
            nodes=(node.name,),
            brief=f"driver {version}",
        )


def kernel_advisory(fleet: FleetState) -> Iterator[Finding]:
    """host.kernel-advisory: a kernel of which trouble is told on DGX Spark."""
    for node, facts in _known(fleet):
        if not facts.kernel.startswith(ADVISORY_KERNEL) or node.sample is None:
            continue
        memory = node.sample.memory
        torn = memory.cma_total_bytes == 0 and bool(memory.cma_free_bytes)
        told = f"kernel {facts.kernel}"
        if torn:
            told += f"; CmaTotal 0 with CmaFree {(memory.cma_free_bytes or 0) // 1024} kB"
        yield Finding(
            rule="host.kernel-advisory",
            severity=Severity.WARNING if torn else Severity.INFO,
            title=f"Kernel {facts.kernel} has an advisory for DGX Spark",
            explanation=(
                "Owners and NVIDIA's forum tell of trouble with this kernel on DGX Spark; its mark is a /proc/meminfo "
                "that gives CmaTotal 0 and yet some CmaFree"
                + (
                    ", which is so here."
                    if torn
                    else ". That mark isn't there now, so it may be fixed or not concern you."
                )
            ),
            evidence=(seen(node, "facts", told),),
            remedies=(
                Remedy(
                    title="Update DGX OS, or boot the 6.17 kernel before it",
                    steps=("run the update in the DGX Dashboard", "uname -r   # after the reboot"),
                    cost="a reboot",
                ),
            ),
            references=_ADVISORY,
            nodes=(node.name,),
            brief=told,
        )


def disk_full(fleet: FleetState) -> Iterator[Finding]:
    """host.disk-low: a filesystem that containers, logs and downloads need is nearly full."""
    for node, facts in _known(fleet):
        for disk in facts.disks:
            low = min(DISK_LOW_BYTES, disk.total_bytes // 10)
            if disk.free_bytes < low:
                yield _disk(node, disk, is_full=disk.free_bytes < min(DISK_FULL_BYTES, disk.total_bytes // 50))


def _disk(node: NodeView, disk: Disk, *, is_full: bool) -> Finding:
    left = f"{gib(disk.free_bytes)} of {gib(disk.total_bytes)} free"
    return Finding(
        rule="host.disk-low",
        severity=Severity.CRITICAL if is_full else Severity.WARNING,
        title=f"{disk.mount} {'is full' if is_full else 'is nearly full'}: {gib(disk.free_bytes)} free",
        explanation=(
            "Containers, their logs, compile caches and model downloads are written here. When it is full they fail "
            'with "No space left on device", Docker can\'t start or log, and a download cut short looks like a broken '
            "model."
        ),
        evidence=(seen(node, "facts", f"{disk.mount}: {left}"),),
        remedies=(
            Remedy(
                title="See what holds it, then remove images and models nobody uses",
                steps=(
                    "docker system df",
                    "docker image prune -a   # images without a container",
                    "du -xhd1 ~/.cache/huggingface/hub | sort -h | tail",
                    "sudo journalctl --vacuum-size=500M",
                ),
                cost="what is removed has to be pulled again",
            ),
        ),
        references=("Docker documentation: docker system df, docker image prune",),
        nodes=(node.name,),
        subject=disk.mount,
        brief=left,
    )


def zombies(fleet: FleetState) -> Iterator[Finding]:
    """host.zombies: many processes that have ended and that nobody collects."""
    for node in fleet.nodes:
        table = node.processes
        if not is_current(node) or table is None or table.zombie_count < MANY_ZOMBIES:
            continue
        yield Finding(
            rule="host.zombies",
            severity=Severity.INFO,
            title=f"{table.zombie_count} processes have ended and nobody collects them",
            explanation=(
                "They hold no memory, only their numbers. As a rule their parent is a container whose first process is "
                "no init: the engine there leaves its dead workers lying."
            ),
            evidence=(seen(node, "processes", f"{table.zombie_count} of {table.total_count} processes in state Z"),),
            remedies=(Remedy(title="Start that container with an init", steps=("docker run --init ...",)),),
            references=("Docker documentation: docker run --init",),
            nodes=(node.name,),
            brief=f"{table.zombie_count} zombies",
        )


def _known(fleet: FleetState) -> Iterator[tuple[NodeView, HostFacts]]:
    for node in fleet.nodes:
        if is_current(node) and node.facts is not None:
            yield node, node.facts


def _rule(
    name: str, title: str, severity: Severity, check: Callable[[FleetState], Iterable[Finding]], *sources: str,
    scope: str = "every node", hold_s: float = 0.0, follows: tuple[str, ...] = (),
) -> LiveRule:  # fmt: skip
    card = Rule(id=f"host.{name}", kind=RuleKind.LIVE, title=title, severity=severity, scope=scope, sources=sources)
    return LiveRule(card=card, check=check, hold_s=hold_s, follows=follows)


_GONE = ("kernel.xid-79", "kernel.xid-119", "kernel.xid-120", "kernel.nvrm-init-failed", "kernel.driver-module-refused")

RULES: tuple[LiveRule, ...] = (
    _rule(
        "driver-pending", "The installed driver isn't the loaded one", Severity.CRITICAL, driver_pending,
        "NVIDIA driver",
    ),
    _rule(
        "next-kernel-without-driver", "The next boot's kernel has no NVIDIA module", Severity.WARNING, next_kernel,
        "hasso5703/dgx-spark-qwen38",
    ),
    _rule(
        "driver-branch", "The driver isn't of the supported 580 branch", Severity.WARNING, driver_branch,
        _FORUM_595, "field report 002", scope="GB10",
    ),
    _rule("kernel-advisory", "Kernel with an advisory", Severity.WARNING, kernel_advisory, *_ADVISORY, scope="GB10"),
    _rule("disk-low", "A disk is nearly full", Severity.CRITICAL, disk_full, "Docker documentation"),
    _rule(
        "collector", "A part of the watch is stuck, failed or not permitted", Severity.WARNING, collectors,
        "NVIDIA/open-gpu-kernel-modules#446", hold_s=5.0, follows=(*_GONE, "host.driver-pending", "memory.starved"),
    ),
    _rule("docker-denied", "Docker may not be used", Severity.INFO, docker_denied, "NVIDIA dgx-spark-playbooks"),
    _rule("zombies", "Many ended processes are uncollected", Severity.INFO, zombies, "Docker documentation"),
)  # fmt: skip
