"""Follow a node's containers, engine endpoints and engine logs while a connection is open.

Each has its own task on the one connection, so that a hung Docker Engine or endpoint delays nothing else. What was read
is kept when the connection closes, and continued after a reconnect.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.diagnose.catalogue import read_ahead_for_engines
from sparktop.diagnose.ended_by import exit_code, failed
from sparktop.diagnose.logs.engine_state import resolve_state
from sparktop.diagnose.logs.reader import Lexicon, lexicon
from sparktop.diagnose.logs.rule import LogRule
from sparktop.engines.metrics import NotMetrics, parse
from sparktop.model.engine import (
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineRates,
    EngineState,
)
from sparktop.model.telemetry import Collector, CollectorState, LogLine
from sparktop.observe.discovery import MAX_ENGINES, discover
from sparktop.observe.engine_log import Feed, LogSource, log_source
from sparktop.observe.frames import FRAME_S
from sparktop.observe.node_state import NodeState
from sparktop.observe.rates import Scrapes, advance, has_requests
from sparktop.transport.base import Transport
from sparktop.transport.docker.engine import TAIL_LINES, DockerEngine
from sparktop.transport.docker.log_follower import FollowEnd, OnBatch
from sparktop.transport.endpoint import EndpointClient
from sparktop.transport.output_follower import follow_output
from sparktop.transport.threads import in_thread

CONTAINERS_EVERY_S = 3.0
ENGINES_EVERY_S = 1.0
METRICS_EVERY_S = 2.0
IDLE_EVERY_S = 15.0
"""Scrape interval of an endpoint that answers without figures, or of an engine that rests on a GPU that rests: each
scrape is a line in the engine's log."""
RESTS_S = 10.0
"""Without a request or a token for so long, an engine rests."""
WORKING_PERCENT = 5.0
"""GPU utilisation from which an engine may have got a request."""
FOLLOW_AGAIN_S = 1.0
AFTER_FAULT_S = 5.0
LAST_FEEDS_KEPT = 16
"""Logs of containers that are gone: a node may start one under a new name every second."""
STATISTICS_AGE_S = 30.0
WORKER_QUIET_S = 120.0
STRAINED_PERCENT = 20.0
"""PSI memory full avg10 above which a starved host is asked less often (docs/facts/reliability.md section 2.4)."""
STRAINED_EVERY_S = 15.0
_LEXICON_LOCK = threading.Lock()
_Target = tuple[str, LogSource | tuple[str, int]]
"""What is followed: of which engine, and where."""


class _Scraped:
    """What one engine's endpoint has answered so far."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.metrics: EngineMetrics | None = None
        self.rates: EngineRates | None = None
        self.version: str | None = None
        self.scrapes = Scrapes()


class Followers:
    """The followers of one node; started with each connection, stopped at its end."""

    def __init__(
        self,
        book: NodeState,
        *,
        rules: Callable[[], Sequence[LogRule]] = tuple,
        docker_socket: str = "",
    ) -> None:
        """`rules` loads the log rules; called in a thread, once the node has an engine."""
        self._book = book
        self._docker_socket = docker_socket
        self._rules = rules
        self._lexicon: Lexicon | None = None
        self._running: asyncio.Task[None] | None = None
        self._cancelled: set[asyncio.Task[None]] = set()
        self._engines: tuple[Engine, ...] = ()
        self._has_looked = False
        self._feeds: dict[str, Feed] = {}
        self._names: dict[str, str] = {}
        """Engine's key -> its name when it was first seen: a relaunch renames the old container."""
        self._last_feeds: dict[str, Feed] = {}
        """Engine's name -> the log of its last container that is gone."""
        self._scraped: dict[str, _Scraped] = {}

    def start(self, transport: Transport) -> None:
        """Start following over this connection."""
        self._running = asyncio.create_task(self._run(transport))
        self._running.add_done_callback(self._report_failure)

    def _report_failure(self, task: asyncio.Task[None]) -> None:
        """Report a fault that ended the followers in the node's pane; samples go on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            detail = self._book.fault("containers and engines", error)
            self._book.message(
                Collector(name="engines", state=CollectorState.FAILED, detail=detail), self._book.clock.monotonic()
            )

    async def _contained(self, where: str, follow: Callable[[], Awaitable[None]]) -> None:
        """Run one follower to its end; after a fault again, so that it costs the others nothing."""
        while True:
            try:
                return await follow()
            except Exception as error:  # noqa: BLE001 - an engine's data must not end what follows the others
                self._book.fault(where, error)
            await asyncio.sleep(AFTER_FAULT_S)

    def stop(self) -> None:
        """Stop following: the connection is closed or about to be."""
        task, self._running = self._running, None
        if task is not None:
            task.cancel()
            self._cancelled.add(task)
            task.add_done_callback(self._cancelled.discard)

    async def aclose(self) -> None:
        """Stop, and wait until the tasks have ended."""
        self.stop()
        await asyncio.gather(*self._cancelled, return_exceptions=True)

    def feed(self, engine_key: str) -> Feed | None:
        """The log of an engine; None for one never seen."""
        feed = self._feeds.get(engine_key)
        if feed is not None:
            feed.previous = self._earlier_feed(engine_key)
        return feed

    def _earlier_feed(self, key: str) -> Feed | None:
        """The log of the container that had this engine's name before: kept beside it, or gone."""
        name = self._names[key]
        keys = list(self._names)
        others = [other for other in keys[: keys.index(key)] if self._names[other] == name]
        return self._feeds[others[-1]] if others else self._last_feeds.get(name)

    async def _run(self, transport: Transport) -> None:
        docker = DockerEngine(transport, socket_path=self._docker_socket)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._contained("containers", lambda: self._follow_containers(docker)))
                group.create_task(self._follow_engines(transport, docker, group))
        finally:
            await docker.close()

    async def _follow_containers(self, docker: DockerEngine) -> None:
        while True:
            asked_s = self._book.clock.monotonic()
            self._book.containers(await docker.list(), asked_s)
            await self._rest(CONTAINERS_EVERY_S)

    async def _rest(self, seconds: float) -> None:
        strained = self._book.memory_stall_percent > STRAINED_PERCENT
        await asyncio.sleep(STRAINED_EVERY_S if strained else seconds)

    def _engine(self, key: str) -> Engine | None:
        return next((engine for engine in self._engines if engine.key == key), None)

    async def _follow_engines(self, transport: Transport, docker: DockerEngine, group: asyncio.TaskGroup) -> None:
        """Discover engines, start a follower for each new endpoint and log, and publish the engines."""
        tasks: dict[_Target, asyncio.Task[None]] = {}
        while self._book.wall_s is None:  # noqa: ASYNC110 - asked of the picture, which changes as a whole
            await asyncio.sleep(ENGINES_EVERY_S / 10)
        while True:
            try:
                if self._lexicon is None and self._discovered():
                    await in_thread(self._load_lexicon)  # several hundred rules: not on the event loop
                self._discover()
            except Exception as error:  # noqa: BLE001 - the engines known so far are followed on
                self._book.fault("engines", error)
            targets = _targets(self._engines)
            for target in tasks.keys() - targets.keys():
                tasks.pop(target).cancel()
            for target in targets.keys() - tasks.keys():
                engine, source = targets[target], target[1]
                if isinstance(source, LogSource):
                    log = partial(self._follow_log, transport, docker, engine.key, source)
                    tasks[target] = group.create_task(self._contained(f"log of {engine.name}", log))
                else:
                    scrape = partial(self._follow_endpoint, transport, source, engine.key)
                    tasks[target] = group.create_task(self._contained(f"endpoint of {engine.name}", scrape))
            await asyncio.sleep(ENGINES_EVERY_S)

    def _discovered(self) -> tuple[Engine, ...]:
        """The node's engines now, without what their endpoints and logs report."""
        book = self._book
        if book.wall_s is None:
            return ()
        engines = discover(
            book.process_table, book.gpu_reading, book.known_containers, self._engines, node_wall_s=book.wall_s
        )
        if len(engines) > MAX_ENGINES:
            detail = f"more than {MAX_ENGINES} engines are seen here: only so many are followed"
            book.message(Collector(name="engines", state=CollectorState.FAILED, detail=detail), book.clock.monotonic())
        return engines[:MAX_ENGINES]

    def _discover(self) -> None:
        book = self._book
        if book.wall_s is None:
            return
        has_looked = book.can_look_for_engines
        discovered = self._discovered()
        for key in self._feeds.keys() - {engine.key for engine in discovered}:
            name = self._names.pop(key)
            self._last_feeds.pop(name, None)  # put back as the newest
            gone = self._last_feeds[name] = self._feeds.pop(key)
            gone.previous = None
            if len(self._last_feeds) > LAST_FEEDS_KEPT:
                del self._last_feeds[next(iter(self._last_feeds))]
            self._scraped.pop(key, None)
        for engine in discovered:
            title = f"{engine.name} @ {book.name}"
            if engine.key not in self._feeds:
                self._feeds[engine.key] = Feed(title, engine.kind, self._load_lexicon())
                self._names[engine.key] = engine.name
            self._feeds[engine.key].title = title  # its container's name is known some seconds after its process
            self._feeds[engine.key].name(engine)
            if engine.container is not None:
                self._feeds[engine.key].begin(engine.container.started_wall_s)
            before = self._engine(engine.key)
            is_other_run = before is not None and bool(before.pids) and not set(before.pids) & set(engine.pids)
            if is_other_run or engine.state is EngineState.EXITED:
                self._scraped.pop(engine.key, None)  # figures of an earlier run are none of this one
        engines = tuple(self._with_observations(engine) for engine in discovered)
        if engines != self._engines or (has_looked and not self._has_looked):
            self._engines, self._has_looked = engines, has_looked
            book.engines(engines, has_looked=has_looked)

    def _load_lexicon(self) -> Lexicon:
        if self._lexicon is None:
            with _LEXICON_LOCK:  # loaded once for all nodes, even when they start together
                read_ahead_for_engines()
                self._lexicon = lexicon(tuple(self._rules()))
        return self._lexicon

    def _with_observations(self, engine: Engine) -> Engine:
        """The engine with what its endpoint and its log have reported."""
        feed = self._feeds[engine.key]
        log_state = feed.said
        scraped = self._scraped.get(engine.key)
        if scraped is not None and scraped.endpoint is not None and engine.state is not EngineState.EXITED:
            engine = replace(
                engine,
                endpoint=scraped.endpoint,
                metrics=scraped.metrics,
                rates=scraped.rates,
                model=engine.model or (scraped.metrics.model if scraped.metrics else None),
                version=scraped.version or engine.version,
            )
        state, progress = resolve_state(engine, log_state, self._book.wall_s)
        if self._is_quiet_worker(engine, state):
            state, progress = EngineState.UNKNOWN, None
        version = log_state.version or engine.version
        facts = feed.facts(is_restarted=bool(engine.restarts))
        engine = replace(engine, state=state, progress=progress, version=version, log=facts)
        code = exit_code(engine)
        if state is EngineState.EXITED and (code == 0 or engine.container is None) and failed(engine):
            how = "failed, by its log" + " (exit code 0)" * (code == 0)
            engine = replace(engine, exit_detail=how)
        if state is not EngineState.EXITED and engine.metrics is None:
            engine = self._with_log_statistics(engine)
        return engine

    def _is_quiet_worker(self, engine: Engine, state: EngineState) -> bool:
        """Whether a rank without a server has been silent for long: it never logs that it is ready, so "loading"
        would stay for hours."""
        log_state, now_s = self._feeds[engine.key].said, self._book.wall_s
        if engine.endpoint is not None or state not in (EngineState.LOADING, EngineState.STARTING):
            return False
        complete = log_state.progress is None or log_state.progress.done >= log_state.progress.total
        return complete and now_s is not None and now_s - (log_state.moved_wall_s or 0.0) > WORKER_QUIET_S

    def _with_log_statistics(self, engine: Engine) -> Engine:
        """The engine with figures of its last statistics line, for engines without an endpoint."""
        log_state = self._feeds[engine.key].said
        statistics, written_s, now_s = log_state.statistics, log_state.statistics_wall_s, self._book.wall_s
        if statistics is None or written_s is None or now_s is None or now_s - written_s > STATISTICS_AGE_S:
            return engine
        return replace(
            engine,
            metrics=EngineMetrics(
                wall_s=self._book.clock.wall(), running=statistics.running, waiting=statistics.waiting
            ),
            rates=EngineRates(
                prompt_tokens_per_s=statistics.prompt_tokens_per_s,
                generation_tokens_per_s=statistics.generation_tokens_per_s,
            ),
        )

    async def _follow_endpoint(self, transport: Transport, address: tuple[str, int], key: str) -> None:
        """Scrape one engine's endpoint until cancelled."""
        client = EndpointClient(transport, *address)
        try:
            while (engine := self._engine(key)) is not None and engine.endpoint is not None:
                scraped = self._scraped.setdefault(key, _Scraped())
                is_useful = await self._scrape(client, engine, engine.endpoint, scraped)
                next_s = self._book.clock.monotonic() + IDLE_EVERY_S
                await self._rest(METRICS_EVERY_S)
                while self._book.clock.monotonic() < next_s and (not is_useful or self._rests(scraped)):
                    await self._rest(METRICS_EVERY_S)
        finally:
            await client.aclose()

    def _rests(self, scraped: _Scraped) -> bool:
        """Whether an engine has nothing to do, by its figures and by the GPU."""
        reading = self._book.gpu_reading
        is_gpu_at_work = any(
            (gpu.utilisation_percent or 0.0) >= WORKING_PERCENT for gpu in (reading.gpus if reading else ())
        )
        if is_gpu_at_work or scraped.metrics is None or scraped.rates is None:
            return False
        return not has_requests(scraped.metrics) and (scraped.rates.progress_age_s or 0.0) >= RESTS_S

    async def _scrape(self, client: EndpointClient, engine: Engine, endpoint: Endpoint, scraped: _Scraped) -> bool:
        """Scrape once; False where frequent scrapes are useless."""
        reply = await client.get("/metrics")
        state, detail = reply.state, reply.detail
        metrics: EngineMetrics | None = None
        if state is EndpointState.OK:
            parsed = parse(reply.body, engine.kind, self._book.clock.wall())
            if isinstance(parsed, NotMetrics):
                state, detail = parsed.state, parsed.reason
            else:
                metrics = parsed
        scraped.endpoint = replace(endpoint, state=state, detail=detail)
        if metrics is not None:
            scraped.metrics = metrics
            scraped.scrapes, scraped.rates = advance(scraped.scrapes, metrics)
            if scraped.version is None and engine.kind is EngineKind.VLLM:
                scraped.version = _version((await client.get("/version")).body)
        elif state is not EndpointState.TIMED_OUT:
            # A slow answer keeps the last figures with their time; any other answer clears them.
            scraped.metrics, scraped.rates, scraped.scrapes = None, None, Scrapes()
        return state in (EndpointState.OK, EndpointState.REFUSED, EndpointState.TIMED_OUT)

    async def _follow_log(self, transport: Transport, docker: DockerEngine, key: str, source: LogSource) -> None:
        """Follow one engine's log until cancelled, across container restarts and broken streams."""
        feed = self._feeds[key]
        feed.status = source.words
        if source.container_id is None and source.pid is None:
            return
        resumed_from_s = _newest_wall_s(feed)
        if resumed_from_s is not None:
            feed.note("connection restored; going on from here", self._book.clock.wall())

        def take(lines: tuple[LogLine, ...]) -> bool:
            is_read = False
            try:
                is_read = feed.accept(lines, self._book.wall_s)
            except Exception as error:  # noqa: BLE001 - the next lines are read
                self._book.fault(f"log lines of {feed.title}", error)
            if lines and not is_read:
                read_on()
            return is_read

        def read_on() -> None:
            """Read the rest between what else the loop has to do: keys are answered there."""
            if not take(()):
                asyncio.get_running_loop().call_later(FRAME_S, read_on)

        if source.container_id is None:
            end = await self._follow_process(transport, key, source.pid or 0, resumed_from_s, take)
            feed.status = f"{source.words} · {end.reason}"
            return
        while True:
            before_s = feed.started_s
            if source.path is not None:
                end = await docker.follow_file(source.container_id, source.path, on_batch=take)
            else:
                end = await docker.follow(source.container_id, on_batch=take, since=resumed_from_s)
            resumed_from_s = end.last_wall_s or resumed_from_s
            feed.status = f"{source.words} · {end.reason}"
            if end.ended:
                feed.note(end.reason, self._book.clock.wall())
                # listed seconds later: it may be of the run that was read to its end
                while feed.started_s == before_s or not feed.is_awaited:  # noqa: ASYNC110 - told with each list
                    await asyncio.sleep(FOLLOW_AGAIN_S)
            await asyncio.sleep(FOLLOW_AGAIN_S)
            feed.status = source.words

    async def _follow_process(
        self, transport: Transport, key: str, pid: int, since: float | None, take: OnBatch
    ) -> FollowEnd:
        """Follow what a process outside containers writes, from its start on or going on."""
        engine, table = self._engine(key), self._book.process_table
        cgroup = next((one.cgroup for one in table.processes if one.pid == pid), "") if table else ""
        if since is None:
            since = self._book.wall_of((engine and engine.started_boot_s) or 0.0) - 1.0
        feed = self._feeds[key]
        tail = 0 if feed.ring.end else TAIL_LINES
        learn = partial(setattr, feed, "command")
        return await follow_output(
            transport, pid, cgroup=cgroup, since=since, on_command=learn, on_batch=take, tail=tail
        )


def _targets(engines: Sequence[Engine]) -> dict[_Target, Engine]:
    """What is followed of these engines."""
    targets: dict[_Target, Engine] = {}
    for engine in engines:
        if engine.endpoint and engine.state is not EngineState.EXITED and _can_be_asked(engine):
            targets["ask " + engine.key, (engine.endpoint.host, engine.endpoint.port)] = engine
        targets["log " + engine.key, log_source(engine)] = engine
    return targets


def _newest_wall_s(feed: Feed) -> float | None:
    lines = feed.ring.slice(feed.ring.end - 50, feed.ring.end)
    return next((line.wall_s for line in reversed(lines) if line.wall_s is not None), None)


def _can_be_asked(engine: Engine) -> bool:
    """False where its figures are off: SGLang's are until it is started anew, vLLM's still tell its version."""
    is_off = engine.endpoint is not None and engine.endpoint.state is EndpointState.NO_METRICS
    return not (is_off and engine.kind is EngineKind.SGLANG)


def _version(body: bytes) -> str | None:
    try:
        answer = json_of(body)
    except ValueError:
        return None
    version = answer.get("version") if isinstance(answer, dict) else None
    return sanitise.name(version) if isinstance(version, str) else None
