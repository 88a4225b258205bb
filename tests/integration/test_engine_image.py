"""The tests' own engine does what an operator sees of one: phases, memory, figures, a completion, and its faults."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from tests.integration.engine_image import EngineLike, Engines
from tests.support import poll

pytestmark = pytest.mark.integration


def _ask(engine: EngineLike, **wanted: Any) -> tuple[int, Any]:
    line = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=10)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **wanted})
    line.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = line.getresponse()
    text = reply.read().decode()
    line.close()
    return reply.status, text if wanted.get("stream") else json.loads(text)


def test_it_loads_serves_and_stops(engines: Engines) -> None:
    engine = engines.start("like-vllm")
    status, answer = _ask(engine)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "ready.")
    assert '"content": "rea"' in _ask(engine, stream=True)[1]
    log = engine.docker.api.logs(engine.container_id).decode()
    assert "Loading safetensors checkpoint shards: 100% Completed | 8/8" in log
    assert "Capturing CUDA graphs" in log
    assert "Application startup complete." in log
    engine.docker.api.stop(engine.container_id, timeout=10)
    assert engine.inspect()["State"]["ExitCode"] == 0


def test_its_start_fails_until_it_is_mended(engines: Engines) -> None:
    env = {"ENGINE_FAILS": "load", "ENGINE_MENDED_BY": "--enforce-eager", "ENGINE_LOAD_S": "0.2"}
    engine = engines.start("like-failing", env=env, ready=False)
    poll(lambda: engine.inspect()["State"]["Status"] == "exited", what="its end")
    assert engine.inspect()["State"]["ExitCode"] == 1
    engines.start("like-mended", "--enforce-eager", env=env)


def test_its_first_request_takes_memory(engines: Engines) -> None:
    engine = engines.start("like-spiking", env={"ENGINE_SPIKE_MIB": "96", "ENGINE_HOLD_MIB": "16"})

    def held() -> int:
        pid = engine.inspect()["State"]["Pid"]
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = held()
    assert _ask(engine)[0] == 200
    assert held() - before > 80 * 1024 * 1024
