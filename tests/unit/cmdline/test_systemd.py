"""Unit files as a lint and a relaunch read them: settings with their places, words, variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline.shell import Variables
from sparktop.cmdline.source import Word
from sparktop.cmdline.systemd import LIVE, Unreadable, draft_words, joined, settings, split


def drafted(text: str) -> list[str]:
    variables = Variables({"A": [Word("x y")], "B": [Word("b")]})
    return [word.text for word in draft_words(Word(text, range(len(text))), variables)]


@over(
    "line, strict, draft",
    [
        ("p g\\ h", None, ["p", "g h"]),
        ('p "say \\"hi\\"" it\\\'s %i', ["p", 'say "hi"', "it's", "\ue001i"], ["p", 'say "hi"', "it's", "%i"]),
        ("p 'a b' \"c d\"e f\\x20g", ["p", "a b", "c de", "f g"], None),
        ("p a\\sb \\u00e9 \\101 \\t", ["p", "a b", "é", "A", "\t"], None),
        ("p $A $B ${A} x${B}y x$B", ["p", f"{LIVE}A", f"{LIVE}B", f"{LIVE}{{A}}", f"x{LIVE}{{B}}y", f"x{LIVE}B"],
         ["p", "x", "y", "b", "x y", "xby", "x$B"]),
        ("p $$A %% \"\" #c", ["p", "$A", "%", "", "#c"], None),
        ("p $C ${C}", ["p", f"{LIVE}C", f"{LIVE}{{C}}"], ["p", "$C", "${C}"]),
        ("p \\; a;b", ["p", ";", "a;b"], None),
        ("p ; q", None, ["p", ";", "q"]),
        ("p 'a", None, ["p", "a"]),
        ("p \\q \\xff \\", None, ["p", "q", "xff", "\\"]),
        ("p \ue000", None, ["p", "$"]),
    ],
)  # fmt: skip
def test_words(line: str, strict: list[str] | None, draft: list[str] | None) -> None:
    if strict is None:
        with pytest.raises(Unreadable):
            split(line)
    else:
        assert split(line) == strict
    assert drafted(line) == (draft or strict)


def test_settings_of_joined_files() -> None:
    text = "# /a.service\n[Unit]\nx = 1\n[Service]\nExecStart=p \\\n# no\n  q\\\n\n"
    text += "# /b.conf\nlost=1\n[Service]\r\n;c\nExecStart=\n"
    read = settings(text, ("/a.service", "/b.conf"))
    assert [(one.file, one.section, one.name.text, one.value.text) for one in read] == [
        ("/a.service", "Unit", "x", "1"),
        ("/a.service", "Service", "ExecStart", "p    q"),
        ("/b.conf", "", "lost", "1"),
        ("/b.conf", "Service", "ExecStart", ""),
    ]  # fmt: skip
    for one in settings(text):
        for word in (one.name, one.value):
            assert not word.at or text[word.at[0]] == word.text[0]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\ue000\ue001")), max_size=5), st.booleans())
def test_what_is_quoted_is_read_back(words: list[str], fills: bool) -> None:
    line = joined(words, fills=fills)
    assert "\n" not in line
    assert split(line, fills=fills) == words
    assert drafted(joined(words)) == words


@given(st.text(max_size=60))
def test_any_line_is_taken_apart_or_refused(text: str) -> None:
    try:
        words = split(text)
        assert split(joined(words)) == words
    except Unreadable:
        pass


@given(st.text(alphabet="ab$A{}%\\'\"; \n\txu0\ue000", max_size=40))
def test_any_line_is_a_draft(line: str) -> None:
    words = drafted(line)
    assert drafted(joined(words)) == words
    for setting in settings(line):
        assert setting.name.text.strip() == setting.name.text
        assert setting.name.text in line
