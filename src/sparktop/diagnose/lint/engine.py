"""Lints of an engine's own flags on a Spark: its share of the memory, its kernels for SM 12.1, its CUDA graphs.

Facts: docs/facts/engines.md sections 1A and 4.1, conflicts C2 and C11. Rules about a single flag are in flags.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.checks.image import PackageFacts, judge_fastsafetensors
from sparktop.checks.judgement import State
from sparktop.cmdline.docker_run import bytes_of
from sparktop.diagnose.lint.lint import Claim, change, lint, removal, removed, replaced, with_flag
from sparktop.diagnose.lint.spec import (
    Launcher,
    LaunchSpec,
    at_least,
    is_moe,
    model_name,
    quantisation,
)
from sparktop.diagnose.lint.two_nodes import SETS_NETWORK
from sparktop.engines.images import Family, numbers_of
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

HIGHEST_UTILISATION = 0.90
WARN_UTILISATION = 0.87
LONG_CONTEXT = 131072
LONG_CONTEXT_UTILISATION = 0.82
LARGE_SHM_BYTES = 32 << 30
_UTILISATION = "--gpu-memory-utilization"
_NVIDIA_AT_090 = re.compile(r"nemotron-?3-super")
"""NVIDIA's own recipe for it on a Spark uses 0.90 (dgx-spark-playbooks, nvidia/nemotron)."""
_VERSION = "the version: `python3 -c 'import vllm; print(vllm.__version__)'` in the container, or GET /version"


@lint(
    "nvfp4-moe-backend",
    Severity.WARNING,
    "NVFP4 experts without --moe-backend marlin may answer wrongly",
    "vLLM 0.19 to 0.22 with an NVFP4 MoE model on SM 12.1; later versions have kernels for it",
    "field report 002",
    "field report 003",
    "NVIDIA/dgx-spark-playbooks, nvidia/nemotron",
    "vllm-project/vllm#38423",
    is_live=True,
)
def nvfp4_moe_backend(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
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
    settles = spec.settles_missing or spec.settles_image
    if spec.version is None:
        settles = f"{_VERSION}: this applies up to 0.22"
    elif not spec.knows_environment and not item:
        settles = "the log's line `Using '...' NvFp4 MoE backend`"
    yield claim(
        item,
        severity=Severity.INFO if spec.version is None else None,
        explanation=(
            "By default vLLM up to 0.22 uses the CUTLASS FP4 kernels for the experts, which are broken on SM 12.1: "
            "answers look right and are wrong, and no log says so. NVIDIA's own guide for the Spark sets "
            "`--moe-backend marlin` (4-bit weights, 16-bit arithmetic) and `VLLM_USE_FLASHINFER_MOE_FP4=0`."
        ),
        settles=settles,
        remedies=[
            change(
                "set --moe-backend marlin",
                (replaced(spec, item, "marlin") if item else with_flag(spec, "moe-backend", "marlin")),
            )
        ],
    )


@lint(
    "fastsafetensors-ngc",
    Severity.CRITICAL,
    "--load-format fastsafetensors fails with an ImportError in NVIDIA's image",
    "NVIDIA's images 26.03 and 26.04; vllm/vllm-openai and community images have the package",
    "field report 002",
)
def fastsafetensors_ngc(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("load-format")
    if item is None or spec.engine is not EngineKind.VLLM or spec.value("load-format") != "fastsafetensors":
        return
    facts = PackageFacts(
        image=(spec.image.value or "") if spec.image else "",
        is_nvidias=spec.family is Family.NGC,
        commands=spec.prelude,
    )
    judgement = judge_fastsafetensors(facts)
    if judgement.state is State.PASSED:
        return
    yield claim(
        item,
        severity=None if judgement.is_problem else Severity.WARNING,
        settles=spec.settles_image
        if judgement.is_problem
        else "docker run --rm --entrypoint python3 IMAGE -c 'import fastsafetensors'",
        explanation=(
            "NVIDIA's vLLM images 26.03 and 26.04 lack the package, so the engine exits while loading. Recipes with "
            "this flag are for vllm/vllm-openai or a community image, which have it."
        ),
        remedies=[removal(spec, item, cost="slower loading; serving is the same")],
    )


@lint(
    "performance-mode-throughput",
    Severity.WARNING,
    "--performance-mode throughput with a MoE model may freeze the desktop",
    "vLLM with a MoE model on a Spark that also runs a desktop",
    "field report 000",
    "vLLM 0.19.0, engine/arg_utils.py",
    is_live=True,
)
def performance_mode_throughput(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("performance-mode")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("performance-mode") != "throughput":
        return
    if not is_moe(spec) or spec.desktop is False:
        return
    has_desktop = spec.desktop is True
    yield claim(
        item,
        severity=Severity.WARNING if has_desktop else Severity.INFO,
        explanation=(
            "One Spark's desktop froze under a MoE model until its owner changed this flag, `--optimization-level 3` "
            "and the MoE backend together. The report blames FlashInfer's throughput kernels. In vLLM's source the "
            "flag chooses no MoE backend: it doubles the batch limits. A single user gains nothing, and memory use "
            "is lower without it."
        ),
        settles="" if has_desktop else "whether a desktop runs on the same Spark",
        remedies=[removal(spec, item, cost="throughput with many users")],
    )


@lint(
    "vllm-graphs-two-nodes",
    Severity.WARNING,
    "Full CUDA graphs across two nodes have hung or slowed vLLM on Sparks",
    "vLLM on two nodes with NCCL before 2.30.4; MiniMax models need the fix",
    "field report 003",
    "vllm-project/vllm#52504",
    "eugr/spark-vllm-docker#35",
)
def vllm_graphs_two_nodes(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
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
    remedies = []
    if item is None:
        remedies.append(
            change(
                "turn graphs off, keep compilation",
                with_flag(spec, "compilation-config", '{"cudagraph_mode": "NONE"}'),
                cost="some speed, if graphs would have worked",
            )
        )
    else:
        remedies.append(Remedy(title='set "cudagraph_mode": "NONE" in --compilation-config', cost="some speed"))
    remedies.append(Remedy(title="or try PIECEWISE, which has not hung; in one report it cost 12 to 20 % of the speed"))
    remedies.append(Remedy(title="or use an image with NCCL 2.30.4 and try one request before relying on it"))
    yield claim(
        item or spec.flag("tensor-parallel-size") or spec.flag("nnodes"),
        severity=None if is_minimax and is_moe(spec) else Severity.INFO,
        explanation=(
            "By default vLLM captures full graphs, with the collective operations between the nodes in them. With "
            "NCCL before 2.30.4 FULL has hung, while PIECEWISE and NONE worked; for MiniMax models only NONE is "
            "reliable."
        ),
        settles=spec.settles_missing or "the image's NCCL version, and a first request that is answered",
        remedies=remedies,
    )


@lint(
    "gpu-memory-utilization-high",
    Severity.CRITICAL,
    "--gpu-memory-utilization leaves the host too little memory",
    "vLLM on GB10 (unified memory), all versions",
    "field report 002",
    "field report 001",
    is_live=True,
)
def gpu_memory_utilization_high(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("gpu-memory-utilization")
    value = item.number if item else None
    if spec.engine is not EngineKind.VLLM or item is None or value is None or spec.flag("kv-cache-memory-bytes"):
        return
    context = spec.number("max-model-len")
    is_long = spec.nodes > 1 and context is not None and context >= LONG_CONTEXT and value <= WARN_UTILISATION
    limit = LONG_CONTEXT_UTILISATION if is_long else WARN_UTILISATION
    if value <= limit or value > 1:
        return
    shown, severity = f"{_UTILISATION} {item.value}", Severity.WARNING
    title = f"{shown} is above {limit:.2f}, the highest that is stable on GB10"
    reason = "0.90 is the highest that ever worked; 0.85 to 0.87 is stable for most models."
    if is_long:
        severity = Severity.INFO
        title = f"{shown} with 128k or more on two Sparks: one report saw Xid 43 above {limit:.2f}"
        reason = "One report of two Sparks with a context of 128k or more saw Xid 43 until 0.82; many run above it."
    elif value > HIGHEST_UTILISATION:
        severity, title = Severity.CRITICAL, f"{shown} leaves the host too little memory"
    elif value == HIGHEST_UTILISATION and _NVIDIA_AT_090.search(model_name(spec)):
        severity = Severity.INFO
    yield claim(
        [item, *([long] if is_long and (long := spec.flag("max-model-len")) else [])],
        title=title,
        severity=severity,
        explanation=(
            "On a Spark it is a fraction of all 128 GB that CPU and GPU share: the kernel, sshd and Docker get only "
            f"what vLLM leaves. {reason} A host without memory stops answering SSH while it still answers ping."
        ),
        settles="one long request, while you watch available memory" if is_long else "",
        remedies=[
            change(
                f"lower it to {limit:.2f}, or to what is available before the start less 12 to 20 GiB",
                replaced(spec, item, f"{limit:.2f}"),
                cost="a smaller KV cache: fewer tokens at once",
            ),
            Remedy(
                title="Start with 0.70 for a model that hasn't run here yet",
                cost="a smaller KV cache; raise it step by step and watch available memory",
            ),
        ],
    )


@lint(
    "shm-size-large",
    Severity.INFO,
    "A size of /dev/shm that may take memory from the model, or that does nothing beside ipc: host",
    "containers on GB10 (unified memory)",
    "Docker documentation, --shm-size and --ipc",
)
def shm_size_large(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item, ipc = spec.option("shm-size"), spec.option("ipc")
    size = bytes_of(item.value or "") if item else None
    if item is None or size is None or size < LARGE_SHM_BYTES or spec.launcher is not Launcher.DOCKER:
        return
    if ipc and ipc.value == "host":
        yield claim(
            [item, ipc],
            title=f"shm-size {item.value} does nothing beside ipc: host",
            explanation=(
                "With the host's IPC namespace the container uses the machine's own /dev/shm, and Docker ignores the "
                "size: it limits nothing, and reserves nothing."
            ),
            remedies=[change("remove the size", removed(spec, item))],
        )
        return
    yield claim(
        item,
        title=f"shm-size {item.value} may take that much memory from the model",
        explanation=(
            "Files in shared memory are memory, and on a Spark the GPU uses the same memory. They take only what is "
            "written, but nothing stops them before this size."
        ),
        remedies=[change("16 GB are enough for one engine", replaced(spec, item, "16g"))],
    )
