"""Lints of an engine's own flags on a Spark: its share of the memory, its kernels for SM 12.1, its CUDA graphs.

Facts: docs/facts/engines.md sections 1A and 4.1, conflicts C2 and C11. Rules about a single flag are in flags.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.checks.image import judge_fastsafetensors
from sparktop.cmdline.docker_run import bytes_of
from sparktop.diagnose.lint.lint import FindingBuilder, lint, removed, replaced, with_flag
from sparktop.diagnose.lint.two_nodes import SETS_NETWORK, package_facts
from sparktop.engines.images import numbers_of
from sparktop.engines.memory_needs import MOST, NEVER_ABOVE, most_share
from sparktop.launchspec.spec import (
    Launcher,
    LaunchSpec,
    at_least,
    is_moe,
    model_name,
    quantisation,
)
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.state import State

LARGE_SHM_BYTES = 32 << 30
_NVIDIA_AT_090 = re.compile(r"nemotron-?3-super")
"""NVIDIA's own recipe for it on a Spark uses 0.90 (dgx-spark-playbooks, nvidia/nemotron)."""


@lint("nvfp4-moe-backend", is_live=True)
def nvfp4_moe_backend(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or quantisation(spec) != "nvfp4" or not is_moe(spec):
        return
    if (
        not spec.has_command
        or at_least(spec, "0.23")
        or at_least(spec, "0.19") is False
        or spec.launcher in SETS_NETWORK
    ):
        return
    backend = spec.value("moe-backend").replace("-", "_")
    forced = spec.variable("VLLM_TEST_FORCE_FP8_MARLIN")
    if backend in ("marlin", "flashinfer_b12x", "b12x") or (forced and forced.value == "1"):
        return
    if backend and backend not in ("auto", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl"):
        return
    item = spec.flag("moe-backend")
    case = "known"
    if spec.version is None:
        case = "unknown-version"
    elif not spec.knows_environment and not item:
        case = "unknown-variables"
    edit = replaced(spec, item, "marlin") if item else with_flag(spec, "moe-backend", "marlin")
    yield build(item, case, {"doubt": spec.settles_missing or spec.settles_image}, edits=[edit])


@lint("fastsafetensors-ngc")
def fastsafetensors_ngc(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.flag("load-format")
    if item is None or spec.engine is not EngineKind.VLLM or spec.value("load-format") != "fastsafetensors":
        return
    judgement = judge_fastsafetensors(package_facts(spec))
    if judgement.state is State.PASSED:
        return
    case = "lacks" if judgement.is_problem else "unknown"
    yield build(item, case, {"doubt": spec.settles_image}, edits=[removed(spec, item)])


@lint("performance-mode-throughput", is_live=True)
def performance_mode_throughput(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.flag("performance-mode")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("performance-mode") != "throughput":
        return
    if not is_moe(spec) or spec.desktop is False:
        return
    yield build(item, "desktop" if spec.desktop else "unknown-desktop", edits=[removed(spec, item)])


@lint("vllm-graphs-two-nodes")
def vllm_graphs_two_nodes(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or spec.nodes == 1 or not spec.has_command or spec.flag("enforce-eager"):
        return
    mode = spec.json("compilation-config").get("cudagraph_mode")
    if (mode is not None and not str(mode).lower().startswith("full")) or spec.launcher in SETS_NETWORK:
        return
    if any(
        numbers_of(named) >= (2, 30, 4) for named in re.findall(r"(?i)nccl\D{0,9}(2\.\d+\.\d+)", spec.document.text)
    ):
        return
    item = spec.flag("compilation-config") or spec.flag("compilation-config.cudagraph_mode")
    is_minimax = "minimax" in model_name(spec)
    yield build(
        item or spec.flag("tensor-parallel-size") or spec.flag("nnodes"),
        "full",
        {"given": item is not None, "absent": item is None},
        severity=None if is_minimax and is_moe(spec) else Severity.INFO,
        settles=spec.settles_missing,
        edits=[] if item else [with_flag(spec, "compilation-config", '{"cudagraph_mode": "NONE"}')],
    )


@lint("gpu-memory-utilization-high", is_live=True)
def gpu_memory_utilization_high(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.flag("gpu-memory-utilization")
    value = item.number if item else None
    if spec.engine is not EngineKind.VLLM or item is None or value is None or spec.flag("kv-cache-memory-bytes"):
        return
    context = spec.number("max-model-len")
    limit = most_share(spec.engine, spec.nodes, int(context) if context and value <= MOST else None)
    if value <= limit or value > 1:
        return
    is_nvidias = value == NEVER_ABOVE and _NVIDIA_AT_090.search(model_name(spec))
    is_long = limit < MOST
    yield build(
        [item, *([long] if is_long and (long := spec.flag("max-model-len")) else [])],
        "long-context" if is_long else "too-much" if value > NEVER_ABOVE else "above",
        {"value": item.value, "limit": limit},
        severity=Severity.INFO if is_nvidias else None,
        edits=[replaced(spec, item, f"{limit:.2f}")],
    )


@lint("shm-size-large")
def shm_size_large(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item, ipc = spec.option("shm-size"), spec.option("ipc")
    size = bytes_of(item.value or "") if item else None
    if item is None or size is None or size < LARGE_SHM_BYTES or spec.launcher is not Launcher.DOCKER:
        return
    if ipc and ipc.value == "host":
        yield build([item, ipc], "beside-host-ipc", {"size": item.value}, edits=[removed(spec, item)])
    else:
        yield build(item, "own", {"size": item.value}, edits=[replaced(spec, item, "16g")])
