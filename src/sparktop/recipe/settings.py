"""Settings: what a launch needs from the person: its file uses it, and nothing sets it."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.launch_line import launch_line

_FORMS = {"restart_policy": "no", "ipc": "host", "network": "host", "publish_address": "127.0.0.1"}
"""A value that each of these options takes."""
_PATHS = ("volumes", "devices")


def missing(order: Order) -> dict[str, str]:
    """The settings that nobody gave, each with where it is used."""
    return {name: place for name, place in order.recipe.settings.items() if name not in order.values}


def not_set(order: Order) -> CannotRender | None:
    """Why it can't be launched without them, all at once; None where none is missing."""
    names = missing(order)
    if not names:
        return None
    places = ", ".join(f"{name} ({place} uses it)" for name, place in names.items())
    return CannotRender(f"not set: {places}", " ".join(f"--set {name}=..." for name in names), is_settable=True)


def line_that_sets(order: Order, recipe: str, nodes: Sequence[str]) -> str:
    """The command to type, with a place for each value that is missing."""
    return launch_line(recipe, nodes, {**order.values, **dict.fromkeys(missing(order), "...")})


def made_up(recipe: Recipe) -> dict[str, str]:
    """A value for each setting that the launch could have: to see whether it renders."""
    values = dict.fromkeys(recipe.settings, "1")
    for option, value in recipe.options.items():
        texts = value if isinstance(value, list) else [value]
        for name in values:
            if option in _PATHS and any(str(text).startswith(f"{{{name}}}") for text in texts):
                values[name] = "/1"
            elif option in _FORMS and f"{{{name}}}" in texts:
                values[name] = _FORMS[option]
    return values
