"""Rules on what must be the same on both nodes of an engine: driver, kernel, DGX OS, image, engine version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparktop.checks.host import SUPPORTED_BRANCH, judge_driver_pending
from sparktop.checks.node_facts import COMPONENTS, versions
from sparktop.checks.parity import (
    ImageFacts,
    judge_driver_parity,
    judge_image_parity,
    judge_kernel_parity,
    judge_release_parity,
)
from sparktop.diagnose.names import names_of
from sparktop.diagnose.rule import SEVERITY, LiveRule, check_rule, live_rule
from sparktop.diagnose.rules.host.system import DRIVER_BACK_STEP
from sparktop.diagnose.rules.pair.scopes import SPANNING_ENGINE
from sparktop.engines.pair import Pair, node_pair, pair_of, said
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView


def _update(names: tuple[str, str], versions_there: Sequence[str | None]) -> Remedy:
    """The update that makes both nodes equal; it names the older node where the versions tell."""
    first, second = ([int(number) for number in re.findall(r"\d+", version or "")] for version in versions_there)
    older, newer = names if first < second else names[::-1]
    if first == second:
        older, newer = "the older node", "the other"
    return Remedy(
        title=f"Update {older} to {newer}'s versions, and reboot it",
        steps=(
            "nvidia-spark-ota-check summary   # on each: which release is installed, and whether it is complete",
            f"update {older} with the DGX Dashboard (localhost:11000), firmware too, then reboot it",
        ),
        cost=f"an update and a reboot of {older}",
    )


def _driver_remedy(nodes: tuple[NodeView, NodeView], versions_there: tuple[str | None, str | None]) -> Remedy | None:
    """What makes the drivers equal without an update: a reboot that is due, or the way back to the supported branch."""
    for node, own, wanted in zip(nodes, versions_there, reversed(versions_there), strict=True):
        if node.facts and node.facts.driver_installed == wanted and judge_driver_pending(node).is_problem:
            return Remedy(
                title=f"Reboot {node.name}, where {wanted} is installed already",
                steps=(f"sudo reboot   # on {node.name}",),
                cost=f"everything on {node.name}, and the time to load its models again",
            )
        if _branch(wanted) == SUPPORTED_BRANCH != _branch(own):
            return Remedy(
                title=f"Go back to the {SUPPORTED_BRANCH} driver on {node.name}, as the other node has it",
                steps=(DRIVER_BACK_STEP,),
                cost=f"a reboot of {node.name}",
            )
    return None


def _branch(version: str | None) -> str:
    return (version or "").partition(".")[0]


def _version_rule(
    component: str, severity: Severity, title: str, explanation: str, references: tuple[str, ...]
) -> LiveRule:
    """The live rule on one component that both nodes should have in one version."""
    check, _ = COMPONENTS[component]

    @check_rule(check, severity, follows=("host.driver-pending",) if component == "driver" else ())
    def differs(fleet: FleetState) -> Iterable[Finding]:
        two = node_pair(fleet)
        if two is None:
            return
        (first, second), judgement = versions(component, *two.nodes)
        if judgement.state not in SEVERITY:
            return
        waiting = [
            f" On {node.name} {node.facts.driver_installed} is installed and waits for a reboot."
            for node in (two.nodes if component == "driver" else ())
            if node.facts and judge_driver_pending(node).is_problem
        ]
        by_release = check is not judge_release_parity and versions("DGX OS", *two.nodes)[1].state in SEVERITY
        yield Finding(
            rule=check.id,
            severity=SEVERITY[judgement.state],
            title=f"{title}: {first} on {two.names[0]}, {second} on {two.names[1]}",
            explanation=explanation + "".join(waiting),
            evidence=tuple(
                Evidence(source=f"{name} facts", text=f"{component} {version}")
                for name, version in zip(two.names, (first, second), strict=True)
            ),
            remedies=(
                (_driver_remedy(two.nodes, (first, second)) if component == "driver" else None)
                or _update(two.names, (first, second)),
            ),
            references=references,
            nodes=two.names,
            brief=f"{first} and {second}",
            # Information alone causes nothing; here it is the other half of one update.
            caused_by=judge_release_parity.id if by_release else None,
        )

    return differs


driver_differs = _version_rule(
    "driver",
    Severity.WARNING,
    "The NVIDIA drivers differ",
    "The ranks of a pair run the same collectives and CUDA graphs, where each driver has its own faults. 590.x is "
    "reported to deadlock in CUDA graphs on GB10; 580.x is the supported branch. If a pair hangs or crashes on one "
    "side only, first make the drivers equal.",
    judge_driver_parity.sources,
)
kernel_differs = _version_rule(
    "kernel",
    Severity.WARNING,
    "The kernels differ",
    "Memory management, the network driver and the NVIDIA module belong to the kernel. One node may fail where the "
    "other doesn't, and comparing them misleads. Most often only one was updated, or one hasn't rebooted since.",
    judge_kernel_parity.sources,
)
dgx_os_differs = _version_rule(
    "DGX OS",
    Severity.INFO,
    "DGX OS differs",
    "A release has a driver, a kernel and firmware that were tested together. A difference alone does no harm; keep "
    "both nodes at one release.",
    ("/etc/dgx-release of both nodes (the last DGX_OTA_VERSION)",),
)


@check_rule(judge_image_parity, Severity.WARNING, hold_s=1.0)
def image_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.image-differs: the ranks' containers were created from different images."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    first, second = (rank.engine.container for rank in pair.ranks)
    if first is None or second is None:
        return
    judgement = judge_image_parity(ImageFacts(ids=(first.image_id, second.image_id)))
    if not judgement.is_problem:
        return
    same_name = first.image == second.image
    yield Finding(
        rule=judge_image_parity.id,
        severity=SEVERITY[judgement.state],
        title=f"The ranks of {pair.name} run different images",
        explanation=(
            (f"Both are called {first.image}, but that name means another image on each node: " if same_name else "")
            + (
                "the image ids differ, so engine, NCCL, PyTorch and kernels may differ too. Ranks of different "
                "builds may disagree about the next step, hang in a collective, or fail with errors that name no "
                "cause. Usually the reason is a tag such as `latest`, or a separate build on each node."
            )
        ),
        distinction=(
            "An image's id comes from its content: names and tags don't count.",
            "One image has two ids only if one Docker Engine uses the containerd image store and the other doesn't.",
        ),
        evidence=tuple(
            said(rank, f"image {rank.engine.container.image} {rank.engine.container.image_id[:19]}")
            for rank in pair.ranks
            if rank.engine.container
        ),
        remedies=(
            Remedy(
                title="Copy the image that works to the other node, and start both ranks from it",
                steps=(
                    f"docker image inspect --format '{{{{.Id}}}}' {_head_image(pair)}   # on both",
                    _copy_command(pair),
                    "start both ranks again",
                ),
                cost="some minutes to copy, and the time to load",
            ),
        ),
        references=("eugr/spark-vllm-docker launch-cluster.sh, which refuses to start such a pair",),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{first.image_id[7:19]} and {second.image_id[7:19]}",
    )


def _head_image(pair: Pair) -> str:
    return names_of(pair.head.engine)["image"]


def _copy_command(pair: Pair) -> str:
    head, other = pair.head.node.name, pair.other(pair.head).node.name
    return f"on {head}, if its image is the one that works: docker save {_head_image(pair)} | ssh {other} docker load"


@live_rule(
    "cluster.engine-version-differs",
    "The ranks run different engine versions",
    Severity.WARNING,
    scope=SPANNING_ENGINE,
    sources=("eugr/spark-vllm-docker",),
    hold_s=1.0,
    follows=("cluster.image-differs",),
)
def engine_version_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.engine-version-differs: the ranks report different versions."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    first, second = (rank.engine.version for rank in pair.ranks)
    if not first or not second or first == second:
        return
    kind = pair.head.engine.kind
    yield Finding(
        rule="cluster.engine-version-differs",
        severity=Severity.WARNING,
        title=f"The ranks of {pair.name} run different {kind} versions: {first} and {second}",
        explanation=(
            "The ranks' messages carry no version. Another release has another layout of messages, cache and graphs. "
            "The engine hangs, or fails with an error that doesn't say why."
        ),
        evidence=tuple(said(rank, f"{kind} {rank.engine.version}") for rank in pair.ranks),
        remedies=(
            Remedy(
                title="Start both ranks from one image",
                steps=(_copy_command(pair), "start both ranks again"),
                cost="some minutes to copy, and the time to load",
            ),
        ),
        references=("eugr/spark-vllm-docker launch-cluster.sh",),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{first} and {second}",
    )
