"""What a run works with: picture, connections, audit, clock, and the performers of steps that no runner carries out.

Everything that touches the outside world comes in here, so that tests can replace it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.plan import (
    AwaitMemory,
    AwaitReady,
    AwaitServing,
    CheckExposed,
    GuardOrder,
    Measure,
    MeasureCollective,
    MeasureLink,
    MeasurePower,
    SmokeTest,
)
from sparktop.model.proof import Prove
from sparktop.model.run import Figures, Run
from sparktop.operate.audit.audit import Audit
from sparktop.operate.runner.api import NodeLine, NodeLines
from sparktop.operate.waits.wait_state import Since, WaitStatus
from sparktop.transport.base import Connector
from sparktop.transport.endpoint import Reply

Progress = Callable[[str, float | None], None]
"""(what it is doing, how far: 0 to 1, None where unknown)."""
Picture = Callable[[], FleetState]
Tell = Callable[[str, Mapping[str, object]], bool]
"""`observe.watch.Watch.tell`: sends words to a node's probe; False when there is no probe."""
KeepMeasured = Callable[[Run, FleetState], str]
"""Keeps what an ended run has measured, by the picture from before it; returns why it couldn't, or "". Blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """The result of a first request or a measurement."""

    ok: bool
    detail: str
    """A sentence: which tokens arrived and when, or why none did and what to do."""
    figures: Figures = field(default_factory=dict)
    is_last: bool = False
    """The steps after it can't succeed, or must not run."""


class EvidenceArchive(Protocol):
    """An archive of evidence on disk."""

    @property
    def path(self) -> Path: ...

    @property
    def problems(self) -> tuple[str, ...]:
        """What is missing from it, and why."""


class Performers(Protocol):
    """Carries out the steps that are not the runner's, and judges waits."""

    async def smoke(
        self, line: NodeLine, picture: Picture, node: str, test: SmokeTest, *, progress: Progress
    ) -> RequestResult: ...

    async def measure(
        self, line: NodeLine, picture: Picture, node: str, measurement: Measure, *, progress: Progress
    ) -> RequestResult: ...

    async def exposed(
        self, line: NodeLine, picture: Picture, node: str, check: CheckExposed, *, progress: Progress
    ) -> RequestResult: ...

    async def measure_link(
        self, line: NodeLine, peer_line: NodeLine, picture: Picture, act: MeasureLink, *, progress: Progress
    ) -> RequestResult: ...

    async def measure_power(
        self, line: NodeLine, picture: Picture, act: MeasurePower, *, progress: Progress
    ) -> RequestResult: ...

    async def measure_collective(
        self, line: NodeLine, act: MeasureCollective, *, progress: Progress
    ) -> RequestResult: ...

    async def prove(
        self, line: NodeLine, picture: Picture, node: str, act: Prove, *, progress: Progress
    ) -> RequestResult: ...

    async def collect(
        self,
        nodes: Sequence[str],
        lines: NodeLines,
        picture: FleetState,
        *,
        engines: Sequence[str],
        folder: Path,
        secrets: Sequence[str],
        progress: Progress,
    ) -> EvidenceArchive: ...

    def judge_memory(self, act: AwaitMemory, picture: FleetState, node: str, since: Since) -> WaitStatus: ...

    def judge_ready(self, act: AwaitReady, picture: FleetState, node: str, since: Since) -> WaitStatus: ...

    async def answer(self, line: NodeLine, picture: Picture, node: str, name: str) -> Reply: ...

    def judge_serving(
        self, act: AwaitServing, picture: FleetState, node: str, since: Since, reply: Reply | None
    ) -> WaitStatus: ...

    def guard_words(self, order: GuardOrder) -> Mapping[str, object]: ...

    def judge_guard(self, order: GuardOrder, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """`since.before` is the node as it was before the order."""


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of an operate module, imported when it is called."""

    def call(*arguments: Any, **more: Any) -> Any:
        return getattr(import_module(f"sparktop.operate.{module}"), name)(*arguments, **more)

    return call


class OwnPerformers:
    """sparktop's own performers, imported when a step needs them so that the console starts fast."""

    smoke = staticmethod(_late("run.first_request", "smoke"))
    measure = staticmethod(_late("run.first_request", "measure"))
    exposed = staticmethod(_late("serve.exposed", "exposed"))
    measure_link = staticmethod(_late("measure.link_load", "measure_link"))
    measure_power = staticmethod(_late("measure.power_run", "measure_power"))
    measure_collective = staticmethod(_late("measure.collective_run", "measure_collective"))
    prove = staticmethod(_late("measure.proofs", "prove"))
    collect = staticmethod(_late("evidence.collect", "collect"))
    judge_memory = staticmethod(_late("waits.memory", "judge_memory"))
    judge_ready = staticmethod(_late("waits.readiness", "judge_ready"))
    answer = staticmethod(_late("run.first_request", "answer"))
    judge_serving = staticmethod(_late("waits.serving", "judge_serving"))
    guard_words = staticmethod(_late("run.guard_orders", "order_words"))
    judge_guard = staticmethod(_late("waits.arrivals", "judge_guard"))


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
    performers: Performers = field(default_factory=OwnPerformers)
    keep_measured: KeepMeasured | None = None
    connectors: Mapping[str, Connector] = field(default_factory=dict)
    """How each node is logged in to, by its name."""
    evidence_folder: Path = field(default_factory=lambda: state_home() / "evidence")
    first_line_s: float = 20.0
    """How long a run waits for a node's runner before its first step."""
    link_patience_s: float = 900.0
    """How long a run waits for a node lost halfway."""
    abort_grace_s: float = 20.0
    """How long an aborted run still waits for a lost node to report its step."""
