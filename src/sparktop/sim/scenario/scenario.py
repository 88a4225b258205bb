"""Load scenarios by name: scripts of simulated Sparks, from the TOML files in scenarios/ (its README.md has the
keys).

A file may extend another one next to it: tables are merged key by key, lists of tables by `name`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparktop.errors import ConfigError
from sparktop.sim.scenario import hub
from sparktop.sim.scenario.script import ENGINE_TRACKS, NODE_TRACKS, NodeScript, Repeat, Scenario
from sparktop.sim.scenario.sections import merged, nearest, parse, read
from sparktop.sim.scenario.tracks import Track

__all__ = ["Scenario", "available", "load", "load_file"]
_DAY_S = 86_400.0
_PARTS = ("gpu", "desktop")
"""Parts of a machine that have reactions of their own."""


def available() -> tuple[tuple[str, str], ...]:
    """(name, title) of every shipped scenario, the healthy one first."""
    scenarios = [(path.stem, str(parse(path).get("title", ""))) for path in _directory().glob("[!_]*.toml")]
    return tuple(sorted(scenarios, key=lambda row: (row[0] != "healthy", row[0])))


def load(name: str) -> Scenario:
    """A shipped scenario, by name.

    Raises:
        ConfigError: unknown name, or an error in its file.
    """
    names = [name_ for name_, _ in available()]
    if name not in names:
        hint = nearest(name, names) or "sparktop demo --list shows what each one is"
        raise ConfigError(f"there is no scenario {name!r}; there are {', '.join(names)}", hint=hint)
    return load_file(_directory() / f"{name}.toml")


def load_file(path: Path) -> Scenario:
    """A scenario from a file; the file it extends is looked up next to it.

    Raises:
        ConfigError: names the file, the key, and the nearest valid key.
    """
    raw, seen = parse(path), {path}
    while "extends" in raw:
        base = path.with_name(f"{raw.pop('extends')}.toml")
        if base in seen:
            raise ConfigError(f"{path.name}: extends: goes in a circle at {base.name}")
        seen.add(base)
        raw = merged(parse(base), raw)
    nodes = raw.get("nodes", ())
    if not isinstance(nodes, list):
        raise ConfigError(f"{path.name}.nodes: must be tables, written [[nodes]]")
    raw["nodes"] = [_prepared(node) for node in _copied(nodes, path.name)]
    raw["description"] = str(raw.get("description", "")).strip()
    scenario = read(Scenario, {"name": path.stem, **raw}, path.name)
    for node in scenario.nodes:
        _check(node, scenario, f"{path.name}.nodes[{node.name}]")
    if scenario.repeat is Repeat.LOOP:
        scenario = replace(scenario, nodes=tuple(_looping(node, scenario.length_s) for node in scenario.nodes))
    return scenario


def _directory() -> Path:
    return Path(__file__).parent.with_name("scenarios")


def _copied(nodes: Sequence[dict[str, Any]], file: str) -> Iterator[dict[str, Any]]:
    """The nodes, those that are `like` another with its keys, and their own words `instead` of its."""
    seen: dict[str, dict[str, Any]] = {}
    for node in nodes:
        if (like := node.pop("like", None)) is not None:
            if like not in seen:
                raise ConfigError(f"{file}.nodes[{node.get('name')}].like: there is no {like!r} above it")
            node = merged(_reworded(seen[like], node.pop("instead", {})), node)
        seen[str(node.get("name"))] = copy.deepcopy(node)
        yield node


def _reworded(value: Any, words: Mapping[str, str]) -> Any:
    """The value with these words replaced in every text of it."""
    if isinstance(value, dict):
        return {key: _reworded(part, words) for key, part in value.items()}
    if isinstance(value, list):
        return [_reworded(part, words) for part in value]
    for old, new in words.items() if isinstance(value, str) else ():
        value = value.replace(old, new)
    return value


def _prepared(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node's table with what follows from its other keys."""
    boot_age_s = node.get("boot_age_days", 4.1) * _DAY_S
    reactions = {row["name"]: row for row in node.get("reactions", ())}
    for row in node.get("containers", ()):
        row["reaction"] = reactions.pop(row["name"], {"name": row["name"]})
    for row in node.get("processes", ()):
        row["comm"] = row.get("comm", row["name"])[:15]
        row.setdefault("start_s", 20 - boot_age_s)
    for row in node.get("kernel", ()):
        if "boot_s" in row:
            row["at_s"] = row.pop("boot_s") - boot_age_s
    for row in node.get("engines", ()):
        row["tracks"] = {**ENGINE_TRACKS, **row.get("tracks", {})}
    plain = {key: value for key, value in node.items() if key != "boot_age_days"}
    return {
        **plain,
        "boot_age_s": boot_age_s,
        "reactions": list(reactions.values()),
        "tracks": {**NODE_TRACKS, **node.get("tracks", {})},
        "machine": {"hostname": node.get("name"), **node.get("machine", {})},
    }


def _check(node: NodeScript, scenario: Scenario, where: str) -> None:
    """Check what the tables of a node say of each other.

    Raises:
        ConfigError: one names what there isn't, or a container ends in a scenario that loops.
    """
    containers = [container.name for container in node.containers]
    named = [("engines", engine.name, containers) for engine in node.engines]
    named += [("processes", process.container, containers) for process in node.processes if process.container]
    named += [("reactions", reaction.name, [*containers, *_PARTS]) for reaction in node.reactions]
    named += [("tracks", name, list(NODE_TRACKS)) for name in node.tracks]
    named += [("engines", name, list(ENGINE_TRACKS)) for engine in node.engines for name in engine.tracks]
    for key, name, known in named:
        if name not in known:
            raise ConfigError(f"{where}.{key}: there is no {name!r} here", hint=nearest(name, known))
    for name in [model.name for model in node.models if hub.model(model.name) is None]:
        raise ConfigError(f"{where}.models: {name!r} is not in hub.toml")
    for name in [name for name in node.images if hub.image(name) is None]:
        raise ConfigError(f"{where}.images: {name!r} is not in hub.toml")
    for container in node.containers:
        is_over = any(run.start_s >= 0 or run.end_s is not None for run in container.runs)
        if is_over and scenario.repeat is Repeat.LOOP:
            hint = 'what begins or ends within the scenario needs repeat = "restart" or "hold"'
            raise ConfigError(f"{where}.containers[{container.name}].runs: ends, and the scenario loops", hint=hint)


def _looping(node: NodeScript, length_s: float) -> NodeScript:
    """The node with its figures, but for those of processes, starting over."""

    def over(tracks: Mapping[str, Track]) -> dict[str, Track]:
        return {name: track.repeating(length_s) for name, track in tracks.items()}

    return replace(
        node,
        tracks=over(node.tracks),
        engines=tuple(replace(one, tracks=over(one.tracks)) for one in node.engines),
        interfaces=tuple(
            replace(one, mtu=one.mtu.repeating(length_s), up=one.up.repeating(length_s)) for one in node.interfaces
        ),
        units=tuple(replace(one, restarts=one.restarts.repeating(length_s)) for one in node.units),
    )
