"""Log rules as data: each reads its own examples, leaves its quiet lines alone, and none reads another's."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from tests.hostile_lines import matching

from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import LogRule, shipped

RULES = shipped()
ALSO_READS: dict[str, tuple[str, ...]] = {}
"""Rule: those of its examples that another one may read too, and why, one line each. Keep it short."""


def _found(lines: Iterable[str], rule: LogRule) -> set[str]:
    """The rules that speak on these lines, repeated as often as the rule wants them, at the time it wants them."""
    reader = LogReader(RULES, rule.engine)
    if rule.when == "serving":
        reader.feed("INFO:     Application startup complete.")
        reader.feed("[2026-01-01 00:00:00] The server is fired up and ready to roll!")
    for _ in range(rule.at_least):
        for line in lines:
            reader.feed(line)
    return {finding.rule for finding in reader.findings("test")}


def _cases(kind: str) -> list[object]:
    return [
        pytest.param(rule, lines, id=f"{rule.id}-{number}")
        for rule in RULES
        for number, lines in enumerate(getattr(rule, kind))
    ]


def test_ids_are_unique_across_files() -> None:
    ids = [rule.id for rule in RULES]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_expressions_of_a_rule_are_some(rule: LogRule) -> None:
    # The console doesn't try them: compiling them all takes as long as reading them.
    for expression in (rule.regex, rule.unless, rule.near):
        re.compile(expression)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_fixed_texts_hide_no_wording_of_the_expression(rule: LogRule) -> None:
    texts = matching(rule.regex)
    assert texts
    assert [text for text in texts if not any(word in text for word in rule.any)] == []


@pytest.mark.parametrize("pattern", kernel.patterns(), ids=lambda pattern: pattern.id)
def test_nor_do_those_of_a_kernel_pattern(pattern: kernel.Pattern) -> None:
    hidden = [text for text in matching(pattern.regex) if not any(word in text for word in pattern.literals)]
    assert hidden == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("Unit docker.service could not be found.", "host.unit-missing-target"),
        ("Fatal Python error: Aborted", "host.segfault"),
        ("RuntimeError: cuInit() returned 999", "driver.cuda-unknown-error"),
        ("Worker killed by OOM", "ray.memory-monitor"),
    ],
)
def test_what_fixed_texts_hid_is_read(line: str, rule: str) -> None:
    reader = LogReader(RULES)
    reader.feed(line)
    assert [finding.rule for finding in reader.findings("test")] == [rule]


@pytest.mark.parametrize(("rule", "lines"), _cases("examples"))
def test_a_rule_reads_its_examples(rule: LogRule, lines: tuple[str, ...]) -> None:
    assert rule.id in _found(lines, rule)


@pytest.mark.parametrize(("rule", "lines"), _cases("examples"))
def test_no_rule_reads_the_example_of_another(rule: LogRule, lines: tuple[str, ...]) -> None:
    by_id = {each.id: each for each in RULES}
    others = {
        other
        for other in _found(lines, rule) - {rule.id} - set(ALSO_READS.get(rule.id, ()))
        # What only says that something broke is written beside its causes, and what follows from this one names it.
        if not by_id[other].consequence and rule.id not in by_id[other].follows and other not in rule.follows
    }
    if rule.consequence:  # its example may hold a cause's words, and then the cause is the better answer
        others = set()
    assert not others


@pytest.mark.parametrize(("rule", "lines"), _cases("quiet"))
def test_a_rule_leaves_its_quiet_lines_alone(rule: LogRule, lines: tuple[str, ...]) -> None:
    assert rule.id not in _found(lines, rule)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rules_that_a_rule_names_exist(rule: LogRule) -> None:
    known = {each.id for each in RULES}
    assert [name for name in rule.follows if not name.startswith("kernel.") and name not in known] == []


@pytest.mark.parametrize("pattern", kernel.patterns(), ids=lambda pattern: pattern.id)
def test_log_rules_leave_the_kernels_lines_to_the_kernel(pattern: kernel.Pattern) -> None:
    for example in pattern.examples:
        reader = LogReader(RULES)
        reader.feed(example)
        assert [finding.rule for finding in reader.findings("test")] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_suspicion_says_what_would_settle_it(rule: LogRule) -> None:
    assert rule.confidence.value == "confirmed" or rule.settles
