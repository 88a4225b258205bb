"""Rules on missing data: a probe collector that is stuck, failed or not permitted, and no access to Docker."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.checks.docker import judge_docker_access
from sparktop.diagnose.rule import check_rule, live_rule
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
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


@live_rule(
    "host.collector",
    "A part of the monitoring is stuck, failed or not permitted",
    Severity.WARNING,
    scope="every node",
    sources=("NVIDIA/open-gpu-kernel-modules#446",),
    hold_s=5.0,
    follows=(*_GPU_GONE, "host.driver-pending", "memory.starved"),
)
def collectors(fleet: FleetState) -> Iterator[Finding]:
    """host.collector: a part of the probe is stuck, failed or not permitted, so rules that need it are blind."""
    for node in fleet.nodes:
        if not is_current(node):
            continue
        for collector in node.collectors.values():
            if collector.state in (CollectorState.STUCK, CollectorState.FAILED, CollectorState.DENIED):
                yield _collector(node, collector)


def _collector(node: NodeView, collector: Collector) -> Finding:
    data_name = _BLIND.get(collector.name, collector.name)
    stuck = collector.state is CollectorState.STUCK
    verb = {CollectorState.STUCK: "is stuck", CollectorState.FAILED: "has failed"}.get(
        collector.state, "isn't permitted"
    )
    explanation = (
        f"Without it sparktop can't see {data_name}, and the rules that need it don't run: faults there stay unseen."
    )
    if stuck and collector.name == "nvml":
        explanation = (
            "NVML, the driver's own library, doesn't answer: the query waits in the driver, and nvidia-smi would "
            "too. If the kernel log has Xid 119 or 120, the GPU's firmware is gone. sparktop leaves it alone, "
            "because killing an NVML client has frozen a GPU."
        )
    elif stuck:
        explanation += " sparktop leaves it alone until it answers. A host that is out of memory does this too."
    return Finding(
        rule="host.collector",
        severity=Severity.INFO
        if collector.state is CollectorState.DENIED and collector.name == "kernel"
        else Severity.WARNING,
        title=f"{data_name[0].upper()}{data_name[1:]} can't be read: {collector.name} {verb}",
        explanation=explanation,
        evidence=(
            Evidence(source=f"{node.name} probe", text=f"{collector.name} {collector.state}: {collector.detail}"),
        ),
        remedies=(
            Remedy(title="Don't kill it, and don't start nvidia-smi", cost="nothing"),
            *((Remedy(title="Read the kernel log for Xid or GSP lines; if there is one, reboot", action=None),)),
        )
        if stuck and collector.name == "nvml"
        else (),
        references=("NVIDIA/open-gpu-kernel-modules#446",) if collector.name == "nvml" and stuck else (),
        nodes=(node.name,),
        subject=collector.name,
        brief=collector.detail,
    )


@check_rule(judge_docker_access, Severity.INFO)
def docker_denied(fleet: FleetState) -> Iterator[Finding]:
    """host.docker-denied: containers can't be seen for lack of permission."""
    for node in fleet.nodes:
        if not is_current(node) or not node.containers.is_denied:
            continue
        yield Finding(
            rule=judge_docker_access.id,
            severity=Severity.INFO,
            title="Containers aren't visible: this user isn't allowed to use Docker",
            explanation=(
                "DGX OS doesn't put its user into the docker group. Without it sparktop has no container names, "
                "logs, exit codes or restart counts, and finds engines only by their processes."
            ),
            evidence=(Evidence(source=f"{node.name} docker", text=node.containers.detail),),
            remedies=(
                Remedy(
                    title="Let this user use Docker",
                    steps=("sudo usermod -aG docker $USER", "log in again"),
                    cost="security: a Docker user has root's power",
                ),
            ),
            references=("NVIDIA dgx-spark-playbooks (open-webui)",),
            nodes=(node.name,),
        )
