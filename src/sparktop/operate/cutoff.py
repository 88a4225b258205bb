"""Runs that this machine began and nobody has ended: the console was killed or closed, a laptop's battery died. Pure.

The audit says what was begun; what is left of it only the picture says, as a step that was under way is finished or
undone by its node alone. What stands otherwise by now, a later run has dealt with, or the operator has read, is silent.

    found = cut_off(entries, is_under_way=..., now_wall_s=...)
    run = shown(found[0], picture)   # None where nothing of it is left
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparktop import sanitise
from sparktop.model.engine import Container
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.plan import Plan, Remote, Request, Risk, Run, RunState, Step, StepRun, StepState
from sparktop.operate import kept
from sparktop.recipe.labels import LAUNCH

FORGOTTEN_S = 30 * 86_400.0
LATER_S = 1800.0
"""Longer than a step goes on by itself: what has ended later than that after the last word was ended by somebody."""
READ = "read"
"""In a note of the audit: the operator has seen how it was left."""
_MEANT = ("stop-engine", "break-restart-loop")
"""Actions that want stopped what they stop."""
_CONTAINER = re.compile(r"POST /containers/([0-9a-f]{64})/(stop|kill|start|update)")
_NAMED = re.compile(r"/containers/([0-9a-f]{64})\b")
_ID = re.compile(r"[0-9a-f]{64}")
_POLICIES = ("always", "unless-stopped", "on-failure")
_GONE_HERE = "the console was gone from here on"
_BY_ITSELF = "; what the node had begun of it, it has finished or undone by itself"
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A container that it was to make."""

    node: str
    name: str
    stamp: str
    """Of the launch, as its label says it; empty for another."""
    container_id: str = ""
    """Empty where the console was gone before Docker's answer was heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """One run without an end."""

    run: Run
    """As far as it is known; its message and hint are `shown`'s."""
    last_wall_s: float
    """Its last word, operator's clock."""
    was_closed: bool = False
    """Its console had time for that word."""
    at: str = ""
    """The step that was under way."""
    number: int = 0
    stopped: tuple[str, ...] = ()
    """Ids of containers that it has stopped, or was to start."""
    policies: Mapping[str, str]
    """Container id -> the restart policy that it had, as `docker update --restart` takes it."""
    made: tuple[Made, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One thing that it has left."""

    node: str
    text: str
    """ "vllm-old on spark1 is stopped"."""
    commands: tuple[str, ...]
    """What takes it back by hand, on that node."""


def cut_off(found: Sequence[Entry], *, is_under_way: Callable[[str], bool], now_wall_s: float) -> tuple[CutOff, ...]:
    """Those that have begun, never came to an end, don't run now and weren't read; oldest first."""
    runs: dict[str, list[Entry]] = {}
    for entry in found:
        if isinstance(run := entry.get("run"), str):
            runs.setdefault(run, []).append(entry)
    named: set[str] = set()
    out: list[CutOff] = []
    for name, said in reversed(runs.items()):
        intent = next((one for one in said if one["kind"] == "intent"), None)
        if intent is None:
            continue
        end = next((one for one in said if one["kind"] == "end"), None)
        if end is not None and end.get("state") == RunState.REFUSED:
            continue
        has_ended = end is not None and end.get("left") is not True
        if has_ended or any(one.get(READ) is True for one in said) or is_under_way(name):
            named |= {found for call in _calls(intent) for found in _NAMED.findall(call)}
        elif now_wall_s - said[-1]["wall_s"] < FORGOTTEN_S and (one := _cut(name, intent, said, named)) is not None:
            out.append(one)
    return tuple(reversed(out))


def left(one: CutOff, picture: FleetState) -> tuple[Left, ...]:
    """What of it is to be seen now; nothing of a node whose containers can't be seen."""
    views = [view for view in picture.nodes if view.containers.available and view.link.state is LinkState.LIVE]
    boxes = {box.container_id: (view.name, box) for view in views for box in view.containers.containers}
    return tuple(dict.fromkeys(_left(one, boxes)))


def shown(one: CutOff, picture: FleetState) -> Run | None:
    """The run with what is left of it, since when, and what to do; None where that is nothing."""
    rest = left(one, picture)
    if not rest:
        return None
    watched = {view.name for view in picture.nodes}
    back = one.run.plan.way_back
    away = sorted({node for step in back for node in (step.node, *step.needs_nodes)} - watched)
    hint = _by_hand(one, rest, several=len(watched) > 1)
    if away:
        hint = f"Its way back needs {' and '.join(away)}, which isn't watched here. {hint}"
    when = time.strftime("%H:%M on %Y-%m-%d", time.localtime(one.last_wall_s))
    where = f", at step {one.number} of {len(one.run.steps)}: {one.at}" if one.at else ""
    how = f"was closed at {when}" if one.was_closed else f"ended without a word after {when}"
    return replace(
        one.run,
        message=f"{'; '.join(each.text for each in rest)}. Its console {how}{where}.",
        hint=hint.strip(),
        can_go_back=bool(back) and not away,
        saved=_saved(one, picture),
    )


def line(run: Run) -> str:
    """The same on one line, for where no screen is."""
    return f"{run.plan.title} was cut off: {run.message} {run.hint}".strip()


def _by_hand(one: CutOff, rest: Sequence[Left], *, several: bool) -> str:
    """As commands; a relaunch has given names away too, which only its way back takes back."""
    if one.run.plan.request.action == "relaunch" and one.made:
        return ""
    lines: dict[str, list[str]] = {}
    for each in reversed(rest):  # what it has made first: it has to go before what it has stopped has room
        lines.setdefault(each.node, []).extend(each.commands)
    parts = [f"{f'on {name}: ' if several else ''}{'; '.join(own)}" for name, own in lines.items() if own]
    return f"Back by hand: {'; '.join(parts)}" if parts else ""


# --- what the audit says


def _cut(name: str, intent: Entry, found: Sequence[Entry], named: set[str]) -> CutOff | None:
    run = _run(name, intent, found)
    if run is None or all(one.state is StepState.DONE for one in run.steps):
        return None  # all was done; only its last word is missing
    begun = next((at for at, one in enumerate(run.steps) if one.state is StepState.UNKNOWN), len(run.steps) - 1)
    stopped: dict[str, None] = {}
    policies: dict[str, str] = {}
    made: list[Made] = []
    saved = run.saved
    for index, step in enumerate(_dicts(intent.get("steps"))):
        for call in (*_dicts(step.get("operations")), *_dicts(step.get("undo"))):
            asked = _text(call.get("docker"))
            match = _CONTAINER.fullmatch(asked)
            if match is not None and match[1] not in named:
                _note(match[1], match[2], call, is_begun=index <= begun, stopped=stopped, policies=policies)
            elif asked == "POST /containers/create" and index <= begun:
                made.append(_made(step, call, saved))
    if intent.get("action") in _MEANT:
        stopped, policies = {}, {}
    made = [one for one in made if one.container_id not in named]
    if not (stopped or policies or made):
        return None
    now = run.steps[begun] if run.steps and run.steps[begun].state is StepState.UNKNOWN else None
    return CutOff(
        run=run,
        last_wall_s=found[-1]["wall_s"],
        was_closed=any(entry["kind"] == "end" for entry in found),
        at=now.step.title if now is not None else "",
        number=begun + 1,
        stopped=tuple(stopped),
        policies=policies,
        made=tuple(made),
    )


def _note(
    container_id: str, verb: str, call: Entry, *, is_begun: bool, stopped: dict[str, None], policies: dict[str, str]
) -> None:
    """What one call says of its container."""
    if verb == "start" or (verb in ("stop", "kill") and is_begun):
        stopped[container_id] = None
    elif verb == "update" and is_begun:
        body = call.get("body")
        wanted = body.get("RestartPolicy") if isinstance(body, Mapping) else None
        policy = _text(wanted.get("Name")) if isinstance(wanted, Mapping) else ""
        count = wanted.get("MaximumRetryCount") if isinstance(wanted, Mapping) else None
        if policy in _POLICIES:
            policies[container_id] = f"{policy}:{count}" if policy == "on-failure" and _is_count(count) else policy


def _made(step: Entry, call: Entry, saved: Mapping[str, Mapping[str, str]]) -> Made:
    query, body = call.get("query"), call.get("body")
    labels = body.get("Labels") if isinstance(body, Mapping) else None
    node = _text(step.get("node"))
    return Made(
        node=node,
        name=_text(query.get("name")) if isinstance(query, Mapping) else "",
        stamp=_text(labels.get(LAUNCH)) if isinstance(labels, Mapping) else "",
        container_id=saved.get(node, {}).get("NEW", ""),
    )


def _run(name: str, intent: Entry, found: Sequence[Entry]) -> Run | None:
    """The run with its steps as far as they were heard of."""
    ended = {one.get("step"): one for one in found if one["kind"] == "step" and isinstance(one.get("step"), str)}
    nodes = _texts(intent.get("nodes"))
    try:
        risk = Risk(_text(intent.get("risk")))
    except ValueError:
        return None
    steps: list[StepRun] = []
    for planned in _dicts(intent.get("steps")):
        step = Step(
            id=_text(planned.get("step")),
            title=_text(planned.get("title")),
            node=_text(planned.get("node")),
            act=Remote(operations=()),
            undone_by=_text(planned.get("undone_by")),
        )
        is_now = all(one.ended_wall_s is not None for one in steps)
        steps.append(_step_run(step, ended.get(step.id), is_now=is_now, is_local="act" in planned))
    plan = Plan(
        request=Request(action=_text(intent.get("action")), nodes=nodes, target=_text(intent.get("target"))),
        title=_text(intent.get("title")),
        risk=risk,
        steps=tuple(one.step for one in steps),
        way_back=kept.steps_of(intent.get("kept")),
    )
    saved: dict[str, dict[str, str]] = {}
    for entry in ended.values():
        ids = entry.get("saved")
        if isinstance(ids, Mapping):
            mine = saved.setdefault(_text(entry.get("node")), {})
            mine |= {str(key): value for key, value in ids.items() if isinstance(value, str) and _ID.fullmatch(value)}
    return Run(id=name, plan=plan, state=RunState.CUT_OFF, steps=tuple(steps), saved=saved)


def _step_run(step: Step, entry: Entry | None, *, is_now: bool, is_local: bool) -> StepRun:
    """`is_now`: all before it were heard of to their end."""
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
    )


def _calls(intent: Entry) -> Iterator[str]:
    for step in (*_dicts(intent.get("steps")), *_dicts(intent.get("way_back"))):
        for call in _dicts(step.get("operations")):
            yield _text(call.get("docker"))


# --- what the picture says


def _left(one: CutOff, boxes: Mapping[str, tuple[str, Container]]) -> Iterator[Left]:
    """What it has stopped first: that is missed."""
    for container_id in one.stopped:
        node, box = boxes.get(container_id, ("", None))
        if box is None or box.status not in ("created", "exited", "dead"):
            continue
        if box.finished_wall_s is not None and box.finished_wall_s > one.last_wall_s + LATER_S:
            continue
        commands = [f"docker start {shlex.quote(box.name)}"]
        if container_id in one.policies and box.restart_policy in ("", "no"):
            commands.append(_update(one.policies[container_id], box))
        yield Left(node=node, text=f"{box.name} on {node} is stopped", commands=tuple(commands))
    for container_id, policy in one.policies.items():
        node, box = boxes.get(container_id, ("", None))
        if box is not None and box.status in ("running", "paused") and box.restart_policy == "no":
            text = f"{box.name} on {node} runs without its restart policy ({policy})"
            yield Left(node=node, text=text, commands=(_update(policy, box),))
    for made in one.made:
        node, box = _found(made, boxes)
        if box is not None and (rest := _unfinished(box, node)) is not None:
            yield rest


def _unfinished(box: Container, node: str) -> Left | None:
    """A container that it has made, unless somebody has taken it over since by giving it a restart policy."""
    name = shlex.quote(box.name)
    if box.status == "created":
        return Left(node=node, text=f"{box.name} on {node} was made and never started", commands=(f"docker rm {name}",))
    if box.status in ("running", "paused", "restarting") and box.restart_policy == "no":
        text = f"{box.name} on {node} runs, not proven and without a restart policy"
        return Left(node=node, text=text, commands=(f"docker stop {name}",))
    if box.status in ("exited", "dead"):
        return Left(node=node, text=f"{box.name} on {node}, which it had started, has ended", commands=())
    return None


def _found(made: Made, boxes: Mapping[str, tuple[str, Container]]) -> tuple[str, Container | None]:
    """By its id; by its label where the console was gone before it heard that."""
    if made.container_id:
        return boxes.get(made.container_id, ("", None))
    own = (
        (node, box)
        for node, box in boxes.values()
        if made.stamp and (box.labels or {}).get(LAUNCH) == made.stamp and (node, box.name) == (made.node, made.name)
    )
    return next(own, ("", None))


def _saved(one: CutOff, picture: FleetState) -> Mapping[str, Mapping[str, str]]:
    """The ids that its way back needs, those too whose answer nobody has heard."""
    boxes = {box.container_id: (view.name, box) for view in picture.nodes for box in view.containers.containers}
    saved = {node: dict(ids) for node, ids in one.run.saved.items()}
    for made in one.made:
        _, box = _found(made, boxes)
        if box is not None:
            saved.setdefault(made.node, {})["NEW"] = box.container_id
    return saved


def _update(policy: str, box: Container) -> str:
    return f"docker update --restart={policy} {shlex.quote(box.name)}"


def _dicts(value: object) -> tuple[Entry, ...]:
    return tuple(one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    """The file is somebody's: whatever stands in it is only text."""
    return sanitise.line(value, limit=1000) if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(one) for one in value) if isinstance(value, list) else ()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
