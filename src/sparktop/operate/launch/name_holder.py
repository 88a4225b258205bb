"""Containers that have the name of a planned rank already: what runs as asked, what gives its name up, leftovers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.engines import labels
from sparktop.engines.labels import LAUNCH
from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.survey import Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import inspected
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.container.lifecycle import NewContainer
from sparktop.operate.launch.inputs.docker import DockerThere, Listed
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import Rendered, RenderedRank


def clear(rank: NewContainer, containers: Sequence[Listed]) -> Iterator[Step]:
    """Remove what an interrupted launch created under the rank's name, or a temporary form of it, and never started;
    fails where one was started meanwhile."""
    left = [
        (leftover, name)
        for leftover in containers
        for name in leftover.names
        if leftover.is_never_started and leftover.container_id and rank.name in (name, labels.name_set_aside(name))
    ]
    if not left:
        return
    operations: list[Operation] = []
    for leftover, name in left:
        path, stamp = f"/containers/{leftover.container_id}", leftover.labels[LAUNCH]
        operations += [
            Expect(
                path=f"{path}/json",
                equals={"Id": leftover.container_id, "State.Status": "created", f"Config.Labels.{LAUNCH}": stamp},
                otherwise=f"{name} was started or removed since the plan was made: plan again",
            ),
            DockerCall(method="DELETE", path=path, query={"v": "true"}, accepts=(204,), limit_s=90.0),
        ]
    names = " and ".join(name for _, name in left)
    yield Step(
        id=f"clear{rank.mark}",
        title=f"Remove {names}, made by an interrupted launch and never started",
        node=rank.node,
        act=Remote(operations=tuple(operations)),
        limit_s=120.0 * len(left),
        verifies="the name is free",
        on_failure=OnFailure.ROLL_BACK,
    )


def running_already(rendered: Rendered, docker: Mapping[str, DockerThere]) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank, where all run already with the same values; empty where one doesn't."""
    holders = [(rank, docker[rank.node].holder(rank.container.name)) for rank in rendered.ranks]
    if not all(row is not None and row.state == "running" and _is_same(rank, row) for rank, row in holders):
        return ()
    return tuple((rank.node, rank.container.name) for rank in rendered.ranks)


def policy_remedies(
    rendered: Rendered, policy: Mapping[str, Any], docker: Mapping[str, DockerThere], survey: Survey
) -> Iterator[str]:
    """Commands that give running ranks the restart policy that an interrupted launch never set."""
    for rank in rendered.ranks if policy else ():
        holder = name_holder(rank, docker[rank.node])
        container = inspected.inspected(rank.node, holder.container_id, survey) if holder is not None else None
        if container is not None and not container.restarts:
            name = shlex.quote(rank.container.name)
            yield f"once it serves, on {rank.node}: docker update --restart={policy['Name']} {name}"


def name_holder(rank: RenderedRank, docker: DockerThere) -> Inspected | None:
    """The container that has the rank's name now, and is no leftover; the gate `name` has checked that it may give it
    up."""
    row = docker.holder(rank.container.name)
    if row is None or not row.container_id or row.is_never_started:
        return None
    return Inspected(node=rank.node, container_id=row.container_id, name=rank.container.name)


def _is_same(rank: RenderedRank, row: Listed) -> bool:
    names = (labels.RECIPE, labels.VALUES, labels.RANK, labels.CHANGED)
    return all(row.labels.get(name) == rank.container.labels.get(name) for name in names)
