"""The runner over a real sshd: links cut in the middle of a step, and what is known of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.desk import while_running
from tests.integration.sshd import Sshd, sshd
from tests.runner_support import is_alive, no_secret, sh, until
from tests.support import PATIENCE_S

from sparktop.errors import LinkLost
from sparktop.model.fleet import LinkState
from sparktop.model.survey import FileText, Output
from sparktop.observe.monitor import Monitor
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import NodeLine, OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.runner.connections import RunnerConnections

pytestmark = pytest.mark.integration
__all__ = ["sshd"]
NODE = "spark1"


@contextlib.asynccontextmanager
async def watching(server: Sshd, state: Path) -> AsyncIterator[tuple[Monitor, RunnerConnections]]:
    state.mkdir(mode=0o700, exist_ok=True)
    lines = RunnerConnections(state_folder=str(state))
    monitor = Monitor([server.connector(NODE)], publish=lambda _: None, interval_s=0.25, connections=lines)
    try:
        async with while_running(monitor):
            yield monitor, lines
    finally:
        await lines.aclose()


async def runner(lines: RunnerConnections, *, other_than: NodeLine | None = None) -> RunnerLine:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = await lines.wait(NODE)
            if line is not other_than:
                assert isinstance(line, RunnerLine)
                return line
            await asyncio.sleep(0.02)


async def test_a_link_cut_in_the_middle_of_a_step(sshd: Sshd, tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    act = Remote(
        operations=(
            sh('echo >"$1"; while [ ! -e "$2" ]; do sleep 0.05; done; echo finished', str(mark), str(go)),
            sh('echo once >>"$1"', str(mark)),
        )
    )
    async with watching(sshd, tmp_path / "state") as (_, lines):
        line = await runner(lines)
        assert await line.lock("me@laptop", "restart x") is None
        performing = asyncio.create_task(line.perform("r1", "stop", act, told=lambda _: None, secret=no_secret))
        await until(mark.exists)
        sshd.kill_sessions()
        with pytest.raises(LinkLost):
            await performing
        again = await runner(lines, other_than=line)
        assert (await again.outcome("r1", "stop")).state is OutcomeState.RUNNING
        assert (await again.outcome("r1", "start")).state is OutcomeState.NOT_STARTED
        assert await again.lock("me@laptop", "restart x") is not None  # the step itself has it still
        go.touch()
        async with asyncio.timeout(PATIENCE_S):
            while (outcome := await again.outcome("r1", "stop")).state is OutcomeState.RUNNING:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert outcome.state is OutcomeState.DONE
        assert [result.output for result in outcome.results] == ["finished", ""]
        assert mark.read_text() == "\nonce\n"
        assert await again.perform("r1", "stop", act, told=lambda _: None, secret=no_secret) == outcome
        assert mark.read_text() == "\nonce\n"
        assert await again.lock("me@laptop", "restart x") is None


async def test_a_network_that_dies_silently_leaves_the_lock_to_its_console(sshd: Sshd, tmp_path: Path) -> None:
    """The older runner hears nothing of it, and would keep the lock until its lease is over."""
    async with watching(sshd, tmp_path / "state") as (monitor, lines):
        line = await runner(lines)
        await until(lambda: monitor.state.nodes[0].sample is not None)
        assert await line.lock("me@laptop", "restart x") is None
        frozen = sshd.session_pids()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            await line.transport.close()
            again = await runner(lines, other_than=line)
            assert is_alive(line.pid)
            assert await again.lock("me@laptop", "restart x") is None
            await until(lambda: not is_alive(line.pid))
        finally:
            for pid in frozen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await until(lambda: monitor.state.nodes[0].link.state is LinkState.LIVE)


async def test_long_answers_beside_the_probe(sshd: Sshd, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_text("".join(f"{number:07}\n" for number in range(500_000)))
    questions = [
        Output(node=NODE, argv=("cat", str(big)), limit_bytes=4 << 20, limit_s=20.0 + number) for number in range(6)
    ]
    async with watching(sshd, tmp_path / "state") as (monitor, lines):
        line = await runner(lines)
        answers = await line.ask([*questions, FileText(node=NODE, path="/proc/version")])
        assert all(len(answers[ask].value) == 4_000_000 for ask in questions)
        await until(lambda: monitor.state.nodes[0].sample is not None)
        assert monitor.state.nodes[0].link.state is LinkState.LIVE


async def test_programs_of_the_system_are_found_where_the_login_s_path_lacks_them(tmp_path: Path) -> None:
    """sshd gives who isn't root a PATH without /usr/sbin."""
    ask = Output(node=NODE, argv=("swapon", "--version"))
    with Sshd.start(tmp_path / "sshd", options={"SetEnv": "PATH=/usr/local/bin:/usr/bin:/bin"}) as server:
        async with watching(server, tmp_path / "state") as (_, lines):
            answer = (await (await runner(lines)).ask([ask]))[ask]
    assert "util-linux" in str(answer.value), answer
