"""What the console doesn't wait for: the first paint knows no rule, and rules are not read on the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from tests.pictures_support import memory

from sparktop.clock import SystemClock
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.model.telemetry import Sample
from sparktop.observe.followers import Followers
from sparktop.observe.node_state import NodeBook
from sparktop.transport.local import LocalTransport

LATER = (
    "asyncssh",
    "docker",
    "httpx",
    "yaml",
    "ahocorasick_rs",
    "re2",
    "sparktop.probe",
    "sparktop.transport.ssh.connector",
    "sparktop.diagnose.kernel.line",
)
RULES = ("sparktop.diagnose.rules", "sparktop.diagnose.lint", "sparktop.diagnose.logs", "sparktop.diagnose.catalogue")


def test_the_first_paint_imports_no_rules() -> None:
    code = "import sys, sparktop.cli, sparktop.ui.app, sparktop.ui.attention, sparktop.ui.notify; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "sparktop.ui.console" in loaded
    assert [name for name in loaded if name.startswith((*LATER, *RULES))] == []


async def test_log_rules_are_read_once_samples_come_and_in_a_thread() -> None:
    read_by: list[threading.Thread] = []
    read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def rules() -> tuple[LogRule, ...]:
        read_by.append(threading.current_thread())
        loop.call_soon_threadsafe(read.set)
        return shipped()

    clock = SystemClock()
    book = NodeBook("spark1", clock=clock, changed=lambda _: None)
    followers = Followers(book, rules=rules)
    followers.start(LocalTransport())
    try:
        await asyncio.sleep(0)
        assert not read_by
        sample = Sample(sequence=1, boot_s=1.0, wall_s=1.0, interval_s=1.0, memory=memory())
        book.message(sample, clock.monotonic())
        async with asyncio.timeout(20):
            await read.wait()
        assert threading.main_thread() not in read_by
    finally:
        await followers.aclose()
