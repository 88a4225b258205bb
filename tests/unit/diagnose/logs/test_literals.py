"""The gate finds exactly what plain substring tests find, whatever the texts and the line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop.diagnose.logs.literals import Gate

ALPHABET = "ab 1\n\u00e9\ud800"
TEXTS = st.lists(st.text(ALPHABET[:-1], min_size=1, max_size=14), max_size=12)


@given(TEXTS, st.lists(st.text(ALPHABET, max_size=60), max_size=6))
def test_it_finds_what_stands_in_a_line_in_the_order_given(literals: list[str], lines: list[str]) -> None:
    gate = Gate(literals)
    for line in lines:
        for text in (line, "b".join(literals) + line):
            assert gate.hits(text) == tuple(literal for literal in dict.fromkeys(literals) if literal in text)
