"""Each rule reads its examples in each form in which lines are copied."""

from __future__ import annotations

from functools import cache

import pytest
from tests.carriers import ANY, KERNEL, PROGRAM, Carrier

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.logs.rule import shipped


@cache
def rules_found(*lines: str) -> frozenset[str]:
    explanation = Explanation("log", shipped())
    explanation.feed("\n".join(lines).encode() + b"\n")
    return frozenset(finding.rule for finding in explanation.finish())


@pytest.mark.parametrize("name", [*ANY, *PROGRAM])
def test_each_log_rule_in_each_carrier(name: str) -> None:
    carried = {**ANY, **PROGRAM}[name]
    missed = []
    for rule in shipped():
        for example in rule.examples[:1]:
            if rule.id in rules_found(*example) and rule.id not in rules_found(*map(carried, example)):
                missed.append((rule.id, example[-1][:60]))
    assert missed == []


@pytest.mark.parametrize("name", [*ANY, *KERNEL])
def test_each_kernel_pattern_in_each_carrier(name: str) -> None:
    carried: Carrier = {**ANY, **KERNEL}[name]
    missed = []
    for pattern in kernel_line.patterns():
        for example in pattern.examples[:1]:
            if not rules_found(example) <= rules_found(carried(example)):
                missed.append((pattern.id, example[:60]))
    assert missed == []
