"""The body of POST /containers/create: as a complete `docker run` line, and with container options changed. Pure.

Tools that generate such a line omit what an engine needs (docs/facts/engines.md section 6.2). Secrets are passed by
name only (`-e HF_TOKEN`), to be exported before; those in the command line are masked. What the image sets, and
Docker's defaults, are omitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.docker_options import DockerOption, by_host_key, by_name
from sparktop.errors import nearest
from sparktop.masking import MASK, is_secret, mask_argv
from sparktop.sanitise import items, mapping

Json = Mapping[str, Any]


def docker_run(
    name: str, body: Json, image: Json | None = None, *, connects: Sequence[tuple[str, Json]] = (), mask: bool = True
) -> str:
    """The `docker run` line, and one `docker network connect` line for each further network.

    Args:
        image: GET /images/<id>/json: what it sets is omitted.
        mask: False only in tests of the line's meaning.
    """
    image_config = mapping(mapping(image).get("Config"))
    words = ["docker", "run", "--detach", "--name", name]
    for option, value in _options(body, image_config, mask):
        words += [f"--{option}"] if value is None else [f"--{option}={value}"]
    own = body.get("Entrypoint", image_config.get("Entrypoint"))  # Docker takes the image's where nothing is said
    entrypoint = [str(item) for item in items(own)]
    command = [str(item) for item in items(body.get("Cmd"))]
    if entrypoint != [str(item) for item in items(image_config.get("Entrypoint"))]:
        program = entrypoint[0] if entrypoint else ""
        if entrypoint or image_config.get("Entrypoint"):
            words.append(f"--entrypoint={program}")
        command = [*entrypoint[1:], *command]
    shown_command = list(mask_argv(command)) if mask else command
    lines = [shlex.join([*words, str(body.get("Image") or ""), *shown_command])]
    for network, settings in connects:
        extra = [f"--{option}={value}" for option, value in _endpoint(mapping(settings.get("EndpointConfig")))]
        lines.append(shlex.join(["docker", "network", "connect", *extra, network, name]))
    return "\n".join(lines)


def host_options(host: Json) -> tuple[tuple[str, str | None], ...]:
    """A HostConfig, or part of one, as options of `docker run`: (name, value; None for a switch)."""
    return container_options({"HostConfig": host})


def container_options(body: Json) -> tuple[tuple[str, str | None], ...]:
    """A body as options of `docker run`: (name, value; None for a switch), with what its image sets."""
    return tuple(_options(body, {}, False))


def secret_names(environment: Sequence[str]) -> tuple[str, ...]:
    """Variables whose values are not shown."""
    return tuple(name for name, _, value in (pair.partition("=") for pair in environment) if is_secret(name, value))


def one_line(text: str) -> str:
    """The text on one line for bash and zsh: words with line breaks as $'...'."""

    def quoted(word: str) -> str:
        if "\n" not in word:
            return shlex.quote(word)
        escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"$'{escaped}'"

    return " ".join(map(quoted, shlex.split(text)))


def shown_line(text: str) -> str:
    """The line safe for a terminal: control characters within its lines are replaced."""
    return "\n".join(sanitise.line(line, limit=16000) for line in text.splitlines())


def _options(body: Json, image: Json, mask: bool) -> Iterator[tuple[str, str | None]]:
    host_config = mapping(body.get("HostConfig"))
    yield from _gpus(host_config)
    for option in _written("text", "number"):
        if host_config.get(option.key) and host_config[option.key] not in option.defaults:
            yield option.name, str(host_config[option.key])
    if isinstance(cpus := host_config.get("NanoCpus"), int) and cpus:
        yield "cpus", f"{cpus / 1e9:g}"
    for limit in map(mapping, items(host_config.get("Ulimits"))):
        soft, hard = limit.get("Soft"), limit.get("Hard")
        yield "ulimit", f"{limit.get('Name')}={soft}" + ("" if soft == hard else f":{hard}")
    for device in map(mapping, items(host_config.get("Devices"))):
        inside = device.get("PathInContainer") or device.get("PathOnHost")
        yield "device", f"{device.get('PathOnHost')}:{inside}:{device.get('CgroupPermissions') or 'rwm'}"
    for option in _written("switch"):
        if host_config.get(option.key):
            yield option.name, None
    for option in _written("list"):
        for entry in items(host_config.get(option.key)):
            rate = mapping(entry)
            yield option.name, f"{rate.get('Path')}:{rate.get('Rate') or rate.get('Weight')}" if rate else str(entry)
    is_unmasked = host_config.get("MaskedPaths") == [] and host_config.get("ReadonlyPaths") == []
    if is_unmasked and not host_config.get("Privileged"):
        yield "security-opt", "systempaths=unconfined"
    for option in _written("table"):
        sign = ":" if option.name == "tmpfs" else "="
        for name, value in mapping(host_config.get(option.key)).items():
            yield option.name, name if sign == ":" and not value else f"{name}{sign}{value}"
    for mount in map(mapping, items(host_config.get("Mounts"))):
        yield "mount", _mount(mount)
    yield from _ports(body, host_config, image)
    yield from _log(mapping(host_config.get("LogConfig")), mask)
    policy = mapping(host_config.get("RestartPolicy"))
    if policy.get("Name") not in (None, "", "no"):
        count = policy.get("MaximumRetryCount")
        yield "restart", f"{policy['Name']}:{count}" if count else str(policy["Name"])
    for settings in mapping(mapping(body.get("NetworkingConfig")).get("EndpointsConfig")).values():
        for name, value in _endpoint(mapping(settings)):
            yield {"alias": "network-alias"}.get(name, name), value
    if body.get("MacAddress"):
        yield "mac-address", str(body["MacAddress"])
    yield from _config(body, image, mask)


def _written(*forms: str) -> Iterator[DockerOption]:
    """The options of these types that are written as their type is."""
    return (option for option in by_host_key().values() if option.name and option.form in forms and not option.own)


def _gpus(host_config: Json) -> Iterator[tuple[str, str]]:
    for request in map(mapping, items(host_config.get("DeviceRequests"))):
        kinds = [str(name) for group in items(request.get("Capabilities")) for name in items(group)]
        devices = [str(name) for name in items(request.get("DeviceIDs"))]
        if request.get("Driver") == "cdi":
            for device in devices:
                yield "device", device
            continue
        count = request.get("Count")
        parts = []
        if devices:
            parts.append(f"device={','.join(devices)}")
        elif count not in (0, None):
            parts.append("all" if count == -1 else f"count={count}")
        if request.get("Driver"):
            parts.append(f"driver={request['Driver']}")
        if other_kinds := [name for name in kinds if name != "gpu"]:
            parts.append(f"capabilities={','.join(other_kinds)}")
        parts += [f"options={key}={value}" for key, value in mapping(request.get("Options")).items()]
        yield "gpus", _fields(parts) or "all"


def _fields(parts: Sequence[str]) -> str:
    """The fields of one value, as Docker reads CSV."""
    return ",".join(f'"{part}"' if "," in part else part for part in parts)


def _mount(mount: Json) -> str:
    parts = [f"type={mount.get('Type')}"]
    if mount.get("Source"):
        parts.append(f"src={mount['Source']}")
    parts.append(f"dst={mount.get('Target')}")
    if mount.get("ReadOnly"):
        parts.append("readonly")
    bind, volume, tmpfs = (mapping(mount.get(f"{kind}Options")) for kind in ("Bind", "Volume", "Tmpfs"))
    if bind.get("Propagation"):
        parts.append(f"bind-propagation={bind['Propagation']}")
    if bind.get("NonRecursive"):
        parts.append("bind-recursive=disabled")
    if volume.get("NoCopy"):
        parts.append("volume-nocopy")
    if volume.get("Subpath"):
        parts.append(f"volume-subpath={volume['Subpath']}")
    if tmpfs.get("SizeBytes"):
        parts.append(f"tmpfs-size={tmpfs['SizeBytes']}")
    if tmpfs.get("Mode"):
        parts.append(f"tmpfs-mode={tmpfs['Mode']:o}")
    return _fields(parts)


def _ports(body: Json, host_config: Json, image: Json) -> Iterator[tuple[str, str]]:
    published = mapping(host_config.get("PortBindings"))
    for port, bindings in published.items():
        for binding in map(mapping, items(bindings) or ({},)):
            address, number = str(binding.get("HostIp") or ""), str(binding.get("HostPort") or "")
            address_text = f"[{address}]:" if ":" in address else f"{address}:" if address else ""
            yield "publish", f"{address_text}{number}{':' if address_text or number else ''}{port}"
    for port in mapping(body.get("ExposedPorts")):
        if port not in published and port not in mapping(image.get("ExposedPorts")):
            yield "expose", str(port)


def _log(config: Json, mask: bool) -> Iterator[tuple[str, str]]:
    if config.get("Type") not in (None, "", "json-file") or config.get("Config"):
        yield "log-driver", str(config.get("Type"))
    for name, value in mapping(config.get("Config")).items():
        yield "log-opt", f"{name}={MASK if mask and is_secret(str(name), str(value)) else value}"


def _endpoint(settings: Json) -> Iterator[tuple[str, str]]:
    addresses = mapping(settings.get("IPAMConfig"))
    for option, key in (("ip", "IPv4Address"), ("ip6", "IPv6Address")):
        if addresses.get(key):
            yield option, str(addresses[key])
    for option, entries in (
        ("link-local-ip", addresses.get("LinkLocalIPs")),
        ("alias", settings.get("Aliases")),
        ("link", settings.get("Links")),
    ):
        yield from ((option, str(entry)) for entry in items(entries))


def _config(body: Json, image: Json, mask: bool) -> Iterator[tuple[str, str | None]]:
    """The settings of the container itself that its image doesn't have."""
    for option in dict.fromkeys(by_name().values()):
        value = body.get(option.config)
        if option.config and value not in (None, "", False) and value != image.get(option.config):
            yield option.name, str(value) if option.takes_value else None
    inherited = {str(pair) for pair in items(image.get("Env"))}
    for pair in map(str, items(body.get("Env"))):
        name, equals, value = pair.partition("=")
        if pair in inherited:
            continue
        yield "env", name if not equals or (mask and is_secret(name, value)) else pair
    for name, value in mapping(body.get("Labels")).items():
        if mapping(image.get("Labels")).get(name) != value:
            yield "label", f"{name}={MASK if mask and is_secret(str(name), str(value)) else value}"
    bound = {
        str(bind).split(":")[1] for bind in items(mapping(body.get("HostConfig")).get("Binds")) if ":" in str(bind)
    }
    for path in mapping(body.get("Volumes")):
        if path not in mapping(image.get("Volumes")) and path not in bound:
            yield "volume", str(path)
    if body.get("Healthcheck") and body["Healthcheck"] != image.get("Healthcheck"):
        yield from _health(mapping(body["Healthcheck"]))


def _health(check: Json) -> Iterator[tuple[str, str | None]]:
    test = [str(word) for word in items(check.get("Test"))]
    if test == ["NONE"]:
        yield "no-healthcheck", None
        return
    if test:
        yield "health-cmd", " ".join(test[1:]) if test[0] == "CMD-SHELL" else shlex.join(test[1:])
    for key, option in (
        ("Interval", "health-interval"), ("Timeout", "health-timeout"), ("StartPeriod", "health-start-period"),
        ("StartInterval", "health-start-interval"),
    ):  # fmt: skip
        if check.get(key):
            yield option, f"{check[key] / 1e9:g}s"
    if check.get("Retries"):
        yield "health-retries", str(check["Retries"])


_TYPES = {
    "text": (str, "a text"), "number": (int, "a whole number"), "switch": (bool, "true or false"),
    "list": (list, "a list"), "table": (dict, "a table"),
}  # fmt: skip


def with_options(host_config: dict[str, Any], changes: Mapping[str, Any]) -> str:
    """Merge the changes into a HostConfig, in place; why that is not possible, or an empty text."""
    for name, value in changes.items():
        option = by_host_key().get(name)
        if option is None:
            meant = nearest(name, by_host_key())
            hint = f": did you mean {meant}?" if meant else ", by the names of its API's HostConfig"
            return f"Docker has no container option {name[:60]!r}{hint}"
        kind, kind_name = _TYPES[option.form]
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            return f"the container option {name} wants {kind_name}"
        current = host_config.get(name)
        if value is None:
            host_config.pop(name, None)
        elif isinstance(value, list) and not option.whole:
            host_config[name] = _merged_list(current if isinstance(current, list) else [], value, option.same)
        elif isinstance(value, Mapping) and not option.whole:
            merged = {**(current if isinstance(current, dict) else {}), **value}
            host_config[name] = {key: item for key, item in merged.items() if item is not None}
        else:
            host_config[name] = value
    policy = host_config.get("RestartPolicy")
    restarts = isinstance(policy, dict) and policy.get("Name") not in (None, "", "no")
    if host_config.get("AutoRemove") and restarts:
        return "a container that is removed when it ends (--rm) can't have a restart policy: Docker refuses the two"
    if str(host_config.get("NetworkMode") or "").startswith("container:") and host_config.get("PortBindings"):
        return "a container in another's network can't publish ports of its own"
    return ""


def _merged_list(current: list[Any], additions: list[Any], same: str) -> list[Any]:
    """The old entries, each replaced in place by a new one that means the same thing, then the remaining new ones."""
    left = {_identity(entry, same): entry for entry in additions}
    replaced = frozenset(left)
    merged: list[Any] = []
    for entry in current:
        key = _identity(entry, same)
        if key not in replaced:
            merged.append(entry)  # entries of one name that are not changed all stay
        elif key in left:
            merged.append(left.pop(key))
    return merged + list(left.values())


def _identity(entry: Any, same: str) -> str:
    """What an entry is about: the text under this key, or the field of its text (":1" is A:THIS)."""
    if isinstance(entry, dict):
        return str(entry.get(same) or entry.get("PathOnHost")) if same else str(entry)
    field = str(entry).split(":")[int(same[1:]) :][:1] if same.startswith(":") else []
    return "".join(field) or str(entry)
