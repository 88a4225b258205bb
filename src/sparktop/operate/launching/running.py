"""Containers under the names that a launch wants: those it runs in already, and those of before. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.operate.inspected import is_whole_id
from sparktop.operate.launching.gates_docker import list_ask
from sparktop.operate.launching.place import Taken
from sparktop.operate.survey import Survey
from sparktop.recipe import labels
from sparktop.recipe.rendered import Rank, Rendered


def as_asked(rendered: Rendered, survey: Survey) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank, where all run already with the same values; empty where one doesn't."""
    found = []
    for rank in rendered.ranks:
        row = row_of(rank, survey)
        if row is None or str(row.get("State")) != "running" or not _is_same(rank, row):
            return ()
        found.append((rank.node, rank.container.name))
    return tuple(found)


def without_policy(here: Sequence[tuple[str, str]], wanted: Mapping[str, Any], picture: FleetState) -> Iterator[str]:
    """What gives each rank the restart policy that its recipe wants and it hasn't got: it gets it at a launch's end."""
    for node, name in here if wanted else ():
        view = picture.node(node)
        box = next((one for one in view.containers.containers if one.name == name), None) if view else None
        if box is not None and box.restart_policy in ("", "no"):
            yield f"once it serves, on {node}: docker update --restart={wanted['Name']} {shlex.quote(name)}"


def taken(rank: Rank, survey: Survey, stamp: str) -> Taken | None:
    """The container that has the rank's name now; the gate `name` has seen that it may give it up."""
    row = row_of(rank, survey)
    if row is None or not is_whole_id(str(row.get("Id"))):
        return None
    name = rank.container.name
    return Taken(container_id=str(row["Id"]), name=name, before_name=f"{name}-before-{stamp}")


def row_of(rank: Rank, survey: Survey) -> Mapping[str, Any] | None:
    """Docker's row of the container with that name."""
    listed = survey.value(list_ask(rank.node))
    rows = listed if isinstance(listed, list) else []
    name = f"/{rank.container.name}"
    return next((row for row in rows if isinstance(row, Mapping) and name in (row.get("Names") or ())), None)


def _is_same(rank: Rank, row: Mapping[str, Any]) -> bool:
    said = row.get("Labels")
    own = rank.container.labels
    return isinstance(said, Mapping) and all(
        said.get(name) == own.get(name) for name in (labels.RECIPE, labels.VALUES, labels.RANK, labels.CHANGED)
    )
