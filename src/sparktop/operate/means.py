"""What a run is carried out with: the picture, the lines, the audit, time, and who does the steps that aren't remote.

Everything that touches the world comes in here, so that a test can put its own in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.model.fleet import FleetState
from sparktop.model.plan import AwaitMemory, AwaitReady, GuardOrder, Measure, SmokeTest
from sparktop.operate.audit import Audit
from sparktop.operate.judging import Judgement, Since
from sparktop.operate.line import NodeLine, NodeLines

Progress = Callable[[str, float | None], None]
"""(what it is at, how far)."""
Picture = Callable[[], FleetState]
Tell = Callable[[str, Mapping[str, object]], bool]
"""`observe.watch.Watch.tell`: words for a node's probe; False when there is none."""


class SmokeResult(Protocol):
    """How a first request went."""

    @property
    def ok(self) -> bool: ...

    @property
    def detail(self) -> str: ...


class Collected(Protocol):
    """An archive of evidence."""

    @property
    def path(self) -> Path: ...

    @property
    def problems(self) -> tuple[str, ...]:
        """What is missing from it, and why."""


class Performers(Protocol):
    """Who does the steps that aren't the runner's."""

    async def smoke(
        self, line: NodeLine, picture: Picture, node: str, test: SmokeTest, *, progress: Progress
    ) -> SmokeResult: ...

    async def measure(
        self, line: NodeLine, picture: Picture, node: str, wanted: Measure, *, progress: Progress
    ) -> SmokeResult: ...

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
    ) -> Collected: ...

    def judge_memory(self, act: AwaitMemory, picture: FleetState, node: str, since: Since) -> Judgement: ...

    def judge_ready(self, act: AwaitReady, picture: FleetState, node: str, since: Since) -> Judgement: ...

    def guard_words(self, order: GuardOrder) -> Mapping[str, object]: ...

    def judge_guard(self, order: GuardOrder, picture: FleetState, node: str, since: Since) -> Judgement:
        """`since.before` is the node as it was before the order."""


class OwnPerformers:
    """The modules beside this one, imported when a step wants them: the console paints before it knows how to act."""

    async def smoke(
        self, line: NodeLine, picture: Picture, node: str, test: SmokeTest, *, progress: Progress
    ) -> SmokeResult:
        found: SmokeResult = await _of("smoke", "smoke")(line, picture, node, test, progress=progress)
        return found

    async def measure(
        self, line: NodeLine, picture: Picture, node: str, wanted: Measure, *, progress: Progress
    ) -> SmokeResult:
        found: SmokeResult = await _of("measuring", "measure")(line, picture, node, wanted, progress=progress)
        return found

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
    ) -> Collected:
        found: Collected = await _of("collect", "collect")(
            nodes, lines, picture, engines=engines, folder=folder, secrets=secrets, progress=progress
        )
        return found

    def judge_memory(self, act: AwaitMemory, picture: FleetState, node: str, since: Since) -> Judgement:
        found: Judgement = _of("memoryladder", "judge_memory")(act, picture, node, since)
        return found

    def judge_ready(self, act: AwaitReady, picture: FleetState, node: str, since: Since) -> Judgement:
        found: Judgement = _of("readiness", "judge_ready")(act, picture, node, since)
        return found

    def guard_words(self, order: GuardOrder) -> Mapping[str, object]:
        found: Mapping[str, object] = _of("guard", "words")(order)
        return found

    def judge_guard(self, order: GuardOrder, picture: FleetState, node: str, since: Since) -> Judgement:
        found: Judgement = _of("guard", "judge_guard")(order, picture, node, since)
        return found


def _of(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"sparktop.operate.{module}"), name)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Of one session."""

    picture: Picture
    lines: NodeLines
    audit: Audit
    clock: Clock = field(default_factory=SystemClock)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Sleeping; a test moves its clock instead."""
    tell: Tell | None = None
    performers: Performers = field(default_factory=OwnPerformers)
    evidence_folder: Path = field(default_factory=lambda: state_home() / "evidence")
    first_line_s: float = 20.0
    """How long a run waits for a node's runner before its first step."""
    link_patience_s: float = 900.0
    """How long it waits for a node that was lost in the middle."""
    abort_grace_s: float = 20.0
    """How long a run that is being aborted still waits for a lost node to say how its step ended."""
