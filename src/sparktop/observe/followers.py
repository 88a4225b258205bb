"""What follows a node beside its probe, while a connection stands: containers, engines' endpoints, engines' logs.

Each is a task of its own on the one connection, so that a hung Docker Engine or endpoint holds up nothing else.
What was learned stays when the connection goes, and is followed on from there when it returns.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop import sanitise
from sparktop.clock import Clock
from sparktop.diagnose.enginelog import resolve_state
from sparktop.diagnose.logs.reader import Lexicon, lexicon
from sparktop.diagnose.logs.rules import LogRule
from sparktop.model.engine import (
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineRates,
    EngineState,
)
from sparktop.model.telemetry import Collector, CollectorState
from sparktop.observe.book import NodeBook
from sparktop.observe.discovery import discover
from sparktop.observe.exposition import NotMetrics, parse
from sparktop.observe.feed import Feed
from sparktop.observe.logsource import LogSource, log_source
from sparktop.observe.rates import Scrapes, advance
from sparktop.probe.remote import mask_argv, mask_text
from sparktop.transport.base import Transport
from sparktop.transport.containers import DockerEngine
from sparktop.transport.dockerlog import LogBatch
from sparktop.transport.http import EndpointClient
from sparktop.transport.threads import in_thread

CONTAINERS_EVERY_S = 3.0
ENGINES_EVERY_S = 1.0
METRICS_EVERY_S = 2.0
NO_FIGURES_EVERY_S = 15.0
"""For an endpoint that answered, and not with figures."""
FOLLOW_AGAIN_S = 1.0
STATISTICS_AGE_S = 30.0
WORKER_QUIET_S = 120.0
STRAINED_PERCENT = 20.0
"""PSI memory full avg10 above which a dying host is left in peace (facts/reliability.md section 2.4)."""
STRAINED_EVERY_S = 15.0
_READING = threading.Lock()


class _Learned:
    """What one engine's own endpoint has told so far."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.metrics: EngineMetrics | None = None
        self.rates: EngineRates | None = None
        self.version: str | None = None
        self.scrapes = Scrapes()


class Followers:
    """The followers of one node; started with each connection, stopped with its end."""

    def __init__(
        self,
        book: NodeBook,
        *,
        clock: Clock,
        rules: Callable[[], Sequence[LogRule]] = tuple,
        docker_socket: str = "",
    ) -> None:
        """`rules` reads what the engines' logs are read for; called in a thread, once the node sends samples."""
        self._book = book
        self._docker_places = {"socket_path": docker_socket} if docker_socket else {}
        self._rules = rules
        self._lexicon: Lexicon | None = None
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._engines: tuple[Engine, ...] = ()
        self._feeds: dict[str, Feed] = {}
        self._learned: dict[str, _Learned] = {}

    def start(self, transport: Transport) -> None:
        """Follow over this connection."""
        self._running = asyncio.create_task(self._run(transport))
        self._running.add_done_callback(self._say_failure)

    def _say_failure(self, task: asyncio.Task[None]) -> None:
        """A mistake of ours here must not end in silence: the node's pane names it, the samples go on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
            detail = sanitise.line(f"following containers and engines failed: {cause!r}", limit=300)
            self._book.message(
                Collector(name="engines", state=CollectorState.FAILED, detail=detail), self._clock.monotonic()
            )

    def stop(self) -> None:
        """The connection is gone, or about to be."""
        task, self._running = self._running, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Stop, and wait for it."""
        self.stop()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def feed(self, engine_key: str) -> Feed | None:
        """The log of an engine; None for one never seen."""
        return self._feeds.get(engine_key)

    async def _run(self, transport: Transport) -> None:
        docker = DockerEngine(transport, mask=mask_argv, mask_text=mask_text, **self._docker_places)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_containers(docker))
                group.create_task(self._follow_engines(transport, docker, group))
        finally:
            await docker.close()

    async def _follow_containers(self, docker: DockerEngine) -> None:
        while True:
            self._book.containers(await docker.list())
            strained = self._book.memory_stall_percent > STRAINED_PERCENT
            await asyncio.sleep(STRAINED_EVERY_S if strained else CONTAINERS_EVERY_S)

    async def _follow_engines(self, transport: Transport, docker: DockerEngine, group: asyncio.TaskGroup) -> None:
        """Discover engines, start a follower for each new endpoint and log, and publish what is known of them."""
        tasks: dict[tuple[str, object], asyncio.Task[None]] = {}
        while self._book.wall_s is None:  # noqa: ASYNC110 - asked of the picture, which changes as a whole
            await asyncio.sleep(ENGINES_EVERY_S / 10)
        # Several hundred rules: not before the first figures stand on the screen, and not on the loop.
        await in_thread(self._known)
        while True:
            self._discover()
            wanted: dict[tuple[str, object], Engine] = {}
            for engine in self._engines:
                if engine.endpoint and engine.state is not EngineState.EXITED and _can_be_asked(engine):
                    wanted["ask " + engine.key, (engine.endpoint.host, engine.endpoint.port)] = engine
                wanted["log " + engine.key, log_source(engine)] = engine
            for mark in tasks.keys() - wanted.keys():
                tasks.pop(mark).cancel()
            for mark in wanted.keys() - tasks.keys():
                engine, place = wanted[mark], mark[1]
                if isinstance(place, LogSource):
                    tasks[mark] = group.create_task(self._follow_log(docker, engine.key, place))
                else:
                    tasks[mark] = group.create_task(self._ask(transport, engine.key))
            await asyncio.sleep(ENGINES_EVERY_S)

    def _discover(self) -> None:
        book = self._book
        if book.wall_s is None:
            return
        found = discover(
            book.process_table, book.gpu_reading, book.known_containers, self._engines, node_wall_s=book.wall_s
        )
        for key in self._feeds.keys() - {engine.key for engine in found}:
            del self._feeds[key]
            self._learned.pop(key, None)
        for engine in found:
            if engine.key not in self._feeds:
                self._feeds[engine.key] = Feed(f"{engine.name} @ {book.name}", engine.kind, self._known())
        engines = tuple(self._told(engine) for engine in found)
        if engines != self._engines:
            self._engines = engines
            book.engines(engines)

    def _known(self) -> Lexicon:
        if self._lexicon is None:
            with _READING:  # for all nodes once, also where they come at the same time
                self._lexicon = lexicon(tuple(self._rules()))
        return self._lexicon

    def _told(self, engine: Engine) -> Engine:
        """An engine with what its endpoint and its log have said."""
        feed = self._feeds[engine.key]
        said = feed.said
        learned = self._learned.get(engine.key)
        if learned is not None and learned.endpoint is not None and engine.state is not EngineState.EXITED:
            engine = replace(
                engine,
                endpoint=learned.endpoint,
                metrics=learned.metrics,
                rates=learned.rates,
                model=engine.model or (learned.metrics.model if learned.metrics else None),
                version=learned.version or engine.version,
            )
        state, progress = resolve_state(engine, said, self._book.wall_s)
        if self._is_a_worker_gone_quiet(engine, state):
            state, progress = EngineState.UNKNOWN, None
        version = said.version or engine.version
        engine = replace(engine, state=state, progress=progress, version=version, log=feed.facts())
        if state is not EngineState.EXITED and engine.metrics is None:
            engine = self._by_its_log(engine)
        return engine

    def _is_a_worker_gone_quiet(self, engine: Engine, state: EngineState) -> bool:
        """A rank without a server never says that it is ready: what it last loaded is no state to show for hours."""
        said, now_s = self._feeds[engine.key].said, self._book.wall_s
        if engine.endpoint is not None or state not in (EngineState.LOADING, EngineState.STARTING):
            return False
        complete = said.progress is None or said.progress.done >= said.progress.total
        return complete and now_s is not None and now_s - (said.moved_wall_s or 0.0) > WORKER_QUIET_S

    def _by_its_log(self, engine: Engine) -> Engine:
        """The last statistics line, where there is no endpoint to ask."""
        said = self._feeds[engine.key].said
        statistics, written_s, now_s = said.statistics, said.statistics_wall_s, self._book.wall_s
        if statistics is None or written_s is None or now_s is None or now_s - written_s > STATISTICS_AGE_S:
            return engine
        return replace(
            engine,
            metrics=EngineMetrics(wall_s=self._clock.wall(), running=statistics.running, waiting=statistics.waiting),
            rates=EngineRates(
                prompt_tokens_per_s=statistics.prompt_tokens_per_s,
                generation_tokens_per_s=statistics.generation_tokens_per_s,
            ),
        )

    async def _ask(self, transport: Transport, key: str) -> None:
        """Scrape one engine's endpoint until cancelled."""
        learned = self._learned.setdefault(key, _Learned())
        client: EndpointClient | None = None
        try:
            while True:
                engine = next((engine for engine in self._engines if engine.key == key), None)
                if engine is None or engine.endpoint is None:
                    return
                if client is None:
                    client = EndpointClient(transport, engine.endpoint.host, engine.endpoint.port)
                good = await self._scrape(client, engine, learned)
                every_s = METRICS_EVERY_S if good else NO_FIGURES_EVERY_S
                strained = self._book.memory_stall_percent > STRAINED_PERCENT
                await asyncio.sleep(STRAINED_EVERY_S if strained else every_s)
        finally:
            if client is not None:
                await client.aclose()

    async def _scrape(self, client: EndpointClient, engine: Engine, learned: _Learned) -> bool:
        """Ask once; False where asking often is no use."""
        assert engine.endpoint is not None
        place = replace(engine.endpoint, state=EndpointState.NOT_ASKED, detail="")
        reply = await client.get("/metrics")
        state, detail = reply.state, reply.detail
        metrics: EngineMetrics | None = None
        if state is EndpointState.OK:
            parsed = parse(reply.body, engine.kind, self._clock.wall())
            if isinstance(parsed, NotMetrics):
                state, detail = parsed.state, parsed.reason
            else:
                metrics = parsed
        learned.endpoint = replace(place, state=state, detail=detail)
        if metrics is not None:
            learned.metrics = metrics
            learned.scrapes, learned.rates = advance(learned.scrapes, metrics)
            if learned.version is None and engine.kind is EngineKind.VLLM:
                learned.version = _version((await client.get("/version")).body)
        elif state is not EndpointState.TIMED_OUT:
            # A slow answer leaves the last figures standing with their time; any other answer ends them.
            learned.metrics, learned.rates, learned.scrapes = None, None, Scrapes()
        return state in (EndpointState.OK, EndpointState.REFUSED, EndpointState.TIMED_OUT)

    async def _follow_log(self, docker: DockerEngine, key: str, source: LogSource) -> None:
        """Follow one engine's log until cancelled; across restarts of its container and broken streams."""
        feed = self._feeds[key]
        feed.status = source.words
        if source.container_id is None:
            return
        resumed_from_s = _newest_wall_s(feed)
        if resumed_from_s is not None:
            feed.note("connection restored; going on from here", self._clock.wall())

        def take(batch: LogBatch) -> None:
            feed.accept(batch.lines, self._book.wall_s)

        while True:
            started_s = self._started_wall_s(key)

            if source.path is not None:
                end = await docker.follow_file(source.container_id, source.path, on_batch=take)
            else:
                end = await docker.follow(source.container_id, on_batch=take, since=resumed_from_s)
            resumed_from_s = end.last_wall_s or resumed_from_s
            feed.status = f"{source.words} · {end.reason}"
            if end.ended:
                feed.note(end.reason, self._clock.wall())
                await self._restart_of(key, started_s)
                feed.forget()
            feed.status = source.words
            await asyncio.sleep(FOLLOW_AGAIN_S)

    async def _restart_of(self, key: str, started_s: float | None) -> None:
        while self._started_wall_s(key) == started_s:  # noqa: ASYNC110 - asked of the picture, which changes as a whole
            await asyncio.sleep(FOLLOW_AGAIN_S)

    def _started_wall_s(self, key: str) -> float | None:
        engine = next((engine for engine in self._engines if engine.key == key), None)
        return engine.container.started_wall_s if engine and engine.container else None


def _newest_wall_s(feed: Feed) -> float | None:
    lines = feed.ring.slice(feed.ring.end - 50, feed.ring.end)
    return next((line.wall_s for line in reversed(lines) if line.wall_s is not None), None)


def _can_be_asked(engine: Engine) -> bool:
    """False where the engine's own command says that it has no figures to give."""
    return engine.endpoint is not None and not (
        engine.endpoint.state is EndpointState.NO_METRICS and "--enable-metrics" in engine.endpoint.detail
    )


def _version(body: bytes) -> str | None:
    try:
        told = json.loads(body)
    except ValueError:
        return None
    version = told.get("version") if isinstance(told, dict) else None
    return sanitise.name(version) if isinstance(version, str) else None
