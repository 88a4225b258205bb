"""A container's `docker inspect` as the body that makes the same container once more, with a change applied. Pure.

Nothing that inspect holds is dropped but what Docker makes anew by itself: the short id as host name and alias, MAC and
addresses that were not asked for. Anonymous volumes are named, so that the new container has the same ones. What is
merged with the image's own settings stays so while the image stays; for another image the old one's are taken out
(facts/engines.md section 6.2). Sent to POST /containers/create of the engine's newest API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from sparktop.operate.hostoptions import with_options

Json = Mapping[str, Any]

_PREDEFINED = ("bridge", "default", "host", "none", "")
_ENDPOINT = ("IPAMConfig", "Links", "DriverOpts", "GwPriority")
"""What of a network's entry was asked for; the rest is what Docker gave it."""


class CannotRecreate(ValueError):
    """The container can't be made again as asked; the text says why, `remedies` what would help."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies = remedies


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreation:
    """A container that can be made."""

    body: Mapping[str, Any] = field(repr=False)
    """Of POST /containers/create; holds what secrets the container was given."""
    connects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(network, body of POST /networks/<network>/connect): one network can be named at creation in older APIs."""
    notes: tuple[str, ...] = ()
    """What is not as it was, in words."""


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
) -> Recreation:
    """The same container, with these changes.

    Args:
        inspect: GET /containers/<id>/json.
        image: GET /images/<id>/json of its image; None where that is gone.
        image_name: how the image is named in the body; else by the id that the container was made from, as a tag may
            have moved since.
        new_image: GET /images/<name>/json of another image to make it from; `image_name` is its name then.
        entrypoint: the edited entrypoint, where it is another one.
        command: the edited command, where it is another one.
        environment: variables to set, or to take away (None).
        options: of HostConfig, laid over it as `hostoptions` says.

    Raises:
        CannotRecreate: an option that Docker doesn't have, or that contradicts another.
    """
    config = deepcopy(_mapping(inspect.get("Config")))
    host = deepcopy(_mapping(inspect.get("HostConfig")))
    identity = str(inspect.get("Id") or "")
    notes: list[str] = []
    config["Image"] = image_name or str(inspect.get("Image") or config.get("Image") or "")
    is_cleared = not config.get("Entrypoint")
    if new_image is not None:
        config = _without_image(config, _mapping(_mapping(image).get("Config")))
    base = _mapping(_mapping(new_image if new_image is not None else image).get("Config"))
    if entrypoint is not None:
        config["Entrypoint"] = list(entrypoint)
    if command is not None:
        config["Cmd"] = list(command)
    if is_cleared and not config.get("Entrypoint"):
        config["Entrypoint"] = _cleared(config, base, known=image is not None or new_image is not None)
    config["Env"] = _environment(_items(config.get("Env")), environment or {}, _items(base.get("Env")))
    if options:
        problem = with_options(host, options)
        if problem:
            raise CannotRecreate(problem)
    if host.get("MemorySwappiness") == -1:  # how older engines said "as it comes"; refused when it is asked for
        host["MemorySwappiness"] = None
    _name_volumes(inspect, config, host, notes)
    mode = str(host.get("NetworkMode") or "")
    hostname = str(config.get("Hostname") or "")
    if hostname == identity[:12] or mode.startswith("container:") or host.get("UTSMode") == "host":
        config["Hostname"] = ""
    if mode == "host" and str(_mapping(inspect.get("HostConfig")).get("NetworkMode") or "") != "host":
        notes.append("on the host's network its published ports mean nothing: it listens on its own")
        host["PortBindings"] = {}
    if mode.startswith("container:"):
        config["ExposedPorts"] = None
        config.pop("MacAddress", None)
    endpoints = _endpoints(inspect, mode, identity)
    primary = _primary(mode, endpoints, inspect)
    body = {
        **config,
        "HostConfig": host,
        "NetworkingConfig": {"EndpointsConfig": {primary: endpoints[primary]} if primary else {}},
    }
    return Recreation(
        body=body,
        connects=tuple((name, {"EndpointConfig": settings}) for name, settings in endpoints.items() if name != primary),
        notes=tuple(notes),
    )


def anonymous_volumes(inspect: Json) -> tuple[Json, ...]:
    """Mounts of volumes that nobody named: neither a bind nor a mount of HostConfig says what is in that place."""
    host = _mapping(inspect.get("HostConfig"))
    named = {_target(str(bind)) for bind in _items(host.get("Binds"))}
    named |= {str(one.get("Target")) for one in map(_mapping, _items(host.get("Mounts"))) if one.get("Source")}
    named |= {
        str(one.get("Target")) for one in map(_mapping, _items(host.get("Mounts"))) if one.get("Type") != "volume"
    }
    return tuple(
        one
        for one in map(_mapping, _items(inspect.get("Mounts")))
        if one.get("Type") == "volume" and one.get("Name") and str(one.get("Destination")) not in named
    )


def _name_volumes(inspect: Json, config: dict[str, Any], host: dict[str, Any], notes: list[str]) -> None:
    volumes = anonymous_volumes(inspect)
    if not volumes:
        return
    if host.get("AutoRemove"):
        # they are removed with the old container; binding their names would only make empty ones of those names
        where = ", ".join(str(one.get("Destination")) for one in volumes)
        notes.append(f"its anonymous volumes ({where}) go with the old container: the new one gets empty ones")
        return
    mounts = [_mapping(one) for one in _items(host.get("Mounts"))]
    binds = [str(bind) for bind in _items(host.get("Binds"))]
    for one in volumes:
        destination, name = str(one["Destination"]), str(one["Name"])
        given = next((mount for mount in mounts if str(mount.get("Target")) == destination), None)
        if given is not None:
            given["Source"] = name
        else:
            binds.append(f"{name}:{destination}" + ("" if one.get("RW", True) else ":ro"))
    host["Mounts"] = mounts or host.get("Mounts")
    host["Binds"] = binds or host.get("Binds")


def _target(bind: str) -> str:
    """Where a bind is mounted: source:target[:options]; neither may hold a colon."""
    parts = bind.split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def _environment(given: Sequence[Any], changes: Mapping[str, str | None], image: Sequence[Any]) -> list[str]:
    """NAME=value each; one that the image sets is taken away by its bare name, as it would come back otherwise."""
    from_image = {str(pair).partition("=")[0] for pair in image}
    kept: list[str] = []
    done: set[str] = set()
    for pair in map(str, given):
        name = pair.partition("=")[0]
        if name not in changes:
            kept.append(pair)
        elif name not in done and (value := changes[name]) is not None:
            kept.append(f"{name}={value}")
        elif name not in done and name in from_image:
            kept.append(name)
        done.add(name)
    for name, value in changes.items():
        if name not in done:
            kept += [f"{name}={value}"] if value is not None else [name] if name in from_image else []
    return kept


def _cleared(config: Json, image: Json, *, known: bool) -> list[str] | None:
    """How to say that there is no entrypoint: none at all would bring the image's back, [""] takes it away."""
    if known and not image.get("Entrypoint"):
        return None
    return [""] if config.get("Cmd") else None


def _without_image(config: dict[str, Any], image: Json) -> dict[str, Any]:
    """Without what the container has from its image alone."""
    left = dict(config)
    for name in ("WorkingDir", "User", "StopSignal"):
        if left.get(name) == image.get(name):
            left[name] = ""
    for name in ("Healthcheck", "Shell", "OnBuild"):
        if left.get(name) == image.get(name):
            left[name] = None
    inherited = [str(pair) for pair in _items(image.get("Env"))]
    left["Env"] = [pair for pair in _items(left.get("Env")) if pair not in inherited]
    for name in ("Labels", "Volumes", "ExposedPorts"):
        own = _mapping(image.get(name))
        left[name] = {key: value for key, value in _mapping(left.get(name)).items() if own.get(key, _ABSENT) != value}
    if (left.get("Entrypoint") or None) == (image.get("Entrypoint") or None):
        left["Entrypoint"] = None
        if (left.get("Cmd") or None) == (image.get("Cmd") or None):
            left["Cmd"] = None
    return left


_ABSENT = object()


def _endpoints(inspect: Json, mode: str, identity: str) -> dict[str, dict[str, Any]]:
    """Of each network what was asked for; none where the container has no network of its own."""
    before = str(_mapping(inspect.get("HostConfig")).get("NetworkMode") or "")
    if mode in ("host", "none") or mode.startswith("container:"):
        return {}
    out: dict[str, dict[str, Any]] = {}
    for name, given in _mapping(_mapping(inspect.get("NetworkSettings")).get("Networks")).items():
        if name in ("host", "none") or (mode != before and name == before):
            continue
        settings = {key: given[key] for key in _ENDPOINT if isinstance(given, dict) and given.get(key)}
        if name not in _PREDEFINED and isinstance(given, dict):
            aliases = [str(one) for one in _items(given.get("Aliases")) if str(one) != identity[:12]]
            if aliases:
                settings["Aliases"] = aliases
        out[str(name)] = settings
    return out


def _primary(mode: str, endpoints: Json, inspect: Json) -> str:
    """The network that HostConfig names, by its name or its id; "" where its own entry says nothing more."""
    wanted = "bridge" if mode in ("default", "") else mode
    networks = _mapping(_mapping(inspect.get("NetworkSettings")).get("Networks"))
    for name in endpoints:
        if name == wanted or _mapping(networks.get(name)).get("NetworkID") == wanted:
            return str(name)
    return ""


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else dict(value) if isinstance(value, Mapping) else {}


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
