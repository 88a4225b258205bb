"""What a log says about its engine's state: loading, capturing graphs, ready, serving, stopping.

The wordings are those of vLLM 0.13 to 0.33 and SGLang 0.5 (docs/facts/engines.md sections 2.0 to 2.2). A log is only
one witness: `resolve_state` weighs it against the engine's metrics and its container.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.model.engine import VERSIONED, EndpointState, Engine, EngineKind, EngineState, Loaded, Progress
from sparktop.model.telemetry import LogLine
from sparktop.text.expression import Expression, expression
from sparktop.text.units import GIB

STATS_AGE_S = 30.0
"""Statistics older than this are stale: vLLM writes them every 10 s, SGLang every 40 decode steps."""


START_SLACK_S = 5.0
"""Tolerance between process start times and log timestamps: they come from different clocks of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one log line says about the engine's state."""

    state: EngineState | None = None
    """None if the line is about something else than a state."""
    name: str = ""
    """weights, compile, kv cache, autotune, capture or warm-up."""
    done: int | None = None
    total: int | None = None
    begins: bool = False
    """A new run of the engine begins: everything the log said before is history."""
    failure: bool = False
    stopping: bool = False
    """Stopping, or told to stop."""
    is_external: bool = False
    """Stopped from outside: errors logged just before are part of the stop."""
    running: float | None = None
    waiting: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    version: str | None = None
    port: int | None = None
    weights_gib: float | None = None
    draft_gib: float | None = None
    """Weights of one model of several, whose lines add up."""
    cache_gib: float | None = None
    pool_gib: float | None = None
    """Part of the cache, whose lines add up."""
    contexts: float | None = None
    """How many requests of `context` tokens each the cache holds."""
    context: float | None = None

    @property
    def serves(self) -> bool:
        return self.state in _READY_STATES

    @property
    def changes_run(self) -> bool:
        """Whether the engine's run begins, serves or stops with it."""
        return self.begins or self.stopping or self.serves


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLogState:
    """The engine's state by its log so far; begins as EngineLogState()."""

    state: EngineState = EngineState.UNKNOWN
    progress: Progress | None = None
    phase: str = ""
    phases: frozenset[str] = frozenset()
    """All that its load has come to in this run, as `Phase.name`."""
    version: str | None = None
    port: int | None = None
    """On which it listens."""
    failure: str = ""
    """The first line that reported that the engine died or couldn't start."""
    stopping: bool = False
    has_served: bool = False
    """Whether it was ready or serving in this run."""
    ready_wall_s: float | None = None
    """When it was first ready in this run (node time); None where the log doesn't reach back to its load."""
    moved_wall_s: float | None = None
    """When state, phase or count last changed (node time): shows a stalled capture."""
    loaded: Loaded = Loaded()
    statistics: Phase | None = None
    """The newest statistics line: the fallback when there is no endpoint."""
    statistics_wall_s: float | None = None


_COUNT = r"\|\s*(?P<done>\d{1,6})/(?P<total>\d{1,6}) \["


_READY_STATES = (EngineState.READY, EngineState.SERVING)
_LOADING_STATES = (EngineState.LOADING, EngineState.CAPTURING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One entry of engine_state.toml."""

    word: str
    kind: EngineKind | None
    pattern: Expression
    phase: Phase


@cache
def wordings() -> tuple[Wording, ...]:
    """The entries of engine_state.toml, which any engine may write, and of each engine's own file."""
    shared = tomllib.loads(Path(__file__).with_name("engine_state.toml").read_text("utf-8"))
    own = [(kind, row) for kind in EngineKind for row in kind.traits.line]
    return tuple(_wording(kind, **row) for kind, row in (*((None, row) for row in shared["line"]), *own))


def _wording(kind: EngineKind | None, word: str, pattern: str, state: str | None = None, **rest: Any) -> Wording:
    phase = Phase(state=EngineState(state) if state else None, **rest)
    return Wording(word=word, kind=kind, pattern=expression(pattern.replace("COUNT", _COUNT)), phase=phase)


def phase_of(text: str, kind: EngineKind | None = None) -> Phase | None:
    """What a line says about the engine's state; None for most lines.

    Args:
        kind: the engine if known; SGLang's web server is up before SGLang is ready.
    """
    for wording in wordings():
        if wording.word not in text or (kind is not None and wording.kind is not None and wording.kind is not kind):
            continue
        matches = list(wording.pattern.finditer(text))
        if matches:
            return _with_figures(wording.phase, matches[-1].groups)  # a redrawn progress bar: the last state
    return None


def advance(state: EngineLogState, line: LogLine, kind: EngineKind | None = None) -> EngineLogState:
    """The log's state after one more line. Ready stays ready until another run begins."""
    phase = phase_of(line.text, kind)
    if phase is None:
        return state
    if phase.begins:
        return begun(replace(state, version=phase.version or state.version), line.wall_s)
    if phase.failure:  # errors while stopping are part of the stop
        return state if state.failure or state.stopping else replace(state, failure=line.text[:300], progress=None)
    if phase.stopping:
        return replace(state, stopping=True, progress=None)
    if phase.name == "statistics":
        serving = EngineState.SERVING if phase.running else EngineState.READY
        return replace(
            state, state=serving, progress=None, phase="", has_served=True, statistics=phase,
            statistics_wall_s=line.wall_s,
        )  # fmt: skip
    if phase.state is None or (state.state in _READY_STATES and phase.state not in _READY_STATES):
        return state
    progress = None
    if phase.done is not None and phase.total:
        progress = Progress(phase=phase.name, done=phase.done, total=phase.total)
    moved = (phase.state, phase.name, progress) != (state.state, state.phase, state.progress)
    return replace(
        state,
        state=phase.state,
        phase=phase.name,
        phases=state.phases | {phase.name} if phase.name else state.phases,
        progress=progress,
        has_served=state.has_served or phase.serves,
        ready_wall_s=_ready_s(state, line) if phase.serves else state.ready_wall_s,
        version=phase.version or state.version,
        port=phase.port or state.port,
        loaded=_loaded(state.loaded, phase),
        moved_wall_s=line.wall_s if moved else state.moved_wall_s,
    )


def _loaded(loaded: Loaded, phase: Phase) -> Loaded:
    """With what this line says that the load took."""
    weights = None if phase.weights_gib is None else int(phase.weights_gib * GIB)
    if phase.draft_gib is not None:
        weights = (loaded.weights_bytes or 0) + int(phase.draft_gib * GIB)
    cache = None if phase.cache_gib is None else int(phase.cache_gib * GIB)
    if phase.pool_gib is not None:
        cache = (loaded.cache_bytes or 0) + int(phase.pool_gib * GIB)
    return Loaded(
        weights_bytes=loaded.weights_bytes if weights is None else weights,
        cache_bytes=loaded.cache_bytes if cache is None else cache,
        contexts=loaded.contexts if phase.contexts is None else phase.contexts,
        context_tokens=loaded.context_tokens if phase.context is None else int(phase.context),
    )


def begun(state: EngineLogState, wall_s: float | None) -> EngineLogState:
    """The log's state as a new run begins, whether a line or somebody else (Docker's StartedAt) says so."""
    return EngineLogState(state=EngineState.STARTING, version=state.version, moved_wall_s=wall_s)


def _ready_s(state: EngineLogState, line: LogLine) -> float | None:
    """When it was first ready, if this line says that it is."""
    is_first = not state.has_served and state.state is not EngineState.UNKNOWN
    return line.wall_s if is_first else state.ready_wall_s


def advance_all(state: EngineLogState, lines: Iterable[LogLine], kind: EngineKind | None = None) -> EngineLogState:
    """The log's state after a batch of lines."""
    for line in lines:
        state = advance(state, line, kind)
    return state


def resolve_state(
    engine: Engine, log: EngineLogState | None, node_wall_s: float | None = None
) -> tuple[EngineState, Progress | None]:
    """The engine's state and progress by its container, its metrics and its log, the most reliable first.

    Args:
        node_wall_s: the node's clock, for the age of the log's statistics: an idle engine writes none.
    """
    container = engine.container
    if engine.state is EngineState.EXITED or (container is not None and container.status in ("exited", "dead")):
        return EngineState.EXITED, None
    endpoint = engine.endpoint.state if engine.endpoint else EndpointState.NOT_ASKED
    if endpoint is EndpointState.OK and engine.metrics is not None:
        busy = (engine.metrics.running or 0) + (engine.metrics.waiting or 0) > 0
        return (EngineState.SERVING if busy else EngineState.READY), None
    if endpoint is EndpointState.LOADING and (log is None or log.state not in _LOADING_STATES):
        return EngineState.LOADING, None
    is_ready_by_log = log is not None and log.state in _READY_STATES
    if endpoint is EndpointState.TIMED_OUT and engine.state in _READY_STATES and not is_ready_by_log:
        return engine.state, None  # this run has served: a log that says otherwise is read only in part
    if log is not None and log.state is not EngineState.UNKNOWN and not _is_of_earlier_run(engine, log, node_wall_s):
        written_s = log.statistics_wall_s
        if log.state is EngineState.SERVING and node_wall_s is not None and written_s is not None:
            return (EngineState.SERVING if node_wall_s - written_s < STATS_AGE_S else EngineState.READY), None
        return log.state, log.progress
    if endpoint in (EndpointState.NO_METRICS, EndpointState.NOT_METRICS):
        return EngineState.UNKNOWN, None
    if engine.state in (EngineState.UNKNOWN, *_READY_STATES):
        return (EngineState.STARTING if endpoint is EndpointState.REFUSED else engine.state), None
    return engine.state, engine.progress


def _is_of_earlier_run(engine: Engine, log: EngineLogState, node_wall_s: float | None) -> bool:
    """Whether everything in the log is older than the engine: it was restarted and has logged nothing new yet."""
    newest_s = max(log.moved_wall_s or 0.0, log.statistics_wall_s or 0.0)
    if not newest_s or node_wall_s is None or engine.uptime_s is None:
        return False
    return newest_s < node_wall_s - engine.uptime_s - START_SLACK_S


def _with_figures(phase: Phase, figures: Mapping[str, str | None]) -> Phase:
    if not any(figures.values()):
        return phase

    def number(name: str) -> float | None:
        text = figures.get(name)
        try:
            return float(text.replace(",", "")) if text else None
        except ValueError:
            return None

    done, total, port = number("done"), number("total"), number("port")
    pools = [size for name in figures if name.startswith("pool_") and (size := number(name)) is not None]
    tokens, context = number("tokens"), number("context")
    return replace(
        phase,
        done=None if done is None else int(done),
        total=None if total is None else int(total),
        running=number("running"),
        waiting=number("waiting"),
        prompt_tokens_per_s=number("prompt"),
        generation_tokens_per_s=number("generation"),
        version=figures.get("version"),
        port=None if port is None else int(port),
        weights_gib=number("weights_gib"),
        draft_gib=number("draft_gib"),
        cache_gib=number("cache_gib"),
        pool_gib=sum(pools) if pools else None,
        contexts=tokens / context if tokens and context else number("contexts"),
        context=context,
    )


# Lines that say that somebody stopped the engine. The words of torchrun and Ray about signals don't count: they signal
# the other ranks after one failed.
_STOPS = (
    ("KeyboardInterrupt", expression(r"\bKeyboardInterrupt(?:[^\w']|$)"), True),
    ("SIGTERM", expression(r"SIGTERM received\.|[Rr]eceived (?:signal )?SIGTERM\b|Got SIGTERM"), True),
    ("SIGINT", expression(r"SIGINT received|[Rr]eceived (?:signal )?SIGINT\b|Got SIGINT"), True),
    ("^C", expression(r"^\s*\^C|\^C\s*$"), True),
    ("received signal", expression(r"received signal (?:2|15)\b"), True),
    ("exit code -15", expression(r"[Ss]ubprocess .{0,80}crashed with exit code -15\b"), True),
    # An engine that died by itself writes these too, so they withdraw no findings.
    ("Shutting down", expression(r"INFO:? .{0,60}Shutting down\b"), False),
    ("Application shutdown complete", expression(r"Application shutdown complete"), False),
    ("Finished server process", expression(r"INFO: +Finished server process"), False),
)
"""(fixed text, regular expression, whether the stop came from outside)."""


_TRAFFIC = expression(r'"(?:POST|GET) /(?:v1/(?:chat/)?completions|v1/messages|generate)[^"]{0,80}" 200')


_WORKS = expression(r"[Ll]istening on (?:https?://|\[?[\d.:]+)|\bslot +(?:release|launch_slot_|print_timing)")
"""Also of servers that are no engines of ours yet."""


@cache
def _heads() -> tuple[tuple[Expression, EngineKind], ...]:
    """An engine that has another one within, as Ollama has llama.cpp, before that."""
    return tuple((expression(kind.traits.log_head), kind) for kind in reversed(EngineKind) if kind.traits.log_head)


@cache
def words() -> tuple[str, ...]:
    """Fixed texts of which every line that changes a run's course holds at least one."""
    phases = [wording.word for wording in wordings() if wording.phase.changes_run]
    return tuple(dict.fromkeys([*phases, *(word for word, _, _ in _STOPS), ' HTTP/1.1" 200']))


@cache
def serving_words() -> tuple[str, ...]:
    """Those of `words` that a serving engine writes all day, without news."""
    phases = [wording.word for wording in wordings() if wording.phase.serves]
    return (*phases, ' HTTP/1.1" 200')


def run_change_of(text: str, hits: tuple[str, ...], kind: EngineKind | None) -> Phase | None:
    """How a line changes the run's course; `hits`: which of `words` it holds."""
    for word, pattern, is_external in _STOPS:
        if word in hits and pattern.search(text):
            return Phase(stopping=True, is_external=is_external)
    phase = phase_of(text, kind)
    if phase is not None and phase.changes_run:
        return phase
    return Phase(state=EngineState.SERVING) if ' HTTP/1.1" 200' in hits and _TRAFFIC.search(text) else None


def work_of(text: str) -> Phase | None:
    """What a line says of a program that goes on: it loads, serves, or begins anew; None for another line."""
    if _WORKS.search(text) or _TRAFFIC.search(text):
        return Phase(state=EngineState.SERVING)
    phase = phase_of(text)
    return phase if phase is not None and phase.state is not None else None


def kinds_of(text: str, *, is_known: bool = False) -> set[EngineKind]:
    """Engines that wrote a line, or that it mentions.

    Args:
        is_known: what wrote the log is known: an engine within it, as llama.cpp in Ollama, is not its writer.
    """
    kinds = {kind for kind in EngineKind if any(word in text for word in kind.traits.log_words)}
    kinds = kinds or set(next(((kind,) for pattern, kind in _heads() if pattern.search(text)), ()))
    return {kind for kind in kinds if kind in VERSIONED} if is_known else kinds


_OTHERS = (
    ("TensorRT-LLM", expression(r"\[TensorRT-LLM\]|\[TRT-LLM\]|\btrtllm-")),
    ("ComfyUI", expression(r"\bComfyUI\b|got prompt$")),
)


_BESIDE = (
    (("LiteLLM", "litellm_", "litellm."), "LiteLLM"),
    (("open_webui",), "Open WebUI"),
    (("[LMSAuthenticator]", ".lmstudio", "lmstudio-"), "LM Studio"),
    (("text_embeddings_",), "Text Embeddings Inference"),
    (("text_generation_",), "Text Generation Inference"),
)
"""By a fixed text of its lines: a program that stands beside an engine."""


def other_of(text: str) -> str | None:
    """Another program that runs models and wrote this line: it takes no engine's flags."""
    named = next((name for words, name in _BESIDE if any(word in text for word in words)), None)
    return named or next((name for name, pattern in _OTHERS if pattern.search(text)), None)
