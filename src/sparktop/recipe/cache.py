"""What the KV cache takes of a node for so many tokens of context, and how many tokens fit. Pure.

A layer of full attention keeps 2 x heads x head size elements of every token, one of multi-head latent attention a
single vector; one with a sliding window keeps no more tokens than its window. Heads are divided over tensor parallel
ranks, never below one; a latent vector is on each rank; pipeline stages divide the layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.model.recipe import Need
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.settings import Settings, width_bytes
from sparktop.recipe.weights import parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One node's cache, by its token."""

    token_bytes: float | None
    """What each token adds; None: not known, `note` says why. 0: nothing grows."""
    window_token_bytes: float = 0.0
    """What each token adds up to the window's length."""
    window_tokens: int = 0
    note: str = ""

    def size_bytes(self, tokens: int) -> int | None:
        """What so many tokens of one request take."""
        if self.token_bytes is None:
            return None
        return math.ceil(self.token_bytes * tokens + self.window_token_bytes * min(tokens, self.window_tokens))

    def tokens(self, size_bytes: int) -> int | None:
        """How many tokens of one request fit; None where that isn't known or has no bound."""
        if self.token_bytes is None or size_bytes <= 0:
            return None if self.token_bytes is None else 0
        both = self.token_bytes + self.window_token_bytes
        if both * self.window_tokens >= size_bytes or (self.token_bytes == 0 and self.window_token_bytes > 0):
            found = size_bytes / both
        elif self.token_bytes > 0:
            found = (size_bytes - self.window_token_bytes * self.window_tokens) / self.token_bytes
        else:
            return None
        return int(min(found, 1e12))


def cache_on_a_node(settings: Settings, need: Need, facts: ModelFacts | None, nodes: int) -> Cache:
    """The cache of each of so many nodes: by the model's own structure, else by the recipe's figure."""
    width = width_bytes(settings.cache_type)
    if facts is not None:
        elements = _elements(facts, settings, nodes)
        growing, windowed = _layers(facts)
        if elements is not None and growing is not None:
            stages = max(1, min(settings.pipeline, nodes))
            return Cache(
                token_bytes=math.ceil(growing / stages) * elements * width,
                window_token_bytes=math.ceil(windowed / stages) * elements * width,
                window_tokens=max(0, facts.window_tokens or 0),
            )
    if need.kv_bytes_per_token is not None and 0 <= need.kv_bytes_per_token < 1e9:
        scaled = need.kv_bytes_per_token * width / width_bytes(settings.own_cache_type)
        return Cache(
            token_bytes=scaled / parts(settings, nodes),
            note=f"cache by the recipe, {scaled / 1024:.1f} KiB a token, not by the model's files",
        )
    why = (
        "its config.json doesn't tell its layers and heads" if facts is not None else "its files couldn't be looked at"
    )
    return Cache(token_bytes=None, note=f"what a token of context takes: {why}, and the recipe doesn't tell")


def with_more(own: Cache, more: Sequence[tuple[str, Cache]]) -> Cache:
    """The model's cache with those of further models, which keep every token too; by name, for what isn't known."""
    if own.token_bytes is None or not more:
        return own
    known = [cache for _, cache in more if cache.token_bytes is not None]
    unknown = [name for name, cache in more if cache.token_bytes is None]
    notes = [own.note, f"what {' and '.join(unknown)} keeps of a token isn't known, and not counted" if unknown else ""]
    return Cache(
        token_bytes=own.token_bytes + sum(cache.token_bytes or 0.0 for cache in known),
        window_token_bytes=own.window_token_bytes + sum(cache.window_token_bytes for cache in known),
        window_tokens=max([own.window_tokens, *(cache.window_tokens for cache in known)]),
        note="; ".join(note for note in notes if note),
    )


def _elements(facts: ModelFacts, settings: Settings, nodes: int) -> float | None:
    """Elements that one layer keeps of one token on one node."""
    if facts.latent_size is not None and facts.latent_size > 0:
        return facts.latent_size
    if not facts.kv_heads or not facts.head_size or facts.kv_heads < 0 or facts.head_size < 0:
        return None
    stages = max(1, min(settings.pipeline, nodes))
    ranks = max(1, parts(settings, nodes) // stages)
    return 2 * math.ceil(facts.kv_heads / ranks) * facts.head_size


def _layers(facts: ModelFacts) -> tuple[int | None, int]:
    """(layers whose cache grows with every token, layers with a window)."""
    windowed = max(0, facts.window_layers or 0) if facts.window_tokens else 0
    if facts.cache_layers is not None:
        return max(0, facts.cache_layers), windowed
    if facts.layers is not None:
        return max(0, facts.layers - windowed), windowed
    return None, windowed
