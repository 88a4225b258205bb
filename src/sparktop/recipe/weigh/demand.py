"""What a launch needs on each node: its pool, the contents of the pool, and what it takes outside the pool.

Facts: docs/facts/engines.md 4.4, 1A, C2, C11. vLLM's share is of all memory and holds weights, activations and cache,
from 0.21 on graphs too. SGLang's is of the memory available before it loads, on the rank with the least, and holds
weights and cache (its `_profile_available_bytes`: what is free after the load, less (1 - share) of what was free
before).
"""

from __future__ import annotations

import math

from sparktop.dataclass import dataclass
from sparktop.engines.memory_needs import (
    GRAPHS_BYTES,
    HOST_BYTES,
    NEVER_ABOVE,
    most_share,
    overhead_bytes,
    reserve_bytes,
)
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Need
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.weigh.measured import Measured
from sparktop.recipe.weigh.node_memory import (
    Cache,
    Room,
    cache_on_a_node,
    shards,
    total_weights,
    with_more,
)
from sparktop.recipe.weigh.settings import Settings
from sparktop.text.units import GIB, gib

ACTIVATIONS_BYTES = 3 * GIB
"""Activations in vLLM's memory profile at its usual batch size; an estimate, within its share."""
_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The inputs of a memory verdict; a lever changes one of them."""

    settings: Settings
    need: Need
    rooms: tuple[Room, ...]
    facts: ModelFacts | None
    beside: tuple[ModelFacts, ...] = ()
    """Further models loaded on every node, such as a draft; unknown facts are None."""
    set_need: Need = Need()
    """What the operator sets of it."""
    measured: Measured | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a launch needs on each node, in bytes; the same on all nodes."""

    weights_bytes: int | None
    cache: Cache
    context_tokens: int | None
    context_bytes: int | None
    """KV cache of one full context."""
    work_bytes: int
    """Activations, and graphs where they count, within the share."""
    beyond_bytes: int
    """Outside the share: graphs where they don't count within it, processes, the first request."""
    unknowns: tuple[str, ...]
    figures: tuple[str, ...]
    """Figures that weren't computed, each with whose it is."""

    @property
    def needed_bytes(self) -> int | None:
        """The smallest usable pool: weights and one context; None where the weights are unknown."""
        return None if self.weights_bytes is None else self.weights_bytes + (self.context_bytes or 0)


def demand_of(case: Case) -> Demand:
    """What this launch needs on each of its nodes: by what the operator sets, what was measured here, the rest."""
    settings, facts, nodes = case.settings, case.facts, len(case.rooms)
    measured = case.measured if case.measured is not None and case.measured.holds(settings, facts) else None
    context, unknowns, figures = settings.context_tokens, list(settings.problems), list[str]()
    if context is None and facts is not None and facts.longest_tokens is not None and facts.longest_tokens > 0:
        context = facts.longest_tokens
        unknowns.append(f"no context is set: sparktop assumes the model's longest, {context} tokens")
    elif context is None:
        unknowns.append("no context is set, and the model's longest is unknown")
    weights_bytes, weights_note = _weights(case, nodes, measured, figures, unknowns)
    cache = _cache(case, nodes, context, measured, figures)
    work = ACTIVATIONS_BYTES if settings.engine is EngineKind.VLLM else 0  # SGLang's share holds none
    work += GRAPHS_BYTES if settings.has_graphs and settings.counts_graphs else 0
    if settings.tensor is not None and settings.tensor * settings.pipeline > nodes > 0:
        gpus = settings.tensor * settings.pipeline
        unknowns.append(f"it needs {gpus} GPUs, but {nodes} node{'s have' if nodes > 1 else ' has'} one each")
    unknowns += [note for note in (weights_note, cache.note) if note]
    return Demand(
        weights_bytes=weights_bytes,
        cache=cache,
        context_tokens=context,
        context_bytes=cache.size_bytes(context) if context is not None else None,
        work_bytes=work,
        beyond_bytes=_beyond_bytes(case, measured, figures),
        unknowns=tuple(dict.fromkeys(unknowns)),
        figures=tuple(figures),
    )


def _weights(
    case: Case, nodes: int, measured: Measured | None, figures: list[str], unknowns: list[str]
) -> tuple[int | None, str]:
    """(bytes of weights on each node, those of its drafts included; None: unknown, where they are from)."""
    settings, set_gib, note = case.settings, case.set_need.weights_gib, ""
    if set_gib is not None:
        whole: int | None = int(set_gib * GIB)
        figures.append(f"weights of {gib(set_gib * GIB)}: as you set it")
    elif measured is not None and measured.weights_bytes is not None:
        figures.append(f"weights of {gib(measured.weights_bytes)}: {measured.when}")
        return measured.weights_bytes, ""
    else:
        whole, note = total_weights(case.need, case.facts)
    drafts = {draft.name: draft.weights_bytes or draft.size_bytes or 0 for draft in case.beside}
    if unsized := " and ".join(name for name, size in drafts.items() if size <= 0):
        unknowns.append(f"the engine also loads {unsized}, whose size is unknown: its weights are not counted")
    elif settings.has_draft and not drafts:
        unknowns.append("the engine also loads a draft model: its weights and cache are not counted")
    if settings.has_adapter:
        unknowns.append("the engine also loads a LoRA adapter: its weights are not counted")
    if whole is None:
        return None, note
    return math.ceil(whole / shards(settings, nodes)) + sum(max(0, draft) for draft in drafts.values()), note


def _cache(case: Case, nodes: int, context: int | None, measured: Measured | None, figures: list[str]) -> Cache:
    """That of the model and of its drafts."""
    settings = case.settings
    if (token_bytes := case.set_need.kv_bytes_per_token) is not None:
        figures.append(f"cache of {token_bytes:,.0f} bytes per token, as you set it")
        return Cache(token_bytes=token_bytes / shards(settings, nodes))
    if measured is not None and measured.context_bytes and measured.context_tokens == context and context:
        figures.append(f"cache of {gib(measured.context_bytes)} for {context} tokens: {measured.when}")
        return Cache(token_bytes=measured.context_bytes / context)
    drafts = [draft for draft in case.beside if (draft.weights_bytes or draft.size_bytes or 0) > 0]
    return with_more(
        cache_on_a_node(settings, case.need, case.facts, nodes),
        [(draft.name, cache_on_a_node(settings, Need(), draft, nodes)) for draft in drafts],
    )


def _beyond_bytes(case: Case, measured: Measured | None, figures: list[str]) -> int:
    """Outside its share. A spike that the recipe tells of stands, as a quiet hour may not have seen it."""
    settings, spike, set_gib = case.settings, case.need.spike_gib, case.set_need.spike_gib
    if set_gib is not None:
        figures.append(f"{gib(set_gib * GIB)} outside its share: as you set it")
        return int(set_gib * GIB)
    if measured is not None and measured.beyond_bytes is not None:
        beyond = measured.beyond_bytes
        figures.append(f"{gib(beyond)} {settings.beside}: {measured.when}")
    else:
        beyond = overhead_bytes(has_graphs=settings.has_graphs, counts_graphs=settings.counts_graphs)
    if spike is not None and 0 < spike < 1e6 and not settings.is_eager:
        beyond = max(beyond, int(spike * GIB))
    return beyond


def base_bytes(case: Case, room: Room) -> int:
    """The bytes that a share of 1.0 would be, on that node."""
    if case.settings.engine is EngineKind.SGLANG:
        return min(other_room.reach for other_room in case.rooms)
    return room.total


def computed_share(case: Case, demand: Demand) -> tuple[float, str]:
    """(the share to use where none is set, where it comes from).

    The largest share that leaves every node its reserve, but at least what weights and one context need; never above
    the recipe's own. Where the cache isn't known the recipe's stands.
    """
    shares = [_share_for_reserve(case, demand, room) for room in case.rooms]
    most, note = min(shares)
    ceiling = most_share(case.settings.engine, len(case.rooms), demand.context_tokens)
    share = most
    if share > ceiling:
        share, note = ceiling, f"{note}; sparktop computes at most {ceiling:.2f}"
    minimum = _minimum_share(case, demand) or 0.0
    limit, is_known, begin = case.settings.share_limit, demand.cache.token_bytes is not None, "computed: "
    if limit is not None and (minimum > limit or not is_known):
        begin = "the recipe's; "
        why = f"sparktop computes {minimum:.2f} for weights and one context" if is_known else "the cache isn't known"
        share, note = limit, f"{why}; memory would allow {most:.2f} ({note})"
    elif limit is not None and limit < share:
        share, note = limit, f"as in the recipe; memory would allow {most:.2f} ({note})"
    elif minimum > share:
        share, note = minimum, f"weights and one context need {minimum:.2f}; {note}"
    if share > NEVER_ABOVE:
        share, note = NEVER_ABOVE, f"{note}; sparktop never uses more than {NEVER_ABOVE:.2f}"
    return max(0.01, round(share, 2)), begin + note


def _share_for_reserve(case: Case, demand: Demand, room: Room) -> tuple[float, str]:
    """(the share that leaves this node its reserve, how it was computed)."""
    reserve, why = reserve_bytes(room.has_desktop, case.need.reserve_gib)
    if reserve < HOST_BYTES:
        reserve, why = HOST_BYTES, f"{why} is less than any host needs"
    base = base_bytes(case, room)
    size = room.reach - reserve - demand.beyond_bytes
    figure = math.floor(size / base * _HUNDREDTHS + 1e-9) / _HUNDREDTHS if base > 0 else 0.0
    return figure, (
        f"{gib(room.reach)} can be available on {room.node}, less {reserve / GIB:.1f} for the host ({why}) "
        f"and {demand.beyond_bytes / GIB:.1f} outside the share, of {base / GIB:.1f}"
    )


def _minimum_share(case: Case, demand: Demand) -> float | None:
    """The share that holds weights, activations and one context on every node."""
    if demand.needed_bytes is None:
        return None
    base = min(base_bytes(case, room) for room in case.rooms)
    if base <= 0:
        return None
    return math.ceil((demand.needed_bytes + demand.work_bytes) / base * _HUNDREDTHS - 1e-9) / _HUNDREDTHS
