"""One probe on one connection: start it, acknowledge its messages, send heartbeats, replace it when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

from sparktop import wire
from sparktop.errors import LinkLost, ProbeError, TransportError
from sparktop.model.telemetry import Garbled, Hello
from sparktop.observe.received import Probed
from sparktop.probe import bundle
from sparktop.transport.base import Channel, Transport
from sparktop.wire.decode import decode
from sparktop.wire.framing import Splitter, sequence_of

START_LIMIT_S = 120.0
"""Under memory pressure a process starts slowly, and does start (docs/facts/reliability.md section 0)."""
RESTARTS_AT_MOST = 5
"""How many probes may end without a greeting on one connection before it is given up."""
ACK_DELAY_S = 0.02
"""The parts of one sample come within some 10 ms: one acknowledgement is for all. A write costs the console and the
node two packets, as asyncssh sends an empty one before each."""
Heard = Callable[[Probed], None]


class ProbeSession:
    """Keeps a probe running on an open connection until that connection closes."""

    def __init__(self, transport: Transport, heard: Heard, *, interval_s: float, docker_socket: str = "") -> None:
        self._transport = transport
        self._heard = heard
        self._docker_socket = docker_socket
        self.interval_s = interval_s
        self.greeted = False
        """The running probe has said hello."""
        self.started = False
        """A probe has printed its first line on this connection."""
        self._channel: Channel | None = None
        self._listener: asyncio.Task[bool] | None = None
        self._replaced = False
        self._writes: set[asyncio.Task[None]] = set()
        self._newest = 0
        """The newest message's sequence number."""
        self._ack: asyncio.TimerHandle | None = None
        """Its acknowledgement, on its way."""
        self._silent = True
        """Nothing was sent to the probe since the last turn of its heartbeat."""

    def set_interval(self, seconds: float) -> None:
        """Set the sample interval of the running probe, and of later ones."""
        self.interval_s = seconds
        self._tell({"interval": seconds})

    def tell(self, words: Mapping[str, object]) -> bool:
        """Send words to the running probe; False while there is none that listens."""
        if self._channel is None or not self.greeted:
            return False
        self._tell(words)
        return True

    def replace_probe(self) -> None:
        """Give up on a silent probe: its lease ends it, and another is started on the same connection."""
        if self._listener is not None:
            self._replaced = True
            self._listener.cancel()

    async def run(self) -> TransportError:
        """Run probes until the connection closes; returns why.

        Raises:
            ProbeError: the connection works but no probe runs on it.
        """
        fruitless = 0
        while True:
            launch = bundle.launch(interval_s=self.interval_s, docker_socket=self._docker_socket)
            try:
                channel = await self._transport.run(launch.argv)
            except LinkLost as error:
                return error
            self._channel = channel
            self._replaced = False
            beat = asyncio.create_task(self._beat())
            self._listener = asyncio.create_task(self._listen(channel, launch))
            try:
                fruitless = 0 if await self._listener else fruitless + 1
            except LinkLost as error:
                return error
            except asyncio.CancelledError:
                if not self._replaced:
                    self._listener.cancel()
                    raise
            finally:
                self._channel = None
                beat.cancel()
                if self._ack is not None:
                    self._ack.cancel()
                    self._ack = None
                await channel.close()
            if fruitless >= RESTARTS_AT_MOST:
                raise ProbeError("the probe starts and ends at once", hint=channel.error_tail())
            await asyncio.sleep(min(0.2 * 2**fruitless, 3.0))

    async def _listen(self, channel: Channel, launch: bundle.Launch) -> bool:
        """Read one probe to its end; True when it had said hello."""
        self.greeted = False
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await channel.write(launch.payload)
                data = await bundle.greeted(channel, launch.nonce)
        except TimeoutError:
            raise TransportError(
                f"logged in, and the probe did not start within {START_LIMIT_S:.0f} s", hint=bundle.SLOW_START_HINT
            ) from None
        self.started = True
        splitter = Splitter()
        while True:
            self._take(splitter.feed(data))
            data = await channel.read()
            if not data:
                return self.greeted

    def _take(self, lines: list[bytes | Garbled]) -> None:
        for line in lines:
            if isinstance(line, Garbled):
                self._heard(Probed(line=b"", message=line))
                continue
            sequence = sequence_of(line)
            if sequence is not None:
                self._newest = sequence
                self._ack = self._ack or asyncio.get_running_loop().call_later(ACK_DELAY_S, self._acknowledge)
            message = decode(line)
            if isinstance(message, Hello):
                self._greet(message)
            if message is not None:
                self._heard(Probed(line=line, message=message))

    def _acknowledge(self) -> None:
        self._ack = None
        self._tell({"ack": self._newest})

    def _greet(self, hello: Hello) -> None:
        if hello.protocol != wire.PROTOCOL:
            raise ProbeError(f"the probe speaks protocol {hello.protocol}, this console {wire.PROTOCOL}")
        self.greeted = True

    async def _beat(self) -> None:
        while True:
            self._silent = True
            await asyncio.sleep(wire.HEARTBEAT_S)
            if self._silent:
                self._tell({"beat": 1})

    def _tell(self, words: Mapping[str, object]) -> None:
        self._silent = False
        if self._channel is not None:
            task = asyncio.create_task(self._write(self._channel, json.dumps(dict(words)).encode() + b"\n"))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    @staticmethod
    async def _write(channel: Channel, data: bytes) -> None:
        try:
            await channel.write(data)
        except LinkLost:
            pass  # the reader sees the same error and reports it
