"""Whether a launch fits: the field reports' own figures, one case each, and what would change the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import recipe_budget_support as made
from tests.recipe_budget_support import GIB, order, pair, room
from tests.table import over

from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.model.engine import EngineKind
from sparktop.model.prospect import Budget, Fit, SliceKind
from sparktop.model.recipe import Need
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.parameters import resolve
from sparktop.recipe.weigh.budget import budget
from sparktop.recipe.weigh.node_memory import Room

DESKTOP = [room()]
FP8, NVFP4 = made.minimax(229_000_000_000), made.minimax(130_600_000_000)
EAGER = {"enforce_eager": "true"}


def texts(found: Budget) -> tuple[str, ...]:
    """Its levers as they are shown."""
    return tuple(lever.text for lever in found.levers)


@pytest.mark.parametrize(
    ("asked", "rooms", "facts", "fit", "share"),
    [
        pytest.param(order(made.QWEN_RECIPE), DESKTOP, made.QWEN, Fit.FITS, 0.70, id="qwen serves at 0.70"),
        pytest.param(
            order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.70"),
            DESKTOP,
            made.GPT_OSS,
            Fit.NO,
            0.70,
            id="gpt-oss idled at 0.70 and its first request took 47 GiB",
        ),
        pytest.param(
            order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.90"),
            DESKTOP,
            made.GPT_OSS,
            Fit.NO,
            0.90,
            id="gpt-oss at the default share",
        ),
        pytest.param(
            order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.90", **EAGER),
            DESKTOP,
            made.GPT_OSS,
            Fit.NO,
            0.90,
            id="gpt-oss at the default share without graphs",
        ),
        pytest.param(
            order(made.GPT_OSS_RECIPE, **EAGER), DESKTOP, made.GPT_OSS, Fit.FITS, 0.70, id="gpt-oss without graphs"
        ),
        pytest.param(order(made.MINIMAX_RECIPE), pair(), FP8, Fit.NO, 0.82, id="minimax fp8 on two"),
        pytest.param(order(made.MINIMAX_RECIPE), pair(), NVFP4, Fit.FITS, 0.76, id="minimax nvfp4 computed"),
        pytest.param(
            order(made.MINIMAX_RECIPE, gpu_memory_utilization="0.82"),
            pair(),
            NVFP4,
            Fit.TIGHT,
            0.82,
            id="minimax nvfp4 at 0.82 beside 16 GB goes in",
        ),
        pytest.param(
            order(made.MINIMAX_RECIPE, gpu_memory_utilization="0.88"),
            pair(),
            NVFP4,
            Fit.NO,
            0.88,
            id="minimax nvfp4 at 0.88 beside 16 GB failed",
        ),
        pytest.param(order(made.MISTRAL_RECIPE), DESKTOP, made.MISTRAL, Fit.FITS, 0.75, id="mistral at 0.75"),
        pytest.param(
            order(made.MISTRAL_RECIPE, mem_fraction_static="0.88"),
            DESKTOP,
            made.MISTRAL,
            Fit.TIGHT,
            0.88,
            id="mistral at 0.88 died in warm-up",
        ),
    ],
)
def test_field_reports(asked, rooms, facts, fit, share) -> None:
    found = budget(resolve(asked), rooms, facts)
    assert (found.fit, found.share) == (fit, share), found.sentence


@pytest.mark.parametrize(
    ("rooms", "fit", "left"),
    [
        pytest.param(pair(), Fit.TIGHT, "5.2 remains, below the reserve of 12.0", id="beside 16 GB"),
        pytest.param(
            [room(node, 113.0, has_desktop=False) for node in ("a", "b")],
            Fit.TIGHT,
            "10.2 remains, below the reserve of 12.0",
            id="alone, by the least that an idle one has",
        ),
        pytest.param(
            [room(node, 116.0, has_desktop=False) for node in ("a", "b")],
            Fit.FITS,
            "leaves 13.2 (12.0 reserved",
            id="alone on a host that holds little",
        ),
    ],
)
def test_minimax_at_082_says_what_is_left(rooms: list[Room], fit: Fit, left: str) -> None:
    found = budget(resolve(order(made.MINIMAX_RECIPE, gpu_memory_utilization="0.82")), rooms, NVFP4)
    assert (found.fit, left in found.sentence) == (fit, True), found.sentence


def test_gpt_oss_at_090_is_refused_with_figures_and_what_would_do() -> None:
    found = budget(resolve(order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.90")), DESKTOP, made.GPT_OSS)
    figures = ("0.90", "109.5 GiB", "121.7", "47.0", "109.0", "113.0", "4.0")
    assert [figure for figure in figures if figure not in found.sentence] == []
    assert texts(found) == ("--set gpu_memory_utilization=0.70 --set enforce_eager=true",)
    assert "--set gpu_memory_utilization=0.70 --set enforce_eager=true" in found.sentence
    assert "you set" in found.share_source
    (node,) = found.nodes
    assert node.left_bytes < 0
    missing = HOST_BYTES - node.left_bytes
    assert next(one for one in node.after if one.kind is SliceKind.SHORT).size_bytes == missing
    assert node.sentence.endswith(f"{missing / GIB:.1f} short"), "and the same in words"


def test_what_a_host_cannot_do_without_is_missing_in_the_picture_where_it_would_be_taken() -> None:
    """It goes in, and leaves less than any host needs: what is refused shows what is missing."""
    of = replace(made.GPT_OSS_RECIPE, defaults={**made.GPT_OSS_RECIPE.defaults, "enforce_eager": True})
    found = budget(resolve(order(of, gpu_memory_utilization="0.89")), DESKTOP, made.GPT_OSS)
    (node,) = found.nodes
    assert found.fit is Fit.NO
    assert 0 < node.left_bytes < HOST_BYTES
    sizes = {one.kind: one.size_bytes for one in node.after}
    assert sizes[SliceKind.RESERVE] == HOST_BYTES
    assert sizes[SliceKind.SHORT] == HOST_BYTES - node.left_bytes


def test_without_the_known_spike_the_share_alone_is_the_lever() -> None:
    of = replace(made.GPT_OSS_RECIPE, defaults={**made.GPT_OSS_RECIPE.defaults, "enforce_eager": True})
    found = budget(resolve(order(of, gpu_memory_utilization="0.90")), DESKTOP, made.GPT_OSS)
    assert found.fit is Fit.NO
    assert texts(found) == ("--set gpu_memory_utilization=0.70",)


@pytest.mark.parametrize("limit", [0.31, None])
@pytest.mark.parametrize("reserve", [None, 1.0])
def test_of_a_share_that_is_set_the_computed_one_is_the_first_lever(limit: float | None, reserve: float | None) -> None:
    """As it would be without it: the recipe's own limit holds again, and no reserve below the host's need."""
    defaults = {name: value for name, value in made.QWEN_RECIPE.defaults.items() if name != "gpu_memory_utilization"}
    defaults |= {"max_model_len": 8192} | ({"gpu_memory_utilization": limit} if limit is not None else {})
    need = Need(weights_gib=1.0, kv_bytes_per_token=1024.0, reserve_gib=reserve)
    recipe = replace(made.QWEN_RECIPE, defaults=defaults, need=need)
    small = [replace(room(available_gib=23.2, has_desktop=False), total_bytes=int(23.4 * GIB))]
    unset = budget(resolve(order(recipe)), small, None)
    assert unset.fit is Fit.FITS, unset.sentence
    asked = order(recipe, gpu_memory_utilization="0.99")
    found = budget(resolve(asked), small, None)
    assert found.fit is Fit.NO
    assert texts(found)[0] == f"--set gpu_memory_utilization={unset.share:.2f}"
    assert f"With {texts(found)[0]} it fits" in found.sentence


def test_more_than_the_recipes_share_is_the_operators_word() -> None:
    recipe = replace(made.QWEN_RECIPE, need=Need(weights_gib=34.6, share=0.20))
    found = budget(resolve(order(recipe)), DESKTOP, made.QWEN)
    assert (found.fit, found.share, texts(found)[0]) == (Fit.NO, 0.20, "--set gpu_memory_utilization=0.73")


def test_a_share_above_090_never_fits_whatever_is_free() -> None:
    found = budget(
        resolve(order(made.QWEN_RECIPE, gpu_memory_utilization="0.91")), [room(available_gib=121.6)], made.QWEN
    )
    assert found.fit is Fit.NO
    assert "0.91 is above 0.90" in found.sentence


@over(
    "share, context, rooms, fit",
    [
        ("0.87", "8192", [room(available_gib=121.0, has_desktop=False)], Fit.FITS),
        ("0.88", "8192", [room(available_gib=121.6, has_desktop=False)], Fit.TIGHT),
        ("0.82", "131072", [room(n, 121.0, has_desktop=False) for n in "ab"], Fit.FITS),
        ("0.83", "131072", [room(n, 121.0, has_desktop=False) for n in "ab"], Fit.TIGHT),
        ("0.83", "65536", [room(n, 121.0, has_desktop=False) for n in "ab"], Fit.FITS),
        ("0.83", "131072", [room(available_gib=121.0, has_desktop=False)], Fit.FITS),
    ],
)
def test_ceilings_of_conflict_c2(share, context, rooms, fit) -> None:
    asked = order(made.QWEN_RECIPE, gpu_memory_utilization=share, max_model_len=context)
    assert budget(resolve(asked), rooms, made.QWEN).fit is fit


def test_a_computed_share_says_its_figures_and_gives_way_to_what_else_runs() -> None:
    found = budget(resolve(order(made.QWEN_RECIPE)), [room(available_gib=90.0, stays=(("asr", 20 * GIB),))], made.QWEN)
    assert (found.fit, found.share) == (Fit.FITS, 0.55)
    for figure in ("90.0 GiB can be available on spark1", "less 20.0 for the host (a desktop runs)", "of 121.7"):
        assert figure in found.share_source


@over(
    "limit, share, source",
    [
        (0.60, 0.60, "computed: as in the recipe; memory would allow 0.7"),
        (0.20, 0.20, "the recipe's; sparktop computes 0.32 for weights and one context; memory would allow 0.7"),
    ],
)
def test_the_recipes_share_is_the_most_even_where_weights_and_one_context_need_more(limit, share, source) -> None:
    recipe = replace(made.QWEN_RECIPE, need=Need(weights_gib=34.6, share=limit))
    found = budget(resolve(order(recipe)), [room()], made.QWEN)
    assert found.share == share
    assert found.share_source.startswith(source)


@pytest.mark.parametrize(
    ("baseline", "going"),
    [pytest.param(112.6, 85.6, id="counted twice in part"), pytest.param(None, 88.0, id="as counted")],
)
def test_the_host_has_the_same_before_and_after(baseline: float | None, going: float) -> None:
    """What engines hold is added up of several readings: beyond what was free after the boot it isn't theirs."""
    known = None if baseline is None else int(baseline * GIB)
    holders = {"going": (("vllm-qwen36", 88 * GIB),), "stays": (("asr", 2 * GIB),), "baseline_bytes": known}
    found = budget(resolve(order(made.QWEN_RECIPE)), [room(available_gib=27.0, **holders)], made.QWEN)
    (node,) = found.nodes
    before, after = ({one.kind: one for one in side} for side in (node.before, node.after))
    assert before[SliceKind.HOST] == after[SliceKind.HOST]
    assert before[SliceKind.OTHERS] == after[SliceKind.OTHERS]
    assert before[SliceKind.TO_BE_STOPPED].size_bytes == pytest.approx(going * GIB, abs=0.05 * GIB)
    assert sum(one.size_bytes for one in node.before) == node.total_bytes


def test_what_is_agreed_to_be_stopped_comes_back_but_not_beyond_the_boots_figure() -> None:
    busy = room(available_gib=40.0, going=(("vllm-old", 70 * GIB),))
    assert busy.reach == 110 * GIB
    assert replace(busy, going=(("vllm-old", 90 * GIB),), baseline_bytes=112 * GIB).reach == 112 * GIB
    assert replace(busy, baseline_bytes=30 * GIB).reach == 40 * GIB
    found = budget(resolve(order(made.QWEN_RECIPE)), [busy], made.QWEN)
    kinds = [one.kind for one in found.nodes[0].after]
    assert found.fit is Fit.FITS
    assert SliceKind.TO_BE_STOPPED in [one.kind for one in found.nodes[0].before]
    assert SliceKind.TO_BE_STOPPED not in kinds


def test_the_reserve_follows_desktop_and_recipe() -> None:
    def share(has_desktop: bool | None, reserve_gib: float | None = None) -> float | None:
        of = replace(made.QWEN_RECIPE, need=Need(share=0.87, reserve_gib=reserve_gib))
        return budget(resolve(order(of)), [room(available_gib=100.0, has_desktop=has_desktop)], made.QWEN).share

    assert share(True) == share(None) == 0.63
    assert share(False) == 0.69
    assert share(True, 30.0) == 0.55


def test_the_poorest_node_decides_for_both() -> None:
    rooms = [room("spark1", 107.0, has_desktop=False), room("spark2", 100.0, has_desktop=False)]
    found = budget(resolve(order(made.MINIMAX_RECIPE)), rooms, NVFP4)
    assert (found.fit, found.share) == (Fit.FITS, 0.69)
    assert "spark2" in found.sentence
    assert [node.node for node in found.nodes] == ["spark1", "spark2"]


def test_weights_and_heads_are_divided_over_the_nodes() -> None:
    def slices(rooms, **values):
        found = budget(resolve(order(made.MINIMAX_RECIPE, **values)), rooms, NVFP4)
        return {one.kind: one.size_bytes for one in found.nodes[0].after}

    both = slices(pair())
    assert both[SliceKind.WEIGHTS] == 65_300_000_000
    assert both[SliceKind.CACHE] == 131072 * 62 * 2 * 4 * 128  # fp8: a byte an element
    assert slices(pair(), kv_cache_dtype="auto")[SliceKind.CACHE] == 2 * both[SliceKind.CACHE]


def test_vllm_refuses_where_one_context_does_not_go_in() -> None:
    heavy = replace(made.QWEN, cache_layers=None, kv_heads=8)
    found = budget(
        resolve(order(made.QWEN_RECIPE, gpu_memory_utilization="0.40", max_model_len="262144", kv_cache_dtype="auto")),
        DESKTOP,
        heavy,
    )
    assert found.fit is Fit.NO
    assert "80.0 GiB" in found.sentence
    assert "262144 tokens" in found.sentence
    assert "--set max_model_len=32768" in texts(found)


def test_a_cache_of_half_the_size_is_a_lever() -> None:
    asked = order(made.GPT_OSS_RECIPE, max_model_len="262144")
    found = budget(resolve(asked), [room(available_gib=80.0)], made.GPT_OSS)
    assert "--set kv_cache_dtype=fp8 --set enforce_eager=true" in texts(found)


def test_a_share_that_does_not_hold_the_weights_is_raised() -> None:
    found = budget(resolve(order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.30", **EAGER)), DESKTOP, made.GPT_OSS)
    assert found.fit is Fit.NO
    assert "60.7 GiB" in found.sentence
    assert "36.5" in found.sentence
    assert texts(found)[0] == "--set gpu_memory_utilization=0.70"


def test_stopping_what_stays_is_a_lever_only_where_it_may_be_stopped() -> None:
    stays = (("vllm-x", 60 * GIB), ("python3", 10 * GIB))
    crowded = room(available_gib=38.0, stays=stays)
    assert "--stop vllm-x" in texts(budget(resolve(order(made.QWEN_RECIPE)), [crowded], made.QWEN))
    only = replace(crowded, stoppable=("python3",))
    assert not any("vllm-x" in one.stops for one in budget(resolve(order(made.QWEN_RECIPE)), [only], made.QWEN).levers)


def test_another_quantisation_on_both_disks_is_a_lever() -> None:
    there = made.on_disk("MiniMax-M2.7-NVFP4-GB10-AC", 130_600_000_000)
    asked = order(made.MINIMAX_RECIPE)
    found = budget(resolve(asked), pair(), FP8, on_disk=[there])
    assert found.fit is Fit.NO
    assert texts(found) == ("--set model=/home/x/models/MiniMax-M2.7-NVFP4-GB10-AC",)
    for other in (
        replace(there, nodes=("spark1",)),
        replace(there, is_complete=False),
        made.on_disk("Qwen3-4B-NVFP4", 3 * 10**9),
        replace(there, name="MiniMax-M2.7-GGUF"),
    ):
        without = budget(resolve(asked), pair(), FP8, on_disk=[other])
        assert without.levers == ()
        assert "--set" not in without.sentence


def test_two_nodes_are_offered_where_the_recipe_can() -> None:
    big = made.recipe("big", defaults={"max_model_len": 8192}, min_nodes=1, max_nodes=2)
    dense = ModelFacts(name="big", weights_bytes=110 * GIB, layers=80, kv_heads=8, head_size=128)
    found = budget(resolve(order(big)), DESKTOP, dense)
    assert texts(found) == ("two nodes: sparktop launch /recipes/big.yaml spark1 OTHER-HOST --set tensor_parallel=2",)
    assert budget(resolve(order(replace(big, max_nodes=1))), DESKTOP, dense).levers == ()
    for weights_gib, data, count, tensor in ((300, "1", 4, 4), (110, "2", 4, 2), (150, "4", 8, 2)):
        larger = replace(dense, weights_bytes=weights_gib * GIB)
        found = budget(resolve(order(replace(big, max_nodes=8), data_parallel=data)), DESKTOP, larger)
        assert (found.levers[0].nodes, found.levers[0].values) == (count, {"tensor_parallel": str(tensor)}), data
        hosts = " ".join(["spark1", *["OTHER-HOST"] * (count - 1)])
        assert f"{count} nodes: sparktop launch /recipes/big.yaml {hosts} --set" in found.levers[0].text


def test_a_cache_of_its_own_size_replaces_the_share() -> None:
    found = budget(resolve(order(made.QWEN_RECIPE, kv_cache_memory_bytes="20G")), DESKTOP, made.QWEN)
    assert (found.fit, found.share) == (Fit.FITS, None)
    assert found.cache_tokens == 20 * GIB // (10 * 2 * 2 * 256)
    too_much = budget(resolve(order(made.QWEN_RECIPE, kv_cache_memory_bytes="80G")), DESKTOP, made.QWEN)
    assert too_much.fit is Fit.NO
    assert texts(too_much) == (f"--set kv_cache_memory_bytes={512 * 2**20}",)


def test_what_is_not_known_is_said_and_the_recipes_figures_stand_in() -> None:
    nothing = budget(resolve(order(made.recipe("x", defaults={"max_model_len": 4096}))), DESKTOP, None)
    assert nothing.fit is Fit.UNKNOWN
    assert any("the size of the weights" in one for one in nothing.unknowns)
    need = Need(weights_gib=34.6, kv_bytes_per_token=10240)
    stood_in = budget(resolve(order(replace(made.QWEN_RECIPE, need=need))), DESKTOP, None)
    assert stood_in.fit is Fit.FITS
    assert [one.split(",")[0] for one in stood_in.unknowns] == [
        "weights as stated in the recipe",
        "cache as stated in the recipe",
    ]
    starved = budget(resolve(order(made.recipe("x"), gpu_memory_utilization="0.9")), [room(available_gib=60.0)], None)
    assert starved.fit is Fit.NO  # that much is known
    assert budget(resolve(order(made.QWEN_RECIPE)), [], made.QWEN).fit is Fit.UNKNOWN
    assert budget(resolve(order(made.QWEN_RECIPE)), [room(total_bytes=0)], made.QWEN).fit is Fit.UNKNOWN


def test_a_recipe_s_figure_that_none_can_be_is_left_out_of_a_half_fetched_model_too() -> None:
    half = replace(made.QWEN, weights_bytes=GIB, is_complete=False)
    recipe = replace(made.QWEN_RECIPE, need=Need(weights_gib=1e299))
    weights = [one for one in budget(resolve(order(recipe)), DESKTOP, half).nodes[0].after if "weights" in one.label]
    assert [one.amount for one in weights] == ["1.0"]


def test_a_draft_model_is_counted_where_it_is_known_and_named_where_not() -> None:
    command = "sglang serve --context-length {context_length} --speculative-draft-model-path org/draft"
    of = replace(made.MISTRAL_RECIPE, command=command)
    without = budget(resolve(order(of)), DESKTOP, made.MISTRAL)
    assert any("draft model" in one for one in without.unknowns)
    draft = ModelFacts(name="eagle", weights_bytes=2 * GIB)
    counted = budget(resolve(order(of)), DESKTOP, made.MISTRAL, beside=[draft])
    assert not any("draft model" in one for one in counted.unknowns)
    assert counted.cache_tokens is not None
    assert without.cache_tokens is not None
    assert counted.cache_tokens < without.cache_tokens
    assert any("the cache of eagle per token is unknown" in one for one in counted.unknowns)
    told = replace(draft, layers=1, kv_heads=8, head_size=128)
    whole = budget(resolve(order(of)), DESKTOP, made.MISTRAL, beside=[told])
    assert whole.unknowns == ()
    assert whole.cache_tokens is not None
    assert whole.cache_tokens < counted.cache_tokens  # its layer keeps every token too
    untold = budget(resolve(order(of)), DESKTOP, made.MISTRAL, beside=[ModelFacts(name="org/d", weights_bytes=None)])
    assert any(one.startswith("the engine also loads org/d") for one in untold.unknowns)
    assert untold.cache_tokens == without.cache_tokens


LLAMA = made.recipe(
    "x",
    engine=EngineKind.LLAMA_CPP,
    model="acme/M-GGUF:Q4_K_M",
    container="ghcr.io/ggml-org/llama.cpp:server-cuda",
    command="llama-server -hf {model} -c 32768 -ctk q8_0 -ctv q8_0",
)
LLAMA_FACTS = replace(made.QWEN, name="acme/M-GGUF", weights_bytes=20 * GIB)
CACHE_BYTES = 32768 * 10 * 2 * 512 * 34 // 32


def test_llama_cpp_takes_its_weights_and_its_context() -> None:
    found = budget(resolve(order(LLAMA)), DESKTOP, LLAMA_FACTS)
    assert (found.fit, found.share, found.share_source, found.levers) == (Fit.FITS, None, "", ())
    sizes = {part.kind: part.size_bytes for part in found.nodes[0].after}
    assert (sizes[SliceKind.WEIGHTS], sizes[SliceKind.CACHE]) == (20 * GIB, CACHE_BYTES)
    assert SliceKind.UNTOUCHED not in sizes
    assert "share" not in " ".join((found.sentence, found.nodes[0].sentence, *found.figures))


def test_llama_cpp_without_a_config_is_judged_by_its_weights_alone() -> None:
    bare = ModelFacts(name="acme/M-GGUF", weights_bytes=20 * GIB)
    found = budget(resolve(order(LLAMA)), DESKTOP, bare)
    assert (found.fit, found.share) == (Fit.UNKNOWN, None)
    assert found.why == "the memory per token of context is unknown, and comes on top of the weights"
    assert found.nodes[0].sentence.startswith("at least 20.0 GiB of")
    nothing = budget(resolve(order(LLAMA)), DESKTOP, None).nodes[0].sentence
    assert nothing.startswith("an unknown part of 121.7 for the engine, 3.0 for its processes, at most ")
    much = budget(resolve(order(LLAMA)), DESKTOP, replace(bare, weights_bytes=118 * GIB), on_disk=[made.on_disk("M")])
    assert (much.fit, much.levers) == (Fit.NO, ())
    told = budget(resolve(order(LLAMA, **{"need.kv_bytes_per_token": "20000"})), DESKTOP, bare)
    assert told.fit is Fit.FITS


@over(
    "words, unknown",
    [
        ("-md /models/draft.gguf", "the engine also loads a draft model: its weights and cache are not counted"),
        ("--model-draft /d.gguf", "the engine also loads a draft model: its weights and cache are not counted"),
        ("--lora /models/a.gguf", "the engine also loads a LoRA adapter: its weights are not counted"),
        ("--lora-scaled /a.gguf:0.5", "the engine also loads a LoRA adapter: its weights are not counted"),
    ],
)
def test_what_llama_cpp_loads_beside_its_model_is_told(words: str, unknown: str) -> None:
    assert budget(resolve(order(LLAMA)), DESKTOP, LLAMA_FACTS).unknowns == ()
    with_more = replace(LLAMA, command=f"{LLAMA.command} {words}")
    assert budget(resolve(order(with_more)), DESKTOP, LLAMA_FACTS).unknowns == (unknown,)


def test_its_draft_may_be_named_by_a_variable() -> None:
    by_variable = replace(LLAMA, environment={"LLAMA_ARG_SPEC_DRAFT_MODEL": "/models/draft.gguf"})
    (unknown,) = budget(resolve(order(by_variable)), DESKTOP, LLAMA_FACTS).unknowns
    assert "a draft model" in unknown


def test_what_does_not_fit_of_llama_cpp_has_a_shorter_context_as_a_lever_and_no_share() -> None:
    long = replace(LLAMA, command="llama-server -hf {model} -c 4000000")
    found = budget(resolve(order(long)), DESKTOP, replace(LLAMA_FACTS, weights_bytes=60 * GIB))
    assert (found.fit, texts(found)) == (Fit.NO, ("--set max_model_len=131072",))
