"""Bytes to lines: framing that a cut line, a flood or a 10 MB line can't break."""

from __future__ import annotations

from sparktop.model.telemetry import Garbled
from sparktop.wire import MAX_LINE_BYTES


class Splitter:
    """Frames a byte stream into lines; a line over the limit is dropped, counted and reported once."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pending = b""
        self._overlong = 0

    def feed(self, data: bytes) -> list[bytes | Garbled]:
        """The complete lines in what has come so far, without their newlines."""
        done: list[bytes | Garbled] = []
        *lines, rest = (self._pending + data).split(b"\n")
        for line in lines:
            if self._overlong or len(line) > self._limit:
                done.append(Garbled(reason=f"a line of {self._overlong + len(line)} bytes was dropped"))
                self._overlong = 0
            elif line:
                done.append(line)
        if self._overlong or len(rest) > self._limit:
            self._overlong += len(rest)
            rest = b""
        self._pending = rest
        return done


def sequence_of(line: bytes) -> int | None:
    """The number to acknowledge, read without decoding the whole line."""
    start = line.find(b'"seq":', 0, 200)
    if start < 0:
        return None
    digits = line[start + 6 : start + 26].lstrip()
    end = next((i for i, byte in enumerate(digits) if not 48 <= byte <= 57), len(digits))
    return int(digits[:end]) if end else None
