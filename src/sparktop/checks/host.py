"""Checks of one machine: its driver, what logind removes at logout, its disks, its clock."""

from __future__ import annotations

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import Collector, CollectorState, Disk, GapReason, HostFacts

SUPPORTED_BRANCH = "580"
"""The only driver branch that NVIDIA supports on GB10 (docs/facts/engines.md KRN-16)."""
DRIVER_BACK_STEP = "run the update in the DGX Dashboard, or reinstall its nvidia-driver-580-open packages"
FIRST_USER_ID = 1000
"""logind keeps the IPC objects of root and of system users, whose ids are lower (logind.conf(5), RemoveIPC=)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The NVIDIA driver of a node, for a launch or for none."""

    node: NodeView
    required: str = ""
    """The branch or version that the recipe asks for; empty: none."""


@check("host.driver-branch", gate="driver", bring_up="release.driver")
def judge_driver_branch(facts: DriverFacts) -> Judgement:
    """Whether the loaded driver is of the recipe's branch and of the supported one."""
    node = facts.node
    branch = node.driver_version.partition(".")[0]
    is_gb10 = node.first_gpu.is_gb10 if node.first_gpu else node.is_spark or None
    if not branch:
        return _unread_driver(node)
    if facts.required and branch != facts.required.partition(".")[0]:
        return failed("required")
    if branch == SUPPORTED_BRANCH or is_gb10 is False:
        return passed()
    return warning("branch") if is_gb10 else unknown("whether the GPU is a GB10 was not read")


@check("host.driver-pending", gate="driver", bring_up="release.driver")
def judge_driver_pending(node: NodeView) -> Judgement:
    """Whether the installed driver is the loaded one; NVML refuses some that aren't."""
    if not node.driver_version or node.facts is None or not node.facts.driver_installed:
        return _unread_driver(node)
    if node.driver_version == node.facts.driver_installed:
        return passed()
    nvml = node.collectors.get("nvml")
    is_refused = nvml is not None and nvml.state is CollectorState.FAILED
    return failed("pending", is_refused=1.0) if is_refused else warning("pending")


def _unread_driver(node: NodeView) -> Judgement:
    return unknown((node.facts.gaps.get("driver_version") if node.facts else None) or "not read yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class LingerFacts:
    """What decides whether an engine's IPC objects outlive a logout of the user who is logged in."""

    host: HostFacts
    is_required: bool = False
    """Whether the recipe wants the user to linger."""
    shares_ipc: bool | None = None
    """Whether the engine uses the host's IPC; None: no engine is known."""
    engine_user_id: int | None = None
    """Whose id the engine runs under; None: not known."""


@check("cluster.linger", gate="linger")
def judge_linger(facts: LingerFacts) -> Judgement:
    """Whether logind would remove the engine's semaphores and shared memory at the last logout."""
    host = facts.host
    if host.user_id is not None and host.user_id < FIRST_USER_ID:
        return passed("root" if host.user_id == 0 else "system-user")
    if host.is_lingering:
        return passed("lingers")
    gap = host.gaps.get("is_lingering", "")
    if gap is GapReason.NOT_FOUND:
        return passed("no-logind")
    if host.is_lingering is None:
        return unknown(gap or "not read yet")
    if facts.is_required:
        return failed("required")
    if host.removes_ipc is False:
        return passed("kept")
    if facts.shares_ipc is None:
        return unknown("no engine is known", "no-engine")
    if not facts.shares_ipc:
        return passed("own-ipc")
    if host.user_id is None or facts.engine_user_id is None:
        return unknown("the engine's user is not known", "user")
    if facts.engine_user_id != host.user_id:
        return passed("root-engine" if facts.engine_user_id == 0 else "other-user")
    return warning("loses")


@check("host.next-kernel-without-driver", bring_up="release.next-kernel")
def judge_next_kernel(node: NodeView) -> Judgement:
    """Whether there is a GPU after the next boot, on a node with a driver now."""
    host = node.facts
    if host is None or host.kernel_next in (None, "", host.kernel) or not node.driver_version:
        return passed()
    if host.kernel_next_has_driver is None:
        return unknown("whether it has an NVIDIA module was not read")
    return passed() if host.kernel_next_has_driver else warning("lacks")


DOWNLOAD_FACTOR = 1.1
"""On download sizes, for temporary files and packed layers."""
UNSIZED_BYTES = 50 * 10**9
"""Room for a download of unknown size: an image is 20 to 30 GB unpacked, plus its layers meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """Room on one filesystem for containers, logs, models or images."""

    free_bytes: int
    disk: Disk | None = None
    """None: its size is not known."""
    coming_bytes: int = 0
    """To be downloaded to it."""
    is_more_coming: bool = False
    """Whether there is also a download of unknown size."""


@check("host.disk-low", gate="disk", bring_up="machine.disk")
def judge_disk_room(facts: DiskFacts) -> Judgement:
    """Whether what comes has room, and whether enough is left then."""
    needed_bytes = facts.coming_bytes * DOWNLOAD_FACTOR
    left_bytes, disk = facts.free_bytes - needed_bytes, facts.disk
    if left_bytes < 0:
        return failed("short", needed_bytes=needed_bytes)
    if disk is not None and left_bytes < disk.full_bytes:
        return failed("full")
    if facts.is_more_coming and left_bytes < UNSIZED_BYTES:
        return warning("unsized")
    if disk is not None and left_bytes < disk.low_bytes:
        return warning("low")
    return passed()


CLOCK_OFF_S = 300.0
"""TLS looks at dates, so minutes do no harm; a link's delay and a laptop's sleep stay far below it."""


@check("host.clock", bring_up="reach.clock")
def judge_clock(ahead_s: float | None) -> Judgement:
    """Whether the node's clock and that of the machine that watches it show the same time.

    Args:
        ahead_s: the node's minus this machine's; None: not known.
    """
    if ahead_s is None:
        return unknown("no sample yet")
    return warning(ahead_s=ahead_s) if abs(ahead_s) > CLOCK_OFF_S else passed()


@check("access.restart", is_rule=False, bring_up="access.restart")
def judge_unit_restart(restart: str) -> Judgement:
    """Whether a unit that restarts its engine does so after every end (docs/facts/engines.md section 6.6)."""
    if not restart:
        return unknown("its Restart= was not read")
    return passed(restart) if restart in ("always", "no") else warning(restart)


@check("access.kernel-log", is_rule=False, bring_up="access.kernel-log")
def judge_kernel_log(collector: Collector | None) -> Judgement:
    """Whether the user may read the kernel log, by the probe's follower of it."""
    if collector is None:
        return unknown("not read yet")
    return passed() if collector.state is CollectorState.OK else warning("denied")


@check("access.memlock", is_rule=False, bring_up="access.memlock")
def judge_host_memlock(limit: str) -> Judgement:
    """Whether RDMA may pin memory outside of containers, by the soft limit ("unlimited" or bytes; empty: unknown)."""
    if not limit:
        return unknown("the limit was not read")
    return passed() if limit == "unlimited" else warning()
