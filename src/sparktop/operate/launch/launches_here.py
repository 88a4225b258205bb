"""What is there to be launched on the nodes beside recipes: containers as they run, and the compose files and scripts
beside what runs."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, is_alive, teams
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import Reading, read
from sparktop.launchspec.read.docker import container_specs, with_image_command
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.recipe import ComposeService
from sparktop.model.survey import Answer, DockerGet, FileText, Question
from sparktop.operate.container import inspected
from sparktop.operate.launch import launch_files
from sparktop.operate.plan.origin import compose_project
from sparktop.operate.refused import Refused
from sparktop.recipe.read.adopt import Adopted, adopted, one_of, override_names, unadopted

AskNodes = Callable[[Sequence[Question]], Awaitable[Mapping[Question, Answer]]]
MAX_FILES = 20
"""Compose files of what runs, and files beside that, that are read of one node."""
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
    """The engines that run in containers, one for all ranks of each, then those of the files beside what runs.

    What runs already isn't listed by its file as well; another model's launch under the same name is.
    """
    heads = [team[0] for team in teams(fleet) if is_alive(team[0].engine) and team[0].engine.container is not None]
    running = await asyncio.gather(*(_running(head, ask) for head in heads))
    files = await asyncio.gather(*(_files(view, running, ask) for view in fleet.nodes))
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


# --- files


async def _files(view: NodeView, running: Sequence[LaunchHere], ask: AskNodes) -> tuple[LaunchHere, ...]:
    projects = _projects(view)
    question = launch_files.question(view, projects)
    beside = launch_files.paths((await ask([question]))[question].value)
    others = [path for path in beside if path not in projects]
    found: list[Adopted] = []
    more = [*[*projects][MAX_FILES:], *others[MAX_FILES:]]
    for path in (*[*projects][:MAX_FILES], *others[:MAX_FILES]):
        file = await _read_file(view.name, path, ask)
        if file.specs and path not in projects:
            projects[path] = ("", await _overrides(path, view.name, ask))
        found += (_recipe(file, spec, projects) for spec in file.specs)
    if more:
        first = sanitise.line(more[0])
        why = f"this file and {len(more) - 1} more that may launch an engine aren't read: {MAX_FILES} are at most"
        one = unadopted(first, "file", why, f"sparktop launch {shlex.quote(first)} {view.name}")
        found.append(replace(one, name=""))
    names = {container.name for container in view.containers.containers if container.status == "running"}
    models = {one.adopted.name: _model(one.adopted) for one in running if one.node == view.name}
    return tuple(
        LaunchHere(node=view.name, adopted=one, is_running=False)
        for one in found
        if one.name not in names or _model(one) not in ("", models.get(one.name) or _model(one))
    )


def _model(launch: Adopted) -> str:
    """The model that it is known to launch."""
    model = launch.reading.recipe.model if launch.reading.recipe is not None else ""
    return "" if "{" in model else model


async def recipe_of_file(path: str, engine: str, view: NodeView, ask: AskNodes) -> Adopted:
    """The recipe of the engine that a file on the node starts.

    Args:
        engine: its name, or its line, where the file starts several.

    Raises:
        Refused: there is no such file, or none that starts an engine.
    """
    projects = _projects(view)
    file = await _read_file(view.name, path, ask)
    if path not in projects:
        projects = {path: ("", await _overrides(path, view.name, ask))}
    if not file.specs:
        why = "starts no engine that a recipe can be made of" if file.is_there else "is no file that can be read there"
        raise Refused(f"{sanitise.line(path)} on {view.name} {why}", (f"on {view.name}: ls -l {shlex.quote(path)}",))
    spec = one_of(file.specs, engine, sanitise.line(path), file.specs[0].kind)
    return spec if isinstance(spec, Adopted) else _recipe(file, spec, projects)


def _projects(view: NodeView) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By the path of a compose file that containers were made of: (its project, the project's other files)."""
    named = [compose_project(container.labels or {}) for container in view.containers.containers]
    return {
        path: (project, tuple(other for other in files if other != path)) for project, files in named for path in files
    }


async def _overrides(path: str, node: str, ask: AskNodes) -> tuple[str, ...]:
    """The files that compose would lay over this one by itself."""
    folder = posixpath.dirname(path)
    questions = [FileText(node=node, path=posixpath.join(folder, name)) for name in override_names(path)]
    there = await ask(questions)
    return tuple(question.path for question in questions if there[question].value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A compose file, or a script, on a node."""

    place: ComposeService
    is_there: bool
    specs: tuple[LaunchSpec, ...]
    """The engines that it starts; none where it can't be read."""


async def _read_file(node: str, path: str, ask: AskNodes) -> _File:
    """The file, with those beside it that it takes values from."""
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
    digests = {name: "" if text is None else sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return _File(
        place=ComposeService(node=node, path=path, digests=digests),
        is_there=texts[path] is not None,
        specs=tuple([await _whole(spec, node, ask) for spec in specs]),
    )


def _recipe(file: _File, spec: LaunchSpec, projects: Mapping[str, tuple[str, tuple[str, ...]]]) -> Adopted:
    """The recipe of an engine that the file starts."""
    path = file.place.path
    project, overrides = projects.get(path, ("", ()))
    return adopted(
        replace(spec, project=project or spec.project),
        folder=posixpath.dirname(path),
        overrides=overrides,
        service=file.place if spec.kind is SourceKind.COMPOSE else None,
    )


async def _whole(spec: LaunchSpec, node: str, ask: AskNodes) -> LaunchSpec:
    """The launch with the command of its image, where it has none of its own."""
    path = inspected.image_path(spec.image.value or "") if spec.image is not None and spec.is_by_image else None
    if path is None:
        return spec
    question = DockerGet(node=node, path=path)
    image = (await ask([question]))[question].value
    return with_image_command(spec, image) if isinstance(image, Mapping) else spec


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
