"""The changes a relaunch makes to an engine; part of a rule's remedy, or edited by the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of a relaunch; a value of None removes the entry."""

    environment: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    flags: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Flags of the engine's command line, with dashes: {"--gpu-memory-utilization": "0.70", "--enforce-eager": ""}
    ("" is a switch without a value). AUTO is computed from available memory, "-0.05" and "+0.05" are added to the
    current value."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of Docker's HostConfig, by its API's names: {"IpcMode": "host", "ShmSize": 17179869184}."""
    image: str | None = None
    by_engine: Mapping[str, Change] = field(default_factory=dict)
    """Changes for one kind of engine: {"vllm": ..., "sglang": ...}."""
    by_node: Mapping[str, Change] = field(default_factory=dict)
    """Changes for one node, by its name: such as the devices of its own network cards."""

    @property
    def is_empty(self) -> bool:
        return not (self.environment or self.flags or self.options or self.image or self.by_engine or self.by_node)

    def for_engine(self, kind: str, node: str = "") -> Change:
        """The changes for one engine kind ("vllm", "sglang") on one node; empty where there are none."""
        merged = Change(environment=self.environment, flags=self.flags, options=self.options, image=self.image)
        for specific in (self.by_engine.get(kind), self.by_node.get(node)):
            if specific is not None:
                merged = replace(
                    merged,
                    environment={**merged.environment, **specific.environment},
                    flags={**merged.flags, **specific.flags},
                    options=_both(merged.options, specific.options),
                    image=specific.image or merged.image,
                )
        return merged

    def joined(self, other: Change) -> Change | None:
        """Both changes in one; None where they contradict each other."""
        pairs = [
            (self.environment, other.environment),
            (self.flags, other.flags),
            ({"": self.image} if self.image else {}, {"": other.image} if other.image else {}),
        ]
        if any(mine[name] != theirs[name] for mine, theirs in pairs for name in mine.keys() & theirs.keys()):
            return None
        options = _both(self.options, other.options)
        if any(
            self.options[name] != other.options[name] and not isinstance(options[name], list)
            for name in self.options.keys() & other.options.keys()
        ):
            return None
        by_engine, by_node = _joined(self.by_engine, other.by_engine), _joined(self.by_node, other.by_node)
        if by_engine is None or by_node is None:
            return None
        return Change(
            environment={**self.environment, **other.environment},
            flags={**self.flags, **other.flags},
            options=options,
            image=self.image or other.image,
            by_engine=by_engine,
            by_node=by_node,
        )


def _joined(first: Mapping[str, Change], second: Mapping[str, Change]) -> Mapping[str, Change] | None:
    merged = dict(first)
    for name, change in second.items():
        both = merged[name].joined(change) if name in merged else change
        if both is None:
            return None
        merged[name] = both
    return merged


def _both(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Lists (devices, limits) of both; of other values the second one's."""
    lists = {name: [*first[name], *(item for item in value if item not in first[name])]
             for name, value in second.items()
             if isinstance(value, list) and isinstance(first.get(name), list)}  # fmt: skip
    return {**first, **second, **lists}


AUTO = "auto"

SMALLER_SHARE = Change(
    by_engine={
        "vllm": Change(flags={"--gpu-memory-utilization": AUTO}),
        "sglang": Change(flags={"--mem-fraction-static": AUTO}),
    }
)
"""A smaller memory share for the engine, so that the host keeps what it needs."""
WITHOUT_GRAPHS = Change(
    by_engine={
        "vllm": Change(flags={"-cc.cudagraph_mode": "NONE"}),
        "sglang": Change(flags={"--disable-cuda-graph": ""}),
    }
)
