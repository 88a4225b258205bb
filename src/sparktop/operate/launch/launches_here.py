"""What is there to be launched on the nodes beside recipes: containers as they run, and the compose files of those."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, is_alive, teams
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import Reading, read
from sparktop.launchspec.read.docker import container_specs
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.survey import Answer, Ask, DockerGet, FileText
from sparktop.operate.container import inspected
from sparktop.operate.plan.origin import compose_files
from sparktop.operate.refused import Refused
from sparktop.recipe.read.adopt import Adopted, adopted, unadopted

AskNodes = Callable[[Sequence[Ask]], Awaitable[Mapping[Ask, Answer]]]
MAX_FILES = 20
"""Compose files that are read of one node."""
MAX_ROUNDS = 3
"""A file names others, which may name others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchHere:
    """A launch that is there on a node, and the recipe made of it."""

    node: str
    adopted: Adopted
    is_running: bool
    """A container; else a file's service."""


async def launches_here(fleet: FleetState, ask: AskNodes) -> tuple[LaunchHere, ...]:
    """The engines that run in containers, one for all ranks of each, then those of the compose files beside them."""
    heads = [team[0] for team in teams(fleet) if is_alive(team[0].engine) and team[0].engine.container is not None]
    running = await asyncio.gather(*(_running(head, ask) for head in heads))
    files = await asyncio.gather(*(_files(view, ask) for view in fleet.nodes))
    return (*running, *(one for found in files for one in found))


async def _running(rank: EngineRank, ask: AskNodes) -> LaunchHere:
    try:
        found = await running_recipe(rank, ask)
    except Refused as refused:
        found = unadopted(rank.engine.name, "container", refused.reason)
    return LaunchHere(node=rank.node.name, adopted=found, is_running=True)


async def running_recipe(rank: EngineRank, ask: AskNodes) -> Adopted:
    """The recipe of this engine's container: of what runs, nothing is unknown.

    Raises:
        Refused: it has none, Docker doesn't tell, or its command starts no engine.
    """
    engine, node = rank.engine, rank.node.name
    container = engine.container
    if container is None:
        raise Refused(f"{engine.name} on {node} runs without a container, and sparktop launches containers")
    inspect = await _told(inspected.ask(node, container.container_id), ask)
    path = inspected.image_path(str(inspect.get("Image") or ""))
    image = await _told(DockerGet(node=node, path=path), ask) if path else {}
    specs = container_specs(inspect, image, argv=engine.argv)
    if not specs:
        raise Refused(f"{engine.name} on {node}: its command starts no engine that a recipe can be made of")
    return adopted(specs[0], folder="/", name=container.name)


async def _told(question: DockerGet, ask: AskNodes) -> Mapping[str, Any]:
    answer = (await ask([question]))[question]
    if not isinstance(answer.value, Mapping):
        why = answer.problem or "there is none any more"
        raise Refused(f"Docker on {question.node} doesn't tell what the container is: {why}")
    return answer.value


# --- compose files


async def _files(view: NodeView, ask: AskNodes) -> tuple[LaunchHere, ...]:
    containers = view.containers.containers
    projects = [compose_files(container.labels or {}) for container in containers]
    beside = {path: tuple(other for other in files if other != path) for files in projects for path in files}
    names = {container.name for container in containers if container.status == "running"}
    found = [one for path in [*beside][:MAX_FILES] for one in await _services(view.name, path, beside[path], ask)]
    # One that runs is listed as it runs.
    return tuple(LaunchHere(node=view.name, adopted=one, is_running=False) for one in found if one.name not in names)


async def _services(node: str, path: str, overrides: Sequence[str], ask: AskNodes) -> tuple[Adopted, ...]:
    """The recipes of a compose file's engines; none where it can't be read.

    Args:
        overrides: the project's other files.
    """
    folder = posixpath.dirname(path)
    texts: dict[str, str | None] = {}
    reading: Reading | None = None
    wanted = {path}
    for _ in range(MAX_ROUNDS):
        questions = [FileText(node=node, path=name) for name in sorted(wanted)]
        answers = await ask(questions)
        for question in questions:
            value = answers[question].value
            texts[question.path] = value if isinstance(value, str) else None
        reading, wanted = _read(path, folder, texts)
        if not wanted:
            break
    # A file that only overrides another's has no image.
    specs = [spec for spec in reading.specs if spec.engine and (spec.image or spec.option("build"))] if reading else []
    return tuple(adopted(spec, folder=folder, overrides=overrides) for spec in specs)


def _read(path: str, folder: str, texts: Mapping[str, str | None]) -> tuple[Reading | None, set[str]]:
    """(the file as it is read with these texts, the paths of others that it wants)."""
    wanted: set[str] = set()

    def beside(name: str) -> str | None:
        full = posixpath.normpath(posixpath.join(folder, name))
        if full not in texts:
            wanted.add(full)
        return texts.get(full)

    text = texts.get(path)
    try:
        return (read(text, sanitise.line(path), beside) if text else None), wanted
    except ConfigError:
        return None, set()
