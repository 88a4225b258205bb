"""What a launch is told that decides about memory: share, context, cache, parallelism, graphs. Pure.

A figure comes from what the operator set, else from the recipe's command where it stands there as such, else from the
recipe's defaults. Whatever can't be understood is named and taken as not told; nothing raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparktop.diagnose.lint.images import version_of
from sparktop.diagnose.live import graphs
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order

SHARE = ("gpu_memory_utilization", "mem_fraction_static")
CONTEXT = ("max_model_len", "context_length")
CACHE_TYPE = ("kv_cache_dtype",)
CACHE_SIZE = ("kv_cache_memory_bytes", "kv_cache_memory")
TENSOR = ("tensor_parallel", "tensor_parallel_size", "tp_size", "tp")
PIPELINE = ("pipeline_parallel", "pipeline_parallel_size", "pp_size", "pp")
EAGER = ("enforce_eager",)
NO_GRAPHS = ("disable_cuda_graph",)
GRAPHS = ("compilation_config", "cudagraph_mode", "cuda_graph_backend_decode")
DRAFT = ("speculative_config", "speculative_draft_model_path", "speculative_draft_model", "speculative_model")
GRAPHS_COUNTED_SINCE = (0, 21)
"""From this vLLM on its profile counts CUDA graphs into the share (facts/engines.md 4.1)."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kKmMgGtT]?)(?:i?[bB])?")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's human-readable numbers: lower case decimal, upper case binary."""
_YES = frozenset({"", "1", "true", "yes", "on"})
_WIDTHS = {"float32": 4.0, "fp32": 4.0, "fp8_ds_mla": 656 / 576, "int8": 1.0}
_SIXTEEN_BIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The figures; None where none is told."""

    engine: EngineKind
    share: float | None = None
    """As the operator or the recipe's command fixes it; None: it is computed."""
    share_source: str = ""
    share_key: str = "gpu_memory_utilization"
    """The parameter that sets it."""
    share_limit: float | None = None
    """The most that the recipe lets a computed one be."""
    context_tokens: int | None = None
    context_key: str = "max_model_len"
    cache_type: str = "auto"
    own_cache_type: str = "auto"
    """The recipe's own, which its figures are made for."""
    cache_bytes: int | None = None
    """--kv-cache-memory-bytes, a node: overrides the share."""
    tensor: int | None = None
    pipeline: int = 1
    is_eager: bool = False
    has_graphs: bool = True
    counts_graphs: bool = False
    """Whether graphs are within its share."""
    has_draft: bool = False
    problems: tuple[str, ...] = ()

    @property
    def counts_activations(self) -> bool:
        """vLLM's share holds its activations; SGLang's is for weights and cache alone."""
        return self.engine is EngineKind.VLLM


def read(order: Order, values: Mapping[str, str]) -> Settings:
    """The settings of this order.

    Args:
        values: every parameter as it would be used, where that is known already; laid over the recipe's defaults and
            under what the operator has set.
    """
    recipe = order.recipe
    defaults = _plain(recipe.defaults)
    merged = defaults | _plain(values)
    own = _plain(order.values)
    problems: list[str] = []

    def told(names: tuple[str, ...]) -> str | None:
        return _first(own, names) or _literal(recipe.command, names) or _first(merged, names)

    def number(names: tuple[str, ...]) -> int | None:
        text = told(names)
        if text is None or text.lower() in ("auto", "-1", "none"):
            return None
        found = whole(text)
        if found is None:
            problems.append(f"{names[0]} is {text[:20]!r}, which is no figure that is understood")
        return found

    engine = recipe.engine
    version = graphs.version_of(version_of(own.get("container") or merged.get("container") or recipe.container, engine))
    share, source, limit = _share(own, merged, defaults, recipe.command, recipe.need.share, problems)
    modes = " ".join(filter(None, (*(told((name,)) for name in GRAPHS), recipe.command))).lower()
    has_none = bool(re.search(r"cudagraph_mode\W+none|^none$|graph-backend-decode\W+disabled|^disabled$", modes))
    is_eager = _is_on(_first(own, EAGER), recipe.command, merged, EAGER)
    off = _is_on(_first(own, NO_GRAPHS), recipe.command, merged, NO_GRAPHS)
    draft = " ".join(filter(None, (told((name,)) for name in DRAFT)))
    return Settings(
        engine=engine,
        share=share,
        share_source=source,
        share_key=_key(own | merged, SHARE, engine),
        share_limit=limit,
        context_tokens=number(CONTEXT),
        context_key=_key(own | merged, CONTEXT, engine),
        cache_type=(told(CACHE_TYPE) or "auto").lower(),
        own_cache_type=(_literal(recipe.command, CACHE_TYPE) or _first(defaults, CACHE_TYPE) or "auto").lower(),
        cache_bytes=number(CACHE_SIZE) if engine is EngineKind.VLLM else None,
        tensor=number(TENSOR),
        pipeline=number(PIPELINE) or 1,
        is_eager=is_eager,
        has_graphs=not (is_eager or off or has_none),
        counts_graphs=engine is EngineKind.VLLM and version is not None and version >= GRAPHS_COUNTED_SINCE,
        has_draft=bool(draft) and not re.search(r"ngram|mtp|suffix", draft.lower()),
        problems=tuple(problems),
    )


def width_bytes(cache_type: str) -> float:
    """Bytes that an element of the cache takes, of the engines' names for its type; "auto" and what is not known: 2."""
    if cache_type in _WIDTHS:
        return _WIDTHS[cache_type]
    if cache_type.startswith("fp8"):
        return 1.0
    if cache_type.startswith(("fp4", "nvfp4", "int4")):
        return 0.5625  # four bits and a scale of eight for sixteen of them
    return _SIXTEEN_BIT


def whole(text: str) -> int | None:
    """ "32768", "32k" (decimal) or "32K" (binary) as a positive number; None where it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    figure = int(float(match[1]) * _SUFFIXES[match[2]])
    return figure if figure > 0 else None


def is_literal(command: str, names: tuple[str, ...]) -> bool:
    """Whether the recipe's command fixes it, so that no parameter can set it."""
    return _literal(command, names) is not None


def _share(
    own: Mapping[str, str],
    merged: Mapping[str, str],
    defaults: Mapping[str, str],
    command: str,
    need: float | None,
    problems: list[str],
) -> tuple[float | None, str, float | None]:
    """(the share that is fixed, by whom, the most that a computed one may be)."""
    limit = need if need is not None else _fraction(_first(defaults, SHARE) or _first(merged, SHARE))
    for text, source in ((_first(own, SHARE), "as you set it"), (_literal(command, SHARE), "the recipe's command")):
        if text is None or text.lower() == "auto":
            continue
        found = _fraction(text)
        if found is not None:
            return found, source, limit
        problems.append(f"{SHARE[0]} is {text[:20]!r}, which is no share: it is computed instead")
    return None, "", limit


def _fraction(text: str | None) -> float | None:
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) and 0 < found <= 100 else None


def _plain(values: Mapping[str, object]) -> dict[str, str]:
    """By names with underscores; what is off or nothing is left out."""
    return {
        name.lower().lstrip("-").replace("-", "_"): str(value).strip()
        for name, value in values.items()
        if value is not None
    }


def _first(values: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((values[name] for name in names if values.get(name)), None)


def _literal(command: str, names: tuple[str, ...]) -> str | None:
    """What the command says for a flag by itself, without a {parameter}; of several the last, as the engines do."""
    spellings = "|".join(name.replace("_", "[-_]") for name in names)
    found = re.findall(rf"(?<!\S)--(?:{spellings})(?:=|\s+)('[^']*'|\"[^\"]*\"|[^\s\\]+)", command)
    plain = [word.strip("'\"") for word in found if not re.fullmatch(r"\{\w+\}", word.strip("'\""))]
    return plain[-1] if plain else None


def _is_on(own: str | None, command: str, merged: Mapping[str, str], names: tuple[str, ...]) -> bool:
    if own is not None:
        return own.lower() in _YES
    spellings = "|".join(name.replace("_", "[-_]") for name in names)
    if re.search(rf"(?<!\S)--(?:{spellings})(?!\S)", command):
        return True
    return any(name in merged and merged[name].lower() in _YES for name in names)


def _key(values: Mapping[str, str], names: tuple[str, ...], engine: EngineKind) -> str:
    """The parameter that this recipe sets it by; the engine's own where it names none."""
    return next((name for name in names if name in values), names[1 if engine is EngineKind.SGLANG else 0])
