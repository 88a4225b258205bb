"""Watch all nodes: run their supervisors, and publish one picture of the fleet with its notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sparktop import faults
from sparktop.clock import SystemClock
from sparktop.diagnose.catalogue import live_rules, read_ahead
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.diagnose.rule import LiveRule
from sparktop.model.engine import Endpoint
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, Forward, Intervention, LinkState, Notice
from sparktop.observe.baseline import BaselineFile
from sparktop.observe.contained import Contained
from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.followers import Followers
from sparktop.observe.history import Past
from sparktop.observe.intake import Intake, Tape
from sparktop.observe.log_ring import LineRing
from sparktop.observe.node_state import NodeState
from sparktop.observe.pictures import Pictures, delay_s
from sparktop.observe.received import Connected, Intervened, Linked, Told
from sparktop.observe.supervisor import Supervisor
from sparktop.observe.watch import Connections, LogFeed, Publish
from sparktop.transport.base import Connector, Transport
from sparktop.transport.forwards import Forwards
from sparktop.transport.threads import in_thread

AFTER_FAULT_S = 5.0
"""Delay before a node is watched again after a fault of sparktop's own."""
PAST_AFTER_S = 10.0
"""When what was recorded before is read: first come the figures, and what acts."""
LogRules = Callable[[], Sequence[LogRule]]
FIGURES_FIRST_S = 2.0
"""How long the runner, the containers and the engines wait for a connection's first sample: on a starved host, where
none may come, they are still opened while the connection is young."""


class _WatchedNode:
    """One node's supervisor, state and followers, wired together."""

    def __init__(
        self,
        connector: Connector,
        intake: Intake,
        *,
        interval_s: float,
        connections: Connections | None,
        forwards: Forwards,
        docker_socket: str,
        canary_every_s: float,
    ) -> None:
        self.intake = intake
        self._forwards = forwards
        self._name = connector.name
        self._connections = connections
        self._transport: Transport | None = None
        self._later: asyncio.TimerHandle | None = None
        """Set from a connection's opening until it is followed."""
        self.followers = Followers(intake, docker_socket=docker_socket, canary_every_s=canary_every_s)
        self.supervisor = Supervisor(
            connector,
            intake,
            opened=self._opened,
            sampled=self._follow,
            closed=self._closed,
            interval_s=interval_s,
            docker_socket=docker_socket,
        )

    def _opened(self, transport: Transport) -> None:
        self.intake.take(Connected(fingerprint=transport.host_key_fingerprint, warnings=tuple(transport.warnings)))
        self._transport = transport
        self._forwards.opened(self._name, transport)
        self._later = asyncio.get_running_loop().call_later(FIGURES_FIRST_S, self._follow)

    def _follow(self) -> None:
        """Start on this connection what waits for its first sample: the runner, containers, engines."""
        if self._later is None or self._transport is None:
            return
        self._later.cancel()
        self._later = None
        if self._connections is not None:
            self._connections.opened(self._name, self._transport, self.intake.state.fault)
        self.followers.start(self._transport)

    def _closed(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._later = self._transport = None
        self._forwards.closed(self._name)
        if self._connections is not None:
            self._connections.closed(self._name)
        self.followers.stop()


class Monitor:
    """Watches nodes until cancelled; implements `observe.watch.Watch`."""

    def __init__(
        self,
        connectors: Sequence[Connector],
        *,
        publish: Publish,
        interval_s: float = 1.0,
        rules: Sequence[LiveRule] | None = None,
        log_rules: LogRules = shipped,
        baselines: Path | None = None,
        remarks: tuple[Notice, ...] = (),
        connections: Connections | None = None,
        docker_sockets: Mapping[str, str] = MappingProxyType({}),
        canary_every_s: float = 0.0,
        interventions: Callable[[], tuple[Intervention, ...]] = tuple,
        tape: Callable[[str], Tape | None] = lambda _: None,
        past: Callable[[str], Past | None] = lambda _: None,
    ) -> None:
        """`rules` are the live rules; by default all that are shipped. `log_rules` loads the log rules, called in a
        thread when they are first needed.

        `baselines` is the file of learned baselines; without one they are lost at exit. `remarks` are notices by
        sparktop itself, added to each picture. `connections` is notified of each connection. `docker_sockets`: node ->
        socket path, for nodes whose Docker Engine doesn't listen at the default one. `interventions` returns what
        sparktop consoles have stopped. `tape` gives the tape of a node, where it is recorded; `past`
        what was recorded before, called in a thread.
        """
        self._clock = SystemClock()
        self._publish = publish
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._nodes: dict[str, _WatchedNode] = {}
        self._past = past
        self._baselines = BaselineFile(baselines)
        self._contained = Contained(self._clock)
        self._forwards = Forwards(self._endpoint, lambda: self._changed(urgent=True))
        for connector in connectors:
            book = NodeState(
                connector.name,
                clock=self._clock,
                changed=self._changed,
                baselines=self._baselines,
                contained=self._contained,
                later=lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call),
            )
            engines = EngineBook(book, rules=log_rules)
            self._nodes[connector.name] = _WatchedNode(
                connector,
                Intake(book, engines, tape(connector.name)),
                interval_s=interval_s,
                connections=connections,
                forwards=self._forwards,
                docker_socket=docker_sockets.get(connector.name, ""),
                canary_every_s=canary_every_s,
            )
        self._pictures = Pictures(
            [watched.intake.state for watched in self._nodes.values()],
            clock=self._clock,
            contained=self._contained,
            rules=live_rules() if rules is None else rules,
            remarks=lambda: (*remarks, *self._unrecorded()),
            interventions=self._intervened,
        )
        self._asked, self._told = interventions, tuple[Intervention, ...]()
        self._state = self._pictures.make()

    @property
    def state(self) -> FleetState:
        """The newest picture."""
        return self._state

    @property
    def interval_s(self) -> float:
        return self._interval_s

    async def run(self) -> None:
        """Watch every node until cancelled, then clean up."""
        faults.keep_off_the_terminal(asyncio.get_running_loop())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_ahead())
                group.create_task(self._remember())
                for watched in self._nodes.values():
                    group.create_task(self._watch_node(watched))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._forwards.aclose()
            for watched in self._nodes.values():
                await watched.followers.aclose()
                if watched.intake.tape is not None:
                    watched.intake.tape.close()
            self._baselines.write()

    async def _read_ahead(self) -> None:
        try:
            await in_thread(read_ahead)
        except Exception as error:  # noqa: BLE001 - what could not be read ahead is read when it is needed
            self._contained.add("", "the rules' knowledge", error)

    async def _remember(self) -> None:
        """Give the nodes what was recorded of them before."""
        await asyncio.sleep(PAST_AFTER_S)
        for name, watched in self._nodes.items():
            try:
                past = await in_thread(self._past, name)
            except Exception as error:  # noqa: BLE001 - the charts begin with this session
                self._contained.add(name, "recordings", error)
                continue
            if past is not None:
                watched.intake.state.remember(past)

    async def _watch_node(self, watched: _WatchedNode) -> None:
        """Watch one node until cancelled; after a fault, again from the connection on."""
        while True:
            try:
                return await watched.supervisor.run()
            except Exception as error:  # noqa: BLE001 - the other node is watched all the same
                why = faults.report(f"{watched.intake.state.name}'s connection", error)
                watched.intake.take(Linked(state=LinkState.LOST, reason=why))
            await asyncio.sleep(AFTER_FAULT_S)

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log."""
        watched = self._nodes.get(node)
        return watched.intake.engines.feed(engine_key) if watched else None

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log, line by line."""
        return self._nodes[node].intake.state.kernel_lines

    def set_interval(self, seconds: float) -> None:
        """Set the sample interval of all probes."""
        self._interval_s = seconds
        for watched in self._nodes.values():
            watched.supervisor.set_interval(seconds)

    def retry_now(self, node: str) -> None:
        """End a node's back-off early."""
        if watched := self._nodes.get(node):
            watched.supervisor.retry_now()

    async def forward(self, node: str, engine: str, port: int = 0) -> Forward:
        """Open a local port to an engine; see Watch."""
        return await self._forwards.open(node, engine, port)

    async def end_forward(self, node: str, engine: str) -> None:
        """Close it."""
        await self._forwards.close(node, engine)

    def _endpoint(self, node: str, engine: str) -> Endpoint | None:
        """Where an engine serves now."""
        view = self._state.node(node)
        serving = (one for one in view.engines if one.name == engine and one.endpoint is not None) if view else ()
        return next((one.endpoint for one in serving), None)

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Send words to a node's probe, uninterpreted; False while there is no live probe."""
        watched = self._nodes.get(node)
        return watched is not None and watched.supervisor.tell(words)

    def _changed(self, urgent: bool) -> None:
        """Schedule a publication: soon after a sample, else once changes have gathered."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # nobody listens before the event loop runs
        due_s = loop.time() + delay_s(urgent=urgent)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s = due_s
        self._timer = loop.call_at(due_s, self._publish_now)

    def _publish_now(self) -> None:
        self._timer = None
        self._state = self._pictures.make(forwards=self._forwards.shown)
        for name, watched in self._nodes.items() if self._state.news else ():
            if news := tuple(event for event in self._state.news if name in event.nodes):
                watched.intake.take(Told(events=news))
        try:
            self._publish(self._state)
        except Exception as error:  # noqa: BLE001 - the next picture may be shown
            self._contained.add("", "the picture", error)

    def _intervened(self) -> tuple[Intervention, ...]:
        """What consoles have stopped; each tape gets its node's where that changed."""
        found = self._asked()
        if found != self._told:
            self._told = found
            for name, watched in self._nodes.items():
                watched.intake.take(Intervened(interventions=tuple(one for one in found if one.node == name)))
        return found

    def _unrecorded(self) -> Iterator[Notice]:
        tapes = [watched.intake.tape for watched in self._nodes.values()]
        for problem in [tape.problem for tape in tapes if tape is not None and tape.problem]:
            yield Notice(severity=Severity.WARNING, text=problem)
