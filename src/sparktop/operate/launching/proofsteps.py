"""The steps around a launch's start: room, guards, the wait for it, the first request, the measurement. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sparktop.config import resource_dir, shown
from sparktop.diagnose.live.window import gib
from sparktop.model.plan import (
    AwaitMemory,
    AwaitReady,
    CollectEvidence,
    Measure,
    OnFailure,
    SmokeTest,
    Step,
)
from sparktop.model.recipe import Recipe
from sparktop.operate.launching.place import NEW, STARTED, Place
from sparktop.operate.machine import EVIDENCE_LIMIT_S
from sparktop.operate.startsteps import MEMORY_LIMIT_S, SMOKE_LIMIT_S, drop_for, guard_as_it_was, guard_over, may
from sparktop.operate.survey import Survey
from sparktop.recipe import shelf

MEASURE_LIMIT_S = 300.0
REASONING_TOKENS = 512
"""What a reasoning model needs at the least for its answer not to stay empty (facts/engines.md OPS-11)."""


def memory(one: Place) -> Step | None:
    """Until there is room for it; None where nothing tells how much it needs."""
    if one.target_bytes is None:
        return None
    return Step(
        id=f"memory{one.mark}",
        title=f"Wait for {gib(one.target_bytes)} available on {one.node}",
        node=one.node,
        act=AwaitMemory(target_bytes=one.target_bytes),
        limit_s=MEMORY_LIMIT_S,
        verifies="available memory is there and stays",
        undone_by="nothing is started where it doesn't come",
        on_failure=OnFailure.ROLL_BACK,
    )


def drop(one: Place, back_bytes: int, survey: Survey) -> Step | None:
    """Drop caches where free memory will be short of what it takes at once, and root can be had."""
    if not one.asked_bytes:
        return None
    step = drop_for(one.view, one.mark, need_bytes=one.asked_bytes, back_bytes=back_bytes)
    return step if step is not None and may(step, one.node, survey) else None


def guard(one: Place, *, serving: bool) -> Step:
    """Over the container that was made."""
    return guard_over(one.node, one.mark, NEW, one.name, one.floor_bytes, serving=serving)


def guard_back(one: Place) -> Step:
    return guard_as_it_was(one.view, one.mark)


def ready(places: Sequence[Place], recipe: Recipe) -> Iterator[Step]:
    """All ranks; the end of one is the end of all."""
    for one in places:
        others = tuple((other.node, other.name) for other in places if other is not one)
        serves = one.rank.serves
        yield Step(
            id=f"ready{one.mark}",
            title=f"Wait until {one.name} {'answers' if serves else 'runs and its head answers'}",
            node=one.node,
            act=AwaitReady(
                name=one.name, container_id=NEW, is_worker=not serves, together=others, longer=_longer(recipe)
            ),
            limit_s=recipe.proof.ready_limit_s,
            verifies="it is ready by its own endpoint or log",
            on_failure=OnFailure.ROLL_BACK,
        )


def _longer(recipe: Recipe) -> str:
    """The key that the limit comes from, and the file it is set in: of a shipped recipe a copy, which wins over it."""
    path, own = Path(recipe.path), shelf.own_folder()
    file = shown(path)
    if path.is_relative_to(resource_dir("recipes")):
        file = f"a copy of the recipe: mkdir -p {shown(own)} && cp {shown(path)} {shown(own)}/"
    return (
        f"to give it longer, set runtime_config.sparktop.ready.limit_s, {recipe.proof.ready_limit_s:g} now, in {file}"
    )


def smoke(head: Place, recipe: Recipe, api_key: str) -> Step:
    """The first request; a reasoning model gets tokens enough for an answer behind its thoughts."""
    proof = recipe.proof
    return Step(
        id="smoke",
        title=f"One request to {head.name}, with no less than {gib(head.floor_bytes)} left",
        node=head.node,
        act=SmokeTest(
            engine=head.name,
            floor_bytes=head.floor_bytes,
            prompt=proof.prompt,
            max_tokens=max(proof.max_tokens, REASONING_TOKENS if proof.is_reasoning else 0),
            api_key=api_key,
        ),
        limit_s=SMOKE_LIMIT_S,
        verifies="tokens come, and memory holds",
        on_failure=OnFailure.ROLL_BACK,
    )


def measured(head: Place, recipe: Recipe, api_key: str) -> Step:
    return Step(
        id="measure",
        title=f"Measure {head.name}: {recipe.proof.measure_tokens} tokens",
        node=head.node,
        act=Measure(
            engine=head.name,
            expected=recipe.expected,
            floor_bytes=head.floor_bytes,
            tokens=recipe.proof.measure_tokens,
            api_key=api_key,
        ),
        limit_s=MEASURE_LIMIT_S,
        verifies="first token, tokens a second and memory left, beside what is expected",
        on_failure=OnFailure.GO_ON,
    )


def log_kept(order: Sequence[Place]) -> Step:
    """Its log before it is removed; nothing where none was started. `order` is that of starting."""
    nodes = tuple(one.node for one in order)
    return Step(
        id="back-evidence",
        title=f"Keep the log of {order[0].name}, with evidence of {' and '.join(nodes)}",
        node=order[0].node,
        act=CollectEvidence(nodes=nodes, engines=tuple(dict.fromkeys(one.name for one in order)), needs=STARTED),
        limit_s=EVIDENCE_LIMIT_S,
        on_failure=OnFailure.GO_ON,
    )


def back_guard(one: Place) -> Step:
    return replace(guard_back(one), id=f"back-guard-launch{one.mark}")
