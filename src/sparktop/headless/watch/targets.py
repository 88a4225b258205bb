"""Sends a message to a target; its secrets are read at the start, and shown nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from sparktop import faults, files
from sparktop.config import Target, TargetKind
from sparktop.errors import ConfigError
from sparktop.headless.watch.message import Message, as_json, for_mail, for_web
from sparktop.transport.outgoing.mail import SmtpServer, send_mail
from sparktop.transport.outgoing.outcome import Outcome
from sparktop.transport.outgoing.program import run_command
from sparktop.transport.outgoing.webhook import post

Send = Callable[[Message], Awaitable[Outcome]]
SUBMISSION_PORT = 587


def sender(target: Target) -> Send:
    """What sends a message there.

    Raises:
        ConfigError: a secret is missing, or the target can't be right.
    """
    send = _sender(target)

    async def sending(message: Message) -> Outcome:
        try:
            return await send(message)
        except Exception as error:  # noqa: BLE001 - one target's fault must not keep messages from the others
            bare = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)  # its text may hold a secret
            return Outcome(problem=faults.report(f"sending to {target.name}", bare))

    return sending


def _sender(target: Target) -> Send:
    if target.kind is TargetKind.COMMAND:
        return lambda message: _run(target, message)
    if target.kind is TargetKind.MAIL:
        server = _smtp(target)
        return lambda message: send_mail(for_mail(message, target), server)
    url = target.url or _secret(target, "url", target.url_env, target.url_file)
    token = _secret(target, "token", target.token_env, target.token_file)
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable():
        raise ConfigError(f"the URL of [watch.target.{target.name}] is none: it wants http:// or https://, and a host")

    async def send(message: Message) -> Outcome:
        to, body = for_web(message, target.kind, url)
        return await post(to, body, token=token)

    return send


async def _run(target: Target, message: Message) -> Outcome:
    data = json.dumps(as_json(message), ensure_ascii=False).encode()
    return Outcome(problem=await run_command(target.command, data), answer="exit code 0")


def _smtp(target: Target) -> SmtpServer | None:
    if not target.smtp:
        return None
    host, _, port = target.smtp.rpartition(":") if ":" in target.smtp else (target.smtp, "", str(SUBMISSION_PORT))
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"`smtp` in [watch.target.{target.name}] wants HOST or HOST:PORT")
    password = _secret(target, "password", target.password_env, target.password_file)
    return SmtpServer(host=host, port=int(port), user=target.user, password=password)


def _secret(target: Target, what: str, variable: str, file: str) -> str:
    """A secret from the environment, or from a file that only its owner can read; empty where neither is named."""
    where = f"[watch.target.{target.name}]"
    if variable:
        if not (text := os.environ.get(variable, "").strip()):
            raise ConfigError(f"`{what}_env` in {where}: {variable} is not set")
        return text
    if not file:
        return ""
    path = Path(file).expanduser()
    try:
        text = files.read(path, is_private=True).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"`{what}_file` in {where}: {path}: {reason}", hint=f"chmod 600 {path}") from None
    if not text or not text.isprintable():
        raise ConfigError(f"`{what}_file` in {where}: {path} wants one line")
    return text
