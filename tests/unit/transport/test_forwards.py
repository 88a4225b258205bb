"""Local ports to engines: what passes, what ends with them, and what a client sees while the node is away."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.proxy_support import Engine, engine
from tests.support import free_port

from sparktop.errors import UsageError
from sparktop.model.engine import Endpoint
from sparktop.transport.forwards import Forwards
from sparktop.transport.local import LocalTransport


@pytest.fixture
def serving() -> Iterator[Engine]:
    with engine() as found:
        yield found


class Stage:
    """Forwards over a real transport to a real port."""

    def __init__(self, serving: Engine) -> None:
        self.endpoint: Endpoint | None = Endpoint(host="127.0.0.1", port=serving.port)
        self.changes = 0
        self.transport = LocalTransport()
        self.forwards = Forwards(lambda node, name: self.endpoint if name == "vllm" else None, self._changed)
        self.forwards.opened("spark1", self.transport)

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
async def stage(serving: Engine) -> AsyncIterator[Stage]:
    made = Stage(serving)
    yield made
    await made.forwards.aclose()
    await made.transport.close()


def get(port: int, path: str = "/v1/models") -> int:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        line.request("GET", path)
        return line.getresponse().status
    finally:
        line.close()


async def test_a_request_reaches_the_engine(stage: Stage, serving: Engine) -> None:
    made = await stage.forwards.open("spark1", "vllm", free_port())
    assert stage.forwards.shown == (made,)
    assert await asyncio.to_thread(get, made.port) == 200
    assert serving.paths == ["/v1/models"]


async def test_tokens_pass_as_they_come(stage: Stage, serving: Engine) -> None:
    made = await stage.forwards.open("spark1", "vllm")

    def streamed() -> list[bytes]:
        line = http.client.HTTPConnection("127.0.0.1", made.port, timeout=10)
        line.request("POST", "/v1/completions", body=b"{}")
        serving.goes_on.release()
        reply = line.getresponse()
        tokens = []
        for _ in range(3):
            text = b""
            while not text.endswith(b"\n\n"):
                text += reply.read1(64)
            tokens.append(text)
            serving.goes_on.release()
        line.close()
        return tokens

    assert await asyncio.to_thread(streamed) == [b"data: token %d\n\n" % number for number in range(3)]


async def test_a_taken_port_is_the_engines_own_only_where_nobody_chose_it(stage: Stage, serving: Engine) -> None:
    made = await stage.forwards.open("spark1", "vllm")
    assert made.port != serving.port, "the engine itself listens there"
    with pytest.raises(UsageError, match="can't be opened here"):
        await stage.forwards.open("spark1", "vllm", serving.port)


async def test_while_the_node_is_away_a_client_is_hung_up_on_and_afterwards_served(stage: Stage) -> None:
    made = await stage.forwards.open("spark1", "vllm")
    stage.forwards.closed("spark1")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        await asyncio.to_thread(get, made.port)
    stage.forwards.opened("spark1", stage.transport)
    assert await asyncio.to_thread(get, made.port) == 200


async def test_an_engine_that_moved_is_found_where_it_is_now(stage: Stage) -> None:
    made = await stage.forwards.open("spark1", "vllm")
    with engine() as other:
        stage.endpoint = Endpoint(host="127.0.0.1", port=other.port)
        assert await asyncio.to_thread(get, made.port) == 200
        assert other.paths == ["/v1/models"]


async def test_it_ends_with_the_session_and_its_clients_too(stage: Stage) -> None:
    made = await stage.forwards.open("spark1", "vllm")
    with socket.create_connection(("127.0.0.1", made.port), timeout=10) as client:
        await asyncio.to_thread(get, made.port)
        await stage.forwards.aclose()
        assert await asyncio.to_thread(client.recv, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(get, made.port)
    assert stage.forwards.shown == ()


async def test_one_engine_has_one_port(stage: Stage) -> None:
    first = await stage.forwards.open("spark1", "vllm")
    second = await stage.forwards.open("spark1", "vllm")
    assert stage.forwards.shown == (second,)
    await stage.forwards.close("spark1", "vllm")
    assert stage.forwards.shown == ()
    for port in {first.port, second.port}:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(get, port)
    assert stage.changes == 4


async def test_what_has_no_endpoint(stage: Stage) -> None:
    with pytest.raises(UsageError, match="no endpoint yet"):
        await stage.forwards.open("spark1", "loading")
