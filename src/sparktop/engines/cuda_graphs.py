"""How CUDA graphs are turned off, by engine and version: the way out of a capture over two nodes that hangs.

Conflict C4 of docs/facts/engines.md section 1E: one node keeps its graphs; two nodes may have to do without unless
NCCL is 2.30.4 or later. SGLang renamed its flag between 0.5.12 and 0.5.23; the old one still works, deprecated.
"""

from __future__ import annotations

from sparktop.cmdline.engine_command import command_of
from sparktop.engines.images import release_of
from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.finding import Remedy

_VLLM_NONE = '{"cudagraph_mode":"none"}'
_SGLANG_OLD = "--disable-cuda-graph"
_SGLANG_NEW = "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"


def flag_without_graphs(engine: Engine) -> str:
    """The flag of this engine's version that turns CUDA graphs off."""
    if engine.kind is EngineKind.VLLM:
        return f"--compilation-config '{_VLLM_NONE}'"
    version = release_of(engine.version)
    return _SGLANG_NEW if version is not None and version >= (0, 5, 23) else _SGLANG_OLD


def change_without_graphs(engine: Engine) -> Change:
    """The relaunch change that turns graphs off; beside a --compilation-config only its graph mode is changed."""
    if engine.kind is EngineKind.VLLM:
        has_config = any(name.startswith("compilation-config") for name in command_of(engine).flags)
        name, value = ("-cc.cudagraph_mode", "NONE") if has_config else ("--compilation-config", _VLLM_NONE)
        return Change(flags={name: value})
    words = flag_without_graphs(engine).split()
    return Change(flags={word: _value_after(words, at) for at, word in enumerate(words) if word.startswith("--")})


def _value_after(words: list[str], at: int) -> str:
    return words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else ""


def without_graphs(engine: Engine) -> Remedy:
    """The remedy: relaunch with graphs off, or with an NCCL in which capture doesn't hang."""
    steps = [f"add to every rank's command: {flag_without_graphs(engine)}"]
    if engine.kind is EngineKind.VLLM:
        steps.append("""or keep part of the speed: --compilation-config '{"cudagraph_mode":"PIECEWISE"}'""")
    elif release_of(engine.version) is None:
        steps.append(f"from SGLang 0.5.23 on it is called: {_SGLANG_NEW}")
    if engine.kind is EngineKind.SGLANG:
        steps.append("SGLANG_DISABLE_CUDA_GRAPH does nothing: no version reads that variable")
    steps.append("or use an image with NCCL 2.30.4 or later, in which capture over two nodes no longer deadlocks")
    return Remedy(
        title="Relaunch without CUDA graphs on both nodes, so that it doesn't hang again",
        steps=tuple(steps),
        cost="some decode speed, or none: two Sparks with a mixture of experts ran 12-20 % faster without PIECEWISE "
        "graphs, others slower; measure it",
        action="relaunch",
        change=change_without_graphs(engine),
    )
