"""Questions, messages and documents on a plain terminal."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import sys
import termios
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from sparktop.errors import UsageError
from sparktop.files import write_shared
from sparktop.text.ascii import ascii_text, wants_ascii
from sparktop.text.lines import PAGE_CELLS, UNCUT, Line
from sparktop.text.units import size
from sparktop.transport.base import HostKeyQuestion, SecretQuestion

JSON_VERSION = 1
"""Of each object that a command prints."""


async def answered(question: str) -> str:
    """Ask and return the typed line, stripped; "" at the end of input."""
    return (await _line(question)).strip()


async def agreed(question: str) -> bool:
    """Ask a question that `y` or `yes` agrees to, and nothing else."""
    return (await answered(f"{question} (yes/no) [no] ")).lower() in ("y", "yes")


async def answered_unseen(question: str) -> str:
    """Ask without echo and return the typed line as it is; "" at the end of input."""
    with _no_echo(sys.stdin.fileno()):
        try:
            return (await _line(question)).removesuffix("\n")
        finally:
            written("", sys.stderr)  # Enter wasn't echoed either


async def _line(question: str) -> str:
    written(question, sys.stderr, end="")
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    got = bytearray()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        try:
            piece = os.read(descriptor, 1024)
        except OSError:  # the terminal was closed
            piece = b""
        got.extend(piece)
        if (not piece or b"\n" in piece) and not line.done():
            line.set_result(bytes(got))

    loop.add_reader(descriptor, readable)
    try:
        text = (await line).decode("utf-8", "replace")
        if not text.endswith("\n"):  # after Ctrl-D the next output begins on a new line
            written("", sys.stderr)
        return text
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _no_echo(descriptor: int) -> Iterator[None]:
    """Turn the terminal's echo off; input typed ahead is discarded."""
    before = termios.tcgetattr(descriptor)
    after = [*before]
    after[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, after)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


class TerminalPrompter:
    """The Prompter of commands: asks on standard error and reads the terminal, as standard output is for data."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """Ask whether to trust a host key; False without a terminal, with a hint."""
        if not sys.stdin.isatty():
            say(
                f"{question.host}: unknown host key {question.algorithm} {question.fingerprint}\n"
                f"  there is no terminal to ask on: connect once with `ssh {question.host}` and compare it"
            )
            return False
        lines = [f"{question.host} is not in {question.known_hosts_path}.", f"  {question.algorithm} key fingerprint"]
        lines.append(f"  {question.fingerprint}")
        if question.same_key_hosts:
            lines.append(f"  the same key as {', '.join(question.same_key_hosts)}: two units, or one?")
        async with self._one_at_a_time:
            return await agreed("\n".join(lines) + "\nTrust it and save it?")

    async def secret(self, question: SecretQuestion) -> str | None:
        """Ask a server's question, without echo unless it allows it; None without a terminal."""
        if not sys.stdin.isatty():
            say(
                f"{question.host} wants: {question.prompt}\n  there is no terminal to ask on: load a key into ssh-agent"
            )
            return None
        text = f"{question.host}: {question.prompt} "
        async with self._one_at_a_time:
            return await (answered(text) if question.echo else answered_unseen(text))

    async def sudo(self, node: str, wrong_count: int) -> str | None:
        """Ask for the sudo password of a node, after `wrong_count` wrong ones; None without a terminal."""
        if not sys.stdin.isatty():
            say(
                f"{node}: sudo wants your password, and there is no terminal to ask on\n"
                "  run it at a terminal, or let sudo do without one there: the plan shows the line for it"
            )
            return None
        wrong_text = f" (wrong {wrong_count} times so far)" if wrong_count else ""
        async with self._one_at_a_time:
            return await answered_unseen(f"{node}: sudo wants your password{wrong_text}: ")


def say(text: str) -> None:
    """Print a message on standard error."""
    written(ascii_text(text) if wants_ascii(os.environ) else text, sys.stderr)


def put_json(data: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Print an object with its version on standard output."""
    print(json_text(data, indent=indent), flush=True)


def json_text(data: Mapping[str, Any], *, indent: int | None = None) -> str:
    """An object with its version as JSON."""
    return json.dumps({"version": JSON_VERSION, **data}, indent=indent, ensure_ascii=False)


def shown_address(address: str, port: int) -> str:
    """As a URL has it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def cannot_listen(address: str, port: int, error: OSError) -> UsageError:
    """The error for an address that nothing can be served at."""
    hint = "choose another: --listen 127.0.0.1:0 takes any port that is free"
    return UsageError(f"can't listen on {shown_address(address, port)}: {error.strerror or error}", hint=hint)


def write_page(path: Path, text: str, *, option: str) -> None:
    """Write a page that is to be shared, and say so with its size.

    Raises:
        UsageError: it can't be written; `option` is how the file was named.
    """
    try:
        write_shared(path, text)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}", hint=f"{option} FILE") from error
    say(f"sparktop: the page is in {path} ({size(path.stat().st_size)})")


def written(text: str, out: TextIO, *, end: str = "\n") -> None:
    """Print a text; when the reader is gone (`| head`, a closed terminal), discard it and all later output.

    A run must still finish, with its own exit code.
    """
    try:
        print(text, file=out, end=end, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())  # buffered and later output goes there
        os.close(nowhere)


_CODES = {
    "title": "1",
    "strong": "1",
    "quiet": "2",
    "faint": "2",
    "info": "36",
    "key": "36",
    "ok": "32",
    "warning": "1;33",
    "critical": "1;31",
    "verdict-ok": "1;32",
    "verdict-info": "1;36",
    "graph": "34",
    "hold-engine": "97;44",
    "hold-gpu": "97;45",
    "hold-desktop": "30;46",
    "hold-processes": "30;42",
    "hold-kernel": "97;100",
    "hold-unaccounted": "97;41",
    "hold-cache": "30;47",
    "mark-engine": "34",
    "mark-gpu": "35",
    "mark-desktop": "36",
    "mark-processes": "32",
    "mark-kernel": "90",
    "mark-unaccounted": "31",
    "mark-cache": "37",
}
"""Tone -> SGR codes of the terminal's own sixteen colours; a tone that is not here is plain."""


def width_of(out: TextIO, *, most: int = PAGE_CELLS) -> int:
    """The cells of a line: the terminal's columns, 40 to `most`; for a file or a pipe UNCUT."""
    return max(40, min(most, shutil.get_terminal_size().columns)) if out.isatty() else UNCUT


def drawn(lines: Iterable[Line], out: TextIO) -> str:
    """The lines as text for a stream: in colour for a terminal, unless NO_COLOR is set, and in ASCII where it must."""
    is_coloured = out.isatty() and not os.environ.get("NO_COLOR")
    text = "\n".join(_coloured(line) if is_coloured else line.plain.rstrip() for line in lines)
    return ascii_text(text) if wants_ascii(os.environ) else text


def draw(lines: Iterable[Line], out: TextIO) -> None:
    """Print the lines on a stream."""
    written(drawn(lines, out), out)


def _coloured(line: Line) -> str:
    return "".join(f"\x1b[{code}m{text}\x1b[0m" if (code := _code(tone)) else text for text, tone in line.runs)


def _code(tone: str) -> str:
    """A tone's codes; a faded one is dimmed."""
    code = _CODES.get(tone.removeprefix("~"), "")
    return f"2;{code}".rstrip(";") if tone.startswith("~") else code
