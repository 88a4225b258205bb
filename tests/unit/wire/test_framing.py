"""Framing: whatever the pieces, the same lines; too long a line costs only itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.telemetry import Garbled
from sparktop.wire.framing import Splitter, sequence_of


@given(st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")), max_size=12), st.data())
def test_lines_do_not_depend_on_how_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter = Splitter()
    found: list[bytes | Garbled] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == [line for line in lines if line]


@given(st.integers(1, 40))
def test_a_line_over_the_limit_is_reported_once_and_the_next_is_whole(piece: int) -> None:
    splitter = Splitter(limit=64)
    stream = b"a" * 1000 + b"\n" + b'{"kind":"bye"}\n'
    found: list[bytes | Garbled] = []
    for start in range(0, len(stream), piece):
        found += splitter.feed(stream[start : start + piece])
    assert len(found) == 2
    assert isinstance(found[0], Garbled)
    assert "1000 bytes" in found[0].reason
    assert found[1] == b'{"kind":"bye"}'


def test_ten_megabytes_without_an_end_are_not_kept() -> None:
    splitter = Splitter()
    for _ in range(160):
        assert splitter.feed(b"x" * 65536) == []
    assert len(splitter._pending) == 0
    (garbled, line) = splitter.feed(b"\nok\n")
    assert isinstance(garbled, Garbled)
    assert line == b"ok"


def test_sequence_numbers_are_found_without_decoding() -> None:
    assert sequence_of(b'{"seq":12,"kind":"sample"}') == 12
    assert sequence_of(b'{"kind":"sample","seq": 7}') == 7
    assert sequence_of(b'{"kind":"hello"}') is None
    assert sequence_of(b'{"seq":x}') is None
    assert sequence_of(b'{"seq":') is None


@given(st.binary(max_size=80))
def test_any_line_is_asked_for_its_number_without_failing(line: bytes) -> None:
    for text in (line, b'{"seq":' + line):
        number = sequence_of(text)
        assert number is None or (number >= 0 and str(number).encode() in text)
