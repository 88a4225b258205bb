"""What a launch is planned with, and how a gate says what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop import sanitise
from sparktop.checks.judgement import Check, Judgement
from sparktop.dataclass import dataclass
from sparktop.knowledge.card import found
from sparktop.masking import mask_text
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Budget, Gate, Lever, NodeBudget
from sparktop.model.recipe import Order
from sparktop.model.state import State
from sparktop.model.survey import Survey
from sparktop.operate.launch.engines_to_stop import EngineToStop
from sparktop.operate.launch.inputs.compose_service import ServiceLaunch
from sparktop.operate.launch.inputs.docker import DockerThere, Listed
from sparktop.operate.launch.inputs.download_steps import Fetch
from sparktop.operate.launch.inputs.downloads import ModelOnNodes
from sparktop.operate.launch.inputs.link import Fabric
from sparktop.recipe.container_spec import CannotRender, NodeContext, Rendered
from sparktop.recipe.parameters import LaunchValues

DETAIL_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInputs:
    """What a launch is planned with: what its gates judge, and its steps are made from."""

    values: LaunchValues
    nodes: tuple[str, ...]
    """The head first."""
    picture: FleetState
    survey: Survey
    links: Mapping[str, Fabric]
    """Each node's end of the link; empty for one node."""
    docker: Mapping[str, DockerThere]
    """By node."""
    contexts: tuple[NodeContext, ...]
    models: tuple[ModelOnNodes, ...]
    """Every model that it loads, the served one first."""
    fetch: Fetch = Fetch()
    rendered: Rendered | None = None
    render_error: CannotRender | None = None
    """Why `rendered` is None."""
    budget: Budget | None = None
    engines_to_stop: tuple[EngineToStop, ...] = ()
    compose: ServiceLaunch | None = None
    """The compose service that is brought up as itself; None: a container of the launch's own is made."""

    @property
    def order(self) -> Order:
        return self.values.order

    @property
    def is_fetched(self) -> bool:
        """Whether a node lacks one of the models, so that it is downloaded."""
        return any(model.lacking for model in self.models)

    @property
    def unrendered(self) -> str:
        """Why `rendered` is None, for the gates that need it."""
        return self.render_error.reason if self.render_error is not None else ""

    @property
    def head(self) -> str:
        return self.nodes[0]

    @property
    def image(self) -> str:
        """The image that is launched."""
        return self.values.image

    def containers(self, node: str) -> tuple[Listed, ...]:
        """Those that Docker lists there, as far as it has answered."""
        return self.docker[node].containers or ()

    def view(self, node: str) -> NodeView:
        view = self.picture.node(node)
        assert view is not None  # nothing is planned for a node that isn't watched
        return view

    def budget_of(self, node: str) -> NodeBudget | None:
        """The node's own; None: not known."""
        budgets = self.budget.nodes if self.budget is not None else ()
        return next((budget for budget in budgets if budget.node == node), None)

    def is_stopped(self, node: str, *names: str) -> bool:
        """Whether the operator agreed to stop one of these there before the launch."""
        return any((node, name) in self.order.stops for name in names)


def port_of(values: LaunchValues, rendered: Rendered | None = None) -> int:
    """The port that the engine will serve on."""
    if rendered:
        return rendered.port
    text = values.get("port") or ""
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else values.order.recipe.engine.traits.port


# --- gates


def passed(node: str, detail: str) -> Gate:
    return _gate(node, State.PASSED, detail)


def warned(node: str, detail: str, *steps: str) -> Gate:
    return _gate(node, State.WARNING, detail, *steps)


def failed(node: str, detail: str, *steps: str, levers: tuple[Lever, ...] = ()) -> Gate:
    return replace(_gate(node, State.FAILED, detail, *steps), levers=levers)


def taken(node: str, detail: str, other: Lever, *, by: Sequence[str] = (), by_hand: str = "") -> Gate:
    """What the launch wants is another's: it takes another one, or the engines that have it are stopped, or it is freed
    by hand."""
    levers = (*((Lever(stops=tuple(by)),) if by else ()), other)
    ways = (*(lever.text for lever in levers), *((f"on {node}: {by_hand}",) if by_hand else ()))
    return failed(node, detail, ", or ".join(ways), levers=levers)


def unknown(node: str, detail: str, *steps: str) -> Gate:
    return _gate(node, State.UNKNOWN, detail, *steps)


def judged(node: str, judgement: Judgement, detail: str, *steps: str) -> Gate:
    """The gate that shows a check's judgement; one that passed needs no remedy."""
    state = judgement.state.shown
    return _gate(node, state, detail, *(steps if state is not State.PASSED else ()))


def told(
    node: str, check: Check[Any], judgement: Judgement, *, levers: tuple[Lever, ...] = (), **figures: object
) -> Gate:
    """The gate that shows a check's judgement in the words of its card; one that passed needs no remedy."""
    said = found(check.id, judgement.case or "passed", {"why": judgement.unknown, **judgement.figures, **figures})
    steps = (step for remedy in said.remedies for step in _typed(remedy, node))
    return replace(judged(node, judgement, said.title, *steps), levers=levers)


def _typed(remedy: Remedy, node: str) -> tuple[str, ...]:
    """What to type for a remedy."""
    if remedy.action and node:
        return (f"sparktop act {remedy.action} {node}   # {remedy.title}",)
    first, *others = remedy.steps or (remedy.title,)
    return (f"on {node}: {first}" if node else first, *others)


def _gate(node: str, state: State, detail: str, *steps: str) -> Gate:
    """Masks and sanitises the texts: names of images, files and engines come from the nodes; `catalogue` names it."""
    detail, *cleaned = (sanitise.line(mask_text(text), limit=DETAIL_CHARS) for text in (detail, *steps))
    return Gate(name="", node=node, state=state, detail=detail, steps=tuple(filter(None, cleaned)))
