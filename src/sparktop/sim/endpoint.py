"""An engine's HTTP endpoint: what vLLM's and SGLang's servers answer to a monitor's questions."""

from __future__ import annotations

from typing import Any

from sparktop.sim.exposition import CONTENT_TYPE, exposition
from sparktop.sim.http import Answer, Request, json_answer
from sparktop.sim.script import EngineScript
from sparktop.sim.spark import Spark


def answer(spark: Spark, engine: EngineScript, t: float, request: Request) -> Answer:
    """The answer of one engine at second `t` of its node's showing."""
    path = request.path.rstrip("/") or "/"
    if request.method not in ("GET", "HEAD"):
        return json_answer({"detail": "Method Not Allowed"}, status=405)
    if path == "/metrics" and engine.metrics:
        return Answer(body=exposition(spark, engine, t), content_type=CONTENT_TYPE)
    if path == "/v1/models":
        owner = "vllm" if engine.kind == "vllm" else "sglang"
        model: dict[str, Any] = {"id": engine.model, "object": "model", "owned_by": owner, "root": engine.model}
        model |= {"created": int(spark.wall_s(t)), "parent": None, "max_model_len": engine.max_model_len}
        return json_answer({"object": "list", "data": [model]})
    if path == "/health" or (path == "/health_generate" and engine.kind == "sglang"):
        return Answer(body=b"", content_type="text/plain")
    if path == "/version" and engine.kind == "vllm":
        return json_answer({"version": engine.version})
    if path == "/server_info" and engine.kind == "sglang":
        return json_answer({"version": engine.version, "served_model_name": engine.model, "port": engine.port})
    if path == "/model_info" and engine.kind == "sglang":
        return json_answer({"model_path": engine.model, "is_generation": True})
    return json_answer({"detail": "Not Found"}, status=404)
