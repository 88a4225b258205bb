"""The gate of the container's name: that it is free on each node, or who has it and what would free it. Pure.

`--stop` is offered where the picture shows an engine in the container, as it is by that picture that a stop finds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.engine import Engine
from sparktop.model.prospect import Gate
from sparktop.operate.launching.gates_docker import is_never_started, list_ask, names_of, rank_of, rows
from sparktop.operate.launching.looked import Looked, failed, passed, unknown, why_not
from sparktop.recipe import labels

_RUNS = ("running", "restarting", "paused")
_NAME_CHARS = 63
"""Of a name that `--set name=` takes."""


def gates(looked: Looked) -> Iterator[Gate]:
    """name, for each node."""
    for node in looked.nodes:
        yield from _names(looked, node)


def _names(looked: Looked, node: str) -> Iterator[Gate]:
    rank = rank_of(looked, node)
    if rank is None:
        why = looked.unrendered or "the launch was not rendered"
        yield unknown("name", node, f"the container's name is not known: {why}")
        return
    listed, name = rows(looked, node), rank.container.name
    if listed is None:
        why = why_not(looked.survey, list_ask(node), "Docker has not answered")
        yield unknown("name", node, f"whether {name} is free is not known: {why}")
        return
    row = next((one for one in listed if name in names_of(one)), None)
    yield _name(looked, node, name, row) if row is not None else passed("name", node, f"{name} is free")


def _name(looked: Looked, node: str, name: str, row: Mapping[str, Any]) -> Gate:
    state, recipe = str(row.get("State") or "not known"), _label(row, labels.RECIPE)
    number = str(row.get("Id") or "")[:12]
    whose = f"of the recipe {recipe}, " if recipe else ""
    if looked.is_stopped(node, name):
        return passed("name", node, f"{name} ({whose}{number}) is stopped first, and gives its name up to the new one")
    if state in _RUNS:
        there = f"{name} is there already: {whose}container {number}, {state}{_alone(looked, node, row)}"
        return _running(looked, node, name, there, row)
    if is_never_started(row):
        return passed(
            "name", node, f"{name} ({whose}{number}) was made by a launch that was interrupted, never started: it goes"
        )
    if recipe:
        return passed(
            "name",
            node,
            f"{name} of an earlier launch ({recipe}, {number}, {state}) gives its name up when the new one starts, and "
            "stays under another",
        )
    return failed(
        "name",
        node,
        f"{name} is there already: container {number}, {state}, of image {row.get('Image') or 'not known'}; it was not "
        "made by a launch, so it is left alone",
        f"{_another(looked, name)}, or on {node}: docker rename {name} {_old(looked, name)}   # or: docker rm {name}",
    )


def _running(looked: Looked, node: str, name: str, there: str, row: Mapping[str, Any]) -> Gate:
    """One that runs: an engine that can be stopped, one of ours that isn't seen yet, or somebody else's program."""
    engine = _engine(looked, node, name, row)
    if engine is not None:
        stop = f"--stop {shlex.quote(engine.name)}"
        return failed("name", node, there, f"{stop}, or {_another(looked, name)}")
    if _label(row, labels.RECIPE):
        return failed(
            "name",
            node,
            f"{there}; no engine is seen in it, so it can't be stopped from here",
            f"{_another(looked, name)}, or on {node}: docker stop {name}   # it gives its name up then; an engine that "
            "has just been started is seen in some seconds",
        )
    return failed(
        "name",
        node,
        f"{there}, of image {row.get('Image') or 'not known'}; it is no engine that sparktop knows, so it can't be "
        "stopped from here",
        f"{_another(looked, name)}, or on {node}: docker rename {name} {_old(looked, name)}   # it runs on; or end it: "
        f"docker rm -f {name}",
    )


def _engine(looked: Looked, node: str, name: str, row: Mapping[str, Any]) -> Engine | None:
    """The living engine that the picture shows in this container."""
    view = looked.view(node)
    for one in view.engines if view is not None else ():
        box = one.container
        if is_alive(one) and box is not None and (box.name == name or box.container_id == row.get("Id")):
            return one
    return None


# --- what it could be called instead


def _another(looked: Looked, name: str) -> str:
    """A name that is free wherever it is launched."""
    return f"--set name={_free(looked, name, 2)}"


def _old(looked: Looked, name: str) -> str:
    return _free(looked, f"{name[: _NAME_CHARS - 4]}-old", 1)


def _free(looked: Looked, stem: str, first: int) -> str:
    """The stem with a number from `first` on, which is left out where it is 1."""
    taken = {name for node in looked.nodes for row in rows(looked, node) or () for name in names_of(row)}
    for number in range(first, first + len(taken) + 1):
        end = f"-{number}" if number > 1 else ""
        if (found := f"{stem[: _NAME_CHARS - len(end)]}{end}") not in taken:
            return found
    return stem


# --- whose it is


def _alone(looked: Looked, node: str, row: Mapping[str, Any]) -> str:
    """That a launch was interrupted between its ranks: what it made on another node doesn't run."""
    stamp = _label(row, labels.LAUNCH)
    for other in looked.nodes if stamp else ():
        for one in (rows(looked, other) or ()) if other != node else ():
            if _label(one, labels.LAUNCH) == stamp and one.get("State") != "running":
                return f", alone: its other rank on {other} doesn't run, as its launch was interrupted"
    return ""


def _label(row: Mapping[str, Any], name: str) -> str:
    said = row.get("Labels")
    return str(said.get(name) or "") if isinstance(said, Mapping) else ""
