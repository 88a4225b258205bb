"""The body of POST /containers/create as a `docker run` line to paste, whole: GPUs, ipc, limits and all. Pure.

Tools that make such a line leave out what an engine needs (facts/engines.md section 6.2). Secrets are given by name
alone (`-e HF_TOKEN`), to be exported before; what stands in the command line is masked. What the image sets already,
and Docker's defaults, are left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop import sanitise
from sparktop.probe.remote import MASK, mask_argv
from sparktop.recipe.secretnames import is_secret

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
    """One line, and one more for each further network.

    Args:
        image: GET /images/<id>/json: what it sets already is left out.
        mask: only a test of the line's meaning wants it unmasked.
    """
    own = _mapping(_mapping(image).get("Config"))
    words = ["docker", "run", "--detach", "--name", name]
    for option, value in _options(body, own, mask):
        words += [f"--{option}"] if value is None else [f"--{option}={value}"]
    entrypoint = [str(one) for one in _items(body.get("Entrypoint"))]
    command = [str(one) for one in _items(body.get("Cmd"))]
    if entrypoint != [str(one) for one in _items(own.get("Entrypoint"))]:
        first = entrypoint[0] if entrypoint else ""
        if entrypoint or own.get("Entrypoint"):
            words.append(f"--entrypoint={first}")
        command = [*entrypoint[1:], *command]
    shown = list(mask_argv(command)) if mask else command
    line = shlex.join([*words, str(body.get("Image") or ""), *shown])
    lines = [line]
    for network, settings in connects:
        extra = [word for option, value in _endpoint(_mapping(settings.get("EndpointConfig")))
                 for word in (f"--{option}={value}",)]  # fmt: skip
        lines.append(shlex.join(["docker", "network", "connect", *extra, network, name]))
    return "\n".join(lines)


def host_options(host: Json) -> tuple[tuple[str, str | None], ...]:
    """A HostConfig, or a part of it, as options of `docker run`: (name, value; None for a switch)."""
    return tuple(_options({"HostConfig": host}, {}, False))


def secret_names(environment: Sequence[str]) -> tuple[str, ...]:
    """Variables whose values are not shown."""
    return tuple(name for name, _, value in (pair.partition("=") for pair in environment) if is_secret(name, value))


def one_line(text: str) -> str:
    """For a shell that knows $'...', as bash and zsh do: a script within a word would be broken over lines."""

    def quoted(word: str) -> str:
        if "\n" not in word:
            return shlex.quote(word)
        plain = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"$'{plain}'"

    return " ".join(map(quoted, shlex.split(text)))


def shown_line(text: str) -> str:
    """The line fit for a terminal: a new line within a word would begin another command."""
    return "\n".join(sanitise.line(line, limit=16000) for line in text.splitlines())


def _options(body: Json, image: Json, mask: bool) -> Iterator[tuple[str, str | None]]:
    host = _mapping(body.get("HostConfig"))
    yield from _gpus(host)
    for key, option in _TEXTS.items():
        if host.get(key) and host[key] not in _DEFAULTS.get(key, ()):
            yield option, str(host[key])
    for key, option in _NUMBERS.items():
        if host.get(key) and host[key] not in _DEFAULTS.get(key, ()):
            yield option, str(host[key])
    if host.get("NanoCpus"):
        yield "cpus", f"{host['NanoCpus'] / 1e9:g}"
    for limit in map(_mapping, _items(host.get("Ulimits"))):
        soft, hard = limit.get("Soft"), limit.get("Hard")
        yield "ulimit", f"{limit.get('Name')}={soft}" + ("" if soft == hard else f":{hard}")
    for device in map(_mapping, _items(host.get("Devices"))):
        inside = device.get("PathInContainer") or device.get("PathOnHost")
        yield "device", f"{device.get('PathOnHost')}:{inside}:{device.get('CgroupPermissions') or 'rwm'}"
    for key, option in _SWITCHES.items():
        if host.get(key):
            yield option, None
    for key, option in _LISTS.items():
        for one in _items(host.get(key)):
            yield option, str(one)
    if not host.get("Privileged") and host.get("MaskedPaths") == [] and host.get("ReadonlyPaths") == []:
        yield "security-opt", "systempaths=unconfined"
    for key, option in _PAIRS.items():
        for name, value in _mapping(host.get(key)).items():
            yield option, f"{name}{':' if key == 'Tmpfs' and value else '' if key == 'Tmpfs' else '='}{value}"
    for key, option in _RATES.items():
        for one in map(_mapping, _items(host.get(key))):
            yield option, f"{one.get('Path')}:{one.get('Rate') or one.get('Weight')}"
    for mount in map(_mapping, _items(host.get("Mounts"))):
        yield "mount", _mount(mount)
    yield from _ports(body, host, image)
    yield from _log(_mapping(host.get("LogConfig")), mask)
    policy = _mapping(host.get("RestartPolicy"))
    if policy.get("Name") not in (None, "", "no"):
        count = policy.get("MaximumRetryCount")
        yield "restart", f"{policy['Name']}:{count}" if count else str(policy["Name"])
    for settings in _mapping(_mapping(body.get("NetworkingConfig")).get("EndpointsConfig")).values():
        for option, value in _endpoint(_mapping(settings)):
            yield {"alias": "network-alias"}.get(option, option), value
    if body.get("MacAddress"):
        yield "mac-address", str(body["MacAddress"])
    yield from _config(body, image, mask)


def _gpus(host: Json) -> Iterator[tuple[str, str]]:
    for request in map(_mapping, _items(host.get("DeviceRequests"))):
        kinds = [str(one) for group in _items(request.get("Capabilities")) for one in _items(group)]
        devices = [str(one) for one in _items(request.get("DeviceIDs"))]
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
        if further := [one for one in kinds if one != "gpu"]:
            listed = ",".join(further)
            parts.append(f'"capabilities={listed}"' if "," in listed else f"capabilities={listed}")
        for key, value in _mapping(request.get("Options")).items():
            parts.append(f'"options={key}={value}"')
        yield "gpus", "all" if parts == ["all"] else ",".join(parts)


def _mount(mount: Json) -> str:
    parts = [f"type={mount.get('Type')}"]
    if mount.get("Source"):
        parts.append(f"src={mount['Source']}")
    parts.append(f"dst={mount.get('Target')}")
    if mount.get("ReadOnly"):
        parts.append("readonly")
    bind, volume, tmpfs = (_mapping(mount.get(f"{kind}Options")) for kind in ("Bind", "Volume", "Tmpfs"))
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


def _ports(body: Json, host: Json, image: Json) -> Iterator[tuple[str, str]]:
    published = _mapping(host.get("PortBindings"))
    for port, bindings in published.items():
        for binding in map(_mapping, _items(bindings) or ({},)):
            address, number = str(binding.get("HostIp") or ""), str(binding.get("HostPort") or "")
            before = f"[{address}]:" if ":" in address else f"{address}:" if address else ""
            yield "publish", f"{before}{number}{':' if before or number else ''}{port}"
    for port in _mapping(body.get("ExposedPorts")):
        if port not in published and port not in _mapping(image.get("ExposedPorts")):
            yield "expose", str(port)


def _log(config: Json, mask: bool) -> Iterator[tuple[str, str]]:
    if config.get("Type") not in (None, "", "json-file") or config.get("Config"):
        yield "log-driver", str(config.get("Type"))
    for name, value in _mapping(config.get("Config")).items():
        yield "log-opt", f"{name}={MASK if mask and is_secret(str(name), str(value)) else value}"


def _endpoint(settings: Json) -> Iterator[tuple[str, str]]:
    addresses = _mapping(settings.get("IPAMConfig"))
    if addresses.get("IPv4Address"):
        yield "ip", str(addresses["IPv4Address"])
    if addresses.get("IPv6Address"):
        yield "ip6", str(addresses["IPv6Address"])
    for address in _items(addresses.get("LinkLocalIPs")):
        yield "link-local-ip", str(address)
    for alias in _items(settings.get("Aliases")):
        yield "alias", str(alias)
    for link in _items(settings.get("Links")):
        yield "link", str(link)


def _config(body: Json, image: Json, mask: bool) -> Iterator[tuple[str, str | None]]:
    """What is said of the container itself, and not by its image."""
    said: tuple[tuple[str, str], ...] = (
        ("Hostname", "hostname"), ("Domainname", "domainname"), ("User", "user"), ("WorkingDir", "workdir"),
        ("StopSignal", "stop-signal"),
    )  # fmt: skip
    for key, option in said:
        if body.get(key) and body[key] != image.get(key):
            yield option, str(body[key])
    if body.get("StopTimeout") is not None:
        yield "stop-timeout", str(body["StopTimeout"])
    for key, option in (("Tty", "tty"), ("OpenStdin", "interactive")):
        if body.get(key):
            yield option, None
    inherited = {str(pair) for pair in _items(image.get("Env"))}
    for pair in map(str, _items(body.get("Env"))):
        name, equals, value = pair.partition("=")
        if pair in inherited:
            continue
        yield "env", name if not equals or (mask and is_secret(name, value)) else pair
    for name, value in _mapping(body.get("Labels")).items():
        if _mapping(image.get("Labels")).get(name) != value:
            yield "label", f"{name}={MASK if mask and is_secret(str(name), str(value)) else value}"
    bound = {
        str(bind).split(":")[1] for bind in _items(_mapping(body.get("HostConfig")).get("Binds")) if ":" in str(bind)
    }
    for path in _mapping(body.get("Volumes")):
        if path not in _mapping(image.get("Volumes")) and path not in bound:
            yield "volume", str(path)
    if body.get("Healthcheck") and body["Healthcheck"] != image.get("Healthcheck"):
        yield from _health(_mapping(body["Healthcheck"]))


def _health(check: Json) -> Iterator[tuple[str, str | None]]:
    test = [str(one) for one in _items(check.get("Test"))]
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


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else dict(value) if isinstance(value, Mapping) else {}


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
