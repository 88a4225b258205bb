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
from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.engines.images import Family, family_of
from sparktop.masking import is_secret_name
from sparktop.model.recipe import Executor, Order, Recipe
from sparktop.recipe import parameters
from sparktop.recipe.container_spec import CannotRender, ContainerSpec, Mount, NodeContext, Rendered, RenderedRank
from sparktop.recipe.parameters import LaunchValues
from sparktop.recipe.patches import PatchedImage, filled_command, patched_image
from sparktop.recipe.render import rank_argv
from sparktop.recipe.render.compiled import TARGET, compiled_mount, compiled_variables
from sparktop.recipe.render.engine_argv import engine_argv, refuse_secrets
from sparktop.recipe.render.environment import variables
from sparktop.recipe.render.host_config import Options, options
from sparktop.recipe.render.model_mounts import ModelPlace, cache_target, expand_home, is_inside, model_place
from sparktop.recipe.render.more_models import more_models

_KEEPS_ENTRYPOINT = (Family.NGC, Family.LMSYS)
"""Image families whose entrypoint sets up the driver's libraries and then runs its arguments. Other images' entrypoint
may be the engine itself, which would get the whole command as its arguments (docs/facts/engines.md 5.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seats:
    """What is the same for every rank of a launch."""

    values: LaunchValues
    executor: Executor
    nodes: Sequence[NodeContext]
    name: str
    """The containers'."""
    patched: PatchedImage | None
    more: tuple[str, ...]
    """Further models."""

    @property
    def order(self) -> Order:
        return self.values.order


def render(values: LaunchValues, nodes: Sequence[NodeContext], *, share: float | None = None) -> Rendered:
    """The launch as it would be started on these nodes; the first node is the head.

    Args:
        share: --gpu-memory-utilization or --mem-fraction-static; overrides the recipe.

    Raises:
        CannotRender: the recipe can't become a launch; the reason names the field.
    """
    recipe = values.order.recipe
    _check_nodes(recipe, nodes)
    final_values, set_names = values.checked(), set(values.set_names)
    if share is not None:
        spellings = (*final_values, *parameters.named_in(recipe), parameters.SHARE)
        name = next(spelling for spelling in spellings if parameters.main_name(spelling) == parameters.SHARE)
        final_values[name] = _share_text(final_values.get(name, ""), share)
        set_names.add(name)
    executor = rank_argv.executor_for(recipe.executor, recipe.engine, len(nodes))
    notes = [] if len(nodes) > 1 else _limit_to_one_node(final_values, set_names)
    seats = _Seats(
        values=replace(values, by_name=final_values, set_names=frozenset(set_names)),
        executor=executor,
        nodes=nodes,
        name=container_name(parameters.get(final_values, "name") or f"{recipe.engine}-{recipe.id}"),
        patched=patched_image(final_values["container"], recipe.patches, final_values),
        more=more_models(values),
    )
    ranks = [_rank(seats, node) for node in nodes]
    head = ranks[0][0].argv
    notes += [note for _, rank_notes in ranks for note in rank_notes]
    port = _port(head, recipe)
    after = final_values | {"port": str(port), "container_name": seats.name}
    return Rendered(
        recipe_id=recipe.id,
        engine=recipe.engine,
        image=final_values["container"],
        ranks=tuple(rank for rank, _ in ranks),
        port=port,
        served_name=flags.value_of(head, flags.flag_of("served_model_name", recipe.engine), kind=recipe.engine)
        or final_values["model"],
        values=final_values,
        notes=tuple(dict.fromkeys(notes)),
        patched=seats.patched,
        post_exec=tuple(filled_command(command, after) for command in recipe.post_exec),
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


def _rank(seats: _Seats, node: NodeContext) -> tuple[RenderedRank, list[str]]:
    order, recipe, more = seats.order, seats.order.recipe, seats.more
    values = replace(seats.values, by_name=expand_home(seats.values.by_name, more, node))
    container_options = options(recipe.options, node, nodes=len(seats.nodes))
    cache = cache_target(container_options.user, recipe.environment.get("HF_HOME", ""))
    is_in_image = is_inside(recipe, values.model)
    model = ModelPlace(named=values.model, is_inside=True) if is_in_image else model_place(values.model, node, cache)
    argv, own = engine_argv(values, node, seats.nodes, model)
    port = values.by_name.get("master_port") or str(rank_argv.MASTER_PORT)
    argv, notes = rank_argv.with_rank_flags(argv, recipe.engine, seats.executor, node, seats.nodes, port=port)
    taken = [mount.target for mount in container_options.mounts]
    image = seats.patched.name if seats.patched is not None else values.image
    compiled = compiled_mount(node, container_options.user, image=image, model=values.model)
    keeps = compiled if recipe.keeps_compiled and recipe.engine.traits.caches and TARGET not in taken else None
    mounts = (*model.mounts(node, cache, argv, more=more), *filter(None, (keeps, _sparkruns_cache(recipe, node))))
    rank_variables = variables(
        order,
        values.by_name,
        node,
        seats.nodes,
        executor=seats.executor,
        own={
            **(compiled_variables(recipe.engine, taken) if keeps else {}),
            **own,
            **({} if cache == ModelPlace.ROOT_CACHE or not node.cache else {"HF_HOME": cache}),
        },
    )
    refuse_secrets(argv, order)
    command, last = argv, argv
    if seats.executor is Executor.RAY:
        ray_port = values.by_name.get("ray_port") or str(rank_argv.RAY_PORT)
        command, last = rank_argv.under_ray(argv, node, seats.nodes, ray_port)
    is_entrypoint = container_options.entrypoint is None and _is_entrypoint(argv[0], values.image)
    container = ContainerSpec(
        name=seats.name,
        image=image,
        argv=command[1:] if is_entrypoint else command,
        entrypoint=None if is_entrypoint else _entrypoint(values.image, container_options),
        environment=rank_variables.environment,
        secret_names=rank_variables.secret_names,
        detected_names=rank_variables.detected_names,
        mounts=(*(mount for mount in mounts if mount.target not in taken), *container_options.mounts),
        host=_host_config(container_options, _port(argv, recipe)),
        labels={**container_options.labels, **_container_labels(order, node)},
        user=container_options.user,
    )
    rank = RenderedRank(node=node.node, index=node.index, container=container, argv=last, serves=node.index == 0)
    return rank, [*notes, *rank_variables.notes, *container_options.notes]


_SPARKRUN_CACHE = "/cache/huggingface"


def _sparkruns_cache(recipe: Recipe, node: NodeContext) -> Mount | None:
    """The hub's cache where sparkrun mounts it, for a recipe that names files there."""
    hooks = (*(patch.command for patch in recipe.patches), *recipe.post_exec)
    texts = (recipe.command, *recipe.environment.values(), *hooks)
    is_named = any(_SPARKRUN_CACHE in text for text in texts)
    return Mount(source=node.cache, target=_SPARKRUN_CACHE) if is_named and node.cache else None


def _entrypoint(image: str, opts: Options) -> tuple[str, ...] | None:
    if opts.entrypoint is not None:
        return opts.entrypoint
    return None if family_of(image) in _KEEPS_ENTRYPOINT else ()


def _is_entrypoint(program: str, image: str) -> bool:
    """Whether the program is the image's entrypoint, and in no folder of its PATH."""
    return family_of(image) is Family.GGML and program == "llama-server"


def _host_config(opts: Options, port: int) -> dict[str, object]:
    host = dict(opts.host)
    if host.get("NetworkMode") not in ("host", "none") and not str(host.get("NetworkMode")).startswith("container:"):
        host["PortBindings"] = {f"{port}/tcp": [{"HostIp": opts.publish_address, "HostPort": str(port)}]}
    return host


def _container_labels(order: Order, node: NodeContext) -> dict[str, str]:
    public_values = {
        name: value
        for name, value in order.values.items()
        if not is_secret_name(name) and not any(secret and secret in value for secret in order.secrets.values())
    }
    return {
        labels.RECIPE: order.recipe.id,
        labels.VALUES: json.dumps(public_values, sort_keys=True),
        labels.RANK: str(node.index),
    }


def _port(argv: Sequence[str], recipe: Recipe) -> int:
    engine = recipe.engine
    variables = (name for name, flag in engine.traits.variables.items() if flag == "port")
    text = flags.value_of(argv, "port", kind=engine) or next(filter(None, map(recipe.environment.get, variables)), "")
    if text and not (text.isdecimal() and 0 < int(text[:6]) < 65536):
        raise CannotRender(f"--port is {text[:20]!r}: it must be a port from 1 to 65535")
    return int(text) if text else engine.traits.port
