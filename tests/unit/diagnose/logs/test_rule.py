"""Log rules as data: each reads its own examples, leaves its quiet lines alone, and none reads another's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.hostile_lines import matching
from tests.table import over

from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.model.finding import Confidence

RULES = shipped()
BY_ID = {rule.id: rule for rule in RULES}
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


def _cases(kind: str) -> list[tuple[LogRule, tuple[str, ...]]]:
    return [(rule, lines) for rule in RULES for lines in getattr(rule, kind)]


def _name(case: tuple[LogRule, tuple[str, ...]]) -> str:
    rule, lines = case
    return f"{rule.id} on {lines}"


def test_ids_are_unique_across_files() -> None:
    ids = [rule.id for rule in RULES]
    assert sorted(ids) == sorted(set(ids))


@over("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_well_formed(rule: LogRule) -> None:
    # The console doesn't try the expressions: compiling them all takes as long as reading them.
    for expression in (rule.regex, rule.unless, rule.near):
        re.compile(expression)
    known = {each.id for each in RULES}
    assert [name for name in rule.follows if not name.startswith("kernel.") and name not in known] == []
    assert rule.confidence is Confidence.CONFIRMED or rule.settles


@over("rule", RULES, ids=lambda rule: rule.id)
def test_the_fixed_texts_hide_no_wording_of_the_expression(rule: LogRule) -> None:
    texts = matching(rule.regex)
    assert texts
    assert [text for text in texts if not any(word in text for word in rule.any)] == []


@over("pattern", kernel.patterns(), ids=lambda pattern: pattern.id)
def test_nor_do_those_of_a_kernel_pattern(pattern: kernel.Pattern) -> None:
    hidden = [text for text in matching(pattern.regex) if not any(word in text for word in pattern.literals)]
    assert hidden == []


@over(
    "line, rule",
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


@over("rule, lines", _cases("examples"), ids=_name)
def test_a_rule_reads_its_examples_and_none_of_another(rule: LogRule, lines: tuple[str, ...]) -> None:
    found = _found(lines, rule)
    assert rule.id in found
    others = {
        other
        for other in found - {rule.id} - set(ALSO_READS.get(rule.id, ()))
        # What only says that something broke is written beside its causes, and what follows from this one names it.
        if not BY_ID[other].consequence and rule.id not in BY_ID[other].follows and other not in rule.follows
    }
    if rule.consequence:  # its example may hold a cause's words, and then the cause is the better answer
        others = set()
    assert not others


@over("rule, lines", _cases("quiet"), ids=_name)
def test_a_rule_leaves_its_quiet_lines_alone(rule: LogRule, lines: tuple[str, ...]) -> None:
    assert rule.id not in _found(lines, rule)


@over("pattern", kernel.patterns(), ids=lambda pattern: pattern.id)
def test_log_rules_leave_the_kernels_lines_to_the_kernel(pattern: kernel.Pattern) -> None:
    for example in pattern.examples:
        reader = LogReader(RULES)
        reader.feed(example)
        assert [finding.rule for finding in reader.findings("test")] == []
