"""What one step does, as one class: its data, how it is performed, and its words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState, NodeView
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.placeholders import fill_id
from sparktop.operate.step.step_result import Cause, StepResult
from sparktop.operate.step.wait import Since, WaitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One kind of step; whatever isn't said otherwise changes nothing on its node, and can be done again any time."""

    changes: ClassVar[bool] = False
    """It changes something on its node, or loads it so that nothing else should run there."""

    async def perform(self, hands: Hands) -> StepResult:
        """Do it; returns when it is over.

        Raises:
            Aborted: the operator aborted first, and nothing is left of it.
        """
        raise NotImplementedError

    def text(self) -> Iterator[str]:
        """What it does exactly: its commands and calls, or its condition. Neither masked nor sanitised by value."""
        raise NotImplementedError

    def commands(self) -> tuple[str, ...]:
        """What it changes, as it is typed where the run could not do it; () where nothing types it."""
        return ()

    def undoing(self) -> tuple[str, ...]:
        """What reverts it once it is done, as it is typed; () where nothing has to, or can."""
        return ()

    def filled(self, saved: Mapping[str, str]) -> Self | None:
        """With the ids that earlier steps on its node saved; None where one was never saved.

        None means there is nothing to act on: the container was never created, and the step is skipped. What is filled
        in needs nothing more: the step can stand in a later run, which has saved nothing.
        """
        placeholder = getattr(self, "container_id", "")
        container_id = fill_id(placeholder, saved)
        if container_id is None:
            return None
        changed: dict[str, Any] = {} if container_id == placeholder else {"container_id": container_id}
        return replace(self, **changed)

    def outdated(self, view: NodeView) -> Iterator[str]:
        """Sentences on what it refers to and its node no longer has."""
        yield from ()

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        """Why it failed, by the log of the engine that it is about."""
        return None

    @property
    def is_kept(self) -> bool:
        """It means the same another day, so that the audit keeps it as part of a rollback."""
        return False

    @property
    def is_check(self) -> bool:
        """It looks at what is, and waits for nothing."""
        return False

    @property
    def only_fetches(self) -> bool:
        """It only downloads to its node."""
        return False

    @property
    def goes_on(self) -> str:
        """What its node does with it by itself once it has begun, whatever becomes of the console; else ""."""
        return ""

    @property
    def stops(self) -> bool:
        """It stops something that may be running."""
        return False

    @property
    def grace_s(self) -> float | None:
        """Seconds between SIGTERM and SIGKILL; None where it stops nothing, or has no grace period."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Act):
    """Waits until its judge, asked with each new picture, says that it is over."""

    hears_silence: ClassVar[bool] = False
    """It wants to see the node's absence too, and its limit runs on through it."""

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Whether it is over, by what has been seen since it began. Pure."""
        raise NotImplementedError

    async def perform(self, hands: Hands) -> StepResult:
        return await hands.wait(
            lambda picture, since: self.judge(picture, hands.node, since), hears_silence=self.hears_silence
        )
