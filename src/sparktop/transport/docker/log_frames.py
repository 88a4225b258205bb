"""Parse a log's raw bytes into lines: Docker's frames and timestamps, overwriting progress bars, length limits.

Pure; log_follower reads the stream.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.telemetry import LogLine

MAX_PARTIAL_BYTES = 4 * sanitise.MAX_LINE_CHARS
"""Limit for an unfinished line; the rest is counted and dropped."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
DOCKER_RECORD_BYTES = 16 * 1024
"""Docker splits a longer line into records of this size, each with its own timestamp."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z |(\d{10}\.\d{6}) [^\s:]+: ")
"""Docker's, or that of a journal's `short-unix` with the program's name."""
STAMP_BYTES = len("2026-11-29T08:00:00.000000000Z")
"""Of Docker's: in one order as bytes and as times."""


class NotFrames(ValueError):
    """The bytes are not Docker's frame format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """The unfinished line of a stream after its last chunk."""

    partial: bytes = b""
    cut_bytes: int = 0
    """Bytes of the unfinished line beyond MAX_PARTIAL_BYTES."""
    wall_s: float | None = None
    """Timestamp of the unfinished line."""
    replacing: bool = False
    r"""The last line ended in \r: the next one overwrites it."""


def lines_from_chunk(state: SplitState, chunk: bytes, *, stamped: bool) -> tuple[SplitState, tuple[LogLine, ...]]:
    r"""Split a chunk on \n and \r; chunks may end anywhere. Bar states that arrive together collapse into the last.

    Args:
        stamped: each line (and each record of a longer line) begins with Docker's RFC 3339 timestamp.
    """
    out: list[LogLine] = []
    partial, cut, wall_s, replacing = state.partial, state.cut_bytes, state.wall_s, state.replacing
    if stamped and (partial or replacing):
        stamp, rest = _take_stamp(chunk)
        if stamp is not None and not replacing and len(partial) + cut < DOCKER_RECORD_BYTES:
            chunk = b"\n" + chunk  # the last line of the run before had no end
        else:
            chunk = rest  # the next record of an open line: its timestamp stands inside the line
    for row in chunk.splitlines(keepends=True) if b"\r" not in chunk else _rows(chunk):
        end = row[-1:]
        ended = end in (b"\n", b"\r")
        body = row[:-1] if ended else row
        if partial:
            body = partial + body
        if not ended:
            partial = body
            if len(partial) > MAX_PARTIAL_BYTES:
                if stamped:
                    partial = _drop_inner_stamps(partial)
                cut += max(0, len(partial) - MAX_PARTIAL_BYTES)
                partial = partial[:MAX_PARTIAL_BYTES]
            continue
        if stamped:
            stamp, body = _take_stamp(body)
            wall_s = stamp if stamp is not None else wall_s
            if len(body) > DOCKER_RECORD_BYTES - 64:
                body = _drop_inner_stamps(body)
        if body or not (replacing or end == b"\r"):
            line = LogLine(text=_text(body, cut), wall_s=wall_s, replaces_last=replacing)
            if replacing and out:
                out[-1] = replace(line, replaces_last=out[-1].replaces_last)
            else:
                out.append(line)
            replacing = True
        partial, cut = b"", 0
        if end == b"\n":
            replacing, wall_s = False, None
    return SplitState(partial=partial, cut_bytes=cut, wall_s=wall_s, replacing=replacing), tuple(out)


def flush(state: SplitState, *, stamped: bool) -> tuple[SplitState, tuple[LogLine, ...]]:
    """The unfinished line, at the end of a stream."""
    if not state.partial:
        return SplitState(), ()
    _, lines = lines_from_chunk(state, b"\n", stamped=stamped)
    return SplitState(), lines


def _rows(chunk: bytes) -> list[bytes]:
    """Rows that end in one \\n or \\r each. A \\r\\n gives its text's row and an empty one, which adds nothing."""
    return re.findall(rb"[^\r\n]*[\r\n]|[^\r\n]+", chunk)


def _take_stamp(body: bytes) -> tuple[float | None, bytes]:
    match = _STAMP.match(body)
    if match is None:
        return None, body
    wall_s = float(match[3]) if match[3] else _seconds(match[1]) + int(match[2]) / 1e9
    return wall_s, body[match.end() :]


def stamp_of(record: bytes) -> float | None:
    """The time of one of Docker's records."""
    return _take_stamp(record[:STAMP_BYTES] + b" ")[0]


def _drop_inner_stamps(body: bytes) -> bytes:
    """Remove the timestamps at the joints of a line longer than Docker's record; keep the leading one."""
    head = _STAMP.match(body)
    keep = head.end() if head else 0
    return body[:keep] + _STAMP.sub(b"", body[keep:])


@lru_cache(maxsize=64)
def _seconds(stamp: bytes) -> int:
    try:
        return int(datetime.fromisoformat(stamp.decode("ascii")).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return 0


def _text(body: bytes, cut_bytes: int) -> str:
    text = sanitise.line(body)
    return f"{text} … [{cut_bytes} more bytes cut]" if cut_bytes else text


class Frames:
    """Parses Docker's multiplexed stream: 8 bytes of header (stream, length), then the payload."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are complete now, as (stream 0-2, payload).

        Raises:
            NotFrames: invalid header; the container may have a terminal.
        """
        buffer = self._buffer + data if self._buffer else data
        out: list[tuple[int, bytes]] = []
        at = 0
        size = len(buffer)
        while size - at >= 8:
            stream, length = struct.unpack_from(">BxxxL", buffer, at)
            if stream > 3 or length > MAX_FRAME_BYTES:
                raise NotFrames(f"no frame header: stream {stream}, length {length}")
            if size - at - 8 < length:
                break
            out.append((stream, buffer[at + 8 : at + 8 + length]))
            at += 8 + length
        self._buffer = buffer[at:]
        return out
