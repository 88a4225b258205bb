"""The course of an engine's run as its log tells it: starting, serving, told to stop; and which engine it is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from sparktop.diagnose import enginelog
from sparktop.model.engine import EngineKind, EngineState

SERVES = (EngineState.READY, EngineState.SERVING)

# Lines that say the engine was told to stop. torchrun's and Ray's own words on signals are none of them: they signal
# the others after one has failed.
_STOPS = (
    ("KeyboardInterrupt", re.compile(r"\bKeyboardInterrupt\b(?!')"), True),
    ("SIGTERM", re.compile(r"SIGTERM received\.|[Rr]eceived (?:signal )?SIGTERM\b|Got SIGTERM"), True),
    ("SIGINT", re.compile(r"SIGINT received|[Rr]eceived (?:signal )?SIGINT\b|Got SIGINT"), True),
    ("^C", re.compile(r"^\s*\^C|\^C\s*$"), True),
    ("received signal", re.compile(r"received signal (?:2|15)\b"), True),
    ("exit code -15", re.compile(r"[Ss]ubprocess .{0,80}crashed with exit code -15\b"), True),
    # An engine that died on its own says these too, so they take nothing back.
    ("signal=SIGTERM", re.compile("signal=SIGTERM"), False),
    ("shutdown triggered", re.compile(r"API server: shutdown triggered"), False),
    ("Shutting down", re.compile(r"INFO:? .{0,60}Shutting down\b"), False),
    ("Application shutdown complete", re.compile(r"Application shutdown complete"), False),
    ("Finished server process", re.compile(r"INFO: +Finished server process"), False),
)
"""A word that stands in it, what it says, and whether that came from outside."""

_TRAFFIC = re.compile(r'"(?:POST|GET) /(?:v1/(?:chat/)?completions|v1/messages|generate)[^"]{0,80}" 200')

_KINDS = (
    ("(APIServer", EngineKind.VLLM),
    ("(EngineCore", EngineKind.VLLM),
    ("vLLM API server version", EngineKind.VLLM),
    ("vllm serve", EngineKind.VLLM),
    ("/vllm/", EngineKind.VLLM),
    ("ServerArgs(", EngineKind.SGLANG),
    ("sglang/srt/", EngineKind.SGLANG),
    ("sglang.launch_server", EngineKind.SGLANG),
    ("#running-req", EngineKind.SGLANG),
    ("Load weight begin", EngineKind.SGLANG),
)
_PREFIXES = (
    (re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+\.py:\d+\]"), EngineKind.VLLM),
    (re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]+\d+)+\] "), EngineKind.SGLANG),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one line changes."""

    begins: bool = False
    serves: bool = False
    stops: bool = False
    """Told to stop, or stopping."""
    told: bool = False
    """Told to stop from outside: what broke just before it broke because of that."""


@cache
def words() -> tuple[str, ...]:
    """The fixed texts that a line must hold to tell something here."""
    phases = [
        wording.word
        for wording in enginelog.wordings()
        if wording.phase.begins or wording.phase.stopping or wording.phase.state in SERVES
    ]
    return tuple(dict.fromkeys([*phases, *(word for word, _, _ in _STOPS), ' HTTP/1.1" 200']))


@cache
def serving_words() -> tuple[str, ...]:
    """Those that an engine which serves writes all day, and which tell nothing new then."""
    phases = [wording.word for wording in enginelog.wordings() if wording.phase.state in SERVES]
    return (*phases, ' HTTP/1.1" 200')


def turn_of(text: str, hits: tuple[str, ...], kind: EngineKind | None) -> Turn | None:
    """What a line says of the run's course, given which of `words` it holds."""
    for word, pattern, told in _STOPS:
        if word in hits and pattern.search(text):
            return Turn(stops=True, told=told)
    phase = enginelog.phase_of(text, kind)
    if phase is not None and (phase.begins or phase.stopping or phase.state in SERVES):
        return Turn(begins=phase.begins, stops=phase.stopping, serves=phase.state in SERVES)
    if ' HTTP/1.1" 200' in hits and _TRAFFIC.search(text):
        return Turn(serves=True)
    return None


def kinds_of(text: str) -> set[EngineKind]:
    """Which engines a line is of, or speaks of."""
    found = {kind for word, kind in _KINDS if word in text}
    return found or {kind for pattern, kind in _PREFIXES if pattern.search(text)}
