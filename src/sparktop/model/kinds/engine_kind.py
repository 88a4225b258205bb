"""An engine is one TOML file of this folder, named as the engine is in JSON, rules and tapes.

Left in code is only what is one engine's alone, such as the lints of vLLM's and SGLang's flags. Those, by version, are
in cmdline/engine_flags.toml, which `make engine-flags` writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass

FOLDER = Path(__file__).parent

_NAMES = sorted(name.removesuffix(".toml") for name in os.listdir(FOLDER) if name.endswith(".toml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """What one engine's file says."""

    name: str
    """As its makers write it."""
    programs: tuple[str, ...] = ()
    """A program's name without its path, and the words that must follow it: "vllm serve"."""
    modules: tuple[str, ...] = ()
    """Of `python -m`, alike; "*" stands for any characters, and the first that matches decides."""
    scripts: tuple[str, ...] = ()
    """Paths that Python runs, as fnmatch has them; in one of its images the file's name alone counts."""
    titles: tuple[str, ...] = ()
    """How the command names of its worker processes begin."""
    images: tuple[str, ...] = ()
    """Texts in the name of an image that holds it."""
    releases: str = ""
    """The end of an image's name whose tags are its versions."""

    port: int
    """Where it listens unless told otherwise."""
    host: str = ""
    """As `port`; empty: on every interface."""
    model_flags: tuple[str, ...] = ()
    """That name its model, the best name first."""
    is_model_positional: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)
    """As in cmdline/engine_flags.toml; empty where the engine is in that."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand for a flag."""
    share_flag: str = ""
    """Sets its share of memory; empty where it takes what its model and context need."""
    is_share_of_available: bool = False
    """Of what is available before it loads, not of all memory."""
    share_defaults: Mapping[str, float] = field(default_factory=dict)
    """By the version that brought them, ascending; the last one counts where the version isn't known."""
    graphs_off: Mapping[str, str] = field(default_factory=dict)
    """The flags that turn CUDA graphs off, by the version that brought them, ascending."""
    starts: str = ""
    """The command that recipes start it with, with MODEL for the model's name; empty: recipes don't start it."""
    file_flag: str = ""
    """Loads one .gguf file, which a launch chooses of the repository that the first of `model_flags` names; empty: it
    reads a repository's folder."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Flags that no launch takes, and why."""
    cache_types: tuple[str, ...] = ()
    """Flags of the types of its cache, where keys and values each have one; f16 where one isn't given."""
    settable: tuple[str, ...] = ()
    """Parameters, by sparkrun's names, that may be set at a launch though its recipe doesn't name them."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Flags of sparkrun's parameters, where they aren't named alike."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Those of sparkrun's parameters that it doesn't have, and why."""
    pooling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags with which it serves embeddings or scores and writes no text, each with the values that mean that; without
    any it is a switch."""
    ranking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of them with which it scores texts, and serves no embeddings."""
    tool_flags: str = ""
    """With which it parses tool calls."""
    key_variable: str = ""
    """Holds the API key that it requires."""
    caches: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variables that say where it keeps compiled kernels: (their folder among ours, the place without it)."""
    rank_flags: Mapping[str, str] = field(default_factory=dict)
    """Flags of each rank of several, with {nodes}, {rank}, the {head}'s address and its {port}."""
    stop_s: float = 60.0
    """How long after SIGTERM it may take to end by itself."""

    metrics_on: str = ""
    """Without this flag it has no metrics."""
    metrics_off: str = ""
    """With this flag it has none."""
    metrics_prefix: str = ""
    metrics_path: str = "/metrics"
    asks: Mapping[str, float] = field(default_factory=dict)
    """What it may be asked besides /metrics, and the least seconds between two: nothing that costs it work."""
    health: str = ""
    """The path that tells without a key whether it serves; empty where asking costs work."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Its version and model in JSON: "PATH KEY.KEY"."""
    figures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By field of `EngineMetrics`, the sources to try in order (engines.metrics)."""
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    log_words: tuple[str, ...] = ()
    """Fixed texts that only its log has."""
    log_head: str = ""
    """Regular expression of lines that are probably its own."""
    line: tuple[Mapping[str, Any], ...] = ()
    """Log lines that tell its state (diagnose.logs.engine_state), and in named groups what its load took:
    `weights_gib`, or `draft_gib` where each model has a line; `cache_gib`, or `pool_...` where each pool has one; of
    `contexts` requests of `context` tokens, or of `tokens` in all.
    """


class EngineKind(StrEnum):
    """An engine that is known: a member for each file. Code names those that it launches."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama.cpp"
    vars().update({name.upper(): name for name in _NAMES if name not in ("vllm", "sglang", "llama.cpp")})

    @property
    def traits(self) -> EngineTraits:
        """What its file says; read on first use."""
        return _traits(self)


VERSIONED = (EngineKind.VLLM, EngineKind.SGLANG)
"""Those whose flags are known by version and linted; argparse reads them."""


@cache
def _traits(kind: str) -> EngineTraits:
    import tomllib  # no first paint reads a file of these

    return EngineTraits(**_fixed(tomllib.loads((FOLDER / f"{kind}.toml").read_text("utf-8"))))


def _fixed(value: Any) -> Any:
    """Lists as tuples."""
    if isinstance(value, dict):
        return {key: _fixed(item) for key, item in value.items()}
    return tuple(map(_fixed, value)) if isinstance(value, list) else value
