"""Checks of a node's Docker Engine: may it be used, and does it hand out the GPU."""

from __future__ import annotations

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass


@check("host.docker-denied", gate="docker", bring_up="access.docker")
def judge_docker_access(access: str) -> Judgement:
    """Whether the user may use Docker, by the access: open, denied or missing; empty: not known."""
    if not access:
        return unknown("the node could not be asked")
    return passed() if access == "open" else failed(access)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRuntimeFacts:
    """How Docker would give a container the GPU."""

    wants_gpu: bool = True
    runtimes: frozenset[str] | None = None
    """None: Docker has not answered."""
    has_cdi_device: bool = False
    has_toolkit: bool = False


@check("host.gpu-runtime", is_rule=False, gate="gpu-runtime", bring_up="access.gpu-runtime")
def judge_gpu_runtime(facts: GpuRuntimeFacts) -> Judgement:
    """Whether Docker can hand out the GPU."""
    if not facts.wants_gpu:
        return passed("not-wanted")
    if facts.runtimes is None:
        return unknown("Docker has not answered")
    if "nvidia" in facts.runtimes or facts.has_cdi_device:
        return passed()
    return warning("hook") if facts.has_toolkit else failed("no-toolkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """Why Docker denies its socket to a user."""

    access: str
    """open, denied or missing; empty: not known."""
    is_member: bool | None = None
    """Of the group docker, by the user database."""
    is_session_member: bool | None = None
    """Whether the session has the group: one that was opened before the user joined hasn't."""


@check("access.docker-session", is_rule=False, bring_up="access.docker")
def judge_docker_session(facts: SessionFacts) -> Judgement:
    """Whether the user may use Docker and, where not, whether a fresh login would do."""
    judgement = judge_docker_access(facts.access)
    if facts.access == "denied" and facts.is_member and not facts.is_session_member:
        return failed("session")
    return judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFacts:
    """What the container toolkit says of its CDI devices."""

    devices: tuple[str, ...] | None
    """None: nvidia-ctk did not answer."""
    has_toolkit: bool | None = None


@check("access.no-cdi", is_rule=False, bring_up="access.cdi")
def judge_cdi(facts: CdiFacts) -> Judgement:
    """Whether nvidia-ctk lists a CDI device of the GPU; the path of its file tells nothing."""
    if facts.has_toolkit is False:
        return failed("no-toolkit")
    if facts.devices is None:
        return unknown("nvidia-ctk did not answer")
    return passed() if any(name.startswith("nvidia.com/gpu") for name in facts.devices) else failed("none")
