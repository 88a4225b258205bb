"""Rules on missing data: a probe collector that is stuck, failed or not permitted, and no access to Docker."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.checks.docker import judge_docker_access
from sparktop.diagnose.rule import check_rule, live_rule
from sparktop.knowledge.card import found
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView, is_current
from sparktop.model.telemetry import Collector, CollectorState

_BLIND = {
    "nvml": "GPU figures",
    "processes": "the process table, disks and links",
    "kernel": "the kernel log",
    "desktop": "the desktop's state",
}
_GPU_GONE = (
    "kernel.xid-79",
    "kernel.xid-119",
    "kernel.xid-120",
    "kernel.nvrm-init-failed",
    "kernel.driver-module-refused",
)


@live_rule("host.collector", hold_s=5.0, follows=(*_GPU_GONE, "host.driver-pending", "memory.starved"))
def collectors(fleet: FleetState) -> Iterator[Finding]:
    """host.collector: a part of the probe is stuck, failed or not permitted, so rules that need it are blind."""
    for node in fleet.nodes:
        if not is_current(node):
            continue
        for collector in node.collectors.values():
            if collector.state in (CollectorState.STUCK, CollectorState.FAILED, CollectorState.DENIED):
                yield _collector(node, collector)


def _collector(node: NodeView, collector: Collector) -> Finding:
    name, state, data = collector.name, collector.state, _BLIND.get(collector.name, collector.name)
    is_routine = state is CollectorState.DENIED and name == "kernel"
    return found(
        "host.collector",
        "nvml-stuck" if state is CollectorState.STUCK and name == "nvml" else state.value,
        {"collector": name, "data": data, "heading": f"{data[0].upper()}{data[1:]}", "detail": collector.detail},
        severity=Severity.INFO if is_routine else Severity.WARNING,
        evidence=(Evidence(source=f"{node.name} probe", text=f"{name} {state}: {collector.detail}"),),
        nodes=(node.name,),
        subject=name,
    )


@check_rule(judge_docker_access)
def docker_denied(fleet: FleetState) -> Iterator[Finding]:
    """host.docker-denied: containers can't be seen for lack of permission."""
    for node in fleet.nodes:
        if is_current(node) and node.containers.is_denied:
            evidence = (Evidence(source=f"{node.name} docker", text=node.containers.detail),)
            yield found(judge_docker_access.id, "denied", {}, evidence=evidence, nodes=(node.name,))
