"""A Docker Engine of a test's own on a Unix socket: scripted answers, answers that get lost, and restarts."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Reply = tuple[int, Any]
"""Status and JSON body; a body of bytes goes out as it is, and of an iterator each piece as it comes (None: the line
breaks there)."""


class FakeDocker:
    """`requests` holds (method, target, body) of everything but pings, as they came."""

    def __init__(self, path: Path, answer: Callable[[str, str, Any], Reply | None]) -> None:
        """`answer` gets method, path with query and version taken off, and body; None: the line breaks unanswered."""
        self.path = path
        self.answer = answer
        self.requests: list[tuple[str, str, Any]] = []
        self.logins: list[str | None] = []
        """X-Registry-Auth of each request."""
        self.chunked = False
        self.hung_up = threading.Event()
        """Whoever was listening to a stream has gone."""
        self._server: socketserver.ThreadingUnixStreamServer | None = None

    def start(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                engine._handle(self)

            do_POST = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def get_request(self) -> tuple[socket.socket, Any]:
                line, _ = self.socket.accept()
                return line, ("local", 0)

            def handle_error(self, *_: object) -> None: ...

        self.path.unlink(missing_ok=True)
        self._server = Server(str(self.path), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self.path.unlink(missing_ok=True)
            self._server = None

    def away_for(self, seconds: float) -> None:
        """Stop now, and come back by itself."""

        def come_back() -> None:
            time.sleep(seconds)
            self.start()

        def leave() -> None:
            self.stop()
            come_back()

        threading.Thread(target=leave, daemon=True).start()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        if handler.path == "/_ping":
            self._send(handler, 200, b"OK", {"Api-Version": "1.44"})
            return
        prefix = "/v1.44"
        assert handler.path.startswith(prefix + "/"), handler.path
        target = handler.path[len(prefix) :]
        self.requests.append((handler.command, target, body))
        self.logins.append(handler.headers.get("X-Registry-Auth"))
        reply = self.answer(handler.command, target, body)
        if reply is None:
            handler.close_connection = True
            return
        if isinstance(reply[1], Iterator):
            self._stream(handler, reply[1])
            return
        self._send(handler, *reply, {})

    def _stream(self, handler: BaseHTTPRequestHandler, pieces: Iterator[Any]) -> None:
        """Progress as Docker tells it: JSON lines in chunks, for as long as it takes."""
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for piece in pieces:
                if piece is None:
                    handler.close_connection = True
                    return
                data = piece if isinstance(piece, bytes) else json.dumps(piece).encode() + b"\r\n"
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                handler.wfile.flush()
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            handler.close_connection = True
            self.hung_up.set()

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str]) -> None:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        handler.send_response(status)
        kind = "application/vnd.docker.multiplexed-stream" if isinstance(body, bytes) else "application/json"
        for name, value in {"Content-Type": kind, **headers}.items():
            handler.send_header(name, value)
        if self.chunked:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for at in range(0, len(data), 1000):
                piece = data[at : at + 1000]
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)


@contextlib.contextmanager
def fake_docker(path: Path, answer: Callable[[str, str, Any], Reply | None]) -> Iterator[FakeDocker]:
    engine = FakeDocker(path, answer)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
