"""What a model caches of each token, read from its config.json: layers, heads, windows, latents, index keys.

By the fields of transformers' own configurations: those of the text model of a multimodal one lie in `text_config`;
Mistral's params.json has names of its own. A field that isn't there leaves None; a layer, pattern or head that isn't
known here is named in `Shape.unread`: never a guess. What engines make of it: docs/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.sanitise import mapping

Config = Mapping[str, Any]

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_OWN_NAMES = {
    "num_hidden_layers": ("num_hidden_layers", "n_layers", "n_layer", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_heads", "n_head"),
    "num_key_value_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "num_attention_groups"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "hidden_size": ("hidden_size", "dim", "n_embd", "d_model"),
    "max_position_embeddings": ("max_position_embeddings", "max_seq_len", "model_max_length"),
    "sliding_window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "drafts": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
}
_FULL = ("full_attention", "attention", "global_attention", "full", "deepseek_sparse_attention")
_SLIDING = ("sliding_attention", "chunked_attention", "local_attention", "sliding")
_STATE = ("linear_attention", "lightning_attention", "recurrent", "mamba", "mamba2", "conv", "moe", "mlp")
"""Layers that keep nothing of each token."""
_SYMBOLS: Mapping[object, str] = {"*": "full", "M": "mamba", "E": "moe", "-": "mlp"}
_LAYER_WORDS: Mapping[str, Mapping[object, str]] = {
    "layer_types": {},
    "layers_block_type": {},
    "hybrid_override_pattern": _SYMBOLS,  # Nemotron-H
    "hybrid_layer_pattern": {0: "full", 1: "sliding", **_SYMBOLS},  # MiMo
    "attn_type_list": {0: "lightning_attention", 1: "full"},  # MiniMax-01
}
"""Keys with a word, number or letter for each layer, and what the numbers and letters stand for."""
_CACHE_KEY = re.compile(
    r"\w*(?:kv_heads|key_value_heads|(?:kv|query|attention)_groups|query_group_num|head_dim|head_size|layer_pattern"
    r"|(?:override|window|topk)_pattern|layer_types|block_type|type_list|block_configs|compress_ra\w+|kv_lora_rank"
    r"|kv_shared_layers|kpool|kv_source_layers)"
)
"""A key that says which layers cache, or how much."""
_READ_OR_HARMLESS = re.compile(
    r"(?:num_key_value|n_kv|num_kv|num_global_key_value|swa_num_key_value|indexer_kv)_heads"
    r"|(?:attention_|global_|index_|indexer_|swa_|v_|swa_v_|qk_|qk_nope_|qk_rope_)?head_dim"
    r"|num_attention_groups|sliding_window_pattern|compress_ratios|indexer_compress_ratio"
    r"|kv_lora_rank|num_kv_shared_layers|index_kpool"
    r"|(?:linear|mamba|ssm|conv|rotary|rope|vision|audio|ple|moe|mlp|ffn|mtp)_\w+|" + "|".join(_LAYER_WORDS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a model's configuration says of its layers and heads; None: not stated there."""

    layers: int | None = None
    cache_layers: float | None = None
    """Layers whose cache grows with every token, those with full attention; with an entry for N tokens: 1/N."""
    kv_heads: int | None = None
    head_size: int | None = None
    value_size: int | None = None
    """Elements of a head's value, where they aren't as many as its key's."""
    latent_size: int | None = None
    """With multi-head latent attention: elements that a layer keeps per token, instead of heads."""
    latent_bytes: int | None = None
    """A latent with its scales in an fp8 cache, where engines pack it so; without `latent_size` in any cache."""
    window_tokens: int | None = None
    """Window length of the layers with a sliding window."""
    window_layers: int | None = None
    window_heads: tuple[int, int] | None = None
    """(KV heads, elements of a head's key and value) of those layers, where they have their own."""
    index_layers: int = 0
    """Layers with an indexer, whose keys are whole on each node."""
    index_bytes: float = 0.0
    """Bytes per token of one such layer's keys."""
    draft_layers: float | None = None
    """Growing layers that the model has for its own drafts (MTP), loaded only with them."""
    longest_tokens: int | None = None
    """max_position_embeddings."""
    unread: str = ""
    """What in the configuration sparktop doesn't know, so that the cache isn't known."""


def shape_of(config: Config) -> Shape:
    """Layers, heads, windows and index keys from a config.json or a params.json; nothing from an empty one."""
    text = text_config(config)
    layers = _field(text, "num_hidden_layers")
    kinds = _kinds(text, layers)
    drafts = _field(text, "drafts") or _field(config, "drafts")
    growing, sliding = _layer_counts(text, layers, kinds)
    draft_layers: float | None = None if sliding else drafts  # where layers differ, words tell which the drafts' are
    if layers and (draft_kinds := kinds[layers : layers + (drafts or 0)]):
        draft_layers = sum(kind in _FULL for kind in draft_kinds)
    sizes = _sizes(text)
    index_layers, index_bytes = _indexer(text, layers, kinds, growing)
    unread = _unread(text, layers, kinds)
    ratios = text.get("compress_ratios")
    if isinstance(ratios, list) and ratios and layers and not unread:  # DeepSeek-V4: each layer has a window, too
        entries = [1 / ratio if ratio else 0.0 for ratio in ratios]
        growing, sliding = sum(entries[:layers]), layers
        draft_layers = sum(entries[layers : layers + drafts]) if drafts else None
        index_layers, index_bytes = ratios[:layers].count(4), _index_key_bytes(text) / 4
        sizes = {"latent_bytes": (_field(text, "head_dim") or 0) + (positive(text.get("qk_rope_head_dim")) or 0) + 8}
    window = _field(text, "sliding_window")
    if sliding and window is None:
        growing, sliding = (growing or 0) + sliding, 0  # nothing says how long they are: as if they were whole
    return Shape(
        layers=layers,
        cache_layers=growing,
        window_tokens=window if sliding else None,
        window_layers=sliding or None,
        window_heads=_window_heads(text, sizes) if sliding else None,
        index_layers=index_layers,
        index_bytes=index_bytes,
        draft_layers=draft_layers,
        longest_tokens=_field(text, "max_position_embeddings"),
        unread=unread,
        **sizes,
    )


def text_config(config: Config) -> Config:
    """The configuration of the text model."""
    for key in _NESTED:
        outer = mapping(config.get(key))
        inner = mapping(outer.get("text_config")) or outer
        if inner and (_field(inner, "num_hidden_layers") or not _field(config, "num_hidden_layers")):
            return inner
    return config


def word(value: object) -> str:
    """A text in lower case, at most 100 characters; empty for anything else."""
    return value.lower()[:100] if isinstance(value, str) else ""


def positive(value: object) -> int | None:
    """A positive integer; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        return None
    return int(value) or None


# --- parts


def _field(config: Config, name: str) -> int | None:
    return next((value for key in _OWN_NAMES[name] if (value := positive(config.get(key)))), None)


def _kinds(text: Config, layers: int | None) -> list[str]:
    """What each layer is, those for drafts after the others; empty where no list says it."""
    for key, words in _LAYER_WORDS.items():
        listed = text.get(key)
        if isinstance(listed, str | list) and listed:
            return [words.get(one) or str(one)[:40] if isinstance(one, str | int) else f"{one!r:.40}" for one in listed]
    local = text.get("local_layer_ids")  # Inkling
    if isinstance(local, list) and local and layers and layers < 1000:
        return ["sliding" if layer in local else "full" for layer in range(layers)]
    return []


def _unread(text: Config, layers: int | None, kinds: Sequence[str]) -> str:
    """The first thing that decides on the cache and isn't known here; empty where there is none."""
    if unknown := next((kind for kind in kinds if kind not in _FULL + _SLIDING + _STATE), ""):
        return f"the layer {unknown!r:.60}"
    if kinds and layers and len(kinds) < layers:
        return f"{len(kinds)} words for {layers} layers"
    ratios = text.get("compress_ratios")
    if odd := [ratio for ratio in ratios if ratio not in (0, 4, 128)] if isinstance(ratios, list) else []:
        return f"compress_ratios {odd[0]!r:.40}"
    for key, value in text.items():
        is_listed = key in _OWN_NAMES["num_key_value_heads"] + _OWN_NAMES["head_dim"] and isinstance(value, list | dict)
        is_cache_key = _CACHE_KEY.fullmatch(str(key)) and not _READ_OR_HARMLESS.fullmatch(str(key))
        if value and (is_listed or is_cache_key):
            return f"the key {key!r:.60}"
    return ""


def _sizes(text: Config) -> dict[str, Any]:
    """Heads and what they keep, or the latent. In fp8 a sparse model's latent is packed: its elements, a scale of four
    bytes for 128 of them, and 64 positions of two bytes, padded where the model has none."""
    heads, hidden = _field(text, "num_attention_heads"), _field(text, "hidden_size")
    kv_heads = _field(text, "num_key_value_heads") or heads
    if text.get("attention_k_eq_v") is True:  # Gemma 4: a key is its value, but both are kept
        kv_heads = positive(text.get("num_global_key_value_heads")) or kv_heads
    size = positive(text.get("global_head_dim")) or _field(text, "head_dim")  # where both are, head_dim is a window's
    if size is None and hidden and heads:
        size = hidden // heads
    if lora := positive(text.get("kv_lora_rank")):
        packed = lora + lora // 128 * 4 + 128 if positive(text.get("index_topk")) else None
        latent = {"latent_size": lora + (positive(text.get("qk_rope_head_dim")) or 0), "latent_bytes": packed}
        return {"kv_heads": kv_heads, "head_size": size, **latent}
    value = positive(text.get("v_head_dim"))
    return {"kv_heads": kv_heads, "head_size": size, "value_size": value if value != size else None}


def _window_heads(text: Config, sizes: Mapping[str, Any]) -> tuple[int, int] | None:
    heads = positive(text.get("swa_num_key_value_heads")) or _field(text, "num_key_value_heads")
    key = positive(text.get("swa_head_dim")) or _field(text, "head_dim")
    value = positive(text.get("swa_v_head_dim")) or positive(text.get("v_head_dim")) or key
    whole = sizes.get("kv_heads"), 2 * (sizes.get("head_size") or 0)
    return (heads, key + value) if heads and key and value and (heads, key + value) != whole else None


def _indexer(text: Config, layers: int | None, kinds: Sequence[str], growing: float | None) -> tuple[int, float]:
    """(layers with an indexer, bytes per token of one's keys)."""
    sparse = mapping(text.get("sparse_attention_config"))
    if size := positive(sparse.get("sparse_index_dim")):  # MiniMax-M3
        listed = sparse.get("sparse_attention_freq")
        return (listed[: layers or 0].count(1) if isinstance(listed, list) else int(growing or 0)), 2.0 * size
    if size := positive(text.get("indexer_head_dim")):  # Qwen's sparse attention
        each = 2.0 * size * (positive(text.get("indexer_kv_heads")) or 1)
        return int(growing or 0), each / (positive(text.get("indexer_compress_ratio")) or 1)
    if not (positive(text.get("index_topk")) and positive(text.get("kv_lora_rank"))):
        return 0, 0.0
    every, first = positive(text.get("index_topk_freq")) or 1, positive(text.get("index_skip_topk_offset")) or 2
    which = range(min(layers or 0, len(kinds) or 10_000))
    own = [max(layer - first + 1, 0) % every == 0 and (not kinds or kinds[layer] in _FULL) for layer in which]
    return sum(own), _index_key_bytes(text) / (positive(text.get("index_kpool")) or 1)  # the others share a key


def _index_key_bytes(text: Config) -> int:
    size = positive(text.get("index_head_dim")) or 128
    return size + size // 128 * 4  # vLLM: fp8, with a scale of four bytes for 128 elements


def _layer_counts(text: Config, layers: int | None, kinds: Sequence[str]) -> tuple[float | None, int]:
    """(layers whose cache grows with every token, layers with a sliding window)."""
    if layers is None:
        return None, 0
    if kinds:
        own = kinds[: max(0, layers - (positive(text.get("num_kv_shared_layers")) or 0))]  # Gemma: the last share
        return sum(kind in _FULL for kind in own), sum(kind in _SLIDING for kind in own)
    kimi = mapping(text.get("linear_attn_config"))
    for listed in (text.get("full_attn_idxs"), text.get("attn_layer_indices"), kimi.get("full_attn_layers")):
        if isinstance(listed, list) and listed:
            return len(listed), 0
    # Qwen3-Next and after, whose other layers are linear; Jamba
    if every := positive(text.get("full_attention_interval")) or positive(text.get("attn_layer_period")):
        return layers // every, 0
    if positive(text.get("sliding_window")) and text.get("use_sliding_window") is not False:
        if every := positive(text.get("sliding_window_pattern")) or positive(text.get("global_attn_every_n_layers")):
            return layers // every, layers - layers // every  # Gemma 3: five of six slide
        if word(text.get("model_type")) in ("gpt_oss", "gemma2"):
            return layers - layers // 2, layers // 2
        if text.get("use_sliding_window") is True:  # Qwen2: those from max_window_layers on
            from_layer = text.get("max_window_layers")
            from_layer = from_layer if isinstance(from_layer, int) and not isinstance(from_layer, bool) else 0
            whole = max(0, min(from_layer, layers))
            return whole, layers - whole
        if word(text.get("model_type")) in ("mistral", "mixtral", "ministral", "phi3", "starcoder2"):
            return 0, layers
    return layers, 0
