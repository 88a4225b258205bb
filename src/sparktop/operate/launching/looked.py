"""What was looked at before a launch, as the gates judge it, and how a gate is made. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparktop import sanitise
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Budget, Gate, GateState
from sparktop.model.recipe import Order
from sparktop.operate.survey import Ask, Survey
from sparktop.probe.remote import mask_text
from sparktop.recipe import parameters
from sparktop.recipe.moremodels import more_models
from sparktop.recipe.rendered import Rendered, Seat

GIB = 1 << 30
GB = 10**9
_PORTS = {EngineKind.VLLM: 8000, EngineKind.SGLANG: 30000}
_PARAMETER = re.compile(r"\{(\w{1,64})\}")
DETAIL_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """All that the gates are made from."""

    order: Order
    nodes: tuple[str, ...]
    """The head first."""
    picture: FleetState
    survey: Survey
    seats: tuple[Seat, ...] = ()
    rendered: Rendered | None = None
    unrendered: str = ""
    """Why there is no `rendered`: said by the gates that would judge it."""
    budget: Budget | None = None

    @property
    def head(self) -> str:
        return self.nodes[0]

    def view(self, node: str) -> NodeView | None:
        return self.picture.node(node)

    def seat(self, node: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.node == node), None)

    def is_stopped(self, node: str, *names: str) -> bool:
        """Whether one of these is agreed to be stopped there before the launch."""
        return any((node, name) in self.order.stops for name in names)


def value_of(order: Order, name: str) -> str:
    """A parameter as it will be used, by any of its names: the operator's, else the recipe's; empty: neither says."""
    given = parameters.get(order.values, name)
    own = {key: str(value) for key, value in order.recipe.defaults.items()}
    return given if given is not None else parameters.get(own, name) or ""


def filled(order: Order, text: str) -> str:
    """A recipe's text with its {parameters}; what isn't known stays as it stands."""
    for _ in range(4):
        again = _PARAMETER.sub(lambda found: value_of(order, found[1]) or found[0], text)
        if again == text:
            break
        text = again
    return text


def image_of(order: Order, rendered: Rendered | None = None) -> str:
    """The image that is launched."""
    if rendered:
        return rendered.image
    return filled(order, parameters.get(order.values, "container") or order.recipe.container)


def model_of(order: Order) -> str:
    """The model that is launched: a repository, or a path on the nodes."""
    return filled(order, parameters.get(order.values, "model") or order.recipe.model)


def revision_of(order: Order) -> str:
    """Of the model; empty: what the repository calls main."""
    given = parameters.get(order.values, "model_revision")
    if given is not None:
        return given
    if parameters.get(order.values, "model") is not None:  # the recipe's own is of the recipe's own model
        return ""
    return filled(order, order.recipe.model_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One that a launch loads."""

    name: str
    """A repository, or a path on the nodes."""
    revision: str = ""
    """Empty: what the repository calls main."""
    is_more: bool = False
    """It is one beside the launch's own."""


def own_model(order: Order) -> Model:
    """The one that is served."""
    return Model(name=model_of(order), revision=revision_of(order))


def models_of(order: Order) -> tuple[Model, ...]:
    """All that a launch loads, its own first, each once."""
    own = own_model(order)
    return (own, *(Model(name=name, is_more=True) for name in more_models(order) if name != own.name))


def port_of(order: Order, rendered: Rendered | None = None) -> int:
    """The port that it serves at."""
    if rendered:
        return rendered.port
    text = value_of(order, "port")
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else _PORTS[order.recipe.engine]


# --- gates


def passed(name: str, node: str, detail: str) -> Gate:
    return _gate(name, node, GateState.PASSED, detail, "")


def warned(name: str, node: str, detail: str, remedy: str) -> Gate:
    return _gate(name, node, GateState.WARNED, detail, remedy)


def failed(name: str, node: str, detail: str, remedy: str) -> Gate:
    return _gate(name, node, GateState.FAILED, detail, remedy)


def unknown(name: str, node: str, detail: str, remedy: str = "") -> Gate:
    return _gate(name, node, GateState.UNKNOWN, detail, remedy)


def _gate(name: str, node: str, state: GateState, detail: str, remedy: str) -> Gate:
    """Names of images, files and engines come from the nodes: none reaches a terminal as it is."""
    return Gate(
        name=name,
        node=node,
        state=state,
        detail=sanitise.line(mask_text(detail), limit=DETAIL_CHARS),
        remedy=sanitise.line(mask_text(remedy), limit=DETAIL_CHARS),
    )


def why_not(survey: Survey, ask: Ask, otherwise: str) -> str:
    """Why an answer is missing, in its own words where it has some."""
    return survey.problem(ask) or otherwise


def gb(size: float) -> str:
    """A size on disk, as registries and hubs count it: "34.6 GB"."""
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.0f} MB"
