"""A program or step that was started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from sparktop.dataclass import dataclass
from sparktop.probe.runner.journal import outcome_of
from sparktop.probe.runner.main import outcome_line
from sparktop.sim.reaction import acts
from sparktop.sim.spark.spark import Spark


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


class Departed(Exception):
    """The conversation is over; a bye is sent where there is a reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class ProgramSession:
    """A probe or a runner at the other end of one channel: what comes and goes, and the console's lease."""

    due_s = float("inf")
    """When `advance` is due, in seconds of the boot."""

    def __init__(self, spark: Spark, *, digest: str, now_s: float, lease_s: float) -> None:
        self.spark = spark
        """The node as it is; another one once something was done to it."""
        self.digest = digest
        self._heard_s = now_s
        self._lease_s = lease_s

    def opening(self) -> bytes:
        """The hello line."""
        raise NotImplementedError

    def hear(self, data: bytes, now_s: float) -> None:
        """Process input; `now_s` is the operator's clock.

        Raises:
            Departed: the input ended, or the console said bye.
        """
        if not data:
            raise Departed
        self._heard_s = now_s
        self.follow(data)

    def follow(self, chunk: bytes) -> None:
        """Handle the lines that are complete with this piece of input."""
        raise NotImplementedError

    def advance(self, t: float, now_s: float) -> bytes:
        """What is due at second `t`; `now_s` is the operator's clock.

        Raises:
            Departed: the lease ran out, or another program took over.
        """
        if now_s - self._heard_s >= self._lease_s:
            raise Departed(f"nothing arrived for {self._lease_s:g} s")
        return b""

    def close(self) -> None:
        """The channel has closed."""


class Machine(Protocol):
    """What a runner is on."""

    def moment(self) -> tuple[Spark, float]:
        """The node as it is, and the second of its boot's time."""

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""

    def react(self, act: acts.Act) -> None:
        """Do something to the node."""


@dataclass(slots=True)
class Step:
    """A step that was begun, with its journal's lines."""

    boot_id: str
    holds_node: bool
    journal: list[dict[str, Any]] = field(default_factory=list)
    listeners: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    """Who hears of progress, results and the end."""
    progress: dict[str, Any] | None = None
    """Of a fetch: how far it is."""
    is_ending: bool = False
    """A fetch was asked to end."""

    @property
    def is_running(self) -> bool:
        return not any("end" in line for line in self.journal)

    def tell(self, words: dict[str, Any], *, may_skip: bool = False) -> bool:
        """Send a line to whoever listens; whether anybody does."""
        for listener in list(self.listeners):
            listener(words)
        return bool(self.listeners)

    def outcome(self, boot_id: str) -> dict[str, Any]:
        """The `outcome` line, on the machine's present boot."""
        lines = [{"started": {"boot": self.boot_id}}, *self.journal]
        is_held = boot_id == self.boot_id
        return outcome_line(outcome_of(lines, boot=boot_id, is_held=is_held, progress=self.progress))
