"""Where the watch itself is blind: a part of the probe that is stuck, failed or not permitted, and Docker denied."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.diagnose.live.window import is_current
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Collector, CollectorState

_BLIND = {
    "nvml": "GPU figures",
    "processes": "the process table, disks and links",
    "kernel": "the kernel log",
    "desktop": "the desktop's state",
}


def collectors(fleet: FleetState) -> Iterator[Finding]:
    """host.collector: a part of the probe is stuck, failed, or not permitted: rules that need it are blind."""
    for node in fleet.nodes:
        if not is_current(node):
            continue
        for part in node.collectors.values():
            if part.state in (CollectorState.STUCK, CollectorState.FAILED, CollectorState.DENIED):
                yield _collector(node, part)


def _collector(node: NodeView, part: Collector) -> Finding:
    what = _BLIND.get(part.name, part.name)
    stuck = part.state is CollectorState.STUCK
    verb = {CollectorState.STUCK: "is stuck", CollectorState.FAILED: "has failed"}.get(part.state, "isn't permitted")
    explanation = (
        f"Without it there is no word on {what}, and rules that need it are silent: nothing there counts as well."
    )
    if stuck and part.name == "nvml":
        explanation = (
            "NVML, the driver's own library, took our question and gives no answer: what is asked waits in the driver, "
            "as nvidia-smi would. With Xid 119 or 120 in the kernel log the GPU's firmware is gone. It is left alone: "
            "a killed NVML client has frozen a GPU."
        )
    elif stuck:
        explanation += " It is left alone until it answers; a starved host does this too."
    return Finding(
        rule="host.collector",
        severity=Severity.INFO if part.state is CollectorState.DENIED and part.name == "kernel" else Severity.WARNING,
        title=f"{what[0].upper()}{what[1:]} can't be read: {part.name} {verb}",
        explanation=explanation,
        evidence=(Evidence(source=f"{node.name} probe", text=f"{part.name} {part.state}: {part.detail}"),),
        remedies=(
            Remedy(title="Don't kill it, and start no nvidia-smi beside it", cost="nothing"),
            *((Remedy(title="Read the kernel log for Xid or GSP lines; with one, reboot", action=None),)),
        )
        if stuck and part.name == "nvml"
        else (),
        references=("NVIDIA/open-gpu-kernel-modules#446",) if part.name == "nvml" and stuck else (),
        nodes=(node.name,),
        subject=part.name,
        brief=part.detail,
    )


def docker_denied(fleet: FleetState) -> Iterator[Finding]:
    """host.docker-denied: containers can't be seen, and nobody is told why but here."""
    for node in fleet.nodes:
        if not is_current(node) or node.containers.available or "no permission" not in node.containers.detail:
            continue
        yield Finding(
            rule="host.docker-denied",
            severity=Severity.INFO,
            title="Containers can't be seen: this user may not use Docker",
            explanation=(
                "DGX OS doesn't put its user into the docker group. Without it there are no container names, logs, "
                "exit codes or restart counts here; engines are found by their processes only."
            ),
            evidence=(Evidence(source=f"{node.name} docker", text=node.containers.detail),),
            remedies=(
                Remedy(
                    title="Let this user use Docker",
                    steps=("sudo usermod -aG docker $USER", "log in again"),
                    cost="who may use Docker is root in all but name",
                ),
            ),
            references=("NVIDIA dgx-spark-playbooks (open-webui)",),
            nodes=(node.name,),
        )
