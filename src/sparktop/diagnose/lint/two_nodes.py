"""Lints of one engine over two Sparks: network, RDMA, Ray."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.container import NetworkFacts, RdmaAccessFacts, judge_memlock, judge_network, judge_rdma_devices
from sparktop.checks.image import PackageFacts, judge_ray_package
from sparktop.checks.judgement import State
from sparktop.checks.nccl import GidFacts, HcaFacts, judge_gid, judge_hca_pinned
from sparktop.checks.ray import MONITOR, RayFacts, judge_memory_monitor
from sparktop.diagnose.lint.lint import (
    Claim,
    change,
    lint,
    removal,
    replaced,
    with_option,
    with_variable,
    with_variables,
)
from sparktop.diagnose.lint.spec import Launcher, LaunchSpec, SourceKind
from sparktop.engines.images import Family
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

SETS_NETWORK = (Launcher.EUGR, Launcher.SPARKRUN)
"""Launchers that find the interfaces and set NCCL's variables themselves."""
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
ELSEWHERE = "the variables that are set outside this file: see the running engine's environment"


@lint(
    "host-network",
    Severity.CRITICAL,
    "An engine on two nodes needs the host's network",
    "containers of an engine on two nodes",
    "field report 002",
    is_live=True,
)
def host_network(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.option("network")
    is_elsewhere = spec.launcher in SETS_NETWORK or spec.kind is SourceKind.RUNNING
    if spec.nodes == 1 or not spec.has_container or (item is None and is_elsewhere):
        return
    mode = "" if item is None else item.value if item.is_known else None
    if not judge_network(NetworkFacts(mode=mode)).is_problem:
        return
    yield claim(
        item,
        title=f"An engine on {spec.nodes} nodes is not on the host's network",
        explanation=(
            "Through Docker's bridge the other node can't reach the ports that NCCL, Gloo and Ray choose, and RDMA "
            "doesn't work at all: the ranks can't connect. Set `--network host` (`network_mode: host`)."
        ),
        remedies=[
            change(
                "use the host's network",
                (replaced(spec, item, "host") if item and item.value_span else with_option(spec, "network", "host")),
            )
        ],
    )


def _knows_communication(spec: LaunchSpec) -> bool:
    return spec.nodes > 1 and spec.launcher not in SETS_NETWORK and (spec.engine is not None or spec.is_ray_start)


@lint(
    "nccl-ib-hca",
    Severity.WARNING,
    "NCCL_IB_HCA doesn't name the RDMA devices",
    "engines on two Sparks; NVIDIA's own two-node guide leaves it to NCCL",
    "field report 002",
)
def nccl_ib_hca(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    is_nvidias = spec.launcher is Launcher.RUN_CLUSTER
    if not _knows_communication(spec) or (is_nvidias and not spec.is_ray_start):
        return
    item = spec.variable("NCCL_IB_HCA")
    judgement = judge_hca_pinned(
        HcaFacts(
            value=(item.value or "") if item else None,
            knows_environment=spec.knows_environment,
            is_tcp=_is_tcp(spec),
        )
    )
    if not judgement.is_problem:
        return
    yield claim(
        None,
        title="NCCL_IB_HCA is not set: NCCL chooses RDMA devices itself",
        severity=Severity.INFO if is_nvidias or not judgement.is_certain else None,
        explanation=(
            "A Spark shows each cable as two RDMA devices, and ports without a cable too. When NCCL chose by itself, "
            "it has hung without an error or a log line. The names depend on the port with the cable: name the "
            "devices that are up on this machine, not another's."
        ),
        settles="" if judgement.is_certain else ELSEWHERE,
        remedies=[
            change(
                "name the devices that `ibdev2netdev` shows as (Up)",
                with_variable(spec, "NCCL_IB_HCA", "<devices that are up>"),
            )
        ],
    )


@lint(
    "socket-ifname",
    Severity.WARNING,
    "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME don't name the network between the two Sparks",
    "engines on two Sparks",
    "field report 002",
    "vllm-project/vllm#40991",
)
def socket_ifname(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not _knows_communication(spec):
        return
    missing = [name for name in _INTERFACES if spec.variable(name) is None]
    if not missing or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    yield claim(
        None,
        title=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
        severity=None if spec.knows_environment else Severity.INFO,
        explanation=(
            "Without them the ranks connect through the first interface, which may be the office network or Wi-Fi "
            "instead of the cable between the two Sparks. They then wait for one another, or run slowly. The "
            "interface may have another name on each node."
        ),
        settles="" if spec.knows_environment else ELSEWHERE,
        remedies=[
            change(
                "name the interface with the cable, on each node its own",
                with_variables(spec, missing, "<interface with the cable>"),
            )
        ],
    )


@lint(
    "nccl-gid-index",
    Severity.WARNING,
    "NCCL_IB_GID_INDEX is fixed, but differs between machines",
    "engines on two Sparks",
    "field report 002",
    "NCCL documentation, NCCL_IB_GID_INDEX",
)
def nccl_gid_index(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.variable("NCCL_IB_GID_INDEX")
    if spec.nodes == 1 or item is None or judge_gid(GidFacts(value=item.value)).state is not State.UNKNOWN:
        return
    is_tuned = spec.launcher in SETS_NETWORK
    yield claim(
        item,
        title=f"NCCL_IB_GID_INDEX={item.value} is a guess until `show_gids` says so",
        severity=Severity.INFO if is_tuned else None,
        explanation=(
            "The index of RoCE v2 over IPv4 depends on the addresses that the interface has had: 3 on many machines, "
            "but not on all, and it may change. With a wrong index NCCL doesn't connect, or times out. Without the "
            "variable NCCL finds the index itself."
        ),
        settles="`show_gids` on both nodes: the index of RoCE v2 with the cable's IPv4 address",
        remedies=[removal(spec, item, then="NCCL finds the index")],
    )


def _is_tcp(spec: LaunchSpec) -> bool:
    item = spec.variable("NCCL_IB_DISABLE")
    return item is not None and item.value == "1"


def _rdma_access(spec: LaunchSpec) -> RdmaAccessFacts | None:
    """What the container may do with RDMA devices; None where that is not this file's to say."""
    if spec.nodes == 1 or not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.has_open_options:
        return None
    return RdmaAccessFacts(
        is_privileged=spec.option("privileged") is not None,
        may_lock=any((item.value or "").upper().endswith(("IPC_LOCK", "ALL")) for item in spec.options_of("cap-add")),
        devices=tuple(item.value or "" for item in spec.options_of("device")),
        mounts=tuple(item.value or "" for item in spec.options_of("mount")),
        ulimits=tuple(item.value or "" for item in spec.options_of("ulimit")),
        is_tcp=_is_tcp(spec),
    )


@lint(
    "rdma-devices",
    Severity.WARNING,
    "The container has no RDMA devices: NCCL falls back to TCP without an error",
    "containers of an engine on two Sparks",
    "NVIDIA developer forum, thread 366325",
    "field report 002",
)
def rdma_devices(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    facts = _rdma_access(spec)
    if facts is None or not judge_rdma_devices(facts).is_problem:
        return
    yield claim(
        None,
        explanation=(
            "RDMA needs /dev/infiniband. Without it NCCL logs `NET/IB : No device found` (at level INFO only) and "
            "uses TCP, at about a tenth of the speed."
        ),
        remedies=[change("pass the devices to the container", with_option(spec, "device", "/dev/infiniband"))],
    )


@lint(
    "memlock",
    Severity.INFO,
    "RDMA may not be allowed to lock the memory it needs",
    "containers of an engine on two Sparks",
    "NCCL documentation, troubleshooting",
)
def memlock(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    facts = _rdma_access(spec)
    if facts is None or not judge_memlock(facts).is_problem:
        return
    item = next((item for item in spec.options_of("ulimit") if (item.value or "").startswith("memlock")), None)
    yield claim(
        item,
        explanation=(
            "Memory that RDMA registers counts against the memlock limit, and Docker's default is small unless its "
            "daemon has a higher one. `ibv_reg_mr` then fails, or NCCL uses TCP."
        ),
        remedies=[
            change(
                "remove the limit",
                (
                    replaced(spec, item, "memlock=-1")
                    if item and item.value_span
                    else with_option(spec, "ulimit", "memlock=-1")
                ),
            )
        ],
    )


@lint(
    "ray-memory-monitor",
    Severity.WARNING,
    "Ray's memory monitor kills workers when the shared memory is nearly full",
    "Ray on Sparks, set for `ray start` on every node",
    "field report 002",
    "NVIDIA/dgx-spark-playbooks",
    is_live=True,
)
def ray_memory_monitor(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.variable(MONITOR)
    if spec.launcher in SETS_NETWORK or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    judgement = judge_memory_monitor(
        RayFacts(
            uses_ray=spec.is_ray_start
            or (spec.value("distributed-executor-backend") == "ray" and bool(spec.has_container)),
            setting=item.value if item else None,
            is_readable=item is None or item.is_known,
            knows_environment=spec.knows_environment or (spec.is_ray_start and spec.has_container is False),
        )
    )
    if not judgement.is_problem:
        return
    yield claim(
        item,
        title="RAY_memory_monitor_refresh_ms=0 is not set: Ray may kill the engine's workers",
        severity=None if judgement.is_certain else Severity.INFO,
        explanation=(
            "Every 250 ms Ray checks the memory, and kills workers when 95 % are used. On a Spark the model itself "
            "fills that memory, so Ray kills a healthy engine. Set the variable to 0 where `ray start` runs, on both "
            "nodes."
        ),
        settles="" if judgement.is_certain else ELSEWHERE,
        remedies=[
            change(
                "turn the monitor off, on both nodes, before `ray start`",
                (replaced(spec, item, "0") if item and item.value_span else with_variable(spec, MONITOR, "0")),
            )
        ],
    )


@lint(
    "ray-missing",
    Severity.CRITICAL,
    "NVIDIA's images from 26.05 on have no Ray",
    "NVIDIA's vLLM images from 26.05 on",
    "NVIDIA/dgx-spark-playbooks",
)
def ray_missing(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("distributed-executor-backend")
    if item is None or spec.value("distributed-executor-backend") != "ray" or spec.launcher is not Launcher.DOCKER:
        return
    facts = PackageFacts(
        image=(spec.image.value or "") if spec.image else "",
        is_nvidias=spec.family is Family.NGC,
        commands=spec.prelude,
    )
    if not judge_ray_package(facts).is_problem:
        return
    yield claim(
        item,
        explanation=(
            "The image no longer has Ray: `--distributed-executor-backend ray` fails with `No module named 'ray'`. "
            "NVIDIA's own two-node guide installs it when the container starts."
        ),
        settles=spec.settles_image,
        remedies=[
            Remedy(title="install it first: pip install ray, in the container's command"),
            Remedy(
                title="or run without Ray: --nnodes 2 --node-rank N --master-addr ADDRESS (--headless on the second)"
            ),
        ],
    )
