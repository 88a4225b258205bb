"""The format of a tape, and where tapes stand.

A host's folder holds its recordings; each is the files of one run of a console or watcher, gzip (any tool reads them)
of one line for each thing received: "TIME KIND JSON". A file begins with a line of its own (kind `tape`) and with what
was last received of each kind before, so that it can be read by itself. zlib's window is flushed every two seconds:
what stands in a file up to there is whole, whatever ended its writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from urllib.parse import quote, unquote

from sparktop.config import state_home
from sparktop.dataclass import dataclass

VERSION = 1
SUFFIX = ".tape.gz"
_NAME = re.compile(r"(?P<session>\d{8}T\d{6}Z-\d+)\.(?P<number>\d{4,})" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing received."""

    at_s: float
    """Seconds since the epoch by the operator's clock; within a recording they only go forward."""
    kind: str
    payload: bytes
    """JSON."""

    def encoded(self) -> bytes:
        """Its line."""
        return b"%.3f %b %b\n" % (self.at_s, self.kind.encode(), self.payload)

    @staticmethod
    def of(line: bytes) -> Entry:
        """From its line.

        Raises:
            ValueError: it is none.
        """
        at_s, kind, payload = line.rstrip(b"\n").split(b" ", 2)
        return Entry(at_s=float(at_s), kind=kind.decode("ascii"), payload=payload)


def heading(host: str, at_s: float, product: str) -> Entry:
    """The first entry of a file."""
    words = {"version": VERSION, "host": host, "by": product}
    return Entry(at_s=at_s, kind="tape", payload=json.dumps(words).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The files of one run of a console or watcher, oldest first."""

    files: tuple[Path, ...]

    @property
    def host(self) -> str:
        """By the folder's name."""
        return unquote(self.files[0].parent.name)


def folder_of(host: str, home: Path | None = None) -> Path:
    """Where a host's recordings stand."""
    name = quote(host, safe="@:+")
    return (home or state_home() / "recordings") / (f"%2E{name[1:]}" if name.startswith(".") else name)


def file_of(folder: Path, session: str, number: int) -> Path:
    """The file of a recording with this number, from 0."""
    return folder / f"{session}.{number:04}{SUFFIX}"


def recordings(folder: Path) -> tuple[Recording, ...]:
    """A host's recordings, oldest first."""
    return tuple(
        Recording(files=tuple(path for _, path in rows)) for _, rows in groupby(_named(folder), key=lambda row: row[0])
    )


def _named(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        paths = [path for path in folder.iterdir() if path.stat().st_size]
    except OSError:
        return
    rows = [(match["session"], int(match["number"]), path) for path in paths if (match := _NAME.fullmatch(path.name))]
    yield from ((session, path) for session, _, path in sorted(rows))
