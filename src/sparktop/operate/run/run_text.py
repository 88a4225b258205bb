"""A run in sentences: how it ended, what was and wasn't done, what to do next, and its figures before and after."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.operate.step.run import Run, StepRun
from sparktop.operate.step.step_result import Figures, StepState
from sparktop.text.sentences import sentences
from sparktop.text.units import countdown


def message(run: Run, how: str, *, but: Sequence[str] = ()) -> str:
    """How it ended (`how`), then what was done and what was not; `but` are the problems on the way."""
    return sentences(how, *lists(run), *but)


def success(run: Run, seconds: float, left: str, *, but: Sequence[str] = ()) -> str:
    """The message of a run that did everything; `left` as `set_aside` says it."""
    return sentences(f"{run.plan.title}: done in {countdown(round(seconds))}{left}", *but)


def set_aside(rollback: Sequence[Step], picture: FleetState) -> str:
    """What a rollback leaves: containers that failed, for their logs; or ""."""
    names = [
        f"{step.leaves} on {step.node}"
        for step in rollback
        if (view := picture.node(step.node)) is not None
        and any(container.name == step.leaves for container in view.containers.containers)
    ]
    return f", but for {' and '.join(names)}, kept stopped for its log (docker rm removes it)" if names else ""


def failed(step_run: StepRun) -> str:
    """A failed step, with its reason."""
    return f"“{step_run.step.title}” failed{': ' + step_run.detail if step_run.detail else ''}"


def hint(run: Run, *, can_go_back: bool) -> str:
    """What to do next: the rollback as a plan, and as commands for when the plan is no longer available."""
    states = (StepState.FAILED, StepState.UNKNOWN)
    if run.plan.is_rollback:
        left = _left_by_hand(run, (*states, StepState.SKIPPED), tuple(OnFailure))
        return f"What is left of the rollback, by hand: {left}" if left else "No step of the rollback is left to do."
    failed_text = _left_by_hand(run, states, (OnFailure.FAIL_AT_END,))
    commands_text = "; ".join(by_hand(run))
    parts = [f"What failed, by hand: {failed_text}."] if failed_text else []
    if can_go_back:
        parts.append(f"You can roll back: {'; '.join(step.title for step in run.plan.rollback)}.")
        parts += [f"By hand: {commands_text}"] if commands_text else []
    elif commands_text:
        parts.append(f"To undo it: {commands_text}")
    return " ".join(parts)


UNITS = {
    "gib": "GiB",
    "w": "W",
    "c": "°C",
    "percent": "%",
    "s": "s",
    "mhz": "MHz",
    "tps": "tok/s",
    "gbps": "Gb/s",
    "us": "µs",
    "ms": "ms",
}
ALWAYS = ("available_gib",)
"""Shown even where unchanged."""


def figures_text(before: Figures, after: Figures, *, only: Collection[str] = ()) -> str:
    """One node's changed figures, or `only` these; before the run has ended only the values before."""
    parts = []
    for name, value in before.items():
        if only and name not in only:
            continue
        new_value = after.get(name)
        if after and name not in ALWAYS and (new_value is None or _figure(new_value) == _figure(value)):
            continue
        words, _, unit = name.rpartition("_")
        if unit not in UNITS:
            words, unit = name, ""
        change = "" if new_value is None else f" → {_figure(new_value)}"
        parts.append(f"{words.replace('_', ' ')} {_figure(value)}{change} {UNITS.get(unit, '')}".rstrip())
    return ", ".join(parts)


def measured(run: Run) -> Mapping[str, Figures]:
    """The numbers that its steps measured, by node; their words are in the steps' details."""
    by_node: dict[str, dict[str, float | str]] = {}
    for step_run in run.steps:
        numbers = {name: value for name, value in step_run.figures.items() if not isinstance(value, str)}
        if numbers:
            by_node.setdefault(step_run.step.node, {}).update(numbers)
    return by_node


def brief(run: Run) -> str:
    """How it ended, for where its title, its time and its steps are shown next to it."""
    return run.message if run.brief is None else run.brief


def lists(run: Run) -> tuple[str, ...]:
    """What is not known, what was done, what was not begun: a sentence each."""
    titles = {
        state: "; ".join(step_run.step.title for step_run in run.steps if step_run.state is state)
        for state in (StepState.UNKNOWN, StepState.DONE, StepState.SKIPPED)
    }
    unknown, done, skipped = titles.values()
    parts = [f"Not known: {unknown}."] if unknown else []
    if done or not unknown:
        parts.append(f"Done: {done}." if done else "Nothing was done.")
    if skipped:
        parts.append(f"Not started: {skipped}.")
    return tuple(parts)


def _figure(value: float | str) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def waiting(step_run: StepRun, now_wall_s: float) -> tuple[float, float] | None:
    """(seconds since SIGTERM, seconds of grace) while a step stops something; None otherwise."""
    grace = step_run.step.act.grace_s
    if grace is None or step_run.state is not StepState.RUNNING or step_run.began_wall_s is None:
        return None
    return max(0.0, now_wall_s - step_run.began_wall_s), grace


def was_killed(step_run: StepRun) -> bool:
    """Whether stopping took the whole grace period: it was killed."""
    grace = step_run.step.act.grace_s
    if (
        grace is None
        or step_run.state is not StepState.DONE
        or step_run.began_wall_s is None
        or step_run.ended_wall_s is None
    ):
        return False
    return step_run.ended_wall_s - step_run.began_wall_s >= grace


def short_detail(step_run: StepRun) -> str:
    """The step's detail without what is shown next to it, or reads better elsewhere."""
    if was_killed(step_run):
        return "it did not stop in that time and was killed"
    return step_run.detail if step_run.brief is None else step_run.brief


def by_hand(run: Run) -> tuple[str, ...]:
    """Commands that undo what is left of a run; empty where nothing is left, or nothing can undo it.

    A step that undid another leaves nothing of either: a policy switched off and back is as it was.
    """
    done = [step_run.step for step_run in run.steps if step_run.state is StepState.DONE]
    undone = {(step.node, name) for step in done for name in step.undoes}
    done_ids = {(step.node, step.id) for step in done}
    undoing = {(step.node, step.id) for step in done if any((step.node, name) in done_ids for name in step.undoes)}
    not_undone = [step for step in done if (step.node, step.id) not in undone | undoing]
    return _on_nodes(run, list(reversed(not_undone)), undoes=True)


def _left_by_hand(run: Run, states: Collection[StepState], kinds: Collection[OnFailure]) -> str:
    """The commands that do by hand the steps of these states and kinds, in the plan's order."""
    left = [one.step for one in run.steps if one.state in states and one.step.on_failure in kinds]
    return "; ".join(_on_nodes(run, left, undoes=False))


def _on_nodes(run: Run, steps: Sequence[Step], *, undoes: bool) -> tuple[str, ...]:
    texts = [(step.node, text) for step in steps if (text := run.typed(step, undoes=undoes))]
    is_several = len(run.plan.nodes) > 1
    return tuple(dict.fromkeys(f"{f'on {node}: ' if is_several else ''}{text}" for node, text in texts))


def armed_guards(guards: Mapping[str, str], picture: FleetState) -> Iterator[str]:
    """Sentences on the guards (node -> container) that the run armed and did not disarm: they may still act."""
    for node, name in guards.items():
        view = picture.node(node)
        if name and view is not None and view.guard is not None and view.guard.phase is GuardPhase.ARMED:
            yield f"The guard on {node} is still armed over {name}: M disarms it, and so does leaving"
