"""Docker and an endpoint through a real sshd: the forwarded socket, its refusals, and a connection that breaks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.dockerd import IMAGE, Dockerd, own_dockerd, processes_with
from tests.integration.sshd import Sshd, sshd  # noqa: F401 - a fixture
from tests.integration.terminal import sparktop
from tests.integration.test_operate_cli import config
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


def one_of_ten_megabytes(engine: Dockerd) -> None:
    """What `docker inspect` says of it. Somebody found 300: for that Docker takes 40 s and 3.5 GB of memory."""
    engine.api.create_container(IMAGE, ["sleep"], environment={f"LONG_{n}": "x" * 1_000_000 for n in range(10)})


def ten_thousand(engine: Dockerd) -> None:
    """Copies of one, as its Docker Engine keeps it; that takes a core half a minute to list them."""
    first = engine.api.create_container(IMAGE, ["sleep"], name="first")["Id"]
    (mount,) = engine.root.glob(f"data/image/*/layerdb/mounts/{first}")
    folder = engine.root / "data/containers" / first
    text = (folder / "config.v2.json").read_text()

    def copy() -> None:
        for number in range(10_000):
            name = f"{number:064x}"
            for kept, own in ((mount, mount.parent / name), (folder, folder.parent / name)):
                own.mkdir()
                for file in filter(Path.is_file, kept.iterdir()):
                    os.link(file, own / file.name)
            (own / "config.v2.json").unlink()
            (own / "config.v2.json").write_text(text.replace(first, name).replace('"/first"', f'"/c{number}"'))

    engine.restart(copy)


@pytest.mark.slow
@pytest.mark.parametrize("grow", [one_of_ten_megabytes, ten_thousand])
def test_containers_that_docker_could_not_tell_of_are_said_by_status(
    sshd: Sshd,  # noqa: F811
    grow: Callable[[Dockerd], None],
) -> None:
    sshd.trust()
    sshd.alias("spark9")
    with own_dockerd("/dev/shm") as engine:
        config(f'[host.spark9]\ndocker_socket = "{engine.socket_path}"\n')
        grow(engine)
        out = sparktop("status", "spark9")
        engine.process.kill()  # told to end, it would make its list first
    assert out.returncode == 1, out.stderr
    assert "spark9: containers and engines are not known: the Docker Engine" in out.stdout, out.stdout
