"""What holds of every budget: slices fill the machine, more memory never hurts, a lever does as it says."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests import recipe_budget_support as made
from tests.recipe_budget_support import GIB

from sparktop.documents.prospect import bar, budget_lines, scale_of
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.model.engine import VERSIONED
from sparktop.model.prospect import Fit, Lever, SliceKind
from sparktop.model.recipe import Need, Order
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.parameters import resolve
from sparktop.recipe.weigh.budget import budget
from sparktop.recipe.weigh.node_memory import Room
from sparktop.recipe.weigh.verdict import RANK

SIZES = st.integers(-GIB, 200 * GIB)
HELD = st.lists(st.tuples(st.sampled_from(["vllm-x", "asr", "a b", "$(x)"]), SIZES), max_size=3).map(tuple)
ROOMS = st.builds(
    Room,
    node=st.sampled_from(["spark1", "spark2"]),
    total_bytes=st.one_of(st.just(made.TOTAL), SIZES),
    available_bytes=SIZES,
    going=HELD,
    stays=HELD,
    has_desktop=st.sampled_from([True, False, None]),
    baseline_bytes=st.none() | SIZES,
)
COUNTS = st.none() | st.integers(-2, 200)
FACTS = st.builds(
    ModelFacts,
    name=st.just("m"),
    weights_bytes=st.none() | st.integers(-1, 300 * GIB),
    size_bytes=st.none() | st.integers(-1, 300 * GIB),
    layers=COUNTS,
    cache_layers=COUNTS,
    kv_heads=COUNTS,
    head_size=COUNTS,
    latent_size=COUNTS,
    window_tokens=COUNTS,
    window_layers=COUNTS,
    longest_tokens=st.none() | st.integers(-1, 2_000_000),
    is_complete=st.booleans(),
)
FLOATS = st.none() | st.floats(0, 1e15)
NEEDS = st.builds(
    Need, weights_gib=FLOATS, kv_bytes_per_token=FLOATS, spike_gib=FLOATS, reserve_gib=FLOATS, share=FLOATS
)
NAMES = st.sampled_from(
    [
        "gpu_memory_utilization", "mem_fraction_static", "max_model_len", "context-length", "kv_cache_dtype",
        "enforce_eager", "kv_cache_memory_bytes", "tensor_parallel", "pp_size", "compilation_config",
        "speculative_config", "model", "zzz",
    ]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["0.7", "0.9", "1.5", "-1", "auto", "32768", "32k", "0", "nan", "1e400", "fp8", "true", "2", "", "9" * 40]
)
VALUES = st.dictionaries(NAMES, TEXTS | st.text(max_size=8), max_size=5)


@given(
    engine=st.sampled_from(VERSIONED),
    command=st.sampled_from(["", "vllm serve {model} --gpu-memory-utilization 0.8"]) | st.text(max_size=40),
    defaults=VALUES,
    values=VALUES,
    need=NEEDS,
    rooms=st.lists(ROOMS, max_size=2),
    facts=st.none() | FACTS,
    width=st.integers(-2, 120),
)
def test_slices_fill_the_machine(engine, command, defaults, values, need, rooms, facts, width) -> None:
    of = made.recipe("m", engine=engine, command=command, defaults=defaults, need=need, max_nodes=2)
    try:
        found = budget(resolve(Order(recipe=of, values=values)), rooms, facts)
    except CannotRender:
        return  # the launch is refused
    assert found.sentence
    for node in found.nodes:
        assert sum(one.size_bytes for one in node.before) == node.total_bytes
        short = sum(one.size_bytes for one in node.after if one.kind is SliceKind.SHORT)
        assert sum(one.size_bytes for one in node.after) == node.total_bytes + short
        assert short == max(0, HOST_BYTES - node.left_bytes)
        assert all(one.size_bytes > 0 for one in (*node.before, *node.after))
        for slices in (node.before, node.after):
            line, unnamed = bar(slices, scale_of(found), width)
            assert line.width <= max(0, width)
            assert all(text for text, _ in line.runs)
            assert set(unnamed) <= set(slices)
    assert all(line.width <= max(30, width) for line in budget_lines(found, max(30, width)))
    if found.share is not None and found.share > 0.90:
        assert found.fit is Fit.NO or not found.nodes


@given(
    of=st.sampled_from([made.QWEN_RECIPE, made.GPT_OSS_RECIPE, made.MISTRAL_RECIPE]),
    facts=st.sampled_from([made.QWEN, made.GPT_OSS, made.MISTRAL]),
    share=st.none() | st.floats(0.05, 0.95).map(lambda one: f"{one:.2f}"),
    less=st.integers(0, 118 * GIB),
    more=st.integers(0, 118 * GIB),
)
def test_more_available_memory_never_makes_it_worse(of, facts, share, less, more) -> None:
    asked = Order(recipe=of, values={"gpu_memory_utilization": share} if share else {})
    poor, rich = (budget(resolve(asked), [made.room(available_gib=size / GIB)], facts) for size in sorted((less, more)))
    assert RANK[rich.fit] >= RANK[poor.fit]


@given(
    facts=st.sampled_from([made.QWEN, made.GPT_OSS]),
    shares=st.lists(st.integers(60, 99), min_size=2, max_size=2),
    available=st.floats(20, 121),
)
def test_of_shares_that_hold_the_model_a_larger_one_is_never_better(facts, shares, available) -> None:
    rooms = [made.room(available_gib=available)]
    small, large = (
        budget(resolve(made.order(made.QWEN_RECIPE, gpu_memory_utilization=f"0.{one}")), rooms, facts)
        for one in sorted(shares)
    )
    assert RANK[large.fit] <= RANK[small.fit]


@given(
    of=st.sampled_from([made.QWEN_RECIPE, made.GPT_OSS_RECIPE, made.MISTRAL_RECIPE]),
    weights=st.integers(1, 130),
    share=st.none() | st.integers(5, 99),
    context=st.sampled_from(["8192", "65536", "262144"]),
    available=st.floats(5, 121),
    held=st.floats(0, 60),
    cache=st.none() | st.integers(1, 100),
)
def test_every_lever_offered_changes_the_verdict_when_it_is_typed(
    of, weights, share, context, available, held, cache
) -> None:
    facts = replace(made.GPT_OSS, weights_bytes=weights * GIB)
    values = {"max_model_len": context}
    values |= {"gpu_memory_utilization": f"0.{share:02}"} if share else {}
    values |= {"kv_cache_memory_bytes": str(cache * GIB)} if cache else {}
    asked = Order(recipe=replace(of, max_nodes=2), values=values)
    stays = (("vllm-x", int(held * GIB)), ("asr", int(held * GIB / 3)))
    room = made.room(available_gib=min(available, max(1.0, 121.0 - held * 4 / 3)), stays=stays)
    other = made.on_disk(f"{of.model}-NVFP4", 20 * GIB)
    first = budget(resolve(asked), [room], facts, on_disk=[other])
    assert first.fit is not Fit.FITS or first.levers == ()
    for lever in first.levers:
        then = _typed(lever, asked, room, facts, {other.path: other.size_bytes})
        assert RANK[then.fit] > RANK[first.fit], lever.text
        assert then.share is None or then.fit is not Fit.NO


def _typed(lever: Lever, asked: Order, room: Room, facts: ModelFacts, models: dict[str, int]):
    """The budget of the launch with the lever as it is typed on its command line: it sets what its fields say."""
    words = shlex.split(re.sub(r"^two nodes: sparktop launch \S+ spark1 OTHER-HOST", "--second", lever.text))
    rooms, values = [room], dict(asked.values)
    typed_values: dict[str, str] = {}
    stops: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--second":
            rooms = [rooms[0], made.room("spark2", room.reach / GIB)]
        elif word == "--stop":
            stops.append(words.pop(0))
            rooms = [rooms[0].without(stops[-1]), *rooms[1:]]
        else:
            name, _, value = words.pop(0).partition("=")
            for old in [one for one in values if {one, name} == {"gpu_memory_utilization", "mem_fraction_static"}]:
                del values[old]
            for old in [one for one in values if {one, name} == {"max_model_len", "context_length"}]:
                del values[old]
            typed_values[name] = values[name] = value
            if name == "model":
                facts = replace(facts, weights_bytes=models[value])
    assert (typed_values, tuple(stops), len(rooms)) == (lever.values, lever.stops, lever.nodes or 1)
    return budget(resolve(replace(asked, values=values)), rooms, facts)
