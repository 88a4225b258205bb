"""Reads Docker Compose files: a LaunchSpec for each service that is an engine, as Compose would start it.

Fills in `${NAME:-default}` and follows anchors, `<<` and `extends` within the file; the contents of an env_file are
unknown. Facts: docs/facts/engines.md section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from sparktop.cmdline.docker_run import DockerRun, variable
from sparktop.cmdline.shell import filled, plain_words
from sparktop.cmdline.source import Document, Item, Word, item_of, joined
from sparktop.cmdline.yaml_nodes import get, items, pairs, scalar, text_at
from sparktop.launchspec.read.commands import Scope, container_spec, read_container
from sparktop.launchspec.spec import LaunchSpec, SourceKind

_PLAIN = {
    "network_mode": "network",
    "ipc": "ipc",
    "shm_size": "shm-size",
    "restart": "restart",
    "mem_limit": "memory",
    "runtime": "runtime",
    "container_name": "name",
    "gpus": "gpus",
    "user": "user",
}
_LISTS = {"devices": "device", "volumes": "mount", "ports": "publish", "cap_add": "cap-add"}
MAX_EXTENDS = 8


def is_compose(root: yaml.Node | None) -> bool:
    """Whether a YAML document looks like a Compose file."""
    return isinstance(get(root, "services"), yaml.MappingNode)


def read_compose(document: Document, root: yaml.Node | None) -> list[LaunchSpec]:
    """The engines in a Compose file."""
    services = {key.text: (key, node) for key, node in pairs(get(root, "services"))}
    by_name = {name: node for name, (_, node) in services.items()}
    return [spec for key, _ in services.values() for spec in _service(document, by_name, key)]


def _service(document: Document, services: Mapping[str, yaml.Node], key: Word) -> list[LaunchSpec]:
    layers = list(_layers(document, services, key.text))
    run = DockerRun()
    command: list[Word] = []
    entrypoint: list[Word] = []
    for layer in layers:  # the extended service first: later values win
        image = text_at(document, get(layer, "image"))
        run.image = filled(image) if image else run.image
        command = _words(document, get(layer, "command")) or command
        entrypoint = _words(document, get(layer, "entrypoint")) or entrypoint
        run.environment += _environment(document, get(layer, "environment"))
        run.has_env_file = run.has_env_file or get(layer, "env_file") is not None
        run.options += _options(document, layer)
    scope = Scope(document=document, kind=SourceKind.COMPOSE)
    base = replace(container_spec(run, scope, key), name=key.text)
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


def _words(document: Document, node: yaml.Node | None) -> list[Word]:
    """The words of a command given as a string or as a list."""
    if entries := items(node):
        return [filled(word) for entry in entries if (word := text_at(document, entry)) is not None]
    word = text_at(document, node)
    return plain_words(word) if word else []


def _environment(document: Document, node: yaml.Node | None) -> list[Item]:
    variables = []
    for node_entry in items(node):
        text_entry = text_at(document, node_entry)
        if text_entry is not None:
            variables.append(variable(filled(text_entry)))
    for key, node_entry in pairs(node):
        value_text = text_at(document, node_entry)
        word = filled(value_text) if value_text is not None else None
        variables.append(item_of(key.text, word, key, text=None if word else f"${key.text}"))
    return variables


def _options(document: Document, service: yaml.Node) -> list[Item]:
    options: list[Item] = []
    for key, node in pairs(service):
        if key.text in _PLAIN:
            text = text_at(document, node)
            word = filled(text) if text else None
            if word is not None or items(node):
                options.append(item_of(_PLAIN[key.text], word, key, text=None if word else "all"))
        elif key.text in _LISTS:
            options += [item for entry in items(node) if (item := _entry(document, _LISTS[key.text], key, entry))]
        elif key.text == "privileged" and scalar(document, node).lower() == "true":
            options.append(item_of("privileged", None, key))
        elif key.text == "ulimits":
            options += [_ulimit(document, name, value) for name, value in pairs(node)]
        elif key.text == "networks":
            options.append(item_of("network", None, key, text="bridge"))
    for device in items(get(service, "deploy", "resources", "reservations", "devices")):
        capabilities = [scalar(document, entry) for entry in items(get(device, "capabilities"))]
        if "gpu" in capabilities:
            options.append(Item(name="gpus", value="all"))
    if limit := text_at(document, get(service, "deploy", "resources", "limits", "memory")):
        options.append(item_of("memory", limit))
    return options


def _entry(document: Document, name: str, key: Word, node: yaml.Node) -> Item | None:
    """One list entry, in short or long form."""
    word = text_at(document, node)
    if word is not None:
        return item_of(name, filled(word))
    source, target = scalar(document, get(node, "source")), scalar(document, get(node, "target"))
    if name == "publish":
        source = ":".join(filter(None, (scalar(document, get(node, key)) for key in ("host_ip", "published"))))
    return Item(name=name, value=f"{source}:{target}", span=key.span) if target else None


def _ulimit(document: Document, name: Word, node: yaml.Node) -> Item:
    value = scalar(document, node) or scalar(document, get(node, "soft"))
    return Item(name="ulimit", value=f"{name.text}={value}", span=name.span)
