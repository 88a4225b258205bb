"""Each node as a recipe is rendered for it: home, cache, the model's files, and its end of the link. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.operate.launching.fabric import fabrics
from sparktop.operate.launching.looked import Model, models_of, own_model
from sparktop.operate.survey import HubModel, ModelsOnDisk, Survey
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.models import Disk, Hub, disk_of, hub_of, is_path, is_repo
from sparktop.recipe.rendered import Seat

TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name


def disk_ask(node: str) -> ModelsOnDisk:
    """The models that a node has."""
    return ModelsOnDisk(node=node)


def place_ask(order: Order, node: str) -> ModelsOnDisk | None:
    """For models that are named by their place, one of which doesn't lie where models are looked for."""
    roots = tuple(one.name for one in models_of(order) if is_path(one.name))
    return ModelsOnDisk(node=node, roots=roots) if roots else None


def hub_ask(order: Order, node: str, model: Model | None = None) -> HubModel | None:
    """What the hub says of a model, the launch's own unless told otherwise; None for one that is a path."""
    one = model or own_model(order)
    if not is_repo(one.name):
        return None
    return HubModel(
        node=node,
        repo=one.name,
        revision=one.revision or "main",
        hub=order.hub,
        token=order.secrets.get(TOKEN, ""),
    )


def disks(nodes: Sequence[str], survey: Survey) -> Mapping[str, Disk]:
    """By node, of those that could be asked; what was asked of a place besides has it all."""
    found: dict[str, Disk] = {}
    for ask in sorted((one for one in survey.answers if isinstance(one, ModelsOnDisk)), key=lambda one: len(one.roots)):
        if ask.node in nodes and (disk := disk_of(ask.node, survey.value(ask))) is not None:
            found[ask.node] = disk
    return {node: found[node] for node in nodes if node in found}


def hub(order: Order, nodes: Sequence[str], survey: Survey, model: Model | None = None) -> Hub | None:
    """As the first node that it answered was told; None where none was asked."""
    one = model or own_model(order)
    found = [
        hub_of(one.name, survey.value(ask))
        for node in nodes
        if (ask := hub_ask(order, node, one)) is not None and ask in survey.answers
    ]
    return min(found, key=lambda one: not one.is_there, default=None)


def facts(order: Order, nodes: Sequence[str], survey: Survey, model: Model | None = None) -> ModelFacts | None:
    """Of a model, the launch's own unless told otherwise: by its own files where a node has them whole, else by the
    hub, else by what is there of it."""
    wanted = model or own_model(order)
    found = [disk.find(wanted.name, wanted.revision) for disk in disks(nodes, survey).values()]
    there = [one for one in found if one is not None]
    if whole := next((one for one in there if one.is_complete), None):
        return whole.facts
    said = hub(order, nodes, survey, wanted)
    if said is not None and said.facts is not None:
        return said.facts
    return there[0].facts if there else None


def beside(order: Order, nodes: Sequence[str], survey: Survey) -> tuple[ModelFacts, ...]:
    """Of the further models; one that can't be looked at yet has no figures."""
    return tuple(
        facts(order, nodes, survey, one) or ModelFacts(name=one.name, weights_bytes=None)
        for one in models_of(order)
        if one.is_more
    )


def seats(order: Order, nodes: Sequence[str], picture: FleetState, survey: Survey) -> tuple[Seat, ...]:
    """One for each node, the head first."""
    links, there = fabrics(nodes, picture, survey), disks(nodes, survey)
    own, *more = models_of(order)
    found = []
    for index, node in enumerate(nodes):
        disk, link = there.get(node), links.get(node)
        model = disk.find(own.name, own.revision) if disk is not None else None
        found.append(
            Seat(
                node=node,
                index=index,
                home=disk.home if disk is not None else "",
                cache=disk.cache if disk is not None else "",
                model_path=model.path if model is not None and model.is_complete else "",
                lacking=tuple(one.name for one in more if not _is_whole(disk, one)),
                fabric_ip=link.ip if link is not None else "",
                fabric_interface=link.interface if link is not None else "",
                hcas=link.hcas if link is not None else (),
                gid_index=link.gid_index if link is not None else None,
            )
        )
    return tuple(found)


def _is_whole(disk: Disk | None, model: Model) -> bool:
    found = disk.find(model.name, model.revision) if disk is not None else None
    return found is not None and found.is_complete
