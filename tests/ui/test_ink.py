"""Lines of toned text: widths in cells, cutting, what is painted again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sparktop.text.lines import Line, fitting, framed, spread, wrapped
from sparktop.ui.widgets.line_widget import changed_span

TEXT = st.text(alphabet=st.sampled_from("ab 漢é[]/▏🙂"), max_size=30)


@given(st.lists(TEXT, max_size=5), st.integers(0, 40))
def test_fit_is_exact(parts: list[str], width: int) -> None:
    assert Line.of(*parts).fit(width).width == width
    assert Line.of(*parts).right(width).width == width
    assert Line.of(*parts).cut(width).width <= width


@given(TEXT, st.integers(4, 40), st.integers(1, 4))
def test_wrapped_lines_fit(text: str, width: int, limit: int) -> None:
    lines = wrapped(text, width, "", limit)
    assert 1 <= len(lines) <= limit
    assert all(line.width <= width for line in lines)


@given(st.integers(1, 60), st.integers(1, 12), TEXT, TEXT)
def test_a_frame_has_its_size(width: int, height: int, title: str, right: str) -> None:
    lines = framed([Line.of("x")], width=width, height=height, title=Line.of(title), right=Line.of(right), tone="frame")
    assert len(lines) <= height
    if width >= 12 and height >= 3:
        assert [line.width for line in lines] == [width] * height


def test_cut_marks_what_is_gone() -> None:
    assert Line.of("abcdef").cut(4).plain == "abc…"
    assert Line.of("abc").cut(3).plain == "abc"


def test_items_that_do_not_fit_are_left_out_whole() -> None:
    line = fitting([Line.of("one"), Line.of("a very long item"), Line.of("two")], 9)
    assert line.plain == "one   two"


def test_the_right_part_goes_first() -> None:
    assert spread(20, Line.of("left"), Line.of("right")).plain == "left           right"
    assert spread(12, Line.of("a long left part"), Line.of("right")).plain == "a long left…"


@given(
    st.lists(st.tuples(TEXT, st.sampled_from(["", "a"])), max_size=5),
    st.lists(st.tuples(TEXT, st.sampled_from(["", "a"])), max_size=5),
)
def test_the_changed_span_covers_every_difference(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> None:
    width = 40
    before, after = Line(tuple(old)).fit(width), Line(tuple(new)).fit(width)
    span = changed_span(Line(tuple(old)), Line(tuple(new)), width)

    def cells(line: Line) -> list[tuple[str, str]]:
        return [(char, tone) for text, tone in line.runs for char in text for _ in range(cell_len(char))]

    differ = [
        column for column, (one, other) in enumerate(zip(cells(before), cells(after), strict=False)) if one != other
    ]
    if span is None:
        assert not differ
    elif differ:
        assert span[0] <= min(differ)
        assert max(differ) < span[0] + span[1]


def test_only_what_differs_is_painted() -> None:
    old = Line.of("name ", ("1.0", "strong"), " unit")
    assert changed_span(old, old, 40) is None
    assert changed_span(old, Line.of("name ", ("2.0", "strong"), " unit"), 40) == (5, 3)
