"""How many lines and modules there may be, room by room: an idea has one shape, and what it replaces goes with it.

A number is raised only in a commit whose message says for what new use, and lowered by the commit that cuts: where a
room has become smaller than its number by more than SLACK, that is a failure too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.table import over

ROOT = Path(__file__).parents[2]
SLACK = 0.02
LINES = {
    "cli": (2504, "cli"),
    "ui": (10097, "ui"),
    "headless": (4579, "headless"),
    "sim": (6889, "sim"),
    "documents": (3772, "documents"),
    "bringup": (2599, "bringup"),
    "observe": (4986, "observe"),
    "operate without launches": (19952, "operate", "-operate/launch", "-operate/relaunch"),
    "launches": (7305, "operate/launch", "operate/relaunch"),
    "diagnose and knowledge": (13559, "diagnose", "knowledge"),
    "launchspec": (1978, "launchspec"),
    "recipe": (7948, "recipe"),
    "checks": (1820, "checks"),
    "engines": (1505, "engines"),
    "transport": (5284, "transport"),
    "record": (507, "record"),
    "probe": (7808, "probe"),
    "cmdline": (3433, "cmdline"),
    "text": (1130, "text"),
    "model, wire and config": (4202, "model", "wire", "config.py"),
    "ground": (
        979,
        *("errors.py", "clock.py", "bounds.py", "sanitise.py", "masking.py", "dataclass.py", "faults.py", "files.py"),
        *("__init__.py", "__main__.py"),
    ),
    "everything": (112836, "."),
}
"""Room: the most lines of Python in these folders and files of src/sparktop, less those with a minus."""
MODULES = 583
"""In src/sparktop, without __init__.py."""
TESTS, CASES = 104705, 17907
"""Lines: of Python in tests; of whatever is in tests/cases."""


def python(place: str) -> Iterator[Path]:
    path = ROOT / "src/sparktop" / place
    return path.rglob("*.py") if path.is_dir() else iter((path,))


def lines(files: Iterator[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def hold(what: str, number: int, most: int) -> None:
    assert number <= most, f"{what} has {number}, {number - most} above its budget: what can go with what is new?"
    assert number >= most * (1 - SLACK), f"{what} has {number}: lower its budget of {most}"


@over("room", LINES)
def test_a_room_keeps_to_its_lines(room: str) -> None:
    most, *places = LINES[room]
    number = sum(-lines(python(place[1:])) if place.startswith("-") else lines(python(place)) for place in places)
    hold(f"{room} (lines)", number, most)


def test_every_file_is_in_a_room() -> None:
    rooms = [places for room, (_, *places) in LINES.items() if room != "everything"]
    seen = {file for places in rooms for place in places for file in python(place.lstrip("-"))}
    assert set(python(".")) - seen == set()


@over(
    "what, number, most",
    [
        ("src/sparktop (modules)", sum(file.name != "__init__.py" for file in python(".")), MODULES),
        ("tests (lines)", lines((ROOT / "tests").rglob("*.py")), TESTS),
        ("tests/cases (lines)", lines(file for file in (ROOT / "tests/cases").rglob("*") if file.is_file()), CASES),
    ],
)
def test_modules_tests_and_cases_keep_to_theirs(what: str, number: int, most: int) -> None:
    hold(what, number, most)
