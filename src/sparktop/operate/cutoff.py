"""Runs that this machine began and nobody has ended: the console was killed or closed, a laptop's battery died. Pure.

The audit says what was begun; what is left of it says `cutleft`. What a later run has dealt with, or the operator has
read, is silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktop import sanitise
from sparktop.model.plan import Plan, Remote, Request, Risk, Run, RunState, Step, StepRun, StepState
from sparktop.operate import kept
from sparktop.recipe.labels import LAUNCH

FORGOTTEN_S = 30 * 86_400.0
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


def _dicts(value: object) -> tuple[Entry, ...]:
    return tuple(one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    """The file is somebody's: whatever stands in it is only text."""
    return sanitise.line(value, limit=1000) if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(one) for one in value) if isinstance(value, list) else ()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
