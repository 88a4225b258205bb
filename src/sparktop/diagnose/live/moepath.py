"""Engines whose command puts them on the mixture-of-experts kernels that field report 000 blames for frozen desktops.

Suspicion, never proof: upstream's sources contradict the report's mechanism (facts/engines.md section 4.2), so what
is said tells both, and what each vLLM version makes of the variable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.diagnose.live.ranks import flag, is_alive
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import NodeView

VARIABLE = "VLLM_FLASHINFER_MOE_BACKEND"
_SAFE_BACKENDS = ("marlin", "triton")
_MOE = re.compile(
    r"-A\d+(?:\.\d+)?B\b|moe|mixtral|gpt-oss|deepseek-v|minimax|glm-[45]|kimi|nemotron-3|qwen3-next|llama-4",
    re.IGNORECASE,
)
"""Model names that tell a mixture of experts; of any other nothing is claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An engine on the suspect path."""

    engine: Engine
    sign: str
    """The flag or variable that puts it there, as it stands."""
    backend: str
    """The MoE backend to try first: marlin for NVFP4 and FP8 weights, triton for BF16."""
    about_variable: str
    """What this version makes of VLLM_FLASHINFER_MOE_BACKEND, as half a sentence."""


def suspects(node: NodeView) -> tuple[Suspect, ...]:
    """The living vLLM engines of a node that are on the path, in their order."""
    found = []
    for engine in node.engines:
        sign = _sign(engine) if engine.kind is EngineKind.VLLM and is_alive(engine) else ""
        if sign:
            found.append(
                Suspect(
                    engine=engine,
                    sign=sign,
                    backend="marlin" if _is_quantised(engine) else "triton",
                    about_variable=_about_variable(engine.version),
                )
            )
    return tuple(found)


def _sign(engine: Engine) -> str:
    argv = _argv(engine)
    if flag(argv, "--moe-backend") in _SAFE_BACKENDS or not _MOE.search(f"{engine.model or ''} {' '.join(argv)}"):
        return ""
    variable = next((one for one in _environment(engine) if one.startswith(VARIABLE + "=")), "")
    if variable.lower().endswith("=throughput"):
        return variable
    if flag(argv, "--performance-mode") == "throughput":
        return "--performance-mode throughput"
    return ""


def _argv(engine: Engine) -> Sequence[str]:
    return engine.argv or (engine.container.argv if engine.container else ())


def _environment(engine: Engine) -> Sequence[str]:
    return engine.environment or (engine.container.environment if engine.container else ())


def _is_quantised(engine: Engine) -> bool:
    words = f"{engine.model or ''} {' '.join(_argv(engine))}"
    return re.search(r"fp8|fp4|mxfp4|w4a|awq|gptq|int4|int8", words, re.IGNORECASE) is not None


def _about_variable(version: str | None) -> str:
    number = re.match(r"v?(\d+)\.(\d+)", version or "")
    if number is not None:
        minor = (int(number[1]), int(number[2]))
        if minor >= (0, 27):
            return f"vLLM {version} doesn't have that variable any more"
        if (0, 12) <= minor < (0, 23):
            return f"in upstream's vLLM {version} that variable changes nothing on this GPU"
    return "upstream, it changes nothing on this GPU from vLLM 0.12 to 0.22 and is gone from 0.27 on"
