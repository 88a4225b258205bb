"""The settings of a launch that decide about memory: share, context, cache, parallelism, graphs.

A figure comes from the operator's settings, else from the recipe's command where it is written there as such, else from
the recipe's defaults. A value that can't be parsed is reported and ignored; nothing raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sparktop.dataclass import dataclass
from sparktop.engines.images import release_of, version_of
from sparktop.engines.memory_needs import counts_graphs, turns_graphs_off
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe.parameters import SAME, SHARE, main_name

CONTEXT = "max_model_len"
CACHE_TYPE = "kv_cache_dtype"
CACHE_SIZE = "kv_cache_memory_bytes"
TENSOR = "tensor_parallel"
PIPELINE = "pipeline_parallel"
DATA = "data_parallel"
EAGER = "enforce_eager"
NO_GRAPHS = "disable_cuda_graph"
GRAPHS = ("compilation_config", "cudagraph_mode", "cuda_graph_backend_decode")
_DRAFT = re.compile(r"--speculative[-_](?:draft[-_])?model|[\"']model[\"']\s*:")
_OWN_DRAFTS = re.compile(r"[\"']method[\"']\s*:\s*[\"']\w*mtp\b|--speculative[-_]algo\w*[=\s]+nextn\b", re.IGNORECASE)
_MORE_SPELLINGS = {CACHE_SIZE: ("kv_cache_memory",)}
"""Further spellings that the engines accept."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kKmMgGtT]?)(?:i?[bB])?")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's human-readable numbers: lower case decimal, upper case binary."""
_TRUE = frozenset({"1", "true", "yes", "on"})
_ELEMENT_BYTES = {"float32": 4.0, "fp32": 4.0, "fp8_ds_mla": 656 / 576, "int8": 1.0}
_DEFAULT_ELEMENT_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The memory settings of a launch; None where a setting isn't given."""

    engine: EngineKind
    share: float | None = None
    """Fixed by the operator or the recipe's command; None: sparktop computes it."""
    share_source: str = ""
    share_key: str = "gpu_memory_utilization"
    """The parameter that sets it."""
    share_limit: float | None = None
    """The recipe's upper limit for a computed share."""
    context_tokens: int | None = None
    context_key: str = "max_model_len"
    cache_type: str = "auto"
    own_cache_type: str = "auto"
    """The recipe's own cache type, which its figures are for."""
    cache_bytes: int | None = None
    """--kv-cache-memory-bytes per node: overrides the share."""
    tensor: int | None = None
    pipeline: int = 1
    data: int = 1
    """Copies of the weights, each on nodes of its own; SGLang's ranks of attention share theirs."""
    is_eager: bool = False
    has_graphs: bool = True
    counts_graphs: bool = False
    """Whether CUDA graphs count within the share."""
    has_draft: bool = False
    has_own_drafts: bool = False
    """Whether the model's own draft layers (MTP) are loaded."""
    problems: tuple[str, ...] = ()


def read(order: Order, values: Mapping[str, str]) -> Settings:
    """The memory settings of this order.

    Args:
        values: every parameter's final value, where known already; they override the recipe's defaults and are
            overridden by the operator's settings.
    """
    recipe = order.recipe
    defaults = _by_main_name(recipe.defaults)
    merged = defaults | _by_main_name(values)
    own = _by_main_name(order.values)
    problems: list[str] = []

    def text_of(name: str) -> str | None:
        return own.get(name) or _command_value(recipe.command, name) or merged.get(name)

    def number(name: str) -> int | None:
        text = text_of(name)
        if text is None or text.lower() in ("auto", "-1", "none"):
            return None
        figure = whole(text)
        if figure is None:
            problems.append(f"{name} is {text[:20]!r}, which is not a valid number")
        return figure

    def is_on(name: str) -> bool:
        if name in own:
            return own[name].lower() in _TRUE
        is_given = re.search(rf"(?<!\S)--(?:{_spellings(name)})(?!\S)", recipe.command) is not None
        return is_given or merged.get(name, "no").lower() in _TRUE

    def key(name: str) -> str:
        """As this recipe spells it."""
        return next((spelling for spelling in (*recipe.defaults, *order.values) if main_name(spelling) == name), name)

    engine = recipe.engine
    image = own.get("container") or merged.get("container") or recipe.container
    version = release_of(version_of(image, engine))
    # What the operator sets is in `values` too, and no limit of the recipe's: without it the recipe's own is.
    bounds = recipe.need.share, _fraction((defaults if SHARE in own else merged).get(SHARE))
    share, source = _fixed_share(own, recipe.command, problems)
    modes = [text.strip("'\"").lower() for text in (text_of(name) for name in GRAPHS) if text]
    is_off = any(mode in ("none", "disabled") for mode in modes) or is_on(NO_GRAPHS)
    is_off = is_off or any(turns_graphs_off(text) for text in (*modes, recipe.command))
    draft = " ".join((recipe.command, text_of("speculative_config") or ""))
    return Settings(
        engine=engine,
        share=share,
        share_source=source,
        share_key=key(SHARE),
        share_limit=next((one for one in bounds if one is not None and 0 < one <= 1), None),
        context_tokens=number(CONTEXT),
        context_key=key(CONTEXT),
        cache_type=(text_of(CACHE_TYPE) or "auto").lower(),
        own_cache_type=(_command_value(recipe.command, CACHE_TYPE) or defaults.get(CACHE_TYPE) or "auto").lower(),
        cache_bytes=number(CACHE_SIZE) if engine is EngineKind.VLLM else None,
        tensor=number(TENSOR),
        pipeline=number(PIPELINE) or 1,
        data=(number(DATA) or 1) if engine is EngineKind.VLLM else 1,
        is_eager=is_on(EAGER),
        has_graphs=not (is_on(EAGER) or is_off),
        counts_graphs=counts_graphs(engine, version),
        has_draft=bool(_DRAFT.search(draft)),
        has_own_drafts=bool(_OWN_DRAFTS.search(draft)) or (text_of("speculative_algorithm") or "").upper() == "NEXTN",
        problems=tuple(problems),
    )


def usual_nodes(order: Order) -> int:
    """How many nodes it is for: as many as it has ranks, where it is for several; else one."""
    settings, least, most = read(order, {}), order.recipe.min_nodes, order.recipe.max_nodes
    ranks = (settings.tensor or 1) * settings.pipeline * settings.data
    return max(least, min(ranks, most)) if least > 1 else 1


def width_bytes(cache_type: str) -> float:
    """Bytes per cache element, by the engines' names of its type; 2 for "auto" and unknown types."""
    if cache_type in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[cache_type]
    if cache_type.startswith("fp8"):
        return 1.0
    if cache_type.startswith(("fp4", "nvfp4", "int4")):
        return 0.5625  # four bits and a scale of eight for sixteen of them
    return _DEFAULT_ELEMENT_BYTES


def whole(text: str) -> int | None:
    """ "32768", "32k" (decimal) or "32K" (binary) as a positive integer; None where it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    figure = int(float(match[1]) * _SUFFIXES[match[2]])
    return figure if figure > 0 else None


def _fixed_share(own: Mapping[str, str], command: str, problems: list[str]) -> tuple[float | None, str]:
    """(the share that is set, who sets it); (None, "") where none is."""
    for text, source in ((own.get(SHARE), "as you set it"), (_command_value(command, SHARE), "the recipe's command")):
        if text is None:
            continue
        if text.lower() == "auto":
            break
        share = _fraction(text)
        if share is not None:
            return share, source
        problems.append(f"{SHARE} is {text[:20]!r}, which is not a valid share: sparktop computes it instead")
    return None, ""


def _fraction(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and 0 < number <= 100 else None


def _by_main_name(values: Mapping[str, object]) -> dict[str, str]:
    """Non-empty values by their parameters' main names."""
    return {main_name(name.lower()): text for name, value in values.items() if (text := str(value).strip())}


def _spellings(name: str) -> str:
    group = next((names for names in SAME if name in names), (name,))
    return "|".join(re.escape(spelling).replace("_", "[-_]") for spelling in (*group, *_MORE_SPELLINGS.get(name, ())))


def _command_value(command: str, name: str) -> str | None:
    """A flag's literal value in the command (no {parameter}); the last one wins, as in the engines."""
    pattern = rf"(?<!\S)--?(?:{_spellings(name)})(?:=|\s+)('[^']*'|\"[^\"]*\"|[^\s\\]+)"
    plain = [word.strip("'\"") for word in re.findall(pattern, command)]
    return next((word for word in reversed(plain) if not re.fullmatch(r"\{\w+\}", word)), None)
