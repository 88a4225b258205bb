"""A container as Docker's own inspect has it, for a planner: who it is, whether it runs, how it is brought back. Pure.

The picture's container is masked and may be seconds old; this is asked for the plan, and may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.live.ranks import flag
from sparktop.operate.survey import DockerGet, Survey

_ID = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,250}")
_POLICIES = ("no", "always", "unless-stopped", "on-failure")
_KEY_VARIABLES = ("VLLM_API_KEY",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What a plan needs of one container."""

    node: str
    container_id: str
    name: str
    status: str = ""
    running: bool = False
    loops: bool = False
    """Docker is about to start it again: its start is another from one minute to the next."""
    started_at: str = ""
    """As Docker writes it: compared, never read."""
    pid: int | None = None
    """Its first process; None while it doesn't run."""
    policy: str = "no"
    policy_retries: int = 0
    auto_remove: bool = False
    ipc_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_key: str = field(default="", repr=False)
    """The key it was given for its requests, where it is among its variables or arguments."""

    @property
    def path(self) -> str:
        return f"/containers/{self.container_id}"

    @property
    def restarts(self) -> bool:
        """Whether Docker brings it back by itself."""
        return self.policy not in ("", "no")

    @property
    def policy_body(self) -> Mapping[str, Any]:
        """Its restart policy as Docker's update takes it."""
        return {"RestartPolicy": {"Name": self.policy, "MaximumRetryCount": self.policy_retries}}


def ask(node: str, container_id: str) -> DockerGet:
    """The question; the id must be whole."""
    return DockerGet(node=node, path=f"/containers/{container_id}/json")


def is_whole_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def inspected(node: str, container_id: str, survey: Survey) -> Inspected | None:
    """The answer, or None where there is no such container, or what came is not one of Docker's."""
    raw = survey.value(ask(node, container_id)) if is_whole_id(container_id) else None
    if not isinstance(raw, Mapping) or raw.get("Id") != container_id:
        return None
    name = str(raw.get("Name") or "").removeprefix("/")
    if not _NAME.fullmatch(name):
        return None
    state, host, config = _part(raw, "State"), _part(raw, "HostConfig"), _part(raw, "Config")
    policy = _part(host, "RestartPolicy")
    called = str(policy.get("Name") or "no")
    retries, pid = policy.get("MaximumRetryCount"), state.get("Pid")
    return Inspected(
        node=node,
        container_id=container_id,
        name=name,
        status=sanitise.name(str(state.get("Status") or "")),
        running=state.get("Running") is True,
        loops=state.get("Restarting") is True or state.get("Status") == "restarting",
        started_at=str(state.get("StartedAt") or ""),
        pid=pid if isinstance(pid, int) and pid > 0 else None,
        policy=called if called in _POLICIES else "no",
        policy_retries=retries if isinstance(retries, int) else 0,
        auto_remove=host.get("AutoRemove") is True,
        ipc_mode=str(host.get("IpcMode") or ""),
        labels={str(key): str(value) for key, value in _part(config, "Labels").items()},
        api_key=_api_key(raw, config),
    )


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    return found if isinstance(found, Mapping) else {}


def _api_key(raw: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """vLLM reads VLLM_API_KEY, and both take --api-key (facts/engines.md sections 3.1, 3.2); the flag wins."""
    arguments = raw.get("Args")
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    told = flag(words, "--api-key")
    if told and "$" not in told:
        return told
    variables = config.get("Env")
    pairs = [str(one).partition("=") for one in variables] if isinstance(variables, list) else []
    return next((value for name, _, value in pairs if name in _KEY_VARIABLES and value), "")
