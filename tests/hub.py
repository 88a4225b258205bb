"""Stands for the Hugging Face hub, on loopback: enough of it for the real `hf download`, and for what a runner asks.

    with Hub.start() as hub:
        hub.model("acme/small", {"config.json": b"{}", "model.safetensors": safetensors({"w": 4 << 20})})
        ... HF_ENDPOINT=hub.url

It answers what huggingface_hub asks (GET /api/models/..., HEAD and GET /.../resolve/...), with ranges. A model may be
gated, or slow; `hub.cut_after_bytes` ends every connection after so much of a file, as a bad network does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK_BYTES = 64 * 1024


def safetensors(tensors: dict[str, int]) -> bytes:
    """A file of that format; `tensors` are names and bytes. What is in them tells one place from another."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    body = array("Q", range((at + 7) // 8)).tobytes()[:at]
    return len(text).to_bytes(8, "little") + text + body


def index_of(shards: dict[str, dict[str, int]]) -> bytes:
    """model.safetensors.index.json of several."""
    weights = {name: shard for shard, tensors in shards.items() for name in tensors}
    total = sum(size for tensors in shards.values() for size in tensors.values())
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weights}).encode()


@dataclass
class Repository:
    """One model."""

    name: str
    files: dict[str, bytes]
    is_gated: bool = False
    is_private: bool = False
    commit: str = ""

    def __post_init__(self) -> None:
        self.commit = self.commit or hashlib.sha1(self.name.encode()).hexdigest()

    def etag(self, path: str) -> str:
        return hashlib.sha256(self.files[path]).hexdigest()


@dataclass
class Hub:
    """One running server."""

    server: ThreadingHTTPServer
    models: dict[str, Repository] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    """Those that may read what is gated or private."""
    bytes_s: float | None = None
    """How fast a file goes out, each connection."""
    cut_after_bytes: int | None = None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(method, path, Range)."""
    seen_tokens: list[str] = field(default_factory=list)
    sent_bytes: int = 0

    @classmethod
    @contextlib.contextmanager
    def start(cls, host: str = "127.0.0.1") -> Iterator[Hub]:
        server = ThreadingHTTPServer((host, 0), _Handler)
        server.daemon_threads = True
        hub = cls(server)
        server.hub = hub  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)

    @property
    def url(self) -> str:
        host, port = self.server.server_address[:2]
        return f"http://{host!s}:{port}"

    def model(self, name: str, files: dict[str, bytes], **more: Any) -> Repository:
        self.models[name] = Repository(name, files, **more)
        return self.models[name]

    def gets(self, ending: str) -> list[tuple[str, str, str]]:
        """What was asked for of files that end so."""
        return [one for one in self.asked if one[0] == "GET" and one[1].endswith(ending)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined, no-any-return]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log_error(self, *words: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path, self.headers.get("Range", "")))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token:
            self.hub.seen_tokens.append(token)
        if path.startswith("/api/models/"):
            self._about(path.removeprefix("/api/models/"), token, has_body=has_body)
        elif "/resolve/" in path:
            self._file(path, token, has_body=has_body)
        else:
            self._say(404, {"error": "Not Found"}, code="EntryNotFound", has_body=has_body)

    def _model(self, name: str, revision: str, token: str, *, has_body: bool) -> Repository | None:
        found = self.hub.models.get(name)
        if found is None or (found.is_private and token not in self.hub.tokens):
            status = 404 if token in self.hub.tokens else 401
            self._say(status, {"error": "Repository not found"}, code="RepoNotFound", has_body=has_body)
        elif revision not in ("main", found.commit):
            self._say(404, {"error": "Revision not found"}, code="RevisionNotFound", has_body=has_body)
        else:
            return found
        return None

    def _about(self, rest: str, token: str, *, has_body: bool) -> None:
        name, _, after = rest.partition("/revision/")
        what = "model"
        if "/tree/" in name:
            name, _, after = name.partition("/tree/")
            what = "tree"
        found = self._model(name, after.partition("/")[0] or "main", token, has_body=has_body)
        if found is None:
            return
        if what == "tree":
            rows = [
                {"type": "file", "path": path, "size": len(data), "oid": found.etag(path)}
                for path, data in found.files.items()
            ]
            self._say(200, rows, has_body=has_body)
            return
        siblings = [{"rfilename": path, "size": len(data)} for path, data in found.files.items()]
        self._say(
            200,
            {
                "id": name, "modelId": name, "sha": found.commit, "private": found.is_private,
                "gated": "manual" if found.is_gated else False, "siblings": siblings, "tags": [], "downloads": 1,
            },
            has_body=has_body,
        )  # fmt: skip

    def _file(self, path: str, token: str, *, has_body: bool) -> None:
        name, _, rest = path.strip("/").partition("/resolve/")
        revision, _, wanted = rest.partition("/")
        found = self._model(name, revision, token, has_body=has_body)
        if found is None:
            return
        if found.is_gated and token not in self.hub.tokens:
            status = 403 if token else 401
            self._say(status, {"error": f"Access to model {name} is restricted"}, code="GatedRepo", has_body=has_body)
            return
        if wanted not in found.files:
            self._say(404, {"error": "Entry not found"}, code="EntryNotFound", has_body=has_body)
            return
        data, begin = found.files[wanted], 0
        if (said := self.headers.get("Range", "")).startswith("bytes="):
            begin = int(said.removeprefix("bytes=").partition("-")[0] or 0)
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{found.etag(wanted)}"')
        self.send_header("X-Repo-Commit", found.commit)
        self.end_headers()
        if has_body:
            self._send(memoryview(data)[begin:])

    def _send(self, data: memoryview) -> None:
        sent = 0
        while sent < len(data):
            if self.hub.cut_after_bytes is not None and sent >= self.hub.cut_after_bytes:
                self.close_connection = True
                self.connection.close()
                return
            piece = data[sent : sent + CHUNK_BYTES]
            self.wfile.write(piece)
            sent += len(piece)
            self.hub.sent_bytes += len(piece)
            if self.hub.bytes_s:
                time.sleep(len(piece) / self.hub.bytes_s)

    def _say(self, status: int, body: object, *, code: str = "", has_body: bool) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", str(body["error"]) if isinstance(body, dict) else "")
        self.end_headers()
        if has_body:
            self.wfile.write(text)
