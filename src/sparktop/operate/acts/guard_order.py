"""An order to the probe: kill a container, or an engine outside containers, when memory runs low."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState, pid_of
from sparktop.operate.acts.remote import container_changes
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.node_lock import NodeTaken, NoLine
from sparktop.operate.step.step_result import StepResult, StepState
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict, failed, met, waiting
from sparktop.text.units import gib

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOrder(Act):
    """An order to the probe: kill this engine when memory runs low, without waiting for the console."""

    changes: ClassVar[bool] = True

    container_id: str
    """64 hex digits, or the "{NAME}" under which an earlier step on the node saved them; of an engine in no container
    "pid:PID:START", the start in ticks of the boot; empty disarms."""
    container_name: str = ""
    """Or that engine's name."""
    floor_bytes: int = 0
    empty_within_s: float | None = None
    """Also kill it when memory would be empty within this time at its current rate."""
    stay_s: float = 0.0
    """How long the guard stays armed after the console disconnects; 0: it ends with the connection."""

    @property
    def is_kept(self) -> bool:
        return True

    async def perform(self, hands: Hands) -> StepResult:
        tell = hands.context.tell
        try:
            await hands.locks.take(await hands.line())
        except (NoLine, NodeTaken, TransportError) as why:
            return StepResult(state=StepState.FAILED, detail=f"{why}. The guard was not told.")
        before = hands.picture().node(hands.node)
        if tell is None or not tell(hands.node, self.words()):
            return StepResult(state=StepState.FAILED, detail=f"there is no probe on {hands.node} to tell")
        result = await hands.wait(lambda picture, since: self.judge(picture, hands.node, since), before=before)
        is_done = result.state is StepState.DONE
        if not is_done and self.container_id and not _has_fired(hands.picture().node(hands.node)):
            # An order reported as failed or given up must not take effect later.
            tell(hands.node, replace(self, container_id="").words())
        return replace(
            result, has_touched=is_done and bool(self.container_id), guards=self.container_name if is_done else None
        )

    def text(self) -> Iterator[str]:
        if not self.container_id:
            yield "the probe's guard is disarmed"
            return
        when = f"less than {gib(self.floor_bytes)} are available"
        if self.empty_within_s is not None:
            when += f", or they would be gone within {self.empty_within_s:g} s"
        stay = f"for {self.stay_s / 60:g} min after the console has gone" if self.stay_s else "while the console runs"
        pid = pid_of(self.container_id)
        target = self.container_id[:12] if pid is None else f"pid {pid}"
        yield f"the probe kills {self.container_name} ({target}) when {when}; it stays armed {stay}"

    def outdated(self, view: NodeView) -> Iterator[str]:
        pid = pid_of(self.container_id)
        if pid is not None and not any(pid in engine.pids for engine in view.engines):
            yield f"pid {pid} ended"
        elif _ID.fullmatch(self.container_id):
            yield from container_changes(self.container_id, None, view, self.container_name)

    def words(self) -> Mapping[str, Any]:
        """As sent to the probe (`sparktop.wire`); each call makes a new order, with its own token."""
        return {
            "guard": {
                "id": self.container_id,
                "name": self.container_name,
                "floor": self.floor_bytes,
                "within": self.empty_within_s,
                "stay": self.stay_s,
                "token": secrets.token_hex(6),
            }
        }

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Met when the probe has carried out the order; `since.before` is the node before the order."""
        view = picture.node(node)
        state = view.guard if view is not None else None
        old_state = since.before.guard if since.before is not None else None
        if not self.container_id:
            is_off = state is None or state.phase is not GuardPhase.ARMED
            return WaitStatus(
                verdict=WaitVerdict.MET if is_off else WaitVerdict.WAITING, detail="the guard is off" if is_off else ""
            )
        if state is None or state is old_state:
            return waiting("asking the probe")
        if state.phase is GuardPhase.ARMED:
            if state.container_id != self.container_id or state.until_wall_s is not None:
                return waiting("an earlier guard is still armed")
            return met(f"armed: {guard_text(state)}", ratio=None)
        if state.phase is GuardPhase.FIRED:
            return failed(f"it has already killed {state.container_name}: {state.detail}")
        return failed(state.detail or "the probe could not arm it")


def guard_text(state: GuardState | GuardOrder) -> str:
    """What it kills, and when: "vllm-qwen36 < 4.0 GiB, or 2 s from empty"."""
    rate = f", or {state.empty_within_s:g} s from empty" if state.empty_within_s else ""
    return f"{state.container_name} < {gib(state.floor_bytes)}{rate}"


def _has_fired(view: NodeView | None) -> bool:
    return view is not None and view.guard is not None and view.guard.has_acted
