"""Reads Dockerfiles and `docker inspect` output into LaunchSpecs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.container_body import container_options, docker_run
from sparktop.cmdline.docker_options import by_name
from sparktop.cmdline.docker_run import DockerRun, keep, variable
from sparktop.cmdline.shell import plain_words
from sparktop.cmdline.source import Document, Word, joined
from sparktop.cmdline.yaml_nodes import items as nodes
from sparktop.cmdline.yaml_nodes import root_of, text_at
from sparktop.errors import ConfigError
from sparktop.launchspec.read.commands import Scope, container_spec, read_command, read_container, read_script
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.sanitise import items, mapping


def container_specs(
    inspect: Mapping[str, Any], image: Mapping[str, Any], *, argv: Sequence[str] = ()
) -> tuple[LaunchSpec, ...]:
    """The engine of a container as Docker tells it, whole: what its image sets is left out.

    Args:
        inspect: GET /containers/<id>/json.
        image: GET /images/<id>/json of its image; empty where it isn't known.
        argv: of the engine's process, for one that `docker exec` has started in it.
    """
    name = sanitise.name(str(inspect.get("Name") or "").lstrip("/"))
    body = {**mapping(inspect.get("Config")), "HostConfig": mapping(inspect.get("HostConfig"))}
    document = Document(name, docker_run(name, body, image, mask=False))
    scope = Scope(document=document, kind=SourceKind.INSPECT)
    read_script(document.whole, scope)
    if not any(spec.has_command for spec in scope.specs) and name in scope.containers:
        base = replace(scope.containers[name], is_exec=True)
        scope = replace(scope, base=base, specs=[])
        read_command([Word(word) for word in argv], scope)
    return tuple(scope.specs)


def with_image_command(spec: LaunchSpec, image: Mapping[str, Any]) -> LaunchSpec:
    """A launch whose command is in its image (`LaunchSpec.is_by_image`), with that command where it starts an engine.

    Args:
        image: GET /images/<id>/json.
    """
    config = mapping(image.get("Config"))
    words = [Word(str(word)) for key in ("Entrypoint", "Cmd") for word in config.get(key) or ()]
    scope = Scope(document=spec.document, kind=spec.kind)
    read_container(replace(spec, engine=None, has_command=True), joined([]), words, scope)
    return next((one for one in scope.specs if one.has_command), spec)


_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+((?:\\\r?\n|[^\n])*)")


def read_dockerfile(document: Document) -> list[LaunchSpec]:
    """The engine that a Dockerfile's last stage starts."""
    run = DockerRun(has_env_file=True)  # `docker run` may add options
    command: list[Word] = []
    entrypoint: list[Word] = []
    begin: Word | None = None
    for name, value in _instructions(document):
        if name == "FROM":
            words = [word for word in plain_words(value) if not word.text.startswith("--")]
            run, command, entrypoint = DockerRun(has_env_file=True), [], []
            run.image = begin = words[0] if words else None
        elif name == "ENV":
            words = plain_words(value)
            run.environment += [variable(word) for word in words if "=" in word.text]
        elif name == "CMD":
            command = _words(value)
        elif name == "ENTRYPOINT":
            entrypoint = _words(value)
    scope = Scope(document=document, kind=SourceKind.DOCKERFILE)
    base = replace(container_spec(run, scope, begin), has_container=None)
    if entrypoint or command:
        read_container(base, entrypoint[0] if entrypoint else None, [*entrypoint[1:], *command], scope)
    return scope.specs


def _instructions(document: Document) -> Iterator[tuple[str, Word]]:
    at = 0
    while at < len(document.text):
        match = _INSTRUCTION.match(document.text, at)
        if match and not document.text[at:].lstrip(" \t").startswith("#"):
            yield match[1].upper(), document.whole.part(match.start(2), match.end(2))
            at = match.end()
        end = document.text.find("\n", at)
        at = len(document.text) if end < 0 else end + 1


def _words(value: Word) -> list[Word]:
    """The words of the exec form, or the shell form as one text for `sh -c`."""
    if not value.text.lstrip().startswith("["):
        return [Word("sh"), Word("-c"), value]
    entries = Document("", value.text)
    try:
        words = [text_at(entries, item) for item in nodes(root_of(entries))]
    except ConfigError:
        return []
    return [Word(word.text, [value.at[at] for at in word.at]) for word in words if word]


_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def read_inspect(document: Document, data: object) -> list[LaunchSpec] | None:
    """The engines in `docker inspect` output, the document's JSON; None if the text is something else."""
    containers = map(mapping, data if isinstance(data, list) else [data])
    shaped = [one for one in containers if "Config" in one and "HostConfig" in one]
    return [spec for one in shaped for spec in _container(document, one)] if shaped else None


def _container(document: Document, inspect: Mapping[str, Any]) -> list[LaunchSpec]:
    start = max(document.text.find(f'"{inspect["Id"]}"'), 0) if inspect.get("Id") else 0
    places: dict[str, int] = {}
    for match in _STRING.finditer(document.text, start):
        places.setdefault(json.loads(match[0]), match.start() + 1)

    def placed(value: object, key: str = "") -> Word:
        text = str(value)
        at = places.get(key or text, -1)
        return Word(text, range(at, at + len(text)) if at >= 0 else ())

    config = mapping(inspect["Config"])
    run = DockerRun(image=placed(config.get("Image") or ""))
    run.environment = [variable(placed(text)) for text in items(config.get("Env"))]
    host = {**mapping(inspect["HostConfig"]), "Binds": list(_binds(inspect)), "Mounts": []}
    for name, value in container_options({**config, "Env": [], "Volumes": {}, "HostConfig": host}):
        key = by_name()[name].key or by_name()[name].config
        keep(run, name, None if value is None else placed(value, key), placed(f"--{name}", key))
    path = inspect.get("Path")
    command = (
        [path, *items(inspect.get("Args"))] if path else [*items(config.get("Entrypoint")), *items(config.get("Cmd"))]
    )
    scope = Scope(document=document, kind=SourceKind.INSPECT)
    name = str(inspect.get("Name") or "")
    base = replace(container_spec(run, scope, placed(name) if name else run.image), name=name.lstrip("/"))
    # The inspected command includes the entrypoint: don't add the image's default.
    read_container(base, joined([]), [placed(word) for word in command], scope)
    return scope.specs


def _binds(inspect: Mapping[str, Any]) -> Iterator[str]:
    """What a container mounts, as `--volume` has it; a volume that Docker made for it alone isn't there."""
    for mount in map(mapping, items(inspect.get("Mounts"))):
        source = str(mount.get("Name" if mount.get("Type") == "volume" else "Source") or "")
        if not _ANONYMOUS.fullmatch(source):
            yield f"{source}:{mount.get('Destination')}" + (":ro" if mount.get("RW") is False else "")
