"""A window over several recordings shows all of them in order, each moment once, and its holes as holes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparktop.record.reader import span
from sparktop.record.tape import folder_of, recordings
from sparktop.record.window import HOLE, Piece, chosen, holes, played, shared
from sparktop.record.writer import FILE_S, Limits, TapeWriter

A, B, C, D = (Path(name) for name in "abcd")
FAR_S = float("inf")


def whole(file: Path, begin_s: float, end_s: float) -> Piece:
    return Piece(files=(file,), begin_s=begin_s, end_s=end_s)


def shown(pieces: tuple[Piece, ...]) -> list[tuple[str, float, float]]:
    return [(one.files[0].name, one.begin_s, one.end_s) for one in pieces]


@pytest.mark.parametrize(
    ("wholes", "since_s", "expected", "open_parts"),
    [
        ([(A, 0, 100), (B, 200, 300)], 50, [("a", 0, 100), ("b", 200, 300)], [(100, 200)]),
        ([(A, 0, 100), (B, 200, 300)], 150, [("b", 200, 300)], []),
        ([(A, 0, 100), (B, 80, 300)], 0, [("a", 0, 80), ("b", 80, 300)], []),
        ([(A, 0, 250), (B, 200, 300)], 0, [("a", 0, 250), ("b", 250, 300)], []),
        ([(A, 0, 250), (B, 200, 300)], 190, [("a", 0, 200), ("b", 200, 300)], []),
        ([(A, 0, 300), (B, 100, 200)], 0, [("a", 0, 300)], []),
        ([(A, 0, 100), (B, 50, 200), (C, 150, 400), (D, 500, 600)], 0,
         [("a", 0, 50), ("b", 50, 150), ("c", 150, 400), ("d", 500, 600)], [(400, 500)]),
    ],
)  # fmt: skip
def test_each_moment_is_shown_by_one_recording(
    wholes: list[tuple[Path, float, float]],
    since_s: float,
    expected: list[tuple[str, float, float]],
    open_parts: list[tuple[float, float]],
) -> None:
    pieces = chosen([whole(*one) for one in wholes], since_s, FAR_S)
    assert shown(pieces) == expected
    assert list(holes(pieces)) == open_parts


def test_what_was_recorded_twice_is_told_within_the_window() -> None:
    wholes = [whole(A, 0, 250), whole(B, 200, 300)]
    assert shared(wholes, 0, FAR_S) == (200, 250)
    assert shared(wholes, 0, 100) is None
    assert shared([whole(A, 0, 200), whole(B, 200.5, 300)], 0, FAR_S) is None


def test_recordings_are_played_as_one_with_an_entry_for_the_hole(tmp_path: Path) -> None:
    """Two consoles, of which the second runs over the end of the first; and a third an hour later."""
    for begin_s, end_s in ((0, 100), (80, 300), (3900, 4000)):
        tape = TapeWriter("spark1", limits=Limits(), product="0", home=tmp_path, wall=lambda at=begin_s: at, lead_s=0.0)  # type: ignore[misc]
        for at_s in range(begin_s, end_s + 1, 5):
            tape.put(at_s, "probed", json.dumps([begin_s, at_s]).encode(), kept="probed")
        tape.close()
        newest = recordings(folder_of("spark1", tmp_path))[-1].files[-1]
        os.utime(newest, (end_s, end_s))
    wholes = [Piece.whole(one.files) for one in recordings(folder_of("spark1", tmp_path))]
    pieces = chosen(wholes, 0, FAR_S)
    begin_s, entries = played(pieces, 0.0)
    rows = [(entry.kind, json.loads(entry.payload)) for entry in entries]
    assert begin_s == 0
    assert [one[1] for kind, one in rows if kind == "probed"] == [*range(0, 301, 5), *range(3900, 4001, 5)]
    assert [one for kind, one in rows if kind == HOLE] == [{"from_s": 300.0, "until_s": 3900.0}]
    assert {one[0] for kind, one in rows if kind == "probed" and one[1] in (85, 100)} == {80}
    assert [json.loads(entry.payload)[0] for entry in played(pieces, 3950.0)[1]][:1] == [3900], "the rest isn't read"


def test_a_copied_file_is_not_longer_than_a_file_can_be(tmp_path: Path) -> None:
    tape = TapeWriter("spark1", limits=Limits(), product="0", home=tmp_path, lead_s=0.0)
    tape.put(1000.0, "probed", b"{}")
    tape.close()
    assert span(recordings(folder_of("spark1", tmp_path))[-1].files) == (1000.0, 1000.0 + FILE_S)
