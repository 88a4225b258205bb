"""Containers that an interrupted launch has made and never started: known by their label, and removed first. Pure.

A console that is killed, or a link that never comes back, leaves them behind: they hold nothing but a name. One that
has run is no leftover: its log may be wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.plan import OnFailure, Remote, Step
from sparktop.operate.inspected import is_whole_id
from sparktop.operate.launching.gates_docker import is_never_started, list_ask
from sparktop.operate.survey import Survey
from sparktop.recipe.labels import LAUNCH
from sparktop.recipe.rendered import Rank

NEXT = "-next-"
"""Between a container's name and its plan's moment, until it takes its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One of them."""

    container_id: str
    name: str
    stamp: str
    """Of the launch that has made it."""


def leftovers(rank: Rank, survey: Survey) -> tuple[Leftover, ...]:
    """Those under the name of this rank, or under the one that it had until it would have taken it."""
    listed = survey.value(list_ask(rank.node))
    rows = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return tuple(one for row in rows if (one := _leftover(row, rank.container.name)) is not None)


def _leftover(row: Mapping[str, Any], wanted: str) -> Leftover | None:
    names = [str(name).removeprefix("/") for name in row.get("Names") or ()]
    name = next((one for one in names if one == wanted or one.startswith(f"{wanted}{NEXT}")), None)
    if name is None or not is_never_started(row) or not is_whole_id(str(row.get("Id"))):
        return None
    return Leftover(container_id=str(row["Id"]), name=name, stamp=str(row["Labels"][LAUNCH]))


def clear(node: str, mark: str, found: Sequence[Leftover]) -> Step:
    """Away with them; nothing where one of them was started meanwhile."""
    operations: list[Operation] = []
    for one in found:
        path = f"/containers/{one.container_id}"
        operations += [
            Expect(
                path=f"{path}/json",
                equals={"Id": one.container_id, "State.Status": "created", f"Config.Labels.{LAUNCH}": one.stamp},
                otherwise=f"{one.name} was started or removed since the plan was made: plan again",
            ),
            DockerCall(method="DELETE", path=path, query={"v": "true"}, accepts=(204,), limit_s=90.0),
        ]
    names = " and ".join(one.name for one in found)
    return Step(
        id=f"clear{mark}",
        title=f"Remove {names}, which an interrupted launch has made and never started",
        node=node,
        act=Remote(operations=tuple(operations)),
        limit_s=120.0 * len(found),
        verifies="the name is free",
        undone_by="nothing needs to be: it has never run",
        on_failure=OnFailure.ROLL_BACK,
    )
