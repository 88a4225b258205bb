"""What a run has left behind: as commands to undo it by hand, the last thing first, and guards. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase
from sparktop.model.plan import Remote, Run, Step, StepState


def by_hand(run: Run) -> tuple[str, ...]:
    """What is left of a run to be undone; empty where that is nothing, or nothing can undo it.

    A step that took another back leaves nothing of either: a policy that was switched off and back is as it was.
    """
    done = [one.step for one in run.steps if one.state is StepState.DONE and isinstance(one.step.act, Remote)]
    taken_back = {(step.node, name) for step in done for name in step.undoes}
    left = [step for step in done if (step.node, step.id) not in taken_back and not _took_back(step, done)]
    where = len({step.node for step in done}) > 1
    lines = (f"{f'on {step.node}: ' if where else ''}{step.undone_by}" for step in reversed(left) if _can_be(step))
    return tuple(dict.fromkeys(lines))


def armed_yet(guards: Mapping[str, str], picture: FleetState) -> Iterator[str]:
    """Sentences on the guards that it has armed (by node, over which container) and not taken back: they may act."""
    for node, name in guards.items():
        view = picture.node(node)
        if name and view is not None and view.guard is not None and view.guard.phase is GuardPhase.ARMED:
            yield f"The guard on {node} is still armed over {name}: G disarms it, and so does leaving"


def _took_back(step: Step, done: list[Step]) -> bool:
    return any(one.id in step.undoes for one in done if one.node == step.node)


def _can_be(step: Step) -> bool:
    return bool(step.undone_by) and not step.undone_by.startswith("nothing")
