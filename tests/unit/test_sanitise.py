"""Nothing a remote machine writes can reach the terminal as control."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop import sanitise


@over(
    "raw, clean",
    [
        (b"plain [/x] [red]text[/]", "plain [/x] [red]text[/]"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]52;c;cm0gLXJm\x07after", "after"),
        (b"\x1b]0;title\x1b\\after", "after"),
        (b"\x1b]52;c;never ends", ""),
        (b"\x1bPq#0;2;0;0;0\x1b\\after", "after"),
        ("\x9b31mC1".encode(), "C1"),
        ("\x9d52;c;x\x9cok".encode(), "ok"),
        (b"tab\there", "tab    here"),
        (b"bell\x07", "bell�"),
        (b"bad \xff\xfe utf", "bad �� utf"),
        ("bidi \u202eevil".encode(), "bidi �evil"),
        ("zero\u200bwidth".encode(), "zero�width"),
        ("caf\u00e9 \u4e2d\u6587 \U0001f600".encode(), "caf\u00e9 \u4e2d\u6587 \U0001f600"),
    ],
)
def test_one_line(raw: bytes, clean: str) -> None:
    assert sanitise.line(raw) == clean


def test_a_long_line_is_cut_and_says_so() -> None:
    text = sanitise.line(b"x" * 10_000_000)
    assert len(text) < sanitise.MAX_LINE_CHARS + 60
    assert text.endswith("more characters cut]")


@given(st.binary(max_size=300) | st.text(max_size=300))
def test_no_control_survives(raw: bytes | str) -> None:
    text = sanitise.line(raw)
    assert all(unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"} for char in text)
    assert all(unicodedata.bidirectional(char) not in {"RLE", "RLO", "LRE", "LRO", "PDF", "RLI"} for char in text)
    assert sanitise.line(text) == text


def test_json_keeps_its_meaning_and_has_no_control_but_the_lines_end() -> None:
    value = {"env": "\x1b]0;t\x07\x9b31m\x7f\u202e\U000e0041 größer \ud800", "n": [1]}
    text = sanitise.json_text(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(text) == value
    assert "größer" in text
    assert all(one == "\n" or (one.isprintable() and one != "\x7f") for one in text)
