"""Decodes the bytes of any text file into numbered lines; constant memory, never raises on its input.

Accepts pieces of any size: UTF-8 with bad bytes, UTF-16 with or without a byte order mark, gzip, and Docker's
multiplexed stream. Pure.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable

LINE_CHARS = 1 << 16
"""A longer line comes in pieces, all with its number."""
SNIFFED_BYTES = 4096
"""This many bytes decide what the whole file is."""
_PIECE_BYTES = 1 << 20

Line = tuple[int, str]
"""(line number from 1, text without its line end); `\r` within the line is kept."""

_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x7fELF", "a program"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"BZh", "compressed by bzip2"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"LPKSHHRH", "a journal file; `journalctl --file` prints it"),
)
_CONTROLS = frozenset(map(chr, range(32))) - frozenset("\x00\t\n\r\x1b\x07\x08\x0b\x0c")
_STRANGE_SHARE = 0.25


def binary_kind(head: bytes) -> str | None:
    """What kind of binary file it is, by its first bytes; None for readable text."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    decoder = Decoder()
    text = "".join(line for _, line in [*decoder.feed(head[:SNIFFED_BYTES]), *decoder.finish()])
    strange = sum(char in _CONTROLS or char == "\ufffd" for char in text)
    return "no text" if text and strange > len(text) * _STRANGE_SHARE else None


class Decoder:
    """Takes bytes in pieces cut anywhere, gives complete lines."""

    def __init__(self) -> None:
        self._unzip = Unzip()
        self._head: bytes | None = b""
        """The bytes so far, until there are enough to tell the encoding; then None."""
        self._frames: Frames | None = None
        self._text: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._number = 1
        self._open = ""
        """The beginning of the line that isn't complete yet."""

    def feed(self, data: bytes) -> list[Line]:
        """Decode the next bytes; returns the lines that are now complete."""
        return [line for piece in self._unzip.feed(data) for line in self._lines(piece)]

    def finish(self) -> list[Line]:
        """The remaining lines. Don't feed anything afterwards."""
        lines = self._lines(self._unzip.finish())
        if self._head is not None:
            lines += self._begin()
        remaining = self._frames.finish() if self._frames is not None else b""
        lines += self._split(self._text.decode(remaining, final=True))
        return lines + (self._whole([self._open]) if self._open else [])

    def _lines(self, data: bytes) -> list[Line]:
        if self._head is not None:
            self._head += data
            return self._begin() if len(self._head) >= SNIFFED_BYTES else []
        plain = self._frames.feed(data) if self._frames is not None else data
        return self._split(self._text.decode(plain))

    def _begin(self) -> list[Line]:
        """Choose how to decode, by the first bytes, and decode them."""
        head, self._head = self._head or b"", None
        if is_framed(head[:SNIFFED_BYTES]):
            self._frames = Frames()
        else:
            self._text = codecs.getincrementaldecoder(_encoding(head[:SNIFFED_BYTES]))("replace")
        return self._lines(head)

    def _split(self, text: str) -> list[Line]:
        if "\x00" in text:
            text = text.replace("\x00", "")
        if not text:
            return []
        pieces = text.split("\n")
        pieces[0] = self._open + pieces[0]
        self._open = pieces.pop()
        lines = self._whole(pieces)
        while len(self._open) > LINE_CHARS:
            lines.append((self._number, self._open[:LINE_CHARS]))
            self._open = self._open[LINE_CHARS:]
        return lines

    def _whole(self, texts: list[str]) -> list[Line]:
        """The lines with their numbers; a line that is too long comes in pieces."""
        first = self._number
        self._number += len(texts)
        if all(len(text) <= LINE_CHARS for text in texts):
            return list(enumerate(texts, first))
        return [
            (number, text[start : start + LINE_CHARS])
            for number, text in enumerate(texts, first)
            for start in range(0, max(1, len(text)), LINE_CHARS)
        ]


def _encoding(head: bytes) -> str:
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and head.count(0) * 10 >= len(head) - 2:
        return "utf-16"  # a log holds some ASCII; without any, these were just two bad bytes
    pairs = len(head) // 2
    if pairs >= 2:
        even, odd = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
        if odd > pairs * 0.4 and even < pairs * 0.05:
            return "utf-16-le"
        if even > pairs * 0.4 and odd < pairs * 0.05:
            return "utf-16-be"
    return "utf-8"


# --- gzip -------------------------------------------------------------------------------------------------------------

_GZIP = b"\x1f\x8b"


class Unzip:
    """Unpacks gzip, also with several members, and passes anything else on; broken or cut data ends the text."""

    def __init__(self) -> None:
        self._start: bytes | None = b""
        """The first bytes, until there are enough to tell gzip; then None."""
        self._inflate = zlib.decompressobj(31)
        self._is_gzip = self._is_broken = False

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The bytes unpacked, in pieces of at most one megabyte."""
        if self._start is not None:
            data = self._start + data
            if len(data) < len(_GZIP):
                self._start = data
                return
            self._start = None
            self._is_gzip = data.startswith(_GZIP)
        if not self._is_gzip:
            yield data
            return
        while data and not self._is_broken:
            try:
                yield self._inflate.decompress(data, _PIECE_BYTES)
            except zlib.error:
                self._is_broken = True
                return
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data = self._inflate.unused_data.lstrip(b"\x00")
                self._inflate = zlib.decompressobj(31)

    def finish(self) -> bytes:
        """The bytes of a text that was too short to tell."""
        return self._start or b""


# --- Docker's frames --------------------------------------------------------------------------------------------------

_FRAME_BYTES = 1 << 24


def is_framed(head: bytes) -> bool:
    """Whether bytes begin like Docker's multiplexed stream: stream number 0 to 2, three zeros, a length."""
    size = _frame_size(head)
    if size is None:
        return False
    after = head[8 + size : 16 + size]
    return len(after) < 8 or _frame_size(after) is not None


def _frame_size(header: bytes) -> int | None:
    if len(header) < 8 or header[0] > 2 or header[1:4] != b"\0\0\0":
        return None
    size = int.from_bytes(header[4:8], "big")
    return size if 0 < size <= _FRAME_BYTES else None


class Frames:
    """Removes the frame headers of Docker's multiplexed stream; from a broken header on, passes everything through."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._is_broken = False

    def feed(self, data: bytes) -> bytes:
        """The contents of the frames."""
        out, at = [], 0
        while at < len(data):
            if self._is_broken:
                out.append(data[at:])
                break
            if self._left:
                piece = data[at : at + self._left]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            piece = data[at : at + 8 - len(self._header)]
            self._header += piece
            at += len(piece)
            if len(self._header) == 8:
                size = _frame_size(self._header)
                if size is None:
                    self._is_broken = True
                    out.append(self._header)
                else:
                    self._left = size
                self._header = b""
        return b"".join(out)

    def finish(self) -> bytes:
        """The bytes of a header that never became complete."""
        return self._header
