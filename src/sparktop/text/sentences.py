"""Texts as sentences."""

from __future__ import annotations

from collections.abc import Iterable


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends a sentence already."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


def sentences(*texts: str) -> str:
    """The texts as sentences."""
    return " ".join(filter(None, map(sentence, texts)))


def listed(names: Iterable[str]) -> str:
    """ "spark1, spark2 and spark3"."""
    *first, last = (*names,) or ("",)
    return f"{', '.join(first)} and {last}" if first else last
