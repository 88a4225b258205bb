"""`sparktop serve`: the console reaches a browser that has the token, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.bench.processes import family
from tests.integration.terminal import SPARKTOP, sparktop
from tests.sim_hosts import simulated_hosts
from tests.support import PATIENCE_S, interruptible, poll

pytestmark = [pytest.mark.integration]
LIVE = re.compile(rb"GiB\s+available|available\s+[\d.]+")


@contextlib.contextmanager
def serving(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a running server, token included, and its process."""
    command = [*SPARKTOP, "serve", "--listen", "127.0.0.1:0", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=interruptible) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    with simulated_hosts("healthy", tmp_path) as config:
        yield config


async def screen(socket: aiohttp.ClientWebSocketResponse) -> bytes:
    """What is drawn, until figures of a host are."""
    drawn = b""
    async with asyncio.timeout(PATIENCE_S):
        async for message in socket:
            drawn += message.data if isinstance(message.data, bytes) else b""
            if b"spark1" in drawn and LIVE.search(re.sub(rb"\x1b\[[\d;?]*[A-Za-z]", b"", drawn)):
                return drawn
    raise AssertionError(drawn[-2000:])


async def test_a_page_with_the_token_gets_the_console_and_no_other_does(hosts: Path) -> None:
    with serving("-F", str(hosts), "spark1", "spark2") as (url, process):
        base, token, _ = url.rsplit("/", 2)
        async with aiohttp.ClientSession() as client:

            async def status(path: str, **headers: str) -> int:
                async with client.get(f"{base}{path}", headers=headers) as reply:
                    return reply.status

            assert await status("/") == 404
            assert await status("/x/") == 403
            assert await status(f"/{token[:-1]}/") == 403
            assert await status("/x/ws") == 403
            assert await status(f"/{token}/", Host="evil.example") == 403, "DNS rebinding"
            assert await status(f"/{token}/", Origin="http://evil.example") == 403
            assert await status(f"/{token}/ws", Origin="http://evil.example") == 403, "another site's WebSocket"
            async with client.get(url) as reply:
                page = await reply.text()
                assert (reply.status, reply.headers["Referrer-Policy"]) == (200, "no-referrer")
            assert f"{token}/ws" in page
            async with client.ws_connect(f"{url}ws?width=120&height=40") as socket:
                await screen(socket)
                (console,) = [pid for pid in family(process.pid)[1:] if b"--read-only" in words_of(pid)]
            poll(lambda: console not in family(process.pid), what="the console ends with its page")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def words_of(pid: int) -> list[bytes]:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words if b"-c" not in words else []  # the shell that started it


async def test_a_server_that_is_killed_leaves_no_console(hosts: Path) -> None:
    with serving("-F", str(hosts), "spark1", "--writable") as (url, process):
        async with aiohttp.ClientSession() as client, client.ws_connect(f"{url}ws") as socket:
            await screen(socket)
            consoles = family(process.pid)[1:]
            assert consoles
            assert not any(b"--read-only" in words_of(pid) for pid in consoles)
            process.kill()
        poll(lambda: not any(is_running(pid) for pid in consoles), what="all ended")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['textual_serve'] = None; from sparktop.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", blocked, "serve", "spark1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'sparktop[serve]'" in done.stderr
    refused = sparktop("serve", "spark1", "--writable", "--read-only")
    assert refused.returncode == 2


class Chromium:
    """A page of a real one, over its debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.drawn = b""

    async def ask(self, method: str, **values: Any) -> dict[str, Any]:
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": values})
        while True:
            message = await self.socket.receive_json(timeout=PATIENCE_S)
            if message.get("method") == "Network.webSocketFrameReceived":
                frame = message["params"]["response"]
                self.drawn += base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""
            if message.get("id") == number:
                result: dict[str, Any] = message["result"]
                return result

    async def value(self, expression: str) -> Any:
        return (await self.ask("Runtime.evaluate", expression=expression))["result"].get("value")


@contextlib.contextmanager
def chromium(tmp_path: Path) -> Iterator[str]:
    """The address of a real one's debugging protocol."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here: apt-get install chromium")
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1200,800")
    command = [program, *options, f"--user-data-dir={tmp_path / 'profile'}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
        try:
            assert browser.stderr is not None
            yield next(line.split("ws://")[1].split("/")[0] for line in browser.stderr if "ws://" in line)
        finally:
            browser.kill()


@pytest.mark.real
async def test_a_real_chromium_shows_the_console(hosts: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as address, serving("-F", str(hosts), "spark1", "spark2") as (url, _):
        async with aiohttp.ClientSession() as client:
            async with client.put(f"http://{address}/json/new?about:blank") as reply:
                page_url = json.loads(await reply.text())["webSocketDebuggerUrl"]
            async with client.ws_connect(page_url, max_msg_size=0) as socket, asyncio.timeout(PATIENCE_S):
                page = Chromium(socket)
                await page.ask("Network.enable")
                await page.ask("Page.enable")
                await page.ask("Page.navigate", url=url)
                while b"GiB" not in page.drawn:
                    await page.value("1")
                    await asyncio.sleep(0.05)
                assert await page.value("document.body.classList.contains('-first-byte')")
                assert await page.value("document.querySelectorAll('canvas').length") > 0
                shot = base64.b64decode((await page.ask("Page.captureScreenshot"))["data"])
                assert len(shot) > 20_000, "the page is drawn"
                if keep := os.environ.get("SPARKTOP_SHOT"):
                    Path(keep).write_bytes(shot)
