"""Containers under the names that a launch wants: those it runs in already, and those of before. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from sparktop.operate import inspected
from sparktop.operate.inspected import is_whole_id
from sparktop.operate.launching.gates_docker import list_ask
from sparktop.operate.launching.place import Taken
from sparktop.operate.survey import Ask, Survey
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


def asks(rendered: Rendered, survey: Survey) -> Iterator[Ask]:
    """Of ranks that all run as asked already: how each stands now. The picture's restart policies may be half a minute
    old."""
    for rank in rendered.ranks if as_asked(rendered, survey) else ():
        row = row_of(rank, survey)
        if row is not None and is_whole_id(str(row.get("Id"))):
            yield inspected.ask(rank.node, str(row["Id"]))


def without_policy(rendered: Rendered, wanted: Mapping[str, Any], survey: Survey) -> Iterator[str]:
    """What gives each rank the restart policy that its recipe wants and it hasn't got: it gets it at a launch's end."""
    for rank in rendered.ranks if wanted else ():
        row = row_of(rank, survey)
        box = inspected.inspected(rank.node, str(row.get("Id")), survey) if row is not None else None
        if box is not None and not box.restarts:
            name = shlex.quote(rank.container.name)
            yield f"once it serves, on {rank.node}: docker update --restart={wanted['Name']} {name}"


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
