"""What a terminal without Unicode shows: ASCII, of the same width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.table import over

from sparktop.text.ascii import ascii_text, wants_ascii


@over(
    "text, plain",
    [
        ("╭─ log ──╮│", "+- log --+|"),
        ("✖ 45 °C ● live …", "x 45 'C * live ."),
        ("\u2800\u2840\u28e4\u28ff", " .:#"),
        ("café", "cafe"),
        ("日本", "????"),
        ("🔎▔▔", "/ --"),
    ],
)
def test_signs_borders_and_graphs(text: str, plain: str) -> None:
    assert ascii_text(text) == plain


@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cc", "Cs", "Mn", "Me", "Cf"])))
def test_it_is_as_wide_as_it_was(text: str) -> None:
    plain = ascii_text(text)
    assert plain.isascii()
    assert len(plain) == sum(cell_len(char) for char in text)


@over(
    "environ, is_ascii",
    [
        ({}, False),
        ({"TERM": "dumb", "LANG": "de_DE.UTF-8"}, True),
        ({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C.UTF-8"}, False),
    ],
)
def test_which_environment_wants_it(environ: dict[str, str], is_ascii: bool) -> None:
    assert wants_ascii(environ) is is_ascii
