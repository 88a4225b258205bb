"""A model's structure and quantisation, read from its config.json.

By the fields of transformers' own configurations: those of the text model of a multimodal one lie in `text_config`;
Mistral's params.json has names of its own. A field that isn't there leaves None, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparktop.dataclass import dataclass

Config = Mapping[str, Any]


_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


_OWN_NAMES = {
    "num_hidden_layers": ("num_hidden_layers", "n_layers", "n_layer", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_heads", "n_head"),
    "num_key_value_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "hidden_size": ("hidden_size", "dim", "n_embd", "d_model"),
    "max_position_embeddings": ("max_position_embeddings", "max_seq_len", "model_max_length"),
}


_FULL = ("full_attention", "attention", "global_attention", "full")


_SLIDING = ("sliding_attention", "chunked_attention", "local_attention", "sliding")


_NON_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")


_BY_NAME = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("mxfp8", "mxfp8"), ("fp8", "fp8"), ("awq", "awq"), ("gptq", "gptq"),
    ("int4", "int4"), ("int8", "int8"), ("w4a16", "int4"), ("w8a8", "int8"), ("autoround", "auto-round"),
    ("gguf", "gguf"), ("fp4", "nvfp4"), ("bf16", "bf16"), ("fp16", "fp16"),
)  # fmt: skip


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a model's configuration says of its layers and heads; None: not stated there."""

    layers: int | None = None
    cache_layers: int | None = None
    """Layers whose cache grows with every token: in a hybrid model only those with full attention."""
    kv_heads: int | None = None
    head_size: int | None = None
    latent_size: int | None = None
    """With multi-head latent attention: elements that a layer keeps per token, instead of heads."""
    window_tokens: int | None = None
    """Window length of the layers with a sliding window."""
    window_layers: int | None = None
    longest_tokens: int | None = None
    """max_position_embeddings."""


def shape_of(config: Config | None) -> Shape:
    """Layers, heads and windows from a config.json or a params.json."""
    if not isinstance(config, Mapping):
        return Shape()
    text = _text_config(config)
    layers = _positive_field(text, "num_hidden_layers")
    full, sliding = _layer_counts(text, layers)
    heads = _positive_field(text, "num_attention_heads")
    kv_heads = _positive_field(text, "num_key_value_heads") or heads
    head_size = _positive_field(text, "head_dim")
    hidden = _positive_field(text, "hidden_size")
    if head_size is None and hidden and heads:
        head_size = hidden // heads
    lora, rope = _positive(text.get("kv_lora_rank")), _positive(text.get("qk_rope_head_dim"))
    window = _positive(text.get("sliding_window")) or _positive(text.get("attention_chunk_size"))
    if sliding and window is None:
        full, sliding = (full or 0) + sliding, 0  # nothing says how long they are: as if they were whole
    return Shape(
        layers=layers,
        cache_layers=full,
        kv_heads=kv_heads,
        head_size=head_size,
        latent_size=lora + rope if lora and rope else None,
        window_tokens=window if sliding else None,
        window_layers=sliding or None,
        longest_tokens=_positive_field(text, "max_position_embeddings"),
    )


def quantisation_of(config: Config | None, quant_config: Config | None = None, name: str = "") -> str:
    """fp8, nvfp4, mxfp4, awq, gptq, int4, auto-round, bf16 ...; empty where nothing says it.

    Args:
        quant_config: hf_quant_config.json, where ModelOpt's older checkpoints have it.
        name: the model's name, used only where the configurations say nothing.
    """
    config = config if isinstance(config, Mapping) else {}
    text = _text_config(config)
    for section in (
        config.get("quantization_config"),
        text.get("quantization_config"),
        config.get("compression_config"),
    ):
        if isinstance(section, Mapping) and (quantisation := _quantisation_by_config(section)):
            return quantisation
    if isinstance(quant_config, Mapping):
        inner = quant_config.get("quantization")
        if isinstance(inner, Mapping) and (
            quantisation := _quantisation_by_config({"quant_method": "modelopt", **inner})
        ):
            return quantisation
    if (
        isinstance(mistral_section := config.get("quantization"), Mapping) and "qformat_weight" in mistral_section
    ):  # Mistral's params.json
        return "fp8" if "fp8" in _word(mistral_section["qformat_weight"]) else ""
    named = quantisation_by_name(name)
    if named and named not in ("bf16", "fp16"):
        return named  # a config that says nothing of it, as some conversions leave it
    for part in (text, config):
        for key in ("dtype", "torch_dtype"):
            if dtype := _DTYPES.get(_word(part.get(key)).removeprefix("torch.")):
                return dtype
    return named


def quantisation_by_name(name: str) -> str:
    """The quantisation that a model's name contains; empty where none."""
    words = _NON_ALPHANUMERIC.split(name.lower().replace("auto-round", "autoround"))
    return next((kind for begins, kind in _BY_NAME if any(word.startswith(begins) for word in words)), "")


# --- parts


def _text_config(config: Config) -> Config:
    """The configuration of the text model."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            deeper = inner.get("text_config")
            inner = deeper if isinstance(deeper, Mapping) else inner
            if _positive_field(inner, "num_hidden_layers") or not _positive_field(config, "num_hidden_layers"):
                return inner
    return config


def _layer_counts(text: Config, layers: int | None) -> tuple[int | None, int]:
    """(layers whose cache grows with every token, layers with a sliding window)."""
    if layers is None:
        return None, 0
    kinds = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(kinds, list) and kinds:
        words = [kind for kind in kinds if isinstance(kind, str)]
        return sum(kind in _FULL for kind in words), sum(kind in _SLIDING for kind in words)
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:  # Nemotron-H: "*" is attention; M, E and - keep nothing of a token
        return pattern.count("*"), 0
    if isinstance(kinds := text.get("attn_type_list"), list) and kinds:  # MiniMax-01: 0 is lightning attention
        return sum(kind == 1 for kind in kinds), 0
    for listed in (text.get("full_attn_idxs"), text.get("attn_layer_indices"), _inner(text, "full_attn_layers")):
        if isinstance(listed, list) and listed:
            return len(listed), 0
    if every := _positive(text.get("full_attention_interval")):  # Qwen3-Next and after: the others are linear
        return layers // every, 0
    if every := _positive(text.get("attn_layer_period")):  # Jamba
        return layers // every, 0
    if _positive(text.get("sliding_window")) and text.get("use_sliding_window") is not False:
        if every := _positive(text.get("sliding_window_pattern")) or _positive(text.get("global_attn_every_n_layers")):
            return layers // every, layers - layers // every  # Gemma 3: five of six slide
        if _word(text.get("model_type")) in ("gpt_oss", "gemma2"):
            return layers - layers // 2, layers // 2
        if text.get("use_sliding_window") is True:  # Qwen2: those from max_window_layers on
            from_layer = text.get("max_window_layers")
            from_layer = from_layer if isinstance(from_layer, int) and not isinstance(from_layer, bool) else 0
            whole = max(0, min(from_layer, layers))
            return whole, layers - whole
        if _word(text.get("model_type")) in ("mistral", "mixtral", "ministral", "phi3", "starcoder2"):
            return 0, layers
    return layers, 0


def _inner(text: Config, key: str) -> object:
    inner = text.get("linear_attn_config")  # Kimi Linear
    return inner.get(key) if isinstance(inner, Mapping) else None


def _quantisation_by_config(section: Config) -> str:
    method, algorithm = _word(section.get("quant_method")), _word(section.get("quant_algo"))
    if algorithm or method.startswith("modelopt"):
        return _quantisation_by_algorithm(algorithm, section) or (
            "nvfp4" if method.endswith("fp4") else "fp8" if method else ""
        )
    if method in ("compressed-tensors", "compressed_tensors"):
        return _quantisation_by_groups(section)
    if method in ("auto-round", "auto_round", "intel/auto-round"):
        return "auto-round"
    if method.startswith(("awq", "gptq")):
        return method[: 3 if method.startswith("awq") else 4]
    if method in ("fp8", "fbgemm_fp8", "finegrained_fp8"):
        return "fp8"
    if method in ("mxfp4", "gpt_oss_mxfp4", "mxfp8", "nvfp4"):
        return method.removeprefix("gpt_oss_")
    if method == "bitsandbytes":
        return "int8" if section.get("load_in_8bit") is True else "int4"
    if method == "quark":
        return quantisation_by_name(str(section)[:2000].replace("'", " ")) or "quark"
    return method


def _quantisation_by_algorithm(algorithm: str, section: Config) -> str:
    if algorithm == "mixed_precision":  # by what most layers have
        layers = section.get("quantized_layers")
        counts: dict[str, int] = {}
        for layer in layers.values() if isinstance(layers, Mapping) else ():
            kind = _quantisation_by_algorithm(_word(layer.get("quant_algo")), {}) if isinstance(layer, Mapping) else ""
            counts[kind] = counts.get(kind, 0) + 1
        return max(counts, key=lambda kind: counts[kind], default="")
    for fragment, kind in (("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("mxfp8", "mxfp8"), ("fp8", "fp8"), ("awq", "awq")):
        if fragment in algorithm:
            return kind
    return "int4" if "w4a" in algorithm else "int8" if "w8a8" in algorithm else algorithm


def _quantisation_by_groups(section: Config) -> str:
    """compressed-tensors: by its format, or by the first group's weights."""
    groups = section.get("config_groups")
    groups = [group for group in groups.values() if isinstance(group, Mapping)] if isinstance(groups, Mapping) else []
    for form in (section.get("format"), *(group.get("format") for group in groups)):
        for fragment, kind in (("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("mxfp8", "mxfp8")):
            if fragment in _word(form):
                return kind
    for group in groups:
        weights = group.get("weights")
        if isinstance(weights, Mapping) and (bits := _positive(weights.get("num_bits"))):
            is_float = _word(weights.get("type")) == "float"
            if is_float and bits == 4:
                return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
            return f"{'fp' if is_float else 'int'}{bits}"
    return {"float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "int4"}.get(
        _word(section.get("format")), "compressed-tensors"
    )


def _word(value: object) -> str:
    return value.lower()[:100] if isinstance(value, str) else ""


def _positive(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        return None
    return int(value) or None


def _positive_field(config: Config, name: str) -> int | None:
    return next((value for key in _OWN_NAMES[name] if (value := _positive(config.get(key)))), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts(Shape):
    """Facts about a model from config.json, the index and the safetensors headers; None: not stated there."""

    name: str
    weights_bytes: int | None
    """What engines load: all tensors of the safetensors, on all nodes together."""
    size_bytes: int | None = None
    """All files on disk."""
    quantisation: str = ""
    """fp8, nvfp4, mxfp4, awq, gptq, bf16 ...; empty: not known."""
    is_complete: bool = True
