"""Follow a container's log, or a file inside the container, in a thread; the loop gets bounded batches of lines.

The docker SDK's own follower ends without a word when the connection breaks (docs/facts/reliability.md 1.8) and reads a
terminal's output byte by byte, so the stream is read here; the SDK makes the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.telemetry import LogLine
from sparktop.transport.docker.log_frames import STAMP_BYTES, Frames, SplitState, flush, lines_from_chunk, stamp_of
from sparktop.transport.lean import import_lean

BATCH_S = 0.025
BATCH_RECORDS = 1000
BATCH_BYTES = 512 * 1024
BATCH_WORK_S = 0.006
"""A batch ends when it has kept the loop busy so long: masking lines full of secrets takes 0.25 s for BATCH_BYTES."""
PENDING_RECORDS = 20_000
PENDING_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024
FARTHEST = 100_000
"""Records of the past that are read at most: 15 MB of scrapes, of two days."""

TETHERED = """\
read -r go || exit 0
exec 3<&0
"$@" 2>&1 & t=$!
trap 'exit 0' TERM HUP
{ while read -r more; do :; done; kill $$; } <&3 >/dev/null 2>&1 & c=$!
trap 'kill $t $c 2>/dev/null' EXIT
wait $t
"""
"""Script run as `sh -c ... sh COMMAND`. It starts the command when our first line arrives (so that its output isn't
lost), kills it when standard input closes, and ends with its exit code: nothing outlives the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowEnd:
    """Why a follower ended."""

    reason: str
    ended: bool = False
    """True when the container stopped."""
    last_wall_s: float | None = None
    """Docker's stamp of the last line: where to go on after a broken connection."""


OnBatch = Callable[[tuple[LogLine, ...]], bool | None]
"""Takes the lines that arrived within about 25 ms, oldest first; False: none more yet, ask again with ()."""

Skip = Callable[[bytes], bool]
"""Whether a record of the past is left out."""


class Pump:
    """Passes records from the reading thread to the loop, bounded: when the loop lags, the oldest are dropped."""

    def __init__(
        self,
        on_batch: OnBatch,
        *,
        mask: Callable[[str], str],
        stamped: bool,
        after_wall_s: float | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`mask` hides the secrets in a line's text: nothing beyond this sees them. `now` times a batch."""
        self._loop = asyncio.get_running_loop()
        self._on_batch = on_batch
        self._mask = mask
        self._stamped = stamped
        self._now = now
        self._after_wall_s = after_wall_s
        self._lock = threading.Lock()
        # Two queues for the records' two parts: 20,000 pairs would each be looked at by every collection of garbage.
        self._streams: deque[int] = deque()
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._scheduled = False
        self._closed = False
        self._taker_is_busy = False
        self._states: dict[int, SplitState] = {}
        self._last_stream = -1
        self.last_wall_s = after_wall_s

    def put(self, stream: int, data: bytes) -> None:
        """Add one record; called in the thread."""
        with self._lock:
            self._streams.append(stream)
            self._pieces.append(data)
            self._bytes += len(data)
            while len(self._pieces) > PENDING_RECORDS or self._bytes > PENDING_BYTES:
                oldest = self._pieces.popleft()
                self._streams.popleft()
                self._bytes -= len(oldest)
                self._dropped += max(1, oldest.count(b"\n"))
            if self._scheduled or self._closed:
                return
            self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._loop.call_later, BATCH_S, self._drain)
        except RuntimeError:
            self._closed = True  # the loop is gone, and with it who asked

    async def finish(self) -> None:
        """Deliver pending lines, then unfinished ones."""
        while self._pieces and not self._closed:
            self._deliver()
            await asyncio.sleep(BATCH_S if self._taker_is_busy else 0)
        unfinished: list[LogLine] = []
        for state in self._states.values():
            unfinished += self._fresh(flush(state, stamped=self._stamped)[1])
        self._states.clear()
        if unfinished and not self._closed:
            self._on_batch(tuple(unfinished))

    def close(self) -> None:
        """Deliver nothing more."""
        with self._lock:
            self._closed = True
            self._streams.clear()
            self._pieces.clear()

    def _drain(self) -> None:
        self._deliver()
        with self._lock:
            self._scheduled = bool(self._pieces) and not self._closed
            again = self._scheduled
        if again:
            self._loop.call_later(BATCH_S, self._drain)

    def _hand_over(self, lines: tuple[LogLine, ...]) -> None:
        self._taker_is_busy = self._on_batch(lines) is False

    def _deliver(self) -> None:
        if self._taker_is_busy and not self._closed:
            self._hand_over(())
            if self._taker_is_busy:
                return  # the rest waits here, where it is bounded
        deadline = self._now() + BATCH_WORK_S
        with self._lock:
            if self._closed:
                return
            dropped, self._dropped = self._dropped, 0
        lines: list[LogLine] = []
        if dropped:
            self._states.clear()
            lines.append(LogLine(text=f"… {dropped:,} lines left out: they came too fast to show"))
        size = 0
        for _ in range(BATCH_RECORDS):
            with self._lock:
                if not self._pieces or size >= BATCH_BYTES:
                    break
                stream, data = self._streams.popleft(), self._pieces.popleft()
                self._bytes -= len(data)
            size += len(data)
            lines += self._split(stream, data)
            if self._now() >= deadline:
                break
        if lines:
            self._hand_over(tuple(lines))

    def _split(self, stream: int, data: bytes) -> tuple[LogLine, ...]:
        state = self._states.get(stream) or SplitState()
        if stream != self._last_stream and state.replacing:
            state = replace(state, replacing=False)  # another stream's line stands last now
        state, lines = lines_from_chunk(state, data, stamped=self._stamped)
        self._states[stream] = state
        if lines:
            self._last_stream = stream
        return self._fresh(lines)

    def _fresh(self, lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
        after = self._after_wall_s
        if after is not None:
            lines = tuple(line for line in lines if line.wall_s is None or line.wall_s > after)
        if lines and lines[-1].wall_s is not None:  # a long line has the time at which it began: others came since
            self.last_wall_s = max(lines[-1].wall_s, self.last_wall_s or 0.0)
        return tuple(self._masked(line) for line in lines)

    def _masked(self, line: LogLine) -> LogLine:
        text = self._mask(line.text)
        return line if text == line.text else replace(line, text=text)


class Stop:
    """Ends a thread's blocked read from the event loop, by shutting down its socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Any = None
        self.asked = False

    def arm(self, raw_socket: Any) -> bool:
        """Set the socket; False when stopping was already requested."""
        with self._lock:
            self._socket = raw_socket
            if self.asked:
                _shutdown(raw_socket)
            return not self.asked

    def now(self) -> None:
        with self._lock:
            self.asked = True
            _shutdown(self._socket)


def _shutdown(raw_socket: Any) -> None:
    inner = getattr(raw_socket, "_sock", raw_socket)  # the SDK hands out a SocketIO
    if inner is not None:
        with contextlib.suppress(OSError):
            inner.shutdown(socket.SHUT_RDWR)


class _NoLog(Exception):
    """Why there is no log to read."""


def read_log(
    api: Any, container_id: str, tail: int, since: float | None, follow: bool, skip: Skip, pump: Pump, stop: Stop
) -> FollowEnd:
    """Read a container's log until it ends; blocking, for a thread. `api` is a docker.APIClient of its own."""
    errors = _Errors.load()
    try:
        terminal = bool(api.inspect_container(container_id)["Config"].get("Tty"))
        query: dict[str, Any] = {"follow": int(follow), "stdout": 1, "stderr": 1, "timestamps": 1, "tail": tail}
        url = f"{api.base_url}/v{api.api_version}/containers/{container_id}/logs"

        def records(**more: int) -> Iterator[tuple[int, bytes]]:
            response = api.get(url, params={**query, **more}, stream=True, timeout=(10, None))
            if response.status_code != 200:
                raise _NoLog(f"the Docker Engine gives no log: {_message(response)}")
            if not stop.arm(response.raw.connection.sock):
                raise _NoLog("stopped")
            frames = Frames()
            while data := response.raw.read1(READ_BYTES):
                yield from ((1, data),) if terminal else frames.feed(data)

        known: dict[int, _Known] = {}
        if since is None and not terminal:
            past, known = _past(records, tail, skip)
            for stream, piece in past:
                pump.put(stream, piece)
            del past  # megabytes, for as long as the log is followed
            since = _resume(known)
        if since is not None:
            query["since"] = f"{since - 1e-6:.9f}"  # a float holds no nanoseconds; what was seen is left out below
        for stream, piece in records():
            if stream not in known or known[stream].is_new(piece):
                pump.put(stream, piece)
    except _NoLog as why:
        return FollowEnd(reason=str(why))
    except errors.all as error:
        return _ended_by(error, errors, stop)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return FollowEnd(reason=f"the log's stream can't be read: {sanitise.line(str(error), limit=200)}")
    return FollowEnd(reason="the container ended", ended=True)


@dataclass(slots=True)
class _Known:
    """What was read of one stream. Docker stamps each record of a long line with the time at which the line began."""

    newest: bytes = b""
    records: int = 0
    """With that stamp."""
    is_open: bool = False
    """The last record has no end of line."""

    def add(self, piece: bytes) -> None:
        stamp = piece[:STAMP_BYTES]
        self.records = self.records + 1 if stamp == self.newest else 1
        self.newest, self.is_open = stamp, not piece.endswith(b"\n")

    def is_new(self, piece: bytes) -> bool:
        """Whether a record, read once more from an earlier one on, is beyond what was read."""
        if piece[:STAMP_BYTES] == self.newest and self.records:
            self.records -= 1
            return False
        return piece[:STAMP_BYTES] >= self.newest


def _resume(known: dict[int, _Known]) -> float | None:
    """The time to go on from: of the newest record, or where a line is unfinished, of its beginning."""
    newest = max((each.newest for each in known.values()), default=b"")
    return stamp_of(min([newest, *(each.newest for each in known.values() if each.is_open)]))


def _past(
    records: Callable[..., Iterator[tuple[int, bytes]]], tail: int, skip: Skip
) -> tuple[Iterable[tuple[int, bytes]], dict[int, _Known]]:
    """The newest `tail` records without routine, and what is known with them; where nearly all is routine, from farther
    back: a day of scrapes may lie between an engine's last words and now."""
    reach = tail
    while True:
        kept: deque[tuple[int, bytes]] = deque(maxlen=tail)
        known: dict[int, _Known] = defaultdict(_Known)
        read = 0
        for stream, piece in islice(records(follow=0, tail=reach), reach):  # an Engine that lies may send without end
            read += 1
            known[stream].add(piece)
            if not skip(piece):
                kept.append((stream, piece))
        if len(kept) > tail // 10 or read < reach or reach >= FARTHEST:
            return kept, known
        reach = FARTHEST


def read_file(api: Any, container_id: str, path: str, tail: int, pump: Pump, stop: Stop) -> FollowEnd:
    """Read a file inside a container, as `tail -F` does, until stopped; blocking, for a thread."""
    errors = _Errors.load()
    try:
        argv = ["sh", "-c", TETHERED, "sh", "tail", "-n", str(tail), "-F", "--", path]
        made = api.exec_create(container_id, argv, stdin=True, stdout=True, stderr=True)
        raw = api.exec_start(made["Id"], socket=True)
        if not stop.arm(raw):
            return FollowEnd(reason="stopped")
        sock = getattr(raw, "_sock", raw)
        sock.settimeout(None)
        sock.sendall(b"go\n")
        frames = Frames()
        while data := sock.recv(READ_BYTES):
            for stream, payload in frames.feed(data):
                pump.put(stream, payload)
        if stop.asked:
            return FollowEnd(reason="stopped")
        code = api.exec_inspect(made["Id"]).get("ExitCode")
    except errors.all as error:
        return _ended_by(error, errors, stop)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return FollowEnd(reason=f"the file's stream can't be read: {sanitise.line(str(error), limit=200)}")
    if code in (126, 127):
        return FollowEnd(reason=f"the container has no `sh` or no `tail` to read {sanitise.name(path)} with")
    if not code:  # it ends well only when its input has closed, and it wasn't closed here
        return FollowEnd(reason="the connection to the Docker Engine broke")
    if code > 128:
        return FollowEnd(reason="the container ended", ended=True)
    return FollowEnd(reason=f"reading {sanitise.name(path)} ended with exit code {code}")


def _ended_by(error: BaseException, errors: _Errors, stop: Stop) -> FollowEnd:
    if stop.asked:
        return FollowEnd(reason="stopped")
    if isinstance(error, errors.missing):
        return FollowEnd(reason="the container is gone")
    if isinstance(error, errors.refused):
        return FollowEnd(reason=f"the Docker Engine refused: {sanitise.line(str(error.explanation), limit=200)}")
    reason = sanitise.line(f"{type(error).__name__}: {error}", limit=200)
    return FollowEnd(reason=f"the connection to the Docker Engine broke ({reason})")


def _message(response: Any) -> str:
    try:
        return sanitise.line(str(response.json().get("message")), limit=200)
    except (ValueError, AttributeError):
        return f"status {response.status_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Exception classes of libraries that are imported late, in a thread."""

    missing: Any
    refused: Any
    all: tuple[Any, ...]

    @staticmethod
    def load() -> _Errors:
        import http.client

        docker = import_lean("docker")
        import requests
        import urllib3.exceptions

        return _Errors(
            missing=docker.errors.NotFound,
            refused=docker.errors.APIError,
            all=(
                docker.errors.DockerException,
                requests.RequestException,
                urllib3.exceptions.HTTPError,
                http.client.HTTPException,
                OSError,
            ),
        )
