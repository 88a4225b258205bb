"""Each node as a recipe is rendered for it: home, cache, the model's files, and its end of the link. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.operate.launching.fabric import fabrics
from sparktop.operate.launching.looked import model_of, revision_of
from sparktop.operate.survey import HubModel, ModelsOnDisk, Survey
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.models import Disk, Hub, disk_of, hub_of, is_path, is_repo
from sparktop.recipe.rendered import Seat

TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name


def disk_ask(node: str) -> ModelsOnDisk:
    """The models that a node has."""
    return ModelsOnDisk(node=node)


def place_ask(order: Order, node: str) -> ModelsOnDisk | None:
    """For a model that is named by its place, and doesn't lie where models are looked for."""
    model = model_of(order)
    return ModelsOnDisk(node=node, roots=(model,)) if is_path(model) else None


def hub_ask(order: Order, node: str) -> HubModel | None:
    """What the hub says of the model; None for one that is a path."""
    repo = model_of(order)
    if not is_repo(repo):
        return None
    return HubModel(
        node=node,
        repo=repo,
        revision=revision_of(order) or "main",
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


def hub(order: Order, nodes: Sequence[str], survey: Survey) -> Hub | None:
    """As the first node that it answered was told; None where none was asked."""
    found = [
        hub_of(model_of(order), survey.value(ask))
        for node in nodes
        if (ask := hub_ask(order, node)) is not None and ask in survey.answers
    ]
    return min(found, key=lambda one: not one.is_there, default=None)


def is_missing(order: Order, nodes: Sequence[str], survey: Survey) -> bool:
    """Whether a node that could be asked lacks the model, or has half of it."""
    return any(
        (one := disk.find(model_of(order), revision_of(order))) is None or not one.is_complete
        for disk in disks(nodes, survey).values()
    )


def facts(order: Order, nodes: Sequence[str], survey: Survey) -> ModelFacts | None:
    """Of the model: by its own files where a node has them whole, else by the hub, else by what is there of it."""
    found = [disk.find(model_of(order), revision_of(order)) for disk in disks(nodes, survey).values()]
    there = [one for one in found if one is not None]
    if whole := next((one for one in there if one.is_complete), None):
        return whole.facts
    said = hub(order, nodes, survey)
    if said is not None and said.facts is not None:
        return said.facts
    return there[0].facts if there else None


def seats(order: Order, nodes: Sequence[str], picture: FleetState, survey: Survey) -> tuple[Seat, ...]:
    """One for each node, the head first."""
    links, there = fabrics(nodes, picture, survey), disks(nodes, survey)
    found = []
    for index, node in enumerate(nodes):
        disk, link = there.get(node), links.get(node)
        model = disk.find(model_of(order), revision_of(order)) if disk is not None else None
        found.append(
            Seat(
                node=node,
                index=index,
                home=disk.home if disk is not None else "",
                cache=disk.cache if disk is not None else "",
                model_path=model.path if model is not None and model.is_complete else "",
                fabric_ip=link.ip if link is not None else "",
                fabric_interface=link.interface if link is not None else "",
                hcas=link.hcas if link is not None else (),
                gid_index=link.gid_index if link is not None else None,
            )
        )
    return tuple(found)
