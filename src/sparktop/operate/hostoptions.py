"""Changes of a container's options, by the names of Docker's HostConfig, laid over what it has. Pure.

Docker ignores a name that it doesn't know, so only known ones are taken. A list is added to, entry by entry: what it
has of the same name (a limit), path (a device) or word is replaced, the rest stays; so are mappings. Other values
replace, and None takes an option away, or an entry of a mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

_KIND: Mapping[str, type | tuple[type, ...]] = {
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
"""Replaced as they are given."""


def with_options(host: dict[str, Any], changes: Mapping[str, Any]) -> str:
    """Lay the changes over a HostConfig, in place; why it can't be done, or nothing."""
    for name, value in changes.items():
        kind = _KIND.get(name)
        if kind is None:
            near = get_close_matches(name, _KIND, n=1)
            hint = f": did you mean {near[0]}?" if near else ", by the names of its API's HostConfig"
            return f"Docker has no container option {name[:60]!r}{hint}"
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            wanted = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
            return f"the container option {name} wants {wanted[kind] if isinstance(kind, type) else kind}"
        before = host.get(name)
        if value is None:
            host.pop(name, None)
        elif isinstance(value, list) and name not in _WHOLE:
            host[name] = _added(before if isinstance(before, list) else [], value, _identity(name))
        elif isinstance(value, Mapping) and name not in _WHOLE:
            merged = {**(before if isinstance(before, dict) else {}), **value}
            host[name] = {key: one for key, one in merged.items() if one is not None}
        else:
            host[name] = value
    policy = host.get("RestartPolicy")
    restarts = isinstance(policy, dict) and policy.get("Name") not in (None, "", "no")
    if host.get("AutoRemove") and restarts:
        return "a container that is removed when it ends (--rm) can't have a restart policy: Docker refuses the two"
    if str(host.get("NetworkMode") or "").startswith("container:") and host.get("PortBindings"):
        return "a container in another's network can't publish ports of its own"
    return ""


def _added(before: list[Any], more: list[Any], identity: Callable[[Any], Any]) -> list[Any]:
    """What was there, each that is given again in the first one's place, and the new ones after."""
    given = {identity(one): one for one in more}
    left: list[Any] = []
    for one in before:
        key = identity(one)
        if key not in {identity(each) for each in more}:
            left.append(one)  # two entries of one name that nobody changes stay two
        elif key in given:
            left.append(given.pop(key))
    return left + list(given.values())


def _identity(name: str) -> Callable[[Any], Any]:
    """What makes two entries of a list the same thing."""
    key = {
        "Ulimits": "Name",
        "Devices": "PathInContainer",
        "Mounts": "Target",
        "BlkioWeightDevice": "Path",
    }.get(name)
    if name == "DeviceRequests":
        return lambda one: str(one.get("Capabilities") if isinstance(one, dict) else one)
    if name == "Binds":
        return lambda one: ":".join(str(one).split(":")[1:2]) or str(one)
    if name == "ExtraHosts":
        return lambda one: str(one).partition(":")[0]
    if key is None:
        return lambda one: str(one)
    return lambda one: str(one.get(key) or one.get("PathOnHost")) if isinstance(one, dict) else str(one)
