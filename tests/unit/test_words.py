"""The words and phrases that sparktop gave up, looked for in everything that a person reads."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import re2
from tests.support import parsed

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "sparktop"

GIVEN_UP = {
    r"\blest\b": "so that … doesn't",
    r"\bwhence\b": "from where",
    r"\b(give|gives|given|gave) away\b": "release, cost",
    r"\bas it is by then\b": "at that time",
    r"\b(come|comes|came) about\b": "fail, or say what happened",
    r"\bas good as\b": "almost, or the figure",
    r"\blet in by none\b": "rejected every login method",
    r"\b(told otherwise|unless told)\b": "by default",
    r"\bcomes? of\b": "because of",
    r"\bfor want of\b": "out of, without",
    r"\bmade to\b": "the actor and its verb",
    r"\basked to end\b": "stops NAME (SIGTERM)",
    r"\bmend(s|ed|ing)?\b": "fix, repair, correct",
    r"\bwhat is (done|lost)\b": "what happened, by name",
    r"\bwhat runs is\b": "the requests, the engine",
    r"\b(brought|brings?|bringing) (it )?back\b": "restart, restore",
    r"\bTrusted, it\b": "If trusted, …",
    r"\b(led|leads?|leading) (it )?back\b": "roll back, restore",
    r"\bof no kind\b": "no known …",
    r"\bbeside it\b": "next to the, besides the",
    r"\bof it\b": "the noun itself",
    r"\b(stand|stands|stood|standing) still\b": "stall, be stuck, not change",
    r"\b(is|are|was|were|be) told\b": "the actor and its verb",
    r"\bwithout a word\b": "silently",
    r"\bmake room\b": "free memory, free disk space",
    r"\b(get|gets|got) by\b": "work",
    r"\btime-outs?\b": "timeout",
    r"\b(is|are) well\b(?! tested)": "is fine",
    r"\bend (it|what|other|pid|them)\b": "stop, kill",
    r"\bis under way\b": "is in progress",
    r"\bbegun\b": "started",
    r"\b(is|are) wanted\b": "is armed, is requested, is needed",
    r"\bby nobody\b": "the actor, or: no process",
    r"\bhas ended\b": "has exited, has stopped",
    r"\bdoesn't come back\b": "can't be undone",
}
"""Pattern and what to write instead; looked for everywhere."""

_TEXTS = {"title", "detail", "name", "says", "scope", "explanation", "meaning", "distinction", "settles", "idle_why"}
SEEN = frozenset(_TEXTS | {"remedy", "cost", "steps", "instead"})
"""Keys of the rule files whose texts are shown."""

MOST_WORDS = 30

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MARKUP = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@cache
def _rule_texts() -> tuple[tuple[str, str, str], ...]:
    """(place, key, text) of every text of a rule file that is shown."""
    paths = sorted(
        path for room in ("bringup", "diagnose", "knowledge", "operate") for path in (SOURCES / room).rglob("*.toml")
    )
    return tuple(text for path in paths for text in _shown(tomllib.loads(path.read_text("utf-8")), path.name, ""))


def _shown(value: Any, place: str, key: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        place = f"{place} {value['id']}" if "id" in value else place
        for name, inner in value.items():
            yield from _shown(inner, place, "explanation" if key in ("if", "else") else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _shown(inner, place, key)
    elif isinstance(value, str) and key in SEEN:
        yield place, key, value


def _other_texts() -> Iterator[tuple[str, str]]:
    """(place, text) of every string literal of the code and every paragraph of the documents."""
    for path in sorted(SOURCES.rglob("*.py")):
        for line, text in literals(path.read_text("utf-8")):
            yield f"{path.relative_to(SOURCES)}:{line}", text
    yield from _documents()


def literals(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string literal; an f-string is one text, its expressions "…"."""
    skipped: set[int] = set()
    for node in ast.walk(parsed(source)):  # breadth first: a parent is met before what it holds
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # a docstring
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            skipped.update(id(argument) for argument in node.args)
        elif isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            skipped.update(id(part) for part in node.values)
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def _documents() -> Iterator[tuple[str, str]]:
    """(place, paragraph) of the documents, without code."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for paragraph in _MARKUP.sub("…", path.read_text("utf-8")).split("\n\n"):
            yield path.name, paragraph


def test_a_phrase_that_was_given_up_is_nowhere() -> None:
    likely = re2.compile("(?i)" + "|".join(pattern.partition("(?!")[0] for pattern in GIVEN_UP))  # all in one pass
    texts = [*((place, text) for place, _, text in _rule_texts()), *_other_texts()]
    found = [
        f"{place}: {text!r}: write: {better}"
        for place, text in texts
        if likely.search(text.encode("utf-8", "replace"))
        for pattern, better in GIVEN_UP.items()
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert found == []


def test_an_explanation_has_no_long_sentence() -> None:
    long = [
        f"{place}: {sentence}"
        for place, key, text in _rule_texts()
        if key in ("explanation", "meaning")
        for sentence in _SENTENCE_END.split(text)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert long == []


def test_literals_leaves_out_docstrings_and_regular_expressions() -> None:
    source = '"""lest"""\nx = re.compile("lest")\nf(f"lest {x}", "whence")\ny = 1\n"""whence"""\n'
    assert sorted(literals(source)) == [(3, "lest …"), (3, "whence")]
