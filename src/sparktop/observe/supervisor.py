"""One node's link: connect, run the probe, detect silence, find its cause, reconnect; until cancelled.

On a starved host an open channel keeps working when new ones can't be opened (docs/architecture.md), so a slow
connection is never dropped early and a hung host gets one attempt at a time. A dead network is retried often, as that
costs the host nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from sparktop.errors import (
    AuthRefused,
    HostKeyRefused,
    NoBanner,
    NoNetwork,
    NoRoute,
    PortClosed,
    ProbeError,
    TransportError,
    TurnedAway,
    UnknownName,
)
from sparktop.model.fleet import Contact, LinkState, Reach
from sparktop.model.telemetry import Sample
from sparktop.observe.intake import Intake
from sparktop.observe.probe_session import ProbeSession
from sparktop.observe.received import Contacted, Linked, Probed
from sparktop.probe.bundle import SLOW_START_HINT
from sparktop.transport.base import PATIENCE_S, Connector, Transport

STALE_INTERVALS = 3.0
STALE_AT_LEAST_S = 3.0
REACH_SPACING_S = 30.0
"""Least time between two banner tests of a host: at most two a minute."""
NEW_PROBE_AFTER_S = 20.0
"""Silence on an open connection after which a second probe is started on it."""
SUSPEND_JUMP_S = 5.0
_QUICK_S = (0.3, 0.5, 0.5, 1.0)
_PATIENT_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_REACHES: tuple[tuple[type[TransportError], Reach], ...] = (
    (NoBanner, Reach.SSH_SILENT),
    (PortClosed, Reach.NO_SSHD),
    (TurnedAway, Reach.NO_SSHD),
    (UnknownName, Reach.UNTESTED),
    (NoNetwork, Reach.NO_NETWORK),
    (NoRoute, Reach.NO_HOST),
)
"""By class of error, each before the class it derives from."""


def backoff_s(error: TransportError, failures: int) -> float:
    """Seconds to wait after `failures` failures in a row (0: the link was live), by the kind of failure, before
    jitter."""
    if isinstance(error, NoBanner):
        return REACH_SPACING_S  # a starved host: every attempt makes it fork, so retry rarely
    steps = _QUICK_S if isinstance(error, NoRoute | PortClosed) else _PATIENT_S
    if failures == 0:
        return _QUICK_S[0]  # the host was fine until now: most often only the connection broke
    return steps[min(failures, len(steps)) - 1]


def reach_of(error: TransportError) -> Reach:
    """What a failed attempt says about the host."""
    return next((reach for kind, reach in _REACHES if isinstance(error, kind)), Reach.UNTESTED)


class Supervisor:
    """Maintains one node's link until cancelled."""

    def __init__(
        self,
        connector: Connector,
        intake: Intake,
        *,
        opened: Callable[[Transport], None],
        sampled: Callable[[], None],
        closed: Callable[[], None],
        interval_s: float,
        docker_socket: str = "",
    ) -> None:
        """`opened` and `closed` are told of each connection, `sampled` of its first sample."""
        self._connector = connector
        self._intake = intake
        self._book = intake.state
        self._opened = opened
        self._sampled = sampled
        self._closed = closed
        self._interval_s = interval_s
        self._docker_socket = docker_socket
        self._retry = asyncio.Event()
        self._session: ProbeSession | None = None
        self._ever_live = False
        self._met: Contact | None = None
        self._last_reach_s = -REACH_SPACING_S

    def set_interval(self, seconds: float) -> None:
        """Set the sample interval of the running probe, and of later ones."""
        self._interval_s = seconds
        if self._session is not None:
            self._session.set_interval(seconds)

    def tell(self, words: Mapping[str, object]) -> bool:
        """Send words to the running probe; False while there is none."""
        return self._session is not None and self._session.tell(words)

    def retry_now(self) -> None:
        """End a back-off early."""
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
            try:
                self._opened(transport)
                loss, was_live = await self._observe(transport)
            finally:
                self._closed()
                await transport.close()
            failures = 0 if was_live else failures + 1
            await self._wait_after(loss, failures, attempt)

    def _meet(self) -> None:
        if self._connector.contact != self._met:
            self._met = self._connector.contact
            self._intake.take(Contacted(contact=self._met))

    async def _connect(self, attempt: int) -> Transport:
        """One attempt; its state is reported while it lasts."""
        state = LinkState.LOST if self._ever_live else LinkState.CONNECTING
        if not self._ever_live and attempt == 1:
            self._intake.take(Linked(state=state, reason="connecting", attempt=attempt))
        namer = asyncio.create_task(self._name_slow_attempt(state, attempt))
        namer.add_done_callback(self._report_fault)
        try:
            return await self._connector.connect(patience_s=PATIENCE_S)
        finally:
            namer.cancel()
            self._meet()

    def _report_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._book.fault("connection's watchdog", error)

    async def _name_slow_attempt(self, state: LinkState, attempt: int) -> None:
        """While an attempt hangs, report at which stage: TCP may answer where SSH doesn't."""
        await asyncio.sleep(STALE_AT_LEAST_S)
        while True:
            if tested := await self._test_reach():
                reach, sentence = tested
                self._intake.take(Linked(state=state, reason=sentence, reach=reach, attempt=attempt))
            await asyncio.sleep(1.0)

    async def _test_reach(self) -> tuple[Reach, str] | None:
        now_s = self._book.clock.monotonic()
        if now_s - self._last_reach_s < REACH_SPACING_S:
            return None
        self._last_reach_s = now_s
        return await self._connector.reach()

    async def _wait_after(self, error: TransportError, failures: int, attempt: int) -> None:
        """Report why there is no link, and wait: for the back-off, or until the operator retries."""
        if isinstance(error, AuthRefused | HostKeyRefused | ProbeError):
            refused = Linked(state=LinkState.REFUSED, reason=error.message, hint=error.hint or "", attempt=attempt)
            self._intake.take(refused)
            await self._retry.wait()
            return
        delay_s = backoff_s(error, failures) * random.uniform(0.85, 1.15)  # noqa: S311 - jitter, not a secret
        state = LinkState.LOST if self._ever_live or failures > 1 else LinkState.CONNECTING
        failed = Linked(
            state=state,
            reason=error.message,
            hint=error.hint or "",
            reach=reach_of(error),
            attempt=attempt,
            next_attempt_in_s=delay_s,
        )
        self._intake.take(failed)
        try:
            async with asyncio.timeout(delay_s):
                await self._retry.wait()
        except TimeoutError:
            pass

    async def _observe(self, transport: Transport) -> tuple[TransportError, bool]:
        """Run the probe until the connection closes; (why, whether samples came)."""
        was_live = False

        def heard(probed: Probed) -> None:
            nonlocal was_live
            is_first = not was_live and isinstance(probed.message, Sample)
            if is_first:
                was_live = self._ever_live = True
            self._intake.take(probed)
            if is_first:
                self._sampled()
                if self._book.asks_previous_boot():
                    session.tell({"previous": 1})

        session = ProbeSession(
            transport,
            heard,
            interval_s=self._interval_s,
            docker_socket=self._docker_socket,
        )
        self._session = session
        watchdog = asyncio.create_task(self._watch_silence(transport, session))
        watchdog.add_done_callback(self._report_fault)
        try:
            return await session.run(), was_live
        except TransportError as error:
            return error, was_live
        finally:
            self._session = None
            watchdog.cancel()

    async def _watch_silence(self, transport: Transport, session: ProbeSession) -> None:
        """Detect missing samples on an open connection, and a laptop that was suspended."""
        stale = False
        opened_s = self._book.clock.monotonic()
        wall_lead = self._book.clock.wall() - opened_s
        while True:
            await asyncio.sleep(0.5)
            self._meet()  # a login that proved a key makes it another
            now_s = self._book.clock.monotonic()
            if self._book.clock.wall() - now_s - wall_lead > SUSPEND_JUMP_S:
                await transport.close()  # this machine was suspended: most likely it is dead, and reconnecting is quick
                return
            wall_lead = self._book.clock.wall() - now_s
            last_s = max(self._book.last_sample_arrived_s or 0.0, opened_s)
            silent_s = now_s - last_s
            limit_s = max(STALE_AT_LEAST_S, STALE_INTERVALS * session.interval_s)
            if silent_s <= limit_s:
                if stale:
                    self._intake.take(Linked(state=LinkState.LIVE, reason="samples are back"))
                stale = False
                continue
            if not session.started and silent_s > STALE_AT_LEAST_S:
                state = LinkState.LOST if self._ever_live else LinkState.CONNECTING
                why = f"logged in; the probe has not started for {silent_s:.0f} s"
                self._intake.take(Linked(state=state, reason=why, hint=SLOW_START_HINT))
                continue
            if not stale and last_s > opened_s:
                stale = True
                silent = "samples stopped; the connection is still open"
                self._intake.take(Linked(state=LinkState.STALE, reason=silent))
            if silent_s > limit_s and (tested := await self._test_reach()):
                reach, sentence = tested
                if stale:
                    found = Linked(state=LinkState.STALE, reason=f"samples stopped; {sentence}", reach=reach)
                    self._intake.take(found)
            if silent_s > NEW_PROBE_AFTER_S and session.greeted:
                session.replace_probe()
