"""Whether a recipe becomes a launch at all, tried while it is read: what rendering finds then has its line. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.fields import Fields
from sparktop.recipe.ownsecrets import wanted
from sparktop.recipe.problems import ProblemKind
from sparktop.recipe.rendered import CannotRender, Rendered, Seat
from sparktop.recipe.rendering import render


def check_rendering(fields: Fields, recipe: Recipe) -> None:
    """Render it for each number of nodes; where none will do, the first reason is a problem of the recipe.

    What `--set` mends at the launch is said there, and stands against no file.
    """
    refusals = []
    for nodes in range(recipe.min_nodes, recipe.max_nodes + 1):
        try:
            made_up(recipe, nodes)
        except CannotRender as error:
            refusals.append(error)
        else:
            return
    if not refusals or any(remedy.startswith("--set") for remedy in refusals[0].remedies):
        return
    first = refusals[0]
    remedy = "; ".join(filter(None, first.remedies))
    key = _key(fields, first.reason)
    fields.add(key, first.reason.removeprefix(f"{key} "), kind=ProblemKind.TEMPLATE, remedy=remedy)


def made_up(recipe: Recipe, nodes: int, values: Mapping[str, str] | None = None) -> Rendered:
    """The launch on nodes that nobody has looked at: what is found on real ones, and secrets, have made-up names.

    Raises:
        CannotRender: it can't be one.
    """
    secrets = {name: f"<{name}>" for name in wanted(recipe)}
    seats = tuple(
        Seat(
            node=f"spark{index + 1}",
            index=index,
            home="/home/you",
            cache="/home/you/.cache/huggingface",
            fabric_ip=f"spark{index + 1}-fabric",
        )
        for index in range(nodes)
    )
    return render(Order(recipe=recipe, values=values or {}, secrets=secrets), seats)


def _key(fields: Fields, reason: str) -> str:
    """Where it stands: the key that the reason begins with, else the command."""
    first = reason.split(maxsplit=1)[0].rstrip(":") if reason else ""
    return next((name for name in (first, "command", "defaults") if name in fields), "model")
