"""What a launch or a relaunch was asked for as the audit keeps it, so that a later console can plan the same again.

Only what holds no secret is kept: a variable that is one is kept by its name, and its value comes from the environment
of the later console, as it does on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparktop.cmdline.change_lines import lines_of, read
from sparktop.errors import UsageError
from sparktop.masking import is_secret
from sparktop.model.change import Change
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.secrets.masking import Masker
from sparktop.recipe.operator_secrets import read_secrets
from sparktop.recipe.read.shelf import recipe, recipe_argument
from sparktop.sanitise import items, mapping

Words = dict[str, Any]


def encoded_request(request: Request, masker: Masker) -> Words | None:
    """The change or the order as JSON-ready data, {} for other requests; None where it can't be kept whole."""
    words: Words = {}
    if request.order is not None:
        order = request.order
        name = recipe_argument(order.recipe)
        words["order"] = {
            "recipe": name if name == order.recipe.id else str(Path(name).absolute()),
            "values": dict(order.values),
            "stops": [list(stop) for stop in order.stops],
            "may_fetch": order.may_fetch,
        }
        if order.recipe.source is not None:
            words["order"]["source"] = order.recipe.source.text
    elif request.action == "relaunch":
        parts = {"": replace(request.change, by_engine={}), **request.change.by_engine}
        secrets = {name: value for part in parts.values() for name, value in _secrets(part).items()}
        words["change"] = {kind: _lines(part) for kind, part in parts.items()}
        if _change(words["change"], secrets) != request.change:
            return None
    return words if masker.data(words) == words else None


def whole_request(request: Request, kept: Mapping[str, Any], environment: Mapping[str, str]) -> Request | None:
    """The request with the change or order that was kept of it; None where none is.

    Raises:
        UsageError: a variable has no value in this environment; the recipe is not there any more.
        ConfigError: the recipe can't be read.
    """
    if isinstance(kept.get("change"), Mapping):
        return replace(request, change=_change(kept["change"], environment))
    order = mapping(kept.get("order"))
    if not isinstance(order.get("recipe"), str):
        return None
    chosen = recipe(order["recipe"])
    secrets = read_secrets(chosen)
    return replace(
        request,
        order=Order(
            recipe=chosen,
            values={str(key): str(value) for key, value in mapping(order.get("values")).items()},
            stops=tuple(
                (str(stop[0]), str(stop[1])) for stop in map(items, items(order.get("stops"))) if len(stop) == 2
            ),
            secrets=secrets.values,
            secret_problems=secrets.problems,
            may_fetch=order.get("may_fetch") is not False,
            **({"hub": hub} if (hub := environment.get("HF_ENDPOINT", "").rstrip("/")) else {}),
        ),
    )


def _change(lines_by_engine: Mapping[str, Any], environment: Mapping[str, str]) -> Change:
    changes: dict[str, Change] = {}
    for kind, lines in lines_by_engine.items():
        texts = [str(line) for line in items(lines)]
        changes[kind], problems = read(texts, environment)
        if problems:
            raise UsageError(f"{texts[problems[0].line - 1]!r}: {problems[0].text}")
    return replace(changes.pop("", Change()), by_engine=changes)


def _secrets(change: Change) -> dict[str, str]:
    own = {name: value for name, value in change.environment.items() if value and is_secret(name, value)}
    return {**own, **{name: value for part in change.by_node.values() for name, value in _secrets(part).items()}}


def _lines(change: Change) -> Sequence[str]:
    """The change as lines, a secret as its variable's name alone."""
    named = {f"{name}={value}": name for name, value in _secrets(change).items()}

    def line(text: str) -> str:
        node, at, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
        return f"{node}{at}{named.get(rest, rest)}"

    return [line(text) for text in lines_of(change)]
