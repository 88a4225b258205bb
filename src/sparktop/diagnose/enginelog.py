"""What an engine's log says of where the engine is: loading, capturing with a count, ready, serving, failing. Pure.

The lines' wordings are those of vLLM 0.13 to 0.33 and SGLang 0.5 (facts/engines.md sections 2.0-2.2). A log is only one
witness: `resolve_state` weighs it against the engine's own figures and its container.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from sparktop.model.engine import EndpointState, Engine, EngineKind, EngineState, Progress
from sparktop.model.telemetry import LogLine

STATS_AGE_S = 30.0
"""vLLM writes its statistics every 10 s, SGLang every 40 decode steps."""

START_SLACK_S = 5.0
"""Process start times and log stamps come from different clocks of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one line says."""

    state: EngineState | None = None
    """None where the line tells something else than a state."""
    name: str = ""
    """weights, compile, kv cache, autotune, capture, warm-up."""
    done: int | None = None
    total: int | None = None
    begins: bool = False
    """A new run of the engine begins here: what the log said before is over."""
    failure: bool = False
    stopping: bool = False
    running: float | None = None
    waiting: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLogState:
    """What a log has said so far; start with EngineLogState()."""

    state: EngineState = EngineState.UNKNOWN
    progress: Progress | None = None
    phase: str = ""
    version: str | None = None
    failure: str = ""
    """The first line that said that the engine died, or couldn't start."""
    stopping: bool = False
    moved_wall_s: float | None = None
    """When state, phase or count last changed, node time: a capture that stands still shows here."""
    statistics: Phase | None = None
    """The last statistics line: the fallback where there is no endpoint."""
    statistics_wall_s: float | None = None


_COUNT = r"\|\s*(?P<done>\d{1,6})/(?P<total>\d{1,6}) \["
_LATE = (EngineState.READY, EngineState.SERVING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One entry of enginelog.toml."""

    word: str
    kind: EngineKind | None
    pattern: re.Pattern[str]
    phase: Phase


@cache
def wordings() -> tuple[Wording, ...]:
    """enginelog.toml, read once."""
    raw = tomllib.loads(files("sparktop.diagnose").joinpath("enginelog.toml").read_text("utf-8"))
    out = []
    for entry in raw["line"]:
        word, engine, pattern = entry.pop("word"), entry.pop("engine", None), entry.pop("pattern")
        state = entry.pop("state", None)
        out.append(
            Wording(
                word=word,
                kind=EngineKind(engine) if engine else None,
                pattern=re.compile(pattern.replace("COUNT", _COUNT)),
                phase=Phase(state=EngineState(state) if state else None, **entry),
            )
        )
    return tuple(out)


def phase_of(text: str, kind: EngineKind | None = None) -> Phase | None:
    """What a line says, or None for the many that say nothing of it.

    Args:
        kind: the engine, where it is known: SGLang's web server is up before SGLang is ready.
    """
    for wording in wordings():
        if wording.word not in text or (kind is not None and wording.kind is not None and wording.kind is not kind):
            continue
        found = list(wording.pattern.finditer(text))
        if found:
            return _filled(wording.phase, found[-1].groupdict())  # of a bar drawn again and again, the last
    return None


def advance(state: EngineLogState, line: LogLine, kind: EngineKind | None = None) -> EngineLogState:
    """The log's state after one more line. A log that is ready stays so until another run begins."""
    phase = phase_of(line.text, kind)
    if phase is None:
        return state
    if phase.begins:
        version = phase.version or state.version
        return EngineLogState(state=EngineState.STARTING, version=version, moved_wall_s=line.wall_s)
    if phase.failure:  # what breaks while it stops was told to stop
        return state if state.failure or state.stopping else replace(state, failure=line.text[:300], progress=None)
    if phase.stopping:
        return replace(state, stopping=True, progress=None)
    if phase.name == "statistics":
        serving = EngineState.SERVING if phase.running else EngineState.READY
        return replace(state, state=serving, progress=None, phase="", statistics=phase, statistics_wall_s=line.wall_s)
    if phase.state is None or (state.state in _LATE and phase.state not in _LATE):
        return state
    progress = None
    if phase.done is not None and phase.total:
        progress = Progress(phase=phase.name, done=phase.done, total=phase.total)
    moved = (phase.state, phase.name, progress) != (state.state, state.phase, state.progress)
    return replace(
        state,
        state=phase.state,
        phase=phase.name,
        progress=progress,
        version=phase.version or state.version,
        moved_wall_s=line.wall_s if moved else state.moved_wall_s,
    )


def advance_all(state: EngineLogState, lines: Iterable[LogLine], kind: EngineKind | None = None) -> EngineLogState:
    """`advance` over a batch."""
    for line in lines:
        state = advance(state, line, kind)
    return state


def resolve_state(
    engine: Engine, log: EngineLogState | None, node_wall_s: float | None = None
) -> tuple[EngineState, Progress | None]:
    """Where the engine is, from its container, its own figures, then its log; what is known best decides.

    Args:
        node_wall_s: the node's clock, by which the log's statistics age: an idle engine writes none.
    """
    box = engine.container
    if engine.state is EngineState.EXITED or (box is not None and box.status in ("exited", "dead")):
        return EngineState.EXITED, None
    asked = engine.endpoint.state if engine.endpoint else EndpointState.NOT_ASKED
    if asked is EndpointState.OK and engine.metrics is not None:
        busy = (engine.metrics.running or 0) + (engine.metrics.waiting or 0) > 0
        return (EngineState.SERVING if busy else EngineState.READY), None
    if log is not None and log.state is not EngineState.UNKNOWN and not _of_an_earlier_run(engine, log, node_wall_s):
        written_s = log.statistics_wall_s
        if log.state is EngineState.SERVING and node_wall_s is not None and written_s is not None:
            return (EngineState.SERVING if node_wall_s - written_s < STATS_AGE_S else EngineState.READY), None
        return log.state, log.progress
    if asked is EndpointState.TIMED_OUT and engine.state in _LATE:
        return engine.state, None
    if asked in (EndpointState.NO_METRICS, EndpointState.NOT_METRICS):
        return EngineState.UNKNOWN, None
    if engine.state in (EngineState.UNKNOWN, *_LATE):
        return (EngineState.STARTING if asked is EndpointState.REFUSED else engine.state), None
    return engine.state, engine.progress


def _of_an_earlier_run(engine: Engine, log: EngineLogState, node_wall_s: float | None) -> bool:
    """All the log told is older than the engine: its container was restarted, and says nothing new yet."""
    told_s = max(log.moved_wall_s or 0.0, log.statistics_wall_s or 0.0)
    if not told_s or node_wall_s is None or engine.uptime_s is None:
        return False
    return told_s < node_wall_s - engine.uptime_s - START_SLACK_S


def _filled(phase: Phase, found: dict[str, str | None]) -> Phase:
    if not any(found.values()):
        return phase

    def number(name: str) -> float | None:
        text = found.get(name)
        try:
            return float(text) if text else None
        except ValueError:
            return None

    done, total = number("done"), number("total")
    return replace(
        phase,
        done=None if done is None else int(done),
        total=None if total is None else int(total),
        running=number("running"),
        waiting=number("waiting"),
        prompt_tokens_per_s=number("prompt"),
        generation_tokens_per_s=number("generation"),
        version=found.get("version"),
    )
