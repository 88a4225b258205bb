"""The settings of a launch that decide about memory: share, context, cache, parallelism, graphs.

They are read from the command that its engine would start with. A value that can't be parsed is reported and ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from sparktop.cmdline.engine_argv import flag_of, values_of, whole
from sparktop.cmdline.engine_command import of_process
from sparktop.cmdline.engine_flags import canonical
from sparktop.dataclass import dataclass
from sparktop.engines.images import release_of, version_of
from sparktop.engines.memory_needs import counts_graphs, turns_graphs_off
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe import template
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.parameters import SHARE, LaunchValues, main_name, resolve
from sparktop.recipe.render.engine_argv import plain_argv
from sparktop.recipe.render.more_models import speculation
from sparktop.recipe.settings import made_up

CONTEXT = "max_model_len"
CACHE_TYPE = "kv_cache_dtype"
CACHE_SIZE = "kv_cache_memory_bytes"
EAGER = "enforce_eager"
_GRAPHS = ("compilation_config", "cudagraph_mode", "cuda_graph_backend_decode")
_OWN_DRAFTS = re.compile(r"\w*mtp|nextn")
_ADAPTERS = ("lora", "lora-scaled")
_ELEMENT_BYTES = {
    "float32": 4.0, "fp32": 4.0, "fp8_ds_mla": 656 / 576, "int8": 1.0, "f32": 4.0, "q8_0": 34 / 32, "q5_1": 24 / 32,
    "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32,
}  # fmt: skip
"""Of ggml's types with their scales, for blocks of 32."""
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
    context_key: str = CONTEXT
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
    has_adapter: bool = False
    """Whether llama.cpp loads a LoRA."""
    has_own_drafts: bool = False
    """Whether the model's own draft layers (MTP) are loaded."""
    problems: tuple[str, ...] = ()

    @property
    def takes_share(self) -> bool:
        """False where it takes what its weights and its context need."""
        return bool(self.engine.traits.share_flag)

    @property
    def beside(self) -> str:
        """What comes on top of that."""
        return "outside its share" if self.takes_share else "for its processes"


def read(launch: LaunchValues) -> Settings:
    """The memory settings of this launch.

    Raises:
        CannotRender: no command can be made of it.
    """
    recipe, unset = launch.order.recipe, launch.before or launch
    engine, argv = recipe.engine, plain_argv(launch)
    variables = tuple(f"{name}={value}" for name, value in recipe.environment.items())
    command = of_process(argv, variables)
    flags, problems = command.flags if command is not None else values_of(argv, engine), list[str]()

    def given(name: str) -> str:
        """The value of a parameter's flag; empty where it isn't given."""
        return flags.get(canonical(flag_of(name, engine), engine), "")

    def number(name: str) -> int | None:
        text = given(name)
        if text.lower() in ("", "auto", "-1", "0", "none"):
            return None
        if (figure := whole(text)) is None:
            problems.append(f"{name} is {text[:20]!r}, which is not a valid number")
        return figure

    def key(name: str) -> str:
        """As this recipe spells it."""
        return next(
            (spelling for spelling in (*recipe.defaults, *launch.order.values) if main_name(spelling) == name), name
        )

    share, source = _fixed_share(launch, given(SHARE), problems)
    limits = (recipe.need.share, _fraction(unset.get(SHARE))) if engine.traits.share_flag else ()
    own_flags = values_of(plain_argv(unset), engine) if unset is not launch else flags
    draft, method = speculation(argv)
    is_eager = EAGER.replace("_", "-") in flags
    is_off = "disable-cuda-graph" in flags or any(given(name).lower() in ("none", "disabled") for name in _GRAPHS)
    return Settings(
        engine=engine,
        share=share,
        share_source=source,
        share_key=key(SHARE),
        share_limit=next(
            (one for one in limits if engine.traits.share_flag and one is not None and 0 < one <= 1), None
        ),
        context_tokens=number(CONTEXT),
        context_key=key(CONTEXT),
        cache_type=_cache_type(flags, engine),
        own_cache_type=_cache_type(own_flags, engine),
        cache_bytes=number(CACHE_SIZE) if engine is EngineKind.VLLM else None,
        tensor=number("tensor_parallel"),
        pipeline=number("pipeline_parallel") or 1,
        data=(number("data_parallel") or 1) if engine is EngineKind.VLLM else 1,
        is_eager=is_eager,
        has_graphs=bool(engine.traits.graphs_off) and not (is_eager or is_off or turns_graphs_off(" ".join(argv))),
        counts_graphs=counts_graphs(engine, release_of(version_of(launch.image, engine))),
        has_draft=bool(draft) or "spec-draft-model" in flags,
        has_adapter=not flags.keys().isdisjoint(_ADAPTERS),
        has_own_drafts=_OWN_DRAFTS.fullmatch(method) is not None,
        problems=tuple(problems),
    )


def usual_nodes(order: Order) -> int:
    """How many nodes it is for: as many as it has ranks, where it is for several; else one."""
    least, most = order.recipe.min_nodes, order.recipe.max_nodes
    try:
        settings = read(resolve(replace(order, values={**made_up(order.recipe), **order.values})))
    except CannotRender:
        return least
    ranks = (settings.tensor or 1) * settings.pipeline * settings.data
    return max(least, min(ranks, most)) if least > 1 else 1


def width_bytes(cache_type: str) -> float:
    """Bytes per cache element, by the engines' names of its type; 2 for "auto" and unknown types."""
    if "+" in cache_type:  # keys and values
        return sum(map(width_bytes, cache_type.split("+"))) / 2
    if cache_type in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[cache_type]
    if cache_type.startswith("fp8"):
        return 1.0
    if cache_type.startswith(("fp4", "nvfp4", "int4")):
        return 0.5625  # four bits and a scale of eight for sixteen of them
    return _DEFAULT_ELEMENT_BYTES


def _cache_type(flags: Mapping[str, str], engine: EngineKind) -> str:
    types = [flags.get(name, "f16") for name in engine.traits.cache_types]
    return ("+".join(types) or flags.get(CACHE_TYPE.replace("_", "-")) or "auto").lower()


def _fixed_share(launch: LaunchValues, given: str, problems: list[str]) -> tuple[float | None, str]:
    """(the share that is set, who sets it); (None, "") where none is.

    Args:
        given: the flag's value in the command.
    """
    recipe, source = launch.order.recipe, ""
    if any(main_name(name) == SHARE for name in launch.set_names):
        given, source = launch.get(SHARE) or "", "as you set it"
    elif recipe.command.strip() and SHARE not in map(main_name, template.used(recipe.command, launch.by_name)):
        source = "the recipe's command"
    if not source or given.lower() in ("", "auto"):
        return None, ""
    if (share := _fraction(given)) is None:
        problems.append(f"{SHARE} is {given[:20]!r}, which is not a valid share: sparktop computes it instead")
    return share, source if share is not None else ""


def _fraction(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and 0 < number <= 100 else None
