"""What a node has and what an engine takes of it: memory, weights and KV cache per node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.model.fleet import Taken
from sparktop.model.recipe import Need
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.weigh.settings import Settings, width_bytes
from sparktop.text.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory of one node before a launch."""

    node: str
    total_bytes: int
    available_bytes: int
    """MemAvailable now."""
    going: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of engines that will be stopped first: their memory comes free."""
    stays: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of other engines and GPU processes that keep running; their memory is not available."""
    stoppable: tuple[str, ...] | None = None
    """Names in `stays` that `--stop NAME` accepts: the engines; None: all."""
    has_desktop: bool | None = None
    baseline_bytes: int | None = None
    """Available memory after the last boot; None: not measured."""
    taken: tuple[Taken, ...] = ()
    """What engines were seen to take of it, the newest first."""

    @property
    def total(self) -> int:
        return max(0, self.total_bytes)

    @property
    def available(self) -> int:
        """Memory available now, never more than the total."""
        return min(self.total, max(0, self.available_bytes))

    @property
    def reach(self) -> int:
        """Memory available once everything in `going` has stopped: at most the figure after boot, at least the figure
        now.

        Engines' memory is added up from several readings and can be counted twice; the figure after boot can't.
        """
        freed = sum(max(0, size) for _, size in self.going)
        staying = sum(max(0, size) for _, size in self.stays)
        most = self.total - staying if self.baseline_bytes is None else min(self.total - staying, self.baseline_bytes)
        return max(self.available, min(self.available + freed, most))

    def without(self, name: str) -> Room:
        """The same node with that engine stopped as well."""
        stopped = tuple(item for item in self.stays if item[0] == name)
        staying = tuple(entry for entry in self.stays if entry[0] != name)
        return replace(self, going=self.going + stopped, stays=staying)


def shards(settings: Settings, nodes: int) -> int:
    """Into how many parts the weights are divided: at most one per node, as a Spark has one GPU."""
    apart = max(1, settings.pipeline) * max(1, settings.data)
    tensor = settings.tensor if settings.tensor is not None else max(1, nodes // apart)
    return max(1, min(max(1, nodes), tensor * max(1, settings.pipeline)))


def total_weights(need: Need, facts: ModelFacts | None) -> tuple[int | None, str]:
    """(bytes of weights on all nodes together; None: unknown, a note where they aren't the model's own): from its
    tensors, else the recipe's figure, else its file sizes."""
    own_gib = need.weights_gib if need.weights_gib is not None and 0 < need.weights_gib < 1e6 else 0.0
    own_bytes, stated = int(own_gib * GIB), f"weights as stated in the recipe, {own_gib:g} GiB"
    if facts is not None and facts.weights_bytes:
        note = "" if facts.is_complete else f"{facts.name} is incomplete on disk: only the files present are counted"
        if not facts.is_complete and own_bytes > facts.weights_bytes:
            return own_bytes, f"{stated}: {note}"
        return facts.weights_bytes, note
    if own_bytes:
        return own_bytes, f"{stated}, not from the model's files"
    if facts is not None and facts.size_bytes:
        return facts.size_bytes, "weights from the size of the model's files; the engine may load less"
    return None, "the size of the weights: neither the model's files nor the recipe state it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Bytes of KV cache per token, on one node."""

    token_bytes: float | None
    """Bytes that each token adds; None: unknown, `note` says why. 0: the cache doesn't grow."""
    window_token_bytes: float = 0.0
    """Bytes that each token adds until the window is full."""
    window_tokens: int = 0
    note: str = ""

    def size_bytes(self, tokens: int) -> int | None:
        """Bytes for one request of so many tokens."""
        if self.token_bytes is None:
            return None
        return math.ceil(self.token_bytes * tokens + self.window_token_bytes * min(tokens, self.window_tokens))

    def tokens(self, size_bytes: int) -> int | None:
        """The longest request that fits, in tokens; None where that is unknown or unlimited."""
        if self.token_bytes is None or size_bytes <= 0:
            return None if self.token_bytes is None else 0
        within_window_bytes = self.token_bytes + self.window_token_bytes
        if within_window_bytes * self.window_tokens >= size_bytes or (
            self.token_bytes == 0 and self.window_token_bytes > 0
        ):
            tokens = size_bytes / within_window_bytes
        elif self.token_bytes > 0:
            tokens = (size_bytes - self.window_token_bytes * self.window_tokens) / self.token_bytes
        else:
            return None
        return int(min(tokens, 1e12))


def cache_on_a_node(settings: Settings, need: Need, facts: ModelFacts | None, nodes: int) -> Cache:
    """The KV cache on each of `nodes` nodes: from the model's structure, else the recipe's figure."""
    if facts is not None and not facts.unread:
        layer_bytes = _layer_bytes(facts, settings, nodes)
        growing_layers, windowed_layers = _layers(facts)
        if layer_bytes is not None and growing_layers is not None:
            stages = max(1, min(settings.pipeline, nodes))
            drafts = max(0.0, facts.draft_layers or 0.0) if settings.has_own_drafts else 0.0
            index_layers = facts.index_layers + (drafts if facts.index_layers else 0)
            is_said = not settings.has_own_drafts or facts.draft_layers is not None
            return Cache(
                token_bytes=_a_stage(growing_layers + drafts, stages) * layer_bytes[0]
                + _a_stage(index_layers, stages) * facts.index_bytes,
                window_token_bytes=_a_stage(windowed_layers, stages) * layer_bytes[1],
                window_tokens=max(0, facts.window_tokens or 0),
                note="" if is_said else "the cache of the model's own draft layers is unknown and not counted",
            )
    if need.kv_bytes_per_token is not None and 0 <= need.kv_bytes_per_token < 1e9:
        width = width_bytes(settings.cache_type)
        scaled = need.kv_bytes_per_token * width / width_bytes(settings.own_cache_type)
        return Cache(
            token_bytes=scaled / shards(settings, nodes),
            note=f"cache as stated in the recipe, {scaled / 1024:.1f} KiB per token, not from the model's files",
        )
    why = "its config.json lacks its layers or heads" if facts is not None else "sparktop couldn't read its files"
    if facts is not None and facts.unread:
        why = f"sparktop doesn't know {facts.unread} in its config.json"
    return Cache(token_bytes=None, note=f"the memory per token of context: {why}, and the recipe doesn't state it")


def with_more(own: Cache, more: Sequence[tuple[str, Cache]]) -> Cache:
    """The model's cache plus that of further models, such as drafts, which cache every token too."""
    if own.token_bytes is None or not more:
        return own
    counted = [cache for _, cache in more if cache.token_bytes is not None]
    unknown = [name for name, cache in more if cache.token_bytes is None]
    notes = [own.note, f"the cache of {' and '.join(unknown)} per token is unknown and not counted" if unknown else ""]
    return Cache(
        token_bytes=own.token_bytes + sum(cache.token_bytes or 0.0 for cache in counted),
        window_token_bytes=own.window_token_bytes + sum(cache.window_token_bytes for cache in counted),
        window_tokens=max([own.window_tokens, *(cache.window_tokens for cache in counted)]),
        note="; ".join(note for note in notes if note),
    )


def _layer_bytes(facts: ModelFacts, settings: Settings, nodes: int) -> tuple[float, float] | None:
    """Bytes per token on one node of (a growing layer, one with a window)."""
    width = width_bytes(settings.cache_type)
    latent, packed = max(0, facts.latent_size or 0), max(0, facts.latent_bytes or 0)
    if each := packed if packed and (width <= 1 or not latent) else latent * width:
        return each, each
    if not facts.kv_heads or not facts.head_size or facts.kv_heads < 0 or facts.head_size < 0:
        return None
    stages = max(1, min(settings.pipeline, nodes))
    ranks = max(1, shards(settings, nodes) // stages)
    own = facts.kv_heads, facts.head_size + (facts.value_size or facts.head_size)
    growing, windowed = (math.ceil(heads / ranks) * size * width for heads, size in (own, facts.window_heads or own))
    return growing, windowed


def _a_stage(layers: float, stages: int) -> float:
    return layers if stages == 1 else math.ceil(layers / stages)  # a layer may count as a part of one


def _layers(facts: ModelFacts) -> tuple[float | None, int]:
    """(layers whose cache grows with every token, layers with a window)."""
    windowed = max(0, facts.window_layers or 0) if facts.window_tokens else 0
    if facts.cache_layers is not None:
        return max(0, facts.cache_layers), windowed
    if facts.layers is not None:
        return max(0, facts.layers - windowed), windowed
    return None, windowed
