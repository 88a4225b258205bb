"""`sparktop launch`: plans a recipe's launch, shows the plan, asks, and runs it, or exports it as files; and
`sparktop recipes adopt`: prints or saves the recipe of a launch file or a running container.

Standard output carries the data: the plan and the result, or only the files.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from sparktop import sanitise
from sparktop.config import shown
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import find, is_alive
from sparktop.errors import ConfigError, UsageError
from sparktop.files import write_private
from sparktop.headless.invocation import (
    Invocation,
    carry_out,
    check_links,
    no_engine,
    print_files,
    tell_interrupted,
    watched,
)
from sparktop.headless.terminal import say
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.model.survey import DockerGet
from sparktop.operate.container.inspected import image_path
from sparktop.operate.launch.launches_here import recipe_of_file, running_recipe
from sparktop.operate.refused import Refused
from sparktop.operate.run.operating import Operating
from sparktop.operate.step.plan import Refusal
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.shelf import image_wanted, is_there, launchable, own_folder
from sparktop.recipe.read.shelf import names as recipe_names

OrderOf = Callable[[Adopted], tuple[Order, Sequence[str]]]
"""(the order of a recipe made of a running container, notes to print), with the operator's values and secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch and its options, as given on the command line."""

    order: Order | None
    """None: of `name`, by `order_of`."""
    name: str = ""
    """A container that runs, or a launch file whose image has the command that starts its engine."""
    order_of: OrderOf | None = None
    stops: tuple[str, ...] = ()
    """Engines to stop: NAME (on every node that has it) or NAME@NODE."""
    options: Mapping[str, str] = field(default_factory=dict)
    export: str = ""
    """ "run", "compose" or "systemd": only print the files; empty: launch."""
    notes: Sequence[str] = ()
    """Notes to print first."""


async def launch(call: Invocation, command: Launch) -> int:
    """Plan the launch, ask, run it; the exit code: 0 served or printed, 1 refused or failed, 130 interrupted."""
    for note in command.notes:
        say(f"sparktop: {note}")
    async with watched(call) as (look, operating):
        check_links(look.state)
        await tell_interrupted(operating, look.state)
        order, stopped = command.order, command.stops
        if order is None:
            assert command.order_of is not None  # goes with it
            adopted = await _adopted(operating, command.name, look.state)
            order, notes = command.order_of(adopted)
            if order.recipe.compose is None:
                notes = (f"{command.name} is a {adopted.kind}: made into a recipe and launched", *notes)
            for note in notes:
                say(f"sparktop: {note}")
            if find(command.name, "", look.state) is not None:  # a container is launched in its own place
                stopped = (command.name, *stopped)
        order = replace(order, stops=_stops(stopped, look.state))
        request = Request(action="launch", nodes=look.names, order=order, options=command.options)
        answer = await operating.plan(request)
        if command.export and isinstance(answer, Refusal) and answer.prospect is not None and answer.prospect.runs:
            # The recipe already runs: export it as if it replaced itself.
            stops = tuple(dict.fromkeys((*order.stops, *answer.prospect.runs)))
            answer = await operating.plan(replace(request, order=replace(order, stops=stops)))
        if command.export:
            return print_files(answer, answer.prospect.files.get(command.export, {}) if answer.prospect else {})
        return await carry_out(call, operating, answer)


def needs_node(name: str) -> bool:
    """Whether only a node can tell what it starts: no recipe or file, or one whose command is in its image.

    Raises:
        UsageError, ConfigError: as `shelf.entry`.
    """
    return not is_there(name) or bool(image_wanted(name))


async def _adopted(operating: Operating, name: str, fleet: FleetState) -> Adopted:
    """The recipe of what only a node can tell."""
    return await (_adopted_by_image if is_there(name) else _adopted_container)(operating, name, fleet)


async def _adopted_container(operating: Operating, name: str, fleet: FleetState) -> Adopted:
    """The recipe of the container of this name on any of the nodes, or of the file of this path on the first.

    Raises:
        UsageError: there is no engine and no file of that name, or no recipe can be made of it.
    """
    rank = find(name, "", fleet)
    if rank is None and not name.startswith("/"):
        names = [engine.name for view in fleet.nodes for engine in view.engines if engine.container is not None]
        where = " and ".join(view.name for view in fleet.nodes)
        text = f"{sanitise.line(name)} is no recipe, no file here, and no container with an engine on {where}"
        raise no_engine(fleet, text, name, [*names, *recipe_names()])
    try:
        if rank is not None:
            adopted = await running_recipe(rank, operating.ask)
        else:
            path, _, engine = name.partition("#")
            adopted = await recipe_of_file(path, engine, fleet.nodes[0], operating.ask)
    except Refused as refused:
        raise UsageError(refused.reason, hint="\n  ".join(refused.remedies) or None) from refused
    if adopted.reading.recipe is None:
        raise UsageError("\n  ".join(map(str, adopted.reading.errors)))
    return adopted


async def _adopted_by_image(operating: Operating, file: str, fleet: FleetState) -> Adopted:
    """The recipe of a launch file whose image has the command that starts its engine, asked of the first node.

    Raises:
        UsageError: the node doesn't have the image.
        ConfigError: no recipe can be made of it with that either.
    """
    node, name = fleet.nodes[0].name, image_wanted(file)
    path = image_path(name)
    question = DockerGet(node=node, path=path or "/images/json")
    answer = (await operating.ask([question]))[question]
    if path is None or not isinstance(answer.value, Mapping):
        text = f"the command that starts {sanitise.line(file)} is in {sanitise.line(name)}, which {node} doesn't have"
        raise UsageError(text, hint=f"on {node}: docker pull {shlex.quote(name)}")
    adopted = launchable(file, answer.value).adopted
    assert adopted is not None  # its image was wanted
    return adopted


def _stops(names: Sequence[str], fleet: FleetState) -> tuple[tuple[str, str], ...]:
    """(node, engine) of each engine named, on every node that has it.

    Raises:
        UsageError: there is no engine of that name.
    """
    stops: list[tuple[str, str]] = []
    for name in names:
        engine, _, node = name.rpartition("@")
        matching = _running(name, "", fleet) or (_running(engine, node, fleet) if engine and node else [])
        if not matching:
            running = [other.name for view in fleet.nodes for other in view.engines if is_alive(other)]
            hint = "no engine runs: leave --stop out"
            raise no_engine(fleet, f"there is no engine {name!r} to stop", name, running, hint=hint)
        stops += matching
    return tuple(dict.fromkeys(stops))


def _running(name: str, node: str, fleet: FleetState) -> list[tuple[str, str]]:
    """(node, name) of each running engine of that name; on every node for an empty `node`."""
    nodes = [view.name for view in fleet.nodes if node in ("", view.name)]
    ranks = [find(name, node_name, fleet) for node_name in nodes]
    return [(rank.node.name, name) for rank in ranks if rank is not None and is_alive(rank.engine)]


def adopt_file(name: str, *, saves: bool) -> int:
    """Print or save the recipe of what this file starts.

    Raises:
        ConfigError: a value isn't known; the message names its line.
        UsageError: there is no such file, or it is a recipe.
    """
    entry = launchable(name)
    if entry.adopted is None:
        raise UsageError(f"{sanitise.line(name)} is a recipe already", hint=f"sparktop launch {shlex.quote(name)} HOST")
    return _put(entry.adopted, saves=saves)


async def adopt_there(call: Invocation, name: str, *, saves: bool) -> int:
    """Print or save the recipe of a container as it runs, or of a file whose image has the command."""
    async with watched(call) as (look, operating):
        check_links(look.state)
        adopted = await _adopted(operating, name, look.state)
    return _put(adopted, saves=saves)


def _put(adopted: Adopted, *, saves: bool) -> int:
    recipe = adopted.reading.recipe
    assert recipe is not None  # its errors were raised
    for risk in recipe.risks:
        say(f"· {sanitise.line(risk)}")
    for name, place in recipe.settings.items():
        say(f"· not set: {name} ({place} uses it); sparktop launch ... --set {name}=...")
    if names := ", ".join(adopted.secrets):
        them = "them" if "," in names else "it"
        say(f"· secret, so not written: {names}; set {them} in your environment or a .env file")
    if not saves:
        print(adopted.text, end="")
        return 0
    path = own_folder() / f"{recipe.id}.yaml"
    if os.path.lexists(path):
        hint = "move it away, or print the recipe: without --save"
        raise UsageError(f"{shown(path)} is there already, and stays as it is", hint=hint)
    try:
        write_private(path, adopted.text)
    except OSError as error:
        raise ConfigError(f"{shown(path)} can't be written: {error.strerror}") from error
    say(f"saved in {shown(path)}: sparktop launch {shlex.quote(recipe.id)} HOST")
    return 0
