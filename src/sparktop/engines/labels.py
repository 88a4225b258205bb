"""Labels of containers that `sparktop launch` starts, to recognise them later with the operator's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparktop import sanitise
from sparktop.bounds import json_of

OURS = "sparktop."
RECIPE = "sparktop.recipe"
"""The recipe's id."""
VALUES = "sparktop.values"
"""JSON of the parameters that the operator set; no secrets."""
LAUNCH = "sparktop.launch"
"""Stamp of the launch: the same on each of its ranks."""
RANK = "sparktop.rank"
"""The rank's number; 0 is the head."""
CHANGED = "sparktop.changed"
"""JSON of the names that a relaunch has changed outside of parameters; absent where there are none."""
SPARKRUN_LOG = "/tmp/sparkrun_serve.log"  # noqa: S108 - a path inside a container
"""Where an engine writes that sparkrun has put into a container by `docker exec`."""
_SET_ASIDE = re.compile(r"(.+)-(?:before|next|failed)-\d{8}T\d{6}")
"""Names of containers that a plan has set aside, or not named yet (`operate.container.lifecycle.NewContainer`)."""


def name_set_aside(name: str) -> str:
    """The engine's own name, of a container that a relaunch has set aside; empty for any other."""
    match = _SET_ASIDE.fullmatch(name)
    return match[1] if match else ""


def recipe_of(labels: Mapping[str, str] | None) -> str:
    """The id of the recipe that a container was launched from; empty where sparktop did not launch it."""
    return sanitise.name((labels or {}).get(RECIPE, ""))


def starter_words(labels: Mapping[str, str] | None) -> str:
    """ "sparktop launch tiny, with NCCL_DEBUG changed"; empty where sparktop did not launch it."""
    recipe = recipe_of(labels)
    names = changed_in(labels)
    return (f"sparktop launch {recipe}" + (f", with {', '.join(names)} changed" if names else "")) if recipe else ""


def values_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """The parameters that the operator set; none where the label is damaged."""
    values = _json((labels or {}).get(VALUES, ""))
    return {str(key): str(value) for key, value in values.items()} if isinstance(values, dict) else {}


def changed_in(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    """The names that relaunches have changed outside of parameters."""
    names = _json((labels or {}).get(CHANGED, ""))
    return tuple(sanitise.name(str(name)) for name in names) if isinstance(names, list) else ()


def _json(text: str) -> object:
    try:
        data: object = json_of(text or "null")
    except ValueError:
        return None
    return data
