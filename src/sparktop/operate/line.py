"""What the executor sees of a node: a runner that was started while the host was well, and its answers.

`operate.runner` is the real one, over the connection the console watches through; tests have their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sparktop.model.plan import Remote
from sparktop.operate.survey import Answer, Ask
from sparktop.transport.base import Transport


class OutcomeState(StrEnum):
    DONE = "done"
    FAILED = "failed"
    """An operation failed; `undone` says how its undoing went."""
    RUNNING = "running"
    """Asked about after a broken link: it is still at it."""
    NEVER_BEGUN = "never begun"
    """Asked about after a broken link: the node knows nothing of it, and never will: it may be begun."""
    GONE = "gone"
    """The node has rebooted, or what did it was killed: what it had done has to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """How one operation ended; text is sanitised and masked by pattern, the executor masks by value too."""

    index: int
    is_undo: bool = False
    ok: bool = True
    code: int | None = None
    """Exit code, or HTTP status."""
    output: str = ""
    """The end of what it said."""
    problem: str = ""
    seconds: float = 0.0
    was_done: bool = False
    """Found to be done already."""
    is_untouched: bool = False
    """Nothing was done of it: sudo would not have it, or there is no such program."""
    was_ended: bool = False
    """The operator wanted no more of it: a transfer or a pull, which goes on from there another time."""
    brought_bytes: int | None = None
    """What a transfer or a pull has brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is that takes long; told about once a second."""

    index: int
    done_bytes: int | None
    total_bytes: int | None = None
    words: str = ""
    """ "layer 7 of 21", "waiting for the same transfer of another run"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a step ended on the node."""

    state: OutcomeState
    results: tuple[OperationResult, ...] = ()
    problem: str = ""
    """Why it failed, for the operator."""
    undone: bool | None = None
    """After a failure: whether every undo operation went well; None: there was nothing to undo."""
    saved: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    """Of one that is RUNNING."""


NOBODY = "nobody"
"""LockHolder.who where nobody has it and it can't be had: `what` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who changes the node at the moment, by their own words (sanitised: they are another user's file)."""

    who: str
    """user@laptop."""
    what: str
    since_wall_s: float | None = None


Told = Callable[[OperationResult | Progress], None]
"""Called on the loop when an operation has ended, and while a long one goes on."""
AskSecret = Callable[[str, int], Awaitable[str | None]]
"""Called when sudo asks (node, how many were wrong so far); the password, or None when the operator gave up."""


class NodeLine(Protocol):
    """One node, as long as its connection stands. Every call raises LinkLost when that ends."""

    @property
    def node(self) -> str: ...

    @property
    def transport(self) -> Transport:
        """For what only looks: an engine's endpoint, a file of a log."""

    async def ask(self, asks: Sequence[Ask]) -> Mapping[Ask, Answer]:
        """Answer questions that change nothing; one that fails is an Answer with a problem."""

    async def lock(self, who: str, what: str) -> LockHolder | None:
        """Take the node for one change; None when it is ours now, else who has it. It is held by the runner and by
        each step's own process, and so outlives neither; not by that of a step that only fetches."""

    async def unlock(self) -> None: ...

    async def perform(self, run_id: str, step_id: str, act: Remote, *, told: Told, secret: AskSecret) -> Outcome:
        """Carry out a step. A (run_id, step_id) that the node has seen is not begun again: its outcome comes."""

    async def outcome(self, run_id: str, step_id: str) -> Outcome:
        """What became of a step that was begun on an earlier connection."""

    async def end(self, run_id: str, step_id: str) -> Outcome:
        """Have a step end that fetches (pulls and transfers alone; another is finished): its outcome now, which is
        RUNNING until that has been heard, within seconds."""


class NodeLines(Protocol):
    """The lines of all nodes, kept through reconnections."""

    def line(self, node: str) -> NodeLine | None:
        """The open line, or None while there is none."""

    async def wait(self, node: str) -> NodeLine:
        """The open line, as soon as there is one."""

    def problem(self, node: str) -> str:
        """Why there is no line, or why it can begin no step; empty while all is well, or nothing is known."""
