"""patterns.toml proves itself: every pattern reads its own examples, and nobody else's."""

from __future__ import annotations

import re

from tests.table import over

from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.kernel.line import Pattern
from sparktop.model.telemetry import LogLine

PATTERNS = kernel.patterns()
EACH = over("pattern", PATTERNS, ids=lambda pattern: pattern.id)


@EACH
def test_reads_its_examples_and_is_the_only_one_to(pattern: Pattern) -> None:
    assert pattern.examples
    for example in pattern.examples:
        body, _ = kernel.split_prefix(example)
        hit = kernel.recognise(body)
        assert hit is not None, example
        assert hit[0].id == pattern.id, example
        event = kernel.read(LogLine(text=example))
        assert event is not None
        assert event.kind == pattern.kind


@EACH
def test_leaves_its_look_alikes_alone(pattern: Pattern) -> None:
    for line in pattern.quiet:
        assert kernel.read(LogLine(text=line)) is None, line


@EACH
def test_is_well_formed(pattern: Pattern) -> None:
    groups = re.compile(pattern.regex).groupindex
    assert set(re.findall(r"\{(\w+)\}", pattern.title + pattern.detail)) <= set(groups)
    assert pattern.literals
    advice = pattern.advice[0]
    assert advice.source
    assert advice.meaning.endswith(".")
    if pattern.severity != "info":
        assert advice.remedy, "a warning says what to do next"


def test_ids_are_unique() -> None:
    ids = [pattern.id for pattern in PATTERNS]
    assert len(ids) == len(set(ids))


def test_bursts_belong_to_a_kind_and_only_make_it_worse() -> None:
    kinds = {pattern.kind for pattern in PATTERNS}
    assert kernel.bursts().keys() <= kinds
    for rows in kernel.bursts().values():
        assert all(row.count > 1 and row.advice.meaning for row in rows)


def test_what_a_line_does_not_say_leaves_no_stray_marks() -> None:
    event = kernel.read(LogLine(text="Port module event[error]: module 1, Cable error, Unsupported cable"))
    assert event is not None
    assert event.headline == "cable fault  port 1: Cable error, Unsupported cable"
