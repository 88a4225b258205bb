"""Split a byte stream into lines; a cut line, a flood or a 10 MB line can't break it."""

from __future__ import annotations

import re

from sparktop.model.telemetry import Garbled
from sparktop.wire import MAX_LINE_BYTES

_SEQUENCE = re.compile(rb'"seq":\s*(\d{1,20})')


class Splitter:
    """Frames a byte stream into lines; a line over the limit is dropped, counted and reported once."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pending = b""
        self._overlong = 0

    def feed(self, data: bytes) -> list[bytes | Garbled]:
        """The lines completed by this data, without their newlines."""
        complete: list[bytes | Garbled] = []
        *lines, partial = (self._pending + data).split(b"\n")
        for line in lines:
            if self._overlong or len(line) > self._limit:
                complete.append(Garbled(reason=f"a line of {self._overlong + len(line)} bytes was dropped"))
                self._overlong = 0
            elif line:
                complete.append(line)
        if self._overlong or len(partial) > self._limit:
            self._overlong += len(partial)
            partial = b""
        self._pending = partial
        return complete


def sequence_of(line: bytes) -> int | None:
    """The number to acknowledge, read without decoding the whole line."""
    match = _SEQUENCE.search(line, 0, 226)
    return int(match[1]) if match else None
