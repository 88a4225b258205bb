"""The ranks of a launch at their places: what each needs of its node before it is started. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sparktop.diagnose.live.window import GIB
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Budget, NodeBudget, SliceKind
from sparktop.model.recipe import Recipe
from sparktop.operate.changing import image_path
from sparktop.operate.launching.leftovers import leftovers
from sparktop.operate.launching.outlook import Outlook
from sparktop.operate.launching.place import Place
from sparktop.operate.launching.running import taken
from sparktop.operate.survey import DockerGet, Survey
from sparktop.operate.target import SLACK_BYTES
from sparktop.recipe.docker import body
from sparktop.recipe.labels import LAUNCH
from sparktop.recipe.rendered import Rank
from sparktop.recipe.reserve import HOST_BYTES

_NO_POLICY: Mapping[str, Any] = {"Name": "no", "MaximumRetryCount": 0}
_ITS_OWN = (SliceKind.WEIGHTS, SliceKind.CACHE, SliceKind.UNTOUCHED)


def stamp_of(picture: FleetState) -> str:
    """The moment of a plan: in names and labels of what it makes."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(picture.wall_s))


def places(found: Outlook) -> tuple[Place, ...]:
    """One for each rank, the head first."""
    looked = found.looked
    assert looked.rendered is not None  # the planner has looked
    ranks = looked.rendered.ranks
    return tuple(_place(rank, found, mark=f"@{rank.node}" if len(ranks) > 1 else "") for rank in ranks)


def _place(rank: Rank, found: Outlook, mark: str) -> Place:
    looked = found.looked
    view = looked.view(rank.node)
    assert view is not None  # Operations has looked
    stamp = stamp_of(looked.picture)
    asked = dict(body(rank.container))
    host = dict(asked.get("HostConfig") or {})
    host["RestartPolicy"] = dict(_NO_POLICY)
    asked["HostConfig"] = host
    asked["Labels"] = {**(asked.get("Labels") or {}), LAUNCH: stamp}
    image = _image(rank.node, rank.container.image, looked.survey)
    budget = _of(found.budget, rank.node)
    target, need = room_for(budget)
    was, left = taken(rank, looked.survey, stamp), leftovers(rank, looked.survey)
    return Place(
        rank=rank,
        view=view,
        body=asked,
        policy=policy_of(found.order.recipe),
        image_id=str(image.get("Id") or "") if image is not None else "",
        image=image,
        taken=None if was is not None and was.container_id in {one.container_id for one in left} else was,
        leftovers=left,
        stamp=stamp,
        mark=mark,
        budget=budget,
        target_bytes=target,
        asked_bytes=need,
        floor_bytes=floor_of(budget),
    )


def policy_of(recipe: Recipe) -> Mapping[str, Any]:
    """The restart policy that a recipe asks for, as Docker's update takes it; empty for none, or for none of its."""
    name, _, retries = str(recipe.options.get("restart_policy") or "no").strip().partition(":")
    if name not in ("always", "unless-stopped", "on-failure"):
        return {}
    return {"Name": name, "MaximumRetryCount": int(retries) if name == "on-failure" and retries.isdecimal() else 0}


def room_for(budget: NodeBudget | None) -> tuple[int | None, int | None]:
    """(what has to be available before the start, what its share takes at once), bytes; None where nothing tells.

    Its own check at the start reads MemAvailable (facts/engines.md 4.4), so never less than the share; beyond it what
    comes beside the share and the host's own, as far as so much can be expected.
    """
    if budget is None or not budget.after:
        return None, None
    own = sum(one.size_bytes for one in budget.after if one.kind in _ITS_OWN)
    beside = sum(one.size_bytes for one in budget.after if one.kind is SliceKind.OVERHEAD)
    if own <= 0:
        return None, None
    expected = own + beside + budget.left_bytes
    return max(own, min(own + beside + HOST_BYTES, expected - SLACK_BYTES)), own


def floor_of(budget: NodeBudget | None) -> int:
    """The floor of its guard: HOST_BYTES, or half of what it is to leave where that is less."""
    if budget is None:
        return HOST_BYTES
    return min(HOST_BYTES, max(GIB, budget.left_bytes // 2))


def _of(budget: Budget | None, node: str) -> NodeBudget | None:
    return next((one for one in budget.nodes if one.node == node), None) if budget is not None else None


def _image(node: str, name: str, survey: Survey) -> Mapping[str, Any] | None:
    path = image_path(name)
    found = survey.value(DockerGet(node=node, path=path)) if path is not None else None
    return found if isinstance(found, Mapping) else None
