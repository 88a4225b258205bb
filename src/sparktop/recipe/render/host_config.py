"""Docker's HostConfig and create body, from the recipe's `executor_config`.

sparkrun's defaults apply, with three exceptions: no `privileged` (the GPU, /dev/infiniband and locked memory are all
that is needed), no `auto_remove` (--rm loses the log and the rollback), and no restart policy before the engine has
served (docs/facts/engines.md OPS-05).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sparktop.cmdline.docker_run import bytes_of
from sparktop.dataclass import dataclass
from sparktop.recipe.container_spec import CannotRender, ContainerSpec, Mount, NodeContext

SHM_BYTES = 16 << 30
"""Size of /dev/shm where the host's isn't shared."""


_VALUE_FORMS = {
    "restart_policy": (
        re.compile(r"no|always|unless-stopped|on-failure(?::\d{1,9})?"),
        "no, always, unless-stopped or on-failure:N",
    ),
    "ipc": (re.compile(r"host|private|shareable|none|container:[\w.-]+"), "host, private, shareable or none"),
    "network": (re.compile(r"(?:container:)?[A-Za-z0-9][\w.-]*"), "host, bridge or a network's name"),
    "publish_address": (re.compile(r"[0-9.]+|[0-9a-f:]+"), "an IP address of the node"),
    "user": (re.compile(r"[\w.-]+(?::[\w.-]+)?"), "a user, or USER:GROUP"),
    "gpus": (re.compile(r'"?(?:all|1|device=[\w.:-]+(?:,[\w.:-]+)*)"?'), "all, 1 or device=0"),
}
"""Valid forms of values that Docker would otherwise refuse at creation, or ignore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The result of `executor_config` on one node."""

    host: Mapping[str, object]
    user: str = ""
    publish_address: str = ""
    """Where Docker publishes the engine's port, on its own network; empty: on every address of the node."""
    entrypoint: tuple[str, ...] | None = None
    mounts: tuple[Mount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def options(config: Mapping[str, object], node: NodeContext, *, nodes: int) -> Options:
    """The container's options on one node.

    Raises:
        CannotRender: an option that has no valid value, is unsupported, or doesn't work on two nodes.
    """
    if config.get("auto_remove"):
        raise _problem(
            "auto_remove",
            "doesn't work with sparktop: --rm deletes the log of a failure, and prevents a rollback",
            "remove it from the recipe: sparktop removes a container only once a new one serves",
            is_unsupported=True,
        )
    for name, (form, valid_form) in _VALUE_FORMS.items():
        if (text := _text(config, name)) and not form.fullmatch(text):
            raise _problem(name, f"is {text[:40]!r}: it must be {valid_form}")
    host: dict[str, object] = {"RestartPolicy": {"Name": "no"}, **_gpus(config)}
    policy = _text(config, "restart_policy")
    is_later = policy not in ("", "no")
    note = f"sparktop sets the recipe's restart_policy {policy} only once the engine has served"
    network = _text(config, "network") or "host"
    if network == "none":
        raise _problem("network", "is 'none': no request would reach the engine")
    if nodes > 1 and network != "host":
        raise _problem("network", f"is {network!r}, which doesn't reach another node: two nodes need 'host'")
    host["NetworkMode"] = network
    host |= _shared_memory(config, nodes)
    if config.get("privileged"):
        host["Privileged"] = True
    ulimits = {"memlock": (-1, -1), "nofile": (65535, 65535)}
    for item in _items(config, "ulimit"):
        ulimits |= _ulimit(item)
    host["Ulimits"] = [{"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in sorted(ulimits.items())]
    devices = [_device(item) for item in _items(config, "devices")]
    capabilities = [item.upper().removeprefix("CAP_") for item in _items(config, "cap_add")]
    if nodes > 1 and node.hcas:
        if not any(str(device["PathOnHost"]).startswith("/dev/infiniband") for device in devices):
            devices.append(_device("/dev/infiniband"))
        capabilities.append("IPC_LOCK")
    if devices:
        host["Devices"] = devices
    if capabilities:
        host["CapAdd"] = list(dict.fromkeys(capabilities))
    if security := _items(config, "security_opt"):
        host["SecurityOpt"] = security
    if limit := _text(config, "memory_limit"):
        host["Memory"] = _size_bytes("memory_limit", limit)
    return Options(
        host=host,
        user=_text(config, "user"),
        publish_address=_text(config, "publish_address"),
        entrypoint=None if config.get("entrypoint") is None else tuple(_items(config, "entrypoint")),
        mounts=tuple(mount(item, node) for item in _items(config, "volumes")),
        labels=dict(_label(item) for item in _items(config, "labels")),
        notes=(note,) if is_later else (),
    )


def mount(text: str, node: NodeContext) -> Mount:
    """Parse a bind mount as `-v` has it: SOURCE:TARGET[:ro], or one path for both; `~` is the user's home on the node.

    Raises:
        CannotRender: the text is ambiguous, or its source is no path on the node.
    """
    fields = text.split(":")
    if len(fields) == 1:
        fields = [text, text]
    modes = fields[2].split(",") if len(fields) == 3 else []
    source = re.sub(r"\A(?:~|\$HOME|\$\{HOME\})(?=/|\Z)", node.home or "~", fields[0])
    if len(fields) > 3 or not fields[1].startswith("/") or not set(modes) <= {"ro", "rw"}:
        raise _problem("volumes", f"{text[:80]!r} is not SOURCE:TARGET or SOURCE:TARGET:ro")
    if not re.fullmatch(r"/.*|[A-Za-z0-9][\w.-]+", source) or re.search(r"[\x00-\x1f\x7f]", text):
        raise _problem("volumes", f"{text[:80]!r} must begin with an absolute path or a volume name")
    return Mount(source=source, target=fields[1], is_read_only="ro" in modes)


def _problem(name: str, text: str, *remedies: str, is_unsupported: bool = False) -> CannotRender:
    return CannotRender(text, *remedies, key=f"executor_config.{name}", is_unsupported=is_unsupported)


def _gpus(config: Mapping[str, object]) -> dict[str, object]:
    choice = _text({"gpus": "all", **config}, "gpus").strip('"')
    if not choice:
        return {}
    ids = choice.removeprefix("device=").split(",") if choice.startswith("device=") else []
    request: dict[str, object] = {"Driver": "", "Count": 0 if ids else -1, "Capabilities": [["gpu"]]}
    if ids:
        request["DeviceIDs"] = ids
    if _text(config, "gpu_access_mode") == "cdi":
        request = {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={device_id}" for device_id in ids or ["all"]]}
    return {"DeviceRequests": [request]}


def _shared_memory(config: Mapping[str, object], nodes: int) -> dict[str, object]:
    """Two nodes share the host's IPC; a single one gets its own /dev/shm, which systemd-logind's RemoveIPC can't
    clear."""
    ipc = _text(config, "ipc") or ("host" if nodes > 1 else "")
    size = _text(config, "shm_size")
    ipc_config: dict[str, object] = {"IpcMode": ipc} if ipc else {}
    if size or ipc != "host":
        ipc_config["ShmSize"] = _size_bytes("shm_size", size) if size else SHM_BYTES
    return ipc_config


def _device(text: str) -> dict[str, object]:
    fields = text.split(":")
    inside = fields[1] if len(fields) > 1 and fields[1].startswith("/") else fields[0]
    mode = fields[-1] if len(fields) > 1 and re.fullmatch(r"[rwm]{1,3}", fields[-1]) else "rwm"
    if not fields[0].startswith("/dev/") or len(fields) > 3 or re.search(r"[\x00-\x1f\x7f]", text):
        raise _problem("devices", f"{text[:60]!r} is not a device path (/dev/...)")
    return {"PathOnHost": fields[0], "PathInContainer": inside, "CgroupPermissions": mode}


def _ulimit(text: str) -> dict[str, tuple[int, int]]:
    match = re.fullmatch(r"([a-z]+)=(-?\d{1,15})(?::(-?\d{1,15}))?", text)
    if match is None:
        raise _problem("ulimit", f"{text[:60]!r} is not NAME=SOFT:HARD")
    return {match[1]: (int(match[2]), int(match[3] or match[2]))}


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name.strip():
        raise _problem("labels", f"{text[:60]!r} has no name")
    return name, value


def _size_bytes(name: str, text: str) -> int:
    size = int(text) if text.isdecimal() else bytes_of(text)
    if not size:
        raise _problem(name, f"is {text[:40]!r}: it must be a size, for example 16gb")
    return int(size)


def _text(config: Mapping[str, object], name: str) -> str:
    value = config.get(name)
    return "" if value is None else str(value)


def _items(config: Mapping[str, object], name: str) -> list[str]:
    """The option as a list: one text is a list of one."""
    value = config.get(name) or ()
    return list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]


def body(spec: ContainerSpec) -> dict[str, Any]:
    """The JSON body of Docker's create request; the container's name goes into the query."""
    host: dict[str, Any] = dict(spec.host)
    if spec.mounts:
        host["Binds"] = [mount.text for mount in spec.mounts]
    request: dict[str, Any] = {
        "Image": spec.image,
        "Cmd": list(spec.argv),
        "Env": [f"{name}={value}" for name, value in spec.environment.items()],
        "Labels": dict(spec.labels),
        "HostConfig": host,
    }
    if spec.entrypoint is not None:
        # The API takes a list of one empty text, not an empty list, as "no entrypoint".
        request["Entrypoint"] = list(spec.entrypoint) or [""]
    if ports := host.get("PortBindings"):
        request["ExposedPorts"] = {port: {} for port in ports}
    if spec.user:
        request["User"] = spec.user
    return request
