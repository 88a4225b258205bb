"""Docker Compose files: each service that is an engine, as Compose would start it.

`${NAME:-default}` is filled in, anchors, `<<` and `extends` within the file are followed; what an env_file holds is not
known. Facts: facts/engines.md section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from sparktop.diagnose.lint.dockerrun import DockerRun
from sparktop.diagnose.lint.launches import Scope, container_spec, read_container
from sparktop.diagnose.lint.place import Document, Word
from sparktop.diagnose.lint.shellwords import filled, plain_words
from sparktop.diagnose.lint.spec import Item, LaunchSpec, SourceKind
from sparktop.diagnose.lint.yamlnodes import get, items, pairs, scalar, text_at

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
    """Whether a YAML document has Compose's shape."""
    return isinstance(get(root, "services"), yaml.MappingNode)


def read_compose(document: Document, root: yaml.Node | None) -> list[LaunchSpec]:
    """The engines of a Compose file."""
    services = {key.text: (key, node) for key, node in pairs(get(root, "services"))}
    by_name = {name: node for name, (_, node) in services.items()}
    return [spec for key, _ in services.values() for spec in _service(document, by_name, key)]


def _service(document: Document, services: Mapping[str, yaml.Node], key: Word) -> list[LaunchSpec]:
    layers = list(_layers(document, services, key.text))
    run = DockerRun()
    command: list[Word] = []
    entrypoint: list[Word] = []
    for layer in layers:  # what is extended first, so that what is said later counts
        image = text_at(document, get(layer, "image"))
        run.image = filled(image, {}) if image else run.image
        command = _words(document, get(layer, "command")) or command
        entrypoint = _words(document, get(layer, "entrypoint")) or entrypoint
        run.environment += _environment(document, get(layer, "environment"))
        run.has_env_file = run.has_env_file or get(layer, "env_file") is not None
        run.options += _options(document, layer)
    scope = Scope(document=document, kind=SourceKind.COMPOSE)
    base = replace(container_spec(run, scope, key), name=key.text)
    if entrypoint:
        command, run.entrypoint = [*entrypoint[1:], *command], entrypoint[0]
    read_container(base, run.entrypoint, command, scope)
    return scope.found


def _layers(document: Document, services: Mapping[str, yaml.Node], name: str) -> Iterator[yaml.Node]:
    """The service's own node, after those it extends."""
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
    """A command given as a text or as a list."""
    if listed := items(node):
        return [filled(word, {}) for each in listed if (word := text_at(document, each)) is not None]
    word = text_at(document, node)
    return plain_words(word, {}) if word else []


def _environment(document: Document, node: yaml.Node | None) -> list[Item]:
    found = []
    for each in items(node):
        entry = text_at(document, each)
        if entry is not None:
            word = filled(entry, {})
            name, equals, _ = word.text.partition("=")
            value = word.part(len(name) + 1)
            found.append(
                Item(name=name, value=value.text if equals else f"${name}", span=word.span, value_span=value.span)
            )
    for key, each in pairs(node):
        given = text_at(document, each)
        text = filled(given, {}) if given is not None else None
        found.append(_item(key.text, text.text if text else f"${key.text}", key, text))
    return found


def _options(document: Document, service: yaml.Node) -> list[Item]:
    found: list[Item] = []
    for key, node in pairs(service):
        if key.text in _PLAIN:
            text = text_at(document, node)
            word = filled(text, {}) if text else None
            if word is not None or items(node):
                found.append(_item(_PLAIN[key.text], word.text if word else "all", key, word))
        elif key.text in _LISTS:
            found += [item for each in items(node) if (item := _entry(document, _LISTS[key.text], key, each))]
        elif key.text == "privileged" and scalar(document, node).lower() == "true":
            found.append(_item("privileged", None, key, None))
        elif key.text == "ulimits":
            found += [_ulimit(document, name, value) for name, value in pairs(node)]
        elif key.text == "networks":
            found.append(_item("network", "bridge", key, None))
    for device in items(get(service, "deploy", "resources", "reservations", "devices")):
        capabilities = [scalar(document, each) for each in items(get(device, "capabilities"))]
        if "gpu" in capabilities:
            found.append(Item(name="gpus", value="all"))
    if limit := text_at(document, get(service, "deploy", "resources", "limits", "memory")):
        found.append(Item(name="memory", value=limit.text, span=limit.span, value_span=limit.span))
    return found


def _item(name: str, value: str | None, key: Word, word: Word | None) -> Item:
    value_span = word.span if word else None
    span = (key.span[0], value_span[1]) if key.span and value_span and value_span[0] > key.span[0] else key.span
    return Item(name=name, value=value, span=span, value_span=value_span)


def _entry(document: Document, name: str, key: Word, node: yaml.Node) -> Item | None:
    """One entry of a list, in its short form or its long one."""
    word = text_at(document, node)
    if word is not None:
        word = filled(word, {})
        return Item(name=name, value=word.text, span=word.span, value_span=word.span)
    source, target = scalar(document, get(node, "source")), scalar(document, get(node, "target"))
    if name == "publish":
        source = ":".join(
            part for part in (scalar(document, get(node, "host_ip")), scalar(document, get(node, "published"))) if part
        )
    return Item(name=name, value=f"{source}:{target}", span=key.span) if target else None


def _ulimit(document: Document, name: Word, node: yaml.Node) -> Item:
    value = scalar(document, node) or scalar(document, get(node, "soft"))
    return Item(name="ulimit", value=f"{name.text}={value}", span=name.span)
