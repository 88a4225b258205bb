"""Checks of a node's Docker Engine: may it be used, and does it hand out the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning


@check(
    "host.docker-denied",
    "Docker may not be used",
    scope="every node",
    sources=("NVIDIA dgx-spark-playbooks",),
    gate="docker",
)
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


@check(
    "host.gpu-runtime",
    "Docker can't hand out the GPU",
    scope="nodes with a container engine",
    sources=("docs/facts/bringup.md",),
    is_rule=False,
    gate="gpu-runtime",
)
def judge_gpu_runtime(facts: GpuRuntimeFacts) -> Judgement:
    """Whether Docker can hand out the GPU."""
    if not facts.wants_gpu:
        return passed("not-wanted")
    if facts.runtimes is None:
        return unknown("Docker has not answered")
    if "nvidia" in facts.runtimes or facts.has_cdi_device:
        return passed()
    return warning("hook") if facts.has_toolkit else failed("no-toolkit")
