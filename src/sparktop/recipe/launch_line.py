"""The `sparktop launch` command line of a recipe with these settings, to be pasted; secrets masked."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from sparktop.masking import MASK, is_secret, mask_text


def launch_line(recipe: str, nodes: Sequence[str], values: Mapping[str, str], stops: Iterable[str] = ()) -> str:
    """The command line.

    Args:
        recipe: as `recipe.read.shelf.word` names it.
        stops: engines to stop, NAME or NAME@NODE.
    """
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={_shown(name, value)}")]
    stopping = [word for engine in dict.fromkeys(stops) for word in ("--stop", engine)]
    return shlex.join(["sparktop", "launch", recipe, *nodes, *settings, *stopping])


def _shown(name: str, value: str) -> str:
    return MASK if is_secret(name, value) else mask_text(value)
