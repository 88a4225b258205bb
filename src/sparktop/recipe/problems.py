"""A problem of a recipe: what is wrong, the line, and what was probably meant."""

from __future__ import annotations

from enum import StrEnum

from sparktop import sanitise
from sparktop.dataclass import dataclass


class ProblemKind(StrEnum):
    """The kinds of problem a recipe can have."""

    BROKEN = "can't be read"
    """No YAML, or no mapping."""
    UNKNOWN = "unknown key"
    TWICE = "key given twice"
    WRONG = "wrong value"
    MISSING = "missing"
    TEMPLATE = "command template"
    UNSUPPORTED = "not supported"
    """Known, but sparktop doesn't support it: a mod, a builder, a third node."""
    NOTE = "note"
    """Accepted, but it may not mean what its author expects; never an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem, with its place in the file."""

    file: str
    line: int
    """From 1."""
    key: str
    """Dotted: "defaults.port", "runtime_config.sparktop.mute[1].rule"; empty: the file as a whole."""
    text: str
    nearest: str = ""
    """The right key or name, where a typo is likely."""
    remedy: str = ""
    """How to fix it."""
    kind: ProblemKind = ProblemKind.WRONG

    @property
    def is_error(self) -> bool:
        """Whether the recipe can't be launched because of it."""
        return self.kind is not ProblemKind.NOTE

    @property
    def sentence(self) -> str:
        """The text with the name that was probably meant and the remedy."""
        meant = f": did you mean `{self.nearest}`?" if self.nearest else ""
        return f"{self.text}{meant}" + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        """ "FILE:LINE: key: text"."""
        key = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{key} {self.sentence}"


def shown(text: object, limit: int = 60) -> str:
    """A value as messages quote it: one line, shortened."""
    flat = " ".join(str(text)[: limit * 4].split())
    return sanitise.line(flat if len(flat) <= limit else f"{flat[:limit]}…")
