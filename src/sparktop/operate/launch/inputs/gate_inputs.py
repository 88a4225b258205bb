"""Inputs to the pre-launch checks: the order's values, models on the nodes and the hub, and each node's context."""

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
from sparktop.model.prospect import Budget, Gate, Lever
from sparktop.model.recipe import Order
from sparktop.model.state import State
from sparktop.model.survey import Ask, HubModel, ModelsOnDisk, Survey
from sparktop.operate.launch.inputs.link import fabrics
from sparktop.recipe.container_spec import NodeContext, Rendered
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.models import HubListing, NodeModels, hub_listing_of, is_path, is_repo, node_models_of
from sparktop.recipe.operator_secrets import HUB_TOKEN
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.model_mounts import is_inside, more_models, own_cache

GB = 10**9


DETAIL_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInputs:
    """Inputs to the pre-launch checks."""

    order: Order
    nodes: tuple[str, ...]
    """The head first."""
    picture: FleetState
    survey: Survey
    contexts: tuple[NodeContext, ...] = ()
    rendered: Rendered | None = None
    unrendered: str = ""
    """Why `rendered` is None; shown by the gates that need it."""
    budget: Budget | None = None

    @property
    def head(self) -> str:
        return self.nodes[0]

    @property
    def image(self) -> str:
        """The image that is launched."""
        return self.rendered.image if self.rendered is not None else resolve(self.order).image

    def view(self, node: str) -> NodeView | None:
        return self.picture.node(node)

    def is_stopped(self, node: str, *names: str) -> bool:
        """Whether the operator agreed to stop one of these there before the launch."""
        return any((node, name) in self.order.stops for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that a launch loads."""

    name: str
    """A repository, or a path on the nodes."""
    revision: str = ""
    """Empty: the repository's main branch."""
    is_more: bool = False
    """Whether it is loaded besides the launch's main model, such as a draft."""


def own_model(order: Order) -> Model:
    """The model that is served."""
    values = resolve(order)
    return Model(name=values.model, revision=values.revision)


def models_of(order: Order) -> tuple[Model, ...]:
    """Every model that a launch loads, the served one first."""
    served = own_model(order)
    return (served, *(Model(name=name, is_more=True) for name in more_models(order) if name != served.name))


def port_of(order: Order, rendered: Rendered | None = None) -> int:
    """The port that the engine will serve on."""
    if rendered:
        return rendered.port
    text = resolve(order).get("port") or ""
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else order.recipe.engine.traits.port


# --- gates


def passed(name: str, node: str, detail: str) -> Gate:
    return _gate(name, node, State.PASSED, detail)


def warned(name: str, node: str, detail: str, *steps: str) -> Gate:
    return _gate(name, node, State.WARNING, detail, *steps)


def failed(name: str, node: str, detail: str, *steps: str, levers: tuple[Lever, ...] = ()) -> Gate:
    return replace(_gate(name, node, State.FAILED, detail, *steps), levers=levers)


def unknown(name: str, node: str, detail: str, *steps: str) -> Gate:
    return _gate(name, node, State.UNKNOWN, detail, *steps)


def judged(name: str, node: str, judgement: Judgement, detail: str, *steps: str) -> Gate:
    """The gate that shows a check's judgement; one that passed needs no remedy."""
    state = judgement.state.shown
    return _gate(name, node, state, detail, *(steps if state is not State.PASSED else ()))


def told(
    name: str, node: str, check: Check[Any], judgement: Judgement, *, levers: tuple[Lever, ...] = (), **figures: object
) -> Gate:
    """The gate that shows a check's judgement in the words of its card; one that passed needs no remedy."""
    said = found(check.id, judgement.case or "passed", {"why": judgement.unknown, **judgement.figures, **figures})
    steps = (step for remedy in said.remedies for step in _typed(remedy, node))
    return replace(judged(name, node, judgement, said.title, *steps), levers=levers)


def _typed(remedy: Remedy, node: str) -> tuple[str, ...]:
    """What to type for a remedy."""
    if remedy.action and node:
        return (f"sparktop act {remedy.action} {node}   # {remedy.title}",)
    first, *others = remedy.steps or (remedy.title,)
    return (f"on {node}: {first}" if node else first, *others)


def _gate(name: str, node: str, state: State, detail: str, *steps: str) -> Gate:
    """Masks and sanitises the texts: names of images, files and engines come from the nodes."""
    detail, *cleaned = (sanitise.line(mask_text(text), limit=DETAIL_CHARS) for text in (detail, *steps))
    return Gate(name=name, node=node, state=state, detail=detail, steps=tuple(filter(None, cleaned)))


def why_unanswered(survey: Survey, ask: Ask, otherwise: str) -> str:
    """Why a question has no answer: its own problem, else `otherwise`."""
    return survey.problem(ask) or otherwise


def gb(size: float) -> str:
    """A size on disk, as registries and hubs count it: "34.6 GB"."""
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.0f} MB"


def disk_ask(node: str, order: Order | None = None) -> ModelsOnDisk:
    """Asks for the models on a node, in the cache that the order's recipe mounts where it does."""
    return ModelsOnDisk(node=node, cache=own_cache(order.recipe) if order is not None else "")


def model_folders_ask(order: Order, node: str) -> ModelsOnDisk | None:
    """Asks for models given by path, outside of the usual folders; None where there are none."""
    paths = [model.name for model in models_of(order) if is_path(model.name)]
    roots = tuple(name for name in paths if not is_inside(order.recipe, name))
    return ModelsOnDisk(node=node, roots=roots, cache=own_cache(order.recipe)) if roots else None


def hub_ask(order: Order, node: str, model: Model | None = None) -> HubModel | None:
    """Asks the hub about a model (the main one by default); None where it is a path."""
    target = model or own_model(order)
    if not is_repo(target.name):
        return None
    return HubModel(
        node=node,
        repo=target.name,
        revision=target.revision or "main",
        hub=order.hub,
        token=order.secrets.get(HUB_TOKEN, ""),
    )


def disks(nodes: Sequence[str], survey: Survey) -> Mapping[str, NodeModels]:
    """Models on disk by node, for nodes that answered; of several answers, the one that covers most folders."""
    by_node: dict[str, NodeModels] = {}
    for ask in sorted(
        (question for question in survey.answers if isinstance(question, ModelsOnDisk)),
        key=lambda question: len(question.roots),
    ):
        if ask.node in nodes and (disk := node_models_of(ask.node, survey.value(ask))) is not None:
            by_node[ask.node] = disk
    return {node: by_node[node] for node in nodes if node in by_node}


def hub(order: Order, nodes: Sequence[str], survey: Survey, model: Model | None = None) -> HubListing | None:
    """What the hub says about the model, a positive answer first; None where there is none."""
    target = model or own_model(order)
    answers = [
        hub_listing_of(target.name, survey.value(ask))
        for node in nodes
        if (ask := hub_ask(order, node, target)) is not None and ask in survey.answers
    ]
    return min(answers, key=lambda answer: not answer.is_there, default=None)


def facts(order: Order, nodes: Sequence[str], survey: Survey, model: Model | None = None) -> ModelFacts | None:
    """Facts of a model (the main one by default): from complete files on a node, else the hub, else partial files."""
    target = model or own_model(order)
    copies = [disk.find(target.name, target.revision) for disk in disks(nodes, survey).values()]
    existing = [copy for copy in copies if copy is not None]
    if complete := next((copy for copy in existing if copy.is_complete), None):
        return complete.facts
    answer = hub(order, nodes, survey, target)
    if answer is not None and answer.facts is not None:
        return answer.facts
    return existing[0].facts if existing else None


def extra_models(order: Order, nodes: Sequence[str], survey: Survey) -> tuple[ModelFacts, ...]:
    """Facts of the further models; one without an answer has no figures."""
    return tuple(
        facts(order, nodes, survey, model) or ModelFacts(name=model.name, weights_bytes=None)
        for model in models_of(order)
        if model.is_more
    )


def node_contexts(order: Order, nodes: Sequence[str], picture: FleetState, survey: Survey) -> tuple[NodeContext, ...]:
    """What a recipe is rendered with for each node, head first."""
    links, disks_by_node = fabrics(nodes, picture, survey), disks(nodes, survey)
    served, *extra = models_of(order)
    contexts = []
    for index, node in enumerate(nodes):
        disk, link = disks_by_node.get(node), links.get(node)
        copy = disk.find(served.name, served.revision) if disk is not None else None
        contexts.append(
            NodeContext(
                node=node,
                index=index,
                home=disk.home if disk is not None else "",
                cache=disk.cache if disk is not None else "",
                model_path=copy.path if copy is not None and copy.is_complete else "",
                lacking=tuple(model.name for model in extra if not _is_whole(disk, model)),
                fabric_ip=link.ip if link is not None else "",
                fabric_interface=link.interface if link is not None else "",
                hcas=link.hcas if link is not None else (),
                gid_index=link.gid_index if link is not None else None,
                is_ring=link is not None and link.is_ring,
            )
        )
    return tuple(contexts)


def _is_whole(disk: NodeModels | None, model: Model) -> bool:
    copy = disk.find(model.name, model.revision) if disk is not None else None
    return copy is not None and copy.is_complete
