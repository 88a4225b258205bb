"""What clients sent and models answered, where an engine logs it: somebody's words, no failure. Pure."""

from __future__ import annotations

import re

HEAD_CHARS = 600
"""The engine's own words come first, whatever prefixes stand before them."""

_BEGINS = re.compile(
    r"(?:Received request [^\s:]{1,120}: prompt|Generated response [^\s:]{1,120}(?: \([^)]{0,40}\))?: output"
    r"|\b(?:Receive|Finish): (?:obj|rid))[:=]"
)


def without(text: str) -> str:
    """A line up to where somebody else's words begin; a line without such words as it is."""
    if "Rece" not in text and "Gener" not in text and "Finish" not in text:
        return text
    found = _BEGINS.search(text, 0, HEAD_CHARS)
    return text if found is None else text[: found.end()]
