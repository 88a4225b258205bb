"""Interrupted runs: runs that have not come to their end, by the audit, and what they left behind on the nodes.

Their console was killed or closed, or they ended halfway: a step failed, the operator aborted, the way back failed
too. A run that a later run has dealt with, or whose report the operator has read, is not reported.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.labels import LAUNCH
from sparktop.model.engine import RESTARTING_POLICIES, Container
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.operation import Command, DockerCall
from sparktop.model.request import Request, Risk
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit import plan_codec
from sparktop.operate.audit_file import NEW, REBOOT_STEP, STOPPING_ACTIONS, container_call
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.step.placeholders import PUBLIC_KEY
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import Figures, StepState
from sparktop.sanitise import mapping

FORGOTTEN_S = 30 * 86_400.0
READ = "read"
"""In an audit note: the operator has read how the run was left."""
_NAMED = re.compile(r"/containers/([0-9a-f]{64})\b")
_ID = re.compile(r"[0-9a-f]{64}")
_MADE = re.compile(r"/containers/(?![0-9a-f]{64}/)([\w.-]+)/json")
_HALFWAY = {
    RunState.FAILED: ("failed", "It failed at"),
    RunState.ABORTED: ("was aborted", "It was aborted at"),
    RunState.NO_HELP: ("did not help", "It ended at"),
}
"""Ends of a run that may leave something behind: (verb after the plan's title, words before the time)."""
_GONE_HERE = "the console was gone from here on"
_BY_ITSELF = "; the node has completed or reverted that step by itself"
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedContainer:
    """A container that the run was to create."""

    node: str
    name: str
    labels: Mapping[str, str]
    """Those that tell it from another one of its name: the launch's time, compose's service; empty: none is known."""
    container_id: str = ""
    """Empty where the console died before Docker's answer arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRun:
    """One run without an end, or with one halfway."""

    run: Run
    """As far as it is known; `run_report` adds message and hint."""
    last_wall_s: float
    """Time of its last entry, operator's clock."""
    was_closed: bool
    """Its console had time to write that entry."""
    who: str
    """user@machine of its console."""
    at: str
    """The step that was running; empty where none was."""
    number: int
    """Of the last step that had begun, from 1."""
    stopped: tuple[str, ...]
    """Ids of containers that it stopped, or was going to start."""
    policies: Mapping[str, str]
    """Container id -> its former restart policy, as `docker update --restart` takes it."""
    made: tuple[CreatedContainer, ...]
    undone_by: tuple[tuple[str, str, str], ...] = ()
    """(node, text, command that undoes it) of steps that changed files or services and were not taken back: what is
    there of them isn't looked at."""


def interrupted_runs(
    entries: Sequence[Entry], *, is_under_way: Callable[[str], bool], now_wall_s: float, own: str = ""
) -> tuple[InterruptedRun, ...]:
    """Runs that have begun, never ended or ended halfway, don't run now and weren't read; oldest first.

    `own`: this machine's operator, who isn't named.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        if isinstance(run_id := entry.get("run"), str):
            runs.setdefault(run_id, []).append(entry)
    named: set[str] = set()
    again: dict[tuple[str, ...], bool] = {}
    """(action, target, node...) of later runs that came to their end, or led an earlier one back; whether one did what
    it was to do."""
    out: list[InterruptedRun] = []
    for name, run_entries in reversed(runs.items()):
        intent = next((entry for entry in run_entries if entry["kind"] == "intent"), None)
        if intent is None:
            continue
        end = next((entry for entry in run_entries if entry["kind"] == "end"), None)
        if end is not None and end.get("state") == RunState.REFUSED:
            continue
        has_ended = end is not None and end.get("left") is not True and end.get("state") not in _HALFWAY
        subject = (_text(intent.get("action")), _text(intent.get("target")), *_texts(intent.get("nodes")))
        if has_ended and end is not None:
            again[subject] = again.get(subject, False) or end.get("state") == RunState.DONE
        if has_ended or any(entry.get(READ) is True for entry in run_entries) or is_under_way(name):
            named |= {container_id for call in _calls(intent) for container_id in _NAMED.findall(call)}
        elif (
            now_wall_s - run_entries[-1]["wall_s"] < FORGOTTEN_S
            and (run := _interrupted_run(name, intent, run_entries, named)) is not None
        ):
            if subject in again:
                run = replace(run, undone_by=())
            if again.get(subject):  # its rollback would lead that run back
                run = replace(run, run=replace(run.run, plan=replace(run.run.plan, rollback=())))
            if not (run.stopped or run.policies or run.made or run.undone_by):
                continue
            out.append(run if run.who != own else replace(run, who=""))
            if run.run.state is not RunState.INTERRUPTED:  # an older run's are told with it
                named |= {*run.stopped, *run.policies, *(created.container_id for created in run.made)}
    return tuple(reversed(out))


def _interrupted_run(name: str, intent: Entry, entries: Sequence[Entry], named: set[str]) -> InterruptedRun | None:
    """The interrupted run, or None where it has left nothing to deal with."""
    run = _run(name, intent, entries)
    if run is None or all(step_run.state is StepState.DONE for step_run in run.steps):
        return None  # all steps were done; only the last entry is missing
    begun_index = next(
        (at for at, step_run in enumerate(run.steps) if step_run.state is StepState.UNKNOWN), len(run.steps) - 1
    )
    if run.state is not RunState.INTERRUPTED:
        begun_index = max(
            (at for at, step_run in enumerate(run.steps) if step_run.state is not StepState.SKIPPED), default=-1
        )
    stopped: dict[str, None] = {}
    policies: dict[str, str] = {}
    created: list[CreatedContainer] = []
    saved = run.saved
    # A console that was gone, and a reboot: what the run was going to start may be stopped without a step that says so.
    may_stop_unseen = run.state is RunState.INTERRUPTED or any(
        step_run.step.id == REBOOT_STEP and step_run.state is not StepState.SKIPPED for step_run in run.steps
    )
    untouched = {entry.get("step") for entry in entries if entry.get("untouched") is True}
    for index, step in enumerate(_dicts(intent.get("steps"))):
        is_begun = index <= begun_index and step.get("step") not in untouched
        for call in (*_dicts(step.get("operations")), *_dicts(step.get("undo"))):
            changed = container_call(call)
            if changed is not None and changed[0] not in (NEW, *named):
                _note_call(
                    *changed,
                    call,
                    is_begun=is_begun,
                    may_stop_unseen=may_stop_unseen,
                    stopped=stopped,
                    policies=policies,
                )
            elif is_begun and (container := _created_container(step, call, saved)) is not None:
                created.append(container)
    if intent.get("action") in STOPPING_ACTIONS:
        stopped, policies = {}, {}
    created = [container for container in created if container.container_id not in named]
    undone_by = tuple(_not_undone(run, intent, entries))
    if not (stopped or policies or created or undone_by):
        return None
    is_at = begun_index >= 0 and run.steps[begun_index].state in (StepState.UNKNOWN, StepState.FAILED)
    current = run.steps[begun_index] if is_at else None
    return InterruptedRun(
        run=run,
        last_wall_s=entries[-1]["wall_s"],
        was_closed=any(entry["kind"] == "end" for entry in entries),
        who=_text(intent.get("who")),
        at=current.step.title if current is not None else "",
        number=begun_index + 1,
        stopped=tuple(stopped),
        policies=policies,
        made=tuple(created),
        undone_by=undone_by,
    )


def _not_undone(run: Run, intent: Entry, entries: Sequence[Entry]) -> Iterator[tuple[str, str, str]]:
    """Steps that changed more than containers, the last first; of one under way it isn't known how far it came."""
    done = {
        str(entry.get("step")) for entry in entries if entry["kind"] == "step" and entry.get("state") == StepState.DONE
    }
    taken_back = {undone for step in run.plan.rollback if done & {step.id, f"back-{step.id}"} for undone in step.undoes}
    has_calls = any(_calls(intent))
    untouched = {str(entry.get("step")) for entry in entries if entry.get("untouched") is True}
    perhaps = "perhaps done on {}"
    words = {
        StepState.DONE: "done on {}, and not taken back", StepState.UNKNOWN: perhaps, StepState.FAILED: perhaps
    }  # fmt: skip
    for step_run, planned in zip(reversed(run.steps), reversed(_dicts(intent.get("steps"))), strict=True):
        step, operations = step_run.step, _dicts(planned.get("operations"))
        changes_more = any(
            "argv" in one and not one.keys() & {"transfer", "only_if_started_ticks"} for one in operations
        )
        undone_by = run.typed(step, undoes=True)
        if step.id in taken_back | untouched or not undone_by:
            continue
        if has_calls and not changes_more:
            continue
        if (text := words.get(step_run.state)) is not None:
            yield step.node, f"{text.format(step.node)}: {step.title}", undone_by


def _note_call(
    container_id: str,
    verb: str,
    call: Entry,
    *,
    is_begun: bool,
    may_stop_unseen: bool,
    stopped: dict[str, None],
    policies: dict[str, str],
) -> None:
    """Add to `stopped` and `policies` what one Docker call did to its container.

    Args:
        may_stop_unseen: what the run was going to start may have stopped.
    """
    if verb in ("start", "stop", "kill") and (is_begun or (verb == "start" and may_stop_unseen)):
        stopped[container_id] = None
    elif verb == "update" and is_begun:
        body = call.get("body")
        policy_body = body.get("RestartPolicy") if isinstance(body, Mapping) else None
        policy = _text(policy_body.get("Name")) if isinstance(policy_body, Mapping) else ""
        count = policy_body.get("MaximumRetryCount") if isinstance(policy_body, Mapping) else None
        if policy in RESTARTING_POLICIES:
            policies[container_id] = f"{policy}:{count}" if policy == "on-failure" and _is_count(count) else policy


def _created_container(step: Entry, call: Entry, saved: Mapping[str, Mapping[str, str]]) -> CreatedContainer | None:
    """The container that this call creates, or that a command has created where this is what is expected of it."""
    equals, label = mapping(call.get("equals")), "Config.Labels."
    named = _MADE.fullmatch(_text(call.get("expect")))
    if call.get("docker") == "POST /containers/create":
        name = mapping(call.get("query")).get("name")
        stamp = mapping(mapping(call.get("body")).get("Labels")).get(LAUNCH)
        labels = {LAUNCH: stamp} if stamp else {}
    elif named is not None and equals.get("State.Status") == "created":
        name = named[1]
        labels = {key.removeprefix(label): value for key, value in equals.items() if key.startswith(label)}
    else:
        return None
    node = _text(step.get("node"))
    return CreatedContainer(
        node=node,
        name=_text(name),
        labels={key: _text(value) for key, value in labels.items()},
        container_id=saved.get(node, {}).get("NEW", ""),
    )


def _run(run_id: str, intent: Entry, entries: Sequence[Entry]) -> Run | None:
    """The run with its steps, as far as the audit has them."""
    ended = {
        entry.get("step"): entry for entry in entries if entry["kind"] == "step" and isinstance(entry.get("step"), str)
    }
    nodes = _texts(intent.get("nodes"))
    end = next((entry for entry in entries if entry["kind"] == "end" and entry.get("left") is not True), None)
    try:
        risk = Risk(_text(intent.get("risk")))
        state = RunState(_text(end.get("state"))) if end is not None else RunState.INTERRUPTED
    except ValueError:
        return None
    steps: list[StepRun] = []
    for planned in _dicts(intent.get("steps")):
        undone_by = "" if planned.get("has_no_undo") is True else _text(planned.get("undone_by"))
        step = Step(
            id=_text(planned.get("step")),
            title=_text(planned.get("title")),
            node=_text(planned.get("node")),
            act=Remote(operations=(), reverse=undone_by),
        )
        is_now = end is None and all(step_run.ended_wall_s is not None for step_run in steps)
        steps.append(_step_run(step, ended.get(step.id), is_now=is_now, is_local="act" in planned))
    plan = Plan(
        request=Request(
            action=_text(intent.get("action")),
            nodes=nodes,
            target=_text(intent.get("target")),
            options={_text(key): _text(value) for key, value in mapping(intent.get("options")).items()},
        ),
        title=_text(intent.get("title")),
        risk=risk,
        steps=tuple(step_run.step for step_run in steps),
        rollback=plan_codec.decoded_steps(intent.get("kept")),
    )
    saved: dict[str, dict[str, str]] = {}
    for entry in ended.values():
        ids = entry.get("saved")
        if isinstance(ids, Mapping):
            node_ids = saved.setdefault(_text(entry.get("node")), {})
            node_ids |= {
                str(key): value
                for key, value in ids.items()
                if isinstance(value, str) and (_ID.fullmatch(value) or PUBLIC_KEY.fullmatch(value))
            }
    asked = mapping(intent.get("asked"))
    return Run(id=run_id, plan=plan, state=state, steps=tuple(steps), saved=saved, asked=asked)


def _step_run(step: Step, entry: Entry | None, *, is_now: bool, is_local: bool) -> StepRun:
    """A step as far as it got; `is_now`: all steps before it have ended."""
    if entry is None:
        if not is_now:
            return StepRun(step=step, state=StepState.SKIPPED)
        return StepRun(step=step, state=StepState.UNKNOWN, detail=_GONE_HERE + ("" if is_local else _BY_ITSELF))
    try:
        state = StepState(_text(entry.get("state")))
    except ValueError:
        state = StepState.UNKNOWN
    seconds = entry.get("seconds")
    ended_s = float(entry["wall_s"])
    return StepRun(
        step=step,
        state=state,
        detail=_text(entry.get("detail")),
        began_wall_s=ended_s - seconds if isinstance(seconds, int | float) else ended_s,
        ended_wall_s=ended_s,
        figures=kept_figures(entry.get("figures")),
    )


def kept_figures(value: object) -> Figures:
    """A step's figures in the audit; those that are none are left out."""
    figures = {_text(name): _text(item) if isinstance(item, str) else item for name, item in mapping(value).items()}
    return {
        name: item
        for name, item in figures.items()
        if isinstance(item, str | int | float) and not isinstance(item, bool)
    }


def _calls(intent: Entry) -> Iterator[str]:
    for step in (*_dicts(intent.get("steps")), *_dicts(intent.get("way_back"))):
        for call in _dicts(step.get("operations")):
            yield _text(call.get("docker"))


def _dicts(value: object) -> tuple[Entry, ...]:
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    """A line of sanitised text; anybody may have written the file."""
    return sanitise.line(value, limit=1000) if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in value) if isinstance(value, list) else ()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


LATER_S = 1800.0
"""Longer than a step goes on by itself: a container that ended later than that was stopped by somebody else."""
_NO_POLICY = ("", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing that an interrupted run has left behind."""

    node: str
    text: str
    """ "vllm-old on spark1 is stopped"."""
    commands: tuple[str, ...]
    """What reverts it by hand, on that node."""


def leftovers(run: InterruptedRun, picture: FleetState) -> tuple[Leftover, ...]:
    """What can be seen of it now; nothing on a node whose containers can't be listed."""
    views = [view for view in picture.nodes if view.containers.available and view.link.state is LinkState.LIVE]
    containers = {
        container.container_id: (view.name, container) for view in views for container in view.containers.containers
    }
    watched = {view.name for view in picture.nodes}
    undoing = (
        Leftover(node=node, text=text, commands=(command,)) for node, text, command in run.undone_by if node in watched
    )
    return tuple(dict.fromkeys((*_leftovers(run, containers), *undoing)))


def run_report(interrupted: InterruptedRun, picture: FleetState) -> Run | None:
    """The run with what is left of it, since when, and what to do; None where nothing is left."""
    remains = leftovers(interrupted, picture)
    if not remains:
        return None
    watched = {view.name for view in picture.nodes}
    rollback = interrupted.run.plan.rollback
    unwatched = sorted({node for step in rollback for node in (step.node, *step.needs_nodes)} - watched)
    saved = _saved(interrupted, picture)
    hint = _by_hand(interrupted, remains, saved, several=len(watched) > 1)
    if unwatched:
        hint = f"Its rollback needs {' and '.join(unwatched)}, which this console doesn't watch. {hint}"
    when = time.strftime("%H:%M on %Y-%m-%d", time.localtime(interrupted.last_wall_s))
    where = (
        f", at step {interrupted.number} of {len(interrupted.run.steps)}: {interrupted.at}" if interrupted.at else ""
    )
    whose = f" ({interrupted.who})" if interrupted.who else ""
    if interrupted.run.state in _HALFWAY:
        how = f"{_HALFWAY[interrupted.run.state][1]} {when}"
    elif interrupted.was_closed:
        how = f"Its console{whose} was closed at {when}"
    else:
        how = f"Its console{whose} died after {when}"
    remains_text = "; ".join(leftover.text for leftover in remains)
    return replace(
        interrupted.run,
        message=f"{remains_text}. {how}{where}.",
        remains=remains_text,
        hint=hint.strip(),
        can_go_back=bool(rollback) and not unwatched,
        saved=saved,
    )


def one_line(run: Run) -> str:
    """The report on one line, for where there is no screen."""
    verb, _ = _HALFWAY.get(run.state, ("was cut off", ""))
    return f"{run.plan.title} {verb}: {run.message} {run.hint}".strip()


def _by_hand(
    interrupted: InterruptedRun,
    leftovers: Sequence[Leftover],
    saved: Mapping[str, Mapping[str, str]],
    *,
    several: bool,
) -> str:
    """Commands that revert it: by what is seen of its containers, where it changed nothing else of the node."""
    # Created containers first: they must go before there is room for the stopped ones.
    back = [(leftover.node, leftover.commands) for leftover in reversed(leftovers)]
    rollback = interrupted.run.plan.rollback
    if any(step.act.commands() and _is_more_than_containers(step) for step in rollback):
        run = replace(interrupted.run, saved=saved)
        back = [(step.node, (run.typed(step),)) for step in rollback]
    lines: dict[str, list[str]] = {}
    for node, commands in back:
        lines.setdefault(node, []).extend(filter(None, commands))
    parts = [
        f"{f'on {name}: ' if several else ''}{'; '.join(commands)}" for name, commands in lines.items() if commands
    ]
    return f"Back by hand: {'; '.join(parts)}" if parts else ""


def _is_more_than_containers(step: Step) -> bool:
    """Whether it changes files, services or names: what containers do now doesn't tell of those."""
    operations = step.act.operations if isinstance(step.act, Remote) else ()
    return any(
        isinstance(one, Command) or (isinstance(one, DockerCall) and one.path.endswith("/rename")) for one in operations
    )


def _leftovers(interrupted: InterruptedRun, containers: Mapping[str, tuple[str, Container]]) -> Iterator[Leftover]:
    """What is left, stopped containers first: those are missed."""
    serving = {
        node
        for created in interrupted.made
        for node, container in (_find_created(created, containers),)
        if container is not None and container.status == "running" and container.restart_policy not in _NO_POLICY
    }
    for container_id in interrupted.stopped:
        node, container = containers.get(container_id, ("", None))
        if container is None or container.status not in ("created", "exited", "dead"):
            continue
        if node in serving:  # what took its place, or was to, serves
            continue
        if container.finished_wall_s is not None and container.finished_wall_s > interrupted.last_wall_s + LATER_S:
            continue
        commands = [f"docker start {shlex.quote(container.name)}"]
        if container_id in interrupted.policies and container.restart_policy in _NO_POLICY:
            commands.append(_policy_command(interrupted.policies[container_id], container))
        yield Leftover(node=node, text=f"{container.name} on {node} is stopped", commands=tuple(commands))
    for container_id, policy in interrupted.policies.items():
        node, container = containers.get(container_id, ("", None))
        if (
            container is not None
            and container.status in ("running", "paused")
            and container.restart_policy in _NO_POLICY
        ):
            text = f"{container.name} on {node} runs without its restart policy ({policy})"
            yield Leftover(node=node, text=text, commands=(_policy_command(policy, container),))
    for created in interrupted.made:
        node, container = _find_created(created, containers)
        if container is not None and (unfinished := _unfinished(container, node)) is not None:
            yield unfinished


def _unfinished(container: Container, node: str) -> Leftover | None:
    """A container that the run created, unless somebody has adopted it since by giving it a restart policy."""
    name = shlex.quote(container.name)
    if container.status == "created":
        return Leftover(
            node=node, text=f"{container.name} on {node} was created and never started", commands=(f"docker rm {name}",)
        )
    if container.status in ("running", "paused", "restarting") and container.restart_policy in _NO_POLICY:
        text = f"{container.name} on {node} runs, not proven and without a restart policy"
        return Leftover(node=node, text=text, commands=(f"docker stop {name}",))
    if container.status in ("exited", "dead"):
        return Leftover(node=node, text=f"{container.name} on {node}, which it had started, has exited", commands=())
    return None


def _find_created(
    created: CreatedContainer, containers: Mapping[str, tuple[str, Container]]
) -> tuple[str, Container | None]:
    """The container, by its id, or by its labels where the console died before it knew the id: (node, container)."""
    if created.container_id:
        return containers.get(created.container_id, ("", None))
    matches = (
        (node, container)
        for node, container in containers.values()
        if created.labels
        and created.labels.items() <= (container.labels or {}).items()
        and (node, container.name) == (created.node, created.name)
    )
    return next(matches, ("", None))


def _saved(interrupted: InterruptedRun, picture: FleetState) -> Mapping[str, Mapping[str, str]]:
    """The ids that the rollback needs, with those that the console never learnt."""
    containers = {
        container.container_id: (view.name, container)
        for view in picture.nodes
        for container in view.containers.containers
    }
    saved = {node: dict(ids) for node, ids in interrupted.run.saved.items()}
    needed = {
        (step.node, step.act.needs)
        for step in interrupted.run.plan.rollback
        if isinstance(step.act, CollectEvidence) and step.act.needs
    }
    for created in interrupted.made:
        _, container = _find_created(created, containers)
        if container is not None:
            ids = saved.setdefault(created.node, {})
            ids["NEW"] = container.container_id
            if container.status != "created":  # it has started: there is a log to keep
                ids |= {name: container.container_id for node, name in needed if node == created.node}
    return saved


def _policy_command(policy: str, container: Container) -> str:
    return f"docker update --restart={policy} {shlex.quote(container.name)}"
