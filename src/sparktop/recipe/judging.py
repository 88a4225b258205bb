"""Whether a launch fits, on each node and altogether, with the sentences that say so. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.diagnose.live.beside import PROCESSES_BYTES
from sparktop.diagnose.live.window import GIB
from sparktop.model.engine import EngineKind
from sparktop.model.prospect import Budget, Fit, NodeBudget, Slice, SliceKind
from sparktop.recipe.demand import Case, Demand, base_bytes, computed_share, demand_of
from sparktop.recipe.reserve import HOST_BYTES, NEVER_ABOVE, most_share, reserve_bytes
from sparktop.recipe.room import Room

RANK = {Fit.NO: 0, Fit.UNKNOWN: 1, Fit.TIGHT: 2, Fit.FITS: 3}
"""From worst to best."""
_WORDS = {Fit.FITS: "Fits", Fit.TIGHT: "Tight", Fit.NO: "Does not fit", Fit.UNKNOWN: "Not known whether it fits"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """What the engine takes on one node."""

    size_bytes: int
    weights_bytes: int
    context_bytes: int
    beyond_bytes: int

    @property
    def rest_bytes(self) -> int:
        return self.size_bytes - self.weights_bytes - self.context_bytes


def judge(case: Case) -> Budget:
    """The verdict, without levers."""
    if not case.rooms or any(room.total <= 0 for room in case.rooms):
        poor = ", ".join(room.node for room in case.rooms if room.total <= 0) or "no node"
        return Budget(fit=Fit.UNKNOWN, sentence=f"Not known whether it fits: the memory of {poor} isn't known.")
    demand = demand_of(case)
    settings = case.settings
    share, source = settings.share, settings.share_source
    if share is None and settings.cache_bytes is None:
        share, source = computed_share(case, demand)
    pools = [_pool(case, demand, room, share) for room in case.rooms]
    nodes = tuple(_node(case, demand, room, pool) for room, pool in zip(case.rooms, pools, strict=True))
    fit, why = _verdict(case, demand, share, pools, nodes)
    held = [_cache_tokens(case, demand, pool) for pool in pools]
    return Budget(
        fit=fit,
        sentence=f"{_WORDS[fit]}: {why}.",
        nodes=nodes,
        share=share,
        share_source=source,
        context_tokens=demand.context_tokens,
        cache_tokens=min((one for one in held if one is not None), default=None),
        unknowns=demand.unknowns,
    )


def _pool(case: Case, demand: Demand, room: Room, share: float | None) -> _Pool:
    weights, context = demand.weights_bytes or 0, demand.context_bytes or 0
    if case.settings.cache_bytes is not None:  # overrides the share
        size = weights + demand.work_bytes + case.settings.cache_bytes
    else:
        size = int((share or 0.0) * base_bytes(case, room))
    weights = min(weights, size)
    return _Pool(
        size_bytes=size,
        weights_bytes=weights,
        context_bytes=min(context, size - weights),
        beyond_bytes=demand.beyond_bytes,
    )


def _cache_tokens(case: Case, demand: Demand, pool: _Pool) -> int | None:
    if case.settings.cache_bytes is not None:
        return demand.cache.tokens(case.settings.cache_bytes)
    if demand.weights_bytes is None:
        return None
    return demand.cache.tokens(pool.size_bytes - demand.weights_bytes - demand.work_bytes)


def _node(case: Case, demand: Demand, room: Room, pool: _Pool) -> NodeBudget:
    left = room.reach - pool.size_bytes - pool.beyond_bytes
    reserve, _ = reserve_bytes(room.has_desktop, case.need.reserve_gib)
    fit = Fit.NO if left < HOST_BYTES else Fit.TIGHT if left < reserve else Fit.FITS
    said = f"{_gib(pool.size_bytes)} GiB of {_gib(room.total)} for it, {_gib(pool.beyond_bytes)} beside that, "
    said += f"{_gib(left)} left to the host" if fit is not Fit.NO else f"{_gib(HOST_BYTES - left)} short"
    return NodeBudget(
        node=room.node,
        total_bytes=room.total,
        available_bytes=room.available,
        before=_before(room),
        after=_after(room, pool, reserve),
        left_bytes=left,
        fit=fit,
        sentence=said,
    )


def _verdict(
    case: Case, demand: Demand, share: float | None, pools: list[_Pool], nodes: tuple[NodeBudget, ...]
) -> tuple[Fit, str]:
    """(the verdict, why in half a sentence): the worst that can be said, its reasons one after the other."""
    reasons: list[tuple[Fit, str]] = []
    settings = case.settings
    engine_caps = share is not None and settings.cache_bytes is None
    if engine_caps and share is not None:
        ceiling = most_share(settings.engine, len(case.rooms), demand.context_tokens)
        if share > NEVER_ABOVE:
            reasons.append((Fit.NO, f"a share of {share:g} is above {NEVER_ABOVE:.2f}, which starves the host"))
        elif share > ceiling:
            pair = f" for {len(nodes)} nodes" if len(nodes) > 1 else ""
            reasons.append((Fit.TIGHT, f"a share of {share:.2f} is above {ceiling:.2f}{pair}"))
    reasons += _room_in_pool(case, demand, min(pools, key=lambda one: one.size_bytes))
    node = min(nodes, key=lambda one: (RANK[one.fit], one.left_bytes))
    room = next(one for one in case.rooms if one.node == node.node)
    reserve, why = reserve_bytes(room.has_desktop, case.need.reserve_gib)
    at = f"at {share:.2f} " if engine_caps else ""
    taken = f"{at}it takes {_gib(pools[nodes.index(node)].size_bytes)} GiB of {node.node}'s {_gib(node.total_bytes)}"
    beside = f"{_gib(demand.beyond_bytes)} beside that"
    if node.fit is Fit.NO:
        can = _gib(max(0, room.reach - HOST_BYTES))
        given = f"{can} can be given ({_gib(room.reach)} available, {_gib(HOST_BYTES)} for the host)"
        reasons.append((Fit.NO, f"{taken} and {beside}, where {given}"))
    elif node.fit is Fit.TIGHT:
        left = _gib(node.left_bytes)
        reasons.append((Fit.TIGHT, f"{taken} and {beside}; {left} are left, of a reserve of {_gib(reserve)} ({why})"))
    if not reasons:
        left = _gib(node.left_bytes)
        reasons.append((Fit.FITS, f"{taken} and {beside}; {left} are left, {_gib(reserve)} are the reserve ({why})"))
    fit = min((one for one, _ in reasons), key=lambda one: RANK[one])
    return fit, "; ".join(dict.fromkeys(text for one, text in reasons if one is fit))


def _room_in_pool(case: Case, demand: Demand, pool: _Pool) -> list[tuple[Fit, str]]:
    """What is to be said about weights and cache within the smallest pool."""
    if demand.weights_bytes is None:
        return [(Fit.UNKNOWN, "how large the weights are isn't known")]
    space = pool.size_bytes - demand.weights_bytes
    if space <= 0:
        return [
            (Fit.NO, f"{_gib(demand.weights_bytes)} GiB of weights on a node don't go into {_gib(pool.size_bytes)}")
        ]
    if case.settings.cache_bytes is not None:
        space = case.settings.cache_bytes
        work = 0
    else:
        work = demand.work_bytes
    tokens, context = demand.context_tokens, demand.context_bytes
    if context is None:
        about = "what a token of context takes" if demand.cache.token_bytes is None else "how long the context is"
        return [(Fit.UNKNOWN, f"{about} isn't known; beside the weights there are {_gib(space)} GiB for it")]
    if context > space:
        short = f"{_gib(context)} GiB of cache for {tokens} tokens don't go beside the weights, where {_gib(space)} are"
        return [(Fit.NO if case.settings.engine is EngineKind.VLLM else Fit.TIGHT, short)]
    if context + work > space:
        text = f"{_gib(context)} GiB of cache for {tokens} tokens and about {_gib(work)} of working memory"
        return [(Fit.TIGHT, f"{text} hardly go beside the weights, where {_gib(space)} are")]
    return []


def _before(room: Room) -> tuple[Slice, ...]:
    """Now; what is said to be held is never more than what is not available, and what goes is what comes back: so the
    host has the same before and after."""
    used = room.total - room.available
    back = room.reach - room.available
    slices = []
    for name, size in room.stays:
        part = min(used - back, max(0, size))
        used -= part
        slices.append(Slice(kind=SliceKind.OTHERS, label=f"{name} {_gib(part)}", size_bytes=part))
    for name, size in room.going:
        part = min(back, max(0, size))
        back, used = back - part, used - part
        slices.append(Slice(kind=SliceKind.GOING, label=f"{name} {_gib(part)}", size_bytes=part))
    host = Slice(kind=SliceKind.HOST, label=f"host {_gib(used)}", size_bytes=used)
    free = Slice(kind=SliceKind.FREE, label=f"available {_gib(room.available)}", size_bytes=room.available)
    return tuple(one for one in (host, *slices, free) if one.size_bytes)


def _after(room: Room, pool: _Pool, reserve: int) -> tuple[Slice, ...]:
    """When it serves: slices of one after the other fill what can be given; what is over is SHORT.

    What a host can't do without is nobody else's: where it would be taken, that is what is missing.
    """
    used = room.total - room.reach
    others = []
    for name, size in room.stays:
        part = min(used, max(0, size))
        used -= part
        others.append(Slice(kind=SliceKind.OTHERS, label=f"{name} {_gib(part)}", size_bytes=part))
    slices = [Slice(kind=SliceKind.HOST, label=f"host {_gib(used)}", size_bytes=used), *others]
    left = room.reach - pool.size_bytes - pool.beyond_bytes
    short = max(0, HOST_BYTES - left)
    kept = min(HOST_BYTES if short else reserve, room.reach)
    space = room.reach - (kept if short else 0)
    for kind, label, size in (
        (SliceKind.WEIGHTS, "weights", pool.weights_bytes),
        (SliceKind.CACHE, "KV cache", pool.context_bytes),
        (SliceKind.UNTOUCHED, "rest of its share", pool.rest_bytes),
        (SliceKind.OVERHEAD, _beside(pool.beyond_bytes), pool.beyond_bytes),
    ):
        part = min(space, size)
        space -= part
        slices.append(Slice(kind=kind, label=f"{label} {_gib(size)}", size_bytes=part))
    if not short:
        kept = min(space, kept)
        space -= kept
    said = f"reserve {_gib(kept)}" + (f" of {_gib(reserve)}" if kept < reserve else "")
    slices.append(Slice(kind=SliceKind.RESERVE, label=said, size_bytes=kept))
    slices.append(Slice(kind=SliceKind.FREE, label=f"free {_gib(space)}", size_bytes=space))
    slices.append(Slice(kind=SliceKind.SHORT, label=f"short {_gib(short)}", size_bytes=short))
    return tuple(one for one in slices if one.size_bytes)


def _beside(size: int) -> str:
    return "graphs, first request" if size > PROCESSES_BYTES else "processes"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
