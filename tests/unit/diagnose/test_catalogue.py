"""Every rule that can speak is in the catalogue, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import sparktop
from sparktop.diagnose.catalogue import cards, live_rules
from sparktop.diagnose.container_exit import endings
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.kernel import xid
from sparktop.diagnose.logs.rule import shipped

SAID = re.compile(r'(?:\brule=|\bfound\(\s*)"([a-z0-9.-]+)"')
SOURCES = sorted((Path(sparktop.__file__).parent / "diagnose").rglob("*.py"))
SAID = re.compile(r'(?:\brule=|\bfound\(\s*)"([a-z0-9.-]+)"')


def test_no_two_rules_have_one_id() -> None:
    assert [name for name, count in Counter(card.id for card in cards()).items() if count > 1] == []


def test_every_rule_that_code_can_say_has_a_card() -> None:
    known = {card.id for card in cards()}
    said = {(found, path.name) for path in SOURCES for found in re.findall(SAID, path.read_text())}
    assert len(said) > 25
    assert {(rule, where) for rule, where in said if rule not in known} == set()
    assert {ending.rule for ending in endings().values()} <= known


def test_what_follows_from_what_names_rules_that_there_are() -> None:
    known = {card.id for card in cards()} | {"kernel.xid"}
    followed = {(cause, rule.id) for rule in live_rules() for cause in rule.follows}
    followed |= {(cause, rule.id) for rule in shipped() for cause in rule.follows}
    of_kernel = [*kernel_line.rules().values(), *(entry.rule for entry in xid.catalogue().values())]
    followed |= {
        (cause, rule.id) for rule in of_kernel for cause in (*rule.follows, rule.live_cause, rule.sign_of) if cause
    }
    followed |= {(pattern.undoes, pattern.id) for pattern in kernel_line.patterns() if pattern.undoes}
    followed |= {(cause, rule) for rule in known for cause in (rule, *kernel_line.explaining(rule))}
    assert {(cause, rule) for cause, rule in followed if cause not in known} == set()


def test_every_card_says_where_it_holds_and_where_it_comes_from() -> None:
    assert [card.id for card in cards() if not card.title or not card.scope] == []
    umbrellas = {
        "engine.log", "engine.log-of-a-hang", "engine.log-of-unequal-memory", "engine.log-of-another-rank",
        "kernel.log", "config.running",
    }  # fmt: skip
    # What these say has cards of its own.
    assert [card.id for card in cards() if not card.sources and card.id not in umbrellas] == []
