"""How much memory must be available before an engine is started: what it asks for and a reserve, if that can be. Pure.

On a Spark vLLM's share is of all memory, and its own check at the start reads MemAvailable (facts/engines.md sections
1A, 4.4); SGLang's is of what is available before it loads (recipe/demand.py), at the most what can be reached. What
either takes beside its share no flag names. Conflict C2: no constant serves, it is computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparktop.diagnose.live.beside import beside_of, words_for
from sparktop.diagnose.live.expectation import share
from sparktop.diagnose.live.ranks import flag
from sparktop.diagnose.live.window import GIB, gib
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import NodeView
from sparktop.recipe.reserve import HOST_BYTES

SLACK_BYTES = 4 * GIB
"""Below the most that was ever available: it isn't there again to the last byte (a desktop, logs, page tables)."""
_GIB_TEXT = re.compile(r"\d{1,4}(\.\d{1,3})?")
_BYTES_TEXT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)(?:i?[bB])?")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's human-readable numbers: lower case decimal, upper case binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to wait for on one node."""

    target_bytes: int
    asked_bytes: int
    """What the engine takes by its own command, without the reserve."""
    reachable_bytes: int | None
    """The most that can be expected with this engine gone; None where nothing tells."""
    sentence: str
    """Where the figure comes from, for the review."""
    warnings: tuple[str, ...] = ()


def gib_option(text: str) -> int | None:
    """Bytes of an option in GiB; None where it isn't set.

    Raises:
        ValueError: it isn't a size between 1 and 9999 GiB; says so.
    """
    if not text:
        return None
    if not _GIB_TEXT.fullmatch(text) or not 1 <= float(text) <= 9999:
        raise ValueError(f"a size in GiB is wanted, such as 96 or 96.5, not {text[:20]!r}")
    return int(float(text) * GIB)


def memory_target(engine: Engine, node: NodeView, *, wanted_bytes: int | None = None) -> Target | None:
    """The target on this node; None where its memory isn't known.

    Args:
        wanted_bytes: the operator's own figure, which wins.
    """
    if node.sample is None:
        return None
    total = node.sample.memory.total_bytes
    asked, source = asked_bytes(engine, node)
    reachable = reachable_bytes(engine, node)
    if wanted_bytes is not None:
        warnings = []
        if reachable is not None and wanted_bytes > reachable:
            warnings.append(
                f"{gib(wanted_bytes)} are asked to be available on {node.name}, where at most {gib(reachable)} can be "
                "expected: the wait is likely to end there, with nothing started."
            )
        if wanted_bytes < asked:
            warnings.append(
                f"{gib(wanted_bytes)} are less than the {gib(asked)} that {engine.name} takes ({source}): it may "
                "refuse to start, or take the host's own memory."
            )
        return Target(
            target_bytes=wanted_bytes,
            asked_bytes=asked,
            reachable_bytes=reachable,
            sentence=f"{gib(wanted_bytes)}, as you set it",
            warnings=tuple(warnings),
        )
    beside = beside_of(engine)
    wanted = asked + beside + HOST_BYTES
    ceiling = max(GIB, (total if reachable is None else reachable) - SLACK_BYTES)
    made_of = (
        f"{gib(asked)} by {source}, {gib(beside)} beside that for {words_for(beside)}, {gib(HOST_BYTES)} for the host"
    )
    if wanted <= ceiling:
        return Target(target_bytes=wanted, asked_bytes=asked, reachable_bytes=reachable, sentence=made_of)
    most = total if reachable is None else reachable
    target = asked if ceiling < asked <= most else ceiling
    short = f"{engine.name} wants {gib(wanted)} on {node.name} ({made_of}), and at most {gib(most)} can be expected"
    if asked > most:
        warning = (
            f"{short}: it is waited for {gib(target)}, and its own check at the start will most likely refuse. "
            f"Lower its share (relaunch with {_share_flag(engine)}), or free what else holds memory there."
        )
    else:
        warning = f"{short}: it is waited for {gib(target)}, which leaves the host little once the engine is loaded."
    return Target(
        target_bytes=target,
        asked_bytes=asked,
        reachable_bytes=reachable,
        sentence=f"{gib(target)}, what can be reached there; {made_of} would be {gib(wanted)}",
        warnings=(warning,),
    )


def asked_bytes(engine: Engine, node: NodeView) -> tuple[int, str]:
    """What an engine takes of this node's memory, and by what that is known."""
    total = node.sample.memory.total_bytes if node.sample else 0
    held = held_bytes(engine, node)
    cache = flag(engine.argv, "--kv-cache-memory-bytes", "--kv-cache-memory")
    if cache is not None and held:  # overrides the share; the weights come on top, and only their sum was seen
        return held, "what it held, as --kv-cache-memory-bytes names only its cache"
    name = _share_flag(engine)
    part = share(engine)
    base, said = total, gib(total)
    reachable = reachable_bytes(engine, node) if engine.kind is EngineKind.SGLANG else None
    if reachable is not None:
        base, said = min(total, reachable), f"the {gib(reachable)} that can be available"
    if cache is not None and (size := _bytes(cache)) is not None:
        return min(total, max(size, int(part * total))), f"{name} {part:g} of {gib(total)}, its weights not being known"
    is_told = flag(engine.argv, name) is not None
    if not is_told and not engine.argv and held:
        return held, "what it held"  # a rank whose command says nothing
    return int(part * base), f"{name} {part:g}{'' if is_told else ' (its default)'} of {said}"


def held_bytes(engine: Engine, node: NodeView) -> int | None:
    """What it holds at the moment: by the ledger, which knows its processes' own memory too, else by the GPU's list."""
    if node.ledger is not None:
        named = [one.held_bytes for one in node.ledger.holders if one.kind == "engine" and one.label == engine.name]
        if named:
            return max(named)
    return engine.gpu_bytes


def reachable_bytes(engine: Engine, node: NodeView) -> int | None:
    """The most that can be available with this engine gone: what was after the boot less what others hold, else what
    is available now and what it holds."""
    if node.sample is None:
        return None
    available = node.sample.memory.available_bytes
    held = held_bytes(engine, node) or 0
    baseline = node.baseline.after_boot_available_bytes if node.baseline else None
    if baseline is None:
        return available + held if held else None
    others = sum(
        one.held_bytes
        for one in (node.ledger.holders if node.ledger else ())
        if one.kind in ("engine", "gpu") and not (one.kind == "engine" and one.label == engine.name)
    )
    return max(baseline - others, available)


def _share_flag(engine: Engine) -> str:
    return "--mem-fraction-static" if engine.kind is EngineKind.SGLANG else "--gpu-memory-utilization"


def _bytes(text: str) -> int | None:
    match = _BYTES_TEXT.fullmatch(text.strip())
    return int(float(match[1]) * _SUFFIXES[match[2]]) if match and len(match[1]) < 20 else None
