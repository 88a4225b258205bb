"""Scenarios played into the rules: what is said, how soon, and that nothing is said any more once it is put right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenario_support import Stage
from tests.table import over

from sparktop.diagnose.catalogue import live_rules
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Phase
from sparktop.observe.baseline import BaselineFile, Machine
from sparktop.sim.scenario.scenario import load
from sparktop.sim.scenario.script import Run, Scenario
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark.spark import Spark

pytestmark = pytest.mark.slow

GIB = 1024**3


def deadline(stage: Stage, rule: str, within_s: float, onset_s: float, **wanted: object) -> None:
    """The rule's finding was first shown between its onset and so many seconds later."""
    at_s = stage.first(rule, **wanted)
    assert at_s is not None, f"{rule} was never shown so; shown: {stage.alarms()}"
    assert onset_s <= at_s <= onset_s + within_s, f"{rule} after {at_s - onset_s:.1f} s"


@over("begin_s", [0.0, 0.37, 0.81])
def test_a_spin_deadlock_is_suspected_in_30_s_and_confirmed_in_70(begin_s: float) -> None:
    stage = Stage("spin-deadlock", begin_s=begin_s).run(90)
    deadline(stage, "gpu.spin-deadlock", 30, 15.2, confidence=Confidence.SUSPECTED)
    deadline(stage, "gpu.spin-deadlock", 70, 15.2, confidence=Confidence.CONFIRMED)
    (found,) = stage.firing("gpu.spin-deadlock")
    assert found.nodes == ("spark1", "spark2")
    assert found.caused_by is None
    assert stage.firing()[0].rule == "gpu.spin-deadlock", "it stands first, what follows from it below"


def test_without_figures_a_spin_is_suspected_only() -> None:
    """The node of rank 1 alone: no server, no counters, and its traffic has stopped."""
    scenario = load("spin-deadlock")
    alone = Stage(replace(scenario, nodes=scenario.nodes[1:])).run(160)
    # Speech recognition computes on that GPU too: what is busy there takes longer to tell.
    deadline(alone, "gpu.spin-deadlock", 100, 15.2, confidence=Confidence.SUSPECTED)
    assert alone.first("gpu.spin-deadlock", confidence=Confidence.CONFIRMED) is None


RESTING = {"util": 0.0, "power_w": 11.2, "rdma_mb_s": 0.0}


def with_rank1(*, dies_at_s: float | None = None) -> Scenario:
    """The deadlock with only rank 0 spinning: the other rests from 15 s on, or dies."""
    scenario = load("spin-deadlock")
    head, worker = scenario.nodes
    tracks = {
        name: Track.of([(0.0, worker.tracks[name].at(0.0)), (15.0, worker.tracks[name].at(0.0)), (15.0, value)])
        for name, value in RESTING.items()
    }
    containers = worker.containers
    if dies_at_s is not None:
        ends = Run(start_s=-7440.0, end_s=dies_at_s, exit_code=137)
        containers = tuple(replace(box, runs=(ends,)) for box in containers)
    return replace(scenario, nodes=(head, replace(worker, tracks={**worker.tracks, **tracks}, containers=containers)))


@pytest.mark.fast
def test_the_rank_that_spins_is_told_from_the_one_that_is_idle() -> None:
    (found,) = Stage(with_rank1()).run(80).firing("gpu.spin-deadlock")
    assert found.confidence is Confidence.CONFIRMED
    assert "spark1 waits for spark2" in found.title


def test_a_spin_hangs_under_the_death_of_the_other_rank() -> None:
    stage = Stage(with_rank1(dies_at_s=15.0)).run(80)
    (found,) = stage.firing("gpu.spin-deadlock")
    assert found.caused_by == "cluster.rank-died"
    assert any("the rank has exited" in each.text for each in found.evidence)
    rules = [one.rule for one in stage.firing()]
    assert rules.index("cluster.rank-died") < rules.index("gpu.spin-deadlock")


EMPTY_S = 20.0
"""Field report 001, wall 4: 0.4 GiB are left at this second of the scenario."""


@over("begin_s", [0.0, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_the_recorded_fall_is_told_three_seconds_before_nothing_is_left(begin_s: float) -> None:
    stage = Stage("memory-spike", begin_s=begin_s).run(EMPTY_S)
    deadline(stage, "memory.falling", EMPTY_S - 3.0 - 12.0, 12.0)
    deadline(stage, "memory.first-request-spike", EMPTY_S - 3.0 - 12.0, 12.0)
    (falling,) = stage.firing("memory.falling")
    assert falling.caused_by == "memory.first-request-spike"
    assert "vllm-gptoss takes" in falling.explanation, "what grows is named"


@pytest.mark.fast
def test_the_starved_host_is_named_with_its_trajectory_and_comes_back_silent() -> None:
    stage = Stage("memory-spike").run(60)
    (starved,) = stage.firing("memory.starved")
    assert starved.confidence is Confidence.CONFIRMED
    assert any("0.4" in each.text for each in starved.evidence)
    stage.run()
    critical = [
        one.rule for one in stage.firing() if one.rule.startswith("memory.") and one.severity is Severity.CRITICAL
    ]
    assert not critical


def test_a_starved_host_without_a_trajectory_is_suspected() -> None:
    stage = Stage("link-loss").run(66)
    (starved,) = stage.firing("memory.starved")
    assert starved.confidence is Confidence.SUSPECTED
    assert not stage.run(80).firing("memory.starved")


@pytest.mark.fast
def test_the_ladder_after_a_kill_from_rising_to_nobody_s() -> None:
    stage = Stage("leak-after-kill", baselines=after_boot("leak-after-kill", 108.0))
    stage.run(18.5)
    (rising,) = stage.firing("memory.held-after-exit")
    assert (rising.severity, rising.nodes) == (Severity.INFO, ("spark2",))
    assert "being freed" in rising.title
    stage.run(49)
    (trapped,) = [one for one in stage.firing("memory.held-after-exit") if one.nodes == ("spark2",)]
    assert (trapped.severity, trapped.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert any(remedy.action == "reboot" for remedy in trapped.remedies)
    assert not [one for one in stage.shown if one.finding.nodes == ("spark1",) and one.finding.rule == trapped.rule
                and one.finding.severity is not Severity.INFO], "the healthy node's memory came back"  # fmt: skip
    stage.run(stage.scenario.length_s + 12)  # the remedy: both have booted anew
    assert not stage.firing("memory.held-after-exit")
    assert not stage.firing("memory.falling")


def after_boot(name: str, available_gib: float) -> BaselineFile:
    """What these machines had after their boot, learned on an earlier day of this boot."""
    kept = BaselineFile()
    scenario = load(name)
    for script in scenario.nodes:
        spark = Spark(scenario, script, showing=0, began_wall_s=0.0)
        key = f"{spark.machine_digest}/{script.machine.hostname}"
        normal = Machine(boot_id=spark.boot_id, available_bytes=int(available_gib * GIB), available_wall_s=1.0)
        kept.put(key, normal, 0.0)
    return kept


@over("begin_s, confidence", [(0.0, Confidence.CONFIRMED), (22.0, Confidence.SUSPECTED)], ids=["saw it", "came later"])
def test_without_a_known_normal_the_leak_is_sure_to_whoever_saw_it(begin_s: float, confidence: Confidence) -> None:
    stage = Stage("leak-after-kill", begin_s=begin_s).run(49)
    (trapped,) = [one for one in stage.firing("memory.held-after-exit") if one.nodes == ("spark2",)]
    assert trapped.confidence is confidence
    assert bool(trapped.settles) is (confidence is Confidence.SUSPECTED)


@over("begin_s", [0.0, 0.5])
def test_a_wedged_power_controller_is_told_until_the_power_cycle(begin_s: float) -> None:
    stage = Stage("power-wedge", begin_s=begin_s).run(60)
    deadline(stage, "gpu.power-wedge", 30, 14.0, confidence=Confidence.CONFIRMED)
    assert not stage.firing("gpu.spin-deadlock")
    stage.run(stage.scenario.length_s + 12)
    assert not stage.firing("gpu.power-wedge")


def test_a_capture_that_stands_is_told_and_the_relaunch_without_graphs_is_quiet() -> None:
    stage = Stage("capture-stuck").run(60)
    assert not stage.alarms(), "half a minute at 0 can be healthy"
    stage.run(410)
    deadline(stage, "gpu.capture-stuck", 80, 20, confidence=Confidence.SUSPECTED)
    deadline(stage, "gpu.capture-stuck", 310, 20, confidence=Confidence.CONFIRMED)
    (found,) = stage.firing("gpu.capture-stuck")
    assert found.nodes == ("spark1", "spark2")
    stage.run()
    assert not [one for one in stage.firing() if one.severity is not Severity.INFO]
    assert stage.first("gpu.spin-deadlock") is None


def test_a_full_kv_cache_is_told_while_requests_wait_for_it() -> None:
    stage = Stage("kv-full").run(100)
    deadline(stage, "engine.kv-cache-full", 40, 20)
    assert not stage.alarms(), "it is a limit, no fault"
    (full,) = stage.firing("engine.kv-cache-full")
    assert [remedy.action for remedy in full.remedies] == ["relaunch", None, None], "what shortens the wait comes first"
    assert "--gpu-memory-utilization by 0.05" in full.remedies[0].title, "its cache is in FP8 already"
    assert stage.first("vllm.kv-cache-full") is None, "the log says it, too"
    stage.run(175)
    assert not stage.firing("engine.kv-cache-full")


def test_heat_is_told_while_it_lasts() -> None:
    stage = Stage("thermal").run(80)
    deadline(stage, "gpu.thermal", 15, 32)
    stage.run()
    assert not stage.firing("gpu.thermal")
    assert stage.first("gpu.power-wedge") is None


def test_a_share_too_large_is_told_as_low_memory_pressure_and_swap() -> None:
    stage = Stage("swap-storm").run(85)
    rules = {one.rule for one in stage.firing()}
    assert {"memory.low", "memory.pressure", "memory.swap-used"} <= rules
    stage.run(169)
    (left,) = [one for one in stage.firing() if one.severity is not Severity.INFO]
    assert left.rule == "engine.down"
    assert "vllm-qwen36 is down" in left.title
    assert "it had 3 requests" in left.title


def test_an_hour_of_a_healthy_day_tells_only_of_two_engines_that_somebody_stopped() -> None:
    stage = Stage("healthy-day", unhurried=2.0).run()
    assert stage.t == stage.scenario.length_s
    assert [one.finding.rule for one in stage.shown if one.finding.severity is not Severity.INFO] == ["engine.down"] * 2
    assert not stage.firing("engine.down"), "both were started again"
    assert not any(one.rule == "sparktop.rule-failed" for one in stage.picture.findings)


@over("name", ["healthy", "link-loss"])
def test_a_healthy_pair_has_none_either(name: str) -> None:
    stage = Stage(name).run(240 if name == "healthy" else 45)
    assert not stage.alarms()


def test_every_rule_of_gpu_and_memory_has_a_scenario_in_which_it_fires() -> None:
    ours = {rule.id for rule in live_rules() if rule.id.startswith(("gpu.", "memory."))}
    seen: set[str] = set()
    for name, until_s in (
        ("spin-deadlock", 70), ("memory-spike", 80), ("leak-after-kill", 45), ("power-wedge", 40), ("thermal", 50),
        ("swap-storm", 70), ("capture-stuck", 330),
    ):  # fmt: skip
        seen |= {one.finding.rule for one in Stage(name).run(until_s).shown if one.finding.phase is Phase.FIRING}
    assert ours <= seen


def test_drivers_that_differ_follow_from_the_update_that_waits_for_its_reboot() -> None:
    stage = Stage("driver-pending").run(30)
    first, second = stage.firing()[:2]
    assert (first.rule, first.caused_by) == ("host.driver-pending", None)
    assert (second.rule, second.caused_by) == ("cluster.driver-differs", "host.driver-pending")


def test_a_rank_whose_other_rank_died_is_not_said_to_be_stopped_from_outside() -> None:
    stage = Stage("two-node-link").run(124)
    (down,) = stage.firing("engine.down")
    assert down.title == "pair-0 is down: pair-1 on spark2 exited first; it had 2 requests"
    assert down.caused_by == "cluster.rank-died"
