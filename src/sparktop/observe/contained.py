"""Faults of sparktop's own in one node's data: contained to that node, and told as notices until they are over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparktop import faults
from sparktop.clock import Clock
from sparktop.model.event import Severity
from sparktop.model.fleet import Notice

KEPT_S = 120.0
"""How long a fault is told after it was last seen."""
MAX_KEPT = 20
_T = TypeVar("_T")


class Contained:
    """The faults seen lately, each by its node and place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, Notice]] = {}

    def add(self, node: str, where: str, error: BaseException) -> str:
        """Keep a fault; returns its text. `node` is empty for what concerns all."""
        text = faults.report(f"{node}'s {where}" if node else where, error)
        if (node, where) not in self._seen and len(self._seen) >= MAX_KEPT:
            del self._seen[min(self._seen, key=lambda key: self._seen[key][0])]
        notice = Notice(severity=Severity.WARNING, node=node, text=text)
        self._seen[node, where] = self._clock.monotonic(), notice
        return text

    def outcome(self, node: str, where: str, call: Callable[[], _T], otherwise: _T) -> _T:
        """The call's result; `otherwise` where it raised."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the other node
            self.add(node, where, error)
            return otherwise

    def notices(self) -> tuple[Notice, ...]:
        """The faults of the last two minutes."""
        now_s = self._clock.monotonic()
        self._seen = {key: seen for key, seen in self._seen.items() if now_s - seen[0] <= KEPT_S}
        return tuple(notice for _, notice in self._seen.values())
