"""A model's quantisation, read from its config.json, and all facts of it together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparktop.dataclass import dataclass
from sparktop.recipe.model_shape import Config, Shape, positive, text_config, word

_NON_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_BY_NAME = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("mxfp8", "mxfp8"), ("fp8", "fp8"), ("awq", "awq"), ("gptq", "gptq"),
    ("int4", "int4"), ("int8", "int8"), ("w4a16", "int4"), ("w8a8", "int8"), ("autoround", "auto-round"),
    ("gguf", "gguf"), ("fp4", "nvfp4"), ("bf16", "bf16"), ("fp16", "fp16"),
)  # fmt: skip
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}


def quantisation_of(config: Config | None, quant_config: Config | None = None, name: str = "") -> str:
    """fp8, nvfp4, mxfp4, awq, gptq, int4, auto-round, bf16 ...; empty where nothing says it.

    Args:
        quant_config: hf_quant_config.json, where ModelOpt's older checkpoints have it.
        name: the model's name, used only where the configurations say nothing.
    """
    config = config if isinstance(config, Mapping) else {}
    text = text_config(config)
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
        return "fp8" if "fp8" in word(mistral_section["qformat_weight"]) else ""
    named = quantisation_by_name(name)
    if named and named not in ("bf16", "fp16"):
        return named  # a config that says nothing of it, as some conversions leave it
    for part in (text, config):
        for key in ("dtype", "torch_dtype"):
            if dtype := _DTYPES.get(word(part.get(key)).removeprefix("torch.")):
                return dtype
    return named


def quantisation_by_name(name: str) -> str:
    """The quantisation that a model's name contains; empty where none."""
    words = _NON_ALPHANUMERIC.split(name.lower().replace("auto-round", "autoround"))
    return next((kind for begins, kind in _BY_NAME if any(word.startswith(begins) for word in words)), "")


# --- parts


def _quantisation_by_config(section: Config) -> str:
    method, algorithm = word(section.get("quant_method")), word(section.get("quant_algo"))
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
            kind = _quantisation_by_algorithm(word(layer.get("quant_algo")), {}) if isinstance(layer, Mapping) else ""
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
            if fragment in word(form):
                return kind
    for group in groups:
        weights = group.get("weights")
        if isinstance(weights, Mapping) and (bits := positive(weights.get("num_bits"))):
            is_float = word(weights.get("type")) == "float"
            if is_float and bits == 4:
                return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
            return f"{'fp' if is_float else 'int'}{bits}"
    return {"float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "int4"}.get(
        word(section.get("format")), "compressed-tensors"
    )


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
