"""The rules on two nodes in the simulator: each is shown within its time, and gone after its remedy."""

from __future__ import annotations

from functools import cache

import pytest
from tests.scenario_support import Stage
from tests.table import over
from tests.unit.diagnose.rules.pair_support import RULES

from sparktop.model.event import Severity
from sparktop.model.finding import Phase

COURSES = [
    # scenario, rule, its signals begin, shown within, the remedy, gone within
    ("two-node-mismatch", "dgx-os-differs", 0, 5, None, 0),
    ("two-node-mismatch", "driver-differs", 0, 5, None, 0),
    ("two-node-mismatch", "mtu-differs", 0, 5, 80, 20),
    ("two-node-mismatch", "memory-apart", 23, 20, 70, 15),
    ("two-node-link", "hca-unset", 0, 15, 90, 20),
    ("two-node-link", "link-down", 20, 10, 48, 15),
    ("two-node-link", "rank-died", 90, 12, None, 15),
    ("two-node-tcp", "link-slow", 0, 15, None, 0),
    ("two-node-tcp", "no-infiniband-device", 0, 15, 60, 15),
    ("two-node-tcp", "nccl-on-tcp", 0, 20, 60, 25),
    ("two-node-tcp", "ray-monitor", 0, 10, 60, 15),
    ("two-node-tcp", "linger", 0, 10, 60, 15),
    ("two-node-misconfigured", "image-differs", 0, 10, 60, 15),
    ("two-node-misconfigured", "engine-version-differs", 0, 10, 60, 15),
    ("two-node-misconfigured", "environment-differs", 0, 10, 60, 15),
    ("two-node-misconfigured", "bridge-network", 0, 10, 60, 15),
    ("two-node-misconfigured", "interface-wrong", 0, 10, 60, 15),
    ("two-node-misconfigured", "gid-index", 0, 10, 60, 15),
    ("two-node-misconfigured", "hca-wrong", 0, 10, 60, 15),
    ("two-node-misconfigured", "memlock", 0, 15, 60, 15),
]
NOT_PLAYED = {"kernel-differs"}
"""The same function of another fact as the driver's."""


@cache
def played(name: str) -> tuple[Stage, dict[str, list[float]]]:
    """The scenario to its end, and at which seconds each rule's finding fired."""
    stage = Stage(name, rules=RULES)
    firing: dict[str, list[float]] = {}
    for picture in stage.play():
        for one in picture.findings:
            if one.phase is Phase.FIRING:
                firing.setdefault(one.rule.removeprefix("cluster."), []).append(stage.t)
    return stage, firing


@over("name, rule, begins_s, within_s, remedy_s, gone_s", COURSES)
def test_a_course(
    name: str, rule: str, begins_s: float, within_s: float, remedy_s: float | None, gone_s: float
) -> None:
    stage, firing = played(name)
    seconds = firing.get(rule)
    assert seconds, stage.alarms()
    assert begins_s <= seconds[0] <= begins_s + within_s
    if remedy_s is None:
        assert seconds[-1] > stage.scenario.length_s - 3
    else:
        assert remedy_s <= seconds[-1] <= remedy_s + gone_s


def test_every_rule_is_played() -> None:
    assert {rule for _, rule, *_ in COURSES} | NOT_PLAYED == {rule.id.removeprefix("cluster.") for rule in RULES}


@over("name", sorted({name for name, *_ in COURSES}))
def test_nothing_else_is_shown(name: str) -> None:
    stage, firing = played(name)
    assert set(firing) == {rule for scenario, rule, *_ in COURSES if scenario == name}, stage.alarms()
    assert "sparktop.rule-failed" not in firing


@pytest.mark.parametrize(
    "name", ["healthy", "spin-deadlock", "memory-spike", "desktop-freeze", "power-wedge", "link-loss"]
)
@pytest.mark.slow
def test_pairs_and_single_nodes_with_other_troubles_are_not_accused(name: str) -> None:
    stage = Stage(name, rules=RULES).run(180)
    assert [one.finding.rule for one in stage.shown if one.finding.severity is not Severity.INFO] == []


def test_a_rank_that_complains_of_the_other_s_memory_follows_from_the_nodes_memory() -> None:
    """The root is the node with less memory, not the healthy rank that says so."""
    causes = set()
    for picture in Stage("leak-after-kill").play():
        firing = {one.rule for one in picture.findings if one.phase is Phase.FIRING}
        if "cluster.memory-apart" in firing:
            causes |= {one.caused_by for one in picture.findings if one.rule == "sglang.memory-unbalanced"}
    assert causes == {"cluster.memory-apart"}
