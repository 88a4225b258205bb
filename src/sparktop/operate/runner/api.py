"""The interface to a node's runner, as the executor uses it: connections, outcomes and locks.

`operate.runner` implements it over the connection that the console watches through; tests have their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol

from sparktop.dataclass import dataclass
from sparktop.model.operation import Operation
from sparktop.model.survey import Answer, Question
from sparktop.transport.base import Transport


class OutcomeState(StrEnum):
    """The state of a step on its node."""

    DONE = "done"
    FAILED = "failed"
    """An operation failed; `undone` says how the undo went."""
    RUNNING = "running"
    """After a broken link: the step is still running."""
    NOT_STARTED = "not started"
    """After a broken link: the node has never seen the step, which may therefore be started."""
    GONE = "gone"
    """The node has rebooted, or the step's process was killed: what it did must be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """The result of one operation. Texts are sanitised and masked by pattern; the executor masks by value too."""

    index: int
    is_undo: bool = False
    ok: bool = True
    code: int | None = None
    """Exit code, or HTTP status."""
    output: str = ""
    """The end of its output."""
    problem: str = ""
    seconds: float = 0.0
    was_done: bool = False
    """It had been done already."""
    is_untouched: bool = False
    """Nothing was done: sudo refused, or there is no such program."""
    was_ended: bool = False
    """The operator ended a transfer or a pull, which resumes from there another time."""
    brought_bytes: int | None = None
    """Downloaded by a transfer or a pull."""
    free_bytes: int | None = None
    """Free on the disk of a transfer that failed, just after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a long operation is; reported about once a second."""

    index: int
    done_bytes: int | None
    total_bytes: int | None = None
    words: str = ""
    """ "layer 7 of 21", "waiting for the same transfer of another run"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a step on its node."""

    state: OutcomeState
    results: tuple[OperationResult, ...] = ()
    problem: str = ""
    """Why it failed, for the operator."""
    undone: bool | None = None
    """After a failure: whether every undo operation succeeded; None: there was nothing to undo."""
    saved: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    """While it is RUNNING."""


NOBODY = "nobody"
"""LockHolder.who where nobody holds the lock and it can't be taken: `what` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who is changing the node, in their own words (sanitised: it is another user's file)."""

    who: str
    """user@laptop."""
    what: str
    since_wall_s: float | None = None
    hint: str = ""
    """What makes it possible, where nobody holds the lock."""


OnResult = Callable[[OperationResult | Progress], None]
"""Called on the event loop when an operation has ended, and while a long one runs."""
AskSecret = Callable[[str, int], Awaitable[str | None]]
"""Called when sudo asks: (node, wrong passwords so far) -> the password, or None when the operator gives up."""


class Operations(Protocol):
    """What the runner does in one step."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Carried out in this order."""

    @property
    def undo(self) -> tuple[Operation, ...]:
        """Carried out in this order when one of them fails."""


class NodeLine(Protocol):
    """One node's runner while its connection stands.

    Every call raises LinkLost when that ends. `lock`, `unlock`, `perform`, `outcome` and `end` raise NoAnswer where the
    runner's answer can't be read or doesn't come: a step that was begun goes on, and is asked about again.
    """

    @property
    def node(self) -> str: ...

    @property
    def transport(self) -> Transport:
        """For reading only: an engine's endpoint, a log file."""

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        """Answer questions that change nothing; a question that fails gets an Answer with a problem."""

    async def lock(self, who: str, what: str) -> LockHolder | None:
        """Lock the node for one change; None when the lock is ours, else who holds it. The runner and each step's own
        process hold it, so it outlives neither; a step that only downloads doesn't hold it."""

    async def unlock(self) -> None: ...

    async def perform(
        self, run_id: str, step_id: str, act: Operations, *, told: OnResult, secret: AskSecret
    ) -> Outcome:
        """Carry out a step. A (run_id, step_id) that the node has seen is not started again: its outcome is
        returned."""

    async def outcome(self, run_id: str, step_id: str) -> Outcome:
        """The outcome of a step that was started on an earlier connection."""

    async def end(self, run_id: str, step_id: str) -> Outcome:
        """End a step that only downloads (another is completed): its outcome now, which is RUNNING until it has ended,
        within seconds."""


class NodeLines(Protocol):
    """The connections to all nodes' runners, kept through reconnections."""

    def line(self, node: str) -> NodeLine | None:
        """The open connection, or None."""

    async def wait(self, node: str) -> NodeLine:
        """The open connection, as soon as there is one."""

    def problem(self, node: str) -> str:
        """Why there is no connection, or why it can start no step; empty while all is well, or nothing is known."""
