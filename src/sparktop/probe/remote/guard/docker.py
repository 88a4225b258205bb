"""The guard's connection to the Docker Engine, which stays open.

HTTP is written by hand: Python's own modules for it take more memory than the whole guard. dockerd closes a connection
that is silent for five minutes before its first request, but not after it: one request at the start keeps it open.
"""

from __future__ import annotations

import errno
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOCKET = "/var/run/docker.sock"
ANSWER_BYTES = 4 << 20
HEAD_BYTES = 65536


def parse_answer(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The first HTTP answer in `data`: (status, body, bytes after it); None while it isn't whole.

    Raises:
        ValueError: this isn't HTTP.
    """
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        if len(data) > HEAD_BYTES:
            raise ValueError("its headers don't end")
        return None
    lines = head.split(b"\r\n")
    words = lines[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or len(words[1]) != 3:
        raise ValueError("not HTTP")
    status, length, chunked = _number(words[1], 10), 0, False
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = _number(value.strip(), 10)
        elif name.lower() == b"transfer-encoding":
            chunked = b"chunked" in value.lower()
    if status < 200:  # 100 Continue: the answer follows
        return parse_answer(rest)
    if status in (204, 304):
        return status, b"", rest
    if not chunked:
        return (status, rest[:length], rest[length:]) if len(rest) >= length else None
    body = b""
    while True:
        size, newline, rest = rest.partition(b"\r\n")
        if not newline:
            return None
        count = _number(size.partition(b";")[0].strip(), 16)
        if len(rest) < count + 2:
            return None
        body, rest = body + rest[:count], rest[count + 2 :]
        if count == 0:
            return status, body, rest


def _number(digits: bytes, base: int) -> int:
    if not digits.isalnum() or len(digits) > 12:
        raise ValueError("not a number")
    return int(digits, base)


class DockerLine:
    """One connection; its owner's poll watches it, and answers come in the order of the requests."""

    noun = "container"
    silence = "Docker hasn't answered"

    def __init__(self, path: str = "") -> None:
        self.path = path or SOCKET
        self.poll: Any = None
        """The poll that the descriptor is registered with while it is open."""
        self.socket: Any = None
        self.asked: list[tuple[str, float]] = []
        """Requests without an answer yet: (the caller's word for it, when)."""
        self.problem = ""
        self._pending = b""

    @property
    def descriptor(self) -> int:
        return -1 if self.socket is None else int(self.socket.fileno())

    def open(self) -> bool:
        """Connect; where that fails, False, and the reason in `problem`."""
        import _socket

        self.close()
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self.path)
        except OSError as error:
            connection.close()
            self.problem = {
                errno.ENOENT: f"there is no Docker Engine here (no {self.path})",
                errno.EACCES: f"this user may not use {self.path}: `sudo usermod -aG docker $USER`, then log in again",
                errno.ECONNREFUSED: "the Docker Engine is not running",
            }.get(error.errno or 0, f"can't connect to the Docker Engine: {os.strerror(error.errno or 0)}")
            return False
        self.socket = connection
        self.poll.register(connection.fileno(), select.POLLIN)
        return True

    def close(self) -> None:
        if self.socket is not None:
            self.poll.unregister(self.socket.fileno())
            self.socket.close()
            self.socket = None
        self.asked, self._pending = [], b""

    def ask(self, request: bytes, word: str, now: float) -> None:
        """Write a request: 150 bytes into a buffer of 200 KiB go at once, unless the connection is gone."""
        self.asked.append((word, now))
        try:
            self.socket.send(request)
        except OSError:
            pass  # the poll reports that it hung up

    def take(self) -> list[tuple[str, int, bytes]] | None:
        """Answers that are whole: (word of the request, status, body); None when the connection is closed."""
        try:
            chunk = self.socket.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.problem = "the Docker Engine closed the connection"
            return None
        self._pending += chunk
        answers = []
        try:
            while self._pending and (answer := parse_answer(self._pending)) is not None:
                status, body, self._pending = answer
                if self.asked:
                    answers.append((self.asked.pop(0)[0], status, body))
            if len(self._pending) > ANSWER_BYTES:
                raise ValueError("the answer doesn't end")
        except (ValueError, RecursionError):
            self.problem = "what answers on its socket is not a Docker Engine"
            return None
        return answers
