"""Lints of CUDA graphs and time-outs over two nodes (facts/engines.md 1C NET-01, NET-03, NET-04, conflict C4)."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.lint.changes import with_flag
from sparktop.diagnose.lint.images import at_least, is_moe, model_name
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.memoryrules import OPEN
from sparktop.diagnose.lint.noderules import SETS_NETWORK, has_two
from sparktop.diagnose.lint.spec import LaunchSpec
from sparktop.diagnose.rule import Rule
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_SGLANG_GRAPHS = card(
    "sglang-graphs-two-nodes",
    Severity.WARNING,
    "SGLang over two nodes captures CUDA graphs, which has deadlocked on Sparks",
    "SGLang on two nodes; seen on 0.5.12",
    "field report 003",
    "sgl-project/sglang#19991",
)
_VLLM_GRAPHS = card(
    "vllm-graphs-two-nodes",
    Severity.WARNING,
    "Full CUDA graphs across two nodes have hung or slowed vLLM on Sparks",
    "vLLM on two nodes with NCCL before 2.30.4; needed for MiniMax models",
    "field report 003",
    "vllm-project/vllm#52504",
    "eugr/spark-vllm-docker#35",
)
_DIST_TIMEOUT = card(
    "dist-timeout-absent",
    Severity.INFO,
    "Two nodes that load at different speeds may run into the rank time-out",
    "SGLang on two nodes",
    "field report 003",
)


def _sglang_graphs(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not has_two(spec) or not spec.has_command:
        return
    if spec.flag("disable-cuda-graph") or spec.value("cuda-graph-backend-decode") == "disabled":
        return
    is_new = at_least(spec, "0.5.23")
    flags = "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"
    lines = with_flag(spec, "disable-cuda-graph")
    if is_new:
        lines = (
            *with_flag(spec, "cuda-graph-backend-decode", "disabled"),
            *with_flag(spec, "cuda-graph-backend-prefill", "disabled"),
        )
    yield claim(
        spec,
        rule,
        spec.flag("nnodes") or spec.flag("tensor-parallel-size"),
        explanation=(
            "The capture runs collective operations inside graphs, and the two ranks may wait for one another for "
            "ever: 0 of 36 sizes after 34 minutes, at 96 % SM and idle power. `--disable-cuda-graph` skips it "
            f"(from 0.5.23: `{flags}`; the old flag still works there). The variable SGLANG_DISABLE_CUDA_GRAPH has "
            "never done anything."
        ),
        settles=OPEN if spec.is_open else "a capture bar that stands at 0 for more than five minutes, at low power",
        remedies=[change("capture no graphs", *lines, cost="some speed of decoding")],
    )


def _vllm_graphs(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
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
                "run without graphs, compilation kept",
                *with_flag(spec, "compilation-config", '{"cudagraph_mode": "NONE"}'),
                cost="some speed, where graphs would have worked",
            )
        )
    else:
        remedies.append(Remedy(title='set "cudagraph_mode": "NONE" in --compilation-config', cost="some speed"))
    remedies.append(Remedy(title="or try PIECEWISE, which has not hung; it cost 12 to 20 % in one report"))
    remedies.append(Remedy(title="or use an image with NCCL 2.30.4 and try one request before relying on it"))
    yield claim(
        spec,
        rule,
        item or spec.flag("tensor-parallel-size") or spec.flag("nnodes"),
        severity=None if is_minimax and is_moe(spec) else Severity.INFO,
        explanation=(
            "The default captures full graphs with the collective operations between the nodes in them. With NCCL "
            "before 2.30.4 that has hung (FULL), while PIECEWISE and NONE ran; for MiniMax models NONE is what holds."
        ),
        settles=OPEN if spec.is_open else "the image's NCCL version, and a first request that comes back",
        remedies=remedies,
    )


def _dist_timeout(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not has_two(spec) or not spec.has_command or spec.flag("dist-timeout"):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "Without --dist-timeout the ranks wait as long as torch does, 10 minutes over NCCL. One Spark that reads "
            "its weights from a slower disk, or swaps, made the other give up and the whole start fail."
        ),
        settles=OPEN if spec.is_open else "",
        remedies=[change("give them half an hour", *with_flag(spec, "dist-timeout", "1800"))],
    )


LINTS = (
    Lint(card=_SGLANG_GRAPHS, check=_sglang_graphs),
    Lint(card=_VLLM_GRAPHS, check=_vllm_graphs),
    Lint(card=_DIST_TIMEOUT, check=_dist_timeout),
)
