"""A registry of images on loopback that gives one image, and holds its layer back for as long as a test wants.

Docker takes plain HTTP from 127.0.0.0/8 by itself.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LAYER_BYTES = 12_000_000
PIECE_BYTES = 32 * 1024
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """`127.0.0.1:PORT/engine:1`; half of its layer comes fast, then little by little, the end when `go_on` is set."""

    def __init__(self, *, login: str = "") -> None:
        """`login`: what the Authorization header has to be; empty: anybody may have it."""
        self.login = login
        self.go_on = threading.Event()
        self.hung_up = threading.Event()
        self.served = 0
        """How often the layer was given whole."""
        layer = _layer()
        config = json.dumps(
            {
                "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer))]},
                "history": [{"created_by": "a test"}],
            }
        ).encode()
        self.layer = _digest(layer)
        self.blobs = {self.layer: layer, _digest(config): config}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(config),
                    "digest": _digest(config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                        "size": len(layer),
                        "digest": self.layer,
                    }
                ],
            }
        ).encode()
        self.port = 0

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self.port}/engine:1"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if self.login and handler.headers.get("Authorization") != self.login:
            _send(handler, 401, b"{}", {"WWW-Authenticate": 'Basic realm="tests"'})
            return
        _, _, name = handler.path.rpartition("/")
        if handler.path == "/v2/":
            _send(handler, 200, b"{}")
        elif "/manifests/" in handler.path:
            found = name in ("1", _digest(self.manifest))
            headers = {"Content-Type": MANIFEST, "Docker-Content-Digest": _digest(self.manifest)}
            _send(handler, *((200, self.manifest, headers) if found else (404, b"{}")))
        elif name == self.layer:
            self._give_layer(handler)
        else:
            _send(handler, *((200, self.blobs[name]) if name in self.blobs else (404, b"{}")))

    def _give_layer(self, handler: BaseHTTPRequestHandler) -> None:
        data = self.blobs[self.layer]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        given = 0
        try:
            # Docker tells of every hundredth part, ten times a second at most, and notices only then that its own
            # caller has gone: so a half comes fast, and the rest slowly.
            while given < len(data) - PIECE_BYTES and not self.go_on.wait(0.01 if given < len(data) // 2 else 0.05):
                handler.wfile.write(data[given : given + PIECE_BYTES])
                given += PIECE_BYTES
            assert self.go_on.wait(60)
            handler.wfile.write(data[given:])
            self.served += 1
        except OSError:
            self.hung_up.set()
            handler.close_connection = True


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _layer() -> bytes:
    """What can't be packed smaller, so that its size is that on the wire."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tree:
        info = tarfile.TarInfo("weights")
        info.size = LAYER_BYTES
        tree.addfile(info, io.BytesIO(os.urandom(LAYER_BYTES)))
    return gzip.compress(out.getvalue(), 1)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextlib.contextmanager
def registry(*, login: str = "") -> Iterator[Registry]:
    """One that runs until the block is left."""
    made = Registry(login=login)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made._answer(self)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
