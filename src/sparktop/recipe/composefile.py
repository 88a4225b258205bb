"""A container as a compose file of one service. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from sparktop.recipe.rendered import ContainerSpec

_SAME = {
    "IpcMode": "ipc", "ShmSize": "shm_size", "Memory": "mem_limit", "Privileged": "privileged", "CapAdd": "cap_add",
    "SecurityOpt": "security_opt",
}  # fmt: skip
_ODD = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ufeff]")
"""What YAML folds or takes for the end of a line."""


class _Dumper(yaml.SafeDumper):
    """YAML with a text of several lines as it is."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ODD.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def compose_file(container: ContainerSpec, comments: Iterable[str]) -> str:
    """The file's text; secrets are `${NAME}`, which compose takes from its environment or from `.env`."""
    host: Mapping[str, Any] = container.host
    service: dict[str, Any] = {"image": container.image, "container_name": container.name}
    if container.entrypoint is None:
        service["command"] = list(container.argv)
    else:
        # Said whole: what an empty entrypoint means differs between versions of compose.
        first, *rest = (*container.entrypoint, *container.argv)
        service |= {"entrypoint": [first], "command": rest}
    service["environment"] = dict(container.environment)
    if container.mounts:
        service["volumes"] = [
            f"{mount.source}:{mount.target}" + (":ro" if mount.is_read_only else "") for mount in container.mounts
        ]
    service |= _network(host)
    service |= {name: host[key] for key, name in _SAME.items() if host.get(key)}
    if limits := host.get("Ulimits"):
        service["ulimits"] = {one["Name"]: {"soft": one["Soft"], "hard": one["Hard"]} for one in limits}
    if devices := host.get("Devices"):
        service["devices"] = [f"{one['PathOnHost']}:{one['PathInContainer']}" for one in devices]
    if container.user:
        service["user"] = container.user
    if container.workdir:
        service["working_dir"] = container.workdir
    service["labels"] = dict(container.labels)
    if requests := host.get("DeviceRequests"):
        service["deploy"] = {"resources": {"reservations": {"devices": [_device(one) for one in requests]}}}
    service["restart"] = "no"
    service = _literal(service)
    for name in container.secret_names:
        service["environment"][name] = f"${{{name}:?give it in .env}}"
    whole = {"services": {container.name: service}}
    text = yaml.dump(whole, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comments) + text


def _network(host: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"network_mode": host["NetworkMode"]} if host.get("NetworkMode") else {}
    ports = [
        ":".join(part for part in (one.get("HostIp"), one.get("HostPort"), port.partition("/")[0]) if part)
        for port, bindings in (host.get("PortBindings") or {}).items()
        for one in bindings
    ]
    return found | ({"ports": ports} if ports else {})


def _device(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"driver": request.get("Driver") or "nvidia"}
    ids: Sequence[str] = request.get("DeviceIDs") or ()
    found |= {"device_ids": list(ids)} if ids else {"count": "all"}
    return found | {"capabilities": ["gpu"]}


def _literal(value: Any) -> Any:
    """Every dollar is one, and no variable of compose's."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _literal(one) for key, one in value.items()}
    return [_literal(one) for one in value] if isinstance(value, list) else value
