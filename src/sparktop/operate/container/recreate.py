"""The create body that reproduces an existing container from its `docker inspect`, with a change applied. Pure.

Only what Docker sets anew by itself is dropped: the short id as host name and alias, and MAC and IP addresses that
were not requested. Anonymous volumes are named, so that the new container has the same ones. Settings merged from
the image stay while the image stays; for another image the old image's are taken out (docs/facts/engines.md section
6.2). Sent to POST /containers/create of the newest API that the Docker Engine has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from typing import Any

from sparktop.cmdline.container_body import with_options
from sparktop.dataclass import dataclass
from sparktop.operate.refused import Refused
from sparktop.sanitise import items, mapping

Json = Mapping[str, Any]

_PREDEFINED = ("bridge", "default", "host", "none", "")
_ENDPOINT = ("IPAMConfig", "Links", "DriverOpts", "GwPriority")
"""The requested settings of a network's entry; the rest was assigned by Docker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCopy:
    """A create-container body that reproduces an existing container."""

    body: Mapping[str, Any] = field(repr=False)
    """Of POST /containers/create; contains the container's secrets."""
    connects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(network, body of POST /networks/<network>/connect): older APIs take one network at creation."""
    notes: tuple[str, ...] = ()
    """What differs from the old container, in words."""


def recreation(
    inspect: Json,
    image: Json | None = None,
    *,
    image_name: str = "",
    new_image: Json | None = None,
    entrypoint: Sequence[str] | None = None,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str | None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> ContainerCopy:
    """The body of the same container with these changes.

    Args:
        inspect: GET /containers/<id>/json.
        image: GET /images/<id>/json of its image; None where that is gone.
        image_name: how the image is named in the body; else by the id that the container was made from, as a tag may
            have moved since.
        new_image: GET /images/<name>/json of another image to make it from; `image_name` is its name then.
        entrypoint: the edited entrypoint, where it is another one.
        command: the edited command, where it is another one.
        environment: variables to set, or to take away (None).
        options: of HostConfig, merged as `container_body.with_options` does.

    Raises:
        Refused: an option that Docker doesn't have, or that contradicts another.
    """
    config = deepcopy(mapping(inspect.get("Config")))
    host_config = deepcopy(mapping(inspect.get("HostConfig")))
    container_id = str(inspect.get("Id") or "")
    notes: list[str] = []
    config["Image"] = image_name or str(inspect.get("Image") or config.get("Image") or "")
    is_cleared = not config.get("Entrypoint")
    if new_image is not None:
        config = _without_image(config, mapping(mapping(image).get("Config")))
    image_config = mapping(mapping(new_image if new_image is not None else image).get("Config"))
    if entrypoint is not None:
        config["Entrypoint"] = list(entrypoint)
    if command is not None:
        config["Cmd"] = list(command)
    if is_cleared and not config.get("Entrypoint"):
        config["Entrypoint"] = _no_entrypoint(config, image_config, known=image is not None or new_image is not None)
    config["Env"] = _environment(items(config.get("Env")), environment or {}, items(image_config.get("Env")))
    if options:
        problem = with_options(host_config, options)
        if problem:
            raise Refused(problem)
    if host_config.get("MemorySwappiness") == -1:  # the default in older Docker Engines; refused when sent
        host_config["MemorySwappiness"] = None
    _name_volumes(inspect, host_config, notes)
    network_mode = str(host_config.get("NetworkMode") or "")
    hostname = str(config.get("Hostname") or "")
    if hostname == container_id[:12] or network_mode.startswith("container:") or host_config.get("UTSMode") == "host":
        config["Hostname"] = ""
    if network_mode == "host" and str(mapping(inspect.get("HostConfig")).get("NetworkMode") or "") != "host":
        if host_config.get("PortBindings"):
            name = _name(inspect)
            notes.append(f"On the host's network Docker publishes no ports: {name} listens on the host's own.")
        host_config["PortBindings"] = {}
    if network_mode.startswith("container:"):
        config["ExposedPorts"] = None
        config.pop("MacAddress", None)
    endpoints = _endpoints(inspect, network_mode, container_id)
    primary = _primary(network_mode, endpoints, inspect)
    body = {
        **config,
        "HostConfig": host_config,
        "NetworkingConfig": {"EndpointsConfig": {primary: endpoints[primary]} if primary else {}},
    }
    return ContainerCopy(
        body=body,
        connects=tuple((name, {"EndpointConfig": settings}) for name, settings in endpoints.items() if name != primary),
        notes=tuple(notes),
    )


def anonymous_volumes(inspect: Json) -> tuple[Json, ...]:
    """Mounts of volumes without a name of their own: no bind or mount of HostConfig has their destination."""
    host_config = mapping(inspect.get("HostConfig"))
    named = {_target(str(bind)) for bind in items(host_config.get("Binds"))}
    mounts = map(mapping, items(host_config.get("Mounts")))
    named |= {str(mount.get("Target")) for mount in mounts if mount.get("Source") or mount.get("Type") != "volume"}
    return tuple(
        mount
        for mount in map(mapping, items(inspect.get("Mounts")))
        if mount.get("Type") == "volume" and mount.get("Name") and str(mount.get("Destination")) not in named
    )


def _name(inspect: Json) -> str:
    return str(inspect.get("Name") or "").lstrip("/")


def _name_volumes(inspect: Json, host_config: dict[str, Any], notes: list[str]) -> None:
    volumes = anonymous_volumes(inspect)
    if not volumes:
        return
    if host_config.get("AutoRemove"):
        # removed with the old container: binding their names would only create empty volumes
        where = ", ".join(str(volume.get("Destination")) for volume in volumes)
        notes.append(
            f"The anonymous volumes of {_name(inspect)} ({where}) go with the old container: the new one gets empty "
            "ones."
        )
        return
    mounts = [mapping(volume) for volume in items(host_config.get("Mounts"))]
    binds = [str(bind) for bind in items(host_config.get("Binds"))]
    for volume in volumes:
        destination, name = str(volume["Destination"]), str(volume["Name"])
        own_mount = next((mount for mount in mounts if str(mount.get("Target")) == destination), None)
        if own_mount is not None:
            own_mount["Source"] = name
        else:
            binds.append(f"{name}:{destination}" + ("" if volume.get("RW", True) else ":ro"))
    host_config["Mounts"] = mounts or host_config.get("Mounts")
    host_config["Binds"] = binds or host_config.get("Binds")


def _target(bind: str) -> str:
    """The destination of a bind, source:target[:options]; neither may hold a colon."""
    parts = bind.split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def _environment(current: Sequence[Any], changes: Mapping[str, str | None], image: Sequence[Any]) -> list[str]:
    """The NAME=value entries; a variable removed that the image sets is listed by its bare name, or it would come
    back."""
    from_image = {str(pair).partition("=")[0] for pair in image}
    kept: list[str] = []
    handled: set[str] = set()
    for pair in map(str, current):
        name = pair.partition("=")[0]
        if name not in changes:
            kept.append(pair)
        elif name not in handled and (value := changes[name]) is not None:
            kept.append(f"{name}={value}")
        elif name not in handled and name in from_image:
            kept.append(name)
        handled.add(name)
    for name, value in changes.items():
        if name not in handled:
            kept += [f"{name}={value}"] if value is not None else [name] if name in from_image else []
    return kept


def _no_entrypoint(config: Json, image: Json, *, known: bool) -> list[str] | None:
    """How to say that there is no entrypoint: an absent one would bring the image's back, [""] removes it."""
    if known and not image.get("Entrypoint"):
        return None
    return [""] if config.get("Cmd") else None


def _without_image(config: dict[str, Any], image: Json) -> dict[str, Any]:
    """The config without what the container has from its image alone."""
    remaining = dict(config)
    for name in ("WorkingDir", "User", "StopSignal"):
        if remaining.get(name) == image.get(name):
            remaining[name] = ""
    for name in ("Healthcheck", "Shell", "OnBuild"):
        if remaining.get(name) == image.get(name):
            remaining[name] = None
    inherited = [str(pair) for pair in items(image.get("Env"))]
    remaining["Env"] = [pair for pair in items(remaining.get("Env")) if pair not in inherited]
    for name in ("Labels", "Volumes", "ExposedPorts"):
        image_values = mapping(image.get(name))
        remaining[name] = {
            key: value for key, value in mapping(remaining.get(name)).items() if image_values.get(key, _ABSENT) != value
        }
    if (remaining.get("Entrypoint") or None) == (image.get("Entrypoint") or None):
        remaining["Entrypoint"] = None
        if (remaining.get("Cmd") or None) == (image.get("Cmd") or None):
            remaining["Cmd"] = None
    return remaining


_ABSENT = object()


def _endpoints(inspect: Json, mode: str, container_id: str) -> dict[str, dict[str, Any]]:
    """The requested settings of each network; empty where the container has no network of its own."""
    old_mode = str(mapping(inspect.get("HostConfig")).get("NetworkMode") or "")
    if mode in ("host", "none") or mode.startswith("container:"):
        return {}
    endpoints: dict[str, dict[str, Any]] = {}
    networks = mapping(mapping(inspect.get("NetworkSettings")).get("Networks"))
    left = _primary(old_mode, networks, inspect) if mode != old_mode else ""
    for name, network in networks.items():
        if name in ("host", "none") or (left and name == left):
            continue
        settings = {key: network[key] for key in _ENDPOINT if isinstance(network, dict) and network.get(key)}
        if name not in _PREDEFINED and isinstance(network, dict):
            aliases = [str(alias) for alias in items(network.get("Aliases")) if str(alias) != container_id[:12]]
            if aliases:
                settings["Aliases"] = aliases
        endpoints[str(name)] = settings
    return endpoints


def _primary(mode: str, endpoints: Json, inspect: Json) -> str:
    """The network that HostConfig names, by name or id; "" where its entry adds nothing."""
    primary = "bridge" if mode in ("default", "") else mode
    networks = mapping(mapping(inspect.get("NetworkSettings")).get("Networks"))
    for name in endpoints:
        if name == primary or mapping(networks.get(name)).get("NetworkID") == primary:
            return str(name)
    return ""
