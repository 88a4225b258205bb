"""Messages on their way to the console: numbered, the newest of each kind, bounded by what it has acknowledged."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

LIMITS = {"sample": 3, "gpu": 3}
"""How many messages of a kind may be unacknowledged, of any other kind one: so a slow line shows fresh figures."""

encode = json.JSONEncoder(separators=(",", ":")).encode


class Outbox:
    """Writes to a descriptor that doesn't block; a message that a newer one replaces is never sent."""

    def __init__(self, out: int, on_closed: Callable[[], NoReturn]) -> None:
        """`on_closed` is called when nobody reads `out` any more."""
        self.out = out
        self.on_closed = on_closed
        self.unsent = b""
        self.sequence = 0
        self.acknowledged = 0
        self.in_flight: dict[str, list[int]] = {}
        """Sequence numbers not known to be acknowledged, of each kind."""
        self.waiting: dict[str, bytes] = {}
        """The newest message of each kind that isn't sent yet."""
        self.kernel_batches: list[bytes] = []
        """Batches of kernel lines: none of them replaces another."""
        self.kernel_after = 0
        """A batch is sent when this sequence number is acknowledged."""

    def put(self, kind: str, message: dict[str, Any]) -> None:
        """Send a message when there is room, in place of one of its kind that still waits."""
        self.waiting[kind] = encode(message).encode()

    def put_kernel_batch(self, line: bytes) -> None:
        """Send a batch of kernel lines after all messages that went before it were acknowledged."""
        if not self.kernel_batches:
            self.kernel_after = self.sequence
        self.kernel_batches.append(line)

    def send(self, kind: str, line: bytes) -> None:
        """Give one message, a JSON object in bytes, the next sequence number, and queue it."""
        self.sequence += 1
        self.in_flight.setdefault(kind, []).append(self.sequence)
        self.unsent += b'{"seq":%d,%b\n' % (self.sequence, line[1:])

    def flush(self) -> None:
        """Write what can be written; the rest keeps its place, so that no line is cut by another."""
        if self.unsent:
            try:
                self.unsent = self.unsent[os.write(self.out, self.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                self.on_closed()

    def is_full(self, kind: str) -> bool:
        """Whether as many messages of a kind as may be are unacknowledged."""
        numbers = self.in_flight.get(kind)
        if not numbers:
            return False
        numbers[:] = [number for number in numbers if number > self.acknowledged]
        return len(numbers) >= LIMITS.get(kind, 1)

    def acknowledge(self, number: int) -> None:
        """The console has received everything up to this sequence number."""
        self.acknowledged = max(self.acknowledged, min(number, self.sequence))

    def send_waiting(self) -> None:
        """Send the newest of each kind, then one batch of kernel lines if all before it arrived."""
        if self.unsent:
            return
        for kind in list(self.waiting):
            if not self.is_full(kind):
                self.send(kind, self.waiting.pop(kind))
        if self.kernel_batches and self.acknowledged >= self.kernel_after:
            self.send("kernel", self.kernel_batches.pop(0))
            self.kernel_after = self.sequence
        self.flush()
