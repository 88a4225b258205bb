"""The observing side as one thing: a supervisor and a book for each node, and one picture of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from sparktop.clock import Clock, SystemClock
from sparktop.diagnose.catalogue import live_rules, read_ahead
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.logs.rules import LogRule, shipped
from sparktop.diagnose.rule import LiveRule
from sparktop.model.fleet import FleetState, Notice
from sparktop.observe.baseline import BaselineFile
from sparktop.observe.book import NodeBook
from sparktop.observe.followers import Followers
from sparktop.observe.lines import LineRing
from sparktop.observe.notices import notices
from sparktop.observe.supervisor import Supervisor
from sparktop.observe.watch import Connections, LogFeed, Publish
from sparktop.transport.base import Connector, Transport
from sparktop.transport.threads import in_thread

LogRules = Callable[[], Sequence[LogRule]]

URGENT_DELAY_S = 0.006
"""After a sample: the GPU's reading of the same tick comes some milliseconds later and shares the picture."""
COALESCE_S = 0.25
"""Everything else waits for company; a picture is published at most some five times a second a node."""


class _Line:
    """One node's supervisor, book and followers, wired together."""

    def __init__(
        self,
        connector: Connector,
        book: NodeBook,
        *,
        clock: Clock,
        interval_s: float,
        log_rules: LogRules,
        connections: Connections | None,
        docker_socket: str,
    ) -> None:
        self.book = book
        self._name = connector.name
        self._connections = connections
        self.followers = Followers(book, clock=clock, rules=log_rules, docker_socket=docker_socket)
        self.supervisor = Supervisor(connector, self, clock=clock, interval_s=interval_s, docker_socket=docker_socket)
        self.link = book.link
        self.message = book.message
        self.last_sample_arrived_s = book.last_sample_arrived_s

    def opened(self, transport: Transport) -> None:
        self.book.connection(transport.host_key_fingerprint, transport.warnings)
        if self._connections is not None:
            self._connections.opened(self._name, transport)
        self.followers.start(transport)

    def closed(self) -> None:
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
        clock: Clock | None = None,
        interval_s: float = 1.0,
        rules: Sequence[LiveRule] | None = None,
        log_rules: LogRules = shipped,
        baselines: Path | None = None,
        remarks: tuple[Notice, ...] = (),
        connections: Connections | None = None,
        docker_sockets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`rules` are the live rules to watch with; else all of ours. `log_rules` reads what engines' logs are read
        for, and is called in a thread when it is time.

        `baselines` is the file in which machines' normals are kept; without one they are forgotten at the end.
        `remarks` are sparktop's own, and stand among each picture's notices. `connections` has a share of each
        connection. `docker_sockets` are those of nodes whose Docker Engine listens elsewhere than usual.
        """
        self._clock = clock or SystemClock()
        self._publish = publish
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._lines: dict[str, _Line] = {}
        self._normals = BaselineFile(baselines)
        self._remarks = remarks
        for connector in connectors:
            book = NodeBook(connector.name, clock=self._clock, changed=self._changed, baselines=self._normals)
            self._lines[connector.name] = _Line(
                connector,
                book,
                clock=self._clock,
                interval_s=interval_s,
                log_rules=log_rules,
                connections=connections,
                docker_socket=docker_sockets.get(connector.name, ""),
            )
        self._diagnosis = Diagnosis(live_rules() if rules is None else rules)
        self._state = self._picture()

    @property
    def state(self) -> FleetState:
        """The newest picture."""
        return self._state

    @property
    def interval_s(self) -> float:
        return self._interval_s

    async def run(self) -> None:
        """Watch every node until cancelled, then leave nothing behind."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(in_thread(read_ahead))
                for line in self._lines.values():
                    group.create_task(line.supervisor.run())
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for line in self._lines.values():
                await line.followers.aclose()
            self._normals.write()

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log."""
        line = self._lines.get(node)
        return line.followers.feed(engine_key) if line else None

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log, unfolded."""
        return self._lines[node].book.kernel_lines

    def set_interval(self, seconds: float) -> None:
        """Ask all probes for another rate."""
        self._interval_s = seconds
        for line in self._lines.values():
            line.supervisor.set_interval(seconds)

    def retry_now(self, node: str) -> None:
        """Cut a node's back-off short."""
        if line := self._lines.get(node):
            line.supervisor.retry_now()

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Say something to a node's probe, unread; False while there is none."""
        line = self._lines.get(node)
        return line is not None and line.supervisor.tell(words)

    def _changed(self, urgent: bool) -> None:
        """Arrange a publication: soon after a sample, else when others have gathered."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # before the loop runs there is nobody to tell
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
        self._publish(self._state)

    def _picture(self) -> FleetState:
        nodes = tuple(line.book.view() for line in self._lines.values())
        fingerprints = {name: key for name, line in self._lines.items() if (key := line.book.fingerprint)}
        picture = FleetState(
            nodes=nodes,
            wall_s=self._clock.wall(),
            monotonic_s=self._clock.monotonic(),
            notices=(*notices(nodes, fingerprints=fingerprints), *self._remarks),
        )
        findings = self._diagnosis.update(picture)
        return replace(picture, findings=findings, rules_watching=self._diagnosis.watching)
