"""Requests to the Docker Engine on its own socket.

HTTP is written by hand over a plain socket: Python's http.client brings 2.5 MB of mail parsing, and it and `socket`
itself would be read from disk just when the machine has no memory left.
"""

from __future__ import annotations

import _socket
import json
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HEAD_BYTES = 65536
BODY_BYTES = 4 << 20
OLDEST_API = "1.24"
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SAFE = _SAFE | frozenset(b"/%:@!$&'()*+,;=")


class DockerLost(Exception):
    """The socket refused, or the connection broke before the answer was whole."""

    def __init__(self, reason: str, *, sent: bool, late: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        """The request may have been received."""
        self.late = late
        """The Engine runs, and didn't answer in time."""


def percent(text: str, safe: frozenset[int] = _SAFE) -> str:
    """Percent-encode what isn't safe."""
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def target(path: str, query: dict[str, str]) -> str:
    """A request's target: characters that would end the path are encoded; a path that is encoded stays."""
    said = "&".join(f"{percent(str(key))}={percent(str(value))}" for key, value in query.items())
    return percent(path, _PATH_SAFE) + ("?" + said if said else "")


class DockerEngine:
    """This machine's Docker Engine; each request opens a connection."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = ""

    def negotiate(self, seconds: float) -> None:
        """Ask for the version of its API.

        Raises:
            DockerLost: it doesn't answer.
        """
        _, headers, _ = self._exchange("GET", "/_ping", None, seconds, 4096)
        said = headers.get("api-version", "")
        number = said.split(".")
        self.version = said if len(number) == 2 and all(part.isdigit() for part in number) else OLDEST_API

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object = None,
        *,
        seconds: float,
        limit: int = BODY_BYTES,
        is_tail: bool = False,
        headers: dict[str, str] | None = None,
        line: Callable[[float], EngineLine] | None = None,
    ) -> tuple[int, dict[str, str], bytes, bool]:
        """(status, headers, body, whether the body was cut); `line` makes the connection, given its deadline.

        Raises:
            DockerLost: no answer, or only part of one.
        """
        deadline = time.monotonic() + seconds
        if not self.version:
            self.negotiate(min(seconds, 10.0))
        where = f"/v{self.version}{target(path, query)}"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        left = max(0.1, deadline - time.monotonic())
        keep = -limit if is_tail else limit
        status, said, answer = self._exchange(method, where, data, left, keep, headers, line)
        return status, said, answer[-limit:] if is_tail else answer[:limit], len(answer) > limit

    def _exchange(
        self, method: str, where: str, body: bytes | None, seconds: float, keep: int,
        headers: dict[str, str] | None = None, connect: Callable[[float], EngineLine] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """`keep`: bytes of the body to read; negative: read all, and keep so many of its end (and a few more)."""
        line = (connect or EngineLine)(time.monotonic() + seconds)
        sent = False
        try:
            line.socket.connect(self.path)
            head = f"{method} {where} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nUser-Agent: sparktop\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
            if body is not None:
                kind = "x-tar" if method == "PUT" else "json"
                head += f"Content-Type: application/{kind}\r\nContent-Length: {len(body)}\r\n"
            elif method != "GET":
                head += "Content-Length: 0\r\n"
            sent = True
            line.socket.sendall(head.encode("ascii") + b"\r\n" + (body or b""))
            return line.answer(keep)
        except TimeoutError:
            raise DockerLost(f"Docker didn't answer within {seconds:.0f} s", sent=sent, late=True) from None
        except FileNotFoundError:
            raise DockerLost(f"there is no Docker Engine here (no {self.path})", sent=False) from None
        except PermissionError:
            raise DockerLost(f"this user may not use {self.path}", sent=False) from None
        except ConnectionRefusedError:
            raise DockerLost("the Docker Engine is not running", sent=False) from None
        except (OSError, ValueError) as error:
            raise DockerLost(f"the connection to the Docker Engine broke ({error})", sent=sent) from None
        finally:
            line.socket.close()


class EngineLine:
    """One connection with a deadline."""

    def __init__(self, deadline: float) -> None:
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.deadline = deadline
        self.pending = b""
        self._time()

    def _time(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)

    def _more(self) -> bool:
        self._time()
        chunk = self.socket.recv(65536)
        self.pending += chunk
        return bool(chunk)

    def _until(self, mark: bytes, limit: int) -> bytes:
        while mark not in self.pending:
            if len(self.pending) > limit or not self._more():
                raise ValueError("the answer is cut off")
        taken, _, self.pending = self.pending.partition(mark)
        return taken

    def answer(self, keep: int) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of the answer; `keep` as in `DockerEngine._exchange`."""
        status = 100
        while status < 200:  # 100 Continue: the answer follows
            lines = self._until(b"\r\n\r\n", HEAD_BYTES).decode("latin-1").split("\r\n")
            words = lines[0].split()
            if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
                raise ValueError("what answers is not a Docker Engine")
            status = int(words[1])
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.body, self.keep = bytearray(), keep
        if status in (204, 304):
            pass
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            while size := int(self._until(b"\r\n", 64).partition(b";")[0], 16):
                if not self._take(size):
                    return status, headers, bytes(self.body)
                self._until(b"\r\n", 64)
        elif "content-length" in headers:
            self._take(int(headers["content-length"]))
        else:
            while self.pending or self._more():
                if not self._take(len(self.pending)):
                    break
        return status, headers, bytes(self.body)

    def _take(self, size: int) -> bool:
        """Read so many bytes of the body; False when `keep` bytes are there."""
        while size > 0:
            if not self.pending and not self._more():
                raise ValueError("the answer is cut off")
            piece, self.pending = self.pending[:size], self.pending[size:]
            size -= len(piece)
            self.body += piece
            if self.keep >= 0 and len(self.body) > self.keep:
                return False
            if self.keep < 0 and len(self.body) > 2 * -self.keep + 65536:
                del self.body[: len(self.body) + self.keep - 1]
        return True


def said_by_docker(status: int, body: bytes) -> str:
    """The Engine's message about an error."""
    try:
        words = json.loads(body)
        message = words["message"] if isinstance(words, dict) else ""
    except (ValueError, KeyError, RecursionError):
        message = ""
    return str(message).strip()[:1000] or f"Docker answered with status {status}"


_FRAME = re.compile(rb"[\0-\2]\0\0\0\0...", re.DOTALL)


def unframed(data: bytes, *, is_cut: bool = False) -> bytes:
    """A log without the 8 bytes that frame each piece of a stream; a terminal's log, which has none, stays as it is.

    Where the log's beginning `is_cut`, the bytes before the first whole frame are dropped.
    """
    pieces, at = [], 0
    if is_cut and (first := _FRAME.search(data)):
        at = first.start()
    while (head := _FRAME.match(data, at)) is not None:
        end = head.end() + int.from_bytes(data[at + 4 : at + 8], "big")
        pieces.append(data[head.end() : end])
        at = end
    return b"".join(pieces) if pieces else data


def value_at(data: Any, path: str) -> Any:
    """The value at a dotted path; keys may contain dots, as labels do; None where there is none."""
    if isinstance(data, list):
        head, _, rest = path.partition(".")
        if not head.isdecimal() or int(head) >= len(data):
            return None
        return value_at(data[int(head)], rest) if rest else data[int(head)]
    if not isinstance(data, dict):
        return None
    if path in data:
        return data[path]
    at = len(path)
    while (at := path.rfind(".", 0, at)) > 0:
        if path[:at] in data:
            return value_at(data[path[:at]], path[at + 1 :])
    return None


def is_same(value: object, expected: object) -> bool:
    """Equality of JSON values: true is not 1."""
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected
