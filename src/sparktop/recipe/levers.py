"""What would change a verdict, in the order of preference, each proved by judging the launch again with it. Pure.

One lever where one does; two or three together where only that helps. A lever that leaves the verdict as it is, is
never offered.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from sparktop.diagnose.live.window import GIB
from sparktop.model.engine import EngineKind
from sparktop.model.prospect import Budget, Fit, OnDisk
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.alternatives import is_gguf, same, use
from sparktop.recipe.demand import Case, demand_of
from sparktop.recipe.judging import RANK, judge
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.parameters import get
from sparktop.recipe.room import Room
from sparktop.recipe.settings import CACHE_SIZE, CACHE_TYPE, EAGER, width_bytes

MOST_OFFERED = 4
TOGETHER_AT_MOST = 3
_CONTEXTS = (131072, 65536, 32768, 16384, 8192)
_SECOND = "OTHER-HOST"
_GRAIN = 256 * 2**20
_ALL = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lever:
    """One thing that can be changed."""

    group: str
    """Of one group no two are pulled together."""
    apply: Callable[[Case], Case]
    typed: Callable[[Budget], str]
    """As it would be typed, once the verdict with it is known."""


def levers(case: Case, verdict: Budget, order: Order, on_disk: Sequence[OnDisk] = ()) -> tuple[tuple[str, Budget], ...]:
    """(what would be typed, the verdict then), best first; none where it fits or isn't known."""
    if verdict.fit in (Fit.FITS, Fit.UNKNOWN):
        return ()
    there = tuple(_candidates(case, order, on_disk))
    for count in range(1, TOGETHER_AT_MOST + 1):
        found: list[tuple[str, Budget]] = []
        taken: set[tuple[str, ...]] = set()
        for chosen in combinations(there, count):
            groups = tuple(one.group for one in chosen)
            if len(set(groups)) < count or groups in taken or (_ALL in groups and any(map(_is_stop, groups))):
                continue
            changed = case
            for one in chosen:
                changed = one.apply(changed)
            then = judge(changed)
            if RANK[then.fit] > RANK[verdict.fit]:
                taken.add(groups)  # of one group the first is the mildest
                if _ALL in groups and any(
                    " --stop " in f" {text}" and RANK[was.fit] >= RANK[then.fit] for text, was in found
                ):
                    continue  # one of them does as well
                # what names another command comes first, the rest are its flags
                typed = sorted((one.typed(then) for one in chosen), key=lambda text: text.startswith("--"))
                found.append((" ".join(typed), then))
        if found:
            return tuple(found[:MOST_OFFERED])
    return ()


def _candidates(case: Case, order: Order, on_disk: Sequence[OnDisk]) -> Iterator[_Lever]:
    """Everything that could be tried, as the operator should prefer it."""
    settings = case.settings
    if settings.cache_bytes is not None:
        yield from _smaller_cache(case, settings.cache_bytes)
    elif settings.share is not None:
        key = settings.share_key
        yield _Lever(
            group="share",
            apply=lambda one: _with(one, share=None, share_source=""),
            typed=lambda then: f"--set {key}={then.share or 0:.2f}",
        )
    now = demand_of(case).context_tokens
    for tokens in _CONTEXTS:
        if now is None or tokens < now:
            yield _context(settings.context_key, tokens)
    if width_bytes(settings.cache_type) > 1.5:
        word = "fp8" if settings.engine is EngineKind.VLLM else "fp8_e4m3"
        yield _Lever(
            group="cache type",
            apply=lambda one: _with(one, cache_type=word),
            typed=lambda _: f"--set {CACHE_TYPE}={word}",
        )
    yield from _stops(case)
    wanted = get(order.values, "model") or order.recipe.model
    for model in on_disk:
        is_there = model.is_complete and {room.node for room in case.rooms} <= set(model.nodes)
        if is_there and not model.is_wanted and not is_gguf(model) and same(wanted, model.name):
            yield _other_model(model)
    if len(case.rooms) == 1 and order.recipe.max_nodes > 1:
        yield _second_node(order.recipe, case.rooms[0])
    if settings.engine is EngineKind.VLLM and not settings.is_eager and case.need.spike_gib:
        yield _Lever(
            group="graphs",
            apply=lambda one: _with(one, is_eager=True, has_graphs=False),
            typed=lambda _: f"--set {EAGER}=true",
        )


def _with(case: Case, **changes: object) -> Case:
    return replace(case, settings=replace(case.settings, **changes))  # type: ignore[arg-type]


def _smaller_cache(case: Case, now: int) -> Iterator[_Lever]:
    """As much as one context takes."""
    wanted = demand_of(case).context_bytes
    if wanted is None:
        return
    size = max(_GRAIN, math.ceil(wanted / _GRAIN) * _GRAIN)
    if size != now:
        yield _Lever(
            group="cache size",
            apply=lambda one: _with(one, cache_bytes=size),
            typed=lambda _: f"--set {CACHE_SIZE}={size}",
        )


def _context(key: str, tokens: int) -> _Lever:
    return _Lever(
        group="context",
        apply=lambda one: _with(one, context_tokens=tokens),
        typed=lambda _: f"--set {key}={tokens}",
    )


def _stops(case: Case) -> Iterator[_Lever]:
    """Each engine that stays, the largest first; then all of them."""
    sizes: dict[str, int] = {}
    for room in case.rooms:
        for name, size in room.stays:
            if room.stoppable is None or name in room.stoppable:
                sizes[name] = max(sizes.get(name, 0), size)
    names = sorted((name for name, size in sizes.items() if size > 0), key=lambda name: -sizes[name])
    for name in names:
        yield _stop(f"stop {name}", (name,))
    if len(names) > 1:
        yield _stop(_ALL, tuple(names))


def _is_stop(group: str) -> bool:
    return group.startswith("stop ")


def _stop(group: str, names: tuple[str, ...]) -> _Lever:
    def apply(case: Case) -> Case:
        rooms = case.rooms
        for name in names:
            rooms = tuple(room.without(name) for room in rooms)
        return replace(case, rooms=rooms)

    return _Lever(group=group, apply=apply, typed=lambda _: " ".join(f"--stop {shlex.quote(name)}" for name in names))


def _other_model(model: OnDisk) -> _Lever:
    def apply(case: Case) -> Case:
        facts = (
            replace(case.facts, weights_bytes=model.size_bytes)
            if case.facts is not None
            else ModelFacts(name=model.name, weights_bytes=model.size_bytes, source="its files")
        )
        return replace(case, facts=replace(facts, name=model.name, is_complete=True))

    return _Lever(group="model", apply=apply, typed=lambda _: f"--set model={shlex.quote(use(model))}")


def _second_node(recipe: Recipe, room: Room) -> _Lever:
    """As though another like this one were there: what it really has is seen when it is asked for."""
    second = Room(
        node=_SECOND,
        total_bytes=room.total_bytes,
        available_bytes=room.reach,
        has_desktop=room.has_desktop,
    )
    return _Lever(
        group="nodes",
        apply=lambda one: replace(_with(one, tensor=2), rooms=(*one.rooms, second)),
        typed=lambda _: (
            f"two nodes: sparktop launch {shlex.quote(recipe.id)} {shlex.quote(room.node)} {_SECOND} "
            "--set tensor_parallel=2"
        ),
    )


def told(verdict: Budget, found: Sequence[tuple[str, Budget]]) -> str:
    """The verdict's sentence with what would change it, or that nothing does."""
    if verdict.fit in (Fit.FITS, Fit.UNKNOWN):
        return verdict.sentence
    if found:
        typed, then = found[0]
        left = min((node.left_bytes for node in then.nodes), default=0)
        word = {Fit.FITS: "it fits", Fit.TIGHT: "it goes in, tightly"}.get(then.fit, "it may fit")
        return f"{verdict.sentence} With {typed} {word}: {left / GIB:.1f} GiB would be left."
    return (
        f"{verdict.sentence} Nothing that can be set here makes it fit." if verdict.fit is Fit.NO else verdict.sentence
    )
