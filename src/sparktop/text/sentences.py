"""Texts as sentences."""

from __future__ import annotations


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends a sentence already."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


def sentences(*texts: str) -> str:
    """The texts as sentences."""
    return " ".join(filter(None, map(sentence, texts)))
