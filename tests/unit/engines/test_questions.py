"""The request to type by hand: what a model that writes no text is asked for."""

from __future__ import annotations

import shlex

from tests.table import over

from sparktop.engines.questions import first_question
from sparktop.model.engine import EngineKind

VLLM, LLAMA = EngineKind.VLLM, EngineKind("llama.cpp")


@over(
    "kind, line, path",
    [
        (VLLM, "vllm serve Org/Model", "chat/completions"),
        (VLLM, "vllm serve Org/Reranker", "chat/completions"),
        (VLLM, "vllm serve Org/Model --runner pooling", "embeddings"),
        (VLLM, "vllm serve Org/Model --task embed", "embeddings"),
        (VLLM, "vllm serve Org/Model --task score", "rerank"),
        (VLLM, "vllm serve Org/Model --runner pooling --convert classify", "rerank"),
        (VLLM, "vllm serve Org/a-Reranker-0.6B --runner pooling", "rerank"),
        (EngineKind.SGLANG, "sglang serve --model-path /models/reranker --is-embedding", "rerank"),
        (LLAMA, "llama-server -m m.gguf --embeddings", "embeddings"),
        (LLAMA, "llama-server -m m.gguf --reranking", "rerank"),
    ],
)
def test_a_model_is_asked_for_what_its_flags_or_its_name_say(kind: EngineKind, line: str, path: str) -> None:
    assert first_question(shlex.split(line), kind, "served")[0] == path
