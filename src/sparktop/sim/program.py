"""A program that is started on a simulated Spark: how it was called, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.sim import acts
from sparktop.sim.spark import Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program ended."""

    code: int = 0
    output: str = ""
    errors: str = ""
    act: acts.Act | None = None
    """What it does to the machine when it ends."""
    seconds: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How it was called."""

    spark: Spark
    t: float
    argv: tuple[str, ...]
    is_root: bool

    def flag(self, name: str) -> str | None:
        """What follows a word of the command line."""
        at = self.argv.index(name) + 1 if name in self.argv else len(self.argv)
        return self.argv[at] if at < len(self.argv) else None
