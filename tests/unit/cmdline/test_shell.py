"""Shell text as words with places: quotes, continuations, variables, arrays, here-documents."""

from __future__ import annotations

import shlex
import string
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline import variables
from sparktop.cmdline.shell import (
    MAX_SUBSTITUTED,
    Unclear,
    UnclosedQuote,
    Variables,
    commands,
    filled,
    plain_words,
    simple_commands,
)
from sparktop.cmdline.source import Document, Word


def words_of(text: str) -> list[list[str]]:
    variables = Variables()
    found = []
    for _, words in commands(Document("t", text).whole, variables):
        first, equals, _ = words[0].text.partition("=")
        if equals and first.isidentifier() and len(words) == 1:
            variables[first] = [words[0].part(len(first) + 1)]
        found.append([word.text for word in words])
    return found


@over(
    "text, expected",
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a \\\n  b # not this\nc", [["a", "b"], ["c"]]),
        ("a 'b c' \"d e\"f", [["a", "b c", "d ef"]]),
        ("a && b; c | d &", [["a"], ["b"], ["c"], ["d"]]),
        ("X=1\na $X ${X} \"$X\" '$X' $Y", [["X=1"], ["a", "1", "1", "1", "$X", "$Y"]]),
        ("X='b  c'\na $X \"$X\"", [["X=b  c"], ["a", "b", "c", "b  c"]]),
        ("A=(--x 1\n  # why\n  --y 'b c')\na \"${A[@]}\"", [["a", "--x", "1", "--y", "b c"]]),
        ("A=(1)\nA+=(2)\na ${A[@]}", [["a", "1", "2"]]),
        ("a ${N:-b} ${M-'c'} ${Q:?no}", [["a", "b", "'c'", "${Q:?no}"]]),
        ('a ${N:-"b c"} "${M:-"d e"}"', [["a", "b", "c", "d e"]]),
        ('A=()\na "${A[@]}" ${A[@]} b"${A[@]}" ""', [["a", "b", ""]]),
        ('A=()\na "${A[@]+"${A[@]}"}" ${A[@]+"${A[@]}"} ${A[@]:-b}', [["a", "b"]]),
        ('A=(b "c d")\na "${A[@]+"${A[@]}"}" ${A[@]+"${A[@]}"}', [["a", "b", "c d", "b", "c d"]]),
        ('a "${A[@]+"${A[@]}"}"', [["a", '${A[@]+"${A[@]}"}']]),
        ("cat > f <<EOF\nvllm serve no\nEOF\na", [["cat"], ["a"]]),
        ("cat <<-'X Y' >f\n\tno\n\tX Y\na", [["cat"], ["a"]]),
        ("a 2>&1 >log b", [["a", "b"]]),
        ("a $(b c) `d e`", [["a", "$(b c)", "`d e`"]]),
        ("a $((16*1024)) --x=$(( (7 - 2) / 2 ))k", [["a", "16384", "--x=2k"]]),
        (
            "a $((N*2)) $((1/0)) $((010)) $((1-2)) $((2**9))",
            [["a", "$((N*2))", "$((1/0))", "$((010))", "$((1-2))", "$((2**9))"]],
        ),
        ("a <model> --x <your key>", [["a", "<model>", "--x", "<your key>"]]),
        ("a#b #c", [["a#b"]]),
        ('a "b\\"c" d\\ e', [["a", 'b"c', "d e"]]),
        ("a \\", [["a", "\\"]]),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert words_of(text) == expected


def test_a_compose_command_has_no_operators_and_its_dollars_are_doubled() -> None:
    words = plain_words(Document("t", "a && b\n  $$HOME ${X:-1} #c").whole)
    assert [word.text for word in words] == ["a", "&&", "b", "$HOME", "1", "#c"]


def test_a_word_knows_where_it_stands_through_quotes_and_variables() -> None:
    text = "U='0.9'\nrun --u \"$U\" 'b c'"
    variables = Variables()
    found = []
    for _, words in commands(Document("t", text).whole, variables):
        if words[0].text.startswith("U="):
            variables["U"] = [words[0].part(2)]
        found += words
    by_text = {word.text: word.span for word in found}
    assert text[slice(*by_text["0.9"])] == "0.9"
    assert by_text["0.9"] == (3, 6)
    assert text[slice(*by_text["b c"])] == "b c"


def test_a_computed_figure_stands_where_the_whole_of_it_does() -> None:
    text = "a --x $((16*1024)) b"
    _, (*_, figure, _) = next(commands(Document("t", text).whole, Variables()))
    assert figure.span is not None
    assert text[slice(*figure.span)] == "$((16*1024))"


def test_an_open_quote_is_an_error_where_a_shell_would_say_so() -> None:
    with pytest.raises(UnclosedQuote) as raised:
        list(commands(Document("t", "a\nb 'c").whole, Variables(), strict=True))
    assert raised.value.offset == 4


def test_a_variable_that_doubles_again_and_again_stays_bounded() -> None:
    text = "a=xxxxxxxxxxxxxxxx\n" + "a=$a$a\n" * 40 + "run $a"
    assert len(words_of(text)[-1][1]) <= MAX_SUBSTITUTED


def test_values_keep_their_quotes_and_spaces() -> None:
    assert filled(Document("t", "'a' ${X:-b c}").whole).text == "'a' b c"


PLAIN = st.text(alphabet=string.ascii_letters + string.digits + "-_=./:,{}[]", min_size=1, max_size=8).filter(
    lambda text: not text.endswith("=")
)


@given(st.lists(PLAIN, min_size=1, max_size=6))
def test_what_python_quotes_is_read_back(texts: list[str]) -> None:
    source = Document("t", " ".join(shlex.quote(text + " '\"$") for text in texts)).whole
    ((_, words),) = list(commands(source, Variables()))
    assert [word.text for word in words] == [text + " '\"$" for text in texts]


@over("part", ["$(", "${a:-", "(", "((", "$((", "<(", "a=(", "`", "[[ ", '"$(', "<<E "])
def test_what_is_nested_without_end_is_read_or_refused(part: str) -> None:
    text = part * 3000
    drafted = [words for _, words in commands(Document("t", text).whole, Variables())]
    assert all(drafted), "a command has words"
    words = plain_words(Document("t", text).whole)
    assert sum(len(word.text) for word in words) <= len(text)
    with suppress(Unclear):
        assert all(simple_commands(text))


def test_a_test_that_is_never_closed_ends_with_its_command() -> None:
    text = "if [[ -f /model; then\nvllm serve m"
    assert words_of(text) == [["if", "[[", "-f", "/model"], ["then"], ["vllm", "serve", "m"]]
    with pytest.raises(Unclear):
        list(simple_commands(text))


@given(st.text(alphabet="ab=$(){}[]'\"\\`<>|&;# \n\t1@*:-+?", max_size=80))
def test_any_text_comes_to_an_end(text: str) -> None:
    for _, words in commands(Document("t", text).whole, Variables({"a": [Word("x y")]})):
        for word in words:
            if word.span:
                assert 0 <= word.span[0] < word.span[1] <= len(text)
    for word in plain_words(Document("t", text).whole):
        assert word.span is None or 0 <= word.span[0] < word.span[1] <= len(text)
    assert len(filled(Document("t", text).whole).text) <= len(text)


@pytest.mark.parametrize("form", ["", "-", ":-", "+", ":+", "?", ":?"])
@pytest.mark.parametrize("value", [None, "", "set"])
def test_a_reference_becomes_the_same_in_a_draft_as_in_compose(form: str, value: str | None) -> None:
    template = f"a${{X{form}{'other' if form else ''}}}b"
    by_compose = variables.filled(template, {} if value is None else {"X": value})
    in_a_draft = filled(Document("t", template).whole, Variables({} if value is None else {"X": [Word(value)]})).text
    if value is not None or form in ("-", ":-"):
        assert by_compose in (in_a_draft, None)
        assert (by_compose is None) == (form == ":?" and value == "")
    else:
        assert in_a_draft == template, "a draft leaves what isn't known as it is written"
