"""What a launch is told that decides about memory, from the operator, the recipe's command and its defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests import recipe_budget_support as made
from tests.recipe_budget_support import order
from tests.table import over

from sparktop.model.engine import EngineKind
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.parameters import resolve
from sparktop.recipe.weigh.node_memory import cache_on_a_node
from sparktop.recipe.weigh.settings import read, usual_nodes, whole, width_bytes


def test_the_operator_wins_over_the_command_and_that_over_defaults() -> None:
    of = made.recipe("x", command="vllm serve m --max-model-len 8192", defaults={"max_model_len": 4096})
    assert read(resolve(order(of))).context_tokens == 8192
    assert read(resolve(order(of, max_model_len="2048"))).context_tokens == 2048
    templated = made.recipe(
        "x", command="vllm serve m --max-model-len {max_model_len}", defaults={"max_model_len": 4096}
    )
    assert read(resolve(order(templated))).context_tokens == 4096
    unused = made.recipe("x", command="vllm serve m", defaults={"max_model_len": 4096})
    assert read(resolve(order(unused))).context_tokens is None, "the engine isn't given it"


def test_a_share_is_fixed_by_the_operator_or_a_literal_and_limited_by_a_default() -> None:
    limited = read(resolve(order(made.recipe("x", defaults={"gpu_memory_utilization": 0.8}))))
    assert (limited.share, limited.share_limit) == (None, 0.8)
    literal = made.recipe("x", command="vllm serve m \\\n --gpu-memory-utilization=0.77")
    assert (read(resolve(order(literal))).share, read(resolve(order(literal))).share_source) == (
        0.77,
        "the recipe's command",
    )
    assert read(resolve(order(literal, gpu_memory_utilization="auto"))).share is None
    assert read(resolve(order(literal, mem_fraction_static="0.5"))).share == 0.5
    silly = read(resolve(order(made.recipe("x", command="vllm serve m --gpu-memory-utilization most"))))
    assert silly.share is None
    assert "'most'" in silly.problems[0]


def test_parameters_are_named_as_the_recipe_spells_them() -> None:
    assert read(resolve(order(made.MISTRAL_RECIPE))).share_key == "mem_fraction_static"
    assert read(resolve(order(made.MISTRAL_RECIPE))).context_key == "context_length"
    assert read(resolve(order(made.recipe("x", engine=EngineKind.SGLANG)))).share_key == "gpu_memory_utilization"


@over(
    "command, values, has_graphs",
    [
        ("", {}, True),
        ("vllm serve m --enforce-eager", {}, False),
        ("vllm serve m --enforce-eager", {"enforce_eager": "false"}, True),
        ("", {"enforce_eager": "true"}, False),
        ('vllm serve m --compilation-config \'{{"cudagraph_mode":"none"}}\'', {}, False),
        ('vllm serve m --compilation-config \'{{"cudagraph_mode":"PIECEWISE"}}\'', {}, True),
        ("vllm serve m -cc.cudagraph_mode=NONE", {}, False),
        ("sglang serve --disable-cuda-graph", {}, False),
        ("sglang serve --disable-piecewise-cuda-graph", {}, True),
        ("sglang serve --cuda-graph-backend-decode disabled", {}, False),
    ],
)
def test_graphs(command, values, has_graphs) -> None:
    engine = EngineKind.SGLANG if command.startswith("sglang") else EngineKind.VLLM
    assert read(resolve(order(made.recipe("x", command=command, engine=engine), **values))).has_graphs is has_graphs


@over(
    "image, counts",
    [
        ("nvcr.io/nvidia/vllm:26.05.post1-py3", True),
        ("nvcr.io/nvidia/vllm:26.04-py3", False),
        ("vllm/vllm-openai:v0.33.0", True),
        ("vllm-node:latest", False),
    ],
)
def test_graphs_count_into_the_share_from_021_on(image, counts) -> None:
    assert read(resolve(order(made.recipe("x", container=image)))).counts_graphs is counts


def test_a_draft_model_is_seen_and_ngrams_are_none() -> None:
    draft = made.recipe(
        "x", command="sglang serve --speculative-draft-model-path {draft_model}", defaults={"draft_model": "a/b"}
    )
    assert read(resolve(order(draft))).has_draft
    ngram = {"speculative_config": '{"method":"ngram","num_speculative_tokens":5}'}
    assert not read(resolve(order(made.recipe("x"), **ngram))).has_draft
    assert read(resolve(order(made.recipe("x"), speculative_config='{"model": "a/b"}'))).has_draft


def test_numbers_and_widths() -> None:
    assert [whole(text) for text in ("32768", "32k", "32K", "1.5M", "0", "x", "-1", "")] == [
        32768, 32000, 32768, 1572864, None, None, None, None,
    ]  # fmt: skip
    assert [width_bytes(text) for text in ("auto", "bfloat16", "fp8", "fp8_e4m3", "float32")] == [2, 2, 1, 1, 4]


@over(
    "facts, nodes, token_bytes, at_most",
    [
        (ModelFacts(name="m", weights_bytes=1, layers=62, kv_heads=8, head_size=128), 1, 62 * 2 * 8 * 128 * 2, None),
        (ModelFacts(name="m", weights_bytes=1, layers=62, kv_heads=8, head_size=128), 2, 62 * 2 * 4 * 128 * 2, None),
        (ModelFacts(name="one head", weights_bytes=1, layers=10, kv_heads=1, head_size=64), 2, 10 * 2 * 64 * 2, None),
        (ModelFacts(name="mla", weights_bytes=1, layers=36, latent_size=576), 2, 36 * 576 * 2, None),
        (made.QWEN, 1, 10 * 2 * 2 * 256 * 2, None),
        (made.GPT_OSS, 1, 18 * 2 * 8 * 64 * 2, 128),
    ],
)
def test_what_a_token_takes_on_a_node(facts, nodes, token_bytes, at_most) -> None:
    settings = read(resolve(order(made.recipe("x", max_nodes=2))))
    cache = cache_on_a_node(settings, made.recipe("x").need, facts, nodes)
    assert cache.token_bytes == token_bytes
    if at_most is None:
        assert cache.size_bytes(1000) == token_bytes * 1000
    else:
        assert cache.size_bytes(1000) == token_bytes * (1000 + at_most)
    assert cache.tokens(cache.size_bytes(1000)) == 1000
    assert cache.tokens(cache.size_bytes(50)) == 50


@over(
    "more, values, nodes",
    [
        ({"min_nodes": 2, "max_nodes": 8, "defaults": {"tensor_parallel": 4}}, {}, 4),
        ({"min_nodes": 2, "max_nodes": 8, "command": "vllm serve {model} -tp 2 --pipeline-parallel-size 3"}, {}, 6),
        ({"min_nodes": 2, "max_nodes": 8, "defaults": {"tensor_parallel": 4}}, {"tp": "2", "dp": "4"}, 8),
        ({"min_nodes": 2, "max_nodes": 2, "defaults": {"tensor_parallel": 4}}, {}, 2),
        ({"min_nodes": 1, "max_nodes": 8, "defaults": {"tensor_parallel": 4}}, {}, 1),
        ({"min_nodes": 3, "max_nodes": 8}, {}, 3),
    ],
)
def test_it_is_for_as_many_nodes_as_it_has_ranks(more: dict[str, Any], values: dict[str, str], nodes: int) -> None:
    assert usual_nodes(order(made.recipe("m", **more), **values)) == nodes


LLAMA = made.recipe(
    "x",
    engine=EngineKind.LLAMA_CPP,
    model="acme/M-GGUF:Q4_K_M",
    container="ghcr.io/ggml-org/llama.cpp:server-cuda",
    command="llama-server -hf {model} -c 32768 -ctk q8_0 -np 4",
)


def test_llama_cpp_takes_no_share_and_its_keys_and_values_have_types_of_their_own() -> None:
    of = read(resolve(order(LLAMA)))
    assert (of.takes_share, of.share, of.has_graphs, of.context_tokens) == (False, None, False, 32768)
    assert (of.cache_type, width_bytes(of.cache_type)) == ("q8_0+f16", (34 / 32 + 2) / 2)
    assert read(resolve(order(LLAMA, context="8k"))).context_tokens == 8000
    by_variable = replace(LLAMA, command="llama-server -hf {model}", environment={"LLAMA_ARG_CTX_SIZE": "4096"})
    assert read(resolve(order(by_variable))).context_tokens == 4096
    assert read(resolve(order(replace(LLAMA, command="llama-server -hf {model} -c 0")))).context_tokens is None
