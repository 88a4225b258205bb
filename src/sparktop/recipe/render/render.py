"""Render a recipe for the nodes it is launched on: the argv of each rank and the container it runs in.

What was detected on a node comes in with its `NodeContext`, what the operator asks for with the `Order`. The result is
an argv list and a container specification per rank, never a shell string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparktop.cmdline import engine_argv as flags
from sparktop.engines import labels
from sparktop.engines.images import Family, family_of
from sparktop.masking import is_secret_name
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order, Recipe
from sparktop.recipe import parameters
from sparktop.recipe.container_spec import CannotRender, ContainerSpec, Mount, NodeContext, Rendered, RenderedRank
from sparktop.recipe.patches import PatchedImage, patched_image
from sparktop.recipe.render import rank_argv
from sparktop.recipe.render.compiled import TARGET, compiled_mount, compiled_variables
from sparktop.recipe.render.engine_argv import RenderInputs, engine_argv, refuse_secrets
from sparktop.recipe.render.environment import variables
from sparktop.recipe.render.host_config import Options, options
from sparktop.recipe.render.model_mounts import ModelPlace, expand_home, is_inside, model_place, more_models

_KEEPS_ENTRYPOINT = (Family.NGC, Family.LMSYS)
"""Image families whose entrypoint sets up the driver's libraries and then runs its arguments. Other images' entrypoint
may be the engine itself, which would get the whole command as its arguments (docs/facts/engines.md 5.3)."""


def render(order: Order, nodes: Sequence[NodeContext], *, share: float | None = None, launch: str = "") -> Rendered:
    """The launch as it would be started on these nodes; the first node is the head.

    Args:
        share: --gpu-memory-utilization or --mem-fraction-static; overrides the recipe.
        launch: the launch's id, for the labels of all its containers.

    Raises:
        CannotRender: the recipe can't become a launch; the reason names the field.
    """
    recipe = order.recipe
    _check_nodes(recipe, nodes)
    launch_values = parameters.resolve(order)
    final_values, fixed = launch_values.checked(), set(launch_values.set_names)
    if share is not None:
        spellings = (*final_values, *parameters.named_in(recipe), parameters.SHARE)
        name = next(spelling for spelling in spellings if parameters.main_name(spelling) == parameters.SHARE)
        final_values[name] = _share_text(final_values.get(name, ""), share)
        fixed.add(name)
    executor = rank_argv.executor_for(recipe.executor, recipe.engine, len(nodes))
    notes = [] if len(nodes) > 1 else _limit_to_one_node(final_values, fixed)
    launch_inputs = RenderInputs(
        order=order,
        values=final_values,
        fixed=frozenset(fixed),
        executor=executor,
        seats=nodes,
        name=container_name(parameters.get(final_values, "name") or f"{recipe.engine}-{recipe.id}"),
        launch=launch,
    )
    patched = patched_image(final_values["container"], recipe.patches, final_values)
    ranks = [_rank(launch_inputs, node, patched) for node in nodes]
    head = ranks[0][0].argv
    notes += [note for _, rank_notes in ranks for note in rank_notes]
    return Rendered(
        recipe_id=recipe.id,
        engine=recipe.engine,
        image=final_values["container"],
        ranks=tuple(rank for rank, _ in ranks),
        port=_port(head, recipe.engine),
        served_name=flags.value_of(head, "served-model-name") or final_values["model"],
        values=final_values,
        notes=tuple(dict.fromkeys(notes)),
        patched=patched,
    )


def container_name(text: str) -> str:
    """The text as a valid Docker name: letters, digits, `_`, `.` and `-`, the first a letter or digit."""
    plain = re.sub(r"-*[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:100]
    return plain if len(plain) > 1 else f"engine-{plain or 'launch'}"


def _check_nodes(recipe: Recipe, nodes: Sequence[NodeContext]) -> None:
    count = len(nodes)
    if not recipe.min_nodes <= count <= max(recipe.max_nodes, recipe.min_nodes):
        allowed = str(recipe.min_nodes)
        if recipe.max_nodes > recipe.min_nodes:
            allowed += f" to {recipe.max_nodes}"
        raise CannotRender(
            f"{recipe.id} is for {allowed} node{'s' if allowed != '1' else ''}, "
            f"and {count} {'is' if count == 1 else 'are'} named"
        )
    if count > 1 and (bare := [node.node for node in nodes if not node.fabric_ip]):
        raise CannotRender(
            f"{' and '.join(bare)} {'has' if len(bare) == 1 else 'have'} no address in a network of all the nodes",
            "give every node an address in one subnet (netplan), then check that they ping each other",
        )


def _share_text(text: str, share: float) -> str:
    """The share as the recipe writes it where the value is the same ("0.70"), else formatted."""
    try:
        return text if float(text) == share else f"{share:g}"
    except ValueError:
        return f"{share:g}"


def _limit_to_one_node(final_values: dict[str, str], fixed: Collection[str]) -> list[str]:
    """Set parallelism to 1 on one node, as the recipe's own launchers do; returns notes."""
    notes = []
    for main in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        for name, value in final_values.items():
            if parameters.main_name(name) == main and value != "1" and name not in fixed:
                final_values[name] = "1"
                notes.append(f"sparktop sets {name} to 1, not {value}: one node has one GPU")
    return notes


def _rank(inputs: RenderInputs, node: NodeContext, patched: PatchedImage | None) -> tuple[RenderedRank, list[str]]:
    recipe, more = inputs.recipe, more_models(inputs.order)
    inputs = replace(inputs, values=expand_home(inputs.values, more, node))
    name = inputs.values["model"]
    model = ModelPlace(named=name, is_inside=True) if is_inside(recipe, name) else model_place(name, node)
    argv, own = engine_argv(inputs, node, model)
    argv, notes = rank_argv.with_rank_flags(
        argv,
        recipe.engine,
        inputs.executor,
        node,
        inputs.seats,
        port=inputs.values.get("master_port") or str(rank_argv.MASTER_PORT),
    )
    container_options = options(recipe.options, node, nodes=len(inputs.seats))
    cache = model.cache_target(container_options.user, recipe.environment.get("HF_HOME", ""))
    taken = [mount.target for mount in container_options.mounts]
    image = patched.name if patched is not None else inputs.values["container"]
    compiled = compiled_mount(node, container_options.user, image=image, model=inputs.values["model"])
    keeps = compiled if recipe.keeps_compiled and TARGET not in taken else None
    mounts = (*model.mounts(node, cache, argv, more=more), *filter(None, (keeps, _sparkruns_cache(recipe, node))))
    rank_variables = variables(
        inputs.order,
        inputs.values,
        node,
        inputs.seats,
        executor=inputs.executor,
        own={
            **(compiled_variables(recipe.engine, taken) if keeps else {}),
            **own,
            **({} if cache == model.ROOT_CACHE or not node.cache else {"HF_HOME": cache}),
        },
    )
    refuse_secrets(argv, inputs.order)
    command, shown = list(argv), argv
    if inputs.executor is Executor.RAY:
        command, shown = _under_ray(inputs, node, argv)
    container = ContainerSpec(
        name=inputs.name,
        image=image,
        argv=tuple(command),
        entrypoint=_entrypoint(inputs.values["container"], container_options),
        environment=rank_variables.environment,
        secret_names=rank_variables.secret_names,
        detected_names=rank_variables.detected_names,
        mounts=(*(mount for mount in mounts if mount.target not in taken), *container_options.mounts),
        host=_host_config(container_options, argv, recipe.engine),
        labels={**container_options.labels, **_container_labels(inputs, node)},
        user=container_options.user,
        workdir=container_options.workdir,
    )
    rank = RenderedRank(
        node=node.node, index=node.index, container=container, argv=tuple(shown), serves=node.index == 0
    )
    return rank, [*notes, *rank_variables.notes, *container_options.notes]


_SPARKRUN_CACHE = "/cache/huggingface"


def _sparkruns_cache(recipe: Recipe, node: NodeContext) -> Mount | None:
    """The hub's cache where sparkrun mounts it, for a recipe that names files there."""
    texts = (recipe.command, *recipe.environment.values(), *(patch.command for patch in recipe.patches))
    is_named = any(_SPARKRUN_CACHE in text for text in texts)
    return Mount(source=node.cache, target=_SPARKRUN_CACHE) if is_named and node.cache else None


def _under_ray(inputs: RenderInputs, node: NodeContext, argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    address = inputs.seats[0].fabric_ip
    port = inputs.values.get("ray_port") or str(rank_argv.RAY_PORT)
    if node.index == 0:
        return rank_argv.head_command(argv, nodes=len(inputs.seats), address=address, port=port), tuple(argv)
    return (
        rank_argv.worker_command(address=address, port=port, own=node.fabric_ip),
        rank_argv.worker_argv(address=address, port=port, own=node.fabric_ip),
    )


def _entrypoint(image: str, opts: Options) -> tuple[str, ...] | None:
    if opts.entrypoint is not None:
        return opts.entrypoint
    return None if family_of(image) in _KEEPS_ENTRYPOINT else ()


def _host_config(opts: Options, argv: Sequence[str], engine: EngineKind) -> dict[str, object]:
    host = dict(opts.host)
    if host.get("NetworkMode") not in ("host", "none") and not str(host.get("NetworkMode")).startswith("container:"):
        port = str(_port(argv, engine))
        host["PortBindings"] = {f"{port}/tcp": [{"HostIp": opts.publish_address, "HostPort": port}]}
    return host


def _container_labels(inputs: RenderInputs, node: NodeContext) -> dict[str, str]:
    public_values = {
        name: value
        for name, value in inputs.order.values.items()
        if not is_secret_name(name) and not any(secret and secret in value for secret in inputs.order.secrets.values())
    }
    rank_labels = {
        labels.RECIPE: inputs.recipe.id,
        labels.VALUES: json.dumps(public_values, sort_keys=True),
        labels.RANK: str(node.index),
    }
    return rank_labels | ({labels.LAUNCH: inputs.launch} if inputs.launch else {})


def _port(argv: Sequence[str], engine: EngineKind) -> int:
    text = flags.value_of(argv, "port") or ""
    if text and not (text.isdecimal() and 0 < int(text[:6]) < 65536):
        raise CannotRender(f"--port is {text[:20]!r}: it must be a port from 1 to 65535")
    return int(text) if text else engine.traits.port
