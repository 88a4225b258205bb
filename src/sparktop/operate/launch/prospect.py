"""Everything known before a launch: gate inputs, engines to stop, downloads, gates, and the prospect for the review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.cmdline.engine_command import of_container
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.engines.memory_target import held_bytes
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Budget, Prospect
from sparktop.model.recipe import Order
from sparktop.model.survey import Survey
from sparktop.operate.launch import engines_to_stop, name_holder
from sparktop.operate.launch.engines_to_stop import EngineToStop
from sparktop.operate.launch.gates import catalogue
from sparktop.operate.launch.inputs import compose_service
from sparktop.operate.launch.inputs.docker import docker_there, with_pulled_image
from sparktop.operate.launch.inputs.download_steps import fetch
from sparktop.operate.launch.inputs.downloads import models_on_nodes, node_contexts
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.operate.launch.inputs.link import fabrics
from sparktop.operate.launch.planned_rank import room_for
from sparktop.recipe import export
from sparktop.recipe.container_spec import CannotRender, Rendered
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.models import on_disk
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render
from sparktop.recipe.weigh.budget import alternatives, budget
from sparktop.recipe.weigh.node_memory import Room
from sparktop.text.units import GIB

LEAST_BYTES = GIB // 2
"""A process that holds less is left out of the memory budget."""


def room_of(node: str, view: NodeView | None, engines: Sequence[EngineToStop]) -> Room:
    """Memory of a node for the budget; one without figures has none."""
    if view is None or view.sample is None:
        return Room(node=node, total_bytes=0, available_bytes=0)
    memory = view.sample.memory
    stopped = tuple(
        (engine.name, engine.held_bytes_on(node))
        for engine in engines
        if any(rank.node == node for rank in engine.ranks)
    )
    gone = {rank.engine.key for engine in engines for rank in engine.ranks if rank.node == node}
    names = {rank.engine.name for engine in engines for rank in engine.ranks if rank.node == node}
    stays = tuple(_staying(view, gone, names))
    living = {engine.name for engine in view.engines if is_alive(engine)}
    return Room(
        node=node,
        total_bytes=memory.total_bytes,
        available_bytes=memory.available_bytes,
        going=stopped,
        stays=stays,
        stoppable=tuple(name for name, _ in stays if name in living),
        has_desktop=view.facts.is_graphical if view.facts is not None else None,
        baseline_bytes=view.baseline.after_boot_available_bytes if view.baseline is not None else None,
        taken=view.baseline.taken if view.baseline is not None else (),
    )


def _staying(view: NodeView, gone: set[str], names: set[str]) -> Iterator[tuple[str, int]]:
    """(name, bytes) of engines that keep running, then of other GPU processes."""
    for engine in view.engines:
        size = held_bytes(engine, view) or 0
        if is_alive(engine) and engine.key not in gone and size >= LEAST_BYTES:
            yield engine.name, size
    for holder in view.ledger.holders if view.ledger is not None else ():
        if holder.kind == "gpu" and holder.label not in names and holder.held_bytes >= LEAST_BYTES:
            yield holder.label, holder.held_bytes


def launch_inputs(
    order: Order, nodes: Sequence[str], picture: FleetState, survey: Survey
) -> tuple[GateInputs, Prospect]:
    """All of it, and as the review shows it; a refusal only where an engine to stop can't be stopped."""
    engines = engines_to_stop.chosen(order, picture, survey)
    compose = compose_service.service_launch(order, nodes, survey)
    order = compose.as_written(order) if compose is not None else order
    values = with_pulled_image(resolve(replace(order, stops=engines_to_stop.every_name(engines))), nodes, survey)
    order, links = values.order, fabrics(nodes, picture, survey)
    docker = {node: docker_there(survey, node, values.image) for node in nodes}
    contexts = node_contexts(values, nodes, links, survey)
    models = models_on_nodes(values, contexts, survey)
    served, *more = models
    models_on_disk = alternatives(served.name, on_disk(served.disks), loads_gguf=served.wanted is not None)
    if served.wanted is not None:  # another quant of it isn't it
        is_there = not served.lacking
        models_on_disk = tuple(replace(one, is_complete=is_there) if one.is_wanted else one for one in models_on_disk)
    render_error: CannotRender | None = None
    used_values: Mapping[str, str] = {}
    memory_budget: Budget | None = None
    rendered: Rendered | None = None
    try:
        used_values = values.checked()
        contexts = tuple(map(served.with_files, contexts))
        places = tuple(room_of(node, picture.node(node), engines) for node in nodes)
        command = None
        if any(place.taken for place in places):
            command = of_container(render(values, contexts).head.argv, image=values.image)
        memory_budget = budget(
            values,
            places,
            served.facts,
            on_disk=models_on_disk,
            beside=tuple(model.facts or ModelFacts(name=model.name, weights_bytes=None) for model in more),
            command=command,
        )
        rendered = render(values, contexts, share=memory_budget.share)
        used_values = rendered.values
    except CannotRender as why:
        render_error = why
    inputs = GateInputs(
        values=values,
        nodes=tuple(nodes),
        picture=picture,
        survey=survey,
        links=links,
        docker=docker,
        contexts=contexts,
        models=models,
        fetch=fetch(models, docker),
        rendered=rendered,
        render_error=render_error,
        budget=memory_budget,
        engines_to_stop=engines,
        compose=compose,
    )
    recipe = order.recipe
    shares = {} if recipe.engine.traits.share_flag or memory_budget is None else dict(_waits(memory_budget))
    prospect = Prospect(
        recipe_id=recipe.id,
        title=values.model.rstrip("/").rpartition("/")[2] or recipe.id,
        nodes=tuple(nodes),
        values=used_values,
        budget=memory_budget,
        gates=catalogue.gates(inputs),
        on_disk=tuple(models_on_disk),
        fetches=inputs.fetch.downloads,
        risks=recipe.risks,
        runs=name_holder.running_already(rendered, docker) if rendered else (),
        files={
            kind: export.files(rendered, kind, muted=recipe.muted, shares=shares) for kind in export.KINDS if rendered
        },
    )
    return inputs, prospect


def _waits(budget: Budget) -> Iterator[tuple[str, str]]:
    """(node, share of its memory that a unit waits for): as the launch itself, else what the host needs."""
    for node in budget.nodes:
        target_bytes, _ = room_for(node)
        yield node.node, export.share_of(target_bytes or HOST_BYTES, node.total_bytes)
