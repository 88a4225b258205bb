"""The Compose override file that a relaunch writes, without secrets.

A secret becomes `${NAME:?...}`, in a variable or in a word of the command: Compose then refuses to start without it,
and no secret is written to disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from sparktop.cmdline.launch_command import CommandLine
from sparktop.cmdline.variables import escaped, references
from sparktop.cmdline.yaml_nodes import values_of
from sparktop.masking import is_secret
from sparktop.operate.container.lifecycle import policy_word
from sparktop.operate.relaunch.compose_project import Project
from sparktop.operate.relaunch.compose_shell_values import environment_of, overlay
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import holds_secret, secret_words, secrets_of
from sparktop.sanitise import items, mapping

WHY = "a secret that is kept in no file"


def settings(rank_change: RankChange, line: CommandLine, project: Project) -> tuple[dict[str, Any], dict[str, str]]:
    """(the service's settings in the override file, the secrets by the shell variables that they are taken from).

    Args:
        line: the changed command line.

    Raises:
        NotInOverride: Compose has no setting for an option, or an override can't remove it.
    """
    change, out, shell_values = rank_change.change, dict[str, Any](), dict[str, str]()
    environment: dict[str, str | None] = {}
    for name, value in change.environment.items():
        environment[name] = value
        if value is not None and is_secret(name, value):
            variable = _variable_name(name, value, project)
            shell_values[variable] = value
            environment[name] = _reference(variable)
    known_secrets = set(secrets_of(rank_change.config, change.environment))
    entrypoint = _seal_words(line.entrypoint, known_secrets, project, shell_values)
    command = _seal_words(line.command, known_secrets, project, shell_values)
    is_other = list(line.entrypoint) != rank_change.entrypoint
    if change.image:
        out["image"] = change.image
    if is_other:
        out["entrypoint"] = entrypoint
    if is_other or list(line.command) != rank_change.command:  # a new entrypoint drops the image's command
        out["command"] = command
    if environment:
        out["environment"] = environment
    for name, option in change.options.items():
        overlay(out, _option_settings(name, option, rank_change.host))
    return out, shell_values


def _variable_name(name: str, value: str, project: Project) -> str:
    """The variable's own name; a prefixed one where the files use that name for something else too."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and project.shell_values.get(name, value) == value:
        return name
    other_uses = sum(
        ref.name == name
        for definition in project.definitions
        for key, text in environment_of(definition).items()
        if key != name and text is not None
        for ref in references(text)
    )
    return f"SPARKTOP_{re.sub(r'[^A-Za-z0-9]', '_', name)}" if other_uses or not name.isidentifier() else name


def _seal_words(
    words: Sequence[str], known_secrets: set[str], project: Project, shell_values: dict[str, str]
) -> list[str]:
    secrets = {word for word in (*secret_words(words), *known_secrets) if word.strip()}
    out: list[str] = []
    for index, word in enumerate(words):
        value = next(
            (
                secret
                for secret in sorted(secrets, key=len, reverse=True)
                if word == secret or word.endswith(f"={secret}")
            ),
            None,
        )
        if value is None and holds_secret(word, known_secrets):
            value = word  # a secret inside: the shell provides the whole word
        if value is None:
            out.append(word)
            continue
        flag = word.partition("=")[0] if word != value else words[index - 1] if index else ""
        given = {**project.shell_values, **shell_values}
        taken = next((name for name, known_value in given.items() if known_value == value), "")
        variable = taken or _free_variable(flag, index, value, shell_values)
        shell_values[variable] = value
        out.append(Reference(escaped(word[: len(word) - len(value)]) + _reference(variable)))
    return out


def _free_variable(flag: str, index: int, value: str, shell_values: Mapping[str, str]) -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "_", flag.lstrip("-")).strip("_").upper() if flag.startswith("-") else ""
    name = f"SPARKTOP_{word[:60] or f'WORD_{index}'}"
    return name if shell_values.get(name, value) == value else f"{name}_{index}"


def _reference(variable: str) -> Reference:
    return Reference(f"${{{variable}:?{WHY}}}")


HEAD = """\
# Written by sparktop: what its relaunches have changed of this project. It is merged with what a next one changes.
# Compose reads it where it is named: docker compose -f ... -f compose.sparktop.yaml up -d
"""


_MARK = "# Written by sparktop"


_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z_]*")


class NotInOverride(ValueError):
    """The change has no equivalent in an override file; the message says why."""


class Reference(str):
    """Text that is a Compose template already: its "$" is not escaped."""

    __slots__ = ()


def merged(before: str | None, service: str, new_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The new override: what sparktop wrote before, with these settings merged in.

    Raises:
        NotInOverride: the existing file was not written by sparktop.
    """
    services = {name: dict(definition) for name, definition in ours(before).items()}
    overlay(services.setdefault(service, {}), _as_templates(new_settings))
    return {"services": services}


def ours(text: str | None) -> Mapping[str, Mapping[str, Any]]:
    """The services in an override that sparktop wrote; empty where there is no file.

    Raises:
        NotInOverride: somebody else wrote or edited it.
    """
    if text is None:
        return {}
    try:
        content = values_of(text) if text.startswith(_MARK) else None
    except ValueError:
        content = None
    services = mapping(content).get("services")
    if not isinstance(services, Mapping) or not all(isinstance(service, Mapping) for service in services.values()):
        raise NotInOverride("it was not written by sparktop, or was changed by hand since so that it can't be read")
    return services


def written(content: Mapping[str, Any]) -> str:
    """The override as the text of a YAML file."""
    text: str = yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=False
    )
    return HEAD + text


def _as_templates(value: Any) -> Any:
    """The value with every text as Compose substitutes it to itself."""
    if isinstance(value, Mapping):
        return {str(key): _as_templates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_templates(item) for item in value]
    if isinstance(value, Reference):
        return str(value)
    return escaped(value) if isinstance(value, str) else value


# --- options


def _option_settings(name: str, value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    if value is None:
        raise NotInOverride(f"an override file can't take the option {name} away")
    if (maker := _MAKERS.get(name)) is not None:
        return maker(value, host)
    if name not in _WORDS:
        raise NotInOverride(f"the option {name} has no word in an override file that would do the same")
    texts = value if isinstance(value, list) else value.values() if isinstance(value, Mapping) else [value]
    if not all(isinstance(text, str | int) for text in texts):
        shown = json.dumps(value, default=str)[:80]
        raise NotInOverride(f"the option {name} can't be said in compose's words: {shown}")
    return {_WORDS[name]: value}


def _ulimits(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        str(limit["Name"]): {"soft": int(limit.get("Soft", -1)), "hard": int(limit.get("Hard", -1))}
        for limit in map(mapping, value)
        if limit.get("Name")
    }
    return {"ulimits": limits}


def _devices(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for device in map(mapping, value):
        outside = str(device.get("PathOnHost") or device.get("PathInContainer") or "")
        inside = str(device.get("PathInContainer") or outside)
        if not outside.startswith("/") or ":" in outside + inside:
            raise NotInOverride(f"the device {outside[:80]!r} can't be said in compose's words")
        if device not in items(host.get("Devices")):
            rows.append(f"{outside}:{inside}:{device.get('CgroupPermissions') or 'rwm'}")
    return {"devices": rows} if rows else {}


def _gpus(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for device_request in value:
        if device_request in (host.get("DeviceRequests") or ()):
            continue
        kinds = mapping(device_request).get("Capabilities")
        if not kinds or not isinstance(kinds[0], list):
            raise NotInOverride("that request for devices can't be said in compose's words")
        row: dict[str, Any] = {
            "driver": str(device_request.get("Driver") or "nvidia"),
            "capabilities": [str(k) for k in kinds[0]],
        }
        if device_request.get("DeviceIDs"):
            row["device_ids"] = [str(device_id) for device_id in device_request["DeviceIDs"]]
        else:
            row["count"] = "all" if device_request.get("Count", -1) == -1 else int(device_request["Count"])
        rows.append(row)
    return {"deploy": {"resources": {"reservations": {"devices": rows}}}} if rows else {}


def _policy(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    return {"restart": policy_word(value)}


def _hosts(value: Any, host: Mapping[str, Any]) -> dict[str, Any]:
    return {"extra_hosts": [str(entry) for entry in value if entry not in items(host.get("ExtraHosts"))]}


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


class _Dumper(yaml.SafeDumper):
    """Puts every text in double quotes, so that YAML 1.1 and 1.2 read the same ("1e3", "no", "0o17"); plain keys stay
    plain."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            if _PLAIN_KEY.fullmatch(key.value):
                key.style = None
        return node


_Dumper.add_representer(str, lambda dumper, data: dumper.represent_scalar("tag:yaml.org,2002:str", data, style='"'))
