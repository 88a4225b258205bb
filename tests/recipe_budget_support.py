"""Orders, rooms and models as the field reports tell them, for the tests of a launch's budget."""

from __future__ import annotations

from sparktop.model.engine import EngineKind
from sparktop.model.prospect import OnDisk
from sparktop.model.recipe import Dialect, Need, Order, Recipe
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.weigh.node_memory import Room

GIB = 1024**3
TOTAL = 127600748 * 1024
"""MemTotal of a Spark: 121.7 GiB (docs/facts/gb10.md)."""

QWEN = ModelFacts(
    name="Qwen/Qwen3.6-35B-A3B-FP8",
    weights_bytes=35_000_000_000,
    layers=40,
    cache_layers=10,
    kv_heads=2,
    head_size=256,
    longest_tokens=262144,
)
GPT_OSS = ModelFacts(
    name="openai/gpt-oss-120b",
    weights_bytes=65_200_000_000,
    layers=36,
    cache_layers=18,
    kv_heads=8,
    head_size=64,
    window_tokens=128,
    window_layers=18,
    longest_tokens=131072,
)
MISTRAL = ModelFacts(
    name="mistralai/Mistral-Small-4-119B-2603-NVFP4",
    weights_bytes=70_900_000_000,
    layers=36,
    latent_size=320,
    longest_tokens=262144,
)


def minimax(weights_bytes: int) -> ModelFacts:
    return ModelFacts(
        name="MiniMax-M2.7", weights_bytes=weights_bytes, layers=62, kv_heads=8, head_size=128, longest_tokens=196608
    )


def recipe(name: str, **more: object) -> Recipe:
    given: dict[str, object] = {
        "id": name,
        "path": f"/recipes/{name}.yaml",
        "dialect": Dialect.SPARKRUN,
        "engine": EngineKind.VLLM,
        "model": name,
        "container": "nvcr.io/nvidia/vllm:26.05.post1-py3",
    }
    return Recipe(**(given | more))  # type: ignore[arg-type]


QWEN_RECIPE = recipe(
    "qwen3.6",
    model="Qwen/Qwen3.6-35B-A3B-FP8",
    defaults={"gpu_memory_utilization": 0.70, "max_model_len": 32768, "kv_cache_dtype": "fp8", "tensor_parallel": 1},
    need=Need(weights_gib=34.6, share=0.70),
)
GPT_OSS_RECIPE = recipe(
    "gpt-oss-120b",
    model="openai/gpt-oss-120b",
    defaults={"gpu_memory_utilization": 0.70, "max_model_len": 32768},
    need=Need(weights_gib=61.0, spike_gib=47, share=0.70),
)
MISTRAL_RECIPE = recipe(
    "mistral-small-4",
    engine=EngineKind.SGLANG,
    container="lmsysorg/sglang:latest-cu130",
    defaults={"mem_fraction_static": 0.75, "context_length": 65536},
)
MINIMAX_RECIPE = recipe(
    "minimax-m2.7",
    model="MiniMaxAI/MiniMax-M2.7",
    container="vllm-node:latest",
    min_nodes=2,
    max_nodes=2,
    defaults={
        "gpu_memory_utilization": 0.82,
        "max_model_len": 131072,
        "kv_cache_dtype": "fp8_e4m3",
        "tensor_parallel": 2,
    },
    command="vllm serve {model} -tp {tensor_parallel} --max-model-len {max_model_len} --kv-cache-dtype {kv_cache_dtype}"
    ' --gpu-memory-utilization {gpu_memory_utilization} --compilation-config \'{{"cudagraph_mode":"none"}}\'',
)


def order(of: Recipe, **values: str) -> Order:
    return Order(recipe=of, values=values)


def room(node: str = "spark1", available_gib: float = 113.0, **more: object) -> Room:
    """A Spark; idle one of them has 113 GiB available (docs/facts/gb10.md)."""
    given: dict[str, object] = {"total_bytes": TOTAL, "available_bytes": int(available_gib * GIB), "has_desktop": True}
    return Room(node=node, **(given | more))  # type: ignore[arg-type]


def pair(**more: object) -> list[Room]:
    """Two of them with 16 GB of speech models between both, no desktop (field report 003)."""
    stays = (("asr", 8_000_000_000),)
    return [room(node, 108.0, stays=stays, has_desktop=False, **more) for node in ("spark1", "spark2")]


def on_disk(name: str, size_bytes: int = 10**9, **more: object) -> OnDisk:
    given: dict[str, object] = {"path": f"/home/x/models/{name}", "nodes": ("spark1", "spark2")}
    return OnDisk(name=name, size_bytes=size_bytes, **(given | more))  # type: ignore[arg-type]
