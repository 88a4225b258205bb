"""Cards: every one is read, and the words of a case are filled from its figures."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.table import over

from sparktop.diagnose.catalogue import live_rules
from sparktop.knowledge import card as knowledge
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence

PINNED = {
    "node": "spark1", "mhz": 799.4, "top_mhz": 3003, "span": "12 s", "util_percent": 96.0, "power_w": 19.5,
    "normal_power": "decode takes more", "celsius": None, "confirmed_s": 20.0,
}  # fmt: skip
CARD = """
[slow]
title = "The link is slow"
severity = "warning"
scope = "two nodes"
sources = ["a measurement"]
brief = "as any case says"
[slow.half]
title = "{ports} of {node} at half speed{why}"
severity = "info"
if.why = ": {why}"
else.why = ", nobody knows why"
explanation = "{gbps:.1f} Gb/s."
distinction = ["{extra}", "Not {what}."]
settles = "Measure it."
if.extra = "Also {extra}."
[[slow.half.remedy]]
if = "interfaces"
title = "Reset {node:q}"
steps = ["{resets}", "ping {node:q}", "{extra}"]
action = "relaunch"
change = "wanted"
pid = "holder"
[down]
title = "The link is down"
severity = "critical"
scope = "two nodes"
sources = ["a measurement"]
explanation = "It is down."
[[down.remedy]]
title = "Look"
[down.one]
[down.both]
explanation = "Both are."
"""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "link.toml").write_text(CARD)
    monkeypatch.setattr(knowledge, "_FOLDER", tmp_path)
    monkeypatch.setattr(knowledge, "card", knowledge.card.__wrapped__)
    knowledge._area.cache_clear()
    yield
    knowledge._area.cache_clear()


def test_the_figures_of_a_case_fill_its_words(written: None) -> None:
    figures = {"ports": ("a", "b"), "node": "the {node}", "gbps": 99.96, "what": "heat", "interfaces": True}
    said = knowledge.found("link.slow", "half", {**figures, "resets": ("one", "two"), "why": "dust"}, nodes=("n",))
    assert (said.rule, said.severity, said.confidence) == ("link.slow", Severity.INFO, Confidence.CONFIRMED)
    assert said.title == "a and b of the {node} at half speed: dust"
    assert (said.explanation, said.distinction, said.settles) == ("100.0 Gb/s.", ("Not heat.",), "")
    assert [(one.title, one.steps) for one in said.remedies] == [
        ("Reset 'the {node}'", ("one", "two", "ping 'the {node}'"))
    ]
    assert (said.references, said.brief) == (("a measurement",), "as any case says")


def test_what_is_not_known_has_its_own_words_and_a_suspicion_says_what_settles_it(written: None) -> None:
    figures = {"ports": "a", "node": "n", "gbps": 1.0, "what": "heat", "why": None, "extra": "noise"}
    said = knowledge.found("link.slow", "half", figures, confidence=Confidence.SUSPECTED)
    assert said.title == "a of n at half speed, nobody knows why"
    assert (said.distinction, said.settles, said.remedies) == (("Also noise.", "Not heat."), "Measure it.", ())


def test_a_remedy_is_done_by_its_action_where_its_change_and_its_process_are_known(written: None) -> None:
    figures = {"ports": "a", "node": "n", "gbps": 1.0, "what": "heat", "interfaces": True, "resets": (), "holder": 7}
    change = Change(flags={"--nnodes": "2"})
    ((known,), (by_hand,)) = (
        knowledge.remedies("link.slow", "half", {**figures, "wanted": wanted}) for wanted in (change, None)
    )
    assert (known.action, known.change, known.pid) == ("relaunch", change, 7)
    assert (by_hand.action, by_hand.change, by_hand.title) == (None, None, "Reset n")


def test_a_case_says_what_the_card_says_for_all_of_them(written: None) -> None:
    own = knowledge.card("link.down")
    assert {name: case.explanation for name, case in own.cases.items()} == {"one": "It is down.", "both": "Both are."}
    assert [case.remedies[0][1].title for case in own.cases.values()] == ["Look", "Look"]


def test_a_slot_without_its_figure_is_a_fault_not_a_gap(written: None) -> None:
    with pytest.raises(KeyError):
        knowledge.found("link.slow", "half", {"ports": "a", "node": "n", "what": "heat", "gbps": None})


def test_what_another_machine_left_empty_is_empty(written: None) -> None:
    figures = {"ports": "a", "node": "", "what": "heat", "gbps": 1.0, "why": ""}
    assert knowledge.found("link.slow", "half", figures).title == "a of  at half speed, nobody knows why"


def test_a_known_card_speaks_with_its_own_figures() -> None:
    title = knowledge.found("gpu.power-wedge", "pinned", PINNED).title
    assert title.startswith("spark1's GPU is stuck at 799 MHz")


SHOW_OTHERS = (
    *("engine.log-of-a-hang", "engine.log-of-unequal-memory", "engine.log-of-another-rank"),
    *("config.running", "kernel.oom-kill"),
)
"""Rules whose findings are those of log, lint and kernel rules, with the words of these. Checks that bring-up alone
shows have its words."""


@over("area", {card.id.partition(".")[0]: card.id.partition(".")[0] for card in knowledge.cards()})
def test_every_card_of_a_file_is_found_by_its_heading(area: str) -> None:
    text = Path(knowledge.__file__).with_name(f"{area}.toml").read_text()
    assert {name: tomllib.loads(part)[name] for name, part in knowledge._area(area).items()} == tomllib.loads(text)


@over("card", {card.id: card for card in knowledge.cards()})
def test_every_card_is_whole(card: str) -> None:
    own = knowledge.card(card)
    assert own.cases or card in SHOW_OTHERS or card not in {rule.id for rule in live_rules()}
    assert own.sources
    assert min((case.severity.weight for case in own.cases.values()), default=0) <= own.severity.weight
