"""What an engine took of its node's memory while it served, and whether a launch would take as much. Pure.

It holds for the same model, release (or image) and flags: whatever flag isn't known to change nothing is one that does.
"""

from __future__ import annotations

from sparktop.engines.images import numbers_of, release_of, version_of
from sparktop.engines.memory_needs import stated_share
from sparktop.engines.memory_target import held_bytes
from sparktop.model.engine import Engine, EngineCommand, EngineKind, Loaded
from sparktop.model.fleet import NodeView, Taken

_CHANGES_NOTHING = frozenset({
    "admin-api-key", "api-key", "chat-template", "context-length", "disable-log-stats", "dist-init-addr",
    "enable-auto-tool-choice", "enable-log-requests", "enable-metrics", "generation-config", "gpu-memory-utilization",
    "headless", "host", "kv-cache-memory-bytes", "master-addr", "master-port", "max-model-len", "mem-fraction-static",
    "model", "model-path", "node-rank", "override-generation-config", "port", "reasoning-parser", "served-model-name",
    "tool-call-parser", "trust-remote-code", "uvicorn-log-level",
})  # fmt: skip
"""Flags that decide nothing about memory, and those of share and context, which are compared by themselves."""


def taken_by(engine: Engine, view: NodeView) -> Taken | None:
    """What this engine takes, as far as its log and the node's ledger tell; None where neither does."""
    command, loaded = engine.command, engine.log.loaded if engine.log is not None else Loaded()
    beyond = _beyond_bytes(engine, view, command)
    if not command.model or view.sample is None or (loaded.weights_bytes is None and beyond is None):
        return None
    return Taken(
        wall_s=view.sample.wall_s,
        kind=str(engine.kind),
        model=command.model,
        image=engine.container.image if engine.container is not None else "",
        version=engine.version or "",
        flags=deciding_flags(command),
        share=stated_share(command),
        weights_bytes=loaded.weights_bytes,
        context_tokens=loaded.context_tokens if loaded.context_bytes else None,
        context_bytes=loaded.context_bytes,
        beyond_bytes=beyond,
    )


def deciding_flags(command: EngineCommand) -> tuple[str, ...]:
    """The flags of a command that may decide about memory."""
    flags = sorted(command.flags.items())
    return tuple(f"{name}={value}" for name, value in flags if name not in _CHANGES_NOTHING)


def is_of(taken: Taken, command: EngineCommand, image: str) -> bool:
    """Whether a launch of this command and image would take as much."""
    same_model = (taken.kind, taken.model) == (str(command.kind), command.model)
    return same_model and taken.flags == deciding_flags(command) and _is_same_build(taken, command.kind, image)


def _is_same_build(taken: Taken, kind: EngineKind, image: str) -> bool:
    version = version_of(image, kind)
    if release_of(version) is None or release_of(taken.version) is None:
        return bool(image) and taken.image == image
    return numbers_of(version or "") == numbers_of(taken.version)


def _beyond_bytes(engine: Engine, view: NodeView, command: EngineCommand) -> int | None:
    """What it holds beyond its share; None where its command doesn't state the share, or the ledger guesses."""
    share, held = stated_share(command), held_bytes(engine, view)
    if share is None or held is None or view.sample is None or command.has("--kv-cache-memory-bytes"):
        return None
    if engine.kind.traits.is_share_of_available or any(holder.estimated for holder in view.holders("engine", "gpu")):
        return None
    return max(0, held - int(share * view.sample.memory.total_bytes))
