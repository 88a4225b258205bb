"""Expressions over others' text: what they find is what `re` finds, and no text makes them slow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.text import expression as module
from sparktop.text.expression import SHORT_CHARS, BadExpression, Expression, expression

SOURCES = (r"^a+b", r"\bab\b", r"(?P<first>a)|(?P<other>b)$", r"a[^\n]{0,3}?b", r"(?i)AB", r"x*")
# Beside a letter that is not ASCII, `\b` is another place to RE2: the module says so.
PADS = ("", "-" * SHORT_CHARS)


@given(st.sampled_from(SOURCES), st.text("ab -\u2192", max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_short_and_long_texts_are_searched_alike(source: str, text: str, start: int, cut: int) -> None:
    for padded in (text, text + PADS[1], PADS[1] + text):
        for is_tested in (True, False):
            end = max(start, len(padded) - cut)
            found = Expression(source, is_tested=is_tested).search(padded, start, end)
            by_re = re.compile(source).search(padded, start, end)
            assert (found and (found.start, found.end, dict(found.groups))) == (
                by_re and (by_re.start(), by_re.end(), by_re.groupdict())
            )


@over("is_tested", [True, False])
def test_every_match_is_found_where_it_stands(is_tested: bool) -> None:
    text = "é" * SHORT_CHARS + "a1 a2"
    found = [
        (match.start, match.groups["digit"])
        for match in Expression(r"a(?P<digit>\d)", is_tested=is_tested).finditer(text)
    ]
    assert found == [(SHORT_CHARS, "1"), (SHORT_CHARS + 3, "2")]


def test_half_a_character_of_json_is_no_fault() -> None:
    assert expression("b", is_tested=False).search("\ud800b") == module.Match(1, 2, {})


@over("source", ["a(?=b)", r"(a)\1", "(", "[", "a{2000}"])
def test_what_has_no_bound_is_refused_where_it_is_read(source: str) -> None:
    with pytest.raises(BadExpression):
        expression(source, is_tested=False).check()


def test_of_an_expression_that_re2_does_not_know_the_beginning_is_searched() -> None:
    both = expression(r"^(?P<side>a)=(?P=side)")
    assert both.search("a=a" + PADS[1]) is not None
    assert both.search(PADS[1] + "a=a") is None


def test_a_short_text_needs_no_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Expression("a+b", is_tested=True)
    monkeypatch.setattr(one.__class__, "_compiled", lambda _: pytest.fail("RE2 was asked"))
    assert one.search("aab") is not None
