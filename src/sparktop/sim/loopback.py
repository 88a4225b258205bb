"""The connection to a simulated Spark: a TCP listener on loopback with real faults at the level of sockets.

Each accepted connection is relayed to the SSH server over a socket pair; the relay stalls, delays or resets it. The SSH
server and the console both see what they would see of a broken network or a starved host.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable

from sparktop.sim.scenario.script import FaultKind

LOOPBACK = "127.0.0.1"
_BACKLOG = 100
_FILLERS = 256
_STALLS = (FaultKind.NO_ROUTE, FaultKind.STARVED)

Serve = Callable[[socket.socket], None]
"""Start the SSH server on a connected socket; it must not block."""


class Listener:
    """Accepts connections on its own port and relays them, subject to the current fault."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.relays: set[_Relay] = set()
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
        for relay in list(self.relays):
            relay.apply(stalled=fault in _STALLS)

    def reset(self) -> None:
        """Reset every connection, as when a machine is switched off and on."""
        for relay in list(self.relays):
            relay.reset()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await self._stop_accepting()
        self._drain()
        self._socket.close()
        for relay in list(self.relays):
            relay.close()

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
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _Relay(self, stalled=self.fault in _STALLS).start(accepted)

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


class _Side(asyncio.Protocol):
    """One side of a relay."""

    def __init__(self, relay: _Relay) -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.full = False
        """Its own way out is full: the other side must not be read."""
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._relay.carry(self, data)

    def eof_received(self) -> bool:
        self._relay.carry(self, b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.close()

    def pause_writing(self) -> None:
        self.full = True
        self._relay.update()

    def resume_writing(self) -> None:
        self.full = False
        self._relay.update()

    def set_reading(self, is_reading: bool) -> None:
        if self.transport is not None and not self.transport.is_closing() and is_reading is self.paused:
            self.paused = not is_reading
            (self.transport.resume_reading if is_reading else self.transport.pause_reading)()


class _Relay:
    """One connection: TCP at the front, the SSH server at the back; data is passed in order, late, or not at all."""

    def __init__(self, listener: Listener, *, stalled: bool) -> None:
        self._listener = listener
        self._stalled = stalled
        self._front = _Side(self)
        self._back = _Side(self)
        self._late: deque[tuple[float, _Side, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        """The start of its SSH server, once begun."""
        self._closed = False

    async def start(self, accepted: socket.socket) -> None:
        """Accept a connection; its SSH server starts now, or when the stall ends."""
        self._listener.relays.add(self)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._front, accepted)
        if self._closed:  # a reset came in between
            self._end(self._front)
            return
        self._front.set_reading(False)
        self.apply(stalled=self._stalled)

    def apply(self, *, stalled: bool) -> None:
        """Stall, or continue."""
        self._stalled = stalled
        if not stalled and self._starting is None and not self._closed:
            self._starting = asyncio.create_task(self._open_back())
        self.update()
        if not stalled:
            self._deliver()

    async def _open_back(self) -> None:
        ours, theirs = socket.socketpair()
        self._listener.serve(theirs)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._back, ours)
        except OSError:  # out of descriptors
            self.close()
        if self._closed:  # ended while it opened
            self._end(self._back)
        self.update()

    def update(self) -> None:
        """Read a side only while the other can take data and nothing stalls."""
        open_ = not self._stalled and self._back.transport is not None
        self._front.set_reading(open_ and not self._back.full)
        self._back.set_reading(open_ and not self._front.full)

    def carry(self, source: _Side, data: bytes) -> None:
        """Pass bytes (or the end, as no bytes) from one side to the other."""
        target = self._back if source is self._front else self._front
        delay_s = self._listener.delay_s
        if delay_s or self._late or self._stalled:
            self._late.append((asyncio.get_running_loop().time() + delay_s, target, data))
            self._deliver()
        else:
            self._write(target, data)

    def _deliver(self) -> None:
        if self._stalled or self._closed:
            return
        now_s = asyncio.get_running_loop().time()
        while self._late and self._late[0][0] <= now_s:
            _, target, data = self._late.popleft()
            self._write(target, data)
        if self._late and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._late[0][0] + 0.001, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._deliver()

    def _write(self, target: _Side, data: bytes) -> None:
        if target.transport is None or target.transport.is_closing():
            return
        if data:
            target.transport.write(data)
        elif target.transport.can_write_eof():
            target.transport.write_eof()

    def reset(self) -> None:
        """End it with a TCP reset."""
        if self._front.transport is not None:
            raw = self._front.transport.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                _reset(raw)
            self._front.transport.abort()
        self.close()

    def close(self) -> None:
        """End both sides."""
        if self._closed:
            return
        self._closed = True
        self._listener.relays.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._end(self._front)
        self._end(self._back)

    def _end(self, side: _Side) -> None:
        if side.transport is not None:
            side.transport.close()


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((LOOPBACK, port))
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening


def _reset(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
