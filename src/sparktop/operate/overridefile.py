"""The override file that a relaunch lays beside a compose project: what is changed, in compose's words, as YAML. Pure.

Merged with one that was written before: variables by name, other settings by key. Texts are double-quoted and their "$"
doubled, so that neither YAML nor compose reads anything into them; a secret is never in it, only the name of a variable
that the shell has to give (`${NAME:?...}`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from sparktop.operate.composevalues import escaped

HEAD = """\
# Written by sparktop: what its relaunches have changed of this project. It is merged with what a next one changes.
# Compose reads it where it is named: docker compose -f ... -f compose.sparktop.yaml up -d
"""
_MARK = "# Written by sparktop"
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z_]*")


class CannotSay(ValueError):
    """What is asked can't be said in an override file; says why."""


class Reference(str):
    """A text that is a template already: its "$" are meant."""

    __slots__ = ()


def settings(
    *,
    environment: Mapping[str, str | None],
    entrypoint: Sequence[str] | None,
    command: Sequence[str] | None,
    options: Mapping[str, Any],
    host: Mapping[str, Any],
    image: str | None,
) -> dict[str, Any]:
    """A service's settings for a change.

    Args:
        environment: values, `Reference`s, or None for what is taken away.
        entrypoint: whole, where it is another one.
        command: whole, where it is another one.
        options: of HostConfig, as Change has them.
        host: the container's HostConfig: what it has already isn't said again.

    Raises:
        CannotSay: an option that compose has no word for, or that an override can't take away.
    """
    out: dict[str, Any] = {}
    if image:
        out["image"] = image
    if entrypoint is not None:
        out["entrypoint"] = list(entrypoint)
    if command is not None:
        out["command"] = list(command)
    if environment:
        out["environment"] = dict(environment)
    for name, value in options.items():
        _lay(out, _option(name, value, host))
    return out


def merged(before: str | None, service: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """The whole file's content: what was written before, with these settings over it.

    Raises:
        CannotSay: the file that stands there isn't one of ours.
    """
    whole = ours(before)
    services = dict(whole.get("services") or {})
    services = {name: _templates(each, Reference) for name, each in services.items()}
    own: dict[str, Any] = services.get(service, {})
    _lay(own, _templates(more, lambda text: Reference(escaped(text))))
    services[service] = own
    return {"services": services}


def ours(text: str | None) -> Mapping[str, Any]:
    """What a file that we wrote says; empty where there is none.

    Raises:
        CannotSay: somebody else wrote it.
    """
    if text is None:
        return {}
    try:
        whole = yaml.safe_load(text) if text.startswith(_MARK) else None
    except (yaml.YAMLError, RecursionError, ValueError):
        whole = None
    services = whole.get("services") if isinstance(whole, Mapping) else None
    if not isinstance(services, Mapping) or not all(isinstance(each, Mapping) for each in services.values()):
        raise CannotSay("it was not written by sparktop, or was changed by hand since so that it can't be read")
    return {"services": dict(services)}


def written(content: Mapping[str, Any]) -> str:
    """As a file."""
    text: str = yaml.dump(
        _quoted(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=False
    )
    return HEAD + text


# --- merging


def _lay(base: dict[str, Any], more: Mapping[str, Any]) -> None:
    """`more` over `base`, in place: tables by key, lists of options by entry, the rest replaces."""
    for key, value in more.items():
        there = base.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            inner = dict(there)
            _lay(inner, value)
            base[key] = inner
        elif isinstance(value, list) and isinstance(there, list) and key not in ("command", "entrypoint"):
            base[key] = [*there, *(each for each in value if each not in there)]
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def _templates(value: Any, made: Callable[[str], Reference]) -> Any:
    """Every text as a template: what a file says is one, what a change says becomes one."""
    if isinstance(value, Mapping):
        return {str(key): _templates(each, made) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_templates(each, made) for each in value]
    return made(value) if isinstance(value, str) and not isinstance(value, Reference) else value


# --- options


def _option(name: str, value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    if value is None:
        raise CannotSay(f"an override file can't take the option {name} away")
    word = _WORDS.get(name)
    if word is not None:
        return {word: _checked(name, value)}
    maker = _MAKERS.get(name)
    if maker is None:
        raise CannotSay(f"the option {name} has no word in an override file that would do the same")
    return maker(value, host)


def _checked(name: str, value: Any) -> Any:
    texts = value if isinstance(value, list) else value.values() if isinstance(value, Mapping) else [value]
    if not all(isinstance(each, str | int) for each in texts):
        raise CannotSay(f"the option {name} can't be said in compose's words: {json.dumps(value, default=str)[:80]}")
    return value


def _ulimits(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        str(one["Name"]): {"soft": int(one.get("Soft", -1)), "hard": int(one.get("Hard", -1))}
        for one in value
        if isinstance(one, Mapping) and one.get("Name")
    }
    return {"ulimits": limits}


def _devices(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    there = [one for one in host.get("Devices") or () if isinstance(one, Mapping)]
    rows = []
    for one in value:
        outside = str(one.get("PathOnHost") or one.get("PathInContainer") or "") if isinstance(one, Mapping) else ""
        inside = str(one.get("PathInContainer") or outside) if outside else ""
        if not outside.startswith("/") or ":" in outside + inside:
            raise CannotSay(f"the device {outside[:80]!r} can't be said in compose's words")
        if one not in there:
            rows.append(f"{outside}:{inside}:{one.get('CgroupPermissions') or 'rwm'}")
    return {"devices": rows} if rows else {}


def _gpus(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for one in value:
        if one in (host.get("DeviceRequests") or ()):
            continue
        kinds = one.get("Capabilities") if isinstance(one, Mapping) else None
        if not kinds or not isinstance(kinds[0], list):
            raise CannotSay("that request for devices can't be said in compose's words")
        row: dict[str, Any] = {"driver": str(one.get("Driver") or "nvidia"), "capabilities": [str(k) for k in kinds[0]]}
        if one.get("DeviceIDs"):
            row["device_ids"] = [str(each) for each in one["DeviceIDs"]]
        else:
            row["count"] = "all" if one.get("Count", -1) == -1 else int(one["Count"])
        rows.append(row)
    return {"deploy": {"resources": {"reservations": {"devices": rows}}}} if rows else {}


def _policy(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    name = str(value.get("Name") or "no") if isinstance(value, Mapping) else str(value)
    retries = value.get("MaximumRetryCount") if isinstance(value, Mapping) else None
    return {"restart": f"{name}:{retries}" if name == "on-failure" and retries else name}


def _hosts(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    return {"extra_hosts": [str(one) for one in value if one not in (host.get("ExtraHosts") or ())]}


_WORDS: Mapping[str, str] = {
    "IpcMode": "ipc", "PidMode": "pid", "NetworkMode": "network_mode", "ShmSize": "shm_size", "Memory": "mem_limit",
    "MemorySwap": "memswap_limit", "MemoryReservation": "mem_reservation", "PidsLimit": "pids_limit",
    "Privileged": "privileged", "Init": "init", "ReadonlyRootfs": "read_only", "Runtime": "runtime",
    "CapAdd": "cap_add", "CapDrop": "cap_drop", "SecurityOpt": "security_opt", "GroupAdd": "group_add",
    "OomScoreAdj": "oom_score_adj", "Sysctls": "sysctls", "UTSMode": "uts", "UsernsMode": "userns_mode",
    "CgroupParent": "cgroup_parent", "CpusetCpus": "cpuset", "Dns": "dns", "Binds": "volumes",
}  # fmt: skip
_MAKERS: Mapping[str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]] = {
    "Ulimits": _ulimits,
    "Devices": _devices,
    "DeviceRequests": _gpus,
    "RestartPolicy": _policy,
    "ExtraHosts": _hosts,
}


# --- YAML


class _Text(str):
    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Every text in double quotes: YAML 1.1 and 1.2 then read the same in it ("1e3", "no", "0o17")."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    _Text, lambda dumper, data: dumper.represent_scalar("tag:yaml.org,2002:str", str(data), style='"')
)


def _quoted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_key(str(key)): _quoted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_quoted(each) for each in value]
    if isinstance(value, Reference):
        return _Text(value)
    return _Text(escaped(value)) if isinstance(value, str) else value


def _key(text: str) -> str:
    return text if _PLAIN_KEY.fullmatch(text) and text.lower() not in _WORDLIKE else _Text(text)


_WORDLIKE = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
