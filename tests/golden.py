"""Golden files under tests/cases: some whole, the others as what they have that the nearest whole one has not.

    like: launch/stop-a-pair        of the same folder
    = 1-17                          these lines of that whole text
    +title: Restart vllm            a line of its own
    ^ 12-15                         these lines of this text, once more

`python -m tests.golden plans/launch/stop-one` prints one in full. SPARKTOP_GOLDENS=write writes what a test compares:
a text that its folder's whole ones shorten by a third or more becomes a difference; what others name stays whole.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from itertools import count, takewhile
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases"
SHORTEST_RUN = 2
"""Lines; fewer stand as they are."""


def compare(path: str, text: str) -> None:
    """Compare with tests/cases/PATH.txt, and show what differs from the whole of it."""
    if os.environ.get("SPARKTOP_GOLDENS") == "write":
        _write(path, text.split("\n"))
    kept = whole(path) if _file(path).exists() else ""
    if text != kept:
        lines = unified_diff(kept.split("\n"), text.split("\n"), f"tests/cases/{path}.txt", "now", lineterm="")
        pytest.fail("\n".join(("SPARKTOP_GOLDENS=write writes it, to be read before it is kept.", *lines)), False)


def whole(path: str) -> str:
    """The text that is kept in tests/cases/PATH.txt."""
    return "\n".join(_whole(path))


# --- from a file to its text


def _file(path: str) -> Path:
    return CASES / f"{path}.txt"


def _read(path: str) -> list[str]:
    return _file(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _whole(path: str) -> list[str]:
    first, *rest = lines = _read(path)
    folder, _, _ = path.partition("/")
    return _applied(rest, _read(f"{folder}/{first[len('like: ') :]}")) if first.startswith("like: ") else lines


def _applied(difference: Sequence[str], base: Sequence[str]) -> list[str]:
    text: list[str] = []
    for line in difference:
        kind, rest = line[:1], line[1:]
        if kind == "+":
            text.append(rest)
            continue
        first, last = map(int, rest.split("-"))
        text += {"=": base, "^": text}[kind][first - 1 : last]
    return text


# --- from a text to its file


def _difference(text: Sequence[str], base: Sequence[str]) -> list[str]:
    """The longest runs of lines that stand in the base or further up, and the lines between them."""
    places: dict[str, list[tuple[str, int]]] = {}
    for index, line in enumerate(base):
        places.setdefault(line, []).append(("=", index))

    def run(at: int, kind: str, start: int) -> int:
        source, limit = (base, len(base)) if kind == "=" else (text, at)
        return sum(
            1
            for _ in takewhile(
                lambda step: at + step < len(text) and start + step < limit and text[at + step] == source[start + step],
                count(),
            )
        )

    lines, at = [], 0
    while at < len(text):
        runs = [(run(at, kind, start), kind == "=", start) for kind, start in places.get(text[at], ())]
        length, is_of_base, start = max(runs, default=(0, False, 0))
        if length < SHORTEST_RUN:
            lines.append(f"+{text[at]}")
            length = 1
        else:
            lines.append(f"{'=' if is_of_base else '^'} {start + 1}-{start + length}")
        for index in range(at, at + length):
            places.setdefault(text[index], []).append(("^", index))
        at += length
    return lines


def _write(path: str, text: Sequence[str]) -> None:
    """What is kept as a difference from this one is written anew with it."""
    folder, _, name = path.partition("/")
    file = _file(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with _alone():
        others = {
            str(one.relative_to(CASES / folder).with_suffix("")): one.open(encoding="utf-8").readline().rstrip("\n")
            for one in (CASES / folder).rglob("*.txt")
            if one != file
        }
        whole_ones = [other for other, first in others.items() if not first.startswith("like: ")]
        named_by = {other: _whole(f"{folder}/{other}") for other, first in others.items() if first == f"like: {name}"}
        _keep(path, text if named_by else _shortest(folder, whole_ones, text))
        for other, its in named_by.items():
            _keep(f"{folder}/{other}", _shortest(folder, [*whole_ones, name], its))


def _shortest(folder: str, whole_ones: Sequence[str], text: Sequence[str]) -> Sequence[str]:
    forms = [[f"like: {one}", *_difference(text, _read(f"{folder}/{one}"))] for one in whole_ones]
    best = min(forms, key=len, default=text)
    return best if len(best) * 3 <= len(text) * 2 else text


def _keep(path: str, lines: Sequence[str]) -> None:
    _file(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def _alone() -> Iterator[None]:
    """Among the processes of a run."""
    folder = os.open(CASES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print(whole(one))
