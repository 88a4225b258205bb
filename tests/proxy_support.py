"""A stand-in of an engine on loopback, and a real nginx or Caddy before it with files of its own."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support import free_port, poll, unavailable

from sparktop.operate.serve.proxy_config import Proxy, Site, Upstream, key_text, site_text

NAME = "llm.example.org"
KEY = "sk-Abc.def+123/~x="
NGINX = """\
daemon off;
pid {root}/nginx.pid;
error_log {root}/error.log notice;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    include {root}/sites-enabled/*;
}}
"""


@dataclass
class Engine:
    """Streams a token when it is told to, and counts what it is sent."""

    server: ThreadingHTTPServer
    goes_on: threading.Semaphore
    paths: list[str] = field(default_factory=list)
    body_bytes: int = 0
    keys: list[str] = field(default_factory=list)
    """The Authorization headers that came."""

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """An engine's HTTP, as far as a proxy sees it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.paths.append(self.path)
            found.keys.append(self.headers.get("Authorization", ""))
            self._answer(b'{"data": []}')

        def do_POST(self) -> None:
            found.paths.append(self.path)
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    found.body_bytes += len(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
            else:
                found.body_bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
            if "completions" not in self.path:
                self._answer(b"{}")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                found.goes_on.acquire()
                token = b"data: token %d\n\n" % number
                self.wfile.write(b"%x\r\n%s\r\n" % (len(token), token))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Engine(server, threading.Semaphore(0))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.goes_on.release(100)
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Running:
    """A proxy with its files below `root`."""

    root: Path
    port: int
    process: subprocess.Popen[bytes]
    test: tuple[str, ...]

    def tested(self) -> str:
        """What the proxy says of its files; "" where they are well."""
        done = subprocess.run(self.test, capture_output=True, text=True, check=False, timeout=30)
        return done.stderr if done.returncode else ""

    def ask(
        self, path: str, *, key: str = KEY, method: str = "GET", body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """One request as a client of NAME sends it."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Host": f"{NAME}:{self.port}", **({"Authorization": f"Bearer {key}"} if key else {})}
        line.request(method, path, body=body, headers=headers)
        return line.getresponse()


def program(kind: Proxy) -> str:
    """The proxy's path, or the test is skipped."""
    found = shutil.which(kind) or shutil.which(kind, path="/usr/sbin")
    return found or unavailable(f"no {kind} here: apt-get install {'nginx-light' if kind is Proxy.NGINX else 'caddy'}")


@contextlib.contextmanager
def proxy(kind: Proxy, root: Path, *upstreams: int) -> Iterator[Running]:
    """A real one before engines on these ports, with sparktop's files; it answers when this yields."""
    path, port = program(kind), free_port()
    site = Site(
        name=NAME,
        upstreams=tuple(Upstream(address="127.0.0.1", port=number) for number in upstreams),
        port=port,
        has_ipv6=False,
    )
    (root / "sites-enabled").mkdir()
    (root / f"{NAME}.key").write_text(key_text(site, kind, KEY))
    (root / "sites-enabled" / NAME).write_text(site_text(site, kind, str(root)))
    config = root / "proxy.conf"
    if kind is Proxy.NGINX:
        config.write_text(NGINX.format(root=root))
        run: tuple[str, ...] = (path, "-p", str(root), "-c", str(config))
        test = (*run, "-t")
    else:
        config.write_text(f"{{\n    admin off\n    auto_https off\n}}\nimport {root}/sites-enabled/*\n")
        run = (path, "run", "--adapter", "caddyfile", "--config", str(config))
        test = (path, "validate", *run[2:])
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(run, stdout=log, stderr=log, env={"HOME": str(root), "PATH": "/usr/bin:/usr/sbin"})
    running = Running(root, port, process, test)

    def answers() -> bool:
        assert process.poll() is None, (root / "log").read_text() + running.tested()
        with contextlib.suppress(OSError):
            return running.ask("/nothing").status == 404
        return False

    try:
        poll(answers, what=f"{kind} answering", within_s=20)
        yield running
    finally:
        process.terminate()
        process.wait(10)
