"""Lints of one engine over two Sparks: network, RDMA, Ray."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.container import NetworkFacts, RdmaAccessFacts, judge_memlock, judge_network, judge_rdma_devices
from sparktop.checks.image import PackageFacts, judge_ray_package
from sparktop.checks.nccl import GidFacts, HcaFacts, judge_gid, judge_hca_pinned
from sparktop.checks.ray import MONITOR, RayFacts, judge_memory_monitor
from sparktop.diagnose.lint.lint import (
    FindingBuilder,
    lint,
    removed,
    replaced,
    with_option,
    with_variables,
)
from sparktop.engines.images import Family
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.state import State

SETS_NETWORK = (Launcher.EUGR, Launcher.SPARKRUN)
"""Launchers that find the interfaces and set NCCL's variables themselves."""
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@lint("host-network", is_live=True)
def host_network(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.option("network")
    is_elsewhere = spec.launcher in SETS_NETWORK or spec.kind is SourceKind.RUNNING
    if spec.nodes == 1 or not spec.has_container or (item is None and is_elsewhere):
        return
    mode = "" if item is None else item.value if item.is_known else None
    if not judge_network(NetworkFacts(mode=mode)).is_problem:
        return
    edit = replaced(spec, item, "host") if item and item.value_span else with_option(spec, "network", "host")
    yield build(item, "other", {"nodes": spec.nodes}, edits=[edit])


def _knows_communication(spec: LaunchSpec) -> bool:
    return spec.nodes > 1 and spec.launcher not in SETS_NETWORK and (spec.engine is not None or spec.is_ray_start)


@lint("nccl-ib-hca")
def nccl_ib_hca(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
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
    yield build(
        None,
        "unset" if judgement.is_certain else "unknown",
        severity=Severity.INFO if is_nvidias else None,
        edits=[with_variables(spec, "<devices that are up>", "NCCL_IB_HCA")],
    )


@lint("socket-ifname")
def socket_ifname(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not _knows_communication(spec):
        return
    missing = [name for name in _INTERFACES if spec.variable(name) is None]
    if not missing or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    yield build(
        None,
        "unset" if spec.knows_environment else "unknown",
        {"missing": tuple(missing), "several": len(missing) > 1},
        edits=[with_variables(spec, "<interface with the cable>", *missing)],
    )


@lint("nccl-gid-index")
def nccl_gid_index(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.variable("NCCL_IB_GID_INDEX")
    if spec.nodes == 1 or item is None or judge_gid(GidFacts(value=item.value)).state is not State.UNKNOWN:
        return
    severity = Severity.INFO if spec.launcher in SETS_NETWORK else None
    yield build(item, "fixed", {"index": item.value}, severity=severity, edits=[removed(spec, item)])


def _is_tcp(spec: LaunchSpec) -> bool:
    item = spec.variable("NCCL_IB_DISABLE")
    return item is not None and item.value == "1"


def _rdma_access(spec: LaunchSpec) -> RdmaAccessFacts | None:
    """What the container may do with RDMA devices; None where that is not this file's to say."""
    if spec.nodes == 1 or not spec.shows_container:
        return None
    return RdmaAccessFacts(
        is_privileged=spec.option("privileged") is not None,
        may_lock=any((item.value or "").upper().endswith(("IPC_LOCK", "ALL")) for item in spec.options_of("cap-add")),
        devices=tuple(item.value or "" for item in spec.options_of("device")),
        mounts=tuple(item.value or "" for item in spec.options_of("mount")),
        ulimits=tuple(item.value or "" for item in spec.options_of("ulimit")),
        is_tcp=_is_tcp(spec),
    )


@lint("rdma-devices")
def rdma_devices(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    facts = _rdma_access(spec)
    if facts is None or not judge_rdma_devices(facts).is_problem:
        return
    yield build(None, "absent", edits=[with_option(spec, "device", "/dev/infiniband")])


@lint("memlock")
def memlock(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    facts = _rdma_access(spec)
    if facts is None or not judge_memlock(facts).is_problem:
        return
    item = next((item for item in spec.options_of("ulimit") if (item.value or "").startswith("memlock")), None)
    unlimited = "memlock=-1"
    edit = replaced(spec, item, unlimited) if item and item.value_span else with_option(spec, "ulimit", unlimited)
    yield build(item, "limited", edits=[edit])


@lint("ray-memory-monitor", is_live=True)
def ray_memory_monitor(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
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
    edit = replaced(spec, item, "0") if item and item.value_span else with_variables(spec, "0", MONITOR)
    yield build(item, "on" if judgement.is_certain else "unknown", edits=[edit])


def package_facts(spec: LaunchSpec) -> PackageFacts:
    """What is known of the Python packages that it runs with."""
    return PackageFacts(image=spec.image_name, is_nvidias=spec.family is Family.NGC, commands=spec.prelude)


@lint("ray-missing")
def ray_missing(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.flag("distributed-executor-backend")
    if item is None or spec.value("distributed-executor-backend") != "ray" or spec.launcher is not Launcher.DOCKER:
        return
    if not judge_ray_package(package_facts(spec)).is_problem:
        return
    yield build(item, "required", settles=spec.settles_image)
