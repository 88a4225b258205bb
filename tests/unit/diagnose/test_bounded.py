"""No text makes an expression slow: each is tried on lines grown from its own words (tests/hostile_lines).

Long texts go to RE2, which takes linear time by construction; what is held here is that it knows every expression, and
what `re` takes for short ones. Times are compared with an ordinary quadratic search of the same length in the same run.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from functools import cache

import pytest
from tests.hostile_lines import hostile
from tests.table import over

import sparktop
from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.lint import user_rules
from sparktop.diagnose.logs import engine_state
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import shipped
from sparktop.diagnose.outputs import reader as outputs
from sparktop.diagnose.outputs.api_answer import read as read_answer
from sparktop.text.expression import SHORT_CHARS, Expression, expression

ANCHORED = ("^memory: usage ", r"\A(?!(?:auto|float16|")
"""What RE2 doesn't know, because it repeats a group or looks ahead: it matches at the beginning of a text alone."""
TIMES = 64.0
"""Cubic ones take a thousand times as long as the reference."""
SWEPT_CHARS = 400
SEARCHED = ("sparktop.diagnose.", "sparktop.documents.", "sparktop.observe.", "sparktop.masking", "sparktop.sanitise")
"""Their expressions may be searched for anywhere in what a Spark sent; others match whole values and own texts."""
ONLY_MATCHED = (
    "sparktop.diagnose.outputs.nvidia_smi.",
    "sparktop.launchspec.read.",
    "sparktop.knowledge.rule_file.",
)


def _expressions() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(name, expression, fixed texts) of everything that goes through `sparktop.text.expression`."""
    for rule in shipped():
        for kind in ("regex", "unless", "near"):
            if source := getattr(rule, kind):
                yield f"{rule.id} {kind}", source, rule.any
    for pattern in kernel.patterns():
        yield pattern.id, pattern.regex, pattern.literals
    for wording in engine_state.wordings():
        yield wording.word, wording.pattern.source, (wording.word,)
    for rule in user_rules.shipped():
        for key in ("model", "unless_model", "purpose"):
            yield f"{rule.id} {key}", getattr(rule, key), ()
        if rule.op == "matches":
            yield f"{rule.id} value", rule.value, ()
    for name, value in _module_values():
        if isinstance(value, Expression):
            yield name, value.source, ()


def _module_values() -> Iterator[tuple[str, object]]:
    """What stands in sparktop's modules, and in the tuples and tables there."""
    for module in pkgutil.walk_packages(sparktop.__path__, "sparktop."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                yield from _within(f"{module.name}.{name}", value)


def _within(name: str, value: object) -> Iterator[tuple[str, object]]:
    yield name, value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, tuple | list | set | frozenset) and not hasattr(value, "_fields"):
        for entry in value:
            yield from _within(name, entry)


EXPRESSIONS = list({source: (name, source, words) for name, source, words in _expressions() if source}.values())


def _least_s(pattern: re.Pattern[str], text: str, *, searched: bool = True, runs: int = 2) -> float:
    least_s = float("inf")
    for _ in range(runs):
        began_s = time.thread_time()
        if searched:
            pattern.search(text)
        else:
            pattern.match(text)
        least_s = min(least_s, time.thread_time() - began_s)
    return least_s


@cache
def _reference_s(length: int) -> float:
    return _least_s(re.compile("a.*b"), "a" * length, runs=20)


def _is_slow(pattern: re.Pattern[str], text: str, *, searched: bool = True) -> bool:
    """Slow whenever it is asked: another process may have held this one up."""
    limit_s = TIMES * _reference_s(len(text))
    return all(_least_s(pattern, text, searched=searched, runs=1) > limit_s for _ in range(6))


@over("source", [source for _, source, _ in EXPRESSIONS], ids=[name for name, _, _ in EXPRESSIONS])
def test_long_texts_are_searched_in_linear_time(source: str) -> None:
    assert expression(source).is_linear or source.startswith(ANCHORED)


@over("source, words", [row[1:] for row in EXPRESSIONS], ids=[row[0] for row in EXPRESSIONS])
def test_no_short_text_is_slow(source: str, words: tuple[str, ...]) -> None:
    pattern = re.compile(source)
    assert [text for text in hostile(source, SHORT_CHARS, words) if _is_slow(pattern, text)] == []


def test_no_other_expression_is_slow() -> None:
    slow: dict[str, str] = {}
    for name, value in _module_values():
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and value.pattern:
            searched = name.startswith(SEARCHED) and not name.startswith(ONLY_MATCHED)
            for text in hostile(value.pattern, SWEPT_CHARS):
                if _is_slow(value, text, searched=searched):
                    slow[name] = text
    assert slow == {}


def test_the_measure_tells_a_cubic_search() -> None:
    cubic = r"(?i:cuda|cuInit|nvidia)\S*.{0,200}[Ee]rror 999\b"
    assert any(_is_slow(re.compile(cubic), text) for text in hostile(cubic, SHORT_CHARS))


class _Counting(Expression):
    """Counts the characters that it is shown."""

    shown = 0

    def finditer(self, text: str, start: int = 0, end: int | None = None):  # type: ignore[no-untyped-def]
        _Counting.shown += (len(text) if end is None else min(end, len(text))) - start
        return super().finditer(text, start, end)


def test_a_rule_is_shown_a_long_line_in_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparktop.diagnose.logs import reader

    monkeypatch.setattr(reader, "expression", _Counting)
    for rule in shipped()[::7]:
        _Counting.shown = 0
        reading = LogReader((rule,))
        reading.feed(f"{rule.any[0]} " * (65536 // len(rule.any[0])))
        reading.findings("test")  # a rule that takes several lines has waited for more
        per_expression = reader.PLACES * reader.SHOWN_CHARS * len(rule.any)
        most = per_expression * 2 + reader.SHOWN_CHARS * reader.NEAR_LINES
        is_asked = not rule.last_words and rule.when != "serving"
        assert is_asked <= _Counting.shown <= most


# Readers of whole texts, twice the length against once


GROWN = {
    "a padded row of nvidia-smi": lambda n: "NVIDIA-SMI\n| 0 NVIDIA GB10 " + " " * n + "| x | " + " " * n,
    "figures of nvidia-smi": lambda n: (
        "NVIDIA-SMI\n| 0  NVIDIA GB10  On | 0 | N/A |\n| N/A 1C P0 1" + "1" * n + " " * n
    ),
    "bars of a capture": lambda n: "Captur 1%|" * (n // 10),
    "empty contents": lambda n: '"chat.completion" ' + '"content": null, "a": 1, ' * (n // 24),
    "brackets": lambda n: '"chat.completion"\n' + "[\n" * (n // 2),
}


@over("grown", GROWN.values(), ids=GROWN)
def test_a_reader_of_outputs_grows_with_the_text(grown: object) -> None:
    assert callable(grown)
    short, long = grown(4_000), grown(16_000)

    def took_s(text: str) -> float:
        began_s = time.thread_time()
        outputs.read(text, "test")
        return time.thread_time() - began_s

    # Slow whenever it is asked, as above.
    assert any(took_s(long) < 10 * took_s(short) + 100 * _reference_s(SHORT_CHARS) for _ in range(6))


def test_a_cut_answer_is_still_read() -> None:
    text = '{"object": "chat.completion", "choices": [{"message": {"content": null, "role": "a", "reasoning": "so'
    assert [finding.rule for finding in read_answer(text, "test") or ()] == ["serving.content-null"]
    assert read_answer(text.replace("null,", "null}, {"), "test") is None
