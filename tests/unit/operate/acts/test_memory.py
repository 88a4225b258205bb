"""Memory on its way back, and what is said where it stalls."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import pictures_support as made
from tests.restart_support import spark

from sparktop.model.engine import Containers
from sparktop.model.telemetry import GpuProcess
from sparktop.operate.acts.memory import AwaitMemory, clock, flat_for_s, rise_of
from sparktop.operate.step.wait import Since, WaitVerdict

GIB = made.GIB
ACT = AwaitMemory(target_bytes=108 * GIB)


def since(*points: tuple[float, float], before=None) -> Since:
    """(seconds from now, GiB) with straight lines between, one sample a second."""
    first = int(points[0][0])
    values = [(float(second), int(made.value_at(points, -second) * GIB)) for second in range(first, 1)]
    return Since(
        began_monotonic_s=made.NOW_S + first,
        began_wall_s=made.WALL_S + first,
        before=before,
        available=tuple((made.BOOT_S + at_s, value) for at_s, value in values),
    )


def bare(**more: object):
    """The node after the engine's end: nobody there, and nothing unaccounted for."""
    return made.idle_node(**more)


def judged(seen: Since, node=None, act: AwaitMemory = ACT):
    return act.judge(made.picture(node or bare()), "spark1", seen)


def test_at_its_target_and_stable_it_is_met() -> None:
    found = judged(since((-20, 40.0), (-10, 110.0), (0, 110.0)))
    assert found.verdict is WaitVerdict.MET
    assert found.detail.startswith("110.0 GiB available")
    assert found.ratio == 1.0


def test_at_its_target_for_a_moment_it_is_watched_on() -> None:
    found = judged(since((-20, 40.0), (-3, 110.0), (0, 110.0)))
    assert found.verdict is WaitVerdict.WAITING
    assert "watched for 5 s" in found.detail


def test_target_that_was_reached_and_left_again_is_not_met() -> None:
    found = judged(since((-30, 110.0), (-3, 110.0), (-2, 90.0), (0, 90.0)))
    assert found.verdict is WaitVerdict.WAITING


def test_rising_memory_has_a_forecast() -> None:
    found = judged(since((-10, 78.0), (0, 88.0)))
    assert found.verdict is WaitVerdict.WAITING
    assert [one for one in ("88.0 of 108.0 GiB", "1.0 GiB/s", "0:20") if one not in found.detail] == []
    assert found.ratio == pytest.approx(88 / 108)


def test_minute_without_a_rise_at_first_is_no_failure_where_nobody_holds_it() -> None:
    """Field report 004: more than a minute until it began."""
    found = judged(since((-80, 40.0), (0, 40.0)))
    assert found.verdict is WaitVerdict.WAITING
    assert "flat for 80 s" in found.detail


def test_process_that_holds_it_is_named_and_after_a_minute_it_has_failed() -> None:
    node = made.node(
        engines=(),
        available_gib=60.0,
        processes=(made.process(4711, "python3", state="D"),),
        gpu_processes=(GpuProcess(pid=4711, name="/usr/bin/python3", used_bytes=44 * GIB),),
    )
    early = judged(since((-30, 60.0), (0, 60.0)), node)
    late = judged(since((-61, 60.0), (0, 60.0)), node)
    assert early.verdict is WaitVerdict.WAITING
    assert late.verdict is WaitVerdict.FAILED
    assert "python3 (pid 4711, state D)" in late.detail
    assert "44.0 GiB" in late.detail


def test_container_of_the_holder_is_named() -> None:
    box = made.container("trainer")
    node = made.node(
        engines=(),
        available_gib=60.0,
        containers=Containers(containers=(box,), available=True, detail=""),
        processes=(made.process(4711, "python3", container_id=box.container_id),),
        gpu_processes=(GpuProcess(pid=4711, name="python3", used_bytes=44 * GIB),),
    )
    assert "in container trainer" in judged(since((-61, 60.0), (0, 60.0)), node).detail


def test_other_engine_is_named() -> None:
    node = spark(engines=(made.engine("other", gpu_bytes=40 * GIB),), available_gib=60.0)
    assert "with 40.0 GiB" in judged(since((-61, 60.0), (0, 60.0)), node).detail


def test_zombie_of_the_engine_that_ended_is_named() -> None:
    before = spark()
    node = made.node(
        engines=(),
        available_gib=100.0,
        gpu_processes=(),
        processes=(made.process(77352, "VLLM::EngineCor", state="Z"),),
    )
    node = replace(node, ledger=bare(available_gib=100.0).ledger)
    found = judged(since((-61, 100.0), (0, 100.0), before=before), node)
    assert found.verdict is WaitVerdict.FAILED
    assert "VLLM::EngineCor (pid 77352), a zombie" in found.detail


def test_memory_of_nobody_is_trapped_and_needs_a_reboot() -> None:
    node = made.node(engines=(), available_gib=60.0, gpu_processes=(), processes=(made.process(1, "systemd"),))
    assert node.ledger is not None
    assert (node.ledger.unaccounted_bytes or 0) > 30 * GIB
    assert judged(since((-100, 60.0), (0, 60.0)), node).verdict is WaitVerdict.WAITING
    found = judged(since((-121, 60.0), (0, 60.0)), node)
    assert found.verdict is WaitVerdict.FAILED
    assert "no process" in found.detail
    assert "Reboot spark1" in found.detail


def test_trapped_memory_is_not_blamed_on_a_small_engine_beside_it() -> None:
    node = made.node(engines=(made.engine("small", gpu_bytes=3 * GIB),), available_gib=60.0)
    assert "no process" in judged(since((-121, 60.0), (0, 60.0)), node).detail


def test_page_cache_is_a_rung_with_its_honest_limit() -> None:
    node = bare(available_gib=104.0, memory=made.memory(104.0, cache_gib=40.0, anonymous_bytes=made.gib(8.0)))
    found = judged(since((-121, 104.0), (0, 104.0)), node)
    assert found.verdict is WaitVerdict.FAILED
    assert "Drop caches" in found.detail
    assert "is small" in found.detail


def test_small_gap_with_no_holder_offers_a_lower_target() -> None:
    node = bare(available_gib=105.0, memory=made.memory(105.0, cache_gib=2.0, anonymous_bytes=made.gib(8.0)))
    found = judged(since((-121, 105.0), (0, 105.0)), node)
    assert "target_gib" in found.detail
    assert "reboot" not in found.detail


def test_where_gpu_processes_cannot_be_listed_that_is_said() -> None:
    node = bare(available_gib=60.0)
    assert node.ledger is not None
    node = replace(node, ledger=replace(node.ledger, unaccounted_bytes=None))
    assert "can't be listed" in judged(since((-121, 60.0), (0, 60.0)), node).detail


def test_without_figures_it_waits() -> None:
    assert ACT.judge(made.picture(), "spark1", Since(began_monotonic_s=0.0, began_wall_s=0.0)).verdict is (
        WaitVerdict.WAITING
    )
    assert ACT.judge(made.picture(), "elsewhere", since((0, 1.0))).verdict is WaitVerdict.WAITING


def test_way_back_of_a_run_that_stopped_nothing_waits_for_nothing() -> None:
    node = spark()
    assert node.engines[0].container is not None
    act = replace(ACT, unless_runs=node.engines[0].container.container_id)
    assert judged(since((-5, 20.0), (0, 20.0)), node, act).verdict is WaitVerdict.MET
    assert judged(since((-5, 20.0), (0, 20.0)), bare(), act).verdict is WaitVerdict.WAITING
    named = replace(ACT, unless_runs=node.engines[0].container.name)
    assert judged(since((-5, 20.0), (0, 20.0)), node, named).verdict is WaitVerdict.MET
    assert judged(since((-1, 20.0), (0, 20.0)), node, named).verdict is WaitVerdict.WAITING, (
        "it may have stopped just now"
    )


def test_rise_and_rest_are_measured() -> None:
    assert rise_of(since((-10, 10.0), (0, 20.0)).available) == pytest.approx(GIB, rel=0.01)
    assert rise_of(since((0, 10.0)).available) == 0.0
    assert flat_for_s(since((-60, 10.0), (-30, 40.0), (0, 40.0)).available) == pytest.approx(30, abs=2)
    assert [clock(20), clock(245.4), clock(-3)] == ["0:20", "4:05", "0:00"]
