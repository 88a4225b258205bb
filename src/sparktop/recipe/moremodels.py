"""Further models that a launch loads beside its own, such as a draft: the recipe's, as the operator has set them. Pure.

A recipe lists them by name, and names them again where a parameter or its command takes one. A parameter that the
operator sets is followed: what it named is not loaded any more, what it names now is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.model.recipe import Order
from sparktop.recipe import template
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.parameters import OWN, main_name, values
from sparktop.recipe.rendered import CannotRender, Mount, Seat

_DRAFTS = frozenset({
    "speculative_draft_model_path", "speculative_draft_model", "speculative_model", "speculative_config",
})  # fmt: skip
"""Parameters that name a model, whatever the recipe calls them otherwise."""


def more_models(order: Order) -> tuple[str, ...]:
    """Repositories, or paths on the nodes, each once; without the model itself."""
    recipe = order.recipe
    try:
        before, now = values(replace(order, values={})), values(order)
    except CannotRender:  # said where it is rendered
        return recipe.more_models
    replaced, added = _changes(order, before, now)
    found: list[str] = []
    for listed in recipe.more_models:
        name = _filled(listed, before)
        found += replaced.get(name, (name,))
    return tuple(name for name in dict.fromkeys((*found, *added)) if name and name != now.get("model"))


def parameter_of(order: Order, model: str) -> str:
    """The parameter that names a further model, so that another can be set; empty: none does."""
    try:
        given = values(order)
    except CannotRender:
        return ""
    return next((name for name, value in given.items() if main_name(name) not in OWN and value == model), "")


def _changes(
    order: Order, before: Mapping[str, str], now: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """(what was named -> what is named in its place, what is named besides)."""
    recipe = order.recipe
    replaced: dict[str, tuple[str, ...]] = {}
    added: list[str] = []
    taken = template.used(recipe.command, before)
    for name, value in now.items():
        if main_name(name) in OWN:
            continue
        was = before.get(name)
        is_draft = main_name(name) in _DRAFTS
        if was == value:
            if is_draft and (name in taken or not recipe.command.strip()):
                added += _named(value)
            continue
        if was is not None:
            replaced |= dict.fromkeys(_named(was), _named(value))
        elif is_draft:  # it becomes a flag, in the place of the command's own
            own = (_filled(each, before) for each in recipe.more_models)
            replaced |= {each: () for each in own if each in recipe.command}
        if is_draft:
            added += _named(value)
    return replaced, added


def _named(value: str) -> tuple[str, ...]:
    """The model that a value names: all of it, or "model" of its JSON."""
    if value.lstrip().startswith("{"):
        try:
            config = json.loads(value)
        except (ValueError, RecursionError):
            return ()
        value = str(config.get("model") or "") if isinstance(config, dict) else ""
    return (value,) if is_path(value) or (is_repo(value) and "/" in value) else ()


def _filled(text: str, given: Mapping[str, str]) -> str:
    try:
        return template.fill(text, given).strip()
    except CannotRender:
        return text.strip()


# --- in the container


def at_home(given: Mapping[str, str], more: Sequence[str], seat: Seat) -> dict[str, str]:
    """Values that name a further model below the home, as no shell will: from the root."""
    names = {name for name in more if name.startswith("~/")} if seat.home else frozenset[str]()
    return {key: seat.home.rstrip("/") + value[1:] if value in names else value for key, value in given.items()}


def mounts(more: Sequence[str], seat: Seat) -> tuple[Mount, ...]:
    """Of those that are named by their place: each at the same place of the container."""
    found = []
    for name in more:
        if is_path(name):
            path = at_home({"": name}, more, seat)[""].rstrip("/")
            if not path.startswith("/") or ":" in path:
                raise CannotRender(f"{name[:80]!r} can't be mounted: Docker takes no colon in a path, and no ~")
            found.append(Mount(source=path, target=path, is_read_only=True))
    return tuple(found)
