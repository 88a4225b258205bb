"""An incident is announced once: when it begins, when it gets worse, and when all of it is over."""

from __future__ import annotations

from dataclasses import replace

from sparktop.diagnose.incidents import Change, Incident, Incidents, News
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

LOW = Finding(rule="memory.low", severity=Severity.WARNING, title="Memory is low", nodes=("spark1",))
DOWN = Finding(rule="engine.down", severity=Severity.CRITICAL, title="vllm is down", nodes=("spark1",), subject="vllm",
               caused_by="memory.low")  # fmt: skip
SLOW = replace(DOWN, rule="engine.slow", severity=Severity.WARNING, title="vllm is slow")
NOTE = replace(LOW, rule="host.zombies", severity=Severity.INFO)
OVER = replace(LOW, phase=Phase.RESOLVED)


def told(news: tuple[News, ...]) -> list[tuple[str, str]]:
    return [(str(change), incident.root.title) for change, incident in news]


def test_it_is_announced_once_when_it_begins_worsens_and_is_over() -> None:
    incidents = Incidents(Severity.WARNING)
    assert told(incidents.update([LOW, SLOW, NOTE])) == [("new", "Memory is low")]
    assert told(incidents.update([replace(LOW, brief="1 GiB"), SLOW])) == []
    assert told(incidents.update([LOW, SLOW, DOWN])) == [("worse", "Memory is low")]
    assert told(incidents.update([LOW, DOWN])) == []
    assert told(incidents.update([OVER, DOWN])) == [], "what followed from it still fires"
    (news,) = incidents.update([OVER])
    assert news.change is Change.RESOLVED
    assert news.incident.announced is not None
    assert news.incident.announced.title == "Memory is low", "the name it was announced by"
    assert told(incidents.update([LOW])) == [("new", "Memory is low")]


def test_a_cause_that_is_found_later_is_the_same_incident() -> None:
    incidents = Incidents(Severity.WARNING)
    ((_, first),) = incidents.update([DOWN])
    ((change, second),) = incidents.update([LOW, DOWN])
    assert (change, second.root.title, second.id) == (Change.WORSE, "Memory is low", first.id)
    assert told(incidents.update([])) == [("resolved", "Memory is low")]


def test_what_follows_falls_apart_and_stays_one_incident() -> None:
    incidents = Incidents(Severity.WARNING)
    other = replace(SLOW, subject="sglang")
    assert told(incidents.update([LOW, SLOW, other])) == [("new", "Memory is low")]
    assert told(incidents.update([SLOW, other])) == []
    assert len(incidents.open) == 1
    assert told(incidents.update([other])) == []
    assert told(incidents.update([LOW, other])) == [("worse", "Memory is low")], "its cause is there again"
    assert len(told(incidents.update([]))) == 1


def test_a_new_one_waits_for_its_cause_and_a_short_critical_one_is_announced_all_the_same() -> None:
    incidents = Incidents(Severity.WARNING, gather_s=10)
    assert incidents.update([DOWN], now_s=0) == ()
    assert incidents.open == ()
    assert told(incidents.update([LOW, DOWN], now_s=10)) == [("new", "Memory is low")]
    short = Incidents(Severity.WARNING, gather_s=10)
    short.update([LOW], now_s=0)
    assert short.update([DOWN], now_s=1) == ()
    assert told(short.update([], now_s=2)) == [("new", "vllm is down"), ("resolved", "vllm is down")]
    short.update([LOW], now_s=3)
    assert short.update([], now_s=4) == (), "a warning that comes and goes"


def test_one_on_more_or_fewer_nodes_is_no_other() -> None:
    incidents = Incidents(Severity.WARNING)
    incidents.update([LOW])
    assert incidents.update([replace(LOW, nodes=("spark1", "spark2"))]) == ()
    assert told(incidents.update([replace(LOW, nodes=("spark3",))]))[0] == ("new", "Memory is low")


def test_what_an_earlier_process_announced_is_not_announced_twice_and_ends_once_its_nodes_are_settled() -> None:
    carried = Incident(id="a", root=LOW, keys=frozenset({LOW.key, DOWN.key}), severity=Severity.CRITICAL, announced=LOW)
    for first in ([], [LOW, DOWN], [DOWN]):  # rules need their time again, each its own
        incidents = Incidents(Severity.WARNING, carried=[carried])
        assert incidents.update(first, unsettled={"spark1"}) == ()
        assert incidents.update([LOW, DOWN], unsettled={"spark1"}) == ()
        assert incidents.update([LOW, DOWN]) == ()
        assert told(incidents.update([])) == [("resolved", "Memory is low")]
    incidents = Incidents(Severity.WARNING, carried=[carried])
    assert incidents.update([], unsettled={"spark1"}) == ()
    ((change, incident),) = incidents.update([])
    assert (change, incident.id) == (Change.RESOLVED, "a")
