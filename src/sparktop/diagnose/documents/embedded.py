"""JSON values standing somewhere in a text: after a shell prompt, one a line, or alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST = 2_000
"""Values read from one text."""
_OPENING = re.compile(r"^[ \t]*(?:data:[ \t]*)?(?=[\[{])", re.MULTILINE)
_DECODER = json.JSONDecoder()


def values(text: str, *, having: str) -> Iterator[tuple[Any, int]]:
    """Each JSON object or array that begins a line, with that line's number; only where `having` is in the text at all.

    Values that are cut off or are no JSON are passed over.
    """
    if having not in text:
        return
    at = found = 0
    while found < MOST and (opening := _OPENING.search(text, at)) is not None:
        try:
            value, end = _DECODER.raw_decode(text, opening.end())
        except (ValueError, RecursionError):
            newline = text.find("\n", opening.end())
            if newline < 0:
                return
            at = newline + 1
            continue
        found += 1
        yield value, text.count("\n", 0, opening.end()) + 1
        at = max(end, opening.end() + 1)
