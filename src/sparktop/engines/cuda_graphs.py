"""How CUDA graphs are turned off, by engine and version: the way out of a capture over two nodes that hangs.

Conflict C4 of docs/facts/engines.md section 1E: one node keeps its graphs; two nodes may have to do without unless
NCCL is 2.30.4 or later. SGLang renamed its flag between 0.5.12 and 0.5.23; the old one still works, deprecated.
"""

from __future__ import annotations

from sparktop.cmdline.engine_command import command_of
from sparktop.engines.images import release_of
from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineKind

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


def without_graphs(engine: Engine) -> dict[str, object]:
    """How it relaunches with graphs off, as figures of a card."""
    is_sglang = engine.kind is EngineKind.SGLANG
    return {
        "without_graphs": change_without_graphs(engine),
        "flag": flag_without_graphs(engine),
        "newer_flag": _SGLANG_NEW if is_sglang and release_of(engine.version) is None else None,
        "is_sglang": is_sglang,
        "is_vllm": engine.kind is EngineKind.VLLM,
    }
