"""How CUDA graphs are turned off, by engine and version: the way out of a capture over two nodes that hangs.

Conflict C4 of docs/facts/engines.md section 1E: one node keeps its graphs; two nodes may have to do without unless
NCCL is 2.30.4 or later.
"""

from __future__ import annotations

import shlex

from sparktop.cmdline.engine_argv import values_of
from sparktop.engines.images import release_of
from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineKind


def flag_without_graphs(engine: Engine) -> str:
    """The flags of this engine's version that turn CUDA graphs off, the oldest where it isn't known; "" without any."""
    version = release_of(engine.version) or (0,)
    ways = engine.kind.traits.graphs_off.items()
    return ["", *(flags for since, flags in ways if version >= (release_of(since) or ()))][-1]


def change_without_graphs(engine: Engine) -> Change:
    """The relaunch change that turns graphs off; beside a --compilation-config only its graph mode is changed."""
    if any(name.startswith("compilation-config") for name in engine.command.flags):
        return Change(flags={"-cc.cudagraph_mode": "NONE"})
    flags = values_of(shlex.split(flag_without_graphs(engine)), engine.kind)
    return Change(flags={f"--{name}": value for name, value in flags.items()})


def without_graphs(engine: Engine) -> dict[str, object]:
    """How it relaunches with graphs off, as figures of a card."""
    is_sglang, newest = engine.kind is EngineKind.SGLANG, ["", *engine.kind.traits.graphs_off.values()][-1]
    return {
        "without_graphs": change_without_graphs(engine) if flag_without_graphs(engine) else None,
        "flag": flag_without_graphs(engine),
        "newer_flag": newest if is_sglang and release_of(engine.version) is None else None,
        "is_sglang": is_sglang,
        "is_vllm": engine.kind is EngineKind.VLLM,
    }
