"""From a log's raw bytes to lines."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.transport.docker.log_frames import (
    DOCKER_RECORD_BYTES,
    MAX_PARTIAL_BYTES,
    Frames,
    NotFrames,
    SplitState,
    flush,
    lines_from_chunk,
)

STAMP = b"2026-05-18T12:00:01.123456789Z "
WALL_S = 1779105601.1234567


def shown(*chunks: bytes, stamped: bool = False) -> list[str]:
    """What a log view shows after these chunks."""
    ring = LineRing()
    state = SplitState()
    for chunk in chunks:
        state, lines = lines_from_chunk(state, chunk, stamped=stamped)
        ring.extend(lines)
    ring.extend(flush(state, stamped=stamped)[1])
    return [line.text for line in ring.slice(0, ring.end)]


@over(
    "text, lines",
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"\r\n", [""]),
        (b"no end", ["no end"]),
        (b"\r 1%\r 2%\r 3%\nnext\n", [" 3%", "next"]),
        (b" 1%\r 2%\r", [" 2%"]),
        (b"bar 1\rbar 2\r\nnext\n", ["bar 2", "next"]),
        (b"before\n\r0/2\r1/2\r2/2\nafter\n", ["before", "2/2", "after"]),
        (b"\x1b[31mred\x1b[0m [/x]\n", ["red [/x]"]),
        (b"\xff\xfe\n", ["��"]),
    ],
)
def test_lines_and_bars(text: bytes, lines: list[str]) -> None:
    assert shown(text) == lines
    assert shown(*(text[at : at + 1] for at in range(len(text)))) == lines


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\x1b[1m", b"\xc3\xa9", b" "]), max_size=40),
    st.lists(st.integers(0, 60), max_size=6),
    st.booleans(),
)
def test_where_a_chunk_is_cut_changes_nothing(parts: list[bytes], cuts: list[int], stamped: bool) -> None:
    text = b"".join(STAMP + part if stamped and part == b"a" else part for part in parts)
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    chunks = [text[low:high] for low, high in itertools.pairwise(edges)]
    if stamped:  # a chunk that begins with a stamp continues a line: only then do cuts carry meaning
        chunks = [text] if any(chunk.startswith(STAMP) for chunk in chunks[1:]) else chunks
    assert shown(*chunks, stamped=stamped) == shown(text, stamped=stamped)


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_become_plain_text(data: bytes, stamped: bool) -> None:
    for text in shown(data, stamped=stamped):
        assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in text)


def test_the_timestamp_is_taken_off_and_kept() -> None:
    _, lines = lines_from_chunk(SplitState(), STAMP + b"hello\n" + b"no stamp\n", stamped=True)
    assert lines[0].text == "hello"
    assert lines[0].wall_s == pytest.approx(WALL_S, abs=1e-6)
    assert lines[1] == LogLine(text="no stamp")


def test_a_bar_keeps_its_lines_timestamp() -> None:
    _, lines = lines_from_chunk(SplitState(), STAMP + b"\r1/3\r2/3", stamped=True)
    assert [line.text for line in lines] == ["1/3"]
    assert lines[0].wall_s == pytest.approx(WALL_S, abs=1e-6)


def test_a_long_lines_records_are_joined_without_their_timestamps() -> None:
    head = b"begin " + b"x" * (DOCKER_RECORD_BYTES - 6)
    (text,) = shown(STAMP + head, STAMP + b" end\n", stamped=True)
    assert text.startswith("begin xxx")
    bars = b"".join(b"\rshard %4d/2000" % number for number in range(2000))
    cut = DOCKER_RECORD_BYTES
    assert shown(STAMP + bars[:cut], STAMP + bars[cut:] + b"\n", stamped=True) == ["shard 1999/2000"]


def test_a_run_s_last_line_without_an_end_is_a_line_of_its_own() -> None:
    """As `printf last; exit`, and a second start, in Docker 20.10."""
    _, lines = lines_from_chunk(SplitState(partial=STAMP + b"last"), STAMP + b"first\n", stamped=True)
    assert [(line.text, line.wall_s) for line in lines] == [("last", lines[1].wall_s), ("first", pytest.approx(WALL_S))]


def test_a_line_without_end_is_bounded() -> None:
    state = SplitState()
    for _ in range(100):
        state, lines = lines_from_chunk(state, b"x" * 50_000, stamped=False)
        assert lines == ()
        assert len(state.partial) <= MAX_PARTIAL_BYTES
    _, lines = lines_from_chunk(state, b"\n", stamped=False)
    assert len(lines[0].text) < 4300
    assert f"[{5_000_000 - MAX_PARTIAL_BYTES} more bytes cut]" in lines[0].text


@given(
    st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=50)), max_size=10),
    st.lists(st.integers(0, 600), max_size=8),
)
def test_frames_come_out_however_they_are_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(struct.pack(">BxxxL", stream, len(payload)) + payload for stream, payload in frames)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    decoder = Frames()
    out = [frame for low, high in itertools.pairwise(edges) for frame in decoder.feed(data[low:high])]
    assert out == frames


@over("data", [b"plain text, no frames", b"\x01\x00\x00\x00\xff\xff\xff\xff"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(NotFrames):
        Frames().feed(data)
