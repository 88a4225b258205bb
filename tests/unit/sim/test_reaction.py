"""What simulated Sparks become when something is done to them: sums hold, and ranks wait for one another."""

from __future__ import annotations

import pytest
from tests.scenario_support import Stage
from tests.table import over

from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.sim.reaction import acts
from sparktop.sim.reaction.acts import with_act
from sparktop.sim.reaction.figures import moment
from sparktop.sim.scenario.scenario import load
from sparktop.sim.scenario.script import FaultKind, Repeat, Scenario
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark.probe_lines import kernel_rows


def available(scenario: Scenario, node: str, second: float) -> float:
    now = moment(scenario, node, second)
    return now.spark.memory(now.t).available


def running(scenario: Scenario, node: str, second: float) -> list[str]:
    now = moment(scenario, node, second)
    return [live.script.name for live in now.spark.containers(now.t) if live.running]


def test_a_track_goes_another_way_from_a_second_on() -> None:
    looping = Track.of([(0, 0), (5, 10), (10, 0)]).repeating(10)
    other = looping.then(23, Track.of([(23, 1), (24, 3)]))
    assert [other.at(t) for t in (5, 15, 22.5, 23, 24, 1000)] == [10, 10, 5, 1, 3, 3]
    assert other.integral(23) == pytest.approx(looping.integral(23))
    assert other.integral(25) == pytest.approx(looping.integral(23) + 2 + 3)
    assert other.risen(24) == pytest.approx(looping.risen(23) + 2)
    again = other.then(30, Track.constant(7)).then(23.5, Track.constant(9))
    assert [again.at(t) for t in (23.25, 23.5, 40)] == [1.5, 9, 9], "what was to come later never comes"


CASES = [
    ("healthy", "spark1", "vllm-qwen36"),
    ("healthy", "spark2", "sglang-mistral4"),
    ("memory-spike", "spark1", "vllm-gptoss"),
    ("swap-storm", "spark1", "vllm-qwen36"),
    ("spin-deadlock", "spark1", "minimax-rank0"),
]


@over("name, node, box", CASES)
def test_memory_comes_back_when_an_engine_ends_and_goes_when_it_starts(name: str, node: str, box: str) -> None:
    before = with_act(load(name), node, 19.0, acts.stop_container(name=box, grace_s=5))
    assert running(before, node, 19.1) == [box], "it is asked, and has its grace"
    after = with_act(before, node, 60.0, acts.start_container(name=box))
    assert box not in running(before, node, 26.0)
    assert available(before, node, 40) > 100
    for scenario in (before, after):
        for second in range(19, 300):
            now = moment(scenario, node, second)
            memory = now.spark.memory(now.t)
            held = sum(live.resident_gib - live.shared_gib for live in now.spark.processes(now.t))
            assert held <= memory.anonymous < 13, (second, memory)
            assert 0 < memory.free <= memory.available < 117
            assert now.script.tracks["util"].at(now.t) <= 96
    assert box in running(after, node, 299)
    if name != "spin-deadlock":  # its other rank is gone
        assert any(one.serves_at(290) for one in moment(after, node, 290).script.engines if one.name == box)
        assert available(after, node, 290) == pytest.approx(available(load(name), node, 0), abs=12)


def test_the_past_stays_as_it_was() -> None:
    plain = load("healthy")
    after = with_act(plain, "spark1", 500.0, acts.stop_container(name="vllm-qwen36"))
    for second in range(0, 500, 7):
        ours, theirs = moment(after, "spark1", second), moment(plain, "spark1", second)
        assert ours.spark.memory(second) == theirs.spark.memory(second)
        assert ours.spark.counters["vllm-qwen36"].at(second) == pytest.approx(
            theirs.spark.counters["vllm-qwen36"].at(second)
        )
    assert moment(after, "spark2", 700).spark.memory(700) == moment(plain, "spark2", 700).spark.memory(700)


def test_counters_begin_anew_with_the_engine_and_rise() -> None:
    after = with_act(load("healthy"), "spark1", 500.0, acts.stop_container(name="vllm-qwen36"))
    after = with_act(after, "spark1", 520.0, acts.start_container(name="vllm-qwen36"))
    counters = moment(after, "spark1", 900).spark.counters["vllm-qwen36"]
    told = [counters.at(t)["generation"] for t in range(600, 900, 3)]
    assert told[0] == 0
    assert told == sorted(told)
    assert 15_000 < told[-1] < 30_000


def test_a_scenario_that_starts_over_no_longer_does_and_mends_nothing_by_itself() -> None:
    held = with_act(load("spin-deadlock"), "spark1", 100.0, acts.hold())
    assert held.repeat is Repeat.HOLD
    for second in (200, 300, 1000):
        assert running(held, "spark1", second) == ["minimax-rank0"]
        assert available(held, "spark1", second) == pytest.approx(15.4, abs=0.1)
        assert moment(held, "spark1", second).script.tracks["power_w"].at(second) == pytest.approx(15, abs=0.2)


def test_dropping_the_caches_frees_them_and_makes_no_memory_available() -> None:
    after = with_act(load("healthy"), "spark1", 130.0, acts.drop_caches())
    first, then = (moment(load("healthy"), "spark1", 129).spark.memory(t) for t in (129, 129))
    then = moment(after, "spark1", 131).spark.memory(131)
    assert first.cached > 9
    assert then.cached < 1.5
    assert then.free > first.free + 7
    assert then.available == pytest.approx(first.available, abs=0.1)
    assert after.repeat is Repeat.LOOP, "requests come and go as before"


@pytest.mark.slow
def test_both_ranks_are_needed_before_tokens_flow() -> None:
    stage = Stage("spin-deadlock").run(110)
    stage.do(acts.stop_container(name="minimax-rank0", grace_s=2)).run(113)
    stage.do(acts.stop_container(name="minimax-rank1", grace_s=2), "spark2").run(130)
    stage.do(acts.start_container(name="minimax-rank1"), "spark2").run(250)
    worker = stage.picture.nodes[1]
    assert worker.sample is not None
    assert worker.sample.memory.available_bytes > 100 * 1024**3, "it waits for the head"
    stage.do(acts.start_container(name="minimax-rank0"))
    seen = []
    for picture in stage.play(400):
        (engine,) = picture.nodes[0].engines
        seen.append(engine.state)
    assert seen.index(EngineState.LOADING) < seen.index(EngineState.SERVING)
    assert not [one for one in stage.firing() if one.severity is not Severity.INFO]


@pytest.mark.slow
def test_one_rank_alone_restarted_helps_nobody() -> None:
    stage = Stage("spin-deadlock").run(110)
    stage.do(acts.kill_container(name="minimax-rank0")).run(125)
    stage.do(acts.start_container(name="minimax-rank0")).run(300)
    assert stage.picture.nodes[0].engines[0].state not in (EngineState.READY, EngineState.SERVING)
    assert stage.picture.nodes[1].first_gpu is not None
    assert (stage.picture.nodes[1].first_gpu.utilisation_percent or 0) > 90, "the other rank waits in vain"


def test_what_a_fault_needs_is_needed() -> None:
    """SGLang's capture over two nodes stays at 0 until it is started without graphs."""
    scenario = load("capture-stuck")
    for node, box in (("spark1", "sglang-m27-0"), ("spark2", "sglang-m27-1")):
        scenario = with_act(scenario, node, 200.0, acts.kill_container(name=box))
    again = scenario
    for node, box in (("spark1", "sglang-m27-0"), ("spark2", "sglang-m27-1")):
        again = with_act(again, node, 210.0, acts.start_container(name=box))
    assert moment(again, "spark1", 500).script.tracks["util"].at(500) == 96
    assert moment(again, "spark1", 500).spark.engine_at(30000, 500) is None
    for node, box in (("spark1", "sglang-m27-0"), ("spark2", "sglang-m27-1")):
        old = next(one for one in moment(scenario, node, 210).script.containers if one.name == box)
        scenario = with_act(scenario, node, 210.0, acts.rename_container(name=box, new_name=f"{box}-old"))
        eager = acts.create_container(script=_relaunched(old, "--disable-cuda-graph"), like=f"{box}-old")
        scenario = with_act(scenario, node, 211.0, eager)
        scenario = with_act(scenario, node, 212.0, acts.start_container(name=box))
    now = moment(scenario, "spark1", 500)
    assert now.script.tracks["power_w"].at(500) > 30
    assert {live.script.name: live.running for live in now.spark.containers(500)} == {
        "sglang-m27-0-old": False, "sglang-m27-0": True,
    }  # fmt: skip
    assert len({now.spark.container_id(one.name) for one in now.script.containers}) == 2
    assert next(iter(now.spark.containers(500))).container_id == moment(again, "spark1", 1).spark.container_id(
        "sglang-m27-0"
    )


def _relaunched(old, *flags):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(old, argv=(*old.argv, *flags))


def test_a_leak_stays_until_the_machine_boots_anew() -> None:
    scenario = with_act(load("leak-after-kill"), "spark2", 30.0, acts.hold())
    assert available(scenario, "spark2", 300) == pytest.approx(67.9, abs=0.1)
    scenario = with_act(scenario, "spark2", 100.0, acts.reboot())
    kinds = [
        next((fault.kind for fault in moment(scenario, "spark2", 100 + after).script.faults
              if fault.start_s <= moment(scenario, "spark2", 100 + after).t < fault.end_s), None)
        for after in (1, 3, 6, 12, 20, 30)
    ]  # fmt: skip
    assert kinds == [
        None, FaultKind.REFUSED, FaultKind.NO_ROUTE, FaultKind.NO_ROUTE, FaultKind.REFUSED, None,
    ]  # fmt: skip
    before, after = moment(scenario, "spark2", 99), moment(scenario, "spark2", 160)
    assert before.spark.boot_id != after.spark.boot_id
    assert after.spark.boot_s(after.t) == pytest.approx(50, abs=1)
    assert after.spark.memory(after.t).available > 100
    assert after.spark.figure("leaked_gib", after.t) == 0
    assert running(scenario, "spark2", 160) == []


def test_a_process_that_is_ended_gives_its_memory_back() -> None:
    stage = Stage("orphan").run(60)
    stage.do(acts.signal_process(pid=77352, signal="KILL")).run(90)
    assert not [one for one in stage.firing("memory.held-after-exit") if one.severity is not Severity.INFO]
    assert available(stage.scenario, "spark1", 90) > 105


def test_a_reboot_keeps_what_is_on_the_disk() -> None:
    before = moment(load("healthy"), "spark1", 30)
    after = moment(with_act(load("healthy"), "spark1", 30.0, acts.reboot()), "spark1", 160)
    assert before.script.models
    assert (after.script.models, after.script.images) == (before.script.models, before.script.images)


def test_a_reboot_is_logged_once_with_the_driver_that_it_loads() -> None:
    scenario = with_act(load("driver-pending"), "spark1", 30.0, acts.reboot())
    after = moment(scenario, "spark1", 400)
    lines = [str(row[3]) for row in kernel_rows(after.spark, 0.0, after.t) if "NVRM: loading" in str(row[3])]
    assert [line.partition("aarch64  ")[2].split()[0] for line in lines] == ["580.159"]
    other = moment(scenario, "spark2", 400)
    old_lines = [str(row[3]) for row in kernel_rows(other.spark, -1e6, other.t) if "NVRM: loading" in str(row[3])]
    assert old_lines
    assert all("580.159" in line for line in old_lines)


@over("second", [251.0, 258.0, 300.0])
def test_a_pair_that_is_ended_as_it_starts_leaves_no_gpu_busy(second: float) -> None:
    """A rank whose head is gone spins only where it has met it, and rests when it ends, however little it held."""
    scenario = load("spin-deadlock")
    for name, node in (("minimax-rank0", "spark1"), ("minimax-rank1", "spark2")):
        scenario = with_act(scenario, node, 110.0, acts.kill_container(name=name))
    for name, node in (("minimax-rank1", "spark2"), ("minimax-rank0", "spark1")):
        scenario = with_act(scenario, node, 250.0, acts.start_container(name=name))
    scenario = with_act(scenario, "spark1", second, acts.kill_container(name="minimax-rank0"))
    left = moment(scenario, "spark2", second + 2)
    assert (left.script.tracks["util"].at(left.t) > 90) is (second == 300.0)
    scenario = with_act(scenario, "spark2", second + 3, acts.kill_container(name="minimax-rank1"))
    after = moment(scenario, "spark2", second + 8)
    assert after.script.tracks["util"].at(after.t) == 0
