"""TCP and the banner on their own: what each kind of silence is called."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest
from tests.runner_support import until

from sparktop.errors import NoRoute, PortClosed
from sparktop.model.fleet import Reach
from sparktop.transport.ssh import stages


async def _server(words: list[bytes], *, hang_up: bool) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for word in words:
            writer.write(word)
            await writer.drain()
            await asyncio.sleep(0)
        if not hang_up:
            await reader.read()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("words", "hang_up", "expected", "says"),
    [
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], False, Reach.ANSWERS, "SSH-2.0-OpenSSH_9.6"),
        ([b"Authorised use only\r\nSSH", b"-2.0-x\x1b[31m\r\n"], False, Reach.ANSWERS, "SSH-2.0-x"),
        ([], False, Reach.SSH_SILENT, "SSH sent nothing"),
        ([], True, Reach.NO_SSHD, "closes the connection at once"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], True, Reach.NO_SSHD, "not SSH"),
    ],
)
async def test_what_the_banner_says(
    monkeypatch: pytest.MonkeyPatch, words: list[bytes], hang_up: bool, expected: Reach, says: str
) -> None:
    monkeypatch.setattr(stages, "BANNER_LIMIT_S", 0.3)
    async with await _server(words, hang_up=hang_up) as server:
        reach, sentence = await stages.reach_tcp(*server.sockets[0].getsockname())
    assert reach is expected
    assert says in sentence
    assert "\x1b" not in sentence


async def test_a_reset_is_a_closed_port() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = bound.getsockname()
        assert (await stages.reach_tcp(*place))[0] is Reach.NO_SSHD
        with pytest.raises(PortClosed):
            await stages.open_tcp(*place)


def _failing(number: int) -> Callable[..., object]:
    async def dial(address: object) -> socket.socket:
        raise OSError(number, "x")

    return dial


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENETUNREACH, Reach.NO_NETWORK),
        (errno.ENETDOWN, Reach.NO_NETWORK),
        (errno.EHOSTUNREACH, Reach.NO_HOST),
        (errno.ETIMEDOUT, Reach.NO_HOST),
        (errno.EACCES, Reach.NO_HOST),
    ],
)
async def test_the_systems_words_for_no_route(monkeypatch: pytest.MonkeyPatch, number: int, expected: Reach) -> None:
    monkeypatch.setattr(stages, "_dial", _failing(number))
    assert (await stages.reach_tcp("10.0.0.7", 22))[0] is expected
    with pytest.raises(NoRoute) as caught:
        await stages.open_tcp("10.0.0.7", 22)
    assert caught.value.hint


async def test_an_unknown_name_and_a_dead_name_service_are_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    gone = asyncio.Event()

    def no_such(host: str, *rest: object, **more: object) -> object:
        if more:  # the numeric try
            return real(host, *rest, **more)  # type: ignore[arg-type]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such)
    reach, sentence = await stages.reach_tcp("spark9", 22)
    assert (reach, "spark9" in sentence) == (Reach.NO_NETWORK, True)

    async def hangs(host: str, port: int, family: int) -> object:
        await gone.wait()
        return []

    monkeypatch.setattr(stages, "_look_up", hangs)
    with pytest.raises(NoRoute, match="name service"):
        await stages.open_tcp("spark9", 22, limit_s=0.05)


async def test_a_name_that_cannot_be_one_is_unknown() -> None:
    with pytest.raises(NoRoute, match="no host is known"):
        await stages.open_tcp("a" * 70 + ".b", 22)


async def test_the_first_address_that_answers_is_taken_and_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "_NEXT_ADDRESS_S", 0.01)
    left, right = socket.socketpair()
    slow, other = socket.socketpair()
    answer = asyncio.Event()

    async def dial(address: tuple[object, ...]) -> socket.socket:
        match address[4]:
            case "silent":
                await asyncio.Event().wait()
            case "refuses":
                raise ConnectionRefusedError
            case "late":
                try:
                    await answer.wait()
                except asyncio.CancelledError:
                    slow.close()
                    raise
                return slow
        answer.set()
        return left

    monkeypatch.setattr(stages, "_dial", dial)
    addresses = [(0, 0, 0, "", name) for name in ("silent", "refuses", "late", "good")]
    found = await stages._first_to_answer(addresses)  # type: ignore[arg-type]
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert found in (left, slow)
    for line in (left, right, slow, other):
        line.close()


async def test_a_refusal_is_worth_more_than_another_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dial(address: tuple[object, ...]) -> socket.socket:
        raise ConnectionRefusedError if address[4] == 2 else OSError(errno.ENETUNREACH, "x")

    monkeypatch.setattr(stages, "_dial", dial)
    with pytest.raises(ConnectionRefusedError):
        await stages._first_to_answer([(0, 0, 0, "", 1), (0, 0, 0, "", 2)])  # type: ignore[list-item]


async def test_a_name_of_ipv6_alone_that_is_silent_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    async def found(host: str, port: int, family: int) -> object:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 22, 0, 2))]

    async def silent(address: object) -> socket.socket:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(stages, "_look_up", found)
    monkeypatch.setattr(stages, "_dial", silent)
    with pytest.raises(NoRoute) as caught:
        await stages.open_tcp("spark.local", 22, limit_s=0.05, looked_up=seen.append)
    assert "ssh -4" in (caught.value.hint or "")
    assert seen == [("fe80::1",)]
