"""Labels on what `sparktop launch` starts: by them it is known again, with what the operator had set."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparktop import sanitise

OURS = "sparktop."
RECIPE = "sparktop.recipe"
"""The recipe's id."""
VALUES = "sparktop.values"
"""JSON of the parameters that the operator has set; no secrets."""
LAUNCH = "sparktop.launch"
"""The same on every rank of one launch."""
RANK = "sparktop.rank"
"""0: the head."""
CHANGED = "sparktop.changed"
"""JSON of the names of what a relaunch has changed and no parameter says; not there where there is none."""


def recipe_of(labels: Mapping[str, str] | None) -> str:
    """The id of the recipe that a container was launched from; empty where it is not one of ours."""
    return sanitise.name((labels or {}).get(RECIPE, ""))


def starter_words(labels: Mapping[str, str] | None) -> str:
    """ "sparktop launch tiny, with NCCL_DEBUG changed"; empty where it is not one of ours."""
    recipe = recipe_of(labels)
    names = changed_in(labels)
    return (f"sparktop launch {recipe}" + (f", with {', '.join(names)} changed" if names else "")) if recipe else ""


def values_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """The parameters that the operator had set; none where the label is damaged."""
    found = _json((labels or {}).get(VALUES, ""))
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def changed_in(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    """Names of what relaunches have changed and no parameter says."""
    found = _json((labels or {}).get(CHANGED, ""))
    return tuple(sanitise.name(str(one)) for one in found) if isinstance(found, list) else ()


def _json(text: str) -> object:
    try:
        found: object = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return found
