"""One answer of `docker inspect` read to the model; what is missing or odd is left at its default. Pure.

Strings pass the sanitiser and argument lists the masking (probe.remote's, handed in) here, before anything else sees
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sparktop import sanitise
from sparktop.model.engine import Container
from sparktop.transport.dockerenv import MaskArgv, Secrets, described


def container_of(raw: Mapping[str, Any], mask: MaskArgv) -> Container:
    """The container, with its secrets masked."""
    state = _mapping(raw.get("State"))
    config = _mapping(raw.get("Config"))
    host = _mapping(raw.get("HostConfig"))
    network = _mapping(raw.get("NetworkSettings"))
    policy = _mapping(host.get("RestartPolicy"))
    status = sanitise.name(str(state.get("Status") or ""))
    secrets = secrets_of(raw, mask)
    addresses = (str(_mapping(net).get("IPAddress") or "") for net in _mapping(network.get("Networks")).values())
    return Container(
        container_id=sanitise.name(str(raw.get("Id") or "")),
        name=sanitise.name(str(raw.get("Name") or "").lstrip("/")),
        image=sanitise.name(str(config.get("Image") or "")),
        image_id=sanitise.name(str(raw.get("Image") or "")),
        status=status,
        exit_code=_number(state.get("ExitCode")) if status in ("exited", "dead") else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_wall_s=wall_s_of(state.get("StartedAt")),
        finished_wall_s=wall_s_of(state.get("FinishedAt")),
        restart_count=_number(raw.get("RestartCount")),
        restart_policy=sanitise.name(str(policy.get("Name") or "")),
        auto_remove=bool(host.get("AutoRemove")),
        network_mode=sanitise.name(str(host.get("NetworkMode") or "")),
        pid=_number(state.get("Pid")) or None,
        published_ports=_published(_mapping(network.get("Ports"))),
        addresses=tuple(sanitise.name(address) for address in addresses if address),
        argv=tuple(sanitise.line(secrets.hide(part)) for part in mask(_argv(raw))),
        environment=tuple(sanitise.line(pair) for pair in secrets.environment),
        labels=described(config.get("Labels"), secrets),
        ipc_mode=sanitise.name(str(host.get("IpcMode") or "")),
        shm_bytes=_number(host.get("ShmSize")) or None,
        memory_limit_bytes=_number(host.get("Memory")) or None,
        is_privileged=bool(host.get("Privileged")),
        has_gpus=_has_gpus(host, secrets.environment),
        devices=tuple(
            sanitise.name(str(_mapping(device).get("PathOnHost") or "")) for device in _items(host.get("Devices"))
        ),
        ulimits=tuple(
            sanitise.name(f"{limit.get('Name')}={_number(limit.get('Soft'))}:{_number(limit.get('Hard'))}")
            for limit in map(_mapping, _items(host.get("Ulimits")))
        ),
        mounts=tuple(
            sanitise.line(f"{mount.get('Source') or mount.get('Name') or ''}:{mount.get('Destination') or ''}")
            for mount in map(_mapping, _items(raw.get("Mounts")))
        ),
    )


def secrets_of(raw: Mapping[str, Any], mask: MaskArgv) -> Secrets:
    """Of one answer of `docker inspect`: its environment, masked, and what is hidden wherever else it stands."""
    environment = _items(_mapping(raw.get("Config")).get("Env"))
    return Secrets(mask, [str(pair) for pair in environment], _argv(raw))


def _argv(raw: Mapping[str, Any]) -> list[str]:
    return [str(part) for part in (raw.get("Path"), *_items(raw.get("Args"))) if part]


def _has_gpus(host: Mapping[str, Any], environment: Sequence[str]) -> bool:
    """Whether GPUs were asked for: an image's own NVIDIA_VISIBLE_DEVICES does nothing under plain runc."""
    requests = [_mapping(request) for request in _items(host.get("DeviceRequests"))]
    if any(
        request.get("Driver") in ("nvidia", "cdi")
        or any("gpu" in _items(one) for one in _items(request.get("Capabilities")))
        for request in requests
    ):
        return True
    if any("nvidia" in str(_mapping(device).get("PathOnHost")) for device in _items(host.get("Devices"))):
        return True
    runtime = str(host.get("Runtime") or "")
    visible = next((pair.partition("=")[2] for pair in environment if pair.startswith("NVIDIA_VISIBLE_DEVICES=")), "")
    return "nvidia" in runtime or (not runtime and visible not in ("", "void", "none"))


def _published(ports: Mapping[str, Any]) -> dict[int, int]:
    """TCP ports that the node's loopback reaches."""
    out: dict[int, int] = {}
    for port, bindings in ports.items():
        number, _, protocol = str(port).partition("/")
        if protocol == "udp" or not number.isdecimal():
            continue
        for binding in _items(bindings):
            host_port = str(_mapping(binding).get("HostPort") or "")
            if host_port.isdecimal() and str(_mapping(binding).get("HostIp") or "") in ("", "0.0.0.0", "127.0.0.1"):  # noqa: S104
                out[int(number)] = int(host_port)
    return out


def wall_s_of(stamp: object) -> float | None:
    """Docker's RFC 3339 time; None for its year 1, which means never."""
    try:
        moment = datetime.fromisoformat(str(stamp))
        return moment.timestamp() if moment.year > 1 else None
    except (ValueError, OverflowError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
