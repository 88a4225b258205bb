"""The connection to a simulated Spark: a TCP listener on loopback with real faults at the level of sockets.

Each accepted connection is relayed to the SSH server over a socket pair; the relay stalls, delays or resets it. The SSH
server and the console both see what they would see of a broken network or a starved host.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from sparktop.sim.scenario.script import FaultKind

LOOPBACK = "127.0.0.1"
_BACKLOG = 100
_FILLERS = 256
_PIECES = 16
"""Read and not yet passed on, of each direction."""
_STALLS = (FaultKind.NO_ROUTE, FaultKind.STARVED)
Serve = Callable[[socket.socket], None]
"""Start the SSH server on a connected socket; it must not block."""


class Listener:
    """Accepts connections on its own port and relays them, subject to the current fault."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self._relays: dict[asyncio.Task[None], socket.socket] = {}
        self._flows = asyncio.Event()
        """Nothing stalls."""
        self._flows.set()
        self._socket = _listening(0)
        self.port: int = self._socket.getsockname()[1]
        self._fillers: list[socket.socket] = []
        self._accepting: asyncio.Task[None] | None = None
        self.fault: FaultKind | None = None
        self.delay_s = 0.0

    async def set_fault(self, fault: FaultKind | None, delay_s: float = 0.0) -> None:
        """Set the fault from now on; None clears it."""
        if fault is self.fault:
            return
        before, self.fault, self.delay_s = self.fault, fault, delay_s if fault is FaultKind.SLOW else 0.0
        if fault is FaultKind.RESET:
            self.reset()
        if fault is FaultKind.REFUSED:
            await self._stop_accepting()
            self._socket.close()
            self.reset()
        elif before is FaultKind.REFUSED:
            self._socket = _listening(self.port)
        if before is FaultKind.NO_ROUTE:
            self._drain()
        if fault is FaultKind.NO_ROUTE:
            await self._stop_accepting()
            await self._fill()
        elif fault is not FaultKind.REFUSED:
            self.accept()
        (self._flows.clear if fault in _STALLS else self._flows.set)()

    def reset(self) -> None:
        """Reset every connection, as when a machine is switched off and on."""
        for relay, accepted in self._relays.items():
            _reset(accepted)
            relay.cancel()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await self._stop_accepting()
        self._drain()
        self._socket.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def accept(self) -> None:
        """Start accepting connections."""
        if self._accepting is None:
            self._accepting = asyncio.create_task(self._accept_all())

    async def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
            self._accepting = None

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except OSError:  # the client was gone before it was accepted, or no descriptors are left
                await asyncio.sleep(0.1)
                continue
            if self.fault is FaultKind.RESET:
                _reset(accepted)
                accepted.close()
                continue
            relay = asyncio.create_task(self._relay(accepted))
            self._relays[relay] = accepted
            relay.add_done_callback(self._relays.pop)

    async def _relay(self, accepted: socket.socket) -> None:
        """One connection: TCP at the front, at the back the SSH server, which starts once nothing stalls."""
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writers: list[asyncio.StreamWriter] = []
        try:
            await self._flows.wait()
            ours, theirs = socket.socketpair()
            self.serve(theirs)
            front, to_front = await asyncio.open_connection(sock=accepted)
            writers.append(to_front)
            back, to_back = await asyncio.open_connection(sock=ours)
            writers.append(to_back)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(front, to_back))
                both.create_task(self._carry(back, to_front))
            for writer in writers:
                writer.close()
                await writer.wait_closed()
        except* OSError:
            pass  # either side is gone, or no descriptors are left
        finally:
            for writer in writers:
                writer.transport.abort()
            if not writers:
                accepted.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one side says, in order, late, or not at all; until its end."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES)
        clock = asyncio.get_running_loop().time

        async def write() -> None:
            while True:
                due_s, data = await pieces.get()
                await asyncio.sleep(max(0.0, due_s - clock()))
                await self._flows.wait()
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            data = b"-"
            while data:
                await self._flows.wait()
                data = await reader.read(65536)
                await pieces.put((clock() + self.delay_s, data))

    async def _fill(self) -> None:
        """Fill the accept queue so that no SYN is answered: the only way to be unreachable on loopback without
        privileges."""
        loop = asyncio.get_running_loop()
        self._socket.listen(0)
        for _ in range(_FILLERS):
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.setblocking(False)
            self._fillers.append(filler)
            try:
                async with asyncio.timeout(0.05):
                    await loop.sock_connect(filler, (LOOPBACK, self.port))
            except OSError:  # a timeout too
                return

    def _drain(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        if self._socket.fileno() >= 0:
            self._socket.listen(_BACKLOG)


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((LOOPBACK, port))
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening


def _reset(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
