"""What of a model's weights each node holds. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparktop.diagnose.live.window import GIB
from sparktop.model.recipe import Need
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A size, and what is to be said about it."""

    size_bytes: int | None
    """None: not known; `note` says why."""
    note: str = ""
    """Empty where it is the model's own figure."""


def parts(settings: Settings, nodes: int) -> int:
    """Among how many nodes the weights are divided: a Spark has one GPU, so never more than there are nodes."""
    tensor = settings.tensor if settings.tensor is not None else max(1, nodes // max(1, settings.pipeline))
    return max(1, min(max(1, nodes), tensor * max(1, settings.pipeline)))


def weights_on_a_node(settings: Settings, need: Need, facts: ModelFacts | None, nodes: int) -> Known:
    """Bytes of weights that each of so many nodes holds: the model's own tensors, else the recipe's figure, else its
    files."""
    whole, note = _whole(need, facts)
    if whole is None:
        return Known(size_bytes=None, note=note)
    return Known(size_bytes=math.ceil(whole / parts(settings, nodes)), note=note)


def _whole(need: Need, facts: ModelFacts | None) -> tuple[int | None, str]:
    own_gib = need.weights_gib if need.weights_gib is not None and 0 < need.weights_gib < 1e6 else None
    if facts is not None and facts.weights_bytes is not None and facts.weights_bytes > 0:
        note = (
            "" if facts.is_complete else f"{facts.name} is not complete on disk: its weights are those that are there"
        )
        if not facts.is_complete and own_gib is not None and own_gib * GIB > facts.weights_bytes:
            return int(own_gib * GIB), f"weights by the recipe, {own_gib:g} GiB: {note}"
        return facts.weights_bytes, note
    if own_gib is not None:
        return int(own_gib * GIB), f"weights by the recipe, {own_gib:g} GiB, not by the model's files"
    if facts is not None and facts.size_bytes is not None and facts.size_bytes > 0:
        return facts.size_bytes, "weights by the size of the model's files, which may hold more than is loaded"
    return None, "how large the weights are: neither the model's files nor the recipe tell"
