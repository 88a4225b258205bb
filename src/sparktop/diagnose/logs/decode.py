"""Bytes of any kind of text, in pieces of any size, as numbered lines; constant memory, never raises on what it is fed.

UTF-8 with bad bytes, UTF-16 with or without its mark, gzip, and the frames in which Docker multiplexes streams. Pure.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable

LINE_CHARS = 1 << 16
"""A longer line comes in pieces, all with its number."""
SNIFFED_BYTES = 4096
"""So much decides what the whole is."""
_PIECE_BYTES = 1 << 20

Line = tuple[int, str]
"""Its number from 1, and its text without the line's end; `\\r` is still in it."""

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
    """What a file is that is no text, by its first bytes; None for what can be read."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    decoder = Decoder()
    text = "".join(line for _, line in [*decoder.feed(head[:SNIFFED_BYTES]), *decoder.finish()])
    strange = sum(char in _CONTROLS or char == "\ufffd" for char in text)
    return "no text" if text and strange > len(text) * _STRANGE_SHARE else None


class Decoder:
    """Takes bytes in, gives lines out; how the bytes were cut makes no difference."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """What came so far, until it is enough to tell what it is."""
        self._unzip: Unzipped | None = None
        self._frames: Frames | None = None
        self._text: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._number = 1
        self._open = ""
        """The line that isn't over."""

    def feed(self, data: bytes) -> list[Line]:
        """The lines that are complete now."""
        if self._head is None:
            return self._lines(data)
        self._head += data
        if len(self._head) < SNIFFED_BYTES and not self._head.startswith(_GZIP):
            return []
        return self._begin()

    def finish(self) -> list[Line]:
        """The last lines; nothing may be fed afterwards."""
        lines = self._begin() if self._head is not None else []
        rest = b""
        if self._unzip is not None and self._unzip.head is not None:
            lines += self._lines(b"", last=True)
        if self._frames is not None:
            rest = self._frames.finish()
        lines += self._split(self._text.decode(rest, final=True))
        if self._open:
            lines += self._whole([self._open])
        return lines

    def _begin(self) -> list[Line]:
        head, self._head = self._head or b"", None
        if head.startswith(_GZIP):
            self._unzip = Unzipped()
        else:
            self._settle(head)
        return self._lines(head)

    def _settle(self, head: bytes) -> None:
        """Choose how the bytes are read."""
        head = head[:SNIFFED_BYTES]
        if is_framed(head):
            self._frames = Frames()
            return
        self._text = codecs.getincrementaldecoder(_encoding(head))("replace")

    def _lines(self, data: bytes, *, last: bool = False) -> list[Line]:
        lines: list[Line] = []
        for piece in self._unzipped(data, last=last):
            plain = self._frames.feed(piece) if self._frames is not None else piece
            lines += self._split(self._text.decode(plain))
        return lines

    def _unzipped(self, data: bytes, *, last: bool) -> Iterable[bytes]:
        if self._unzip is None:
            yield data
            return
        for piece in self._unzip.feed(data, last=last):
            if self._unzip.head is None:
                yield piece
                continue
            self._unzip.head += piece
            if len(self._unzip.head) >= SNIFFED_BYTES or last:
                head, self._unzip.head = self._unzip.head, None
                self._settle(head)
                yield head

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
        """The lines numbered, those too long in pieces."""
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
        return "utf-16"  # a log has some ASCII in it; otherwise these were but two bad bytes
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


class Unzipped:
    """Unpacks gzip, also of several members; what is broken or missing ends the text."""

    def __init__(self) -> None:
        self.head: bytes | None = b""
        """The first unpacked bytes, until it is known what they are."""
        self._inflate = zlib.decompressobj(31)
        self._is_broken = False

    def feed(self, data: bytes, *, last: bool) -> Iterable[bytes]:
        """Pieces of at most a megabyte each; on the last call at least one."""
        while data and not self._is_broken:
            try:
                piece = self._inflate.decompress(data, _PIECE_BYTES)
            except zlib.error:
                self._is_broken = True
                break
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data = self._inflate.unused_data.lstrip(b"\x00")
                self._inflate = zlib.decompressobj(31)
            if piece:
                yield piece
        if last:
            yield b""


# --- Docker's frames --------------------------------------------------------------------------------------------------

_FRAME_BYTES = 1 << 24


def is_framed(head: bytes) -> bool:
    """Whether bytes begin as Docker's multiplexed stream does: one of three streams, three zeros, a length."""
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
    """Takes the frames' headers out; where one is no header, the rest is taken as it is."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._is_broken = False

    def feed(self, data: bytes) -> bytes:
        """What the frames hold."""
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
        """What is left of a header that never became whole."""
        return self._header
