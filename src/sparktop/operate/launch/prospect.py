"""Everything known before a launch: gate inputs, engines to stop, downloads, gates, and the prospect for the review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.cmdline.engine_command import of_container
from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import held_bytes
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Budget, Gate, Prospect
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.model.survey import Ask, AskPrivileges, Survey
from sparktop.operate.launch import compiled, make_room, name_holder, patching
from sparktop.operate.launch.gates import catalogue
from sparktop.operate.launch.inputs import download_steps, gate_inputs, link
from sparktop.operate.launch.inputs.docker import with_pulled_image
from sparktop.operate.launch.inputs.download_steps import Fetch
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.operate.launch.make_room import EngineToStop
from sparktop.operate.refused import Refused
from sparktop.recipe import export
from sparktop.recipe.container_spec import CannotRender, Rendered
from sparktop.recipe.models import on_disk
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render
from sparktop.recipe.weigh.budget import alternatives, budget
from sparktop.recipe.weigh.node_memory import Room
from sparktop.text.units import GIB

LEAST_BYTES = GIB // 2
"""A process that holds less is left out of the memory budget."""


def rooms(nodes: Sequence[str], picture: FleetState, engines: Sequence[EngineToStop]) -> tuple[Room, ...]:
    """Memory of each node for the budget, in order; a node without figures has none."""
    return tuple(_room(node, picture.node(node), engines) for node in nodes)


def _room(node: str, view: NodeView | None, engines: Sequence[EngineToStop]) -> Room:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInputs:
    """What the launch planner works with."""

    gate_inputs: GateInputs
    engines_to_stop: tuple[EngineToStop, ...]
    fetch: Fetch
    gates: tuple[Gate, ...]
    prospect: Prospect
    render_error: CannotRender | None = None
    """Why the recipe can't be rendered; None: it can."""

    @property
    def order(self) -> Order:
        return self.gate_inputs.order

    @property
    def rendered(self) -> Rendered | None:
        return self.gate_inputs.rendered

    @property
    def budget(self) -> Budget | None:
        return self.gate_inputs.budget


def asks(request: Request, picture: FleetState, survey: Survey) -> Iterator[Ask]:
    """Questions about everything a launch depends on, in rounds."""
    order, nodes = request.order, request.nodes
    if order is None:
        return
    yield from (AskPrivileges(node=node) for node in nodes)
    yield from (gate_inputs.disk_ask(node, order) for node in nodes)
    yield from make_room.asks(request, picture)
    yield from link.asks(nodes, picture)
    try:
        inputs = launch_inputs(request, picture, survey)
    except Refused:
        return
    yield from catalogue.asks(inputs.gate_inputs)
    if inputs.rendered is not None:
        yield from name_holder.asks(inputs.rendered, survey)
        yield from patching.asks(inputs.rendered)
        yield from compiled.asks(inputs.rendered)
    yield from download_steps.asks(inputs.order, inputs.gate_inputs.contexts, survey)


def launch_inputs(request: Request, picture: FleetState, survey: Survey) -> LaunchInputs:
    """All of it; a refusal only where an engine to stop can't be stopped."""
    order, nodes = request.order, request.nodes
    assert order is not None  # checked by the planner
    engines = make_room.engines_to_stop(request, picture, survey)
    order = with_pulled_image(replace(order, stops=make_room.every_name(engines)), nodes, survey)
    contexts = gate_inputs.node_contexts(order, nodes, picture, survey)
    values = resolve(order)
    disks = gate_inputs.disks(nodes, survey)
    models_on_disk = alternatives(order, on_disk(disks, values.model, values.revision))
    render_error: CannotRender | None = None
    used_values: Mapping[str, str] = {}
    memory_budget: Budget | None = None
    rendered: Rendered | None = None
    try:
        used_values = values.checked()
        places = rooms(nodes, picture, engines)
        command = None
        if any(place.taken for place in places):
            command = of_container(render(order, contexts).head.argv, image=values.image)
        memory_budget = budget(
            order,
            places,
            gate_inputs.facts(order, nodes, survey),
            values=used_values,
            on_disk=models_on_disk,
            beside=gate_inputs.extra_models(order, nodes, survey),
            command=command,
        )
        rendered = render(order, contexts, share=memory_budget.share)
        used_values = rendered.values
    except CannotRender as why:
        render_error = why
    inputs = GateInputs(
        order=order,
        nodes=tuple(nodes),
        picture=picture,
        survey=survey,
        contexts=contexts,
        rendered=rendered,
        unrendered=render_error.reason if render_error is not None else "",
        budget=memory_budget,
    )
    fetch = download_steps.fetch(order, contexts, survey)
    gates = tuple(catalogue.gates(inputs))
    recipe = order.recipe
    prospect = Prospect(
        recipe_id=recipe.id,
        title=title_of(order),
        nodes=tuple(nodes),
        values=used_values,
        budget=memory_budget,
        gates=gates,
        on_disk=tuple(models_on_disk),
        fetches=fetch.downloads,
        risks=recipe.risks,
        runs=name_holder.running_already(rendered, survey) if rendered else (),
        files={kind: export.files(rendered, kind, muted=recipe.muted) for kind in export.KINDS} if rendered else {},
    )
    return LaunchInputs(
        gate_inputs=inputs,
        engines_to_stop=engines,
        fetch=fetch,
        gates=gates,
        prospect=prospect,
        render_error=render_error,
    )


def title_of(order: Order) -> str:
    """A short title: the model's own name."""
    return resolve(order).model.rstrip("/").rpartition("/")[2] or order.recipe.id
