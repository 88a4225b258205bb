"""Facts of a node as the picture has them, for every view that sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sparktop.checks.judgement import Check, Judgement
from sparktop.checks.parity import Versions, judge_driver_parity, judge_kernel_parity, judge_release_parity
from sparktop.model.fleet import NodeView


def engine_user_id(node: NodeView, pids: Collection[int]) -> int | None:
    """Whose id the processes of an engine run under: the node's user, if any of them does; None: not known."""
    rows = node.processes.processes if node.processes else ()
    ids = {row.user_id for row in rows if row.pid in pids and row.user_id is not None}
    user_id = node.facts.user_id if node.facts else None
    return user_id if user_id in ids else min(ids, default=None)


COMPONENTS: Mapping[str, tuple[Check[Versions], Callable[[NodeView], str]]] = {
    "driver": (judge_driver_parity, lambda node: node.driver_version),
    "kernel": (judge_kernel_parity, lambda node: node.facts.kernel if node.facts else ""),
    "DGX OS": (judge_release_parity, lambda node: (node.facts.dgx_release if node.facts else None) or ""),
}
"""What nodes should have in one version: its check, and where a node has it."""


def versions(component: str, *nodes: NodeView) -> tuple[Versions, Judgement]:
    """The versions of a component on these nodes, judged."""
    check, version_of = COMPONENTS[component]
    node_versions = tuple(map(version_of, nodes))
    return node_versions, check(node_versions)
