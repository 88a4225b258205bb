"""Lints of kernels, backends and quantisation on SM 12.1 (facts/engines.md 1B, 4.2; conflicts C1, C3, C4, C7-C10)."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.lint.changes import removed, replaced, with_flag
from sparktop.diagnose.lint.images import (
    at_least,
    is_at_most,
    is_gpt_oss,
    is_moe,
    model_name,
    quantisation,
    tag_of,
)
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.memoryrules import OPEN
from sparktop.diagnose.lint.spec import STOCK, Family, Launcher, LaunchSpec
from sparktop.diagnose.rule import Rule
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_VERSION = "the version: `python3 -c 'import vllm; print(vllm.__version__)'` in the container, or GET /version"
_ON_PURPOSE = r"eager|cuda.?graph|graph.?capture|memory spike|capture"

_EAGER = card(
    "enforce-eager",
    Severity.WARNING,
    "--enforce-eager on one Spark costs more than half of the speed",
    "vLLM on one node; not for gpt-oss or MXFP4 on a stock image, where it is a remedy",
    "field report 002",
    "field report 000",
)
_SGLANG_EAGER = card(
    "sglang-graphs-off",
    Severity.INFO,
    "CUDA graphs are off on one Spark, where they work",
    "SGLang on one node",
    "field report 002",
    "field report 003",
)
_NVFP4_MOE = card(
    "nvfp4-moe-backend",
    Severity.WARNING,
    "NVFP4 experts without --moe-backend marlin may answer wrongly",
    "vLLM 0.19 to 0.22 with an NVFP4 MoE model on SM 12.1; later versions have kernels for it",
    "field report 002",
    "field report 003",
    "NVIDIA/dgx-spark-playbooks, nvidia/nemotron",
    "vllm-project/vllm#38423",
)
_FLASHINFER = card(
    "flashinfer-attention-fp8",
    Severity.INFO,
    "FlashInfer attention with an FP8 model has been reported to be inaccurate on Blackwell",
    "vLLM with an FP8 model; the report upstream is of data-centre Blackwell, NVIDIA and others use it on Sparks",
    "field report 002",
    "vllm-project/vllm#35138",
)
_SINKS = card(
    "attention-sinks",
    Severity.CRITICAL,
    "gpt-oss needs attention sinks, which the forced FlashInfer backend of a stock image doesn't have",
    "vLLM up to 0.22 in NVIDIA's and vLLM's own images, with gpt-oss",
    "field report 001",
)
_MXFP4_OTHER = card(
    "mxfp4-checkpoint",
    Severity.CRITICAL,
    "--quantization mxfp4 can load only gpt-oss checkpoints",
    "vLLM 0.19 (NVIDIA's 26.03 and 26.04); later versions not tried, 0.33 splits the methods",
    "field report 002",
)
_MXFP4_RISK = card(
    "mxfp4-stock-image",
    Severity.WARNING,
    "MXFP4 on a stock image is a risk on SM 12.1: it may load and then hang on the first request",
    "vLLM in NVIDIA's and vLLM's own images: worked on 26.04 (0.19), hung on 26.05 (0.21)",
    "field report 001",
    "field report 002",
)
_FASTSAFETENSORS = card(
    "fastsafetensors-ngc",
    Severity.CRITICAL,
    "--load-format fastsafetensors ends in an ImportError in NVIDIA's image",
    "NVIDIA's images 26.03 and 26.04; vllm/vllm-openai and community images have the package",
    "field report 002",
)
_PERFORMANCE = card(
    "performance-mode-throughput",
    Severity.WARNING,
    "--performance-mode throughput with a MoE model has gone with frozen desktops",
    "vLLM with a MoE model on a Spark that also runs a desktop",
    "field report 000",
    "vLLM 0.19.0, engine/arg_utils.py",
)


def _eager(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("enforce-eager")
    if spec.engine is not EngineKind.VLLM or item is None or spec.nodes > 1 or spec.has_remark(_ON_PURPOSE):
        return
    if is_gpt_oss(spec) or "mxfp4" in model_name(spec):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "It turns CUDA graphs and compilation off. On one Spark 59 tok/s became 26, and a model that fits needs no "
            "such thing: graphs are captured at the start, inside the memory that was set aside."
        ),
        distinction=(
            "Across two nodes, or for a model that wedges on its first request, a comment with the reason quiets this.",
        ),
        remedies=[
            change("take it out", *removed(spec, item), cost="a minute or two more to start, some memory for graphs")
        ],
    )


def _sglang_eager(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("disable-cuda-graph")
    if spec.engine is not EngineKind.SGLANG or item is None or spec.nodes > 1 or spec.has_remark(_ON_PURPOSE):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "--disable-cuda-graph is the way out of a capture that never ends between two nodes. On one node graphs "
            "are captured without trouble, and decoding without them is slower."
        ),
        remedies=[change("take it out", *removed(spec, item), cost="some minutes more to start")],
    )


def _nvfp4_moe(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
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
        settles = f"{_VERSION}: it holds up to 0.22"
    elif not spec.knows_environment and not item:
        settles = "the log's line `Using '...' NvFp4 MoE backend`"
    yield claim(
        spec,
        rule,
        item,
        severity=Severity.INFO if spec.version is None else None,
        explanation=(
            "Left to itself vLLM up to 0.22 takes the CUTLASS FP4 path for the experts, which is broken on SM 12.1: "
            "answers read well and are wrong, and no log says so. `--moe-backend marlin` (4-bit weights, 16-bit "
            "arithmetic) is what NVIDIA's own guide for the Spark sets, with `VLLM_USE_FLASHINFER_MOE_FP4=0`."
        ),
        settles=settles,
        remedies=[
            change(
                "set --moe-backend marlin",
                *(replaced(spec, item, "marlin") if item else with_flag(spec, "moe-backend", "marlin")),
            )
        ],
    )


def _is_curated(spec: LaunchSpec) -> bool:
    """Whether somebody tuned the whole of it: its combination is left alone."""
    return spec.launcher in (Launcher.EUGR, Launcher.SPARKRUN)


def _flashinfer(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("attention-backend")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("attention-backend") != "flashinfer":
        return
    if quantisation(spec) != "fp8" or _is_curated(spec):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "One report found FlashInfer attention inaccurate with FP8 models and sets `--attention-backend "
            "TRITON_ATTN`; the issue upstream is of data-centre Blackwell and open. NVIDIA's guides and community "
            "recipes run FlashInfer on Sparks. Worth knowing if answers look wrong; no reason to change what works."
        ),
        remedies=[
            change("if answers look wrong: --attention-backend TRITON_ATTN", *replaced(spec, item, "TRITON_ATTN"))
        ],
    )


def _sinks(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("attention-backend")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("attention-backend") != "flashinfer":
        return
    if not is_gpt_oss(spec) or spec.family not in STOCK or at_least(spec, "0.23"):
        return
    is_unknown = spec.version is None
    yield claim(
        spec,
        rule,
        item,
        severity=Severity.WARNING if is_unknown else None,
        settles=f"{_VERSION}: it holds up to 0.22" if is_unknown else "",
        explanation=(
            "The start ends with `attention sinks not supported`: the FlashInfer in these images can't do them, and a "
            "forced backend leaves vLLM no other choice. Recipes that force it were written for a patched build."
        ),
        remedies=[
            change("let vLLM choose", *removed(spec, item)),
            change("or set --attention-backend TRITON_ATTN", *replaced(spec, item, "TRITON_ATTN")),
        ],
    )


def _mxfp4_other(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("quantization")
    name = model_name(spec)
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("quantization") != "mxfp4":
        return
    if not name or is_gpt_oss(spec) or "mxfp4" in name or at_least(spec, "0.33"):
        return
    is_known = bool(is_at_most(spec, "0.19")) and bool(at_least(spec, "0.19"))
    yield claim(
        spec,
        rule,
        [item, *([spec.model] if spec.model else [])],
        severity=None if is_known else Severity.WARNING,
        settles="" if is_known else f"{_VERSION}: it is known of 0.19",
        explanation=(
            "The loader knows only gpt-oss's layout, experts as three-dimensional packed tensors. Any other checkpoint "
            "ends in an IndexError in fused_moe/layer.py; nothing quantises to MXFP4 while loading."
        ),
        remedies=[
            change("leave it out: the checkpoint says how it is quantised", *removed(spec, item)),
            Remedy(title="or name the checkpoint's own: --quantization fp8, --quantization gptq_marlin"),
        ],
    )


def _mxfp4_risk(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
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
        spec,
        rule,
        spec.model or None,
        explanation=(
            "gpt-oss comes in MXFP4, whose kernels for SM 12.1 are young: on NVIDIA's 26.05 image it loaded, idled at "
            "74 GB, and the first request took 47 GB more in six seconds and the host with it; on 26.04 it is reported "
            "to work. That a model loads says nothing of its first request."
        ),
        settles="a first short request while available memory is watched from another machine, ready to stop it",
        remedies=[
            Remedy(title="prefer an FP8 or NVFP4 model that fits with room to spare", cost="another model"),
            change("or set --moe-backend marlin", *with_flag(spec, "moe-backend", "marlin"), cost="some speed"),
            Remedy(title="or, at the last, --enforce-eager", cost="half of the speed"),
        ],
    )


def _fastsafetensors(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("load-format")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("load-format") != "fastsafetensors":
        return
    if spec.family is not Family.NGC or "fastsafetensors" in spec.prelude:
        return
    tag = tag_of(spec.image.value or "") if spec.image else None
    is_known = tag is not None and tag.startswith(("26.03", "26.04"))
    yield claim(
        spec,
        rule,
        item,
        severity=None if is_known else Severity.WARNING,
        settles="" if is_known else "docker run --rm --entrypoint python3 IMAGE -c 'import fastsafetensors'",
        explanation=(
            "The package isn't in NVIDIA's vLLM images 26.03 and 26.04, so the engine stops while loading. Recipes "
            "that use it are for vllm/vllm-openai or a community image, which have it."
        ),
        remedies=[change("leave it out", *removed(spec, item), cost="loading is slower, serving the same")],
    )


def _performance(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("performance-mode")
    if spec.engine is not EngineKind.VLLM or item is None or spec.value("performance-mode") != "throughput":
        return
    if not is_moe(spec) or spec.desktop is False:
        return
    has_desktop = spec.desktop is True
    yield claim(
        spec,
        rule,
        item,
        severity=Severity.WARNING if has_desktop else Severity.INFO,
        explanation=(
            "One Spark's desktop froze under a MoE model until this, `--optimization-level 3` and the MoE backend were "
            "changed together. The report blames FlashInfer's throughput kernels; in vLLM's source the flag doesn't "
            "choose a MoE backend at all, it doubles the limits of a batch. For a single user it gains nothing, and "
            "without it shapes and memory stay smaller."
        ),
        settles="" if has_desktop else "whether a desktop runs on the same Spark; a headless one has nothing to freeze",
        remedies=[change("take it out", *removed(spec, item), cost="throughput of many users at once")],
    )


LINTS = (
    Lint(card=_EAGER, check=_eager, is_live=True),
    Lint(card=_SGLANG_EAGER, check=_sglang_eager),
    Lint(card=_NVFP4_MOE, check=_nvfp4_moe, is_live=True),
    Lint(card=_FLASHINFER, check=_flashinfer),
    Lint(card=_SINKS, check=_sinks),
    Lint(card=_MXFP4_OTHER, check=_mxfp4_other),
    Lint(card=_MXFP4_RISK, check=_mxfp4_risk),
    Lint(card=_FASTSAFETENSORS, check=_fastsafetensors),
    Lint(card=_PERFORMANCE, check=_performance, is_live=True),
)
