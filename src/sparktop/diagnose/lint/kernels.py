"""Lints of kernels, backends, quantisation and CUDA graphs on SM 12.1."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.image import PackageFacts, judge_fastsafetensors
from sparktop.checks.judgement import State
from sparktop.diagnose.lint.lint import Claim, change, lint, removal, replaced, with_flag
from sparktop.diagnose.lint.memory import OPEN
from sparktop.diagnose.lint.spec import (
    Launcher,
    LaunchSpec,
    at_least,
    is_at_most,
    is_gpt_oss,
    is_moe,
    model_name,
    quantisation,
)
from sparktop.diagnose.lint.two_nodes import SETS_NETWORK, has_two
from sparktop.engines.images import STOCK, Family
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_VERSION = "the version: `python3 -c 'import vllm; print(vllm.__version__)'` in the container, or GET /version"


_ON_PURPOSE = r"eager|cuda.?graph|graph.?capture|memory spike|capture"


@lint(
    "enforce-eager",
    Severity.WARNING,
    "--enforce-eager on one Spark costs more than half the speed",
    "vLLM on one node; not for gpt-oss or MXFP4 on a stock image, where it is a remedy",
    "field report 002",
    "field report 000",
    is_live=True,
)
def enforce_eager(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("enforce-eager")
    if spec.engine is not EngineKind.VLLM or item is None or spec.nodes > 1 or spec.has_remark(_ON_PURPOSE):
        return
    if is_gpt_oss(spec) or "mxfp4" in model_name(spec):
        return
    yield claim(
        item,
        explanation=(
            "It turns off CUDA graphs and compilation: on one Spark, 59 tok/s fell to 26. A model that fits doesn't "
            "need it: vLLM captures graphs at the start, inside the memory it reserved."
        ),
        distinction=("If you need it (two nodes, or a model that hangs on its first request), say so in a comment.",),
        remedies=[removal(spec, item, cost="the start takes a minute or two longer; graphs take some memory")],
    )


@lint(
    "sglang-graphs-off",
    Severity.INFO,
    "CUDA graphs are off on one Spark, where they work",
    "SGLang on one node",
    "field report 002",
    "field report 003",
)
def sglang_graphs_off(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("disable-cuda-graph")
    if spec.engine is not EngineKind.SGLANG or item is None or spec.nodes > 1 or spec.has_remark(_ON_PURPOSE):
        return
    yield claim(
        item,
        explanation=(
            "--disable-cuda-graph is the fix for a capture that hangs between two nodes. On one node SGLang captures "
            "graphs without trouble, and decoding without them is slower."
        ),
        remedies=[removal(spec, item, cost="the start takes some minutes longer")],
    )


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
    if not spec.has_command or at_least(spec, "0.23") or at_least(spec, "0.19") is False or _is_curated(spec):
        return
    backend = spec.value("moe-backend").replace("-", "_")
    forced = spec.variable("VLLM_TEST_FORCE_FP8_MARLIN")
    if backend in ("marlin", "flashinfer_b12x", "b12x") or (forced and forced.value == "1"):
        return
    if backend and backend not in ("auto", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl"):
        return
    item = spec.flag("moe-backend")
    settles = OPEN if spec.is_open else ""
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


def _is_curated(spec: LaunchSpec) -> bool:
    """Whether a launcher project tuned the whole combination: it is left alone."""
    return spec.launcher in (Launcher.EUGR, Launcher.SPARKRUN)


@lint(
    "flashinfer-attention-fp8",
    Severity.INFO,
    "FlashInfer attention with an FP8 model was reported inaccurate on Blackwell",
    "vLLM with an FP8 model; the upstream report is about data-centre Blackwell, NVIDIA and others use it on Sparks",
    "field report 002",
    "vllm-project/vllm#35138",
)
def flashinfer_attention_fp8(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("attention-backend")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("attention-backend") != "flashinfer":
        return
    if quantisation(spec) != "fp8" or _is_curated(spec):
        return
    yield claim(
        item,
        explanation=(
            "One report found FlashInfer attention inaccurate with FP8 models and sets `--attention-backend "
            "TRITON_ATTN`. The upstream issue is about data-centre Blackwell and still open. NVIDIA's guides and "
            "community recipes use FlashInfer on Sparks. Change it only if answers look wrong."
        ),
        remedies=[
            change("if answers look wrong: --attention-backend TRITON_ATTN", replaced(spec, item, "TRITON_ATTN"))
        ],
    )


@lint(
    "attention-sinks",
    Severity.CRITICAL,
    "gpt-oss needs attention sinks, and FlashInfer in a stock image has none",
    "vLLM up to 0.22 in NVIDIA's and vLLM's own images, with gpt-oss",
    "field report 001",
)
def attention_sinks(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("attention-backend")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("attention-backend") != "flashinfer":
        return
    if not is_gpt_oss(spec) or spec.family not in STOCK or at_least(spec, "0.23"):
        return
    is_unknown = spec.version is None
    yield claim(
        item,
        severity=Severity.WARNING if is_unknown else None,
        settles=f"{_VERSION}: this applies up to 0.22" if is_unknown else "",
        explanation=(
            "The start fails with `attention sinks not supported`: FlashInfer in these images lacks them, and the "
            "flag forbids another backend. Recipes with this flag need a patched build."
        ),
        remedies=[
            removal(spec, item, then="vLLM then chooses a backend"),
            change("or set --attention-backend TRITON_ATTN", replaced(spec, item, "TRITON_ATTN")),
        ],
    )


@lint(
    "mxfp4-checkpoint",
    Severity.CRITICAL,
    "--quantization mxfp4 loads only gpt-oss checkpoints",
    "vLLM 0.19 (NVIDIA's 26.03 and 26.04); later versions untested, 0.33 splits the methods",
    "field report 002",
)
def mxfp4_checkpoint(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("quantization")
    name = model_name(spec)
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("quantization") != "mxfp4":
        return
    if not name or is_gpt_oss(spec) or "mxfp4" in name or at_least(spec, "0.33"):
        return
    is_known = bool(is_at_most(spec, "0.19")) and bool(at_least(spec, "0.19"))
    yield claim(
        [item, *([spec.model] if spec.model else [])],
        severity=None if is_known else Severity.WARNING,
        settles="" if is_known else f"{_VERSION}: known for 0.19",
        explanation=(
            "The loader knows only the layout of gpt-oss: experts as three-dimensional packed tensors. Any other "
            "checkpoint fails with an IndexError in fused_moe/layer.py. vLLM quantises nothing to MXFP4 while "
            "loading."
        ),
        remedies=[
            removal(spec, item, then="the checkpoint says how it is quantised"),
            Remedy(title="or set the checkpoint's own method: --quantization fp8, --quantization gptq_marlin"),
        ],
    )


@lint(
    "mxfp4-stock-image",
    Severity.WARNING,
    "MXFP4 on a stock image may load, then hang on the first request (SM 12.1)",
    "vLLM in NVIDIA's and vLLM's own images: worked on 26.04 (0.19), hung on 26.05 (0.21)",
    "field report 001",
    "field report 002",
)
def mxfp4_stock_image(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or quantisation(spec) != "mxfp4" or spec.family not in STOCK:
        return
    if not is_gpt_oss(spec) and "mxfp4" not in model_name(spec):
        return
    marlin = spec.variable("VLLM_MXFP4_USE_MARLIN")
    if spec.flag("enforce-eager") or spec.value("moe-backend") == "marlin" or (marlin and marlin.value == "1"):
        return
    if not spec.has_command:
        return
    yield claim(
        spec.model or None,
        explanation=(
            "gpt-oss comes in MXFP4, and its kernels for SM 12.1 are new. On NVIDIA's 26.05 image it loaded, idled "
            "at 74 GB, then the first request took 47 GB in six seconds and the host hung. 26.04 is reported to "
            "work. A model that loads may still fail on its first request."
        ),
        settles="a short first request, while you watch available memory from elsewhere, ready to stop the engine",
        remedies=[
            Remedy(title="use an FP8 or NVFP4 model that leaves memory free", cost="a different model"),
            change("or set --moe-backend marlin", with_flag(spec, "moe-backend", "marlin"), cost="some speed"),
            Remedy(title="as a last resort, --enforce-eager", cost="half the speed"),
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
        settles=""
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
    "sglang-graphs-two-nodes",
    Severity.WARNING,
    "SGLang on two nodes captures CUDA graphs, which has deadlocked on Sparks",
    "SGLang on two nodes; seen on 0.5.12",
    "field report 003",
    "sgl-project/sglang#19991",
)
def sglang_graphs_two_nodes(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not has_two(spec) or not spec.has_command:
        return
    if spec.flag("disable-cuda-graph") or spec.value("cuda-graph-backend-decode") == "disabled":
        return
    is_new = at_least(spec, "0.5.23")
    flags = "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"
    edits = [with_flag(spec, "disable-cuda-graph")]
    if is_new:
        edits = [
            with_flag(spec, "cuda-graph-backend-decode", "disabled"),
            with_flag(spec, "cuda-graph-backend-prefill", "disabled"),
        ]
    yield claim(
        spec.flag("nnodes") or spec.flag("tensor-parallel-size"),
        explanation=(
            "The capture runs collective operations inside graphs, and the two ranks may deadlock: 0 of 36 sizes "
            f"after 34 minutes, at 96 % SM and idle power. `--disable-cuda-graph` skips it (from 0.5.23: `{flags}`; "
            "the old flag still works there). The variable SGLANG_DISABLE_CUDA_GRAPH does nothing in any version."
        ),
        settles=OPEN if spec.is_open else "a capture bar at 0 for more than five minutes, at low power",
        remedies=[change("turn graphs off", *edits, cost="some decode speed")],
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
    if spec.engine is not EngineKind.VLLM or not has_two(spec) or not spec.has_command or spec.flag("enforce-eager"):
        return
    mode = spec.json("compilation-config").get("cudagraph_mode")
    if (mode is not None and not str(mode).lower().startswith("full")) or spec.launcher in SETS_NETWORK:
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
        settles=OPEN if spec.is_open else "the image's NCCL version, and a first request that is answered",
        remedies=remedies,
    )


@lint(
    "dist-timeout-absent",
    Severity.INFO,
    "Two nodes that load at different speeds may hit the rank timeout",
    "SGLang on two nodes",
    "field report 003",
)
def dist_timeout_absent(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not has_two(spec) or not spec.has_command or spec.flag("dist-timeout"):
        return
    yield claim(
        None,
        explanation=(
            "Without --dist-timeout a rank waits for the other as long as torch's default, 10 minutes over NCCL. One "
            "Spark with a slower disk, or one that swapped, made the other give up and the start failed."
        ),
        settles=OPEN if spec.is_open else "",
        remedies=[change("set the timeout to half an hour", with_flag(spec, "dist-timeout", "1800"))],
    )
