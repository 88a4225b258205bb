"""What must be the same on two nodes that run one engine: their software, and the engine's image and version."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live.pair import Two, pair_of, said, two_of
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import HostFacts

RELEASE = "cluster.dgx-os-differs"
UPDATE = Remedy(
    title="Bring the older node up to the other, and restart it",
    steps=(
        "nvidia-spark-ota-check summary   # on each: which release is installed, and whether it is whole",
        "update the older one with the DGX Dashboard (localhost:11000), firmware too, then reboot it",
    ),
    cost="an update and a reboot of one node",
)


_DRIVERS = (
    "Both ranks run one set of collectives and CUDA graphs, and each driver brings its own faults to them: "
    "590.x is reported to deadlock in CUDA graphs on GB10, 580.x is the supported branch. "
    "A pair that hangs or crashes on one side only is first of all made alike."
)


def driver_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.driver-differs: the loaded NVIDIA drivers are of different versions."""
    if (two := two_of(fleet)) is None or (found := _apart(two, "driver_version")) is None:
        return
    waiting = [
        f"On {node.name} {node.facts.driver_installed} is installed and waits for a reboot."
        for node in two.nodes
        if node.facts and node.facts.driver_installed not in (None, node.facts.driver_version)
    ]
    yield _finding(
        two,
        "cluster.driver-differs",
        Severity.WARNING,
        title=f"The NVIDIA drivers differ: {found[0]} on {two.names[0]}, {found[1]} on {two.names[1]}",
        explanation=" ".join(
            (
                _DRIVERS,
                *waiting,
            )
        ),
        found=found,
        what="driver",
        remedies=(UPDATE,),
        references=("field report 002", "NVIDIA/dgx-spark-playbooks connect-two-sparks"),
    )


def kernel_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.kernel-differs: the two run different Linux kernels."""
    if (two := two_of(fleet)) is None or (found := _apart(two, "kernel")) is None:
        return
    yield _finding(
        two,
        "cluster.kernel-differs",
        Severity.WARNING,
        title=f"The kernels differ: {found[0]} on {two.names[0]}, {found[1]} on {two.names[1]}",
        explanation=(
            "Memory management, the network driver and the NVIDIA module belong to the kernel: what one node survives "
            "the other may not, and a comparison of the two misleads. Most often one was updated and the other not, "
            "or one has not been restarted since."
        ),
        found=found,
        what="kernel",
        remedies=(UPDATE,),
        references=("NVIDIA/dgx-spark-playbooks connect-two-sparks",),
    )


def dgx_os_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.dgx-os-differs: the two are at different releases of DGX OS."""
    if (two := two_of(fleet)) is None or (found := _apart(two, "dgx_release")) is None:
        return
    yield _finding(
        two,
        RELEASE,
        Severity.INFO,
        title=f"DGX OS differs: {found[0]} on {two.names[0]}, {found[1]} on {two.names[1]}",
        explanation=(
            "A release brings a driver, a kernel and firmware that were tested with one another. "
            "By itself it harms nothing; keep both nodes at one release."
        ),
        found=found,
        what="DGX OS",
        remedies=(UPDATE,),
        references=("/etc/dgx-release of both nodes (the last DGX_OTA_VERSION)",),
    )


def image_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.image-differs: the ranks' containers were made from different images."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    one, other = (rank.engine.container for rank in pair.ranks)
    if one is None or other is None or not one.image_id or not other.image_id or one.image_id == other.image_id:
        return
    same_name = one.image == other.image
    yield Finding(
        rule="cluster.image-differs",
        severity=Severity.WARNING,
        title=f"The ranks of {pair.name} run different images",
        explanation=(
            (f"Both are called {one.image}, and that name stands for another image on each node: " if same_name else "")
            + "the image ids differ, so engine, NCCL, PyTorch and kernels may differ too. Ranks of different builds "
            "disagree about what comes next: they hang in a collective, or fail with errors that name no cause. "
            "A tag such as `latest`, or a build made on each node for itself, is how it usually comes about."
        ),
        distinction=(
            "An image's id is made of its content: names and tags don't count.",
            "Only where one Docker Engine uses the containerd image store and the other doesn't has one image two ids.",
        ),
        evidence=tuple(
            said(rank, f"image {rank.engine.container.image} {rank.engine.container.image_id[:19]}")
            for rank in pair.ranks
            if rank.engine.container
        ),
        remedies=(
            Remedy(
                title="Copy the one that is known to work to the other node, and start both ranks from it",
                steps=(
                    "docker image inspect --format '{{.Id}}' IMAGE   # on both",
                    "docker save IMAGE | ssh OTHER docker load",
                    "start both ranks again",
                ),
                cost="some minutes to copy, and the time to load",
            ),
        ),
        references=("eugr/spark-vllm-docker launch-cluster.sh, which refuses to start such a pair",),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{one.image_id[7:19]} and {other.image_id[7:19]}",
    )


def engine_version_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.engine-version-differs: the ranks say that they are of different versions."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    one, other = (rank.engine.version for rank in pair.ranks)
    if not one or not other or one == other:
        return
    kind = pair.head.engine.kind
    yield Finding(
        rule="cluster.engine-version-differs",
        severity=Severity.WARNING,
        title=f"The ranks of {pair.name} are of different {kind} versions: {one} and {other}",
        explanation=(
            "What the ranks tell one another has no version of its own: another release lays out its messages, its "
            "cache and its graphs in another way. It hangs, or it fails somewhere that doesn't say why."
        ),
        evidence=tuple(said(rank, f"{kind} {rank.engine.version}") for rank in pair.ranks),
        remedies=(
            Remedy(
                title="Start both ranks from one image",
                steps=("docker save IMAGE | ssh OTHER docker load", "start both ranks again"),
                cost="some minutes to copy, and the time to load",
            ),
        ),
        references=("eugr/spark-vllm-docker launch-cluster.sh",),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{one} and {other}",
    )


def _apart(two: Two, field: str) -> tuple[str, str] | None:
    """A fact of both nodes, where both are known and differ."""
    values = [getattr(node.facts, field) if isinstance(node.facts, HostFacts) else None for node in two.nodes]
    return (str(values[0]), str(values[1])) if all(values) and values[0] != values[1] else None


def _finding(
    two: Two,
    rule: str,
    severity: Severity,
    *,
    title: str,
    explanation: str,
    found: tuple[str, str],
    what: str,
    remedies: tuple[Remedy, ...],
    references: tuple[str, ...],
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        title=title,
        explanation=explanation,
        evidence=tuple(
            Evidence(source=f"{name} facts", text=f"{what} {value}")
            for name, value in zip(two.names, found, strict=True)
        ),
        remedies=remedies,
        references=references,
        nodes=two.names,
        brief=f"{found[0]} and {found[1]}",
        # A mere remark causes nothing by itself; here it is the other half of one update.
        caused_by=RELEASE if rule != RELEASE and _apart(two, "dgx_release") else None,
    )
