"""What a relaunch is to change of an engine's launch: a rule's remedy may carry it, the operator may edit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a relaunch is to change; a value of None takes the entry away."""

    environment: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    flags: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Of the engine's command line, by their dashed name: {"--gpu-memory-utilization": "0.70",
    "--enforce-eager": ""} ("" is a switch without a value). A rule may leave the figure to the machine: AUTO is
    computed from what is available, "-0.05" is taken off what stands there, "+0.05" added to it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of Docker's HostConfig, by its API's names: {"IpcMode": "host", "ShmSize": 17179869184}."""
    image: str | None = None
    by_engine: Mapping[str, Change] = field(default_factory=dict)
    """What of it is said differently to each: {"vllm": ..., "sglang": ...}."""
    by_node: Mapping[str, Change] = field(default_factory=dict)
    """What holds for one node alone, by its name: the devices of its own network cards."""

    @property
    def is_empty(self) -> bool:
        return not (self.environment or self.flags or self.options or self.image or self.by_engine or self.by_node)

    def for_engine(self, kind: str, node: str = "") -> Change:
        """What it is for one engine ("vllm", "sglang") on one node; empty where it has nothing to say to that one."""
        made = Change(environment=self.environment, flags=self.flags, options=self.options, image=self.image)
        for own in (self.by_engine.get(kind), self.by_node.get(node)):
            if own is not None:
                made = replace(
                    made,
                    environment={**made.environment, **own.environment},
                    flags={**made.flags, **own.flags},
                    options=_both(made.options, own.options),
                    image=own.image or made.image,
                )
        return made


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Lists (devices, limits) of both; of other values the second one's."""
    lists = {name: [*one[name], *value] for name, value in other.items()
             if isinstance(value, list) and isinstance(one.get(name), list)}  # fmt: skip
    return {**one, **other, **lists}


AUTO = "auto"

SMALLER_SHARE = Change(
    by_engine={
        "vllm": Change(flags={"--gpu-memory-utilization": AUTO}),
        "sglang": Change(flags={"--mem-fraction-static": AUTO}),
    }
)
"""The engine's share of memory, so that the host keeps what it needs."""
WITHOUT_GRAPHS = Change(
    by_engine={
        "vllm": Change(flags={"-cc.cudagraph_mode": "NONE"}),
        "sglang": Change(flags={"--disable-cuda-graph": ""}),
    }
)

_LIMIT = {"Name": "memlock", "Soft": -1, "Hard": -1}
_DEVICE = {"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband", "CgroupPermissions": "rwm"}

MEMLOCK = Change(options={"Ulimits": [_LIMIT]})
INFINIBAND = Change(options={"Ulimits": [_LIMIT], "Devices": [_DEVICE]})
"""What RDMA needs of a container."""
