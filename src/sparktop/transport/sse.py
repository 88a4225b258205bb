"""Server-sent events taken apart: bytes in as they come, the data of whole events out (WHATWG HTML 9.2). Pure."""

from __future__ import annotations

LINE_LIMIT_BYTES = 1 << 20


class EventReader:
    """Feed it what arrives; a line longer than LINE_LIMIT_BYTES is left out, whatever comes never raises."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._skipping = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that this chunk completes."""
        out: list[str] = []
        *lines, rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            self._take(line.rstrip(b"\r"), out)
        if len(rest) > LINE_LIMIT_BYTES:
            rest, self._skipping = b"", True
        self._rest = b"" if self._skipping else rest
        return out

    def end(self) -> list[str]:
        """What was there without its closing blank line, at the end of the stream."""
        out: list[str] = []
        if not self._skipping and self._rest:
            self._take(self._rest.rstrip(b"\r"), out)
        self._rest = b""
        self._take(b"", out)
        return out

    def _take(self, line: bytes, out: list[str]) -> None:
        if not line:
            if self._data:
                out.append("\n".join(self._data))
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
