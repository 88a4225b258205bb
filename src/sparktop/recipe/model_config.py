"""A model's quantisation, read from its config.json, and all facts of it together."""

from __future__ import annotations

import re
from collections import Counter

from sparktop.dataclass import dataclass
from sparktop.recipe.model_shape import Config, Shape, positive, text_config, word
from sparktop.sanitise import mapping

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
    config = mapping(config)
    text, modelopt = text_config(config), mapping(mapping(quant_config).get("quantization"))
    for section in (
        config.get("quantization_config"),
        text.get("quantization_config"),
        config.get("compression_config"),
        {"quant_method": "modelopt", **modelopt} if modelopt else {},
    ):
        if quantisation := _quantisation_by_config(mapping(section)):
            return quantisation
    if (weights := mapping(config.get("quantization")).get("qformat_weight")) is not None:  # Mistral's params.json
        return "fp8" if "fp8" in word(weights) else ""
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


_FRAGMENTS = ("nvfp4", "mxfp4", "mxfp8", "fp8", "awq")
_METHODS = {
    "auto-round": "auto-round", "auto_round": "auto-round", "intel/auto-round": "auto-round", "fp8": "fp8",
    "fbgemm_fp8": "fp8", "finegrained_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4",
}  # fmt: skip
"""Methods with one quantisation, where that isn't the method's own name."""
_FORMATS = {"float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "int4"}


def _quantisation_by_config(section: Config) -> str:
    method, algorithm = word(section.get("quant_method")), word(section.get("quant_algo"))
    if algorithm or method.startswith("modelopt"):
        by_method = "nvfp4" if method.endswith("fp4") else "fp8" if method else ""
        return _quantisation_by_algorithm(algorithm, section) or by_method
    if method in ("compressed-tensors", "compressed_tensors"):
        return _quantisation_by_groups(section)
    if method == "bitsandbytes":
        return "int8" if section.get("load_in_8bit") is True else "int4"
    if method == "quark":
        return quantisation_by_name(str(section)[:2000].replace("'", " ")) or "quark"
    return next((kind for kind in ("awq", "gptq") if method.startswith(kind)), _METHODS.get(method, method))


def _quantisation_by_algorithm(algorithm: str, section: Config) -> str:
    if algorithm == "mixed_precision":  # by what most layers have
        layers = mapping(section.get("quantized_layers")).values()
        kinds = Counter(_quantisation_by_algorithm(word(mapping(layer).get("quant_algo")), {}) for layer in layers)
        return kinds.most_common(1)[0][0] if kinds else ""
    if kind := next((kind for kind in _FRAGMENTS if kind in algorithm), ""):
        return kind
    return "int4" if "w4a" in algorithm else "int8" if "w8a8" in algorithm else algorithm


def _quantisation_by_groups(section: Config) -> str:
    """compressed-tensors: by its format, or by the first group's weights."""
    groups = [mapping(group) for group in mapping(section.get("config_groups")).values()]
    for form in (section.get("format"), *(group.get("format") for group in groups)):
        if kind := next((kind for kind in _FRAGMENTS[:3] if kind in word(form)), ""):
            return kind
    for weights in (mapping(group.get("weights")) for group in groups):
        if bits := positive(weights.get("num_bits")):
            is_float = word(weights.get("type")) == "float"
            if is_float and bits == 4:
                return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
            return f"{'fp' if is_float else 'int'}{bits}"
    return _FORMATS.get(word(section.get("format")), "compressed-tensors")


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
