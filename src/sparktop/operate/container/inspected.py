"""A container as `docker inspect` shows it, for a planner: identity, state, restart policy. Pure.

The picture's container is masked and may be seconds old; this one is asked for the plan, and may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import quote

from sparktop import sanitise
from sparktop.cmdline.engine_argv import value_of
from sparktop.dataclass import dataclass
from sparktop.model.engine import RESTARTING_POLICIES, EngineKind
from sparktop.model.survey import DockerGet, Survey, Unrestored
from sparktop.sanitise import items, mapping

_ID = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,250}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,300}")
_POLICIES = ("no", *RESTARTING_POLICIES)
_KEY_VARIABLES = tuple(name for kind in EngineKind if (name := kind.traits.key_variable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What a plan needs of one container."""

    node: str
    container_id: str
    name: str
    status: str = ""
    running: bool = False
    loops: bool = False
    """Docker is about to restart it: its start time changes from one minute to the next."""
    restart_count: int = 0
    """How often Docker restarted it by itself since it was last started by hand."""
    started_at: str = ""
    """As Docker writes it: compared, never parsed."""
    pid: int | None = None
    """Pid of its first process; None while it doesn't run."""
    policy: str = "no"
    policy_retries: int = 0
    policy_now: str = "no"
    """What Docker has now: "no" where an earlier run has left it off."""
    owed: Unrestored | None = None
    """What an earlier run owes it: its `policy` is the one it had then, which Docker has not now."""
    auto_remove: bool = False
    ipc_mode: str = ""
    image_id: str = ""
    """Id of the image that it was created from."""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_key: str = field(default="", repr=False)
    """The API key of its engine, where it is among its variables or arguments."""

    @property
    def path(self) -> str:
        return f"/containers/{self.container_id}"

    @property
    def restarts(self) -> bool:
        """Whether Docker restarts it."""
        return self.policy not in ("", "no")

    @property
    def policy_body(self) -> Mapping[str, Any]:
        """Its restart policy as Docker's update has it."""
        return {"Name": self.policy, "MaximumRetryCount": self.policy_retries}

    @property
    def was_running(self) -> bool:
        """Whether it ran; a rollback doesn't start one that was in a restart loop. One that an interrupted run has
        stopped counts as running."""
        return (self.running or (self.owed is not None and self.owed.was_running)) and not self.loops


def image_path(name: str) -> str | None:
    """Docker API path of an image by name or id; None where the text is no image name."""
    if not _REFERENCE.fullmatch(name) or ".." in name:
        return None
    return f"/images/{quote(name, safe='/:@')}/json"


def image(node: str, name: str, survey: Survey) -> Mapping[str, Any] | None:
    """The inspected image of that name or id; None where it doesn't exist or wasn't asked for."""
    path = image_path(name)
    value = survey.value(DockerGet(node=node, path=path)) if path else None
    return value if isinstance(value, Mapping) else None


def ask(node: str, container_id: str) -> DockerGet:
    """The question for this container; the id must be whole."""
    return DockerGet(node=node, path=f"/containers/{container_id}/json")


def is_whole_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def inspected(node: str, container_id: str, survey: Survey) -> Inspected | None:
    """The container, or None where there is none, or the answer is not one of Docker's."""
    raw = survey.value(ask(node, container_id)) if is_whole_id(container_id) else None
    if not isinstance(raw, Mapping) or raw.get("Id") != container_id:
        return None
    name = str(raw.get("Name") or "").removeprefix("/")
    if not _NAME.fullmatch(name):
        return None
    state, host_config, config = mapping(raw.get("State")), mapping(raw.get("HostConfig")), mapping(raw.get("Config"))
    policy = mapping(host_config.get("RestartPolicy"))
    policy_name = str(policy.get("Name") or "no")
    retries, pid = policy.get("MaximumRetryCount"), state.get("Pid")
    policy_now, owed = policy_name, survey.owed.get(container_id)
    if policy_name == "no" and owed is not None and owed.policy in _POLICIES:
        policy_name, retries = owed.policy, owed.retries
    return Inspected(
        node=node,
        container_id=container_id,
        name=name,
        status=sanitise.name(str(state.get("Status") or "")),
        running=state.get("Running") is True,
        loops=state.get("Restarting") is True or state.get("Status") == "restarting",
        restart_count=restarts if isinstance(restarts := raw.get("RestartCount"), int) else 0,
        started_at=str(state.get("StartedAt") or ""),
        pid=pid if isinstance(pid, int) and pid > 0 else None,
        policy=policy_name if policy_name in _POLICIES else "no",
        policy_retries=retries if isinstance(retries, int) else 0,
        policy_now=policy_now,
        owed=owed,
        auto_remove=host_config.get("AutoRemove") is True,
        ipc_mode=str(host_config.get("IpcMode") or ""),
        image_id=str(raw.get("Image") or ""),
        labels={str(key): str(value) for key, value in mapping(config.get("Labels")).items()},
        api_key=_api_key(raw, config),
    )


def _api_key(raw: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """vLLM reads VLLM_API_KEY, and both engines take --api-key (docs/facts/engines.md sections 3.1, 3.2); the flag
    wins."""
    flag_value = value_of([str(word) for word in items(raw.get("Args"))], "--api-key")
    if flag_value and "$" not in flag_value:
        return flag_value
    pairs = [str(variable).partition("=") for variable in items(config.get("Env"))]
    return next((value for name, _, value in pairs if name in _KEY_VARIABLES and value), "")
