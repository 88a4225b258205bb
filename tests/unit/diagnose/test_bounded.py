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
SUSPECT_TIMES = 32.0
LONG_CHARS = 1600
LONG_TIMES = 192.0
"""Beside the reference a quadratic search takes the same 5 to 50 times at every length, a cubic one 25 at 100
characters and 750 at 1,600: what is slow on a short text alone isn't cubic, it has met a slow machine."""
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


def _takes(times: float, pattern: re.Pattern[str], text: str, *, searched: bool) -> bool:
    """Whether it takes that often as long as the reference, each time: a process may have held this one up."""
    limit_s = times * _reference_s(len(text))
    return all(_least_s(pattern, text, searched=searched, runs=1) > limit_s for _ in range(6))


def _slow(pattern: re.Pattern[str], words: tuple[str, ...] = (), *, searched: bool = True) -> str | None:
    """A text on which it takes cubic time, if there is one."""
    for chars in (SHORT_CHARS, 2 * SHORT_CHARS, LONG_CHARS):
        is_suspect = False
        for text in hostile(pattern.pattern, chars, words):
            if _takes(SUSPECT_TIMES, pattern, text, searched=searched):
                is_suspect = True
                if _takes(LONG_TIMES, pattern, text, searched=searched):
                    return text
        if not is_suspect:
            return None
    return None


@over("source", [source for _, source, _ in EXPRESSIONS], ids=[name for name, _, _ in EXPRESSIONS])
def test_long_texts_are_searched_in_linear_time(source: str) -> None:
    assert expression(source).is_linear or source.startswith(ANCHORED)


@over("source, words", [row[1:] for row in EXPRESSIONS], ids=[row[0] for row in EXPRESSIONS])
def test_no_short_text_is_slow(source: str, words: tuple[str, ...]) -> None:
    assert _slow(re.compile(source), words) is None


def test_no_other_expression_is_slow() -> None:
    slow: dict[str, str] = {}
    for name, value in _module_values():
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and value.pattern:
            searched = name.startswith(SEARCHED) and not name.startswith(ONLY_MATCHED)
            if text := _slow(value, searched=searched):
                slow[name] = text
    assert slow == {}


@over("cubic", (r"(?i:cuda|cuInit|nvidia)\S*.{0,200}[Ee]rror 999\b", "x*x*y", r"x*x*x*y"))
def test_the_measure_tells_a_cubic_search(cubic: str) -> None:
    assert _slow(re.compile(cubic))


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
