"""How much memory must be available before an engine starts: its need and a reserve, as far as that is reachable. Pure.

On a Spark vLLM's share is of all memory, and its start-up check reads MemAvailable (docs/facts/engines.md sections
1A, 4.4); SGLang's is of what is available before it loads. No flag names the overhead on top of the share. Conflict
C2: no constant fits, so the target is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from sparktop.cmdline.engine_argv import whole
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.engine_flags import polar
from sparktop.dataclass import dataclass
from sparktop.engines.memory_needs import HOST_BYTES, MOST, most_share, overhead_of, reserve_bytes, share, words_for
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import AUTO
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import NodeView
from sparktop.text.units import GIB, gib

SLACK_BYTES = 4 * GIB
"""Below the most ever available, which never comes back to the last byte (desktop, logs, page tables)."""
_GIB_TEXT = re.compile(r"\d{1,4}(\.\d{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The memory to wait for on one node."""

    target_bytes: int
    asked_bytes: int
    """What the engine takes by its command, without the reserve."""
    sentence: str
    """Where the figure comes from, for the review."""
    warnings: tuple[str, ...] = ()
    is_short: bool = False
    """The engine takes more than can be available: its own check will most likely refuse."""


def gib_option(text: str) -> int | None:
    """An option in GiB as bytes; None where it isn't set.

    Raises:
        ValueError: it isn't a size between 1 and 9999 GiB; the text says so.
    """
    if not text:
        return None
    if not _GIB_TEXT.fullmatch(text) or not 1 <= float(text) <= 9999:
        raise ValueError(f"{text[:20]!r} is not a size in GiB, for example 96 or 96.5")
    return int(float(text) * GIB)


def memory_target(engine: Engine, node: NodeView, *, wanted_bytes: int | None = None) -> Target | None:
    """The target on this node; None where its memory is unknown.

    Args:
        wanted_bytes: the operator's own figure, which wins.
    """
    if node.sample is None:
        return None
    total = node.sample.memory.total_bytes
    asked_size, source = asked_bytes(engine, node)
    reachable = reachable_bytes(engine, node)
    if wanted_bytes is not None:
        warnings = []
        if reachable is not None and wanted_bytes > reachable:
            warnings.append(
                f"You ask for {gib(wanted_bytes)} available on {node.name}, but at most {gib(reachable)} can become "
                "free: the wait will probably fail, and nothing starts."
            )
        if wanted_bytes < asked_size:
            warnings.append(
                f"{gib(wanted_bytes)} is less than the {gib(asked_size)} that {engine.name} takes ({source}): it may "
                "refuse to start, or take the host's own memory."
            )
        return Target(
            target_bytes=wanted_bytes,
            asked_bytes=asked_size,
            sentence=f"{gib(wanted_bytes)}, as you set it",
            warnings=tuple(warnings),
        )
    overhead = overhead_of(engine)
    need = asked_size + overhead + HOST_BYTES
    ceiling = max(GIB, (total if reachable is None else reachable) - SLACK_BYTES)
    breakdown = (
        f"{gib(asked_size)} by {source}, {gib(overhead)} more for {words_for(overhead)}, {gib(HOST_BYTES)} for the host"
    )
    if need <= ceiling:
        return Target(target_bytes=need, asked_bytes=asked_size, sentence=breakdown)
    most = total if reachable is None else reachable
    target = asked_size if ceiling < asked_size <= most else ceiling
    needs = f"{engine.name} needs {gib(need)} on {node.name} ({breakdown})"
    if asked_size > most:
        flag = engine.kind.traits.share_flag
        smaller = f"Lower its share (relaunch with {flag})" if flag else "Give it a smaller context"
        warning = (
            f"{needs}, but at most {gib(most)} can become free: its own check at the start will "
            f"probably fail. {smaller}, or free other memory there."
        )
    else:
        warning = (
            f"{needs}; of the {gib(most)} that can become free there, {gib(SLACK_BYTES)} can't be counted on. sparktop "
            f"waits for {gib(target)}; once the engine is loaded, the host has little left."
        )
    return Target(
        target_bytes=target,
        asked_bytes=asked_size,
        sentence="all that can be counted on there, and less than it needs",
        warnings=(warning,),
        is_short=asked_size > most,
    )


def asked_bytes(engine: Engine, node: NodeView) -> tuple[int, str]:
    """(what the engine takes of this node's memory, where that figure comes from)."""
    total = node.sample.memory.total_bytes if node.sample else 0
    held, reachable, command = held_bytes(engine, node), reachable_bytes(engine, node), engine.command
    cache_flag = command.value("--kv-cache-memory-bytes")
    if not (name := engine.kind.traits.share_flag):
        return held or 0, "what it held"
    if cache_flag is not None and held:  # overrides the share; the weights come on top, and only their sum was measured
        return held, "what it held, as --kv-cache-memory-bytes names only its cache"
    fraction = share(engine)
    base, base_text = total, gib(total)
    if reachable is not None and engine.kind.traits.is_share_of_available:
        base, base_text = min(total, reachable), f"the {gib(reachable)} that can be available"
    if cache_flag is not None and (size := whole(cache_flag)) is not None:
        return min(
            total, max(size, int(fraction * total))
        ), f"{name} {fraction:g} of {gib(total)}, its weights not being known"
    is_set = command.value(name) is not None
    if not is_set and not engine.argv and held:
        return held, "what it held"  # a rank whose command is unknown
    return int(fraction * base), f"{name} {fraction:g}{'' if is_set else ' (its default)'} of {base_text}"


def held_bytes(engine: Engine, node: NodeView) -> int | None:
    """What the engine holds now: by the ledger, which includes its processes' own memory, else by the GPU's list."""
    own_bytes = (holder.held_bytes for holder in node.holders("engine") if holder.label == engine.name)
    return next(own_bytes, engine.gpu_bytes)


def reachable_bytes(engine: Engine, node: NodeView) -> int | None:
    """The most that can be available with this engine stopped: what was after the boot less what others hold, else what
    is available now and what it holds."""
    if node.sample is None:
        return None
    available = node.sample.memory.available_bytes
    held = held_bytes(engine, node) or 0
    baseline = node.baseline.after_boot_available_bytes if node.baseline else None
    if baseline is None:
        return available + held if held else None
    others = sum(
        holder.held_bytes
        for holder in node.holders("engine", "gpu")
        if not (holder.kind == "engine" and holder.label == engine.name)
    )
    return max(baseline - others, available)


SHARE_FLAGS = {kind: flag for kind in EngineKind if (flag := kind.traits.share_flag)}


def share_flags(kinds: Iterable[EngineKind]) -> str:
    """The flags that set the share of engines of these kinds, as in a sentence; without one, all flags."""
    kinds = [*kinds]
    flags = (flag for kind, flag in SHARE_FLAGS.items() if kind in kinds or not kinds)
    return " or ".join(dict.fromkeys(flags))  # two engines have the same one


LEAST = 0.10
STEP = 0.05
_SHIFT = re.compile(r"[-+]0?\.\d{1,3}")


def literal_flags(
    flags: Mapping[str, str | None], team: Sequence[EngineRank]
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The flags with figures in place of AUTO, "-0.05" and "+0.05"; and sentences on where the figures come from.

    Raises:
        CannotEdit: a figure can't be computed; the text says why.
    """
    literals: dict[str, str | None] = {}
    notes: list[str] = []
    for name, value in flags.items():
        plain_name = name.replace("_", "-")
        if value == AUTO and plain_name in SHARE_FLAGS.values():
            figure, note = largest_share(team)
            literals[name] = f"{figure:.2f}"
            notes.append(f"{name} {figure:.2f}: {note}")
        elif value is not None and _SHIFT.fullmatch(value):
            literals[name] = _shifted(name, plain_name, float(value), team)
        else:
            literals[name] = value
    return literals, tuple(notes)


def largest_share(team: Sequence[EngineRank]) -> tuple[float, str]:
    """(the share that all nodes of the team can give, where it comes from).

    Raises:
        CannotEdit: a node's memory is unknown, or too small.
    """
    limits = [_limits(rank) for rank in team]
    kind = team[0].engine.kind
    figures = []
    for rank, (most, total) in zip(team, limits, strict=True):
        node, facts = rank.node.name, rank.node.facts
        reserve, reason = reserve_bytes(facts.is_graphical if facts is not None else None)
        overhead = overhead_of(rank.engine)
        beside = f"{gib(reserve)} reserved for the host ({reason}) and {gib(overhead)} outside its share"
        base = min(reachable for reachable, _ in limits) if kind.traits.is_share_of_available else total
        figure = math.floor((most - reserve - overhead) / base * 100 + 1e-9) / 100 if base > 0 else 0.0
        figures.append((figure, base, f"of {gib(base)}, {gib(most)} can be available on {node} without it: {beside}"))
    figure, base, note = min(figures)
    ceiling = most_share(kind, len(team), None)
    if figure > ceiling:
        figure, note = ceiling, f"{note}; never more than {ceiling}"
    current = min(share(rank.engine) for rank in team)
    if figure >= current:
        figure, note = current - STEP, f"{current:.2f} now; memory would allow {figure:.2f} ({note})"
    if figure < LEAST:
        raise CannotEdit(f"no share of memory is left for it: {note}")
    return round(figure, 2), f"{note}. Its weights and KV cache get {gib(int(figure * base))} together"


def _limits(rank: EngineRank) -> tuple[int, int]:
    """(the most that can be available without the engine, all memory), in bytes."""
    view = rank.node
    if view.sample is None:
        raise CannotEdit(f"what memory {view.name} has isn't known at the moment")
    memory = view.sample.memory
    return reachable_bytes(rank.engine, view) or memory.available_bytes, memory.total_bytes


def _shifted(name: str, dashed: str, change: float, team: Sequence[EngineRank]) -> str:
    """The flag's value plus `change`; for a share that isn't set, the version's default plus `change`."""
    current_text = team[0].engine.command.value(polar(name, team[0].engine.kind))
    is_share = dashed in SHARE_FLAGS.values()
    try:
        own = share(team[0].engine) if is_share else None
        current = own if current_text is None else float(current_text)
    except ValueError:
        current = None
    if current is None:
        verb = f"take {-change:g} off" if change < 0 else f"add {change:g} to"
        raise CannotEdit(f"there is no figure of {name} to {verb}")
    figure = round(current + change, 3)
    if figure <= 0:
        raise CannotEdit(f"{name} is {current:g}: {-change:g} less would leave nothing")
    if change > 0 and is_share and figure > MOST:
        raise CannotEdit(
            f"{name} is {current:g}: {change:g} more would be over {MOST}, which leaves first requests no room"
        )
    return f"{figure:.2f}" if round(figure, 2) == figure else f"{figure:g}"
