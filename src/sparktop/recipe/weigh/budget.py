"""Whether a launch fits into memory, and which changes ("levers") would make it fit.

A single lever where one is enough; two or three together only where that is needed. A lever that doesn't improve the
verdict is never offered.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations

from sparktop.dataclass import dataclass
from sparktop.model.engine import VERSIONED, EngineCommand, EngineKind
from sparktop.model.prospect import Budget, Fit, Lever, OnDisk
from sparktop.model.recipe import Recipe
from sparktop.recipe.model_config import ModelFacts, quantisation_by_name
from sparktop.recipe.parameters import LaunchValues
from sparktop.recipe.read.shelf import recipe_argument
from sparktop.recipe.weigh.demand import Case, demand_of
from sparktop.recipe.weigh.measured import measured, set_need
from sparktop.recipe.weigh.node_memory import Room
from sparktop.recipe.weigh.settings import CACHE_SIZE, CACHE_TYPE, EAGER, read, width_bytes
from sparktop.recipe.weigh.verdict import RANK, judge
from sparktop.text.units import gib

MAX_LEVERS = 4


MAX_COMBINED = 3


_CONTEXTS = (131072, 65536, 32768, 16384, 8192)


_MORE_NODES = (2, 4, 8)


_OTHER_NODE = "OTHER-HOST"


_CACHE_STEP_BYTES = 256 * 2**20


_STOP_ALL = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One change to a launch that could improve the verdict."""

    group: str
    """Levers of the same group are never combined."""
    lever: Lever
    """What it is to the operator; a parameter without a value gets the share of the verdict with it."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What it changes of them."""
    facts: ModelFacts | None = None
    """Of the model that it loads instead."""

    more: tuple[Room, ...] = ()
    """Further nodes."""

    def applied(self, case: Case) -> Case:
        """The launch with it."""
        rooms = case.rooms
        for name in self.lever.stops:
            rooms = tuple(room.without(name) for room in rooms)
        settings = replace(case.settings, **self.settings)  # type: ignore[arg-type]
        return replace(case, settings=settings, rooms=rooms + self.more, facts=self.facts or case.facts)


def levers(
    case: Case, verdict: Budget, values: LaunchValues, on_disk: Sequence[OnDisk] = ()
) -> tuple[tuple[Lever, Budget], ...]:
    """(lever, the verdict with it), best first; empty where it fits or the verdict is unknown."""
    if verdict.fit in (Fit.FITS, Fit.UNKNOWN):
        return ()
    candidates = tuple(_candidates(case, values, on_disk))
    for count in range(1, MAX_COMBINED + 1):
        improvements: list[tuple[Lever, Budget]] = []
        seen_groups: set[tuple[str, ...]] = set()
        for chosen in combinations(candidates, count):
            groups = tuple(candidate.group for candidate in chosen)
            if (
                len(set(groups)) < count
                or groups in seen_groups
                or (_STOP_ALL in groups and any(group.startswith("stop ") for group in groups))
            ):
                continue
            changed = case
            for candidate in chosen:
                changed = candidate.applied(changed)
            then = judge(changed)
            if RANK[then.fit] > RANK[verdict.fit]:
                seen_groups.add(groups)  # of one group the first is the mildest
                if _STOP_ALL in groups and any(
                    lever.stops and RANK[was.fit] >= RANK[then.fit] for lever, was in improvements
                ):
                    continue  # one of them does as well
                improvements.append((_joined([candidate.lever for candidate in chosen], then), then))
        if improvements:
            return tuple(improvements[:MAX_LEVERS])
    return ()


def _joined(chosen: Sequence[Lever], then: Budget) -> Lever:
    """One lever of several; what names another command comes first, the rest are its options."""
    share = f"{then.share or 0:.2f}"
    chosen = [replace(one, values={name: value or share for name, value in one.values.items()}) for one in chosen]
    first, *rest = sorted(chosen, key=lambda lever: not lever.words)
    return Lever(
        values={name: value for lever in chosen for name, value in lever.values.items()},
        stops=tuple(name for lever in chosen for name in lever.stops),
        nodes=max(lever.nodes for lever in chosen),
        words=" ".join((first.words, *(lever.text for lever in rest))) if first.words else "",
    )


def _candidates(case: Case, values: LaunchValues, on_disk: Sequence[OnDisk]) -> Iterator[_Candidate]:
    """Every lever to try, in the order the operator should prefer them."""
    settings, recipe = case.settings, values.order.recipe
    if settings.cache_bytes is not None:
        yield from _smaller_cache(case, settings.cache_bytes)
    elif settings.share is not None or settings.share_limit is not None:
        limit = settings.share_limit if settings.share is not None else None  # above it only where the operator says so
        yield _setting("share", settings.share_key, "", share=None, share_source="", share_limit=limit)
    context_tokens = demand_of(case).context_tokens
    for tokens in _CONTEXTS:
        if context_tokens is None or tokens < context_tokens:
            yield _setting("context", settings.context_key, tokens, context_tokens=tokens)
    if width_bytes(settings.cache_type) > 1.5 and settings.engine in VERSIONED:
        word = "fp8" if settings.engine is EngineKind.VLLM else "fp8_e4m3"
        yield _setting("cache type", CACHE_TYPE, word, cache_type=word)
    yield from _stops(case)
    for model in on_disk:
        is_there = model.is_complete and {room.node for room in case.rooms} <= set(model.nodes)
        is_loaded = settings.engine in VERSIONED and not is_gguf(model)
        if is_there and not model.is_wanted and is_loaded and same(values.model, model.name):
            facts = case.facts or ModelFacts(name=model.name, weights_bytes=None)
            facts = replace(facts, name=model.name, weights_bytes=model.size_bytes, is_complete=True)
            yield _Candidate(group="model", lever=Lever(values={"model": model.setting}), facts=facts)
    for count in _MORE_NODES:
        if len(case.rooms) < count <= recipe.max_nodes and count % (settings.pipeline * settings.data) == 0:
            yield _more_nodes(case, recipe, count)
    if settings.engine is EngineKind.VLLM and not settings.is_eager and case.need.spike_gib:
        yield _setting("graphs", EAGER, "true", is_eager=True, has_graphs=False)


def _setting(group: str, key: str, value: object, **changes: object) -> _Candidate:
    return _Candidate(group=group, lever=Lever(values={key: str(value)}), settings=changes)


def _smaller_cache(case: Case, current_bytes: int) -> Iterator[_Candidate]:
    """A cache that holds exactly one context."""
    context_bytes = demand_of(case).context_bytes
    if context_bytes is None:
        return
    size = max(_CACHE_STEP_BYTES, math.ceil(context_bytes / _CACHE_STEP_BYTES) * _CACHE_STEP_BYTES)
    if size != current_bytes:
        yield _setting("cache size", CACHE_SIZE, size, cache_bytes=size)


def _stops(case: Case) -> Iterator[_Candidate]:
    """Stop one running engine, the largest first; then all of them."""
    sizes: dict[str, int] = {}
    for room in case.rooms:
        for name, size in room.stays:
            if room.stoppable is None or name in room.stoppable:
                sizes[name] = max(sizes.get(name, 0), size)
    names = sorted((name for name, size in sizes.items() if size > 0), key=lambda name: -sizes[name])
    for name in names:
        yield _Candidate(group=f"stop {name}", lever=Lever(stops=(name,)))
    if len(names) > 1:
        yield _Candidate(group=_STOP_ALL, lever=Lever(stops=tuple(names)))


def _more_nodes(case: Case, recipe: Recipe, count: int) -> _Candidate:
    """Launch on more nodes, each assumed to have as much memory as the first."""
    first, extra = case.rooms[0], count - len(case.rooms)
    other = Room(
        node=_OTHER_NODE,
        total_bytes=first.total_bytes,
        available_bytes=first.reach,
        has_desktop=first.has_desktop,
    )
    tensor = count // (case.settings.pipeline * case.settings.data)
    hosts = " ".join([*(shlex.quote(room.node) for room in case.rooms), *[_OTHER_NODE] * extra])
    lever = Lever(
        values={"tensor_parallel": str(tensor)},
        nodes=count,
        words=f"{'two' if count == 2 else count} nodes: sparktop launch {shlex.quote(recipe_argument(recipe))} {hosts} "
        f"--set tensor_parallel={tensor}",
    )
    return _Candidate(group="nodes", lever=lever, settings={"tensor": tensor}, more=(other,) * extra)


def advice_of(verdict: Budget, levers: Sequence[tuple[Lever, Budget]]) -> str:
    """The sentence on the lever that would change the verdict, or that none does."""
    if verdict.fit in (Fit.FITS, Fit.UNKNOWN):
        return ""
    if levers:
        lever, then = levers[0]
        left = min((node.left_bytes for node in then.nodes), default=0)
        word = {Fit.FITS: "it fits", Fit.TIGHT: "it barely fits"}.get(then.fit, "it may fit")
        return f"With {lever.text} {word}: {gib(left)} would remain."
    return "No setting here makes it fit." if verdict.fit is Fit.NO else ""


_QUANTISATION_WORD = re.compile(
    r"fp8|fp4|nvfp4(a\d+)?|mxfp4|mxfp8|mx|awq|gptq|gguf|exl[23]|bnb|autoround|marlin|bf16|fp16|f16|f32|fp32|int[48]|[24568]bit"
    r"|(quantized\.)?w\d+a\d+|g\d+|a?sym|mixed|i?q\d(_\w+)?|ud|k|m|s|xl|e4m3|block|dynamic|static|quantized|quant|qat|hf|ct|compressed|tensors|modelopt"
    r"|torchao|llmcompressor"
)
"""A word of a model's name that says how it was quantised."""


_BUILD_WORD = re.compile(r"gb10|spark|dgx|sm12[01]a?|blackwell|ac")
"""A word that says what hardware it was built for."""


_TUNING_WORD = re.compile(
    r"instruct|it|chat|base|thinking|reasoning|abliterated|uncensored|heretic|finetuned?|sft|dpo|tuned|\d{4,8}"
)


_DRAFT_WORD = re.compile(
    r"eagle\d*|draft|dflash|mtp|speculator|speculators|medusa|lora|adapter|mmproj|embedding|reranker|vae"
)
"""A word that says it is no model to serve by itself."""


def alternatives(model_name: str, on_disk: Sequence[OnDisk], *, loads_gguf: bool = False) -> tuple[OnDisk, ...]:
    """Models on the disks that are the wanted one or could replace it, best first, each with a note on how to use it.

    The wanted one first, then complete copies before incomplete ones, the same model before its fine-tunes, formats
    that engines read well before GGUF, on more nodes before fewer, smaller before larger.
    """
    ranked: list[tuple[tuple[object, ...], OnDisk]] = []
    for model in on_disk:
        is_wanted = _is_model(model, model_name)
        difference = None if is_wanted else _difference(model_name, model.name)
        if not is_wanted and (difference is None or (loads_gguf and not is_gguf(model))):
            continue
        is_last = (bool(difference), is_gguf(model), -len(model.nodes), model.size_bytes, model.name)
        rank = (not is_wanted, not model.is_complete, *is_last)
        note = "the recipe's model" if is_wanted else _relation(model, difference or "", loads_gguf=loads_gguf)
        ranked.append((rank, replace(model, is_wanted=is_wanted, note=note)))
    return tuple(model for _, model in sorted(ranked, key=lambda one: one[0]))


def same(first: str, name: str) -> bool:
    """Whether both names are the same model, in whatever quantisation."""
    return _difference(first, name) == ""


def is_gguf(model: OnDisk) -> bool:
    """Whether the model is a GGUF file for llama.cpp, which vLLM and SGLang barely support."""
    return "gguf" in (model.quantisation.lower(), quantisation_by_name(model.name))


def core(name: str) -> tuple[str, ...]:
    """The words of a model's name that identify the model: ("minimax", "m2.7")."""
    return tuple(
        word for word in _name_words(name) if not (_QUANTISATION_WORD.fullmatch(word) or _BUILD_WORD.fullmatch(word))
    )


def _name_words(name: str) -> list[str]:
    """The words of "saricles/MiniMax-M2.7-NVFP4", "/models/MiniMax-M2.7" or "models--a--b", lower case."""
    last = name.rstrip("/").rpartition("/")[2].rpartition("--")[2] or name
    return [word for word in re.split(r"[-_\s]+", last.lower().removesuffix(".gguf")) if word]


def _is_model(model: OnDisk, model_name: str) -> bool:
    if model_name.startswith(("/", "~", ".")):
        return model.path.rstrip("/") == model_name.rstrip("/")
    names = (model.name.lower(), model.name.lower().removeprefix("models--").replace("--", "/"))
    return model_name.lower() in names


def _difference(first: str, second: str) -> str | None:
    """ "" for the same model, the distinguishing words for a fine-tune of it, None for another model."""
    first_words, second_words = core(first), core(second)
    if not first_words or not second_words or (_has_draft_word(second_words) and not _has_draft_word(first_words)):
        return None
    if first_words == second_words:
        return ""
    extra = [term for term in (*first_words, *second_words) if (term in first_words) != (term in second_words)]
    common = [word for word in first_words if word in second_words]
    if not common or common[0] != first_words[0] or common[0] != second_words[0]:
        return None
    return " ".join(extra) if all(_TUNING_WORD.fullmatch(term) for term in extra) else None


def _has_draft_word(words: tuple[str, ...]) -> bool:
    return any(_DRAFT_WORD.fullmatch(word) for word in words)


def _relation(model: OnDisk, difference: str, *, loads_gguf: bool) -> str:
    """ "the same model in NVFP4", of one that could replace the wanted one."""
    relation = f"a related model ({difference})" if difference else "the same model"
    if kind := model.quantisation or quantisation_by_name(model.name):
        barely = ", which vLLM and SGLang barely support" if is_gguf(model) and not loads_gguf else ""
        relation += f" in {kind.upper()}{barely}"
    return relation


def budget(
    values: LaunchValues,
    rooms: Sequence[Room],
    facts: ModelFacts | None,
    *,
    on_disk: Sequence[OnDisk] = (),
    beside: Sequence[ModelFacts] = (),
    command: EngineCommand | None = None,
) -> Budget:
    """The memory budget of this launch on these nodes, the head first.

    Args:
        facts: the model's; None where neither its files nor the hub could be read.
        on_disk: the result of `alternatives`: offered where it would improve the verdict.
        beside: facts of further models loaded on every node, such as a draft.
        command: what would be started, to be compared with what was measured on these nodes.

    Raises:
        CannotRender: no command can be made of them.
    """
    settings = read(values)
    case = Case(
        settings=settings,
        need=values.order.recipe.need,
        rooms=tuple(rooms),
        facts=facts,
        beside=tuple(beside),
        set_need=set_need(values.order.values),
        measured=measured(command, values.image, rooms, settings, facts),
    )
    verdict = judge(case)
    improvements = levers(case, verdict, values, on_disk)
    return replace(verdict, advice=advice_of(verdict, improvements), levers=tuple(lever for lever, _ in improvements))
