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
from sparktop.diagnose.live.beside import counts_graphs, turns_graphs_off
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe.parameters import SAME, SHARE, main_name

CONTEXT = "max_model_len"
CACHE_TYPE = "kv_cache_dtype"
CACHE_SIZE = "kv_cache_memory_bytes"
TENSOR = "tensor_parallel"
PIPELINE = "pipeline_parallel"
EAGER = "enforce_eager"
NO_GRAPHS = "disable_cuda_graph"
GRAPHS = ("compilation_config", "cudagraph_mode", "cuda_graph_backend_decode")
_DRAFT = re.compile(r"--speculative[-_](?:draft[-_])?model|[\"']model[\"']\s*:")
_OTHER = {CACHE_SIZE: ("kv_cache_memory",)}
"""Further spellings of the engines' own."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kKmMgGtT]?)(?:i?[bB])?")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's human-readable numbers: lower case decimal, upper case binary."""
_YES = frozenset({"1", "true", "yes", "on"})
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

    def told(name: str) -> str | None:
        return own.get(name) or _literal(recipe.command, name) or merged.get(name)

    def number(name: str) -> int | None:
        text = told(name)
        if text is None or text.lower() in ("auto", "-1", "none"):
            return None
        found = whole(text)
        if found is None:
            problems.append(f"{name} is {text[:20]!r}, which is no figure that is understood")
        return found

    def is_on(name: str) -> bool:
        if name in own:
            return own[name].lower() in _YES
        return _is_flag(recipe.command, name) or merged.get(name, "no").lower() in _YES

    def key(name: str) -> str:
        """As this recipe spells it."""
        return next((one for one in (*recipe.defaults, *order.values) if main_name(one) == name), name)

    engine = recipe.engine
    image = own.get("container") or merged.get("container") or recipe.container
    version = graphs.version_of(version_of(image, engine))
    # What the operator sets is in `values` too, and no limit of the recipe's: without it the recipe's own is.
    bounds = recipe.need.share, _fraction((defaults if SHARE in own else merged).get(SHARE))
    share, source = _share(own, recipe.command, problems)
    modes = [text.strip("'\"").lower() for text in (told(name) for name in GRAPHS) if text]
    is_off = any(mode in ("none", "disabled") for mode in modes) or is_on(NO_GRAPHS)
    is_off = is_off or any(turns_graphs_off(text) for text in (*modes, recipe.command))
    draft = " ".join((recipe.command, told("speculative_config") or ""))
    return Settings(
        engine=engine,
        share=share,
        share_source=source,
        share_key=key(SHARE),
        share_limit=next((one for one in bounds if one is not None and 0 < one <= 1), None),
        context_tokens=number(CONTEXT),
        context_key=key(CONTEXT),
        cache_type=(told(CACHE_TYPE) or "auto").lower(),
        own_cache_type=(_literal(recipe.command, CACHE_TYPE) or defaults.get(CACHE_TYPE) or "auto").lower(),
        cache_bytes=number(CACHE_SIZE) if engine is EngineKind.VLLM else None,
        tensor=number(TENSOR),
        pipeline=number(PIPELINE) or 1,
        is_eager=is_on(EAGER),
        has_graphs=not (is_on(EAGER) or is_off),
        counts_graphs=counts_graphs(engine, version),
        has_draft=bool(_DRAFT.search(draft)),
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


def _share(own: Mapping[str, str], command: str, problems: list[str]) -> tuple[float | None, str]:
    """(the share that is fixed, by whom)."""
    for text, source in ((own.get(SHARE), "as you set it"), (_literal(command, SHARE), "the recipe's command")):
        if text is None:
            continue
        if text.lower() == "auto":
            break
        found = _fraction(text)
        if found is not None:
            return found, source
        problems.append(f"{SHARE} is {text[:20]!r}, which is no share: it is computed instead")
    return None, ""


def _fraction(text: str | None) -> float | None:
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) and 0 < found <= 100 else None


def _plain(values: Mapping[str, object]) -> dict[str, str]:
    """By their main names; what says nothing is left out."""
    return {main_name(name.lower()): text for name, value in values.items() if (text := str(value).strip())}


def _spellings(name: str) -> str:
    group = next((one for one in SAME if name in one), (name,))
    return "|".join(re.escape(one).replace("_", "[-_]") for one in (*group, *_OTHER.get(name, ())))


def _literal(command: str, name: str) -> str | None:
    """What the command says for a flag by itself, without a {parameter}; of several the last, as the engines do."""
    pattern = rf"(?<!\S)--(?:{_spellings(name)})(?:=|\s+)('[^']*'|\"[^\"]*\"|[^\s\\]+)"
    plain = [word.strip("'\"") for word in re.findall(pattern, command)]
    return next((word for word in reversed(plain) if not re.fullmatch(r"\{\w+\}", word)), None)


def _is_flag(command: str, name: str) -> bool:
    return re.search(rf"(?<!\S)--(?:{_spellings(name)})(?!\S)", command) is not None
