"""Reads tapes back, up to the last whole line of each file, whatever ended its writer."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparktop import files
from sparktop.bounds import json_of
from sparktop.dataclass import dataclass
from sparktop.errors import UsageError
from sparktop.record.tape import VERSION, Entry, recordings
from sparktop.record.writer import FILE_S, GZIP

CHUNK_BYTES = 64 * 1024
LINE_BYTES = 8 << 20
"""Of the longest line: a probe's first look at a kernel log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What a file says of itself."""

    host: str
    at_s: float


def heading_of(path: Path) -> Heading:
    """What a file says of itself.

    Raises:
        UsageError: it is no tape, one of a later version, or can't be read.
    """
    first = next(_entries(path), None)
    words = _words(first)
    version = words.get("version")
    if first is None or not isinstance(version, int):
        raise UsageError(f"{path} is no recording of sparktop", hint="`sparktop replay HOST` lists what was recorded")
    if version > VERSION:
        raise UsageError(f"{path} was recorded by a newer sparktop (version {version} of the format)", hint="update")
    return Heading(host=str(words.get("host", "")), at_s=first.at_s)


def entries(paths: Sequence[Path]) -> Iterator[Entry]:
    """What these files of one recording hold, in order; what a file begins with anew is left out of all but the first.

    Raises:
        UsageError: see heading_of.
    """
    newest_s = float("-inf")
    for path in paths:
        began_s = heading_of(path).at_s
        for number, entry in enumerate(_entries(path)):
            if number == 0 or (entry.at_s < began_s and newest_s > float("-inf")):
                continue
            newest_s = max(newest_s, entry.at_s)
            yield entry


def files_from(paths: Sequence[Path], at_s: float) -> tuple[Path, ...]:
    """The files of a recording from the one on that had begun by a moment; all of them where none had.

    Raises:
        UsageError: see heading_of.
    """
    begun = [number for number, path in enumerate(paths) if heading_of(path).at_s <= at_s]
    return tuple(paths[begun[-1] if begun else 0 :])


def recent(folder: Path, since_s: float, until_s: float) -> Iterator[Entry]:
    """What a host's recordings hold of a time, whoever recorded it; what can't be read is left out."""
    for path in [path for recording in recordings(folder) for path in recording.files]:
        try:
            if path.stat().st_mtime >= since_s:
                yield from (entry for entry in entries([path]) if since_s <= entry.at_s <= until_s)
        except (UsageError, OSError):
            continue


def span(paths: Sequence[Path]) -> tuple[float, float]:
    """When a recording begins and ends; its end by the last file's time of change, which costs no reading."""
    return heading_of(paths[0]).at_s, min(paths[-1].stat().st_mtime, heading_of(paths[-1]).at_s + FILE_S)


def _words(entry: Entry | None) -> dict[str, object]:
    try:
        words = json_of(entry.payload) if entry is not None and entry.kind == "tape" else None
    except ValueError:
        words = None
    return words if isinstance(words, dict) else {}


def _entries(path: Path) -> Iterator[Entry]:
    for line in _lines(path):
        try:
            yield Entry.of(line)
        except ValueError:
            continue  # damaged: the others tell what they can


def _lines(path: Path) -> Iterator[bytes]:
    unpacker, rest = zlib.decompressobj(GZIP), b""
    try:
        handle = files.opened(path, os.O_RDONLY, follows=True)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    with open(handle, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            while data:
                try:
                    text = unpacker.decompress(data, CHUNK_BYTES * 16)
                except zlib.error:
                    return  # what comes after it can't be read
                data = unpacker.unconsumed_tail
                if unpacker.eof:
                    data, unpacker = unpacker.unused_data, zlib.decompressobj(GZIP)
                *lines, rest = (rest + text).split(b"\n")
                yield from lines
                if len(rest) > LINE_BYTES:
                    return
