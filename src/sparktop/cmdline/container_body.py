"""The body of POST /containers/create: as a complete `docker run` line, and with container options changed. Pure.

Tools that generate such a line omit what an engine needs (docs/facts/engines.md section 6.2). Secrets are passed by
name only (`-e HF_TOKEN`), to be exported before; those in the command line are masked. What the image sets, and
Docker's defaults, are omitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from sparktop import sanitise
from sparktop.masking import MASK, is_secret, mask_argv
from sparktop.sanitise import items, mapping

Json = Mapping[str, Any]
_TEXTS = {
    "Runtime": "runtime", "NetworkMode": "network", "IpcMode": "ipc", "PidMode": "pid", "UTSMode": "uts",
    "UsernsMode": "userns", "CgroupnsMode": "cgroupns", "CgroupParent": "cgroup-parent", "CpusetCpus": "cpuset-cpus",
    "CpusetMems": "cpuset-mems", "VolumeDriver": "volume-driver", "Isolation": "isolation",
}  # fmt: skip
_NUMBERS = {
    "ShmSize": "shm-size", "Memory": "memory", "MemorySwap": "memory-swap", "MemoryReservation": "memory-reservation",
    "MemorySwappiness": "memory-swappiness", "PidsLimit": "pids-limit", "OomScoreAdj": "oom-score-adj",
    "CpuShares": "cpu-shares", "CpuPeriod": "cpu-period", "CpuQuota": "cpu-quota", "BlkioWeight": "blkio-weight",
    "CpuRealtimePeriod": "cpu-rt-period", "CpuRealtimeRuntime": "cpu-rt-runtime", "KernelMemory": "kernel-memory",
}  # fmt: skip
_SWITCHES = {
    "Privileged": "privileged", "ReadonlyRootfs": "read-only", "Init": "init", "AutoRemove": "rm",
    "PublishAllPorts": "publish-all", "OomKillDisable": "oom-kill-disable",
}  # fmt: skip
_LISTS = {
    "CapAdd": "cap-add", "CapDrop": "cap-drop", "SecurityOpt": "security-opt", "GroupAdd": "group-add", "Dns": "dns",
    "DnsSearch": "dns-search", "DnsOptions": "dns-option", "ExtraHosts": "add-host", "Binds": "volume",
    "VolumesFrom": "volumes-from", "DeviceCgroupRules": "device-cgroup-rule",
}  # fmt: skip
_PAIRS = {"Tmpfs": "tmpfs", "Sysctls": "sysctl", "StorageOpt": "storage-opt", "Annotations": "annotation"}
_RATES = {
    "BlkioDeviceReadBps": "device-read-bps", "BlkioDeviceWriteBps": "device-write-bps",
    "BlkioDeviceReadIOps": "device-read-iops", "BlkioDeviceWriteIOps": "device-write-iops",
    "BlkioWeightDevice": "blkio-weight-device",
}  # fmt: skip
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "Runtime": ("runc", "io.containerd.runc.v2"), "NetworkMode": ("default", "bridge"), "IpcMode": ("private",),
    "CgroupnsMode": ("private",), "ShmSize": (67108864,), "Isolation": ("default",), "MemorySwappiness": (-1,),
}  # fmt: skip


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
    entrypoint = [str(item) for item in items(body.get("Entrypoint"))]
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
    return tuple(_options({"HostConfig": host}, {}, False))


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
    for key, option in (_TEXTS | _NUMBERS).items():
        if host_config.get(key) and host_config[key] not in _DEFAULTS.get(key, ()):
            yield option, str(host_config[key])
    if host_config.get("NanoCpus"):
        yield "cpus", f"{host_config['NanoCpus'] / 1e9:g}"
    for limit in map(mapping, items(host_config.get("Ulimits"))):
        soft, hard = limit.get("Soft"), limit.get("Hard")
        yield "ulimit", f"{limit.get('Name')}={soft}" + ("" if soft == hard else f":{hard}")
    for device in map(mapping, items(host_config.get("Devices"))):
        inside = device.get("PathInContainer") or device.get("PathOnHost")
        yield "device", f"{device.get('PathOnHost')}:{inside}:{device.get('CgroupPermissions') or 'rwm'}"
    for key, option in _SWITCHES.items():
        if host_config.get(key):
            yield option, None
    for key, option in _LISTS.items():
        for entry in items(host_config.get(key)):
            yield option, str(entry)
    is_unmasked = host_config.get("MaskedPaths") == [] and host_config.get("ReadonlyPaths") == []
    if is_unmasked and not host_config.get("Privileged"):
        yield "security-opt", "systempaths=unconfined"
    for key, option in _PAIRS.items():
        for name, value in mapping(host_config.get(key)).items():
            yield option, f"{name}{':' if key == 'Tmpfs' and value else '' if key == 'Tmpfs' else '='}{value}"
    for key, option in _RATES.items():
        for entry in map(mapping, items(host_config.get(key))):
            yield option, f"{entry.get('Path')}:{entry.get('Rate') or entry.get('Weight')}"
    for mount in map(mapping, items(host_config.get("Mounts"))):
        yield "mount", _mount(mount)
    yield from _ports(body, host_config, image)
    yield from _log(mapping(host_config.get("LogConfig")), mask)
    policy = mapping(host_config.get("RestartPolicy"))
    if policy.get("Name") not in (None, "", "no"):
        count = policy.get("MaximumRetryCount")
        yield "restart", f"{policy['Name']}:{count}" if count else str(policy["Name"])
    for settings in mapping(mapping(body.get("NetworkingConfig")).get("EndpointsConfig")).values():
        for option, value in _endpoint(mapping(settings)):
            yield {"alias": "network-alias"}.get(option, option), value
    if body.get("MacAddress"):
        yield "mac-address", str(body["MacAddress"])
    yield from _config(body, image, mask)


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
            listed = ",".join(devices)
            parts.append(f'"device={listed}"' if "," in listed else f"device={listed}")
        elif count not in (0, None):
            parts.append("all" if count == -1 else f"count={count}")
        if request.get("Driver"):
            parts.append(f"driver={request['Driver']}")
        if other_kinds := [name for name in kinds if name != "gpu"]:
            listed = ",".join(other_kinds)
            parts.append(f'"capabilities={listed}"' if "," in listed else f"capabilities={listed}")
        for key, value in mapping(request.get("Options")).items():
            parts.append(f'"options={key}={value}"')
        yield "gpus", "all" if parts == ["all"] else ",".join(parts)


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
    return ",".join(f'"{part}"' if "," in part else part for part in parts)


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
    settings: tuple[tuple[str, str], ...] = (
        ("Hostname", "hostname"), ("Domainname", "domainname"), ("User", "user"), ("WorkingDir", "workdir"),
        ("StopSignal", "stop-signal"),
    )  # fmt: skip
    for key, option in settings:
        if body.get(key) and body[key] != image.get(key):
            yield option, str(body[key])
    if body.get("StopTimeout") is not None:
        yield "stop-timeout", str(body["StopTimeout"])
    for key, option in (("Tty", "tty"), ("OpenStdin", "interactive")):
        if body.get(key):
            yield option, None
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


_OPTION_TYPES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("CgroupParent", "Cgroup", "CgroupnsMode", "ContainerIDFile", "CpusetCpus", "CpusetMems", "IpcMode",
         "Isolation", "NetworkMode", "PidMode", "Runtime", "UTSMode", "UsernsMode", "VolumeDriver"), str),
    **dict.fromkeys(
        ("BlkioWeight", "CpuCount", "CpuPercent", "CpuPeriod", "CpuQuota", "CpuRealtimePeriod", "CpuRealtimeRuntime",
         "CpuShares", "IOMaximumBandwidth", "IOMaximumIOps", "KernelMemory", "KernelMemoryTCP", "Memory",
         "MemoryReservation", "MemorySwap", "MemorySwappiness", "NanoCpus", "OomScoreAdj", "PidsLimit", "ShmSize"),
        int),
    **dict.fromkeys(
        ("AutoRemove", "Init", "OomKillDisable", "Privileged", "PublishAllPorts", "ReadonlyRootfs"), bool),
    **dict.fromkeys(
        ("BlkioDeviceReadBps", "BlkioDeviceReadIOps", "BlkioDeviceWriteBps", "BlkioDeviceWriteIOps",
         "BlkioWeightDevice", "Binds", "CapAdd", "CapDrop", "ConsoleSize", "DeviceCgroupRules", "DeviceRequests",
         "Devices", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "GroupAdd", "Links", "MaskedPaths", "Mounts",
         "ReadonlyPaths", "SecurityOpt", "Ulimits", "VolumesFrom"), list),
    **dict.fromkeys(
        ("Annotations", "LogConfig", "PortBindings", "RestartPolicy", "StorageOpt", "Sysctls", "Tmpfs"), dict),
}  # fmt: skip
_WHOLE = ("LogConfig", "RestartPolicy", "ConsoleSize", "MaskedPaths", "ReadonlyPaths")
"""Replaced as a whole, not merged."""


def with_options(host_config: dict[str, Any], changes: Mapping[str, Any]) -> str:
    """Merge the changes into a HostConfig, in place; why that is not possible, or an empty text."""
    for name, value in changes.items():
        kind = _OPTION_TYPES.get(name)
        if kind is None:
            matches = get_close_matches(name, _OPTION_TYPES, n=1)
            hint = f": did you mean {matches[0]}?" if matches else ", by the names of its API's HostConfig"
            return f"Docker has no container option {name[:60]!r}{hint}"
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            kind_names = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
            return f"the container option {name} wants {kind_names[kind] if isinstance(kind, type) else kind}"
        current = host_config.get(name)
        if value is None:
            host_config.pop(name, None)
        elif isinstance(value, list) and name not in _WHOLE:
            host_config[name] = _merged_list(current if isinstance(current, list) else [], value, _identity(name))
        elif isinstance(value, Mapping) and name not in _WHOLE:
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


def _merged_list(current: list[Any], additions: list[Any], identity: Callable[[Any], Any]) -> list[Any]:
    """The old entries, each replaced in place by a new one of the same identity, then the remaining new ones."""
    by_identity = {identity(entry): entry for entry in additions}
    merged: list[Any] = []
    for entry in current:
        key = identity(entry)
        if key not in {identity(other) for other in additions}:
            merged.append(entry)  # entries of one name that are not changed all stay
        elif key in by_identity:
            merged.append(by_identity.pop(key))
    return merged + list(by_identity.values())


def _identity(name: str) -> Callable[[Any], Any]:
    """The function that tells whether two entries of a list mean the same thing."""
    key = {
        "Ulimits": "Name",
        "Devices": "PathInContainer",
        "Mounts": "Target",
        "BlkioWeightDevice": "Path",
    }.get(name)
    if name == "DeviceRequests":
        return lambda entry: str(entry.get("Capabilities") if isinstance(entry, dict) else entry)
    if name == "Binds":
        return lambda entry: ":".join(str(entry).split(":")[1:2]) or str(entry)
    if name == "ExtraHosts":
        return lambda entry: str(entry).partition(":")[0]
    if key is None:
        return lambda entry: str(entry)
    return lambda entry: str(entry.get(key) or entry.get("PathOnHost")) if isinstance(entry, dict) else str(entry)
