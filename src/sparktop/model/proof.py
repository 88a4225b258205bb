"""Proofs of an endpoint: requests with content, and what each shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.kinds.engine_kind import EngineKind


class Proof(StrEnum):
    """What is asked of an engine, in order; the values name its figure."""

    HEALTH = "health"
    ANSWER = "answer"
    """One answer, in one piece."""
    STREAM = "stream"
    TOOL_CALL = "tool_call"
    LONG_PROMPT = "long_prompt"
    """A word hidden in a long prompt is found again."""
    TWO_AT_ONCE = "two_at_once"
    WRONG_KEY = "wrong_key"


ANSWER_TOKENS: Mapping[Proof, int] = {
    Proof.ANSWER: 24,
    Proof.STREAM: 64,
    Proof.TOOL_CALL: 64,
    Proof.LONG_PROMPT: 24,
    Proof.TWO_AT_ONCE: 24,
}
"""The most that each answer may have, so few that an engine of 3 tokens a second answers in time; others generate
nothing."""
LONG_TOKENS = 8000
"""Of the long prompt, where the engine's context allows it."""


POOLING = (Proof.HEALTH, Proof.ANSWER, Proof.TWO_AT_ONCE, Proof.WRONG_KEY)
"""The proofs of an engine that serves embeddings or scores: the others are about text."""
CANARIES = (Proof.ANSWER, Proof.LONG_PROMPT, Proof.TOOL_CALL)
"""What a canary asks, in turn: each has one right answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """What an engine at rest answered to a question with one right answer."""

    proof: Proof
    wall_s: float
    """The operator's wall clock."""
    is_right: bool | None
    """None: it can't be told, and `why` says why."""
    was_right: bool = False
    """An earlier answer of this run to the same question was right: a model that never knew it proves nothing."""
    text: str = ""
    """The beginning of the answer, sanitised."""
    why: str = ""


class Verdict(StrEnum):
    """What a proof has shown."""

    OK = "ok"
    REASONED = "only reasoning"
    """All its tokens went into reasoning: `content` is null, and the engine serves."""
    THINKS_ALOUD = "reasoning in the answer"
    """No reasoning parser separates it."""
    IN_ONE_PIECE = "in one piece"
    """It was asked to stream."""
    SLOW = "slow"
    """Tokens came, and not all of them in time."""
    EMPTY = "empty"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    BROKEN = "broken off"
    REFUSED = "refused"
    DENIED = "key refused"
    """It requires another key than the one known here."""
    LOW_MEMORY = "memory ran low"
    NO_PARSER = "no tool parser"
    """It takes no tools, or leaves the call in its text."""
    NO_CALL = "no tool called"
    NOT_FOUND = "word not found"
    TOO_SHORT = "context too short"
    NO_TEXT = "writes no text"
    """It was asked for text, and serves embeddings or scores."""
    LOCAL = "no key, this node only"
    OPEN = "no key, open to the network"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest:
    """One proof of an engine, with its bounds."""

    engine: str
    """The container's or engine's name."""
    kind: EngineKind
    proof: Proof
    limit_s: float
    floor_bytes: int
    """Given up when available memory drops below this."""
    own_requests: int = 0
    """How many requests the proof before it had under way: SGLang's gauges may still show them."""
    is_pooling: bool = False
    """It is told to serve embeddings or scores, and no text; a model may do that without being told."""
    is_open: bool = False
    """Other machines reach its port."""
    api_key: str = field(default="", repr=False)
    """The engine's key; sent in a header over the forwarded connection, never written."""
