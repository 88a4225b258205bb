"""A plan's acts as text: as a person would type them, or as the exact commands and calls. Pure.

Secrets are masked, remote text is sanitised. The review and `sparktop act --dry-run` print the same lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeVar, cast

from sparktop.model.operation import DockerCall
from sparktop.operate.acts.arrivals import AwaitBack
from sparktop.operate.acts.operation_text import CREATE, typed
from sparktop.operate.acts.patch_image import PatchImage
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.secrets.masking import Masker
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import StepState
from sparktop.text.lines import Line

T = TypeVar("T")


def masked(text: str, secrets: Sequence[str] = ()) -> str:
    """Text that is safe to show: without control characters, known secrets, or what looks like a secret."""
    return _masked(text, tuple(secrets))


@lru_cache(maxsize=1024)
def _masked(text: str, secrets: tuple[str, ...]) -> str:
    return _masker(secrets).text(text)


@lru_cache(maxsize=8)
def _masker(secrets: tuple[str, ...]) -> Masker:
    return Masker(secrets)


def masked_data(value: T, secrets: Sequence[str]) -> T:
    """Data of ours with each of its texts masked, each on one line."""
    return cast("T", _masked_data(value, tuple(secrets)))


def _masked_data(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return _masked(value, secrets)
    if isinstance(value, tuple | list):
        return type(value)(_masked_data(item, secrets) for item in value)
    if isinstance(value, Mapping):
        return {name: _masked_data(item, secrets) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _masked_data(getattr(value, one.name), secrets) for one in fields(value)})
    return value


def masked_lines(lines: Iterable[Line], secrets: Sequence[str]) -> list[Line]:
    """The lines with secrets masked once more: a run masks its texts itself, but neither is relied on alone."""
    return [Line(tuple((masked(text, secrets), tone) for text, tone in line.runs)) for line in lines]


def step_lines(step: Step, plan: Plan) -> tuple[str, ...]:
    """The exact commands and calls of a step, with its checks and what is done if it fails."""
    return tuple(masked(line, plan.secrets) for line in step.act.text())


def typed_lines(step: Step, plan: Plan) -> tuple[str, ...]:
    """What a step changes, as a person would type it; its checks are left out, and so is a wait, which the title
    tells."""
    if not isinstance(step.act, Remote):
        return ()
    if isinstance(step.act, PatchImage):  # others' programs: all that they do is shown
        return step_lines(step, plan)
    names = {
        one.act.container_id: one.act.name
        for one in plan.steps
        if one.node == step.node and isinstance(one.act, AwaitReady) and one.act.container_id
    }
    for earlier in takewhile(lambda one: one != step, (*plan.steps, *plan.rollback)):
        if earlier.node == step.node and isinstance(earlier.act, Remote):
            deque(typed(earlier.act.operations, names), maxlen=0)
    return tuple(masked(line, plan.secrets) for line in typed(step.act.operations, names))


def creates_container(plan: Plan) -> bool:
    """Whether a step creates a container, whose settings are too many for a step's line."""
    operations = (operation for step in plan.steps if isinstance(step.act, Remote) for operation in step.act.operations)
    return any(isinstance(operation, DockerCall) and operation.path == CREATE for operation in operations)


def abort_means(run: Run) -> str:
    """What an abort would do during the step under way, in sentences."""
    current = next((step for step in run.steps if step.state not in _OVER), None)
    if current is None:
        return "No step is running."
    act, node = current.step.act, masked(current.step.node)
    title = masked(current.step.title, run.plan.secrets)
    if act.only_fetches:
        return (
            f"{title}: stops on {node}. What was downloaded stays; the next try continues from there. No further "
            f"steps will start.{_rollback_sentence(run)}"
        )
    if isinstance(act, Remote):
        return f"{title}: {node} completes or reverts this step; the rest is cancelled.{_rollback_sentence(run)}"
    if isinstance(act, AwaitBack):
        return "The wait ends; the node keeps booting. No further steps will start."
    stays = _rollback_sentence(run) or " Finished steps stay as they are; no further steps will start."
    return f"{title}: the wait ends at once.{stays}"


def _rollback_sentence(run: Run) -> str:
    """The sentence that an abort rolls back, for an all-or-nothing plan that has changed something; else ""."""
    acts = (step.step.act for step in run.steps if step.state is not StepState.WAITING)
    has_changed = any(isinstance(act, Remote) and not act.only_fetches for act in acts)
    if not (has_changed and run.plan.is_all_or_nothing and run.plan.rollback):
        return ""
    return " Then sparktop rolls back by itself: half of this plan is worse than nothing."


_OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)
