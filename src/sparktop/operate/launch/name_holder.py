"""Containers that have the name of a planned rank already: what runs as asked, what gives its name up, leftovers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.engines.labels import LAUNCH
from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.survey import Ask, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import inspected
from sparktop.operate.container.inspected import Inspected, is_whole_id
from sparktop.operate.launch.inputs.docker import is_never_started, names_of, rows
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import Rendered, RenderedRank

NEXT = "-next-"
"""Between a container's name and the plan's time, in its temporary name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A container that an interrupted launch created and never started."""

    container_id: str
    name: str
    stamp: str
    """Time of the launch that created it."""


def leftovers(rank: RenderedRank, survey: Survey) -> tuple[Leftover, ...]:
    """Leftovers under the rank's name or a temporary form of it."""
    listed = rows(survey, rank.node) or ()
    return tuple(leftover for row in listed if (leftover := _leftover(row, rank.container.name)) is not None)


def _leftover(row: Mapping[str, Any], rank_name: str) -> Leftover | None:
    next_name = f"{rank_name}{NEXT}"
    name = next((name for name in names_of(row) if name == rank_name or name.startswith(next_name)), None)
    if name is None or not is_never_started(row) or not is_whole_id(str(row.get("Id"))):
        return None
    return Leftover(container_id=str(row["Id"]), name=name, stamp=str(row["Labels"][LAUNCH]))


def clear(node: str, mark: str, leftovers: Sequence[Leftover]) -> Step:
    """Step: remove the leftovers; fails where one was started meanwhile."""
    operations: list[Operation] = []
    for leftover in leftovers:
        path = f"/containers/{leftover.container_id}"
        operations += [
            Expect(
                path=f"{path}/json",
                equals={
                    "Id": leftover.container_id,
                    "State.Status": "created",
                    f"Config.Labels.{LAUNCH}": leftover.stamp,
                },
                otherwise=f"{leftover.name} was started or removed since the plan was made: plan again",
            ),
            DockerCall(method="DELETE", path=path, query={"v": "true"}, accepts=(204,), limit_s=90.0),
        ]
    names = " and ".join(leftover.name for leftover in leftovers)
    return Step(
        id=f"clear{mark}",
        title=f"Remove {names}, made by an interrupted launch and never started",
        node=node,
        act=Remote(operations=tuple(operations)),
        limit_s=120.0 * len(leftovers),
        verifies="the name is free",
        on_failure=OnFailure.ROLL_BACK,
    )


def running_already(rendered: Rendered, survey: Survey) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank, where all run already with the same values; empty where one doesn't."""
    names = []
    for rank in rendered.ranks:
        row = container_row(rank, survey)
        if row is None or str(row.get("State")) != "running" or not _is_same(rank, row):
            return ()
        names.append((rank.node, rank.container.name))
    return tuple(names)


def asks(rendered: Rendered, survey: Survey) -> Iterator[Ask]:
    """Inspect ranks that run already: the state's restart policies may be half a minute old."""
    for rank in rendered.ranks if running_already(rendered, survey) else ():
        row = container_row(rank, survey)
        if row is not None and is_whole_id(str(row.get("Id"))):
            yield inspected.ask(rank.node, str(row["Id"]))


def policy_remedies(rendered: Rendered, policy: Mapping[str, Any], survey: Survey) -> Iterator[str]:
    """Commands that give running ranks the restart policy that an interrupted launch never set."""
    for rank in rendered.ranks if policy else ():
        row = container_row(rank, survey)
        container = inspected.inspected(rank.node, str(row.get("Id")), survey) if row is not None else None
        if container is not None and not container.restarts:
            name = shlex.quote(rank.container.name)
            yield f"once it serves, on {rank.node}: docker update --restart={policy['Name']} {name}"


def name_holder(rank: RenderedRank, survey: Survey) -> Inspected | None:
    """The container that has the rank's name now; the gate `name` has checked that it may give it up."""
    row = container_row(rank, survey)
    if row is None or not is_whole_id(str(row.get("Id"))):
        return None
    return Inspected(node=rank.node, container_id=str(row["Id"]), name=rank.container.name)


def container_row(rank: RenderedRank, survey: Survey) -> Mapping[str, Any] | None:
    """The entry of Docker's container list with the rank's name."""
    return next((row for row in rows(survey, rank.node) or () if rank.container.name in names_of(row)), None)


def _is_same(rank: RenderedRank, row: Mapping[str, Any]) -> bool:
    row_labels = row.get("Labels")
    own_labels = rank.container.labels
    return isinstance(row_labels, Mapping) and all(
        row_labels.get(name) == own_labels.get(name)
        for name in (labels.RECIPE, labels.VALUES, labels.RANK, labels.CHANGED)
    )
