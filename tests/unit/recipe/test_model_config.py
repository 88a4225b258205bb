"""Configurations as the models' own repositories have them, cut to the fields that are read; and any other JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.recipe.model_config import quantisation_by_name, quantisation_of
from sparktop.recipe.model_shape import Shape, shape_of

QWEN36: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2048,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    },
    "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16},
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
}
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "num_local_experts": 128,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"},
}
MISTRAL4: dict[str, Any] = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "text_config": {
        "model_type": "mistral4",
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "kv_lora_rank": 256,
        "qk_rope_head_dim": 64,
        "n_routed_experts": 128,
        "max_position_embeddings": 1048576,
        "sliding_window": None,
    },
}
MISTRAL4_OWN: dict[str, Any] = {
    "dim": 4096, "n_layers": 36, "n_heads": 32, "n_kv_heads": 32, "head_dim": 128, "kv_lora_rank": 256,
    "qk_rope_head_dim": 64, "moe": {"num_experts": 128, "num_experts_per_tok": 4, "num_shared_experts": 1},
    "quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
}  # fmt: skip
MINIMAX: dict[str, Any] = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "attn_type_list": [1] * 62,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 256,
    "max_position_embeddings": 196608,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
}
QWEN3_SMALL: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "sliding_window": None,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 256,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
NEMOTRON: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "n_routed_experts": 128,
    "time_step_limit": [0.0, float("inf")],
}
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
}
MIXTRAL_OLD: dict[str, Any] = {
    "model_type": "mistral",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "sliding_window": 4096,
}


@over(
    "config, expected, quantisation",
    [
        (
            QWEN36,
            Shape(
                layers=40, cache_layers=10, kv_heads=2,
                head_size=256, longest_tokens=262144,
            ),
            "fp8",
        ),
        (
            GPT_OSS,
            Shape(
                layers=36, cache_layers=18, kv_heads=8, head_size=64,
                window_tokens=128, window_layers=18, longest_tokens=131072,
            ),
            "mxfp4",
        ),
        (
            MISTRAL4,
            Shape(
                layers=36, cache_layers=36, kv_heads=32,
                head_size=128, latent_size=320, longest_tokens=1048576,
            ),
            "",
        ),
        (
            MISTRAL4_OWN,
            Shape(layers=36, cache_layers=36, kv_heads=32, head_size=128, latent_size=320),
            "nvfp4",
        ),
        (
            MINIMAX,
            Shape(
                layers=62, cache_layers=62, kv_heads=8, head_size=128,
                longest_tokens=196608,
            ),
            "nvfp4",
        ),
        (
            QWEN3_SMALL,
            Shape(
                layers=28, cache_layers=28, kv_heads=8, head_size=128,
                longest_tokens=40960,
            ),
            "bf16",
        ),
        (
            DEEPSEEK,
            Shape(
                layers=61, cache_layers=61, kv_heads=128, head_size=56,
                latent_size=576,
            ),
            "fp8",
        ),
        (
            NEMOTRON,
            Shape(
                layers=52, cache_layers=6, kv_heads=2, head_size=128,
            ),
            "",
        ),
        (
            GEMMA3,
            Shape(
                layers=62, cache_layers=10, kv_heads=16, head_size=128,
                window_tokens=1024, window_layers=52,
            ),
            "",
        ),
        (
            QWEN3_NEXT,
            Shape(
                layers=48, cache_layers=12, kv_heads=2, head_size=256,
            ),
            "",
        ),
        (
            MIXTRAL_OLD,
            Shape(
                layers=32, cache_layers=0, kv_heads=8, head_size=128, window_tokens=4096,
                window_layers=32,
            ),
            "",
        ),
    ],
)  # fmt: skip
def test_known_configurations(config: dict[str, Any], expected: Shape, quantisation: str) -> None:
    assert shape_of(config) == expected
    assert quantisation_of(config) == quantisation


@over(
    "said, kind",
    [
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "int4"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "mixed-precision",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            "nvfp4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
            "int4",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt_fp4"}, "nvfp4"),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}, "c": {"quant_algo": "W4A16_NVFP4"},
                },
            },
            "nvfp4",
        ),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "auto-round", "bits": 4}, "auto-round"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
    ],
)  # fmt: skip
def test_quantisation_by_config(said: dict[str, Any], kind: str) -> None:
    assert quantisation_of({"torch_dtype": "bfloat16", "quantization_config": said}) == kind


def test_quantisation_where_the_config_says_nothing() -> None:
    older = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    assert quantisation_of({"torch_dtype": "bfloat16"}, older, "nvidia/X") == "nvfp4"
    assert quantisation_of({"quantization": {"qformat_weight": "fp8_e4m3"}}) == "fp8"
    assert quantisation_of({"torch_dtype": "bfloat16"}, None, "lukealonso/MiniMax-M2.7-NVFP4") == "nvfp4"
    assert quantisation_of({"torch_dtype": "torch.float16"}) == "fp16"
    assert quantisation_of(None) == ""


@over(
    "name, kind",
    [
        ("Qwen/Qwen3.6-35B-A3B-FP8", "fp8"),
        ("saricles/MiniMax-M2.7-NVFP4-GB10", "nvfp4"),
        ("RedHatAI/Qwen3-32B-NVFP4A16", "nvfp4"),
        ("Intel/Qwen3-int4-AutoRound", "int4"),
        ("Intel/Qwen3-Auto-Round", "auto-round"),
        ("openai/gpt-oss-120b", ""),
        ("amd/MiniMax-M2.7-MXFP4", "mxfp4"),
    ],
)
def test_by_name(name: str, kind: str) -> None:
    assert quantisation_by_name(name) == kind


def test_a_window_of_no_told_length_is_as_long_as_the_context() -> None:
    config = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    assert (shape_of(config).cache_layers, shape_of(config).window_layers) == (4, None)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
KEYS = [
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "kv_lora_rank"),
    *("qk_rope_head_dim", "layer_types", "layers_block_type", "hybrid_override_pattern", "full_attention_interval"),
    *("sliding_window", "sliding_window_pattern", "use_sliding_window", "max_window_layers", "attn_type_list", "moe"),
    *("architectures", "model_type", "num_experts", "quantization_config", "text_config", "quant_method", "format"),
    *("quant_algo", "config_groups", "weights", "num_bits", "quantized_layers", "dtype", "quantization"),
    *("linear_attn_config", "full_attn_layers", "full_attn_idxs", "compression_config"),
]
CONFIGS = st.recursive(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner | VALUES, max_size=6),
    max_leaves=4,
)


@given(CONFIGS, CONFIGS, st.text(max_size=30))
def test_no_configuration_raises(config: dict[str, Any], other: dict[str, Any], name: str) -> None:
    shape = shape_of(config)
    for value in (shape.layers, shape.kv_heads, shape.head_size, shape.latent_size, shape.window_tokens):
        assert value is None or value >= 0
    assert isinstance(quantisation_of(config, other, name), str)
