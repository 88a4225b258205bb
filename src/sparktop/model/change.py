"""What a relaunch is to change of an engine's launch: a rule's remedy may carry it, the operator may edit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a relaunch is to change; a value of None takes the entry away."""

    environment: Mapping[str, str | None] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    """Of the engine's command line, by their dashed name: {"--gpu-memory-utilization": "0.70",
    "--enforce-eager": ""} ("" is a switch without a value)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of Docker's HostConfig, by its API's names: {"IpcMode": "host", "ShmSize": 17179869184}."""
    image: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.environment or self.flags or self.options or self.image)
