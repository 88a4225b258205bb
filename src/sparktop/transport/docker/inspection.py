"""Convert `docker inspect` answers to the model, with secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sparktop import sanitise
from sparktop.bounds import whole_or_none
from sparktop.masking import mask_argv
from sparktop.model.engine import Container
from sparktop.sanitise import items, mapping

MAX_VARIABLES = 200
MAX_LABELS = 64
MAX_ITEMS = 256
"""Of mounts, devices, ports, networks; a container has a handful of each."""
MAX_WORDS = 2000
"""Of a command line."""
_KNOWN_BY_VALUE = 8
"""Shorter secrets are masked only in their variable: "true" would blot out half a command line."""


class Secrets:
    """A container's environment, masked, and the secret values to hide wherever else they appear."""

    def __init__(self, environment: Sequence[str], argv: Sequence[str]) -> None:
        self._values: list[str] = []
        self.environment: list[str] = []
        """NAME=value, masked."""
        for pair in environment[:MAX_VARIABLES]:
            name, _, value = pair.partition("=")
            masked = self.pair(name, value)
            if masked != pair and masked == f"{name}=<masked>" and len(value) >= _KNOWN_BY_VALUE:
                self._values.append(value)
            self.environment.append(masked)
        for word, masked in zip(argv, mask_argv(argv), strict=True):
            told = masked.removesuffix("<masked>")
            if masked != word and told != masked and word.startswith(told) and len(word) - len(told) >= _KNOWN_BY_VALUE:
                self._values.append(word[len(told) :])
        self._values.sort(key=len, reverse=True)
        self.environment = [self.hide(pair) for pair in self.environment]

    def pair(self, name: str, value: str) -> str:
        """NAME=value, with the whole value masked, including spaces and commas, where the name is a secret's."""
        if name.upper().endswith(("KEY", "KEYS")):
            return f"{name}=<masked>"
        return mask_argv([f"--{name}={value}"])[0][2:]

    def hide(self, text: str) -> str:
        """The text without any known secret value: an argument may repeat a variable's value."""
        for value in self._values:
            text = text.replace(value, "<masked>")
        return text


def described(labels: Any, secrets: Secrets) -> dict[str, str]:
    """Docker's labels, at most 64, masked."""
    described_labels: dict[str, str] = {}
    for name, value in list(labels.items())[:MAX_LABELS] if isinstance(labels, dict) else ():
        masked = secrets.hide(secrets.pair(str(name), str(value)))
        described_labels[sanitise.name(str(name))] = sanitise.line(masked[len(str(name)) + 1 :], limit=400)
    return described_labels


def container_of(raw: Mapping[str, Any]) -> Container:
    """The container, with its secrets masked."""
    state = mapping(raw.get("State"))
    config = mapping(raw.get("Config"))
    host = mapping(raw.get("HostConfig"))
    network = mapping(raw.get("NetworkSettings"))
    policy = mapping(host.get("RestartPolicy"))
    status = sanitise.name(str(state.get("Status") or ""))
    secrets = secrets_of(raw)
    addresses = (
        str(mapping(net).get("IPAddress") or "") for net in list(mapping(network.get("Networks")).values())[:MAX_ITEMS]
    )
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
        published_ports=_published(mapping(network.get("Ports"))),
        addresses=tuple(sanitise.name(address) for address in addresses if address),
        argv=tuple(sanitise.line(secrets.hide(word)) for word in mask_argv(_argv(raw))),
        environment=tuple(sanitise.line(pair) for pair in secrets.environment),
        labels=described(config.get("Labels"), secrets),
        ipc_mode=sanitise.name(str(host.get("IpcMode") or "")),
        shm_bytes=_number(host.get("ShmSize")) or None,
        memory_limit_bytes=_number(host.get("Memory")) or None,
        is_privileged=bool(host.get("Privileged")),
        has_gpus=_has_gpus(host, secrets.environment),
        devices=tuple(
            sanitise.name(str(mapping(device).get("PathOnHost") or "")) for device in _items(host.get("Devices"))
        ),
        ulimits=tuple(
            sanitise.name(f"{limit.get('Name')}={_number(limit.get('Soft'))}:{_number(limit.get('Hard'))}")
            for limit in map(mapping, _items(host.get("Ulimits")))
        ),
        mounts=tuple(
            sanitise.line(f"{mount.get('Source') or mount.get('Name') or ''}:{mount.get('Destination') or ''}")
            for mount in map(mapping, _items(raw.get("Mounts")))
        ),
    )


def secrets_of(raw: Mapping[str, Any]) -> Secrets:
    """The secrets in one answer of `docker inspect`."""
    environment = items(mapping(raw.get("Config")).get("Env"))
    return Secrets([str(pair) for pair in environment], _argv(raw))


def _argv(raw: Mapping[str, Any]) -> list[str]:
    return [str(word) for word in (raw.get("Path"), *_items(raw.get("Args"), MAX_WORDS)) if word]


def _has_gpus(host: Mapping[str, Any], environment: Sequence[str]) -> bool:
    """Whether the container has GPUs: an image's own NVIDIA_VISIBLE_DEVICES has no effect under plain runc."""
    requests = [mapping(request) for request in items(host.get("DeviceRequests"))]
    if any(
        request.get("Driver") in ("nvidia", "cdi")
        or any("gpu" in items(item) for item in items(request.get("Capabilities")))
        for request in requests
    ):
        return True
    if any("nvidia" in str(mapping(device).get("PathOnHost")) for device in items(host.get("Devices"))):
        return True
    runtime = str(host.get("Runtime") or "")
    visible = next((pair.partition("=")[2] for pair in environment if pair.startswith("NVIDIA_VISIBLE_DEVICES=")), "")
    return "nvidia" in runtime or (not runtime and visible not in ("", "void", "none"))


def _published(ports: Mapping[str, Any]) -> dict[int, int]:
    """Published TCP ports that the node's loopback reaches."""
    out: dict[int, int] = {}
    for port, bindings in list(ports.items())[:MAX_ITEMS]:
        number, _, protocol = str(port).partition("/")
        if protocol == "udp" or not number.isdecimal():
            continue
        for binding in _items(bindings):
            host_port = str(mapping(binding).get("HostPort") or "")
            if host_port.isdecimal() and str(mapping(binding).get("HostIp") or "") in ("", "0.0.0.0", "127.0.0.1"):  # noqa: S104
                out[int(number)] = int(host_port)
    return out


def wall_s_of(stamp: object) -> float | None:
    """Docker's RFC 3339 time; None for its year 1, which means never."""
    try:
        moment = datetime.fromisoformat(str(stamp))
        return moment.timestamp() if moment.year > 1 else None
    except (ValueError, OverflowError):
        return None


def _number(value: object) -> int:
    return whole_or_none(value) or 0


def _items(value: object, limit: int = MAX_ITEMS) -> Sequence[Any]:
    """A JSON array, cut to its first elements."""
    return items(value)[:limit]
