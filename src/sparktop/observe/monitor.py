"""Watch all nodes: run their supervisors, and publish one picture of the fleet with its notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from sparktop import faults
from sparktop.clock import SystemClock
from sparktop.diagnose.catalogue import live_rules, read_ahead
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.diagnose.notices import notices, with_likely_hints
from sparktop.diagnose.rule import LiveRule
from sparktop.model.engine import Endpoint
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Forward, Intervention, LinkState, Notice
from sparktop.observe.baseline import BaselineFile
from sparktop.observe.contained import Contained
from sparktop.observe.followers import Followers
from sparktop.observe.log_ring import LineRing
from sparktop.observe.node_state import NodeState
from sparktop.observe.supervisor import Supervisor
from sparktop.observe.watch import Connections, LogFeed, Publish
from sparktop.transport.base import Connector, Transport
from sparktop.transport.forwards import Forwards
from sparktop.transport.threads import in_thread

AFTER_FAULT_S = 5.0
"""Delay before a node is watched again after a fault of sparktop's own."""
LogRules = Callable[[], Sequence[LogRule]]
URGENT_DELAY_S = 0.006
"""Delay after a sample: the GPU reading of the same tick comes some milliseconds later and joins the picture."""
COALESCE_S = 0.25
"""Delay after any other change, to combine changes: at most about five pictures a second per node."""
FIGURES_FIRST_S = 2.0
"""How long the runner, the containers and the engines wait for a connection's first sample: on a starved host, where
none may come, they are still opened while the connection is young."""


class _WatchedNode:
    """One node's supervisor, state and followers, wired together."""

    def __init__(
        self,
        connector: Connector,
        book: NodeState,
        *,
        interval_s: float,
        log_rules: LogRules,
        connections: Connections | None,
        forwards: Forwards,
        docker_socket: str,
    ) -> None:
        self.book = book
        self._forwards = forwards
        self._name = connector.name
        self._connections = connections
        self._transport: Transport | None = None
        self._later: asyncio.TimerHandle | None = None
        """Set from a connection's opening until it is followed."""
        self.followers = Followers(book, rules=log_rules, docker_socket=docker_socket)
        self.supervisor = Supervisor(
            connector,
            book,
            opened=self._opened,
            sampled=self._follow,
            closed=self._closed,
            interval_s=interval_s,
            docker_socket=docker_socket,
        )

    def _opened(self, transport: Transport) -> None:
        self.book.connection(transport.host_key_fingerprint, transport.warnings)
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
            self._connections.opened(self._name, self._transport, self.book.fault)
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
        interventions: Callable[[], tuple[Intervention, ...]] = tuple,
    ) -> None:
        """`rules` are the live rules; by default all that are shipped. `log_rules` loads the log rules, called in a
        thread when they are first needed.

        `baselines` is the file of learned baselines; without one they are lost at exit. `remarks` are notices by
        sparktop itself, added to each picture. `connections` is notified of each connection. `docker_sockets`: node ->
        socket path, for nodes whose Docker Engine doesn't listen at the default one. `interventions` returns what
        sparktop consoles have stopped.
        """
        self._clock = SystemClock()
        self._publish = publish
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._nodes: dict[str, _WatchedNode] = {}
        self._baselines = BaselineFile(baselines)
        self._remarks = remarks
        self._interventions = interventions
        self._contained = Contained(self._clock)
        self._findings: tuple[Finding, ...] = ()
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
            self._nodes[connector.name] = _WatchedNode(
                connector,
                book,
                interval_s=interval_s,
                log_rules=log_rules,
                connections=connections,
                forwards=self._forwards,
                docker_socket=docker_sockets.get(connector.name, ""),
            )
        self._diagnosis = Diagnosis(live_rules() if rules is None else rules, faulted=faults.named)
        self._state = self._picture()

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
                for line in self._nodes.values():
                    group.create_task(self._watch_node(line))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._forwards.aclose()
            for line in self._nodes.values():
                await line.followers.aclose()
            self._baselines.write()

    async def _read_ahead(self) -> None:
        try:
            await in_thread(read_ahead)
        except Exception as error:  # noqa: BLE001 - what could not be read ahead is read when it is needed
            self._contained.add("", "the rules' knowledge", error)

    async def _watch_node(self, line: _WatchedNode) -> None:
        """Watch one node until cancelled; after a fault, again from the connection on."""
        while True:
            try:
                return await line.supervisor.run()
            except Exception as error:  # noqa: BLE001 - the other node is watched all the same
                line.book.link(LinkState.LOST, faults.named(f"{line.book.name}'s connection", error))
            await asyncio.sleep(AFTER_FAULT_S)

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log."""
        line = self._nodes.get(node)
        return line.followers.feed(engine_key) if line else None

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log, line by line."""
        return self._nodes[node].book.kernel_lines

    def set_interval(self, seconds: float) -> None:
        """Set the sample interval of all probes."""
        self._interval_s = seconds
        for line in self._nodes.values():
            line.supervisor.set_interval(seconds)

    def retry_now(self, node: str) -> None:
        """End a node's back-off early."""
        if line := self._nodes.get(node):
            line.supervisor.retry_now()

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
        line = self._nodes.get(node)
        return line is not None and line.supervisor.tell(words)

    def _changed(self, urgent: bool) -> None:
        """Schedule a publication: soon after a sample, else once changes have gathered."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # nobody listens before the event loop runs
        due_s = loop.time() + (URGENT_DELAY_S if urgent else COALESCE_S)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s = due_s
        self._timer = loop.call_at(due_s, self._publish_now)

    def _publish_now(self) -> None:
        self._timer = None
        self._state = self._picture()
        try:
            self._publish(self._state)
        except Exception as error:  # noqa: BLE001 - the next picture may be shown
            self._contained.add("", "the picture", error)

    def _picture(self) -> FleetState:
        views = tuple(line.book.view() for line in self._nodes.values())
        own = self._contained
        nothing: tuple[Notice, ...] = ()
        unread: tuple[Intervention, ...] = ()
        interventions = own.outcome("", "the audit", self._interventions, unread)
        nodes = with_likely_hints(views, interventions)
        observed = own.outcome("", "the notices", lambda: notices(nodes, interventions), nothing)
        picture = FleetState(
            nodes=nodes,
            wall_s=self._clock.wall(),
            monotonic_s=self._clock.monotonic(),
            notices=observed,
            findings=self._findings,
            interventions=interventions,
            forwards=self._forwards.shown,
        )
        self._findings = own.outcome("", "the rules", lambda: self._diagnosis.update(picture), self._findings)
        return replace(
            picture,
            findings=self._findings,
            rules_watching=self._diagnosis.watching,
            notices=(*observed, *self._remarks, *own.notices()),
        )
