"""Rules on what must be the same on all nodes of an engine: driver, kernel, DGX OS, image, engine version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sparktop.checks.host import DRIVER_BACK_STEP, SUPPORTED_BRANCH, judge_driver_pending
from sparktop.checks.node_facts import COMPONENTS, versions
from sparktop.checks.parity import (
    ImageFacts,
    judge_driver_parity,
    judge_image_parity,
    judge_release_parity,
)
from sparktop.diagnose.names import names_of
from sparktop.diagnose.rule import SEVERITY, LiveRule, check_rule, live_rule
from sparktop.engines.pair import Team, engine_evidence, node_groups, whole
from sparktop.knowledge.card import found, remedies
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView


def _update(names: tuple[str, str], versions_there: Sequence[str | None]) -> Mapping[str, object]:
    """The update that makes both nodes equal; it names the older node where the versions tell."""
    first, second = ([int(number) for number in re.findall(r"\d+", version or "")] for version in versions_there)
    if first == second:
        return {"older": "the older node", "newer": "the other"}
    older, newer = names if first < second else names[::-1]
    return {"older": older, "newer": newer}


def _driver_remedy(nodes: Sequence[NodeView], versions_there: tuple[str | None, str | None]) -> Mapping[str, object]:
    """What makes the drivers equal without an update: a reboot that is due, or the way back to the supported branch."""
    for node, own, wanted in zip(nodes, versions_there, reversed(versions_there), strict=True):
        if node.facts and node.facts.driver_installed == wanted and judge_driver_pending(node).is_problem:
            return {"pending_on": node.name, "wanted": wanted}
        if _branch(wanted) == SUPPORTED_BRANCH != _branch(own):
            return {"off_branch": node.name, "branch": SUPPORTED_BRANCH, "back_step": DRIVER_BACK_STEP}
    return {}


def _branch(version: str | None) -> str:
    return (version or "").partition(".")[0]


def _version_rule(component: str) -> LiveRule:
    """The live rule on one component that nodes which belong together should have in one version."""
    check, version_of = COMPONENTS[component]
    is_driver = component == "driver"

    @check_rule(check, follows=("host.driver-pending",) if is_driver else ())
    def differs(fleet: FleetState) -> Iterable[Finding]:
        for group in node_groups(fleet):
            yield from (differing(*pair) for pair in _odd_ones(group, version_of))

    def differing(*two: NodeView) -> Finding:
        names = (two[0].name, two[1].name)
        (first, second), judgement = versions(component, *two)
        waiting = tuple(
            f"On {node.name} {node.facts.driver_installed} is installed and waits for a reboot."
            for node in (two if is_driver else ())
            if node.facts and judge_driver_pending(node).is_problem
        )
        fix = (_driver_remedy(two, (first, second)) if is_driver else {}) or _update(names, (first, second))
        by_release = check is not judge_release_parity and versions("DGX OS", *two)[1].state in SEVERITY
        return found(
            check.id,
            "differ",
            {"nodes": [*names], "versions": [first, second], "waiting": " ".join(waiting)},
            severity=SEVERITY[judgement.state],
            evidence=tuple(
                Evidence(source=f"{name} facts", text=f"{component} {version}")
                for name, version in zip(names, (first, second), strict=True)
            ),
            remedies=remedies(judge_driver_parity.id, "differ", fix),
            nodes=names,
            # Information alone causes nothing; here it is the other half of one update.
            caused_by=judge_release_parity.id if by_release else None,
        )

    return differs


def _odd_ones(group: Sequence[NodeView], version_of: Callable[[NodeView], str]) -> Iterator[tuple[NodeView, NodeView]]:
    """Each node with another version than most have, with one of those, in the fleet's order."""
    known = [node for node in group if version_of(node)]
    usual = Counter(map(version_of, known)).most_common(1)
    for node in known:
        if version_of(node) != usual[0][0]:
            like_most = next(other for other in known if version_of(other) == usual[0][0])
            yield (node, like_most) if known.index(node) < known.index(like_most) else (like_most, node)


driver_differs = _version_rule("driver")
kernel_differs = _version_rule("kernel")
dgx_os_differs = _version_rule("DGX OS")


@check_rule(judge_image_parity, hold_s=1.0)
def image_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.image-differs: the ranks' containers were created from different images."""
    for team in whole(fleet):
        for pair in team.pairs:
            yield from _image_differs(pair)


def _image_differs(pair: Team) -> Iterator[Finding]:
    first, second = (rank.engine.container for rank in pair.ranks)
    if first is None or second is None:
        return
    judgement = judge_image_parity(ImageFacts(ids=(first.image_id, second.image_id)))
    if not judgement.is_problem:
        return
    yield found(
        judge_image_parity.id,
        "differ",
        {
            **_copying(pair),
            "shared_name": first.image if first.image == second.image else None,
            "ids": [first.image_id[7:19], second.image_id[7:19]],
        },
        severity=SEVERITY[judgement.state],
        evidence=tuple(
            engine_evidence(rank, f"image {rank.engine.container.image} {rank.engine.container.image_id[:19]}")
            for rank in pair.ranks
            if rank.engine.container
        ),
        nodes=pair.nodes,
        subject=pair.name,
    )


def _copying(pair: Team) -> Mapping[str, object]:
    """Where the image is that the other node may get."""
    image = names_of(pair.head.engine)["image"]
    return {"pair": pair.name, "head": pair.head.node.name, "other": pair.worker.node.name, "image": image}


@live_rule("cluster.engine-version-differs", hold_s=1.0, follows=("cluster.image-differs",))
def engine_version_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.engine-version-differs: the ranks report different versions."""
    for team in whole(fleet):
        for pair in team.pairs:
            yield from _version_differs(pair)


def _version_differs(pair: Team) -> Iterator[Finding]:
    first, second = (rank.engine.version for rank in pair.ranks)
    if not first or not second or first == second:
        return
    kind = pair.head.engine.kind
    yield found(
        "cluster.engine-version-differs",
        "differ",
        {**_copying(pair), "kind": kind, "versions": [first, second]},
        evidence=tuple(engine_evidence(rank, f"{kind} {rank.engine.version}") for rank in pair.ranks),
        nodes=pair.nodes,
        subject=pair.name,
    )
