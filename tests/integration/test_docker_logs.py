"""Logs of real containers followed live: bars, garbage, floods, ends, and a tail that doesn't outlive its reader."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.dockerd import Dockerd, processes_with
from tests.runner_support import until

from sparktop.diagnose.logs.routine import tells_nothing
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.transport.docker.engine import DockerEngine
from sparktop.transport.docker.log_follower import PENDING_RECORDS
from sparktop.transport.local import LocalTransport

pytestmark = pytest.mark.integration


class CheckInputs:
    """Batches as a log view takes them."""

    def __init__(self) -> None:
        self.ring = LineRing(200_000)
        self.dropped = 0
        self.largest = 0

    def __call__(self, lines: tuple[LogLine, ...]) -> None:
        self.ring.extend(lines)
        self.dropped += sum(
            int(line.text.split()[1].replace(",", "")) for line in lines if " lines left out: " in line.text
        )
        self.largest = max(self.largest, len(lines))

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.ring.slice(self.ring.first, self.ring.end)]


class CutTransport(LocalTransport):
    """Leads to a socket through a relay that can be cut, as a lost SSH connection cuts a forward."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "relay.sock"
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def unix_socket(self, remote_path: str) -> AsyncIterator[Path]:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_unix_connection(remote_path)
            self._writers += [writer, back]

            async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    while data := await source.read(65536):
                        sink.write(data)
                        await sink.drain()

            carriers = [asyncio.ensure_future(carry(reader, back)), asyncio.ensure_future(carry(there, writer))]
            await asyncio.wait(carriers, return_when=asyncio.FIRST_COMPLETED)
            for carrier in carriers:
                carrier.cancel()
            writer.close()
            back.close()

        server = await asyncio.start_unix_server(relay, self._path)
        try:
            yield self._path
        finally:
            server.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def engine(dockerd: Dockerd) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(LocalTransport(), socket_path=dockerd.socket_path)
    yield engine
    await engine.close()
    dockerd.remove_all()


@pytest.mark.parametrize("tty", [False, True], ids=["frames", "terminal"])
async def test_a_log_is_followed_live_to_its_end(dockerd: Dockerd, engine: DockerEngine, tty: bool) -> None:
    script = "echo one; echo two >&2; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo three; printf last"
    container_id = dockerd.run_container(f"live-{tty}", ["sh", "-c", script], tty=tty)
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow(container_id, on_batch=seen))
    await until(lambda: len(seen.texts) == 2)
    assert sorted(seen.texts) == ["one", "two"]
    assert not following.done()
    dockerd.execute(container_id, ["touch", "/tmp/go"])
    end = await following
    assert seen.texts[-2:] == ["three", "last"]
    assert "container ended" in end.reason
    walls = [line.wall_s for line in seen.ring.slice(0, 4)]
    assert all(wall is not None and abs(wall - time.time()) < 300 for wall in walls)
    assert end.last_wall_s == max(wall for wall in walls if wall is not None)


@pytest.mark.parametrize("tty", [False, True], ids=["frames", "terminal"])
async def test_progress_bars_collapse(dockerd: Dockerd, engine: DockerEngine, tty: bool) -> None:
    bar = r'printf "\rLoading shards: %4d/2000" $i'
    script = f"echo begin; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); {bar}; done; echo; echo end"
    container_id = dockerd.run_container(f"bars-{tty}", ["sh", "-c", script], tty=tty)
    seen = CheckInputs()
    await engine.follow(container_id, on_batch=seen)
    assert seen.texts == ["begin", "Loading shards: 2000/2000", "end"]


async def test_a_line_that_is_unfinished_as_it_is_first_read_comes_whole(
    dockerd: Dockerd, engine: DockerEngine
) -> None:
    half = "printf %020000d 0"  # beyond Docker's 16 KB a record
    script = (
        f"echo one >&2; echo two; {half}; echo three >&2; while [ ! -e /tmp/go ]; do sleep 0.05; done; {half}; echo"
    )
    container_id = dockerd.run_container("half-line", ["sh", "-c", script])
    seen, again = CheckInputs(), CheckInputs()
    following = asyncio.create_task(engine.follow(container_id, on_batch=seen))
    await until(lambda: "three" in seen.texts)
    dockerd.execute(container_id, ["touch", "/tmp/go"])
    await following
    await engine.follow(container_id, on_batch=again)
    assert len(again.texts) == 4
    assert sorted(seen.texts) == sorted(again.texts)


async def test_a_secret_is_masked_in_its_log_and_in_a_file_of_its_own(dockerd: Dockerd, engine: DockerEngine) -> None:
    script = (
        "echo the key is $API_KEY and $1; echo Authorization: Bearer f00dcafe99 >&2; "
        'echo "mine: $1" >/tmp/log; exec sleep 600'
    )
    words = ["sh", "-c", script, "--api-key", "canary-of-argv"]
    container_id = dockerd.run_container("secretive", words, env={"API_KEY": "canary-of-environment"})
    await engine.list()
    seen, kept = CheckInputs(), CheckInputs()
    following = asyncio.create_task(engine.follow(container_id, on_batch=seen))
    beside = asyncio.create_task(engine.follow_file(container_id, "/tmp/log", on_batch=kept))
    await until(lambda: len(seen.texts) == 2 and kept.texts)
    assert sorted(seen.texts) == ["Authorization: <masked>", "the key is <masked> and <masked>"]
    assert kept.texts == ["mine: <masked>"]
    for task in (following, beside):
        task.cancel()


async def test_garbage_and_escape_sequences_come_out_as_plain_text(dockerd: Dockerd, engine: DockerEngine) -> None:
    script = (
        r"printf '\377\376 bad utf-8\n'; printf '\033]52;c;ZXZpbA==\007clipboard\n';"
        r"printf '\033[2J\033[31mred [/x] [b]\n';"
        r"printf 'nul \000 bel \007\n'; head -c 300000 /dev/zero | tr '\0' x; echo; echo after"
    )
    container_id = dockerd.run_container("garbage", ["sh", "-c", script])
    seen = CheckInputs()
    await engine.follow(container_id, on_batch=seen)
    assert seen.texts[0].endswith(" bad utf-8")
    assert seen.texts[1:3] == ["clipboard", "red [/x] [b]"]
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for text in seen.texts for char in text)
    assert len(seen.texts) == 6
    assert seen.texts[4].startswith("xxxx")
    assert len(seen.texts[4]) < 5000
    assert "cut]" in seen.texts[4]
    assert seen.texts[5] == "after"


async def test_tail_and_since_go_on_without_a_line_twice(dockerd: Dockerd, engine: DockerEngine) -> None:
    container_id = dockerd.run_container("resume", ["sh", "-c", "seq 1 50"])
    dockerd.wait(container_id)
    first = CheckInputs()
    end = await engine.follow(container_id, on_batch=first, tail=10)
    assert first.texts == [str(number) for number in range(41, 51)]
    again = CheckInputs()
    end = await engine.follow(container_id, on_batch=again, tail=1000, since=end.last_wall_s)
    assert again.texts == []
    middle = first.ring.slice(0, 4)[-1].wall_s
    later = CheckInputs()
    await engine.follow(container_id, on_batch=later, tail=1000, since=middle)
    assert later.texts[-1] == "50"
    assert first.texts[3] not in later.texts


async def test_a_flood_is_bounded_and_its_last_lines_are_there(dockerd: Dockerd, engine: DockerEngine) -> None:
    container_id = dockerd.run_container("flood", ["sh", "-c", "seq 1 100000; echo the end"])
    dockerd.wait(container_id)
    seen = CheckInputs()
    await engine.follow(container_id, on_batch=seen, tail=200_000)
    assert seen.texts[-2:] == ["100000", "the end"]
    shown = [text for text in seen.texts if not text.startswith("…")]
    assert len(shown) + seen.dropped == 100_001
    if seen.dropped:
        assert any("lines left out" in text for text in seen.texts)
    assert len(shown) >= PENDING_RECORDS
    assert seen.largest < 3000


async def test_what_lies_behind_a_day_of_scrapes_is_read(dockerd: Dockerd, engine: DockerEngine) -> None:
    """A line that tells something, and 10,000 as vLLM writes them for each look at its metrics."""
    scrapes = "yes '(APIServer pid=1) INFO:     127.0.0.1:50422 - \"GET /metrics HTTP/1.1\" 200 OK' | head -10000"
    script = f"echo Application startup complete.; {scrapes}; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo last"
    container_id = dockerd.run_container("scraped", ["sh", "-c", script])
    await until(lambda: len(dockerd.api.logs(container_id).splitlines()) > 10_000)
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow(container_id, on_batch=seen, skip=tells_nothing))
    await until(lambda: seen.texts)
    dockerd.execute(container_id, ["touch", "/tmp/go"])
    await following
    assert [text for text in seen.texts if "GET" not in text] == ["Application startup complete.", "last"]


async def test_cancelling_ends_the_thread(dockerd: Dockerd, engine: DockerEngine) -> None:
    import threading

    container_id = dockerd.run_container("cancel", ["sleep", "600"])
    following = asyncio.create_task(engine.follow(container_id, on_batch=CheckInputs()))
    await until(lambda: any(thread.name == "sparktop _with_client" for thread in threading.enumerate()))
    await asyncio.sleep(0.2)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    await until(lambda: not any(thread.name == "sparktop _with_client" for thread in threading.enumerate()))


async def test_a_cut_connection_is_said_and_not_silent(dockerd: Dockerd, tmp_path: Path) -> None:
    transport = CutTransport(tmp_path)
    engine = DockerEngine(transport, socket_path=dockerd.socket_path)
    container_id = dockerd.run_container("cut", ["sh", "-c", "echo before; sleep 600"])
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow(container_id, on_batch=seen))
    await until(lambda: seen.texts == ["before"])
    transport.cut()
    end = await following
    assert "connection to the Docker Engine broke" in end.reason
    assert end.last_wall_s is not None
    await engine.close()
    dockerd.remove_all()


async def test_a_container_that_is_gone_is_said(engine: DockerEngine) -> None:
    end = await engine.follow("0" * 64, on_batch=CheckInputs())
    assert end.reason == "the container is gone"


@pytest.mark.parametrize("way", ["cancel", "cut"])
async def test_a_file_is_followed_and_its_tail_dies_with_the_connection(
    dockerd: Dockerd, tmp_path: Path, way: str
) -> None:
    transport = CutTransport(tmp_path)
    engine = DockerEngine(transport, socket_path=dockerd.socket_path)
    path = f"/tmp/serve [x] $(touch pwned) {way}.log"
    container_id = dockerd.run_container(f"file-{way}", ["sh", "-c", 'echo early > "$1"; sleep 600', "sh", path])
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow_file(container_id, path, on_batch=seen))
    await until(lambda: "early" in seen.texts)
    dockerd.execute(container_id, ["sh", "-c", 'echo later >> "$1"', "sh", path])
    await until(lambda: seen.texts[-1] == "later")
    assert processes_with(f"{way}.log")
    assert processes_with(f"tail\0-n\x00500\0-F\0--\0{path}")
    if way == "cancel":
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
    else:
        transport.cut()
        end = await following
        assert "connection to the Docker Engine broke" in end.reason
    await until(lambda: not processes_with(f"tail\0-n\x00500\0-F\0--\0{path}"))
    await until(lambda: not processes_with("read -r go"))
    await engine.close()
    dockerd.remove_all()


async def test_a_file_that_comes_later_is_waited_for(dockerd: Dockerd, engine: DockerEngine) -> None:
    container_id = dockerd.run_container("late", ["sleep", "600"])
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow_file(container_id, "/tmp/serve.log", on_batch=seen))
    await until(lambda: any("No such file" in text for text in seen.texts))
    dockerd.execute(container_id, ["sh", "-c", "echo hello > /tmp/serve.log"])
    await until(lambda: seen.texts[-1] == "hello")
    following.cancel()


async def test_the_end_of_the_container_ends_the_file(dockerd: Dockerd, engine: DockerEngine) -> None:
    container_id = dockerd.run_container("ends", ["sh", "-c", "echo x > /tmp/serve.log; sleep 600"])
    seen = CheckInputs()
    following = asyncio.create_task(engine.follow_file(container_id, "/tmp/serve.log", on_batch=seen))
    await until(lambda: "x" in seen.texts)
    dockerd.api.kill(container_id)
    end = await following
    assert end.ended
    assert "container ended" in end.reason
    end = await engine.follow_file(container_id, "/tmp/serve.log", on_batch=seen)
    assert "not running" in end.reason
