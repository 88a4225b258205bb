"""A recipe's `executor_config` as Docker's HostConfig: sparkrun's names, and what an engine on a Spark needs. Pure.

sparkrun's defaults are taken but for three: no `privileged` (the GPU, /dev/infiniband and locked memory are what is
needed of it), no `auto_remove` (--rm loses the log and the way back), and no restart policy before it has served
(facts/engines.md OPS-05).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from sparktop.diagnose.lint.memoryrules import bytes_of
from sparktop.recipe.rendered import CannotRender, Mount, Seat

SHM_BYTES = 16 << 30
"""Of /dev/shm where the host's isn't shared."""
_KNOWN = (
    "auto_remove", "restart_policy", "privileged", "gpus", "gpu_access_mode", "ipc", "shm_size", "network",
    "entrypoint", "user", "security_opt", "cap_add", "ulimit", "devices", "memory_limit", "labels", "volumes",
    "executor", "executor_type", "accelerator_vendor", "working_dir",
)  # fmt: skip
_FORMS = {
    "restart_policy": (
        re.compile(r"no|always|unless-stopped|on-failure(?::\d{1,9})?"),
        "no, always, unless-stopped or on-failure:N",
    ),
    "ipc": (re.compile(r"host|private|shareable|none|container:[\w.-]+"), "host, private, shareable or none"),
    "network": (re.compile(r"(?:container:)?[A-Za-z0-9][\w.-]*"), "host, bridge or a network's name"),
    "user": (re.compile(r"[\w.-]+(?::[\w.-]+)?"), "a user, or USER:GROUP,"),
}
"""What Docker would refuse when the container is made, or forget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `executor_config` comes to on one node."""

    host: Mapping[str, object]
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] | None = None
    mounts: tuple[Mount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_on_host_network(self) -> bool:
        return self.host.get("NetworkMode") == "host"


def options(given: Mapping[str, object], seat: Seat, *, nodes: int) -> Options:
    """The container's options on one node.

    Raises:
        CannotRender: a field that isn't known, can't be honoured, or that two nodes can't do with.
    """
    for name in given:
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1)
            raise CannotRender(f"executor_config: {name[:60]!r} isn't known" + (f": {near[0]}?" if near else ""))
    _refused(given)
    host: dict[str, object] = {"RestartPolicy": {"Name": "no"}}
    notes = []
    if _text(given, "restart_policy") not in ("", "no"):
        notes.append(f"restart_policy {_text(given, 'restart_policy')} of the recipe is not set before it has served")
    host |= _gpus(given)
    network = _text(given, "network") or "host"
    if network == "none":
        raise CannotRender("executor_config: network 'none' lets no request reach the engine")
    if nodes > 1 and network != "host":
        raise CannotRender(f"executor_config: network {network!r} doesn't reach another node, which needs the host's")
    host["NetworkMode"] = network
    host |= _shared_memory(given, nodes)
    if _flag(given, "privileged"):
        host["Privileged"] = True
    ulimits = {"memlock": (-1, -1), "nofile": (65535, 65535)}
    for item in _items(given, "ulimit"):
        ulimits |= _ulimit(item)
    host["Ulimits"] = [{"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in sorted(ulimits.items())]
    devices = [_device(item) for item in _items(given, "devices")]
    capabilities = [item.upper().removeprefix("CAP_") for item in _items(given, "cap_add")]
    if nodes > 1 and seat.hcas:
        if not any(str(each["PathOnHost"]).startswith("/dev/infiniband") for each in devices):
            devices.append(_device("/dev/infiniband"))
        capabilities.append("IPC_LOCK")
    if devices:
        host["Devices"] = devices
    if capabilities:
        host["CapAdd"] = list(dict.fromkeys(capabilities))
    if security := list(_items(given, "security_opt")):
        host["SecurityOpt"] = security
    if limit := _text(given, "memory_limit"):
        host["Memory"] = _bytes("memory_limit", limit)
    return Options(
        host=host,
        user=_text(given, "user"),
        workdir=_text(given, "working_dir"),
        entrypoint=_entrypoint(given),
        mounts=tuple(mount(item, seat) for item in _items(given, "volumes")),
        labels=dict(_label(item) for item in _items(given, "labels")),
        notes=tuple(notes),
    )


def mount(text: str, seat: Seat) -> Mount:
    """A bind as `-v` has it: SOURCE:TARGET[:ro], a path alone for both; `~` is the user's home on the node.

    Raises:
        CannotRender: what can't be told apart, or isn't a path of the node.
    """
    parts = text.split(":")
    if len(parts) == 1:
        parts = [text, text]
    modes = parts[2].split(",") if len(parts) == 3 else []
    source = re.sub(r"\A(?:~|\$HOME|\$\{HOME\})(?=/|\Z)", seat.home or "~", parts[0])
    if len(parts) > 3 or not parts[1].startswith("/") or not set(modes) <= {"ro", "rw"}:
        raise CannotRender(f"executor_config: volumes: {text[:80]!r} isn't SOURCE:TARGET or SOURCE:TARGET:ro")
    if not re.fullmatch(r"/.*|[A-Za-z0-9][\w.-]+", source) or re.search(r"[\x00-\x1f\x7f]", text):
        raise CannotRender(f"executor_config: volumes: {text[:80]!r} begins with no path from the root and no volume")
    return Mount(source=source, target=parts[1], is_read_only="ro" in modes)


def _refused(given: Mapping[str, object]) -> None:
    if _flag(given, "auto_remove"):
        raise CannotRender(
            "executor_config: auto_remove can't be honoured: with --rm the log of a failure is lost, and the way back",
            "take it out of the recipe: sparktop removes nothing that has not been replaced",
        )
    for name in ("executor", "executor_type"):
        if _text(given, name) not in ("", "docker"):
            raise CannotRender(f"executor_config: {name} {_text(given, name)!r} can't be honoured: only docker is")
    if _text(given, "accelerator_vendor") not in ("", "nvidia"):
        raise CannotRender("executor_config: accelerator_vendor: a Spark's is nvidia")
    for name, (form, wanted) in _FORMS.items():
        if (text := _text(given, name)) and not form.fullmatch(text):
            raise CannotRender(f"executor_config: {name} is {text[:40]!r}: {wanted} is wanted")


def _gpus(given: Mapping[str, object]) -> dict[str, object]:
    wanted = str(given.get("gpus", "all") or "").strip().strip('"')
    if not wanted:
        return {}
    mode = _text(given, "gpu_access_mode") or "gpus"
    if mode not in ("gpus", "cdi"):
        raise CannotRender(f"executor_config: gpu_access_mode is gpus or cdi, not {mode[:40]!r}")
    is_all = wanted in ("all", "1")  # a number is how many, and a Spark has one
    ids = [] if is_all else [each for each in wanted.removeprefix("device=").split(",") if each]
    if not is_all and (not wanted.startswith("device=") or any(not re.fullmatch(r"[\w.:-]+", each) for each in ids)):
        raise CannotRender(f"executor_config: gpus is {wanted[:40]!r}: all, 1, or device=0")
    if mode == "cdi":
        request: dict[str, object] = {
            "Driver": "cdi",
            "DeviceIDs": [f"nvidia.com/gpu={each}" for each in ids or ["all"]],
        }
    elif ids:
        request = {"Driver": "", "Count": 0, "DeviceIDs": ids, "Capabilities": [["gpu"]]}
    else:
        request = {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}
    return {"DeviceRequests": [request]}


def _shared_memory(given: Mapping[str, object], nodes: int) -> dict[str, object]:
    """Two nodes share the host's; one has its own, which systemd-logind's RemoveIPC doesn't reach."""
    ipc = _text(given, "ipc") or ("host" if nodes > 1 else "")
    size = _text(given, "shm_size")
    found: dict[str, object] = {"IpcMode": ipc} if ipc else {}
    if size or ipc != "host":
        found["ShmSize"] = _bytes("shm_size", size) if size else SHM_BYTES
    return found


def _entrypoint(given: Mapping[str, object]) -> tuple[str, ...] | None:
    if "entrypoint" not in given or given["entrypoint"] is None:
        return None
    return tuple(_items(given, "entrypoint"))


def _device(text: str) -> dict[str, object]:
    parts = text.split(":")
    inside = parts[1] if len(parts) > 1 and parts[1].startswith("/") else parts[0]
    mode = parts[-1] if len(parts) > 1 and re.fullmatch(r"[rwm]{1,3}", parts[-1]) else "rwm"
    if not parts[0].startswith("/dev/") or len(parts) > 3 or re.search(r"[\x00-\x1f\x7f]", text):
        raise CannotRender(f"executor_config: devices: {text[:60]!r} is no device of the node")
    return {"PathOnHost": parts[0], "PathInContainer": inside, "CgroupPermissions": mode}


def _ulimit(text: str) -> dict[str, tuple[int, int]]:
    found = re.fullmatch(r"([a-z]+)=(-?\d{1,15})(?::(-?\d{1,15}))?", text)
    if found is None:
        raise CannotRender(f"executor_config: ulimit: {text[:60]!r} isn't NAME=SOFT:HARD")
    return {found[1]: (int(found[2]), int(found[3] or found[2]))}


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name.strip():
        raise CannotRender(f"executor_config: labels: {text[:60]!r} has no name")
    return name, value


def _bytes(name: str, text: str) -> int:
    found = int(text) if text.isdecimal() else bytes_of(text)
    if not found:
        raise CannotRender(f"executor_config: {name} is {text[:40]!r}: a size like 16gb is wanted")
    return int(found)


def _flag(given: Mapping[str, object], name: str) -> bool:
    return str(given.get(name) or "").lower() in ("true", "1", "yes", "on")


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    return "" if value is None or value is False else str(value).strip()


def _items(given: Mapping[str, object], name: str) -> Iterable[str]:
    """A list, a mapping as NAME=VALUE, or one text."""
    value = given.get(name)
    if value is None or value == "":
        return []
    if isinstance(value, Mapping):
        return [f"{key}={one}" for key, one in value.items()]
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
