"""Every rule that can speak is in the catalogue, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import sparktop
from sparktop.diagnose.catalogue import cards, live_rules
from sparktop.diagnose.exits import endings
from sparktop.diagnose.logs.rules import shipped

SOURCES = sorted((Path(sparktop.__file__).parent / "diagnose").rglob("*.py"))


def test_no_two_rules_have_one_id() -> None:
    assert [name for name, count in Counter(card.id for card in cards()).items() if count > 1] == []


def test_every_rule_that_code_can_say_has_a_card() -> None:
    known = {card.id for card in cards()}
    said = {(found, path.name) for path in SOURCES for found in re.findall(r'rule="([a-z0-9.-]+)"', path.read_text())}
    assert len(said) > 40
    assert {(rule, where) for rule, where in said if rule not in known} == set()
    assert {ending.rule for ending in endings().values()} <= known


def test_what_follows_from_what_names_rules_that_there_are() -> None:
    known = {card.id for card in cards()} | {"kernel.xid"}
    followed = {(cause, rule.card.id) for rule in live_rules() for cause in rule.follows}
    followed |= {(cause, rule.id) for rule in shipped() for cause in rule.follows}
    assert {(cause, rule) for cause, rule in followed if cause not in known} == set()


def test_every_card_says_where_it_holds_and_where_it_comes_from() -> None:
    assert [card.id for card in cards() if not card.title or not card.scope] == []
    umbrellas = {"engine.log", "engine.log-of-a-hang", "kernel.log", "config.running"}
    # What these say has cards of its own.
    assert [card.id for card in cards() if not card.sources and card.id not in umbrellas] == []
