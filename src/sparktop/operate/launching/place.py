"""One rank where it is to be started: its container as Docker is asked for it, and what it needs there. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktop.model.fleet import NodeView
from sparktop.model.prospect import NodeBudget
from sparktop.operate.launching.leftovers import NEXT, Leftover
from sparktop.recipe.rendered import Rank

NEW = "{NEW}"
"""Stands for the id of the container that `make` has made (`operate.saved`)."""
STARTED = "STARTED"
"""What a start saves once Docker has started it: the way back has a log to keep only then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The container that has a rank's name now, and gives it up."""

    container_id: str
    name: str
    before_name: str
    """What it is called from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank and its node."""

    rank: Rank
    view: NodeView
    body: Mapping[str, Any] = field(repr=False)
    """POST /containers/create, without a restart policy: it gets that when it has served (facts/engines.md C13)."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """The restart policy that the recipe asks for; empty: none."""
    image_id: str = ""
    """Of the image that is there; empty: it is fetched first, and is whatever comes."""
    image: Mapping[str, Any] | None = None
    """GET /images/<ref>/json, for the line by hand."""
    taken: Taken | None = None
    leftovers: tuple[Leftover, ...] = ()
    """What an interrupted launch has left under its name: removed first."""
    stamp: str = ""
    """Of this plan: "20261121T031211"."""
    mark: str = ""
    """Of its steps' ids: "@spark2" where there are two."""
    budget: NodeBudget | None = None
    target_bytes: int | None = None
    """What has to be available before it is started; None: nothing tells."""
    asked_bytes: int | None = None
    """What the engine takes by its share."""
    floor_bytes: int = 0
    """Of its guard."""

    @property
    def node(self) -> str:
        return self.rank.node

    @property
    def name(self) -> str:
        return self.rank.container.name

    @property
    def made_name(self) -> str:
        """What it is called until it is started: its own name, unless another has that still."""
        return f"{self.name}{NEXT}{self.stamp}" if self.taken is not None else self.name

    @property
    def is_head(self) -> bool:
        return self.rank.index == 0
