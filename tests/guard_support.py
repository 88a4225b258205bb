"""What tests of the guard share: a probe that looks elsewhere for memory, Docker and its journal, and such a Docker."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparktop.probe.bundle import Launch
from sparktop.probe.remote.children import unpack

GIB = 1024**3
ID = "5a" * 32
NAME = "vllm-qwen36"


def elsewhere(launch: Launch, places: Mapping[str, str]) -> Launch:
    """The same launch with texts of the probe's own source replaced; each must be there."""
    opened = zlib.decompressobj()
    texts = {"": opened.decompress(launch.payload)}
    texts.update((name, zlib.decompress(packed)) for name, packed in unpack(opened.unused_data).items())
    for old, new in places.items():
        assert any(old.encode() in text for text in texts.values()), old
        texts = {name: text.replace(old.encode(), new.encode()) for name, text in texts.items()}
    source = zlib.compress(texts.pop(""))
    parts = {name: zlib.compress(text) for name, text in texts.items()}
    head = " ".join(f"{name}:{len(packed)}" for name, packed in parts.items())
    payload = b"".join((source, head.encode(), b"\n", *parts.values()))
    digest = f"{zlib.crc32(payload):08x}"
    argv = [*launch.argv[:4], str(len(payload)), digest, *launch.argv[6:]]
    return replace(launch, argv=tuple(argv), payload=payload, digest=digest)


@dataclass
class Place:
    """A folder that stands for a machine's /proc/meminfo, Docker socket and tmpfs."""

    root: Path

    def __post_init__(self) -> None:
        self.set_available(60 * GIB)

    @property
    def meminfo(self) -> Path:
        return self.root / "meminfo"

    @property
    def docker_socket(self) -> Path:
        return self.root / "docker.sock"

    @property
    def journal(self) -> Path:
        return self.root / f"sparktop-{os.getuid()}"

    def kept(self, name: str) -> dict[str, Any] | None:
        path = self.journal / name
        return json.loads(path.read_text()) if path.exists() else None

    def set_available(self, available_bytes: float) -> None:
        """In place: the probe has the file open."""
        text = (
            f"MemTotal:       127600748 kB\nMemFree:        {int(available_bytes) // 1024:>9} kB\n"
            f"MemAvailable:   {int(available_bytes) // 1024:>9} kB\n"
        )
        with open(self.meminfo, "r+" if self.meminfo.exists() else "w") as file:
            file.write(text)  # always as long, in one write

    def move(self, launch: Launch) -> Launch:
        """A launch of a probe that looks here."""
        return elsewhere(
            launch,
            {
                'os.open("/proc/" + name': f'os.open("{self.root}/meminfo" if name == "meminfo" else "/proc/" + name',
                '"/var/run/docker.sock"': f'"{self.docker_socket}"',
                '("/run/lock", "/tmp")': f'("{self.root}",)',
            },
        )


@dataclass
class FakeDocker:
    """A Docker Engine of one container, on a Unix socket; remembers what it was asked, and over which connection."""

    path: Path
    name: str = NAME
    container_id: str = ID
    running: bool = True
    kills: bool = True
    """Answers a kill at all."""
    hangs_up_on_kill: bool = False
    requests: list[tuple[int, str]] = field(default_factory=list)
    _listener: socket.socket | None = None
    _open: set[socket.socket] = field(default_factory=set)
    _count: int = 0

    def start(self) -> FakeDocker:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """As a daemon that ends: every connection hangs up, and its socket refuses."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # it has just hung up itself
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def kill_count(self) -> int:
        return sum(request.startswith("POST") for _, request in self.requests)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._count += 1
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection, self._count), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        data = b""
        with connection, contextlib.suppress(OSError):
            while chunk := connection.recv(4096):
                data += chunk
                while b"\r\n\r\n" in data:
                    head, _, data = data.partition(b"\r\n\r\n")
                    request = head.decode().splitlines()[0]
                    assert "Host:" in head.decode()
                    self.requests.append((number, request.removesuffix(" HTTP/1.1")))
                    answer = self._answer(request)
                    if answer is None:
                        return
                    connection.sendall(answer)
        self._open.discard(connection)

    def _answer(self, request: str) -> bytes | None:
        method, path, _ = request.split()
        if path.split("/")[2] != self.container_id:
            return _answer(404, {"message": "No such container"})
        if method == "GET":
            state = {"Running": self.running, "StartedAt": "2026-11-21T03:00:00Z"}
            return _answer(200, {"Id": self.container_id, "Name": f"/{self.name}", "State": state, "Pad": "x" * 9000})
        if not self.running:
            return _answer(409, {"message": f"Container {self.container_id} is not running"})
        if self.hangs_up_on_kill:
            self.hangs_up_on_kill = False
            return None
        if not self.kills:
            return b""
        self.running = False
        return b"HTTP/1.1 204 No Content\r\nApi-Version: 1.51\r\n\r\n"


def _answer(status: int, body: dict[str, Any]) -> bytes:
    """Chunked, as dockerd sends whatever is longer than 2 KiB."""
    text = json.dumps(body).encode()
    pieces = [text[at : at + 4000] for at in range(0, len(text), 4000)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" % status
    return head + chunks + b"0\r\n\r\n"


def order(token: str = "one", **changes: object) -> bytes:
    """The console's words that arm for the fake's container, below 4 GiB."""
    words = {"id": ID, "name": NAME, "floor": 4 * GIB, "within": None, "stay": 0.0, "token": token}
    return json.dumps({"guard": words | changes}).encode() + b"\n"
