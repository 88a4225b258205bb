"""Runs by consoles on other machines, as the nodes have noted them (`run/node_notes`). Pure.

A node may say of itself what it likes. So what is noted on a node holds for that node alone: what a run did, and its
rollback, is taken over for several nodes only where each that it names has noted the same. What was asked for never is:
planned again, it would get this operator's secrets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.operate.audit_file import decoded
from sparktop.sanitise import items, mapping

Entry = Mapping[str, Any]
_LISTS = ("steps", "way_back", "kept", "differences")
"""Of an intent, with a node in each item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsElsewhere:
    """Entries of runs by other consoles."""

    entries: tuple[Entry, ...] = ()
    """As in the audit, with the names by which this console knows the nodes."""
    under_way: frozenset[str] = frozenset()
    """Ids of those that run now."""


def runs_elsewhere(notes: Mapping[str, object], own: Collection[str]) -> RunsElsewhere:
    """The runs in the nodes' answers to `RunNotes`, by node, but for those of this machine's own audit."""
    copies: dict[str, dict[str, tuple[Entry, ...]]] = {}
    under_way: set[str] = set()
    for node, answer in notes.items():
        for noted in map(mapping, items(answer)):
            run = noted.get("run")
            if not isinstance(run, str) or run in own:
                continue
            text = "\n".join(line for line in items(noted.get("entries")) if isinstance(line, str))
            entries = tuple(entry for entry in decoded(text.encode())[0] if entry.get("run") == run)
            if entries:
                copies.setdefault(run, {})[node] = entries
            if noted.get("held") is True:
                under_way.add(run)
    merged = [entry for by_node in copies.values() for entry in _merged(by_node)]
    return RunsElsewhere(entries=tuple(sorted(merged, key=_wall_s)), under_way=frozenset(under_way))


def _merged(by_node: Mapping[str, tuple[Entry, ...]]) -> Iterator[Entry]:
    """One run's entries: each node's word on itself, in this console's names."""
    names = {str(entry["as"]): node for node, entries in by_node.items() for entry in entries if "as" in entry}
    seen: set[str] = set()
    intents = {
        json.dumps({key: value for key, value in entry.items() if key != "as"}, sort_keys=True)
        for entries in by_node.values()
        for entry in entries
        if entry["kind"] == "intent"
    }
    for node, entries in by_node.items():
        for entry in entries:
            entry = _renamed(entry, names)
            if entry["kind"] == "intent":
                entry = {**entry, "asked": None}
                if len(intents) > 1 or not _named(entry) <= by_node.keys():
                    own = {
                        key: [one for one in items(entry.get(key)) if mapping(one).get("node") == node]
                        for key in _LISTS
                    }
                    entry = {**entry, **own, "nodes": [node], "kept": None}
            elif entry.get("node", node) != node:
                continue  # another node's step: its own word counts
            text = json.dumps(entry, sort_keys=True)
            if text not in seen and not (entry["kind"] == "intent" and "intent" in seen):
                seen |= {text, str(entry["kind"])}
                yield entry


def _named(intent: Entry) -> set[str]:
    """Every node that it names."""
    parts = [mapping(one) for key in _LISTS for one in items(intent.get(key))]
    others = [name for one in parts for name in (one.get("node") or None, *items(one.get("needs_nodes")))]
    return {str(name) for name in (*items(intent.get("nodes")), *others) if name is not None}


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    renamed: dict[str, Any] = {key: value for key, value in entry.items() if key != "as"}
    for key in _LISTS:
        if isinstance(entry.get(key), list):
            renamed[key] = [_renamed_item(item, names) for item in entry[key] if isinstance(item, Mapping)]
    if isinstance(entry.get("nodes"), list):
        renamed["nodes"] = [names.get(str(name), str(name)) for name in entry["nodes"]]
    return _renamed_item(renamed, names)


def _renamed_item(item: Entry, names: Mapping[str, str]) -> Entry:
    renamed = dict(item)
    if isinstance(item.get("node"), str):
        renamed["node"] = names.get(item["node"], item["node"])
    if isinstance(item.get("needs_nodes"), list):
        renamed["needs_nodes"] = [names.get(str(name), str(name)) for name in item["needs_nodes"]]
    return renamed


def _wall_s(entry: Entry) -> float:
    wall_s = entry.get("wall_s")
    return float(wall_s) if isinstance(wall_s, int | float) else 0.0
