"""Reads Docker Compose files: a LaunchSpec for each service that is an engine, as Compose would start it.

Fills in `${NAME}` from the `.env` beside it and `${NAME:-default}`, reads an env_file that lies beside it, and follows
anchors, `<<` and `extends` within the file. Facts: docs/facts/engines.md section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

import yaml

from sparktop.cmdline.docker_options import by_compose_key
from sparktop.cmdline.docker_run import MORE, DockerRun, variable
from sparktop.cmdline.shell import Variables, filled, plain_words
from sparktop.cmdline.source import Document, Item, Word, item_of, joined
from sparktop.cmdline.variables import Reference, env_file, references
from sparktop.cmdline.yaml_nodes import get, items, pairs, scalar, text_at
from sparktop.dataclass import dataclass
from sparktop.launchspec.read.commands import Beside, Scope, container_spec, read_container
from sparktop.launchspec.spec import LaunchSpec, SourceKind

_READ = frozenset({"image", "command", "entrypoint", "environment", "env_file", "deploy", "extends", "<<"})
"""Keys that don't become options."""
MAX_EXTENDS = 8


def is_compose(root: yaml.Node | None) -> bool:
    """Whether a YAML document looks like a Compose file."""
    return isinstance(get(root, "services"), yaml.MappingNode)


def read_compose(
    document: Document, root: yaml.Node | None, beside: Beside, environment: Mapping[str, str]
) -> list[LaunchSpec]:
    """The engines in a Compose file; the environment wins over the `.env` beside it."""
    dotenv = {name: value for name, value in env_file(beside(".env") or "").items() if value is not None}
    known = {**dotenv, **environment}
    variables = Variables({name: [Word(value)] for name, value in known.items()})
    services = {key.text: (key, node) for key, node in pairs(get(root, "services"))}
    reading = _Reading(
        document=document,
        beside=beside,
        variables=variables,
        dotenv=dotenv.keys() - environment.keys(),
        services={name: node for name, (_, node) in services.items()},
        project=scalar(document, get(root, "name")) or known.get("COMPOSE_PROJECT_NAME", ""),
        volumes=tuple(_named_volumes(document, get(root, "volumes"))),
    )
    return [spec for key, _ in services.values() for spec in _service(reading, key)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What all services of a file share."""

    document: Document
    beside: Beside
    variables: Variables
    dotenv: Set[str]
    """Those that the `.env` beside it sets."""
    services: Mapping[str, yaml.Node]
    project: str
    volumes: tuple[tuple[str, str], ...]

    def text(self, node: yaml.Node | None) -> Word | None:
        """A node's text with its variables filled in."""
        word = text_at(self.document, node)
        return filled(word, self.variables) if word is not None else None


def _named_volumes(document: Document, node: yaml.Node | None) -> Iterator[tuple[str, str]]:
    for key, volume in pairs(node):
        name = scalar(document, get(volume, "name"))
        if name or scalar(document, get(volume, "external")).lower() == "true":
            yield key.text, name or key.text


def _service(reading: _Reading, key: Word) -> list[LaunchSpec]:
    document = reading.document
    layers = list(_layers(document, reading.services, key.text))
    run = DockerRun()
    command: list[Word] = []
    entrypoint: list[Word] = []
    filed = set[str]()  # what only an env_file sets, whatever the shell has
    for layer in layers:  # the extended service first: later values win
        run.image = reading.text(get(layer, "image")) or run.image
        command = _words(reading, get(layer, "command")) or command
        entrypoint = _words(reading, get(layer, "entrypoint")) or entrypoint
        for path in _env_files(document, layer):
            text = reading.beside(path.text.removeprefix("./"))
            run.has_env_file = run.has_env_file or text is None
            run.options += [item_of("env-file", path)] if text is None else []
            values = env_file(text or "")
            filed |= values.keys()
            run.environment += [
                Item(name=name, value=f"${name}" if value is None else value) for name, value in values.items()
            ]
        own = _environment(reading, get(layer, "environment"))
        filed -= {item.name for item in own}
        run.environment += own
        if (file := text_at(document, get(layer, "extends", "file"))) is not None:
            run.options.append(item_of(MORE, file))
        run.options += _options(reading, layer)
    scope = Scope(document=document, kind=SourceKind.COMPOSE)
    named = [reference for layer in layers for reference in _references(layer)]
    unset = (one.name for one in named if one.has_default and one.rest and one.name not in reading.variables)
    base = replace(
        container_spec(run, scope, key),
        name=key.text,
        project=reading.project,
        defaults=tuple(dict.fromkeys(unset)),
        dotenv=tuple(dict.fromkeys(one.name for one in named if one.name in reading.dotenv - filed)),
        volumes=reading.volumes,
    )
    if entrypoint:
        command, run.entrypoint = [*entrypoint[1:], *command], entrypoint[0]
    elif any(get(layer, "entrypoint") is not None for layer in layers):  # an empty one is none, not the image's
        run.entrypoint = joined([])
    read_container(base, run.entrypoint, command, scope)
    return scope.specs


def _layers(document: Document, services: Mapping[str, yaml.Node], name: str) -> Iterator[yaml.Node]:
    """The YAML nodes of a service: those it extends first, its own last."""
    chain: list[yaml.Node] = []
    while len(chain) < MAX_EXTENDS:
        node = services.get(name)
        if node is None or node in chain:
            break
        chain.append(node)
        extends = get(node, "extends")
        if get(extends, "file") is not None:
            break
        name = scalar(document, get(extends, "service")) or scalar(document, extends)
    yield from reversed(chain)


def _references(node: yaml.Node) -> Iterator[Reference]:
    """Those in a node's texts."""
    if isinstance(node, yaml.ScalarNode):
        yield from references(node.value)
    for child in items(node) or [value for _, value in pairs(node)]:
        yield from _references(child)


def _env_files(document: Document, service: yaml.Node) -> Iterator[Word]:
    """The paths of a service's env_file: one, a list, or a list of mappings."""
    node = get(service, "env_file")
    for entry in items(node) or ((node,) if node is not None else ()):
        path = text_at(document, entry) or text_at(document, get(entry, "path"))
        if path is not None:
            yield path


def _words(reading: _Reading, node: yaml.Node | None) -> list[Word]:
    """The words of a command given as a string or as a list."""
    if entries := items(node):
        return [word for entry in entries if (word := reading.text(entry)) is not None]
    word = reading.text(node)  # compose fills in before it splits, whatever is quoted
    return plain_words(word) if word else []


def _environment(reading: _Reading, node: yaml.Node | None) -> list[Item]:
    variables = []
    for node_entry in items(node):
        text_entry = reading.text(node_entry)
        if text_entry is not None:
            variables.append(variable(text_entry))
    for key, node_entry in pairs(node):
        word = reading.text(node_entry)
        variables.append(item_of(key.text, word, key, text=None if word else f"${key.text}"))
    return variables


def _options(reading: _Reading, service: yaml.Node) -> list[Item]:
    document = reading.document
    options: list[Item] = []
    for key, node in pairs(service):
        if option := by_compose_key().get(key.text):
            name = {"volume": "mount"}.get(option.name, option.name)
            if (word := reading.text(node)) is not None:
                options.append(item_of(name, word, key))
            elif name == "gpus":
                options += [item_of(name, None, key, text="all")] if items(node) else []
            else:
                options += [item for entry in items(node) if (item := _entry(reading, name, key, entry))]
        elif key.text == "privileged":
            options += [item_of("privileged", None, key)] if scalar(document, node).lower() == "true" else []
        elif key.text == "ulimits":
            options += [_ulimit(document, name, value) for name, value in pairs(node)]
        elif key.text == "networks":
            options.append(item_of("network", None, key, text="bridge"))
        elif key.text not in _READ:
            options.append(item_of(key.text, None, key))
    for device in items(get(service, "deploy", "resources", "reservations", "devices")):
        capabilities = [scalar(document, entry) for entry in items(get(device, "capabilities"))]
        if "gpu" in capabilities:
            options.append(Item(name="gpus", value="all"))
    if limit := text_at(document, get(service, "deploy", "resources", "limits", "memory")):
        options.append(item_of("memory", limit))
    return options


def _entry(reading: _Reading, name: str, key: Word, node: yaml.Node) -> Item | None:
    """One list entry, in short or long form."""
    word = reading.text(node)
    if word is not None:
        return item_of(name, word)
    document = reading.document
    source, target = ((word.text if (word := reading.text(get(node, key))) else "") for key in ("source", "target"))
    if name == "publish":
        source = ":".join(filter(None, (scalar(document, get(node, key)) for key in ("host_ip", "published"))))
    return Item(name=name, value=f"{source}:{target}", span=key.span) if target else None


def _ulimit(document: Document, name: Word, node: yaml.Node) -> Item:
    value = scalar(document, node) or scalar(document, get(node, "soft"))
    return Item(name="ulimit", value=f"{name.text}={value}", span=name.span)
