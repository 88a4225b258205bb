"""Lints of kernels, backends, quantisation and CUDA graphs on SM 12.1."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.checks.image import PackageFacts, judge_fastsafetensors
from sparktop.checks.judgement import State
from sparktop.diagnose.lint.lint import Claim, change, lint, removal, replaced, with_flag
from sparktop.diagnose.lint.spec import (
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
