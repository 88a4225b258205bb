"""What an engine takes of its node beside its share of memory: the one figure for a launch and for a restart. Pure.

Facts: facts/engines.md 4.1, 4.4, C2. No flag names it. vLLM's profile counts CUDA graphs into its share from 0.21 on;
before, and in SGLang, they come on top, as what its processes take always does.
"""

from __future__ import annotations

import re

from sparktop.diagnose.lint import images
from sparktop.diagnose.live.graphs import version_of
from sparktop.diagnose.live.ranks import has_flag
from sparktop.model.engine import Engine, EngineKind

GIB = 1 << 30
GRAPHS_BYTES = 3 * GIB
"""CUDA graphs and what capturing them leaves; a guess, as no report has it alone."""
PROCESSES_BYTES = 3 * GIB
"""Context, the processes' own memory, NCCL's buffers; a guess."""
GRAPHS_COUNTED_SINCE = (0, 21)
_NO_GRAPHS = re.compile(r"cudagraph_mode\W+none|cuda-graph-backend-decode\W+disabled", re.IGNORECASE)


def beside_bytes(*, has_graphs: bool, counts_graphs: bool) -> int:
    """Of one node. `counts_graphs`: they are within its share already."""
    return PROCESSES_BYTES + (GRAPHS_BYTES if has_graphs and not counts_graphs else 0)


def beside_of(engine: Engine) -> int:
    """The same of an engine that is there, by its command and version, or its image where it tells none."""
    tag = images.version_of(engine.container.image, engine.kind) if engine.container is not None else None
    version = version_of(engine.version) or version_of(tag)
    return beside_bytes(has_graphs=_captures(engine), counts_graphs=counts_graphs(engine.kind, version))


def counts_graphs(kind: EngineKind, version: tuple[int, ...] | None) -> bool:
    """Whether its share holds its graphs too; not where the version isn't known."""
    return kind is EngineKind.VLLM and version is not None and version >= GRAPHS_COUNTED_SINCE


def turns_graphs_off(text: str) -> bool:
    """Whether a command, or a value of it, says so by a mode."""
    return _NO_GRAPHS.search(text) is not None


def words_for(size_bytes: int) -> str:
    """What so much beside a share is for."""
    return "graphs and processes" if size_bytes > PROCESSES_BYTES else "its processes"


def _captures(engine: Engine) -> bool:
    is_off = has_flag(engine.argv, "--enforce-eager", "--disable-cuda-graph")
    return not (is_off or turns_graphs_off(" ".join(engine.argv)))
