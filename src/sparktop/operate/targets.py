"""What an action can be applied to: requests to choose from, by the picture and by what is selected. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.engines.ranks import is_alive, ranks
from sparktop.model.change import Change
from sparktop.model.engine import Engine
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase
from sparktop.model.request import Request
from sparktop.operate.actions import Action
from sparktop.text.units import gib


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChoice:
    """One target that an action can be applied to, as a request."""

    label: str
    """ "vllm-minimax on spark1 and spark2"."""
    request: Request
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the operator has selected on the screen."""

    node: str = ""
    engine: str = ""
    """The engine's name; empty where there is none."""
    pid: str = ""
    """The process's, where one is selected on the node."""
    subject: str = ""
    """Which of these has the cursor: "engine", "process" or "node"."""


def target_choices(action: Action, fleet: FleetState, nodes: Sequence[str] = ()) -> tuple[TargetChoice, ...]:
    """All targets of an action on these nodes (empty: on all), in the order of the picture."""
    views = [view for view in fleet.nodes if not nodes or view.name in nodes]
    if action.target == "engine":
        return tuple(_engine_choices(action, views, fleet))
    if action.target == "process":
        return tuple(_process_choices(action, views))
    per_node = tuple(
        TargetChoice(label=view.name, request=Request(action=action.name, nodes=(view.name,))) for view in views
    )
    if action.target == "nodes" and len(views) > 1:
        names = tuple(view.name for view in views)
        return (*per_node, TargetChoice(label=" and ".join(names), request=Request(action=action.name, nodes=names)))
    return per_node


def selected(action: Action, fleet: FleetState, selection: Selection) -> tuple[TargetChoice, ...]:
    """The targets of an action at the operator's selection, likeliest first; a single one needs no choice."""
    choices = target_choices(action, fleet)
    if action.target == "engine":
        by_name = [choice for choice in choices if selection.engine and choice.request.target == selection.engine]
        on_node = [choice for choice in by_name if selection.node in choice.request.nodes] or by_name
        return tuple(on_node[:1]) or choices
    if action.target == "process":
        own = (selection.pid, (selection.node,))
        return tuple(choice for choice in choices if (choice.request.target, choice.request.nodes) == own) or choices
    if action.least_nodes > 1:
        return tuple(choice for choice in choices if len(choice.request.nodes) >= action.least_nodes)
    on_node_alone = [choice for choice in choices if choice.request.nodes == (selection.node,)]
    return (*on_node_alone, *(choice for choice in choices if choice not in on_node_alone))


def remedy_choices(action: Action, remedy: Remedy, finding: Finding, fleet: FleetState) -> tuple[TargetChoice, ...]:
    """The targets of an action as a finding's remedy; each request names the finding, which the run then sees
    resolve."""
    choices = target_choices(action, fleet, finding.nodes)
    if action.target == "engine":
        engine = finding.engine or finding.subject
        choices = tuple(choice for choice in choices if choice.request.target == engine) or choices
    elif action.target == "process":
        # One that has ended meanwhile is no reason to offer another's, on another node even.
        choices = tuple(choice for choice in choices if remedy.pid is None or choice.request.target == str(remedy.pid))
    elif action.target == "nodes" and finding.nodes:
        choices = tuple(choice for choice in choices if set(choice.request.nodes) == set(finding.nodes)) or choices
    return tuple(_remedy_choice(choice, remedy, finding, fleet) for choice in choices)


def _remedy_choice(choice: TargetChoice, remedy: Remedy, finding: Finding, fleet: FleetState) -> TargetChoice:
    """The choice with the remedy's change and the finding in its request."""
    engine_kinds = [
        str(engine.kind) for view in fleet.nodes for engine in view.engines if engine.name == choice.request.target
    ]  # a remedy may say it differently to each engine
    change = remedy.change
    if change is not None and engine_kinds:
        change = replace(change.for_engine(engine_kinds[0]), by_node=change.by_node)
    request = Request(
        action=choice.request.action,
        nodes=choice.request.nodes,
        target=choice.request.target,
        change=change or Change(),
        finding=finding,
        also=tuple(other for other in fleet.findings if other.key in remedy.also_fixes),
    )
    return TargetChoice(label=choice.label, request=request, note=choice.note)


def armed(view: NodeView | None) -> bool:
    """Whether the node's guard is armed."""
    return view is not None and view.guard is not None and view.guard.phase is GuardPhase.ARMED


def _engine_choices(action: Action, views: Iterable[NodeView], fleet: FleetState) -> Iterable[TargetChoice]:
    seen: set[tuple[str, str]] = set()
    offered: list[tuple[list[str], str]] = []
    for view in views:
        for engine in sorted(view.engines, key=lambda engine: not is_alive(engine)):
            if (view.name, engine.name) in seen:
                continue
            # A guard watches one node; all else is done to a server with all its ranks.
            team = () if action.name == "guard" else ranks(engine.name, view.name, fleet)
            nodes = [rank.node.name for rank in team] or [view.name]
            head = team[0].engine.name if team else engine.name
            seen |= {(rank.node.name, rank.engine.name) for rank in team} | {(view.name, engine.name)}
            if (nodes, head) in offered:
                continue  # an earlier start of it, under another name
            offered.append((nodes, head))
            request = Request(action=action.name, nodes=tuple(nodes), target=head)
            yield TargetChoice(label=f"{head} on {' and '.join(nodes)}", request=request, note=_state(engine))


def _state(engine: Engine) -> str:
    return f"{engine.state}{f', {engine.model}' if engine.model else ''}"


def _process_choices(action: Action, views: Iterable[NodeView]) -> Iterable[TargetChoice]:
    for view in views:
        for gpu in view.gpu.gpus if view.gpu else ():
            for process in sorted(gpu.processes or (), key=lambda user: -(user.used_bytes or 0)):
                yield TargetChoice(
                    label=f"{process.name or 'a process'}  pid {process.pid} on {view.name}",
                    request=Request(action=action.name, nodes=(view.name,), target=str(process.pid)),
                    note="" if process.used_bytes is None else f"{gib(process.used_bytes)} of GPU memory",
                )
