"""What the console doesn't wait for or hold: a library, rules and a planner are imported when something needs them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from tests.pictures_support import memory, process

from sparktop.clock import SystemClock
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.model.telemetry import ProcessTable, Sample
from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.followers import Followers
from sparktop.observe.intake import Intake
from sparktop.observe.node_state import NodeState
from sparktop.transport.local import LocalTransport

LATER = (
    "argcomplete", "asyncssh", "docker", "httpx", "yaml", "ahocorasick_rs", "re2", "zeroconf", "sparktop.probe",
    "sparktop.transport.ssh.connector", "sparktop.diagnose.kernel.line", "sparktop.model.prospect",
    "sparktop.model.recipe",
)  # fmt: skip
RULES = ("sparktop.diagnose.rules", "sparktop.diagnose.lint", "sparktop.diagnose.logs", "sparktop.diagnose.catalogue")


def test_the_first_paint_imports_no_rules() -> None:
    code = "import sys, sparktop.cli, sparktop.ui.app, sparktop.ui.notify; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "sparktop.ui.console" in loaded
    assert [name for name in loaded if name.startswith((*LATER, *RULES))] == []


def test_the_console_paints_twice_as_often_as_textual_would_and_collects_no_garbage_while_it_imports() -> None:
    code = """
import gc, sys
from sparktop.cli.composition import prepare_for_console
prepare_for_console()
from textual.constants import MAX_FPS
print(MAX_FPS, gc.isenabled(), sys.getswitchinterval())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["250", "False", "0.001"]


def test_httpx_s_first_request_imports_nothing_on_the_event_loop() -> None:
    code = (
        "import sys; from sparktop.transport.endpoint import import_httpx; import_httpx(); "
        "print({'httpcore', 'anyio._backends._asyncio'} <= set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


NEEDS_ENGINE = ("httpx", "yaml", "re2", "sparktop.diagnose.lint", "sparktop.diagnose.outputs")
NEEDS_DOCKER = ("docker", "requests", "http.cookiejar")
NEEDS_ACTION = (
    "sparktop.operate.run.executor",
    "sparktop.operate.audit.interrupted_runs",
    "sparktop.operate.audit.obligations",
    "sparktop.recipe",
    "sparktop.model.prospect",
)
UNUSED = ("cryptography.x509", "email.utils", "importlib.resources", "zipfile", "statistics", "_ssl", "msgspec.inspect")


def test_a_session_without_engines_holds_nothing_that_only_engines_or_actions_need() -> None:
    code = """
import sys
import sparktop.cli, sparktop.cli.watch, sparktop.ui.app, sparktop.ui.prompter, sparktop.ui.panes.bottom
from sparktop.cli.composition import connectors, session
from sparktop.config import Config
from sparktop.diagnose.catalogue import read_ahead
made = session(connectors(("spark1", "spark2"), None, ""), lambda state: None, Config(hosts=("spark1", "spark2")))
assert "sparktop.operate.step.plan" not in sys.modules, "the first figures wait for what acts"
made.late.built()
read_ahead()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert {"asyncssh", "sparktop.observe.monitor", "sparktop.operate.operations"} <= set(loaded)
    assert [name for name in loaded if name.startswith((*NEEDS_ENGINE, *NEEDS_DOCKER, *NEEDS_ACTION, *UNUSED))] == []


async def test_log_rules_are_read_once_there_is_an_engine_and_in_a_thread(tmp_path: Path) -> None:
    read_by: list[threading.Thread] = []
    read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def rules() -> tuple[LogRule, ...]:
        read_by.append(threading.current_thread())
        loop.call_soon_threadsafe(read.set)
        return shipped()

    clock = SystemClock()
    book = NodeState("spark1", clock=clock, changed=lambda _: None)
    followers = Followers(Intake(book, EngineBook(book, rules=rules)), docker_socket=str(tmp_path / "no-docker.sock"))
    followers.start(LocalTransport())
    try:
        await asyncio.sleep(0)
        assert not read_by
        sample = Sample(sequence=1, boot_s=1.0, wall_s=1.0, interval_s=1.0, memory=memory())
        book.message(sample, clock.monotonic())
        book.message(ProcessTable(boot_s=1.0, processes=(), total_count=0), clock.monotonic())
        async with asyncio.timeout(20):
            while not book.view().has_looked_for_engines:  # noqa: ASYNC110 - asked of the picture
                await asyncio.sleep(0.02)
        assert not read_by
        server = process(10, "vllm", argv=("vllm", "serve", "org/M"))
        book.message(ProcessTable(boot_s=2.0, processes=(server,), total_count=1), clock.monotonic())
        async with asyncio.timeout(20):
            await read.wait()
        assert threading.main_thread() not in read_by
    finally:
        await followers.aclose()
