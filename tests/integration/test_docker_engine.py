"""One engine from end to end: executed into a container that sleeps, found by its cgroup, asked, and seen to end."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.dockerd import Dockerd
from tests.support import free_port

from sparktop.diagnose.logs.engine_state import EngineLogState, advance_all, resolve_state
from sparktop.engines.metrics import parse
from sparktop.model.engine import Containers, EndpointState, Engine, EngineMetrics, EngineState
from sparktop.model.telemetry import GapReason, LogLine, ProcessTable
from sparktop.observe.engines.discovery import discover
from sparktop.observe.engines.engine_log import log_source
from sparktop.probe.engine_marks import engine_marks
from sparktop.probe.remote.scanner import Scanner
from sparktop.transport.docker.engine import DockerEngine
from sparktop.transport.endpoint import EndpointClient
from sparktop.transport.local import LocalTransport
from sparktop.wire.decode import decode

pytestmark = pytest.mark.integration

SERVER = r"""
import http.server, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
LABELS = '{engine="0",model_name="org/Model-NVFP4"}'
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = "".join(
            f"{name}{LABELS} {value}\n"
            for name, value in (
                ("vllm:num_requests_running", 2.0),
                ("vllm:num_requests_waiting", 0.0),
                ("vllm:generation_tokens_total", 500.0),
            )
        ).encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
with open("/proc/1/fd/1", "w") as log:  # as a daemon's launcher does
    for done in range(4):
        log.write(f"Loading safetensors checkpoint shards:  {25 * done}% Completed | {done}/3 [00:00<00:01, 1s/it]\n")
server = http.server.HTTPServer(("127.0.0.1", port), Handler)
server.serve_forever()
"""


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    await transport.close()


def scanned() -> ProcessTable:
    """The process table as the probe makes it and the wire carries it."""
    message = decode(json.dumps(Scanner(dict(engine_marks())).scan(set())).encode())
    assert isinstance(message, ProcessTable), message
    return message


def host_python() -> tuple[str, list[str]]:
    """This Python, and the folders of this machine that a container needs to run it."""
    homes = {"/usr", "/lib", "/lib64", sys.base_prefix}
    binds = [f"{home}:{home}:ro" for home in sorted(homes) if Path(home).exists()]
    return f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}", binds


async def test_an_engine_executed_into_a_sleeping_container(
    dockerd: Dockerd, transport: LocalTransport, tmp_path: Path
) -> None:
    (tmp_path / "vllm").write_text(SERVER)
    python, binds = host_python()
    container_id = dockerd.run_container("vllm_node", ["sleep", "600"], binds=[*binds, f"{tmp_path}:/srv:ro"])
    docker = DockerEngine(transport, socket_path=dockerd.socket_path)

    def look(containers: Containers, previous: tuple[Engine, ...] = ()) -> tuple[Engine, ...]:
        found = discover(scanned(), None, containers, previous, node_wall_s=time.time())
        return tuple(engine for engine in found if engine.key == container_id[:12])

    assert look(await docker.list()) == ()  # a container that sleeps is no engine

    port = free_port()
    command = [python, "/srv/vllm", "serve", "org/Model-NVFP4", "--port", str(port), "--api-key", "c4n4ryValue99"]
    dockerd.execute(container_id, command)
    client = EndpointClient(transport, "127.0.0.1", port, clock=lambda: time.monotonic() * 100)
    deadline = time.monotonic() + 20
    while (reply := await client.get("/metrics")).state is not EndpointState.OK:
        assert reply.state is EndpointState.REFUSED
        assert time.monotonic() < deadline, reply
        await asyncio.sleep(0.05)

    (engine,) = look(await docker.list())
    assert (engine.name, engine.model, engine.state) == ("vllm_node", "org/Model-NVFP4", EngineState.STARTING)
    assert engine.endpoint is not None
    assert (engine.endpoint.host, engine.endpoint.port) == ("127.0.0.1", port)
    assert engine.container is not None
    assert engine.container.argv == ("sleep", "600")
    assert engine.container.pid not in engine.pids
    assert "c4n4ry" not in repr(engine)

    metrics = parse(reply.body, engine.kind, 1.0)
    assert isinstance(metrics, EngineMetrics)
    assert (metrics.running, metrics.generation_tokens) == (2.0, 500.0)

    (unread,) = look(Containers(detail="no permission to use the Docker Engine", is_denied=True))
    assert (unread.key, unread.pids) == (engine.key, engine.pids)
    assert unread.gaps["container"] is GapReason.NO_PERMISSION

    lines: list[LogLine] = []
    following = asyncio.create_task(docker.follow(log_source(engine).container_id or "", on_batch=lines.extend))
    while len(lines) < 4:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    log = advance_all(EngineLogState(), lines, engine.kind)
    state, progress = resolve_state(engine, log)
    assert state is EngineState.LOADING
    assert progress is not None
    assert (progress.phase, progress.done, progress.total) == ("weights", 3, 3)

    for pid in engine.pids:
        dockerd.kill_process(pid)
    while (left := look(await docker.list(), (engine,)))[0].state is not EngineState.EXITED:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert "container still runs" in left[0].exit_detail
    assert not following.done()
    following.cancel()
    await client.aclose()
    await docker.close()
    dockerd.remove_all()
