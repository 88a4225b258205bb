"""The KV cache that is computed for models of today, held to the table in docs/models.md, which has the sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests import recipe_budget_support as made
from tests.table import over

from sparktop.model.recipe import Need
from sparktop.recipe.models import facts_of
from sparktop.recipe.parameters import resolve
from sparktop.recipe.weigh.budget import budget
from sparktop.recipe.weigh.node_memory import Cache, cache_on_a_node
from sparktop.recipe.weigh.settings import read

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
K = 1024
MTP = {"speculative_config": '{"method":"mtp","num_speculative_tokens":2}'}


def words(layers: int, every: int, rest: str = "linear_attention", own: str = "full_attention") -> list[str]:
    return [own if layer % every == every - 1 else rest for layer in range(layers)]


def heads(layers: int, kv_heads: int, size: int, **more: Any) -> dict[str, Any]:
    return {"num_hidden_layers": layers, "num_key_value_heads": kv_heads, "head_dim": size, **more}


def latent(layers: int, rank: int, rope: int = 64, **more: Any) -> dict[str, Any]:
    return {"num_hidden_layers": layers, "kv_lora_rank": rank, "qk_rope_head_dim": rope, "v_head_dim": 128, **more}


def qwen(layers: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return heads(layers, kv_heads, 256, layer_types=words(layers, 4), mtp_num_hidden_layers=1, **more)


def gemma(layers: int, kv_heads: int, whole_heads: int) -> dict[str, Any]:
    own = {"global_head_dim": 512, "num_global_key_value_heads": whole_heads, "attention_k_eq_v": True}
    kinds = {"layer_types": words(layers, 6, "sliding_attention"), "sliding_window": 1024}
    return {"text_config": heads(layers, kv_heads, 256, **own, **kinds)}


HALF = {"layer_types": words(36, 2, "sliding_attention"), "sliding_window": 128}
STEP = {"num_hidden_layers": 45, "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128}
STEP |= {"layer_types": [*words(44, 4, "sliding_attention"), "full_attention"], "sliding_window": 512}
MIMO = {"hybrid_layer_pattern": [0, *[1, 1, 1, 1, 0] * 2, *[1, 1, 1, 1, 1, 0] * 6, 1], "v_head_dim": 128}
MIMO |= {"swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128}
DSV4 = {"compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "sliding_window": 128, "index_head_dim": 128}
DSV4 |= {"qk_rope_head_dim": 64, "q_lora_rank": 1024, "index_topk": 512, "num_nextn_predict_layers": 1}
GLM53 = {"layer_types": words(45, 4, own="deepseek_sparse_attention"), "num_nextn_predict_layers": 1}
DSA = {"index_topk": 2048, "index_head_dim": 128}
MSA = {"use_sparse_attention": True, "sparse_index_dim": 128, "sparse_attention_freq": [0] * 3 + [1] * 57}
QSA = {"indexer_head_dim": 128, "indexer_kv_heads": 1, "indexer_compress_ratio": 4}
INKLING = {"local_layer_ids": [layer for layer in range(42) if layer % 6 != 5], "sliding_window_size": 512}

MODELS: dict[str, tuple[dict[str, Any], int, int, str, bool]] = {
    # its config, nodes, tokens, cache type, whether its own draft layers are loaded
    "Qwen3.5-122B-A10B": (qwen(48, 2), 1, 256 * K, "fp8", False),
    "Qwen3.5-397B-A17B": (qwen(60, 2), 2, 256 * K, "fp8", False),
    "Qwen3-Coder-Next": (heads(48, 2, 256, full_attention_interval=4), 1, 256 * K, "fp8", False),
    "Qwen3.8-27B": (qwen(64, 4), 1, 256 * K, "fp8", False),
    "Qwen3.8-27B, MTP": (qwen(64, 4), 1, 256 * K, "fp8", True),
    "Qwen3.6-35B-A3B, MTP": (qwen(40, 2), 1, 256 * K, "fp8", True),
    "Qwen3.8-Flash-Next, MTP": (qwen(48, 2, **QSA), 2, 256 * K, "auto", True),
    "MiniMax-M2.7": (heads(62, 8, 128, attn_type_list=[1] * 62), 2, 192 * K, "auto", False),
    "MiniMax-M3": (heads(60, 4, 128, sparse_attention_config=MSA), 4, 256 * K, "auto", False),
    "gpt-oss-120b": (heads(36, 8, 64, **HALF), 1, 128 * K, "auto", False),
    "Llama-3.3-70B": (heads(80, 8, 128), 1, 128 * K, "fp8", False),
    "GLM-4.7-Flash": (latent(47, 512), 1, 198 * K, "auto", False),
    "GLM-5.2": (latent(78, 512, **DSA, index_topk_freq=4, index_skip_topk_offset=3), 4, 198 * K, "fp8", False),
    "GLM-5.3-Flash, MTP": (latent(45, 512, 0, **DSA, **GLM53, index_kpool=4), 2, 512 * K, "fp8", True),
    "Kimi-K2.6": (latent(61, 512), 4, 256 * K, "fp8", False),
    "Mistral Small 4": (latent(36, 256), 1, 256 * K, "auto", False),
    "Nemotron-3-Nano": (heads(52, 2, 128, hybrid_override_pattern="MEMEM*E-" * 6 + "MEME"), 1, 256 * K, "fp8", False),
    "Step-3.7-Flash": (STEP, 2, 256 * K, "auto", False),
    "MiMo-V2.6-Flash": (heads(48, 4, 192, **MIMO), 2, 1024 * K, "fp8", False),
    "DeepSeek-V4-Flash": (heads(43, 1, 512, **DSV4), 2, 1024 * K, "fp8", False),
    "Gemma 4 31B": (gemma(60, 16, 4), 1, 256 * K, "auto", False),
    "Gemma 4 26B-A4B": (gemma(30, 8, 2), 1, 256 * K, "auto", False),
    "Inkling-Small": (heads(42, 8, 128, **INKLING), 2, 256 * K, "auto", False),
}  # fmt: skip


def cache_of(config: dict[str, Any], nodes: int, cache_type: str, drafts: bool) -> Cache:
    facts = facts_of("m", config, weights_bytes=1, size_bytes=1, dtypes=None, is_complete=True)
    values = {"kv_cache_dtype": cache_type, **(MTP if drafts else {})}
    settings = read(resolve(made.order(made.recipe("x", max_nodes=nodes), tensor_parallel=str(nodes), **values)))
    return cache_on_a_node(settings, Need(), facts, nodes)


def test_the_table_in_the_docs_is_what_is_computed_and_within_5_percent_of_the_source() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines()]
    table = {row[0]: row for row in rows if len(row) == 6 and row[0] in MODELS}
    assert list(table) == list(MODELS)
    for name, (config, nodes, tokens, cache_type, drafts) in MODELS.items():
        cache = cache_of(config, nodes, cache_type, drafts)
        size = cache.size_bytes(tokens)
        assert size is not None, name
        _, where, bytes_a_token, ours, theirs, _ = table[name]
        kind = "bf16" if cache_type == "auto" else cache_type
        assert where == f"{nodes}, {tokens // K}k, {kind}"
        assert float(ours) == pytest.approx(size / K**3, abs=0.051), name
        assert int(bytes_a_token.replace(",", "")) == round(cache.token_bytes or 0), name
        assert size / K**3 == pytest.approx(float(re.split(r"[ *]", theirs)[0]), rel=0.05, abs=0.05), name


@over(
    "config, named",
    [
        (heads(4, 2, 64, layer_types=["full_attention"] * 3 + ["hyper_attention"]), "hyper_attention"),
        (heads(4, 2, 64, hybrid_override_pattern="M*Q*"), "'Q'"),
        (heads(4, 2, 64, hybrid_layer_pattern=[0, 1, 2, 0]), "'2'"),
        (heads(4, 2, 64, layer_types=["full_attention"] * 2), "2 words for 4 layers"),
        (heads(4, 2, 64, compress_ratios=[0, 2, 2, 1]), "compress_ratios 2"),
        (heads(4, 2, 64, num_shared_kv_heads=1), "num_shared_kv_heads"),
        ({"num_hidden_layers": 2, "num_key_value_heads": [4, 8], "num_attention_heads": 8, "head_dim": 64}, "num_key"),
    ],
)
def test_a_layer_pattern_or_head_that_is_not_known_is_named_and_the_cache_is_not_known(config, named) -> None:
    cache = cache_of(config, 1, "auto", False)
    assert cache.token_bytes is None
    assert named in cache.note
    facts = facts_of("m", config, weights_bytes=10**9, size_bytes=1, dtypes=None, is_complete=True)
    asked = made.order(made.recipe("x", defaults={"gpu_memory_utilization": 0.5, "max_model_len": 4096}))
    verdict = budget(resolve(asked), [made.room()], facts)
    assert verdict.share == 0.5
    assert verdict.share_source.startswith("the recipe's; the cache isn't known")
    assert any(named in one for one in verdict.unknowns)
    by_hand = made.order(asked.recipe, gpu_memory_utilization="0.6")
    assert budget(resolve(by_hand), [made.room()], facts).share_source == "as you set it"


def test_what_does_not_decide_on_the_cache_may_be_there() -> None:
    more = {"linear_key_head_dim": 128, "mlp_layer_types": ["x"], "num_kv_shared_layers": 0, "index_kpool": None}
    assert cache_of(heads(4, 2, 64, **more), 1, "auto", False).token_bytes == 4 * 2 * 2 * 64 * 2


def test_layers_that_share_a_cache_or_draft_are_counted_by_their_words() -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    shared = heads(4, 1, 64, layer_types=kinds, sliding_window=8, num_kv_shared_layers=2)
    assert cache_of(shared, 1, "fp8", False).size_bytes(100) == 128 * 100 + 128 * 8
    drafts = heads(4, 1, 64, layer_types=[*kinds, "full_attention"], sliding_window=8, num_nextn_predict_layers=1)
    assert [cache_of(drafts, 1, "fp8", own).token_bytes for own in (False, True)] == [2 * 128, 3 * 128]
    unsaid = heads(4, 1, 64, layer_types=kinds, sliding_window=8, num_nextn_predict_layers=1)
    assert "own draft layers is unknown" in cache_of(unsaid, 1, "fp8", True).note
