"""What a run works with: picture, connections, audit, clock.

Everything that touches the outside world comes in here, so that tests can replace it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.operate.audit_file import Audit
from sparktop.operate.runner.api import NodeLines
from sparktop.transport.base import Connector

Progress = Callable[[str, float | None], None]
"""(what it is doing, how far: 0 to 1, None where unknown)."""
Picture = Callable[[], FleetState]
Tell = Callable[[str, Mapping[str, object]], bool]
"""`observe.watch.Watch.tell`: sends words to a node's probe; False when there is no probe."""


def _itself(act: Any) -> Any:
    return act


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What the runs of one session work with."""

    picture: Picture
    lines: NodeLines
    audit: Audit
    clock: Clock = field(default_factory=SystemClock)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Sleeps; a test moves its clock instead."""
    tell: Tell | None = None
    stand_in: Callable[[Any], Any] = _itself
    """Act -> what is performed instead; a test's stage stands in for what it doesn't have."""
    keep_measured: Callable[[Any, FleetState], str] | None = None
    """Keeps what an ended run has measured, by the picture from before it; returns why it couldn't, or "". Blocks."""
    connectors: Mapping[str, Connector] = field(default_factory=dict)
    """How each node is logged in to, by its name."""
    evidence_folder: Path = field(default_factory=lambda: state_home() / "evidence")
    first_line_s: float = 20.0
    """How long a run waits for a node's runner before its first step."""
    link_patience_s: float = 900.0
    """How long a run waits for a node lost halfway."""
    abort_grace_s: float = 20.0
    """How long an aborted run still waits for a lost node to report its step."""
