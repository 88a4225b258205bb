"""One node's link: connect, run the probe, notice silence, name it, come back; for ever.

An open channel outlives the ability to open one (design.md), so a slow connection is never dropped early and a hung
host gets one attempt in flight; a dead network is asked often, because asking costs that host nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Protocol

from sparktop.clock import Clock
from sparktop.errors import (
    AuthRefused,
    HostKeyRefused,
    NoBanner,
    NoNetwork,
    NoRoute,
    PortClosed,
    ProbeError,
    TransportError,
    UnknownName,
)
from sparktop.model.fleet import LinkState, Reach
from sparktop.model.telemetry import Message, Sample
from sparktop.observe.session import ProbeSession
from sparktop.transport.base import Connector, Transport

PATIENCE_S = 120.0
"""For banner and login together: a handshake took 22-30 s under thrash (facts/reliability.md section 0)."""
STALE_INTERVALS = 3.0
STALE_AT_LEAST_S = 3.0
REACH_SPACING_S = 30.0
"""Between two banner tests of a host: at most two a minute."""
NEW_PROBE_AFTER_S = 20.0
"""Silence on an open connection after which a second probe is tried on it."""
SUSPEND_JUMP_S = 5.0

_QUICK_S = (0.3, 0.5, 0.5, 1.0)
_PATIENT_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


class Sink(Protocol):
    """Who keeps what the supervisor learns: the monitor's book of the node."""

    def link(
        self,
        state: LinkState,
        reason: str,
        *,
        hint: str = "",
        reach: Reach = Reach.UNTESTED,
        attempt: int = 0,
        next_attempt_s: float | None = None,
    ) -> None:
        """The link is in this state now, for this reason."""

    def message(self, message: Message, arrived_s: float) -> None:
        """The probe said something."""

    def opened(self, transport: Transport) -> None:
        """A connection stands: followers may start on it."""

    def closed(self) -> None:
        """It is gone: followers stop."""

    def last_sample_arrived_s(self) -> float | None:
        """When the newest sample came, operator's monotonic clock."""


def backoff_s(error: TransportError, failures: int) -> float:
    """How long to wait after so many failures in a row (0: it had been live), by what failed, before jitter."""
    if isinstance(error, NoBanner):
        return REACH_SPACING_S  # a starved host: every attempt makes it fork, so be rare
    steps = _QUICK_S if isinstance(error, NoRoute | PortClosed) else _PATIENT_S
    if failures == 0:
        return _QUICK_S[0]  # it was well until now: most often only the connection broke
    return steps[min(failures, len(steps)) - 1]


def reach_of(error: TransportError) -> Reach:
    """What a failed attempt says of the host."""
    if isinstance(error, NoBanner):
        return Reach.STARVED
    if isinstance(error, PortClosed):
        return Reach.NO_SSHD
    if isinstance(error, UnknownName):
        return Reach.UNTESTED
    if isinstance(error, NoNetwork):
        return Reach.NO_NETWORK
    if isinstance(error, NoRoute):
        return Reach.NO_HOST
    return Reach.UNTESTED


class Supervisor:
    """Runs one node's link until cancelled."""

    def __init__(
        self, connector: Connector, sink: Sink, *, clock: Clock, interval_s: float, docker_socket: str = ""
    ) -> None:
        self._connector = connector
        self._sink = sink
        self._clock = clock
        self._interval_s = interval_s
        self._docker_socket = docker_socket
        self._retry = asyncio.Event()
        self._session: ProbeSession | None = None
        self._ever_live = False
        self._last_reach_s = -REACH_SPACING_S

    def set_interval(self, seconds: float) -> None:
        """Ask the running probe, and every later one, for another rate."""
        self._interval_s = seconds
        if self._session is not None:
            self._session.set_interval(seconds)

    def tell(self, words: Mapping[str, object]) -> bool:
        """Say something to the running probe; False while there is none."""
        return self._session is not None and self._session.tell(words)

    def retry_now(self) -> None:
        """Cut a wait short."""
        self._retry.set()

    async def run(self) -> None:
        failures = 0
        attempt = 0
        while True:
            attempt += 1
            self._retry.clear()
            try:
                transport = await self._connect(attempt)
            except TransportError as error:
                failures += 1
                await self._wait_after(error, failures, attempt)
                continue
            self._sink.opened(transport)
            try:
                end, lived = await self._observe(transport)
            finally:
                self._sink.closed()
                await transport.close()
            failures = 0 if lived else failures + 1
            await self._wait_after(end, failures, attempt)

    async def _connect(self, attempt: int) -> Transport:
        """One attempt, with its state named while it lasts."""
        state = LinkState.LOST if self._ever_live else LinkState.CONNECTING
        if not self._ever_live and attempt == 1:
            self._sink.link(state, "connecting", attempt=attempt)
        namer = asyncio.create_task(self._name_slow_attempt(state, attempt))
        try:
            return await self._connector.connect(patience_s=PATIENCE_S)
        finally:
            namer.cancel()

    async def _name_slow_attempt(self, state: LinkState, attempt: int) -> None:
        """While an attempt hangs, say at which stage: TCP answers and SSH doesn't is a starved host."""
        await asyncio.sleep(STALE_AT_LEAST_S)
        while True:
            if tested := await self._test_reach():
                reach, sentence = tested
                self._sink.link(state, sentence, reach=reach, attempt=attempt)
            await asyncio.sleep(1.0)

    async def _test_reach(self) -> tuple[Reach, str] | None:
        now_s = self._clock.monotonic()
        if now_s - self._last_reach_s < REACH_SPACING_S:
            return None
        self._last_reach_s = now_s
        reach, sentence = await self._connector.reach()
        return Reach(reach), sentence

    async def _wait_after(self, error: TransportError, failures: int, attempt: int) -> None:
        """Show why there is no link, and wait: by the clock, or until the operator says so."""
        if isinstance(error, AuthRefused | HostKeyRefused | ProbeError):
            hint = f"{error.hint} · press r to try again" if error.hint else "press r to try again"
            self._sink.link(LinkState.REFUSED, error.message, hint=hint, attempt=attempt)
            await self._retry.wait()
            return
        delay_s = backoff_s(error, failures) * random.uniform(0.85, 1.15)  # noqa: S311 - jitter, not a secret
        state = LinkState.LOST if self._ever_live or failures > 1 else LinkState.CONNECTING
        self._sink.link(
            state,
            error.message,
            hint=error.hint or "",
            reach=reach_of(error),
            attempt=attempt,
            next_attempt_s=self._clock.monotonic() + delay_s,
        )
        try:
            async with asyncio.timeout(delay_s):
                await self._retry.wait()
        except TimeoutError:
            pass

    async def _observe(self, transport: Transport) -> tuple[TransportError, bool]:
        """Run the probe until the connection is gone; why, and whether samples came."""
        lived = False

        def heard(message: Message, arrived_s: float) -> None:
            nonlocal lived
            if not lived and isinstance(message, Sample):
                lived = self._ever_live = True
            self._sink.message(message, arrived_s)

        session = ProbeSession(
            transport, heard, clock=self._clock, interval_s=self._interval_s, docker_socket=self._docker_socket
        )
        self._session = session
        watchdog = asyncio.create_task(self._watch_silence(transport, session))
        try:
            return await session.run(), lived
        except TransportError as error:
            return error, lived
        finally:
            self._session = None
            watchdog.cancel()

    async def _watch_silence(self, transport: Transport, session: ProbeSession) -> None:
        """Notice missing samples on an open connection, and a laptop that slept."""
        stale = False
        opened_s = self._clock.monotonic()
        wall_lead = self._clock.wall() - opened_s
        while True:
            await asyncio.sleep(0.5)
            now_s = self._clock.monotonic()
            if self._clock.wall() - now_s - wall_lead > SUSPEND_JUMP_S:
                await transport.close()  # this machine slept: the line is most likely dead, and asking is quick
                return
            wall_lead = self._clock.wall() - now_s
            last_s = max(self._sink.last_sample_arrived_s() or 0.0, opened_s)
            silent_s = now_s - last_s
            limit_s = max(STALE_AT_LEAST_S, STALE_INTERVALS * session.interval_s)
            if silent_s <= limit_s:
                if stale:
                    self._sink.link(LinkState.LIVE, "samples are back")
                stale = False
                continue
            if not stale and last_s > opened_s:
                stale = True
                self._sink.link(LinkState.STALE, "samples stopped; the connection is still open")
            if silent_s > limit_s and (tested := await self._test_reach()):
                reach, sentence = tested
                if stale:
                    self._sink.link(LinkState.STALE, f"samples stopped; {sentence}", reach=reach)
            if silent_s > NEW_PROBE_AFTER_S and session.greeted:
                session.replace_probe()
