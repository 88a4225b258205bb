"""What is wrong with a recipe, where it stands, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from sparktop import sanitise


class ProblemKind(StrEnum):
    """Why a recipe, or a part of it, isn't taken."""

    BROKEN = "can't be read"
    """No YAML, or no mapping."""
    UNKNOWN = "unknown key"
    TWICE = "key given twice"
    WRONG = "wrong value"
    MISSING = "missing"
    TEMPLATE = "command template"
    UNSUPPORTED = "not supported"
    """Known, and nothing that sparktop does: a mod, a builder, a third node."""
    NOTE = "note"
    """Taken, but not as its author may think; never an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, at its place."""

    file: str
    line: int
    """From 1."""
    key: str
    """Dotted: "defaults.port", "runtime_config.sparktop.mute[1].rule"; empty: of the file as a whole."""
    text: str
    nearest: str = ""
    """The right key or name that was probably meant."""
    remedy: str = ""
    """What would do."""
    kind: ProblemKind = ProblemKind.WRONG

    @property
    def is_error(self) -> bool:
        """Whether the recipe can't be launched for it."""
        return self.kind is not ProblemKind.NOTE

    @property
    def sentence(self) -> str:
        """The text, with what was probably meant and what would do."""
        meant = f": did you mean `{self.nearest}`?" if self.nearest else ""
        return f"{self.text}{meant}" + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        """ "FILE:LINE: key: text"."""
        key = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{key} {self.sentence}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like it; empty where none is."""
    names = sorted(set(known))
    letters = sorted(name[:128].lower())
    swapped = [each for each in names if sorted(each.lower()) == letters]
    found = swapped or get_close_matches(name[:128], names, n=1, cutoff=0.6)
    return found[0] if found else ""


def shown(text: object, limit: int = 60) -> str:
    """A value as it is quoted in a message: one line, short."""
    flat = " ".join(str(text)[: limit * 4].split())
    return sanitise.line(flat if len(flat) <= limit else f"{flat[:limit]}…")
