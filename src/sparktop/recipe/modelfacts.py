"""What a model's own files tell of it: size, architecture, quantisation, and what a token of context takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """By config.json, the index and the safetensors headers; None: not told there."""

    name: str
    weights_bytes: int | None
    """What is loaded: the safetensors' tensors, on all nodes together."""
    size_bytes: int | None = None
    """On disk, all of it."""
    architecture: str = ""
    """ "Qwen3MoeForCausalLM"."""
    quantisation: str = ""
    """fp8, nvfp4, mxfp4, awq, gptq, bf16 ...; empty: not known."""
    layers: int | None = None
    cache_layers: int | None = None
    """Those whose cache grows with every token: of a hybrid model only its full attention."""
    kv_heads: int | None = None
    head_size: int | None = None
    latent_size: int | None = None
    """Of multi-head latent attention: what a layer keeps of a token, in elements, instead of heads."""
    window_tokens: int | None = None
    """Of the layers with a sliding window."""
    window_layers: int | None = None
    longest_tokens: int | None = None
    """max_position_embeddings."""
    is_moe: bool | None = None
    active_bytes: int | None = None
    revision: str = ""
    is_complete: bool = True
    source: str = ""
    """ "its files on spark1", "the hub", "the recipe": said with every figure."""
