"""The flags of vLLM and SGLang whose spelling or number of values a reader must know: one table.

Any other flag takes one value, or none where its name begins as a switch's does (docs/facts/engines.md section 4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from sparktop.dataclass import dataclass


class Arity(Enum):
    """How many words after a flag are its values."""

    SWITCH = 0
    ONE = 1
    MANY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """A flag by its long name without dashes."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names, without dashes; those of `_SINGLE_DASH` are written with one dash."""
    arity: Arity = Arity.ONE
    is_on_in_vllm: bool = False
    """A switch that is on by default in vLLM: off is `--no-NAME`."""


FLAGS = (
    FlagSpec(name="tensor-parallel-size", aliases=("tp", "tp-size")),
    FlagSpec(name="pipeline-parallel-size", aliases=("pp", "pp-size", "pipeline-parallelism")),
    FlagSpec(name="data-parallel-size", aliases=("dp", "dp-size")),
    FlagSpec(name="nnodes", aliases=("n",)),
    FlagSpec(name="node-rank", aliases=("r",)),
    FlagSpec(name="compilation-config", aliases=("cc",)),
    FlagSpec(name="speculative-config", aliases=("sc",)),
    FlagSpec(name="quantization", aliases=("q",)),
    FlagSpec(name="optimization-level", aliases=("O",)),
    FlagSpec(name="kv-cache-memory-bytes", aliases=("kv-cache-memory",)),
    FlagSpec(name="headless", arity=Arity.SWITCH),
    FlagSpec(name="async-scheduling", arity=Arity.SWITCH, is_on_in_vllm=True),
    FlagSpec(name="is-embedding", arity=Arity.SWITCH),
    FlagSpec(name="help", arity=Arity.SWITCH),
    FlagSpec(name="version", arity=Arity.SWITCH),
    FlagSpec(name="enable-prefix-caching", arity=Arity.SWITCH, is_on_in_vllm=True),
    FlagSpec(name="enable-chunked-prefill", arity=Arity.SWITCH, is_on_in_vllm=True),
    FlagSpec(name="enable-flashinfer-autotune", arity=Arity.SWITCH, is_on_in_vllm=True),
    FlagSpec(name="log-level"),
    FlagSpec(name="log-level-http"),
    FlagSpec(name="log-requests-level"),
    FlagSpec(name="log-config-file"),
    FlagSpec(name="served-model-name", arity=Arity.MANY),
    FlagSpec(name="lora-modules", arity=Arity.MANY),
    FlagSpec(name="lora-paths", arity=Arity.MANY),
    FlagSpec(name="lora-target-modules", arity=Arity.MANY),
    FlagSpec(name="api-key", arity=Arity.MANY),
    FlagSpec(name="cuda-graph-bs", arity=Arity.MANY),
    FlagSpec(name="cuda-graph-bs-decode", arity=Arity.MANY),
    FlagSpec(name="cuda-graph-bs-prefill", arity=Arity.MANY),
    FlagSpec(name="cudagraph-capture-sizes", arity=Arity.MANY),
    FlagSpec(name="bucket-time-to-first-token", arity=Arity.MANY),
    FlagSpec(name="bucket-inter-token-latency", arity=Arity.MANY),
    FlagSpec(name="bucket-e2e-request-latency", arity=Arity.MANY),
)
_BY_NAME: Mapping[str, FlagSpec] = {name: spec for spec in FLAGS for name in (spec.name, *spec.aliases)}
_SWITCH_NAME = re.compile(r"(?:enable|disable|no|trust|enforce|skip|use|allow|log)-")
_SINGLE_DASH = frozenset({"tp", "pp", "dp", "cc", "sc", "q", "O", "n", "r", "asc", "ac", "dcp", "pcp", "dpa", "dpp"})
LEVEL = re.compile(r"-O(\d)")
"""vLLM's `-O3`: an optimization level in one word."""


def is_flag(text: str) -> bool:
    """Whether a word is a flag: two dashes, or one for the engines' short flags."""
    if re.match(r"--[A-Za-z]", text):
        return True
    head = re.split(r"[=.]", text[1:])[0]
    return text.startswith("-") and (head in _SINGLE_DASH or LEVEL.fullmatch(text) is not None)


def canonical(name: str) -> str:
    """A flag's canonical name: no dashes before it, underscores as dashes, aliases by their long name; a part after a
    dot stays."""
    head, dot, key = name.lstrip("-").replace("_", "-").partition(".")
    return f"{_BY_NAME[head].name if head in _BY_NAME else head}{dot}{key}"


def spec_of(name: str) -> FlagSpec:
    """The flag of this canonical name, or what its name tells about one that isn't in the table."""
    spec = _BY_NAME.get(name.partition(".")[0])
    return spec or FlagSpec(name=name, arity=Arity.SWITCH if _SWITCH_NAME.match(name) else Arity.ONE)


def is_switch(name: str) -> bool:
    """Whether a flag of this canonical name takes no value."""
    return spec_of(name).arity is Arity.SWITCH
