"""A launch as a file to keep: a `docker run` line, a compose file or a systemd unit, for each node its own. Pure.

What is written starts the same container as `sparktop launch` does, from the same specification. Secrets are named,
never written: they come from the environment, or from a file of mode 0600 beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparktop.model.recipe import Muted
from sparktop.recipe.composefile import compose_file
from sparktop.recipe.rendered import ContainerSpec, Rank, Rendered
from sparktop.recipe.runline import lasting, run_line, without_secrets
from sparktop.recipe.unitfile import unit_file

KINDS: Mapping[str, str] = {"run": "{name}.sh", "compose": "{name}.compose.yaml", "systemd": "{name}.service"}
"""How each kind's file is named; on two nodes the node's name stands before it."""


def exported(rendered: Rendered, kind: str, *, node: str = "", muted: Sequence[Muted] = ()) -> str:
    """One node's file.

    Args:
        kind: "run", "compose" or "systemd".
        node: whose rank; empty: the head's.
        muted: the recipe's: the linter leaves them alone in the file too.

    Raises:
        ValueError: there is no such kind or node.
    """
    rank = next((each for each in rendered.ranks if each.node == node), None) if node else rendered.head
    if rank is None or kind not in KINDS:
        raise ValueError(f"no export {kind!r} for {node!r}")
    container = without_secrets(lasting(rank.container))
    comments = _comments(rendered, rank, kind, container, muted)
    if kind == "compose":
        return compose_file(container, comments)
    if kind == "systemd":
        return unit_file(container, rank, rendered, comments)
    return "\n".join((*(f"# {line}" for line in comments), run_line(container, is_folded=True), ""))


def files(rendered: Rendered, kind: str, *, muted: Sequence[Muted] = ()) -> dict[str, str]:
    """All ranks' files by their names."""
    found = {}
    for rank in rendered.ranks:
        name = KINDS[kind].format(name=rank.container.name)
        where = re.sub(r"[^A-Za-z0-9_.-]+", "-", rank.node)
        name = f"{where}.{name}" if len(rendered.ranks) > 1 else name
        found[name] = exported(rendered, kind, node=rank.node, muted=muted)
    return found


def _comments(
    rendered: Rendered, rank: Rank, kind: str, container: ContainerSpec, muted: Sequence[Muted]
) -> tuple[str, ...]:
    """What to know of the file, a line each."""
    found = [f"{container.name}, of sparktop's recipe {rendered.recipe_id}"]
    if len(rendered.ranks) > 1:
        others = ", ".join(each.node for each in rendered.ranks if each is not rank)
        found.append(f"For {rank.node} alone: rank {rank.index} of {len(rendered.ranks)}, with {others}.")
        found.append("Names of interfaces and addresses are this node's; start both, stop both.")
    if container.secret_names:
        names = ", ".join(container.secret_names)
        where = {
            "run": "export them before, or read them from a file: set -a; . ./.env; set +a",
            "compose": "in a file .env beside this one, mode 0600, NAME=value a line",
            "systemd": f"in /etc/sparktop/{container.name}.env, mode 0600, NAME=value a line",
        }[kind]
        found.append(f"Secrets ({names}): {where}")
    found += [f"sparktop: allow {one.rule}: {one.reason}" for one in muted]
    return tuple(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", line) for line in found)
