"""The verdict on a launch's memory: whether it fits on each node, as figures, slices of a bar, and a sentence."""

from __future__ import annotations

from sparktop.dataclass import dataclass
from sparktop.engines.memory_needs import HOST_BYTES, NEVER_ABOVE, PROCESSES_BYTES, most_share, reserve_bytes
from sparktop.model.engine import EngineKind
from sparktop.model.prospect import Budget, Fit, NodeBudget, Slice, SliceKind
from sparktop.recipe.weigh.demand import Case, Demand, base_bytes, computed_share, demand_of
from sparktop.recipe.weigh.node_memory import Room
from sparktop.text.units import GIB

RANK = {Fit.NO: 0, Fit.UNKNOWN: 1, Fit.TIGHT: 2, Fit.FITS: 3}
"""From worst to best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """The memory the engine allocates on one node."""

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
        unknown_nodes = ", ".join(room.node for room in case.rooms if room.total <= 0) or "no node"
        return Budget(fit=Fit.UNKNOWN, why=f"the memory of {unknown_nodes} is unknown")
    demand = demand_of(case)
    settings = case.settings
    share, source = settings.share, settings.share_source
    if share is None and settings.cache_bytes is None and settings.takes_share:
        share, source = computed_share(case, demand)
    pools = [_pool_of(case, demand, room, share) for room in case.rooms]
    is_known = settings.takes_share or None not in (demand.weights_bytes, demand.context_bytes)
    rooms = zip(case.rooms, pools, strict=True)
    nodes = tuple(_node_budget(case, room, pool, is_known=is_known) for room, pool in rooms)
    fit, why = _verdict(case, demand, share, pools, nodes)
    capacities = [_cache_tokens(case, demand, pool) for pool in pools]
    return Budget(
        fit=fit,
        why=why,
        nodes=nodes,
        share=share,
        share_source=source,
        context_tokens=demand.context_tokens,
        cache_tokens=min((tokens for tokens in capacities if tokens is not None), default=None),
        unknowns=demand.unknowns,
        figures=demand.figures,
    )


def _pool_of(case: Case, demand: Demand, room: Room, share: float | None) -> _Pool:
    weights, context = demand.weights_bytes or 0, demand.context_bytes or 0
    if case.settings.cache_bytes is not None:  # overrides the share
        size = weights + demand.work_bytes + case.settings.cache_bytes
    elif not case.settings.takes_share:
        size = weights + context
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


def _node_budget(case: Case, room: Room, pool: _Pool, *, is_known: bool) -> NodeBudget:
    left_bytes = room.reach - pool.size_bytes - pool.beyond_bytes
    reserve, _ = reserve_bytes(room.has_desktop, case.need.reserve_gib)
    fit = Fit.NO if left_bytes < HOST_BYTES else Fit.TIGHT if left_bytes < reserve else Fit.FITS
    beside = f"{_gib(pool.beyond_bytes)} {case.settings.beside}"
    size = f"{'' if is_known else 'at least '}{_gib(pool.size_bytes)} GiB" if pool.size_bytes else "an unknown part"
    sizes = f"{size} of {_gib(room.total)} for the engine, {beside}"
    rest = (
        f"{'' if is_known else 'at most '}{_gib(left_bytes)} left for the host"
        if fit is not Fit.NO
        else f"{_gib(HOST_BYTES - left_bytes)} short"
    )
    return NodeBudget(
        node=room.node,
        total_bytes=room.total,
        available_bytes=room.available,
        before=_slices_before(room),
        after=_slices_after(room, pool, reserve),
        left_bytes=left_bytes,
        fit=fit,
        sentence=f"{sizes}, {rest}",
    )


def _verdict(
    case: Case, demand: Demand, share: float | None, pools: list[_Pool], nodes: tuple[NodeBudget, ...]
) -> tuple[Fit, str]:
    """(the verdict, the reasons for it): the worst of all reasons, joined to half a sentence."""
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
    reasons += _pool_reasons(case, demand, min(pools, key=lambda candidate: candidate.size_bytes))
    node = min(nodes, key=lambda candidate: (RANK[candidate.fit], candidate.left_bytes))
    room = next(room for room in case.rooms if room.node == node.node)
    reserve, why = reserve_bytes(room.has_desktop, case.need.reserve_gib)
    at = f"at {share:.2f} " if engine_caps else ""
    size_bytes = pools[nodes.index(node)].size_bytes
    taken = f"{at}the engine takes {_gib(size_bytes)} GiB of {node.node}'s {_gib(node.total_bytes)}"
    beside = f"{_gib(demand.beyond_bytes)} {case.settings.beside}"
    if node.fit is Fit.NO:
        can = _gib(max(0, room.reach - HOST_BYTES))
        given = f"{can} is usable ({_gib(room.reach)} available, {_gib(HOST_BYTES)} for the host)"
        reasons.append((Fit.NO, f"{taken} plus {beside}, but only {given}"))
    elif node.fit is Fit.TIGHT:
        left = _gib(node.left_bytes)
        reasons.append(
            (Fit.TIGHT, f"{taken} plus {beside}; {left} remains, below the reserve of {_gib(reserve)} ({why})")
        )
    if not reasons:
        left = _gib(node.left_bytes)
        needed = _gib(size_bytes + demand.beyond_bytes)
        needs = f"{at}the engine needs {needed} of {node.node}'s {_gib(node.total_bytes)} GiB"
        reasons.append((Fit.FITS, f"{needs}, leaves {left} ({_gib(reserve)} reserved: {why})"))
    fit = min((candidate for candidate, _ in reasons), key=lambda candidate: RANK[candidate])
    return fit, "; ".join(dict.fromkeys(text for candidate, text in reasons if candidate is fit))


def _pool_reasons(case: Case, demand: Demand, pool: _Pool) -> list[tuple[Fit, str]]:
    """Reasons concerning weights and cache within the smallest pool."""
    if demand.weights_bytes is None:
        return [(Fit.UNKNOWN, "the size of the weights is unknown")]
    tokens, context = demand.context_tokens, demand.context_bytes
    about = "the memory per token of context" if demand.cache.token_bytes is None else "the context length"
    if not case.settings.takes_share:
        return [(Fit.UNKNOWN, f"{about} is unknown, and comes on top of the weights")] if context is None else []
    space = pool.size_bytes - demand.weights_bytes
    if space <= 0:
        return [
            (Fit.NO, f"{_gib(demand.weights_bytes)} GiB of weights per node don't fit into {_gib(pool.size_bytes)}")
        ]
    work = demand.work_bytes
    if case.settings.cache_bytes is not None:
        space, work = case.settings.cache_bytes, 0
    if context is None:
        return [(Fit.UNKNOWN, f"{about} is unknown; the weights leave {_gib(space)} GiB for it")]
    if context > space:
        short = f"{_gib(context)} GiB of cache for {tokens} tokens don't fit: the weights leave {_gib(space)} GiB"
        return [(Fit.NO if case.settings.engine is EngineKind.VLLM else Fit.TIGHT, short)]
    if context + work > space:
        text = f"{_gib(context)} GiB of cache for {tokens} tokens and about {_gib(work)} of working memory"
        return [(Fit.TIGHT, f"{text} barely fit: the weights leave {_gib(space)} GiB")]
    return []


def _slices_before(room: Room) -> tuple[Slice, ...]:
    """Slices of the memory bar now.

    What engines hold is never more than what is unavailable, and what they free never more than what becomes available:
    so the host's slice is the same before and after.
    """
    used = room.total - room.available
    freed = room.reach - room.available
    slices = []
    for name, size in room.stays:
        share = min(used - freed, max(0, size))
        used -= share
        slices.append(Slice(kind=SliceKind.OTHERS, label=name, size_bytes=share))
    for name, size in room.going:
        share = min(freed, max(0, size))
        freed, used = freed - share, used - share
        slices.append(Slice(kind=SliceKind.TO_BE_STOPPED, label=name, size_bytes=share))
    host = Slice(kind=SliceKind.HOST, label="host", size_bytes=used)
    free = Slice(kind=SliceKind.FREE, label="available", size_bytes=room.available)
    return tuple(bar_slice for bar_slice in (host, *slices, free) if bar_slice.size_bytes)


def _slices_after(room: Room, pool: _Pool, reserve: int) -> tuple[Slice, ...]:
    """Slices of the memory bar once the engine serves; memory that is missing is a SHORT slice.

    The host's minimum is never given to the engine: where it would be taken, it counts as missing.
    """
    used = room.total - room.reach
    other_slices = []
    for name, size in room.stays:
        share = min(used, max(0, size))
        used -= share
        other_slices.append(Slice(kind=SliceKind.OTHERS, label=name, size_bytes=share))
    slices = [Slice(kind=SliceKind.HOST, label="host", size_bytes=used), *other_slices]
    left_bytes = room.reach - pool.size_bytes - pool.beyond_bytes
    short = max(0, HOST_BYTES - left_bytes)
    kept = min(HOST_BYTES if short else reserve, room.reach)
    space = room.reach - (kept if short else 0)
    overhead = "graphs, first request" if pool.beyond_bytes > PROCESSES_BYTES else "processes"
    for kind, label, size in (
        (SliceKind.WEIGHTS, "weights", pool.weights_bytes),
        (SliceKind.CACHE, "KV cache", pool.context_bytes),
        (SliceKind.UNTOUCHED, "rest of its share", pool.rest_bytes),
        (SliceKind.OVERHEAD, overhead, pool.beyond_bytes),
    ):
        share = min(space, size)
        space -= share
        slices.append(Slice(kind=kind, label=label, size_bytes=share, amount=_gib(size)))
    if not short:
        kept = min(space, kept)
        space -= kept
    amount = f"{_gib(kept)} of {_gib(reserve)}" if kept < reserve else ""
    slices.append(Slice(kind=SliceKind.RESERVE, label="reserve", size_bytes=kept, amount=amount))
    slices.append(Slice(kind=SliceKind.FREE, label="free", size_bytes=space))
    slices.append(Slice(kind=SliceKind.SHORT, label="short", size_bytes=short))
    return tuple(bar_slice for bar_slice in slices if bar_slice.size_bytes)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
