"""`docker inspect`'s JSON: the engines among its containers, with what Docker was given for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from sparktop.diagnose.lint.dockerrun import DockerRun, variable
from sparktop.diagnose.lint.launches import Scope, container_spec, read_container
from sparktop.diagnose.lint.place import Document, Word, joined
from sparktop.diagnose.lint.spec import Item, LaunchSpec, SourceKind
from sparktop.diagnose.lint.yamlnodes import get, items, pairs, root_of, scalar, text_at

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
    """The engines of an inspect answer; None where it is none.

    Raises:
        ConfigError: it can't be read.
    """
    # A tab may indent JSON and not YAML; as many spaces keep every place.
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
    run.environment = [variable(each) for each in _texts(document, get(node, "Config", "Env"))]
    run.options = list(_options(document, node))
    path, arguments = word("Path"), _texts(document, get(node, "Args"))
    if path is None or not path.text:
        command = [
            *_texts(document, get(node, "Config", "Entrypoint")),
            *_texts(document, get(node, "Config", "Cmd")),
        ]
    else:
        command = [path, *arguments]
    scope = Scope(document=document, kind=SourceKind.INSPECT)
    name = scalar(document, get(node, "Name")).lstrip("/")
    begin = word("Name") or run.image
    base = replace(container_spec(run, scope, begin), name=name)
    # Its own entrypoint is part of the command here: the image's shortcut is not to be added.
    read_container(base, joined([]), command, scope)
    return scope.found


def _texts(document: Document, node: yaml.Node | None) -> list[Word]:
    return [word for each in items(node) if (word := text_at(document, each)) is not None]


def _options(document: Document, node: yaml.Node) -> Iterator[Item]:
    for name, path in _PLAIN.items():
        word = text_at(document, get(node, *path))
        if word is not None and word.text not in _DEFAULTS.get(name, ()):
            yield Item(name=name, value=word.text, span=word.span, value_span=word.span)
    host = get(node, "HostConfig")
    for name, key in (("rm", "AutoRemove"), ("privileged", "Privileged")):
        if scalar(document, get(host, key)) == "true":
            place = text_at(document, get(host, key))
            yield Item(name=name, span=place.span if place else None)
    for request in items(get(host, "DeviceRequests")):
        if "gpu" in [text.text for group in items(get(request, "Capabilities")) for text in _texts(document, group)]:
            yield Item(name="gpus", value="all")
    for device in items(get(host, "Devices")):
        yield Item(name="device", value=scalar(document, get(device, "PathOnHost")))
    for limit in items(get(host, "Ulimits")):
        yield Item(
            name="ulimit", value=f"{scalar(document, get(limit, 'Name'))}={scalar(document, get(limit, 'Soft'))}"
        )
    for mount in items(get(node, "Mounts")):
        yield Item(
            name="mount",
            value=f"{scalar(document, get(mount, 'Source'))}:{scalar(document, get(mount, 'Destination'))}",
        )
    for port, bindings in pairs(get(host, "PortBindings")):
        for binding in items(bindings):
            address, number = scalar(document, get(binding, "HostIp")), scalar(document, get(binding, "HostPort"))
            value = ":".join(part for part in (address, number, port.text.partition("/")[0]) if part)
            yield Item(name="publish", value=value, span=port.span)
