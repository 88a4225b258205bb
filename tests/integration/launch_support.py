"""What a launch on real parts needs: a Hugging Face cache with a tiny model, and a recipe for the tests' engine."""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.engine_image import IMAGE

from sparktop.model.recipe import Order
from sparktop.recipe.read.recipe_file import read

MODEL = "tests/tiny-1b"
COMMIT = "ab" * 20
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "hidden_size": 256,
    "max_position_embeddings": 8192,
}
RECIPE = """\
recipe_version: "2"
model: {model}
runtime: vllm
container: {image}
min_nodes: 1
max_nodes: {nodes}
runtime_cache: false
defaults:
  host: 127.0.0.1
  port: {port}
  tensor_parallel: {nodes}
  gpu_memory_utilization: 0.2
  max_model_len: 4096
env:
{env}
executor_config:
  gpus: ""
  shm_size: 64mb
  ulimit: ["memlock={memlock}", "nofile={nofile}"]
{options}
command: |
  vllm serve {{model}} --host {{host}} --port {{port}} --tensor-parallel-size {{tensor_parallel}} \\
    --gpu-memory-utilization {{gpu_memory_utilization}} --max-model-len {{max_model_len}}
runtime_config:
  sparktop:
    title: The tests' engine
    need:
      reserve_gib: 1
    ready:
      limit_s: 90
    smoke_test:
      max_tokens: 32
      measure_tokens: 40
    expected:
      tokens_s: 40
      source: the tests
{more}
"""


def cache_with_model(home: Path, name: str = MODEL, *, is_whole: bool = True) -> Path:
    """HF_HOME with one model in the hub's layout; the folder of its snapshot."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1024], "data_offsets": [0, 2048]}}).encode()
    (snapshot / "tokenizer.json").write_text("{}")
    if is_whole:
        weights = struct.pack("<Q", len(header)) + header + bytes(2048)
        (snapshot / "model.safetensors").write_bytes(weights)
    return snapshot


def text_of(
    port: int, *, env: Mapping[str, str] | None = None, nodes: int = 1, options: str = "", more: str = ""
) -> str:
    """The recipe of the tests' engine as a file has it."""
    quick = {"ENGINE_LOAD_S": "0.6", "ENGINE_HOLD_MIB": "16", **(env or {})}
    return RECIPE.format(
        model=MODEL,
        image=IMAGE,
        port=port,
        nodes=nodes,
        env="\n".join(f"  {key}: {json.dumps(value)}" for key, value in quick.items()),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],  # who runs the tests may not raise it
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        options=options,
        more=more,
    )


def order(
    port: int,
    *,
    env: Mapping[str, str] | None = None,
    nodes: int = 1,
    options: str = "",
    more: str = "",
    **asked: Any,
) -> Order:
    """A launch of it; `asked` are the order's own fields."""
    text = text_of(port, env=env, nodes=nodes, options=options, more=more)
    reading = read(text, "/recipes/tiny.yaml")
    assert reading.recipe is not None, reading.problems
    return Order(recipe=reading.recipe, **asked)
