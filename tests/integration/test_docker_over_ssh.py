"""Docker and an endpoint through a real sshd: the forwarded socket, its refusals, and a connection that breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.dockerd import Dockerd, processes_with
from tests.integration.sshd import Sshd, sshd  # noqa: F401 - a fixture
from tests.runner_support import until
from tests.support import PATIENCE_S

from sparktop.model.engine import EndpointState
from sparktop.model.telemetry import LogLine
from sparktop.transport.base import Transport
from sparktop.transport.docker.engine import DockerEngine
from sparktop.transport.endpoint import EndpointClient

pytestmark = pytest.mark.integration


@pytest.fixture
async def link(sshd: Sshd) -> AsyncIterator[Transport]:  # noqa: F811
    sshd.trust()
    transport = await sshd.connector().connect(patience_s=10.0)
    yield transport
    await transport.close()


async def test_containers_and_logs_through_the_forwarded_socket(
    dockerd: Dockerd,
    link: Transport,
    sshd: Sshd,  # noqa: F811
) -> None:
    container_id = dockerd.run_container("over-ssh", ["sh", "-c", "echo hello; echo x > /tmp/file.log; sleep 600"])
    docker = DockerEngine(link, socket_path=dockerd.socket_path)
    answer = await docker.list()
    assert answer.available, answer.detail
    assert [container.name for container in answer.containers] == ["over-ssh"]
    seen: list[LogLine] = []
    log = asyncio.create_task(docker.follow(container_id, on_batch=seen.extend))
    file = asyncio.create_task(docker.follow_file(container_id, "/tmp/file.log", on_batch=seen.extend))
    await until(lambda: {line.text for line in seen} == {"hello", "x"})
    sshd.kill_sessions()
    for following in (log, file):
        async with asyncio.timeout(PATIENCE_S):
            end = await following
        assert "connection to the Docker Engine broke" in end.reason
    await until(lambda: not processes_with("tail\0-n\x00500\0-F"))
    answer = await docker.list()
    assert not answer.available
    assert answer.detail
    await docker.close()
    dockerd.remove_all()


async def test_forwarding_that_is_forbidden_is_said(dockerd: Dockerd, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "strict", options={"AllowStreamLocalForwarding": "no"}) as strict:
        strict.trust()
        transport = await strict.connector().connect(patience_s=10.0)
        docker = DockerEngine(transport, socket_path=dockerd.socket_path)
        answer = await docker.list()
        assert "AllowStreamLocalForwarding" in answer.detail
        await docker.close()
        await transport.close()


async def test_an_endpoint_answers_and_a_silent_port_is_refused(link: Transport) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nx 1\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = EndpointClient(link, "127.0.0.1", port, clock=lambda: time.monotonic() * 100)
    reply = await client.get("/metrics")
    assert (reply.state, reply.body) == (EndpointState.OK, b"x 1\n")
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.05)
    reply = await client.get("/metrics")
    assert reply.state is EndpointState.REFUSED, reply
    await client.aclose()
