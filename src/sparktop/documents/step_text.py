"""A plan's acts as text: as a person would type them, or as the exact commands and calls. Pure.

Secrets are masked, remote text is sanitised. The review and `sparktop act --dry-run` print the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

from sparktop.model.operation import DockerCall, Expect
from sparktop.operate.acts.arrivals import AwaitBack
from sparktop.operate.acts.operation_text import CREATE, container_in, note_rename, typed_operation
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.secrets.masking import Masker
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import StepState
from sparktop.text.lines import Line


def masked(text: str, secrets: Sequence[str] = ()) -> str:
    """Text that is safe to show: without control characters, known secrets, or what looks like a secret."""
    return _masked(text, tuple(secrets))


@lru_cache(maxsize=1024)
def _masked(text: str, secrets: tuple[str, ...]) -> str:
    return _masker(secrets).text(text)


@lru_cache(maxsize=8)
def _masker(secrets: tuple[str, ...]) -> Masker:
    return Masker(secrets)


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
    names = _container_names(plan)
    for earlier in takewhile(lambda one: one != step, (*plan.steps, *plan.way_back)):
        for operation in earlier.act.operations if isinstance(earlier.act, Remote) else ():
            note_rename(operation, names.get(earlier.node, {}))
    of_node = names.get(step.node, {})
    lines: list[str] = []
    for operation in step.act.operations:
        lines += typed_operation(operation, of_node)
        note_rename(operation, of_node)
    return tuple(masked(line, plan.secrets) for line in lines)


def creates_container(plan: Plan) -> bool:
    """Whether a step creates a container, whose settings are too many for a step's line."""
    operations = (operation for step in plan.steps if isinstance(step.act, Remote) for operation in step.act.operations)
    return any(isinstance(operation, DockerCall) and operation.path == CREATE for operation in operations)


def _container_names(plan: Plan) -> dict[str, dict[str, str]]:
    """By node, container id, or the placeholder of one that is made -> its first name, from what the plan's steps
    check and create."""
    names_by_node: dict[str, dict[str, str]] = {}
    for step in (*plan.steps, *plan.way_back):
        names = names_by_node.setdefault(step.node, {})
        if isinstance(step.act, AwaitReady) and step.act.container_id:
            names.setdefault(step.act.container_id, step.act.name)  # a container that is made has another name first
        for operation in step.act.operations if isinstance(step.act, Remote) else ():
            match operation:
                case Expect() if "Name" in operation.equals:
                    names.setdefault(container_in(operation.path), str(operation.equals["Name"]).lstrip("/"))
                case DockerCall() if operation.path == CREATE:
                    names[f"{{{operation.saves}}}"] = operation.query.get("name", operation.saves)
    return names_by_node


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
    if not (has_changed and run.plan.is_all_or_nothing and run.plan.way_back):
        return ""
    return " Then sparktop rolls back by itself: half of this plan is worse than nothing."


_OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)
