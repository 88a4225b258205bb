"""Follow a node's containers, engine endpoints and engine logs while a connection is open.

Each has its own task on the one connection, so that a hung Docker Engine or endpoint delays nothing else. What was read
is kept when the connection closes, and continued after a reconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from sparktop.diagnose.logs.routine import tells_nothing
from sparktop.engines.metrics import NotMetrics, parse, paths_of, text_in, without_figures
from sparktop.model.engine import EndpointState, Engine, EngineMetrics, EngineState
from sparktop.model.telemetry import Collector, CollectorState, GapReason, LogLine
from sparktop.observe.engines.engine_book import late
from sparktop.observe.engines.engine_log import Feed, LogSource, log_source, note
from sparktop.observe.frames import FRAME_S
from sparktop.observe.intake import Intake
from sparktop.observe.received import Canaried, Followed, Listed, Logged, Looked, Scraped
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
FOLLOW_AGAIN_S = 1.0
AFTER_FAULT_S = 5.0
STRAINED_PERCENT = 20.0
"""PSI memory full avg10 above which a starved host is asked less often (docs/facts/reliability.md section 2.4)."""
STRAINED_EVERY_S = 15.0
_Target = tuple[str, LogSource | tuple[str, int]]
"""What is followed: of which engine, and where."""


class Followers:
    """The followers of one node; started with each connection, stopped at its end."""

    def __init__(self, intake: Intake, *, docker_socket: str = "", canary_every_s: float = 0.0) -> None:
        """`canary_every_s`: how often an engine at rest is asked a question; 0: never."""
        self._intake = intake
        self._canary_every_s = canary_every_s
        self._book = intake.state
        self._engines = intake.engines
        self._docker_socket = docker_socket
        self._running: asyncio.Task[None] | None = None
        self._cancelled: set[asyncio.Task[None]] = set()

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

    async def _run(self, transport: Transport) -> None:
        docker = DockerEngine(transport, socket_path=self._docker_socket)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._contained("containers", lambda: self._follow_containers(docker)))
                group.create_task(self._follow_engines(transport, docker, group))
                if self._canary_every_s:
                    group.create_task(self._contained("canary", lambda: self._ask_canaries(transport)))
        finally:
            await docker.close()

    async def _follow_containers(self, docker: DockerEngine) -> None:
        while True:
            asked_s = self._book.clock.monotonic()
            containers = await docker.list()
            self._intake.take(Listed(containers=containers, age_s=self._book.clock.monotonic() - asked_s))
            await self._rest(CONTAINERS_EVERY_S)

    async def _rest(self, seconds: float) -> None:
        strained = self._book.memory_stall_percent > STRAINED_PERCENT
        await asyncio.sleep(STRAINED_EVERY_S if strained else seconds)

    async def _follow_engines(self, transport: Transport, docker: DockerEngine, group: asyncio.TaskGroup) -> None:
        """Discover engines, start a follower for each new endpoint and log, and publish the engines."""
        tasks: dict[_Target, asyncio.Task[None]] = {}
        while self._book.wall_s is None:  # noqa: ASYNC110 - asked of the picture, which changes as a whole
            await asyncio.sleep(ENGINES_EVERY_S / 10)
        while True:
            try:
                if self._engines.wants_lexicon:
                    await in_thread(self._engines.load_lexicon)  # several hundred rules: not on the event loop
                self._intake.take(Looked())
            except Exception as error:  # noqa: BLE001 - the engines known so far are followed on
                self._book.fault("engines", error)
            targets = _targets(self._engines.engines)
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

    async def _follow_endpoint(self, transport: Transport, address: tuple[str, int], key: str) -> None:
        """Scrape one engine's endpoint until cancelled."""
        asked = self._engines.engine(key)
        client = EndpointClient(transport, *address, asks=asked.kind.traits.asks if asked else {})
        try:
            while (engine := self._engines.engine(key)) is not None and engine.endpoint is not None:
                is_useful = self._intake.take(await self._scrape(client, engine))
                next_s = self._book.clock.monotonic() + IDLE_EVERY_S
                await self._rest(METRICS_EVERY_S)
                while self._book.clock.monotonic() < next_s and (not is_useful or self._engines.rests(key)):
                    await self._rest(METRICS_EVERY_S)
        finally:
            await client.aclose()

    async def _ask_canaries(self, transport: Transport) -> None:
        """Ask each engine that rests a question with one right answer, in turn, until cancelled."""
        from sparktop.observe.engines.canary import canary, due  # for those who want one

        while True:
            await asyncio.sleep(ENGINES_EVERY_S)
            for engine in self._engines.engines:
                proof = due(engine, self._canary_every_s, self._book.clock.wall())
                if proof is not None and self._engines.rests(engine.key):
                    answer = await canary(transport, engine, proof, self._book.clock)
                    self._intake.take(Canaried(key=engine.key, canary=answer))

    async def _scrape(self, client: EndpointClient, engine: Engine) -> Scraped:
        """Scrape once: what each path that its figures come from answers."""
        kind, wall_s = engine.kind, self._book.clock.wall()
        detail, failed = engine.command.metrics_off, None
        bodies: dict[str, bytes] = {}
        for path in paths_of(kind)[1 if detail and len(paths_of(kind)) > 1 else 0 :]:
            reply = await client.get(path)
            if reply.state is EndpointState.OK:
                bodies[path] = reply.body
                continue
            failed = failed or reply
            if reply.needs_key or reply.state not in (EndpointState.NOT_METRICS, EndpointState.NO_METRICS):
                break
        detail = detail or (failed.detail if failed else "")
        if not bodies:
            is_other = failed is None or failed.state in (EndpointState.NOT_METRICS, EndpointState.NO_METRICS)
            health = await client.get(kind.traits.health) if is_other and kind.traits.health else None
            if health is None or health.state is not EndpointState.OK:
                answer = failed or health
                assert answer is not None, f"{kind} has neither figures nor health"
                return Scraped(key=engine.key, state=answer.state, detail=answer.detail)
            why = GapReason.NO_PERMISSION if failed and failed.needs_key else GapReason.NOT_SUPPORTED
            parsed: EngineMetrics | NotMetrics = without_figures(wall_s, why)
        else:
            others = {path: body for path, body in bodies.items() if path != kind.traits.metrics_path}
            parsed = parse(bodies.get(kind.traits.metrics_path, b""), kind, wall_s, others)
        if isinstance(parsed, NotMetrics):
            return Scraped(key=engine.key, state=parsed.state, detail=parsed.reason)
        texts = await self._texts(client, engine, bodies)
        parsed = replace(parsed, model=parsed.model or texts.get("model"))
        state, version = EndpointState.OK, texts.get("version")
        return Scraped(key=engine.key, state=state, detail=detail, metrics=parsed, version=version)

    async def _texts(self, client: EndpointClient, engine: Engine, bodies: dict[str, bytes]) -> dict[str, str | None]:
        """What it says of itself: in the answers at hand, else asked until its version is known."""
        texts: dict[str, str | None] = {}
        for name, source in engine.kind.traits.texts.items():
            path, _, keys = source.partition(" ")
            if path not in bodies and not self._engines.knows_version(engine.key):
                bodies[path] = (await client.get(path)).body
            texts[name] = text_in(bodies.get(path, b""), keys)
        return texts

    async def _follow_log(self, transport: Transport, docker: DockerEngine, key: str, source: LogSource) -> None:
        """Follow one engine's log until cancelled, across container restarts and broken streams."""
        feed = self._engines.feed(key)
        if feed is None:
            return
        say = partial(Followed, key=key)
        self._intake.take(say(status=source.words))
        if source.container_id is None and source.pid is None:
            return

        def take(lines: tuple[LogLine, ...]) -> bool:
            is_read = False
            try:
                is_read = self._intake.take(Logged(key=key, lines=lines)) if lines else self._engines.logged(key, ())
            except Exception as error:  # noqa: BLE001 - the next lines are read
                self._book.fault(f"log lines of {feed.title}", error)
            if lines and not is_read:
                read_on()
            return is_read

        def read_on() -> None:
            """Read the rest between what else the loop has to do: keys are answered there."""
            if not take(()):
                asyncio.get_running_loop().call_later(FRAME_S, read_on)

        resumed_from_s = _newest_wall_s(feed)
        if resumed_from_s is not None:
            take((note("connection restored; going on from here", self._book.clock.wall()),))
        if source.container_id is None:
            end = await self._follow_process(transport, key, source, resumed_from_s, take)
            self._intake.take(say(status=f"{source.words} · {end.reason}"))
            return
        while True:
            before_s = feed.started_s
            if source.path is not None:
                end = await docker.follow_file(source.container_id, source.path, on_batch=take)
            else:
                end = await docker.follow(source.container_id, on_batch=take, since=resumed_from_s, skip=tells_nothing)
            resumed_from_s = end.last_wall_s or resumed_from_s
            self._intake.take(say(status=f"{source.words} · {end.reason}"))
            if end.ended:
                take((note(end.reason, self._book.clock.wall()),))
                # listed seconds later: it may be of the run that was read to its end
                while feed.started_s == before_s or not feed.is_awaited:  # noqa: ASYNC110 - told with each list
                    await asyncio.sleep(FOLLOW_AGAIN_S)
            await asyncio.sleep(FOLLOW_AGAIN_S)
            self._intake.take(say(status=source.words))

    async def _follow_process(
        self, transport: Transport, key: str, source: LogSource, since: float | None, take: OnBatch
    ) -> FollowEnd:
        """Follow what a process outside containers writes, from its start on or going on."""
        engine, table, pid = self._engines.engine(key), self._book.process_table, source.pid or 0
        cgroup = next((one.cgroup for one in table.processes if one.pid == pid), "") if table else ""
        if since is None:
            since = self._book.wall_of((engine and engine.started_boot_s) or 0.0) - 1.0
        feed = self._engines.feed(key)
        tail = 0 if feed is None or feed.ring.end else TAIL_LINES

        def learn(command: str) -> None:
            self._intake.take(Followed(key=key, status=source.words, command=command))

        return await follow_output(
            transport, pid, cgroup=cgroup, since=since, on_command=learn, on_batch=take, tail=tail
        )


def _targets(engines: Sequence[Engine]) -> dict[_Target, Engine]:
    """What is followed of these engines."""
    targets: dict[_Target, Engine] = {}
    behind = late(engines)
    for engine in engines:
        is_asked = engine.key not in behind and engine.state is not EngineState.EXITED and _can_be_asked(engine)
        if engine.endpoint and is_asked:
            targets["ask " + engine.key, (engine.endpoint.host, engine.endpoint.port)] = engine
        targets["log " + engine.key, log_source(engine)] = engine
    return targets


def _newest_wall_s(feed: Feed) -> float | None:
    lines = feed.ring.slice(feed.ring.end - 50, feed.ring.end)
    return next((line.wall_s for line in reversed(lines) if line.wall_s is not None), None)


def _can_be_asked(engine: Engine) -> bool:
    """False where its figures are off: SGLang's are until it is started anew, vLLM's still tell its version."""
    is_off = engine.endpoint is not None and engine.endpoint.state is EndpointState.NO_METRICS
    return not (is_off and engine.kind.traits.metrics_on)
