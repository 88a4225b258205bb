"""The engines of one node: found in its processes and containers, with what their endpoints and logs have reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktop.diagnose.catalogue import read_ahead_for_engines
from sparktop.diagnose.ended_by import exit_code, failed
from sparktop.diagnose.logs.engine_state import resolve_state
from sparktop.diagnose.logs.rule import LogRule
from sparktop.model.engine import (
    Endpoint,
    EndpointState,
    Engine,
    EngineMetrics,
    EngineRates,
    EngineState,
)
from sparktop.model.proof import Canary
from sparktop.model.telemetry import Collector, CollectorState, LogLine
from sparktop.observe.engines.discovery import MAX_ENGINES, discover
from sparktop.observe.engines.engine_log import Feed
from sparktop.observe.engines.rates import Scrapes, advance, has_requests
from sparktop.observe.node_state import NodeState

if TYPE_CHECKING:  # with the first engine
    from sparktop.diagnose.logs.reader import Lexicon

RESTS_S = 10.0
"""Without a request or a token for so long, an engine rests."""
WORKING_PERCENT = 5.0
"""GPU utilisation from which an engine may have got a request."""
LAST_FEEDS_KEPT = 16
"""Logs of containers that are gone: a node may start one under a new name every second."""
STATISTICS_AGE_S = 30.0
WORKER_QUIET_S = 120.0
CANARIES_KEPT = 12
_LEXICON_LOCK = threading.Lock()


class Figures:
    """What one engine's endpoint has answered so far."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.metrics: EngineMetrics | None = None
        self.rates: EngineRates | None = None
        self.version: str | None = None
        self.scrapes = Scrapes()
        self.canaries: tuple[Canary, ...] = ()


class EngineBook:
    """The mutable state of one node's engines; what changes of it goes into the node's."""

    def __init__(self, book: NodeState, *, rules: Callable[[], Sequence[LogRule]] = tuple) -> None:
        """`rules` loads the log rules; may be called in a thread, once the node has an engine."""
        self._book = book
        self._rules = rules
        self._lexicon: Lexicon | None = None
        self.engines: tuple[Engine, ...] = ()
        self._has_looked = False
        self._feeds: dict[str, Feed] = {}
        self._names: dict[str, str] = {}
        """Engine's key -> its name when it was first seen: a relaunch renames the old container."""
        self._last_feeds: dict[str, Feed] = {}
        """Engine's name -> the log of its last container that is gone."""
        self.figures: dict[str, Figures] = {}

    def engine(self, key: str) -> Engine | None:
        """The engine with this key; None for one that isn't there (any more)."""
        return next((engine for engine in self.engines if engine.key == key), None)

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

    @property
    def wants_lexicon(self) -> bool:
        """Whether `look` would load the log rules, which takes long."""
        return self._lexicon is None and bool(self._discovered())

    def look(self) -> None:
        """Find the engines anew, and give them to the node's state where they changed."""
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
            self.figures.pop(key, None)
        for engine in discovered:
            title = f"{engine.name} @ {book.name}"
            if engine.key not in self._feeds:
                self._feeds[engine.key] = Feed(title, engine.kind, self.load_lexicon())
                self._names[engine.key] = engine.name
            self._feeds[engine.key].title = title  # its container's name is known some seconds after its process
            self._feeds[engine.key].name(engine)
            if engine.container is not None:
                self._feeds[engine.key].begin(engine.container.started_wall_s)
            before = self.engine(engine.key)
            is_other_run = before is not None and bool(before.pids) and not set(before.pids) & set(engine.pids)
            if is_other_run or engine.state is EngineState.EXITED:
                self.figures.pop(engine.key, None)  # figures of an earlier run are none of this one
        for key in late(self.engines):
            self.figures.pop(key, None)
        engines = tuple(self._with_observations(engine) for engine in discovered)
        if engines != self.engines or (has_looked and not self._has_looked):
            self.engines, self._has_looked = engines, has_looked
            book.engines(engines, has_looked=has_looked)

    def answered(
        self, key: str, state: EndpointState, detail: str, metrics: EngineMetrics | None, version: str | None
    ) -> bool:
        """Take an endpoint's answer; False where frequent scrapes are useless."""
        engine = self.engine(key)
        if engine is not None and engine.endpoint is not None:
            scraped = self.figures.setdefault(key, Figures())
            scraped.endpoint = replace(engine.endpoint, state=state, detail=detail)
            scraped.version = version or scraped.version
            if metrics is not None:
                scraped.metrics = metrics
                scraped.scrapes, scraped.rates = advance(scraped.scrapes, metrics)
            elif state is not EndpointState.TIMED_OUT:
                # A slow answer keeps the last figures with their time; any other answer clears them.
                scraped.metrics, scraped.rates, scraped.scrapes = None, None, Scrapes()
        waited_for = (EndpointState.OK, EndpointState.LOADING, EndpointState.REFUSED, EndpointState.TIMED_OUT)
        return state in waited_for and (metrics is None or metrics.running is not None)

    def canary(self, key: str, canary: Canary) -> None:
        """Take an engine's answer to a canary's question."""
        if (scraped := self.figures.get(key)) is not None:
            before = [one for one in scraped.canaries if one.proof is canary.proof]
            canary = replace(canary, was_right=any(one.is_right or one.was_right for one in before))
            scraped.canaries = (*scraped.canaries, canary)[-CANARIES_KEPT:]

    def knows_version(self, key: str) -> bool:
        """Whether its endpoint has told which version the engine is."""
        return key in self.figures and self.figures[key].version is not None

    def rests(self, key: str) -> bool:
        """Whether an engine has nothing to do, by its figures and by the GPU."""
        scraped, reading = self.figures.get(key) or Figures(), self._book.gpu_reading
        is_gpu_at_work = any(
            (gpu.utilisation_percent or 0.0) >= WORKING_PERCENT for gpu in (reading.gpus if reading else ())
        )
        if is_gpu_at_work or scraped.metrics is None or scraped.rates is None:
            return False
        return not has_requests(scraped.metrics) and (scraped.rates.progress_age_s or 0.0) >= RESTS_S

    def logged(self, key: str, lines: tuple[LogLine, ...]) -> bool:
        """Take lines of an engine's log, and read for one frame at most; whether all is read, else call it with ()."""
        return self._feeds[key].accept(lines, self._book.wall_s) if key in self._feeds else True

    def load_lexicon(self) -> Lexicon:
        """The log rules, loaded where they are not."""
        if self._lexicon is None:
            from sparktop.diagnose.logs.reader import lexicon

            with _LEXICON_LOCK:  # loaded once for all nodes, even when they start together
                read_ahead_for_engines()
                self._lexicon = lexicon(tuple(self._rules()))
        return self._lexicon

    def _discovered(self) -> tuple[Engine, ...]:
        """The node's engines now, without what their endpoints and logs report."""
        book = self._book
        if book.wall_s is None:
            return ()
        engines = discover(
            book.process_table, book.gpu_reading, book.known_containers, self.engines, node_wall_s=book.wall_s
        )
        if len(engines) > MAX_ENGINES:
            detail = f"more than {MAX_ENGINES} engines are seen here: only so many are followed"
            book.message(Collector(name="engines", state=CollectorState.FAILED, detail=detail), book.clock.monotonic())
        return engines[:MAX_ENGINES]

    def _with_observations(self, engine: Engine) -> Engine:
        """The engine with what its endpoint and its log have reported."""
        feed = self._feeds[engine.key]
        log_state = feed.said
        engine = _at_its_port(engine, log_state.port)
        scraped = self.figures.get(engine.key)
        if scraped is not None and scraped.endpoint is not None and engine.state is not EngineState.EXITED:
            engine = replace(
                engine,
                endpoint=scraped.endpoint,
                metrics=scraped.metrics,
                rates=scraped.rates,
                canaries=scraped.canaries,
                model=engine.command.model or (scraped.metrics and scraped.metrics.model) or engine.model,
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


def _at_its_port(engine: Engine, told: int | None) -> Engine:
    """The engine at the port that its log tells, where its command names none: defaults differ by version."""
    endpoint = engine.endpoint
    if told is None or endpoint is None or endpoint.port != engine.kind.traits.port or engine.command.has("port"):
        return engine
    return replace(engine, endpoint=replace(endpoint, port=told))


def late(engines: Sequence[Engine]) -> set[str]:
    """Those that start on a port on which an older one listens, which would answer for them."""
    taken: set[tuple[str, int]] = set()
    late: set[str] = set()
    for engine in sorted(engines, key=lambda engine: -(engine.uptime_s or 0.0)):
        if engine.endpoint is not None and engine.state is not EngineState.EXITED:
            address = engine.endpoint.host, engine.endpoint.port
            if address in taken:
                late.add(engine.key)
            elif engine.endpoint.state is not EndpointState.REFUSED:
                taken.add(address)
    return late
