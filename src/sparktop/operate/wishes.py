"""What an action could be done to, as requests to choose from: from the picture and what is selected. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.change import Change
from sparktop.model.engine import Engine
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase
from sparktop.model.plan import Request
from sparktop.operate.actions import Action
from sparktop.operate.pair import ranks

_GIB = 1024**3
_PID = re.compile(r"\bpid[ :=]*(\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that could be asked for."""

    label: str
    """ "vllm-minimax on spark1 and spark2"."""
    request: Request
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Where the operator is."""

    node: str = ""
    engine: str = ""
    """The engine's name; empty where there is none."""


def wishes(action: Action, fleet: FleetState, nodes: Sequence[str] = ()) -> tuple[Wish, ...]:
    """All that an action could mean on these nodes (empty: on all), in the order of the picture."""
    views = [view for view in fleet.nodes if not nodes or view.name in nodes]
    if action.target == "engine":
        return tuple(_engine_wishes(action, views, fleet))
    if action.target == "process":
        return tuple(_process_wishes(action, views))
    single = tuple(Wish(label=view.name, request=Request(action=action.name, nodes=(view.name,))) for view in views)
    if action.target == "nodes" and len(views) > 1:
        names = tuple(view.name for view in views)
        return (*single, Wish(label=" and ".join(names), request=Request(action=action.name, nodes=names)))
    return single


def selected(action: Action, fleet: FleetState, at: Selection) -> tuple[Wish, ...]:
    """What an action could mean where the operator is, likeliest first; one alone needs no choice."""
    found = wishes(action, fleet)
    if action.target == "engine":
        of_name = [wish for wish in found if at.engine and wish.request.target == at.engine]
        own = [wish for wish in of_name if at.node in wish.request.nodes] or of_name
        return tuple(own[:1]) or found
    first = [wish for wish in found if wish.request.nodes == (at.node,)]
    return (*first, *(wish for wish in found if wish not in first))


def mending(action: Action, remedy: Remedy, finding: Finding, fleet: FleetState) -> tuple[Wish, ...]:
    """What an action could mean as a finding's remedy; each names the finding, which has to be seen to resolve."""
    found = wishes(action, fleet, finding.nodes)
    if action.target == "engine":
        names = sorted({wish.request.target for wish in found}, key=len, reverse=True)
        subject = next((n for n in names if finding.subject == n or finding.subject.startswith(f"{n} ")), None)
        found = tuple(wish for wish in found if wish.request.target == subject) or found
    elif action.target == "process":
        texts = (finding.subject, remedy.title, finding.title, *(one.text for one in finding.evidence))
        pids = {pid for text in texts for pid in _PID.findall(text)} | {finding.subject}
        found = tuple(wish for wish in found if wish.request.target in pids) or found
    elif action.target == "nodes" and finding.nodes:
        found = tuple(wish for wish in found if set(wish.request.nodes) == set(finding.nodes)) or found
    return tuple(_mending(wish, remedy, finding, fleet) for wish in found)


def _mending(wish: Wish, remedy: Remedy, finding: Finding, fleet: FleetState) -> Wish:
    kinds = [
        str(one.kind) for view in fleet.nodes for one in view.engines if one.name == wish.request.target
    ]  # a remedy may say it differently to each engine
    change = remedy.change
    if change is not None and kinds:
        change = replace(change.for_engine(kinds[0]), by_node=change.by_node)
    request = Request(
        action=wish.request.action,
        nodes=wish.request.nodes,
        target=wish.request.target,
        change=change or Change(),
        finding=finding,
    )
    return Wish(label=wish.label, request=request, note=wish.note)


def armed(view: NodeView | None) -> bool:
    """Whether the node's guard is."""
    return view is not None and view.guard is not None and view.guard.phase is GuardPhase.ARMED


def _engine_wishes(action: Action, views: Iterable[NodeView], fleet: FleetState) -> Iterable[Wish]:
    seen: set[tuple[str, str]] = set()
    told: list[tuple[list[str], str]] = []
    for view in views:
        for engine in sorted(view.engines, key=lambda one: not is_alive(one)):
            if (view.name, engine.name) in seen:
                continue
            # A guard watches one node; all else is done to a server with all its ranks.
            team = () if action.name == "guard" else ranks(engine.name, view.name, fleet)
            nodes = [rank.node for rank in team] or [view.name]
            head = team[0].engine.name if team else engine.name
            seen |= {(rank.node, rank.engine.name) for rank in team} | {(view.name, engine.name)}
            if (nodes, head) in told:
                continue  # an earlier start of it, under another name
            told.append((nodes, head))
            request = Request(action=action.name, nodes=tuple(nodes), target=head)
            yield Wish(label=f"{head} on {' and '.join(nodes)}", request=request, note=_state(engine))


def _state(engine: Engine) -> str:
    return f"{engine.state}{f', {engine.model}' if engine.model else ''}"


def _process_wishes(action: Action, views: Iterable[NodeView]) -> Iterable[Wish]:
    for view in views:
        for card in view.gpu.gpus if view.gpu else ():
            for process in sorted(card.processes or (), key=lambda one: -(one.used_bytes or 0)):
                yield Wish(
                    label=f"{process.name or 'a process'}  pid {process.pid} on {view.name}",
                    request=Request(action=action.name, nodes=(view.name,), target=str(process.pid)),
                    note="" if process.used_bytes is None else f"{process.used_bytes / _GIB:.1f} GiB of GPU memory",
                )
