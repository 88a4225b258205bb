"""Starts real runners on this machine, through the same line as the console, in a state folder of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from tests.support import PATIENCE_S

from sparktop.model.operation import Command, Operation
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.runner.client import Begun, RunnerLine
from sparktop.probe import bundle
from sparktop.transport.base import Transport
from sparktop.transport.local import LocalTransport

NODE = "spark1"


async def no_secret(node: str, wrong: int) -> str | None:
    """Nobody is there to type."""
    raise AssertionError(f"{node} asked for a password")


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition by asking, with the loop running meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it is another process that makes it true
            await asyncio.sleep(0.01)


class Bench:
    """A state folder and the runners that share it."""

    def __init__(self, folder: Path, *, docker: Path | str = "/nonexistent/docker.sock") -> None:
        self.folder = folder
        self.docker = str(docker)
        self.begun: Begun = {}
        self.told: list[OperationResult] = []
        self.progress: list[Progress] = []
        self._lines: list[RunnerLine] = []
        self._transports: list[Transport] = []

    async def line(self, *, key: str = "this console", lease_s: float = 30.0, prefix: Sequence[str] = ()) -> RunnerLine:
        """A new connection with a runner on it; `prefix` stands before its argv (setpriv, env)."""
        transport = LocalTransport()
        self._transports.append(transport)
        launch = bundle.launch_runner(lease_s=lease_s, docker_socket=self.docker, state_folder=str(self.folder))
        if prefix:
            launch = bundle.Launch(
                argv=(*prefix, *launch.argv), payload=launch.payload, nonce=launch.nonce, digest=launch.digest
            )
        line = await RunnerLine.open(NODE, transport, key=key, begun=self.begun, launch=launch)
        self._lines.append(line)
        return line

    async def perform(
        self, line: RunnerLine, *operations: Operation, undo: Sequence[Operation] = (), run: str = "r1", step: str = "s"
    ) -> Outcome:
        act = Remote(operations=operations, undo=tuple(undo))
        return await line.perform(run, step, act, told=self.hear, secret=no_secret)

    def hear(self, told: OperationResult | Progress) -> None:
        if isinstance(told, Progress):
            self.progress.append(told)
        else:
            self.told.append(told)

    async def ended(self, line: RunnerLine, *, run: str = "r1", step: str = "s") -> Outcome:
        """The outcome, asked for until it is no longer under way."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                outcome = await line.outcome(run, step)
                if outcome.state is not OutcomeState.RUNNING:
                    return outcome
                await asyncio.sleep(0.02)

    def journal(self) -> bytes:
        """All that the runners wrote."""
        return b"".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file())

    async def aclose(self) -> None:
        for line in self._lines:
            await line.close()
        for transport in self._transports:
            await transport.close()


@contextlib.asynccontextmanager
async def bench(folder: Path, *, docker: Path | str = "/nonexistent/docker.sock") -> AsyncIterator[Bench]:
    folder.mkdir(mode=0o700, exist_ok=True)
    stage = Bench(folder, docker=docker)
    try:
        yield stage
    finally:
        await stage.aclose()


def sh(script: str, *arguments: str, limit_s: float = 10.0, environment: Mapping[str, str] | None = None) -> Command:
    """A command that does what a test wants to see; the product has no shell in any."""
    return Command(argv=("/bin/sh", "-c", script, "sh", *arguments), limit_s=limit_s, environment=environment or {})


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def own(path: Path, user: int) -> Path:
    os.chown(path, user, -1)
    return path
