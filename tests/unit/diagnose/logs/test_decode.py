"""Bytes of any kind become the same lines however they are cut."""

from __future__ import annotations

import gzip
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.logs.decode import LINE_CHARS, SNIFFED_BYTES, Decoder, Line, binary_kind

TEXT = "INFO 01-02 10:00:00 engine ready\nCapturing: 3/9\rCapturing: 9/9\n日本 ▄▄ ünïcode\n"
LINES = ["INFO 01-02 10:00:00 engine ready", "Capturing: 3/9\rCapturing: 9/9", "日本 ▄▄ ünïcode"]


def _lines(*pieces: bytes) -> list[Line]:
    decoder = Decoder()
    lines = [line for piece in pieces for line in decoder.feed(piece)]
    return lines + decoder.finish()


def _texts(*pieces: bytes) -> list[str]:
    return [text for _, text in _lines(*pieces)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TEXT.encode(), id="utf-8"),
        pytest.param(b"\xef\xbb\xbf" + TEXT.encode(), id="utf-8 with its mark"),
        pytest.param(b"\xff\xfe" + TEXT.encode("utf-16-le"), id="utf-16-le with its mark"),
        pytest.param(b"\xfe\xff" + TEXT.encode("utf-16-be"), id="utf-16-be with its mark"),
        pytest.param(TEXT.encode("utf-16-le"), id="utf-16-le"),
        pytest.param(TEXT.encode("utf-16-be"), id="utf-16-be"),
        pytest.param(gzip.compress(TEXT.encode()), id="gzip"),
        pytest.param(gzip.compress(TEXT[:40].encode()) + gzip.compress(TEXT[40:].encode()), id="gzip, two members"),
        pytest.param(gzip.compress(TEXT.encode("utf-16")), id="gzip of utf-16"),
        pytest.param(b"\0" * 9000 + TEXT.encode(), id="the hole that copytruncate leaves"),
    ],
)
def test_encodings(data: bytes) -> None:
    assert _texts(data) == LINES
    assert _texts(*(data[at : at + 1] for at in range(len(data)))) == LINES


def _framed(*parts: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack(">BxxxI", stream, len(part)) + part for stream, part in parts)


def test_dockers_frames_are_taken_out() -> None:
    data = _framed((1, b"one\n"), (2, b"tw"), (2, b"o\n"), (1, b"x" * 300 + b"\n"), (1, b"last"))
    assert _texts(data) == ["one", "two", "x" * 300, "last"]
    assert _texts(*(data[at : at + 3] for at in range(0, len(data), 3))) == ["one", "two", "x" * 300, "last"]


def test_frames_that_stop_being_frames_are_text_from_there() -> None:
    assert "plain again" in "".join(_texts(_framed((1, b"one\n"), (1, b"two\n")) + b"plain again\n"))


def test_gzip_that_is_cut_or_broken_gives_what_it_can() -> None:
    data = gzip.compress(os.urandom(3000).hex().encode() + b"\n" + TEXT.encode() * 500)
    assert _texts(data[:-200])[0] == _texts(data)[0]
    assert _texts(data[:-100], b"broken" * 30)[0] == _texts(data)[0]


def test_bad_bytes_cost_only_themselves() -> None:
    assert _texts(b"caf\xe9 \xff ok\nnext\n") == ["caf� � ok", "next"]


def test_numbers_count_lines_and_long_lines_come_in_pieces() -> None:
    lines = _lines(b"a\n" + b"x" * (LINE_CHARS * 2 + 5) + b"\nb\n\nc")
    assert [(number, len(text)) for number, text in lines] == [
        (1, 1),
        (2, LINE_CHARS),
        (2, LINE_CHARS),
        (2, 5),
        (3, 1),
        (4, 0),
        (5, 1),
    ]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5), st.sampled_from([b"", TEXT.encode() * 70]))
def test_how_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int], before: bytes) -> None:
    data = before + data
    ends = sorted({min(cut + len(before), len(data)) for cut in cuts} | {len(data)})
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert _lines(*pieces) == _lines(data)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=200))
def test_text_comes_back(text: str) -> None:
    data = (TEXT * 80 + text).encode()
    assert len(data) > SNIFFED_BYTES
    assert "\n".join(_texts(data)).rstrip("\n") == (TEXT * 80 + text).rstrip("\n")


@over(
    "head, kind",
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a PNG image"),
        (b"\x7fELF\x02\x01\x01", "a program"),
        (b"PK\x03\x04\x14\x00", "a ZIP archive"),
        (bytes(range(256)) * 8, "no text"),
        (TEXT.encode(), None),
        (TEXT.encode("utf-16"), None),
        (gzip.compress(TEXT.encode(), mtime=0), None),
        (_framed((1, b"one line of a log\n")), None),
        ("grüße, façade und so weiter".encode("latin-1"), None),
        (b"\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO\n", None),
        (b"\0" * 4096, None),
        (b"", None),
    ],
)
def test_what_is_no_text_is_named(head: bytes, kind: str | None) -> None:
    assert binary_kind(head) == kind
