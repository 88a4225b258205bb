"""Reads many items on the event loop a frame at a time: keys are answered there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

FRAME_S = 0.008
"""So long rules may read at a time: hundreds of hostile lines of a log take 0.2 s."""
Later = Callable[[float, Callable[[], None]], object]
"""Calls a function that many seconds later, as an event loop's `call_later`."""
_Item = TypeVar("_Item")


class FrameReader(Generic[_Item]):
    """Items that are read in order, each once."""

    def __init__(
        self,
        read: Callable[[_Item], None],
        *,
        now: Callable[[], float] = time.perf_counter,
        most_unread: int | None = None,
    ) -> None:
        """`read` reads one item, `now` tells how long that takes. Of more than `most_unread` the oldest are dropped."""
        self._read = read
        self._now = now
        self._unread: deque[_Item] = deque(maxlen=most_unread)

    def add(self, items: Iterable[_Item]) -> None:
        """Append items to be read."""
        self._unread.extend(items)

    def clear(self) -> None:
        """Leave the rest unread."""
        self._unread.clear()

    def read_frame(self) -> bool:
        """Read for one frame at most; whether all is read.

        What `read` raises is raised; its item is not read again.
        """
        deadline = self._now() + FRAME_S
        while self._unread:
            self._read(self._unread.popleft())
            if self._now() >= deadline:
                break
        return not self._unread
