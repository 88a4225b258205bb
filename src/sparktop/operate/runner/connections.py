"""The connections to all nodes' runners: a runner is started on each new connection, and again when it dies.

Connections are announced by the watching side (`observe.watch.Connections`); a read-only console starts no runner.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sparktop import faults
from sparktop.errors import LinkLost, TransportError
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.runner.client import Begun, RunnerLine
from sparktop.probe import bundle
from sparktop.transport.base import Transport

RESTARTS_S = (0.2, 1.0, 5.0, 20.0)
"""Pauses before a dead runner is started again on the same connection; after the last it is given up until the next
connection."""
OnFault = Callable[[str, BaseException], object]
"""Called with a place in a node's data and what is wrong there."""
LIVED_S = 60.0
"""A runner that lived so long was healthy: its restarts are counted anew."""


class RunnerConnections:
    """Keeps a runner on every connection; implements `runner.api.NodeLines`."""

    def __init__(
        self,
        *,
        read_only: bool = False,
        docker_sockets: Mapping[str, str] = MappingProxyType({}),
        docker_socket: str = "",
        state_folder: str = "",
    ) -> None:
        """`docker_sockets`: by node, where its Docker Engine listens elsewhere than usual; `docker_socket` and
        `state_folder` replace the usual paths, in tests."""
        self._read_only = read_only
        self._docker_sockets = docker_sockets
        self._settings = docker_socket, state_folder
        self._key = secrets.token_hex(8)
        self._begun: dict[str, Begun] = {}
        self._lines: dict[str, RunnerLine] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._problems: dict[str, str] = {}
        self._changed: dict[str, asyncio.Event] = {}

    # -- what the watching side says

    def opened(self, node: str, transport: Transport, fault: OnFault) -> None:
        """A connection was established: start a runner on it."""
        if self._read_only:
            self._problems[node] = "this console only watches (--read-only)"
            return
        self.closed(node)
        self._keepers[node] = asyncio.create_task(self._keep_runner(node, transport, fault))

    def closed(self, node: str) -> None:
        """The node's connection closed: stop its runner."""
        keeper = self._keepers.pop(node, None)
        self._lines.pop(node, None)
        if keeper is not None:
            self._problems.pop(node, None)
            keeper.cancel()
            self._leaving.add(keeper)
            keeper.add_done_callback(self._leaving.discard)

    # -- NodeLines

    def line(self, node: str) -> NodeLine | None:
        return self._lines.get(node)

    async def wait(self, node: str) -> NodeLine:
        while (line := self._lines.get(node)) is None:
            event = self._changed.setdefault(node, asyncio.Event())
            await event.wait()
        return line

    def problem(self, node: str) -> str:
        """Why there is no runner, or why it can start no step; empty while all is well or starting."""
        line = self._lines.get(node)
        return line.problem if line is not None else self._problems.get(node, "")

    async def aclose(self) -> None:
        """End every runner; steps running on the nodes go on."""
        for node in tuple(self._keepers):
            self.closed(node)
        if self._leaving:
            await asyncio.wait(tuple(self._leaving))

    # -- one connection

    async def _keep_runner(self, node: str, transport: Transport, fault: OnFault) -> None:
        """Until cancelled or given up: keep a runner on this connection."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began_s = loop.time()
            try:
                await self._hold_runner(node, transport, fault)
                reason = ""
            except LinkLost as error:
                reason = error.message
            except TransportError as error:
                reason = f"{error.message}. {error.hint}" if error.hint else error.message
            except Exception as error:  # noqa: BLE001 - a run waits for it, and must hear why it doesn't come
                reason = faults.report(f"the runner of {node}", error)
            deaths = 0 if loop.time() - began_s > LIVED_S else deaths + 1
            self._problems[node] = reason or "the runner ends again and again"
            if deaths > len(RESTARTS_S):
                return
            await asyncio.sleep(RESTARTS_S[deaths - 1] if deaths else RESTARTS_S[0])

    async def _hold_runner(self, node: str, transport: Transport, fault: OnFault) -> None:
        """Start a runner and hold it until it ends; raises TransportError when it doesn't start."""
        docker_socket, state_folder = self._settings
        docker_socket = self._docker_sockets.get(node, docker_socket)
        launch = bundle.launch_runner(docker_socket=docker_socket, state_folder=state_folder)
        line = await RunnerLine.open(
            node, transport, key=self._key, begun=self._begun.setdefault(node, {}), launch=launch, fault=fault
        )
        try:
            self._lines[node] = line
            self._problems.pop(node, None)
            if event := self._changed.pop(node, None):
                event.set()
            await line.wait_ended()
        finally:
            if self._lines.get(node) is line:
                del self._lines[node]
            await line.close()
