"""A Spark that lies through its probe and its Docker socket: the other one's picture stays live and moves on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from tests.plain_text import unclean
from tests.runner_support import until
from tests.table import few
from tests.wire_messages import MESSAGES

from sparktop.model.fleet import LinkState, Reach
from sparktop.observe.monitor import Monitor
from sparktop.probe import bundle
from sparktop.transport.base import Transport
from sparktop.transport.local import LocalChannel, LocalConnector, LocalTransport

PRELUDE = """
import itertools, json, os, sys, time
messages = json.loads(sys.argv[1])
def out(data): os.write(1, data)
def say(kind, **more): out(json.dumps({**messages[kind], **more}).encode() + b"\\n")
def greet(): out(b"SPARKTOP " + sys.argv[2].encode() + b"\\n")
def live(): greet(); say("hello"); say("sample")
"""
LIES = {
    "says-nothing": "time.sleep(600)",
    "greets-without-end": "while True: out(b'Welcome to spark2!\\n' * 4000)",
    "ends-at-once": "greet()",
    "another-protocol": "greet(); say('hello', protocol=99); time.sleep(600)",
    "garbage-without-end": "live()\nwhile True: out(b'\\x1b[2J{\\x00garbage]\\n' * 4000)",
    "a-line-without-end": "live()\nwhile True: out(b'x' * 65536)",
    "errors-without-end": "live()\nwhile True: os.write(2, b'Traceback\\n' * 4000)",
    "boots-without-end": """live()
for n in itertools.count():
    say('hello', facts={**messages['hello']['facts'], 'boot_id': str(n)})
    say('sample')
""",
    "time-that-stands": """live()
for n in itertools.count():
    say('sample', boot=7004 + n / 1e7)
    say('gpu', boot=7004 + n / 1e7)
""",
    "time-that-jumps": """live()
for n in itertools.count(): say('sample', boot=(n * 7919) % 10**9, wall=(n * 104729) % 10**10)
""",
    "kernel-log-without-end": """live()
for n in itertools.count():
    texts = [f'NVRM: Xid (PCI:000f:01:00): {n % 200}, pid={i}' for i in range(200)]
    say('kernel', lines=[[n + i / 1e3, None, 3, text] for i, text in enumerate(texts)])
""",
    "collectors-without-end": """live()
for n in itertools.count(): say('collector', name=f'c{n}', detail='\\x1b]0;x\\x07')
""",
    "guards-without-end": """live()
for n in itertools.count(): say('guard', since=float(n % 10**9))
""",
    "processes-without-end": """live()
row = {**messages['processes']['rows'][0], 'comm': 'vllm', 'argv': ['vllm', 'serve', 'x']}
rows = [{**row, 'pid': 10 + n, 'ppid': 9 + n} for n in range(500)]
for n in itertools.count(): say('processes', boot=float(n), rows=rows)
""",
}
STEADY = "live()\nfor n in itertools.count(): say('sample', boot=7004.0 + n); time.sleep(0.2)"
DOCKER_LIES = {
    "silence": b"",
    "garbage": b"\x1b[2J\x00\xff" * 1000,
    "no-json": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[[[[",
    "headers-without-end": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000,
    "another-shape": b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n[{"Id": [1], "Names": {}}] ',
}


class LyingTransport(LocalTransport):
    """Runs a program that lies in the probe's place, before a Docker socket that does."""

    def __init__(self, lie: str, docker: Path) -> None:
        super().__init__()
        self._lie = lie
        self._docker = docker

    async def run(self, argv: Sequence[str]) -> LocalChannel:
        asked = bundle.parse_command(shlex.join(argv))
        if asked is None:
            return await super().run(("false",))
        return await super().run((sys.executable, "-c", PRELUDE + self._lie, json.dumps(MESSAGES), asked.nonce))

    @contextlib.asynccontextmanager
    async def unix_socket(self, remote_path: str) -> AsyncIterator[Path]:
        yield self._docker


class Liar(LocalConnector):
    def __init__(self, lie: str, docker: Path) -> None:
        super().__init__("spark2")
        self._lie = lie
        self._docker = docker

    async def connect(self, *, patience_s: float) -> Transport:
        return LyingTransport(self._lie, self._docker)

    async def reach(self) -> tuple[Reach, str]:
        return Reach.UNTESTED, ""


@contextlib.asynccontextmanager
async def docker_that_says(answer: bytes) -> AsyncIterator[Path]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while answer and await reader.read(65536):
                writer.write(answer)
                await writer.drain()
            await reader.read()
        writer.close()

    with tempfile.TemporaryDirectory(prefix="spk-lie-") as folder:
        async with await asyncio.start_unix_server(serve, f"{folder}/d.sock"):
            yield Path(folder, "d.sock")


ID = "ab" * 32
INSPECTED = {
    "Id": ID,
    "Name": "/vllm-lies",
    "Path": "vllm",
    "Args": ["serve", "org/model"],
    "Image": "sha256:" + "cd" * 32,
    "State": {"Status": "running", "Running": True, "Pid": 77, "StartedAt": "2026-05-18T12:00:01.5Z"},
    "Config": {"Image": "vllm/vllm-openai:v0.19.0", "Env": [], "Tty": False, "Labels": {}},
    "HostConfig": {"NetworkMode": "host", "RestartPolicy": {"Name": "no"}},
}
LISTED = [{"Id": ID, "Names": ["/vllm-lies"], "State": "running", "Status": "Up 2 hours", "Created": 1}]


def frame(data: bytes, length: int | None = None) -> bytes:
    return b"\1\0\0\0" + (len(data) if length is None else length).to_bytes(4, "big") + data


STAMP = b"2026-05-28T18:26:40.123456789Z "
LOGS = {
    "lines-without-end": b"".join(frame(STAMP + b"NCCL WARN socket Connection refused<0>\n") for _ in range(500)),
    "a-line-without-end": frame(STAMP + b"x" * 60_000),
    "bars-without-end": frame(STAMP + b"\rloading 3%" * 4000),
    "escapes-without-end": frame(STAMP + b"\x1b]0;owned\x07\x1b[2J\n" * 2000),
    "frames-that-are-too-long": frame(b"x" * 1000, length=2**31),
    "no-frames": b"\xff" * 4000,
    "years-to-come": frame(b"9999-12-31T23:59:59.999999999Z late\n") * 500,
}


@contextlib.asynccontextmanager
async def docker_that_logs(piece: bytes) -> AsyncIterator[Path]:
    """A Docker Engine with one running vLLM, whose log is this piece again and again."""

    def answer(data: bytes, kind: str = "application/json") -> bytes:
        head = f"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                if "/logs" in target:
                    kind = "application/vnd.docker.multiplexed-stream"
                    writer.write(
                        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                    )
                    while True:
                        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                        await writer.drain()
                elif "/containers/json" in target:
                    writer.write(answer(json.dumps(LISTED).encode()))
                elif "/containers/" in target:
                    writer.write(answer(json.dumps(INSPECTED).encode()))
                elif target.endswith("/version"):
                    writer.write(answer(b'{"ApiVersion": "1.41", "Version": "20.10.24"}'))
                else:
                    writer.write(answer(b"OK", "text/plain"))
        writer.close()

    with tempfile.TemporaryDirectory(prefix="spk-lie-") as folder:
        async with await asyncio.start_unix_server(serve, f"{folder}/d.sock"):
            yield Path(folder, "d.sock")


MOST_TELLING = ("garbage-without-end", "boots-without-end", "another-shape", "lines-without-end")


async def holds(lie: str, docker: Path, heard: Callable[[Monitor], object] = lambda _: True) -> None:
    """spark1 is this machine: three more of its samples come while spark2 lies."""
    monitor = Monitor([LocalConnector("spark1"), Liar(lie, docker)], publish=lambda _: None, interval_s=0.25)
    running = asyncio.create_task(monitor.run())
    try:
        await until(lambda: monitor.state.nodes[0].link.state is LinkState.LIVE)
        liar = monitor._nodes["spark2"]
        if "live()" in lie:
            await until(lambda: liar.intake.state.last_sample_arrived_s is not None)
        else:
            await until(lambda: liar.supervisor._session is not None or liar.intake.state.view().link.reason)
        await until(lambda: heard(monitor))
        first = monitor.state.nodes[0].sample
        assert first is not None
        await until(lambda: monitor.state.nodes[0].sample.sequence >= first.sequence + 3)  # type: ignore[union-attr]
        assert not running.done()
        assert monitor.state.nodes[0].link.state is LinkState.LIVE
        assert unclean((monitor.state.nodes[1], monitor.state.notices, monitor.state.findings)) == []
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("lie", few(LIES, MOST_TELLING.__contains__))
async def test_a_probe_that_lies(lie: str) -> None:
    await holds(LIES[lie], Path("/nonexistent/docker.sock"))


@pytest.mark.parametrize("answer", few(DOCKER_LIES, MOST_TELLING.__contains__))
async def test_a_docker_engine_that_lies(answer: str) -> None:
    async with docker_that_says(DOCKER_LIES[answer]) as docker:
        await holds(STEADY, docker)


def is_log_heard(monitor: Monitor) -> bool:
    """Lines of it, or why there are none."""
    view = monitor.state.nodes[1]
    feed = monitor.log("spark2", view.engines[0].key) if view.engines else None
    return feed is not None and (feed.ring.end > 0 or " · " in feed.status)


@pytest.mark.parametrize("piece", few(LOGS, MOST_TELLING.__contains__))
async def test_a_log_that_lies(piece: str) -> None:
    async with docker_that_logs(LOGS[piece]) as docker:
        await holds(STEADY, docker, is_log_heard)
