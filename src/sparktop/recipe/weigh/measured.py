"""Figures of a launch that are better known than computed: what was measured here, and what the operator sets.

A measured figure holds for the very settings that it was measured with: a lever that changes one of them goes without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.engines.memory_taken import is_of
from sparktop.model.engine import EngineCommand
from sparktop.model.recipe import Need
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.parameters import NEEDS, get
from sparktop.recipe.weigh.node_memory import Room
from sparktop.recipe.weigh.settings import Settings
from sparktop.text.units import day_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What this launch was seen to take on one node, where it takes the most."""

    when: str
    """ "measured here, Nov 14 13:20, at a share of 0.70"."""
    settings: Settings
    facts: ModelFacts | None
    """Those that it was measured with."""
    weights_bytes: int | None = None
    """With those of its drafts."""
    context_tokens: int | None = None
    context_bytes: int | None = None
    beyond_bytes: int | None = None

    def holds(self, settings: Settings, facts: ModelFacts | None) -> bool:
        """Whether these are the settings and the model that it was measured with, but for share and context."""
        return facts == self.facts and _deciding(settings) == _deciding(self.settings)


def _deciding(settings: Settings) -> Settings:
    return replace(
        settings, share=None, share_source="", share_limit=None, context_tokens=None, cache_bytes=None, problems=()
    )


def set_need(values: Mapping[str, str]) -> Need:
    """What the operator sets of what the launch needs: `--set need.NAME=FIGURE`."""
    return Need(
        **{name.partition(".")[2]: float(figure) for name in NEEDS if (figure := get(values, name)) is not None}
    )


def measured(
    command: EngineCommand | None, image: str, rooms: Sequence[Room], settings: Settings, facts: ModelFacts | None
) -> Measured | None:
    """The figures of a launch with this command and image, of the node where each is the largest."""
    if command is None:
        return None
    found = [next((one for one in room.taken if is_of(one, command, image)), None) for room in rooms]
    known = [one for one in found if one is not None]
    if not known:
        return None
    newest = max(known, key=lambda one: one.wall_s)
    cached = max(known, key=lambda one: (one.context_tokens == settings.context_tokens, one.context_bytes or 0))
    share = f", at a share of {newest.share:.2f}" if newest.share is not None else ""
    return Measured(
        when=f"measured here, {day_time(newest.wall_s)}{share}",
        settings=settings,
        facts=facts,
        weights_bytes=max((one.weights_bytes for one in known if one.weights_bytes), default=None),
        context_tokens=cached.context_tokens,
        context_bytes=cached.context_bytes,
        beyond_bytes=max((one.beyond_bytes for one in known if one.beyond_bytes is not None), default=None),
    )
