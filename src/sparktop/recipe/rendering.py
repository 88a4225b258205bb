"""A recipe for the nodes it is launched on: the argv of each rank and the container it runs in. Pure.

What was detected on a node comes in with its `Seat`; what the operator wants, with the `Order`. Out comes an argv list
and a container's specification a rank, never a shell's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparktop.diagnose.enginecommand import DEFAULT_PORT
from sparktop.diagnose.lint.images import family_of
from sparktop.diagnose.lint.spec import Family
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order, Recipe
from sparktop.probe.remote import is_secret_name
from sparktop.recipe import argv as flags
from sparktop.recipe import labels, parameters, ranks, ray
from sparktop.recipe.engineargv import Wanted, engine_argv, no_secrets
from sparktop.recipe.environment import variables
from sparktop.recipe.hostconfig import Options, options
from sparktop.recipe.modelplace import model_place
from sparktop.recipe.moremodels import at_home, more_models
from sparktop.recipe.parameters import values
from sparktop.recipe.rendered import CannotRender, ContainerSpec, Rank, Rendered, Seat

__all__ = ["container_name", "render", "values"]

_KEEPS_ENTRYPOINT = (Family.NGC, Family.LMSYS)
"""Their entrypoint sets up the driver's libraries and then runs what it is given; other images' may be the engine
itself, which would get the whole command as its arguments (facts/engines.md 5.3)."""


def render(order: Order, seats: Sequence[Seat], *, share: float | None = None, launch: str = "") -> Rendered:
    """The launch, as it would be started on these nodes; the head is the first.

    Args:
        share: --gpu-memory-utilization or --mem-fraction-static, whatever the recipe says.
        launch: an id for all of its containers' labels.

    Raises:
        CannotRender: it can't be one; the reason names the field.
    """
    recipe = order.recipe
    _fitting(recipe, seats)
    used = values(order)
    fixed = {name for name in used if _is_set(name, order)}
    if share is not None:
        name = next((each for each in used if parameters.main_name(each) == parameters.SHARE), None)
        name = name or next((each for each in parameters.named_in(recipe) if _is_share(each)), parameters.SHARE)
        used[name] = _as_typed(used.get(name, ""), share)
        fixed.add(name)
    executor = ranks.executor_for(recipe.executor, recipe.engine, len(seats))
    notes = [] if len(seats) > 1 else _alone(used, fixed)
    wanted = Wanted(
        order=order,
        values=used,
        fixed=frozenset(fixed),
        executor=executor,
        seats=seats,
        name=container_name(parameters.get(used, "name") or f"{recipe.engine}-{recipe.id}"),
        launch=launch,
    )
    made = [_rank(wanted, seat) for seat in seats]
    head = made[0][0].argv
    notes += [note for _, said in made for note in said]
    return Rendered(
        recipe_id=recipe.id,
        engine=recipe.engine,
        image=used["container"],
        ranks=tuple(rank for rank, _ in made),
        port=_port(head, recipe.engine),
        served_name=flags.value_of(head, "served-model-name") or used["model"],
        values=used,
        notes=tuple(dict.fromkeys(notes)),
    )


def container_name(text: str) -> str:
    """A name that Docker takes: letters, digits, `_`, `.` and `-`, the first a letter or digit."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:100]
    return plain if len(plain) > 1 else f"engine-{plain or 'launch'}"


def _fitting(recipe: Recipe, seats: Sequence[Seat]) -> None:
    count = len(seats)
    if not recipe.min_nodes <= count <= max(recipe.max_nodes, recipe.min_nodes):
        wanted = str(recipe.min_nodes)
        if recipe.max_nodes > recipe.min_nodes:
            wanted += f" to {recipe.max_nodes}"
        raise CannotRender(
            f"{recipe.id} is for {wanted} node{'s' if wanted != '1' else ''}, "
            f"and {count} {'is' if count == 1 else 'are'} named"
        )
    if count > 1 and (bare := [seat.node for seat in seats if not seat.fabric_ip]):
        raise CannotRender(
            f"{' and '.join(bare)} {'has' if len(bare) == 1 else 'have'} no address on the link between the nodes",
            "give both ends of the cable an address in one subnet (netplan), and see that they reach one another",
        )


def _is_set(name: str, order: Order) -> bool:
    return any(parameters.main_name(name) == parameters.main_name(each) for each in order.values)


def _is_share(name: str) -> bool:
    return parameters.main_name(name) == parameters.SHARE


def _as_typed(text: str, share: float) -> str:
    """The text that stands there, where it says the same: "0.70"."""
    try:
        return text if float(text) == share else f"{share:g}"
    except ValueError:
        return f"{share:g}"


def _alone(used: dict[str, str], fixed: Collection[str]) -> list[str]:
    """A recipe for one node or two says 2: on one it is 1, as its own launchers do."""
    notes = []
    for main in ("tensor_parallel", "pipeline_parallel"):
        for name, value in used.items():
            if parameters.main_name(name) == main and value != "1" and name not in fixed:
                used[name] = "1"
                notes.append(f"{name} is 1 and not {value}: one node has one GPU")
    return notes


def _rank(wanted: Wanted, seat: Seat) -> tuple[Rank, list[str]]:
    recipe, more = wanted.recipe, more_models(wanted.order)
    wanted = replace(wanted, values=at_home(wanted.values, more, seat))
    place = model_place(wanted.values["model"], seat)
    argv, own = engine_argv(wanted, seat, place)
    argv, notes = ranks.ranked(
        argv,
        recipe.engine,
        wanted.executor,
        seat,
        wanted.seats,
        port=wanted.values.get("master_port") or str(ranks.MASTER_PORT),
    )
    opts = options(recipe.options, seat, nodes=len(wanted.seats))
    cache = place.cache_target(opts.user, recipe.environment.get("HF_HOME", ""))
    mounts = place.mounts(seat, cache, argv, more=more)
    found = variables(
        wanted.order,
        wanted.values,
        seat,
        wanted.seats,
        executor=wanted.executor,
        own={**own, **({} if cache == place.ROOT_CACHE or not seat.cache else {"HF_HOME": cache})},
    )
    no_secrets(argv, wanted.order)
    command, shown = list(argv), argv
    if wanted.executor is Executor.RAY:
        command, shown = _under_ray(wanted, seat, argv)
    container = ContainerSpec(
        name=wanted.name,
        image=wanted.values["container"],
        argv=tuple(command),
        entrypoint=_entrypoint(wanted.values["container"], opts),
        environment=found.environment,
        secret_names=found.secret_names,
        detected_names=found.detected_names,
        mounts=(*mounts, *opts.mounts),
        host=_host(opts, argv, recipe.engine),
        labels={**opts.labels, **_labels(wanted, seat)},
        user=opts.user,
        workdir=opts.workdir,
    )
    rank = Rank(node=seat.node, index=seat.index, container=container, argv=tuple(shown), serves=seat.index == 0)
    return rank, [*notes, *found.notes, *opts.notes]


def _under_ray(wanted: Wanted, seat: Seat, argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    address = wanted.seats[0].fabric_ip
    port = wanted.values.get("ray_port") or str(ray.RAY_PORT)
    if seat.index == 0:
        return ray.head_command(argv, nodes=len(wanted.seats), address=address, port=port), tuple(argv)
    return (
        ray.worker_command(address=address, port=port, own=seat.fabric_ip),
        ray.worker_argv(address=address, port=port, own=seat.fabric_ip),
    )


def _entrypoint(image: str, opts: Options) -> tuple[str, ...] | None:
    if opts.entrypoint is not None:
        return opts.entrypoint
    return None if family_of(image) in _KEEPS_ENTRYPOINT else ()


def _host(opts: Options, argv: Sequence[str], engine: EngineKind) -> dict[str, object]:
    host = dict(opts.host)
    if host.get("NetworkMode") not in ("host", "none") and not str(host.get("NetworkMode")).startswith("container:"):
        port = str(_port(argv, engine))
        host["PortBindings"] = {f"{port}/tcp": [{"HostIp": "", "HostPort": port}]}
    return host


def _labels(wanted: Wanted, seat: Seat) -> dict[str, str]:
    told = {
        name: value
        for name, value in wanted.order.values.items()
        if not is_secret_name(name) and not any(secret and secret in value for secret in wanted.order.secrets.values())
    }
    found = {
        labels.RECIPE: wanted.recipe.id,
        labels.VALUES: json.dumps(told, sort_keys=True),
        labels.RANK: str(seat.index),
    }
    return found | ({labels.LAUNCH: wanted.launch} if wanted.launch else {})


def _port(argv: Sequence[str], engine: EngineKind) -> int:
    text = flags.value_of(argv, "port") or ""
    if text and not (text.isdecimal() and 0 < int(text[:6]) < 65536):
        raise CannotRender(f"--port is {text[:20]!r}: a port from 1 to 65535 is wanted")
    return int(text) if text else DEFAULT_PORT[engine]
