"""The gate finds exactly what plain substring tests find, whatever the texts and the line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop.diagnose.logs import literals as gate
from sparktop.diagnose.logs.literals import Gate

ALPHABET = "ab 1\n\u00e9"
TEXTS = st.lists(st.text(ALPHABET, min_size=1, max_size=14), max_size=12)


@given(TEXTS, st.lists(st.text(ALPHABET, max_size=60), max_size=6))
def test_it_finds_what_stands_in_a_line(literals: list[str], lines: list[str]) -> None:
    one = Gate(literals)
    for line in lines:
        for text in (line, line, "b".join(literals) + line):  # known shapes answer as new ones do
            assert set(one.hits(text)) == {literal for literal in literals if literal in text}


def test_a_known_shape_with_other_digits_is_looked_at_again() -> None:
    one = Gate(["exit code 137", "error 12"])
    assert one.hits("it ended with exit code 0") == ()
    assert one.hits("it ended with exit code 137") == ("exit code 137",)
    assert one.hits("it ended with exit code 13") == ()


def test_what_it_remembers_is_bounded() -> None:
    one = Gate(["a fixed text"])
    for number in range(gate.SHAPES + 10):
        one.hits(chr(0x4E00 + number))
    assert len(one._known) <= gate.SHAPES
    one.hits("x" * (gate.SHAPE_CHARS + 1))
    assert all(len(shape) <= gate.SHAPE_CHARS for shape in one._known)
