"""Reads Dockerfiles and `docker inspect` output into LaunchSpecs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from sparktop import sanitise
from sparktop.cmdline.container_body import docker_run
from sparktop.cmdline.docker_run import DockerRun, variable
from sparktop.cmdline.shell import plain_words
from sparktop.cmdline.source import Document, Item, Word, item_of, joined
from sparktop.cmdline.yaml_nodes import get, items, pairs, root_of, scalar, text_at
from sparktop.launchspec.read.commands import Scope, container_spec, read_command, read_container, read_script
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.sanitise import mapping


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
    text = value.text.strip()
    if text.startswith("["):
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError):
            return []
        if not isinstance(entries, list):
            return []
        # Split as plain words to know their positions; brackets and commas are trimmed.
        words, at = [], 0
        for entry in entries:
            quoted = json.dumps(str(entry))
            start = value.text.find(quoted, at)
            at = start + len(quoted) if start >= 0 else at
            word = value.part(start + 1, at - 1) if start >= 0 and "\\" not in quoted else None
            words.append(word or Word(str(entry)))
        return words
    return [Word("sh"), Word("-c"), value]


_PLAIN: Mapping[str, tuple[str, ...]] = {
    "network": ("HostConfig", "NetworkMode"),
    "ipc": ("HostConfig", "IpcMode"),
    "shm-size": ("HostConfig", "ShmSize"),
    "memory": ("HostConfig", "Memory"),
    "runtime": ("HostConfig", "Runtime"),
    "restart": ("HostConfig", "RestartPolicy", "Name"),
}
_DEFAULTS = {
    "ipc": ("private", "shareable", ""),
    "shm-size": ("67108864", "0"),
    "memory": ("0",),
    "restart": ("", "no"),
}


def read_inspect(document: Document) -> list[LaunchSpec] | None:
    """The engines in `docker inspect` output; None if the text is something else.

    Raises:
        ConfigError: the JSON is malformed.
    """
    # YAML forbids tabs; one space for each keeps every position.
    root = root_of(Document(document.name, document.text.replace("\t", " ")))
    containers = items(root) or ((root,) if root is not None else ())
    shaped = [node for node in containers if get(node, "Config") is not None and get(node, "HostConfig") is not None]
    if not shaped:
        return None
    return [spec for node in shaped for spec in _container(document, node)]


def _container(document: Document, node: yaml.Node) -> list[LaunchSpec]:
    def word(*path: str) -> Word | None:
        return text_at(document, get(node, *path))

    run = DockerRun()
    run.image = word("Config", "Image")
    run.environment = [variable(text) for text in _texts(document, get(node, "Config", "Env"))]
    run.options = list(_options(document, node))
    path, arguments = word("Path"), _texts(document, get(node, "Args"))
    command = [path, *arguments] if path is not None and path.text else []
    for key in ("Entrypoint", "Cmd") if not command else ():
        command += _texts(document, get(node, "Config", key))
    scope = Scope(document=document, kind=SourceKind.INSPECT)
    name = scalar(document, get(node, "Name")).lstrip("/")
    begin = word("Name") or run.image
    base = replace(container_spec(run, scope, begin), name=name)
    # The inspected command includes the entrypoint: don't add the image's default.
    read_container(base, joined([]), command, scope)
    return scope.specs


def _texts(document: Document, node: yaml.Node | None) -> list[Word]:
    return [word for item in items(node) if (word := text_at(document, item)) is not None]


def _options(document: Document, node: yaml.Node) -> Iterator[Item]:
    for name, path in _PLAIN.items():
        word = text_at(document, get(node, *path))
        if word is not None and word.text not in _DEFAULTS.get(name, ()):
            yield item_of(name, word)
    host = get(node, "HostConfig")
    for name, key in (("rm", "AutoRemove"), ("privileged", "Privileged")):
        if scalar(document, get(host, key)) == "true":
            value_word = text_at(document, get(host, key))
            yield Item(name=name, span=value_word.span if value_word else None)
    for request in items(get(host, "DeviceRequests")):
        if "gpu" in [text.text for group in items(get(request, "Capabilities")) for text in _texts(document, group)]:
            yield Item(name="gpus", value="all")
    for device in items(get(host, "Devices")):
        yield Item(name="device", value=scalar(document, get(device, "PathOnHost")))
    for limit in items(get(host, "Ulimits")):
        name, soft = (scalar(document, get(limit, key)) for key in ("Name", "Soft"))
        yield Item(name="ulimit", value=f"{name}={soft}")
    for mount in items(get(node, "Mounts")):
        source, target = (scalar(document, get(mount, key)) for key in ("Source", "Destination"))
        yield Item(name="mount", value=f"{source}:{target}")
    for port, bindings in pairs(get(host, "PortBindings")):
        for binding in items(bindings):
            address, number = scalar(document, get(binding, "HostIp")), scalar(document, get(binding, "HostPort"))
            value = ":".join(field for field in (address, number, port.text.partition("/")[0]) if field)
            yield Item(name="publish", value=value, span=port.span)
