"""Command templates: parameters, braces, quoting, and what is refused because only a shell could do it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline.engine_command import of_process
from sparktop.model.engine import EngineKind
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.template import fill, parameters, render, split_env, used

VALUES = {
    "port": 8000,
    "share": 0.8,
    "model": "org/name",
    "url": "http://localhost:{port}/v1",
    "json": '{"method": "mtp", "port": {port}}',
    "extra": "--a 1 --b 'two words'",
    "none": "",
    "spaced": "two words",
    "eager": True,
    "sizes": "1 2 4",
    "hostile": "x; rm -rf / $(id)",
    "quote": "it's",
}


@over(
    "template, argv",
    [
        ("vllm serve {model} --port {port}", ["vllm", "serve", "org/name", "--port", "8000"]),
        ("vllm serve {model} \\\n  --port {port}\n", ["vllm", "serve", "org/name", "--port", "8000"]),
        ("\n\nvllm serve {model}\n\n", ["vllm", "serve", "org/name"]),
        ("vllm serve {model} \\  \n  --port {port}", ["vllm", "serve", "org/name", "--port", "8000"]),  # unseen blanks
        ("vllm serve {model} \\", ["vllm", "serve", "org/name"]),
        ("# what it is\nvllm serve {model} # why", ["vllm", "serve", "org/name"]),
        ("vllm serve a#b", ["vllm", "serve", "a#b"]),
        ("v --share={share}", ["v", "--share=0.8"]),
        ("v --eager {eager}", ["v", "--eager", "true"]),
        ("v {url}", ["v", "http://localhost:8000/v1"]),
        ("v --c '{json}'", ["v", "--c", '{"method": "mtp", "port": 8000}']),
        ("v --c {json}", ["v", "--c", '{"method": "mtp", "port": 8000}']),  # a shell would take its quotes away
        ("""v --c '{"a":{"b":1}}'""", ["v", "--c", '{"a":{"b":1}}']),
        ("""v --c '{{"a":{{"b":{port}}}}}'""", ["v", "--c", '{"a":{"b":8000}}']),
        ("""v --c '{"p": {port}}'""", ["v", "--c", '{"p": 8000}']),
        ("v {extra}", ["v", "--a", "1", "--b", "two words"]),
        ("v {none} --x", ["v", "--x"]),
        ("v '{none}' --x", ["v", "", "--x"]),
        ("v --bs {sizes}", ["v", "--bs", "1", "2", "4"]),
        ("v {spaced}", ["v", "two", "words"]),
        ('v "{spaced}"', ["v", "two words"]),
        ("v '{hostile}'", ["v", "x; rm -rf / $(id)"]),
        ('v "{hostile}"', ["v", "x; rm -rf / $(id)"]),
        ("v '{quote}'", ["v", "it's"]),
        ("v 'a;b|c' \"d&e\" 'f$g' \\$h '`i`'", ["v", "a;b|c", "d&e", "f$g", "$h", "`i`"]),
        ("v a\\\nb", ["v", "ab"]),
        ("exec vllm serve {model}", ["vllm", "serve", "org/name"]),
        ("A=1 B='two words' vllm serve x", ["env", "A=1", "B=two words", "vllm", "serve", "x"]),
        ("set -euo pipefail\nexport A=1\nvllm serve x", ["env", "A=1", "vllm", "serve", "x"]),
        ("export A={port} && vllm serve x", ["env", "A=8000", "vllm", "serve", "x"]),
        ("export A=1; exec vllm serve x", ["env", "A=1", "vllm", "serve", "x"]),
    ],
)
def test_becomes_an_argv(template: str, argv: list[str]) -> None:
    words = render(template, VALUES)
    assert list(words) == argv


@over(
    "template, part, line",
    [
        ("vllm serve x && curl y", "`&&`", 1),
        ("vllm serve x &", "`&`", 1),
        ("vllm serve x | tee log", "a pipe", 1),
        ("vllm serve x; echo", "`;`", 1),
        ("vllm serve x > log", "redirection", 1),
        ("vllm serve x 2>&1", "redirection", 1),
        ("vllm serve x < in", "redirection", 1),
        ("(vllm serve x)", "a subshell", 1),
        ("vllm serve x \\\n --key $(cat key)", "`$`", 2),
        ("vllm serve x --key `cat key`", "a command substitution", 1),
        ('vllm serve x --key "`cat key`"', "a command substitution", 1),
        ("vllm serve x --key $KEY", "`$`", 1),
        ('vllm serve x --key "${KEY}"', "`$`", 1),
        ("vllm serve x\n  --port 1", "a second command", 2),
        ("vllm serve x \\\n  # --a \\\n  --port 1", "a second command", 3),
        ("vllm serve x \\\n\n  --port 1", "a second command", 3),
        ("cd /x && vllm serve y", "`&&`", 1),
        ("export A=1 | vllm serve y", "a pipe", 1),
        ("vllm serve 'x", "this quote is never closed", 1),
        ("vllm serve {hostile}", "in the value of `hostile`", 1),
        ("vllm serve {quote}", "never closed", 1),
        ("", "empty", 1),
        ("# nothing", "empty", 1),
    ],
)
def test_what_only_a_shell_could_do_is_refused_at_its_place(template: str, part: str, line: int) -> None:
    with pytest.raises(CannotRender) as caught:
        render(template, VALUES)
    assert part in caught.value.reason
    assert template.count("\n", 0, caught.value.offset) + 1 == line


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    with pytest.raises(CannotRender) as caught:
        render("vllm serve {modle}", VALUES)
    assert caught.value.nearest == "model"
    assert "{modle}" in caught.value.reason


def test_an_unknown_parameter_without_a_near_one_says_where_it_belongs() -> None:
    with pytest.raises(CannotRender) as caught:
        render("vllm serve {xyzzy}", VALUES)
    assert "--set xyzzy=" in caught.value.remedies[0]


@over("values", [{"a": "{a}"}, {"a": "{b}", "b": "{a}"}, {"a": "x{a}"}])
def test_a_parameter_that_stands_for_itself_ends(values: dict[str, str]) -> None:
    with pytest.raises(CannotRender, match="refers to itself"):
        render("v {a}", values)


def test_values_that_multiply_end() -> None:
    values = {f"a{level}": f"{{a{level + 1}}}" * 20 for level in range(8)} | {"a8": "x"}
    with pytest.raises(CannotRender, match="too long"):
        render("v {a0}", values)


def test_parameters_and_those_that_values_name() -> None:
    assert parameters("{url} {port} {url} '{{x}}' {\"a\"}") == ("url", "port")
    assert used("{url}", VALUES) == {"url", "port"}


def test_a_variables_value_is_no_shells() -> None:
    assert fill('{"a": {port}} ${HOME}; {url}', VALUES) == '{"a": 8000} ${HOME}; http://localhost:8000/v1'


@over(
    "command, engine",
    [
        ("vllm serve x", EngineKind.VLLM),
        ("/usr/bin/vllm serve x", EngineKind.VLLM),
        ("env A=1 B=2 vllm serve x", EngineKind.VLLM),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", EngineKind.VLLM),
        ("python -u -m vllm.entrypoints.cli.main serve x", EngineKind.VLLM),
        ("sglang serve --model-path x", EngineKind.SGLANG),
        ("python3.12 -m sglang.launch_server --model-path x", EngineKind.SGLANG),
        ("vllm bench x", None),
        ("python3 server.py", None),
        ("uvicorn server:app", None),
        ("bash -c 'vllm serve x'", None),
    ],
)
def test_which_engines_server_a_command_starts(command: str, engine: EngineKind | None) -> None:
    started = of_process(split_env(shlex.split(command))[0])
    assert (started.kind if started else None) is engine


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="{}\0"), min_size=1), min_size=1, max_size=6)


@given(WORDS)
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    first = ["vllm", *words]
    assert list(render(shlex.join(first), {})) == first


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_a_quoted_value_is_one_word_whatever_is_in_it(value: str) -> None:
    literal = value.replace("{", "(")
    assert render("v --x '{a}' --y", {"a": literal}) == ("v", "--x", literal, "--y")
    assert render('v --x "{a}" --y', {"a": literal}) == ("v", "--x", literal, "--y")


@given(st.text(), st.dictionaries(st.sampled_from("abc"), st.text(max_size=20)))
def test_it_ends_in_words_or_in_a_reason(template: str, values: dict[str, str]) -> None:
    try:
        words, error = render(template, values), None
    except CannotRender as caught:
        words, error = (), caught
    assert words or (error is not None and error.reason and 0 <= error.offset <= len(template))
