"""A stretch of time over several recordings of one host: which is shown when, and the holes between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from sparktop.dataclass import dataclass
from sparktop.record.reader import entries, files_from, span
from sparktop.record.tape import Entry

HOLE = "unrecorded"
"""The kind of the entry that stands where nothing was recorded: {"from_s", "until_s"}. On no tape."""
LEAST_S = 2.0
"""Of a piece: less is how far two consoles' clocks and their last flush lie apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is shown of one recording."""

    files: tuple[Path, ...]
    begin_s: float
    end_s: float
    goes_on: bool = False
    """Whether it begins where another, which recorded at the same time, is left."""
    is_left: bool = False
    """Whether it is left at its end for another that recorded at the same time."""

    @staticmethod
    def whole(files: tuple[Path, ...]) -> Piece:
        """All of a recording.

        Raises:
            UsageError: see heading_of.
        """
        begin_s, end_s = span(files)
        return Piece(files=files, begin_s=begin_s, end_s=end_s)


def chosen(wholes: Iterable[Piece], since_s: float, until_s: float) -> tuple[Piece, ...]:
    """What is shown of recordings that overlap a window, in order of time.

    Where two consoles recorded at once it is the one that covers more of the window, or else the longer; the other
    fills what that leaves open.
    """
    shown: list[Piece] = []
    meant = [one for one in wholes if one.end_s >= since_s and one.begin_s <= until_s]

    def weight(one: Piece) -> tuple[float, float]:
        return min(one.end_s, until_s) - max(one.begin_s, since_s), one.end_s - one.begin_s

    for whole in sorted(meant, key=weight, reverse=True):
        open_parts = [whole]
        for other in shown:
            open_parts = [part for one in open_parts for part in _without(one, other)]
        shown += open_parts
    return tuple(sorted(shown, key=lambda one: one.begin_s))


def shared(wholes: Sequence[Piece], since_s: float, until_s: float) -> tuple[float, float] | None:
    """From when until when more than one console recorded within a window; None where none did."""
    both = [
        (max(one.begin_s, other.begin_s, since_s), min(one.end_s, other.end_s, until_s))
        for number, one in enumerate(wholes)
        for other in wholes[number + 1 :]
    ]
    both = [(begin_s, end_s) for begin_s, end_s in both if end_s - begin_s >= LEAST_S]
    return (min(begin_s for begin_s, _ in both), max(end_s for _, end_s in both)) if both else None


def holes(pieces: Sequence[Piece]) -> tuple[tuple[float, float], ...]:
    """(From, until) of the stretches between pieces that no console recorded."""
    pairs = pairwise(pieces)
    return tuple((one.end_s, after.begin_s) for one, after in pairs if not (one.is_left or after.goes_on))


def played(pieces: Sequence[Piece], at_s: float) -> tuple[float, Iterator[Entry]]:
    """What pieces hold, as one tape with an entry for each hole, and when it begins: the file before a moment.

    Raises:
        UsageError: see heading_of.
    """
    first = next((number for number, one in enumerate(pieces) if one.end_s >= at_s), len(pieces) - 1)
    rest = [replace(pieces[first], files=files_from(pieces[first].files, at_s)), *pieces[first + 1 :]]
    return span(rest[0].files)[0], _joined(rest)


def _joined(pieces: Sequence[Piece]) -> Iterator[Entry]:
    newest_s, before = float("-inf"), None
    for piece in pieces:
        from_s = float("-inf") if before is None else piece.begin_s
        is_hole = before is not None and not (before.is_left or piece.goes_on)
        for entry in entries(piece.files if before is None else files_from(piece.files, piece.begin_s)):
            if entry.at_s < from_s:
                continue  # which the one before has shown
            if piece.is_left and entry.at_s >= piece.end_s:
                break
            if is_hole:
                is_hole = False
                words = {"from_s": newest_s, "until_s": max(newest_s, entry.at_s)}
                yield Entry(at_s=newest_s, kind=HOLE, payload=json.dumps(words).encode())
            newest_s = max(entry.at_s, newest_s)
            yield entry
        before = piece


def _without(one: Piece, other: Piece) -> Iterator[Piece]:
    """What of one lies before and after another."""
    if other.begin_s - one.begin_s >= LEAST_S:
        is_left = one.is_left or one.end_s > other.begin_s
        yield replace(one, end_s=min(one.end_s, other.begin_s), is_left=is_left)
    if one.end_s - other.end_s >= LEAST_S:
        goes_on = one.goes_on or one.begin_s < other.end_s
        yield replace(one, begin_s=max(one.begin_s, other.end_s), goes_on=goes_on)
