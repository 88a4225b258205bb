"""Texts as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


MOST_NAMED = 3


def counted(nodes: Sequence[str], gap: str = " + ") -> str:
    """ "spark1 + spark2"; of more than MOST_NAMED their number, "8 nodes"."""
    return gap.join(nodes) if len(nodes) <= MOST_NAMED else f"{len(nodes)} nodes"


def phrases(*known: tuple[str, object]) -> list[str]:
    """Each phrase filled in with its figure; left out where that is None, False or ""."""
    return [
        phrase.format(figure) for phrase, figure in known if not (figure is None or figure is False or figure == "")
    ]
