"""What a run that was cut off has left, by the picture: a step that was under way is finished or undone by its node
alone. Pure.

    found = cut_off(entries, is_under_way=..., now_wall_s=...)
    run = shown(found[0], picture)   # None where nothing of it is left
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparktop.model.engine import Container
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.plan import Run
from sparktop.operate.cutoff import CutOff, Made
from sparktop.recipe.labels import LAUNCH

LATER_S = 1800.0
"""Longer than a step goes on by itself: what has ended later than that after the last word was ended by somebody."""
_NO_POLICY = ("", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One thing that it has left."""

    node: str
    text: str
    """ "vllm-old on spark1 is stopped"."""
    commands: tuple[str, ...]
    """What takes it back by hand, on that node."""


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


def _left(one: CutOff, boxes: Mapping[str, tuple[str, Container]]) -> Iterator[Left]:
    """What it has stopped first: that is missed."""
    for container_id in one.stopped:
        node, box = boxes.get(container_id, ("", None))
        if box is None or box.status not in ("created", "exited", "dead"):
            continue
        if box.finished_wall_s is not None and box.finished_wall_s > one.last_wall_s + LATER_S:
            continue
        commands = [f"docker start {shlex.quote(box.name)}"]
        if container_id in one.policies and box.restart_policy in _NO_POLICY:
            commands.append(_update(one.policies[container_id], box))
        yield Left(node=node, text=f"{box.name} on {node} is stopped", commands=tuple(commands))
    for container_id, policy in one.policies.items():
        node, box = boxes.get(container_id, ("", None))
        if box is not None and box.status in ("running", "paused") and box.restart_policy in _NO_POLICY:
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
    if box.status in ("running", "paused", "restarting") and box.restart_policy in _NO_POLICY:
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
