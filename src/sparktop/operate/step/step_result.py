"""How a step ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass

if TYPE_CHECKING:
    from sparktop.model.engine import EngineKind
    from sparktop.model.finding import Finding
    from sparktop.operate.runner.api import OperationResult

Figures = Mapping[str, float | str]
"""Name with its unit -> value, or one of a few words: "available_gib", "first_token_s", "tool_call"."""


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not started, because the run ended before it."""
    UNKNOWN = "unknown"
    """The connection was lost and the node hasn't reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What ended an engine that a step started, by its log."""

    finding: Finding
    engine: EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a step ended."""

    state: StepState
    """DONE, FAILED, SKIPPED or UNKNOWN."""
    detail: str = ""
    brief: str | None = None
    """`StepRun.brief`."""
    has_touched: bool = False
    """It changed something on the node, or may have, that is not undone."""
    has_acted: bool = False
    """It changed something, whether undone since or not."""
    is_aborted: bool = False
    results: tuple[OperationResult, ...] = ()
    evidence_path: str = ""
    figures: Figures = field(default_factory=dict)
    is_last: bool = False
    """Failed, so that no further step starts, whatever its `on_failure` says."""
    cause: Cause | None = None
    """`StepRun.cause`."""
    no_help: str = ""
    """The steps before it are done, and what they were to mend is not: in a few words."""
    ready: str = ""
    """The engine that it has seen become ready."""
    guards: str | None = None
    """The container over which the node's guard is armed now; "": over none."""
    saved: Mapping[str, str] = field(default_factory=dict)
    """Ids that it created, for later steps (`step.placeholders`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """The result of a first request or a measurement."""

    ok: bool
    detail: str
    """A sentence: which tokens arrived and when, or why none did and what to do."""
    figures: Figures = field(default_factory=dict)
    is_last: bool = False
    """The steps after it can't succeed, or must not run."""
