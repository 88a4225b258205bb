"""What a hostile Docker Engine can make the SDK do, and what of the operator's machine it gets to see."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from sparktop.transport.docker import client as docker_client
from sparktop.transport.docker.client import ANSWER_BYTES, Unreadable, make_client
from sparktop.transport.docker.engine import DockerEngine

VERSION = json.dumps({"ApiVersion": "1.41", "MinAPIVersion": "1.12"}).encode()
Answer = Callable[[str], bytes | Iterator[bytes]]


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Engine:
    """Answers each path with raw bytes; /version sanely unless told otherwise. `seen` are the requests' heads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []
        self.sent_bytes = 0
        self.answers: dict[str, Any] = {"/version": http(VERSION)}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = line.recv(65536)
                if not piece:
                    return
                head += piece
            text = head.decode("latin-1")
            self.seen.append(text)
            answer = next((value for path, value in self.answers.items() if path in text.split(" ")[1]), http(b"[]"))
            for piece in (answer,) if isinstance(answer, bytes) else answer():
                try:
                    line.sendall(piece)
                except OSError:
                    return
                self.sent_bytes += len(piece)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "docker.sock")
    yield made
    made.close()


def endless() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n["
    while True:
        yield b'{"Id": "x"},' * 4096


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error", "302 Found\r\nLocation: /x"])
def test_an_answer_without_end_is_cut(engine: Engine, status: str) -> None:
    def answer() -> Iterator[bytes]:
        yield from (piece.replace(b"200 OK", status.encode()) for piece in endless())

    engine.answers["/containers"] = answer
    with pytest.raises(Unreadable, match="more than"):
        make_client(f"unix://{engine.path}").containers()
    assert engine.sent_bytes < ANSWER_BYTES + (2 << 20)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP"])
def test_a_compressed_answer_is_refused(engine: Engine, encoding: str) -> None:
    engine.answers["/containers"] = http(gzip.compress(b"[" + b" " * (1 << 20) + b"]"), f"Content-Encoding: {encoding}")
    with pytest.raises(Unreadable, match="compressed"):
        make_client(f"unix://{engine.path}").containers()
    assert all("Accept-Encoding: identity" in head for head in engine.seen)


def test_an_answer_that_drips_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_client, "ANSWER_S", -1.0)
    with pytest.raises(docker.errors.DockerException, match="takes more than"):
        make_client(f"unix://{engine.path}")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'[{"Id": "x", "Created": ' + b"9" * 400 + b"}]", b'[{"Created": 1e999}]', b"nonsense"]
)
def test_an_answer_out_of_bounds_is_no_json(engine: Engine, body: bytes) -> None:
    engine.answers["/containers"] = http(body)
    with pytest.raises(ValueError):  # noqa: PT011
        make_client(f"unix://{engine.path}").containers()


def test_the_reason_of_a_refusal_is_bounded_too(engine: Engine) -> None:
    engine.answers["/containers"] = http(b'{"message": ' + b"[" * 100_000, status="500 Oops")
    with pytest.raises(docker.errors.APIError):
        make_client(f"unix://{engine.path}").containers()
    engine.answers["/containers"] = http(b'{"message": "no such thing"}', status="404 Not Found")
    with pytest.raises(docker.errors.NotFound, match="no such thing"):
        make_client(f"unix://{engine.path}").containers()


def test_no_redirect_is_followed(engine: Engine) -> None:
    engine.answers["/containers"] = http(b"[]", "Location: /elsewhere", status="302 Found")
    make_client(f"unix://{engine.path}").containers()
    assert not [head for head in engine.seen if "/elsewhere" in head]


def test_nothing_of_the_operators_machine_goes_to_the_spark(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["HOME"])
    for folder in (home / ".docker", tmp_path / "config"):
        folder.mkdir()
        config = {
            "HttpHeaders": {"X-Laptop": "s3cret-header"},
            "auths": {
                "localhost": {"auth": "czNjcmV0OnMzY3JldA=="},
                "registry.example": {"auth": "czNjcmV0OnMzY3JldA=="},
            },
            "proxies": {"default": {"httpProxy": "http://s3cret:s3cret@proxy:3128"}},
        }
        (folder / "config.json").write_text(json.dumps(config))
    (home / ".netrc").write_text("default login s3cret password s3cret\n")
    (home / ".netrc").chmod(0o600)
    for name, value in {
        "DOCKER_CONFIG": str(tmp_path / "config"),
        "DOCKER_HOST": "tcp://s3cret:2375",
        "DOCKER_API_VERSION": "1.24",
        "HTTP_PROXY": "http://s3cret@127.0.0.1:1",
        "ALL_PROXY": "http://s3cret@127.0.0.1:1",
        "NETRC": str(home / ".netrc"),
        "REQUESTS_CA_BUNDLE": "/s3cret",
    }.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    engine.answers["/containers"] = http(b"[]", "Set-Cookie: a=b")
    made = make_client(f"unix://{engine.path}")
    made.containers()
    made.containers()
    sent = "".join(engine.seen)
    assert len(engine.seen) == 3
    for word in ("s3cret", "czNjc", "X-Laptop", "Authorization", "Cookie", "X-Registry"):
        assert word not in sent
    names = {line.partition(":")[0] for line in sent.split("\r\n") if ": " in line}
    assert names <= {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type"}


def test_a_broken_docker_configuration_of_the_operators_matters_to_nobody(engine: Engine) -> None:
    folder = Path(os.environ["HOME"], ".docker")
    folder.mkdir()
    (folder / "config.json").write_text('{"auths": ["not", "a", "mapping"]}')
    assert make_client(f"unix://{engine.path}").containers() == []


def test_it_has_everything_that_the_sdks_own_client_has(engine: Engine) -> None:
    url = f"unix://{engine.path}"
    own, stock = make_client(url), docker.APIClient(base_url=url, version="auto")
    assert vars(stock).keys() <= vars(own).keys()
    assert (own.base_url, own.api_version) == (stock.base_url, stock.api_version)


class Line:
    """A Transport whose forwarded socket is the engine's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def unix_socket(self, _: str) -> Any:
        return contextlib.nullcontext(self.path)

    async def run(self, _: Any) -> Any:
        raise AssertionError("the node isn't asked")


async def test_what_is_wrong_is_told_in_place_of_the_containers(engine: Engine) -> None:
    async def told(path: str, answer: bytes) -> str:
        engine.answers = {"/version": http(VERSION), path: answer}
        listed = await DockerEngine(Line(engine.path)).list()  # type: ignore[arg-type]
        assert not listed.available
        return listed.detail

    bomb = http(gzip.compress(b"[]"), "Content-Encoding: gzip")
    for path in ("/version", "/containers"):
        assert "compressed" in await told(path, bomb)
    assert "can't be read" in await told("/containers", http(b"[3]"))
    assert "can't be read" in await told("/containers", http(b'[{"Id": "x", "Created": ' + b"9" * 400 + b"}]"))
