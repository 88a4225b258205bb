"""Webhooks and mail: how each outcome reads, and that no secret is in it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.support import free_port
from tests.table import over

from sparktop.transport.outgoing import webhook
from sparktop.transport.outgoing.mail import SmtpServer, send_mail
from sparktop.transport.outgoing.webhook import post

SECRET = "Zq7secret"


@contextmanager
def answering(handler: type[socketserver.BaseRequestHandler], server: type[socketserver.TCPServer]) -> Iterator[int]:
    with server(("127.0.0.1", 0), handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made.server_address[1]
        finally:
            made.shutdown()
            thread.join()


def replying(status: int, body: bytes = b"", **headers: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body + (self.path.encode() if status >= 400 else b""))

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@over("status, problem, is_refused, wait_s", [
    (204, "", False, 0), (400, "400 Bad Request, no such field …", True, 0), (404, "404 Not Found", False, 0),
    (429, "429 Too Many Requests", False, 7), (302, "302 Found", False, 0), (500, "500 Internal", False, 0),
])  # fmt: skip
async def test_an_answer_is_an_outcome(status: int, problem: str, is_refused: bool, wait_s: float) -> None:
    handler = replying(status, b"no such field ", Retry_After="7" if status == 429 else "", Location=f"/{SECRET}/2")
    with answering(handler, HTTPServer) as port:
        outcome = await post(f"http://127.0.0.1:{port}/hook/{SECRET}?key={SECRET}", {"text": "x"}, token="t0ken")
    assert problem in outcome.problem
    assert bool(problem) == bool(outcome.problem)
    assert (outcome.is_refused, outcome.wait_s) == (is_refused, wait_s)
    assert SECRET not in f"{outcome}"


async def test_no_answer_is_an_outcome_too(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    outcome = await post(f"http://127.0.0.1:{port}/{SECRET}", {})
    assert outcome.problem.startswith("http://127.0.0.1: ConnectError")
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.2)

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(4096):
                pass

    with answering(Silent, socketserver.ThreadingTCPServer) as port:
        outcome = await post(f"http://127.0.0.1:{port}/{SECRET}", {})
    assert outcome.problem == "http://127.0.0.1: no answer within 0.2 s"
    assert SECRET not in (await post(f"http://a b/{SECRET}", {})).problem


class Smtp(socketserver.StreamRequestHandler):
    """As much of a server as a mail without a login takes; its answer to QUIT is none."""

    got: bytes = b""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                type(self).got = b"".join(lines)
            self.wfile.write(b"550 unknown user\r\n" if b"nobody" in line else b"250 ok\r\n")
            if word == b"QUIT":
                return


MAIL = EmailMessage()
MAIL["From"], MAIL["To"], MAIL["Subject"] = "sparktop@example.org", "me@example.org", "Spin deadlock"
MAIL.set_content("96 % SM")


async def test_a_mail_is_handed_in_and_a_password_never_without_tls() -> None:
    with answering(Smtp, socketserver.ThreadingTCPServer) as port:
        outcome = await send_mail(MAIL, SmtpServer(host="127.0.0.1", port=port))
        assert (outcome.problem, outcome.answer) == ("", "accepted")
        assert b"Subject: Spin deadlock" in Smtp.got
        refused = await send_mail(MAIL, SmtpServer(host="127.0.0.1", port=port, user="me", password=SECRET))
        assert "STARTTLS" in refused.problem
        assert SECRET not in f"{refused} {SmtpServer(host='h', port=1, password=SECRET)}"
        other = EmailMessage()
        other["From"], other["To"] = "sparktop@example.org", "nobody@example.org"
        assert (await send_mail(other, SmtpServer(host="127.0.0.1", port=port))).is_refused
    gone = await send_mail(MAIL, SmtpServer(host="127.0.0.1", port=free_port()))
    assert "refused" in gone.problem
    assert not gone.is_refused


async def test_without_a_server_sendmail_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert not (await send_mail(MAIL, None)).problem
    assert (tmp_path / "argv").read_text() == "-t -oi\n"
    assert "Subject: Spin deadlock" in (tmp_path / "mail").read_text()
