"""What the memory rules say of pictures: falls, spikes, starved hosts, what an end left behind, and look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.pictures_support import (
    ARGV,
    GIB,
    STARVED,
    WALL_S,
    container,
    engine,
    gib,
    idle_node,
    link,
    memory,
    node,
    only,
    picture,
    process,
    rules_on,
)
from tests.table import over

from sparktop.cmdline.engine_command import with_argv
from sparktop.diagnose.rules.memory import held, low, starvation
from sparktop.model.engine import Engine, EngineKind, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import Baseline, FleetState, Growth, LinkState, NodeView, Reach
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import GpuProcess

falling, first_request_spike = starvation.falling.check, starvation.first_request_spike.check
starved, held_after_exit = starvation.starved.check, held.held_after_exit.check

FALL = [(-900.0, 45.4), (-3.0, 45.4), (-1.0, 43.7), (0.0, 37.8)]
"""Field report 001, wall 4, three seconds into its fall."""
BUSY_SINCE = [(-900.0, 0.0), (-3.0, 0.0), (-2.5, 96.0), (0.0, 96.0)]


def loading(state: EngineState = EngineState.LOADING, share: str = "0.70", **more: Any) -> Engine:
    argv = ("vllm", "serve", "m", "--gpu-memory-utilization", share)
    return engine(state=state, has_metrics=False, argv=argv, uptime_s=120.0, **more)


def first(**more: Any) -> Engine:
    """An engine with its first request."""
    made = engine(running=1, **more)
    assert made.metrics is not None
    return replace(made, metrics=replace(made.metrics, generation_tokens=0.0, prompt_tokens=12.0))


# Falling


def test_the_recorded_fall_is_seen_in_its_third_second() -> None:
    grown = (Growth(label="vllm-qwen36", pid=77352, held_bytes=gib(73.0), bytes_per_s=5.9 * GIB),)
    found = only(falling(picture(node(available_gib=FALL, growing=grown), node("spark2"))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert found.nodes == ("spark1",)
    assert "vllm-qwen36 takes 5.9 GiB/s as GPU memory" in found.explanation
    assert found.remedies[0].action == "stop-engine"
    assert "37.8 GiB left" in found.brief


def test_a_load_that_takes_more_than_it_was_told_to_is_a_danger_near_the_end() -> None:
    beyond = [(-900.0, 110.0), (-60.0, 110.0), (-4.0, 12.0), (0.0, 4.0)]
    assert only(falling(picture(node(available_gib=beyond, engines=(loading(share="0.90"),)))))


def test_a_silent_rank_loads_while_its_head_does() -> None:
    """Under Ray the head's log has what all ranks say."""
    argv = ("ray", "start", "--address=10.0.0.1:6379", "--block")
    worker = engine(state=EngineState.UNKNOWN, has_metrics=False, endpoint=None, argv=argv, uptime_s=120.0)
    sinks = [(-900.0, 110.0), (-10.0, 110.0), (-1.0, 56.0), (0.0, 50.0)]
    second = replace(node(available_gib=sinks, engines=(worker,)), name="spark2")
    head = loading()
    head = with_argv(head, (*head.argv, "--tensor-parallel-size", "2"))
    assert not list(falling(picture(node(engines=(head,)), second)))
    ready = replace(head, state=EngineState.READY, log=LogFacts(moved_wall_s=WALL_S - 4.0))
    idle = replace(node(available_gib=sinks, engines=(worker,), util=0.0), name="spark2")
    assert not list(falling(picture(node(engines=(ready,)), idle))), "what it took last may still be in the window"
    up = replace(head, state=EngineState.READY)
    assert only(falling(picture(node(engines=(up,)), second))).nodes == ("spark2",)


def test_a_job_of_no_engine_is_a_danger_only_near_the_end() -> None:
    assert only(falling(picture(idle_node(available_gib=[(-900, 110), (-9, 110), (0, 18)]))))


LOADED = [(-900.0, 112.0), (-30.0, 60.0), (-4.0, 55.0), (-3.0, 28.0), (-1.0, 25.5), (0.0, 24.2)]
"""The cache is allocated, graphs are captured, and it is ready."""


def just_ready(ready_s_ago: float = 3.0, **more: Any) -> Engine:
    """It says that it serves, and nobody has asked it anything."""
    argv = ("vllm", "serve", "m", "--gpu-memory-utilization", "0.70")
    made = engine(state=EngineState.READY, argv=argv, **{"running": 0, "gpu_bytes": gib(87.3), **more})
    assert made.metrics is not None
    silent = replace(made.metrics, generation_tokens=0.0, prompt_tokens=0.0, waiting=0.0)
    return replace(made, metrics=silent, log=LogFacts(moved_wall_s=WALL_S - ready_s_ago))


def asked_at_once() -> Engine:
    made = just_ready()
    assert made.metrics is not None
    return replace(made, metrics=replace(made.metrics, running=1.0))


LOUD_FALLS = {
    "it has been ready for long": node(available_gib=LOADED, util=0.0, engines=(just_ready(60.0),)),
    "its first request has come": node(available_gib=LOADED, util=0.0, engines=(asked_at_once(),)),
    "its GPU is at work before the request is counted": node(
        available_gib=LOADED, util=[(-900, 0), (-2, 0), (-1, 96), (0, 96)], engines=(just_ready(),)
    ),
    "it holds more than it was told to take": node(
        available_gib=LOADED, util=0.0, engines=(just_ready(gpu_bytes=gib(97.0)),)
    ),
    "something else grows": node(
        available_gib=LOADED,
        util=0.0,
        engines=(just_ready(),),
        growing=(Growth(label="train", pid=4, held_bytes=gib(9.0), bytes_per_s=2.0 * GIB),),
    ),
    "next to nothing is left": node(
        available_gib=[(-900, 60.0), (-4, 40.0), (-1, 8.0), (0, 5.0)], util=0.0, engines=(just_ready(),)
    ),
}


@over("view", LOUD_FALLS.values(), ids=LOUD_FALLS.keys())
def test_the_end_of_a_load_excuses_nothing_else(view: NodeView) -> None:
    assert only(falling(picture(view)))


QUIET_FALLS = {
    "nothing falls": picture(),
    "weights load as they were told to": picture(
        node(available_gib=[(-900, 110), (-40, 110), (0, 50)], engines=(loading(),))
    ),
    "the KV cache is allocated at once": picture(
        node(available_gib=[(-900, 60), (-2, 60), (0, 31)], engines=(loading(),))
    ),
    "graphs are captured before it is ready": picture(
        node(available_gib=[(-900, 34), (-5, 34), (0, 28)], engines=(loading(EngineState.CAPTURING),))
    ),
    "an engine whose container was only just started": picture(
        node(available_gib=[(-900, 110), (-10, 110), (0, 60)], engines=(loading(EngineState.STARTING),))
    ),
    "an engine has become ready and its last allocation is still in the window": picture(
        node(available_gib=LOADED, util=[(-900, 96), (-3, 96), (-2, 0), (0, 0)], engines=(just_ready(),))
    ),
    "the same where nothing tells what it holds": picture(
        node(available_gib=LOADED, util=0.0, engines=(just_ready(gpu_bytes=None),))
    ),
    "a small fall, soon over": picture(node(available_gib=[(-900, 27), (-2, 27), (0, 24.5)])),
    "a fall that has ended": picture(node(available_gib=[(-900, 45), (-4, 45), (-2, 30), (0, 30.2)])),
    "much is left": picture(idle_node(available_gib=[(-900, 116), (-6, 116), (0, 80)])),
    "the page cache fills: free falls, available stands": picture(
        node(available_gib=40.0, memory=memory(40.0, cache_gib=38.0, free_bytes=gib(0.6)))
    ),
    "a training job takes its memory": picture(idle_node(available_gib=[(-900, 110), (-20, 110), (0, 50)])),
    "the node is silent": picture(node(available_gib=FALL, link=link(LinkState.LOST))),
}


@over("fleet", QUIET_FALLS.values(), ids=QUIET_FALLS.keys())
def test_no_fall_is_seen_in(fleet: FleetState) -> None:
    assert not list(falling(fleet))


# The first request


def test_the_first_request_s_spike_says_stop_now_and_names_the_flag() -> None:
    found = only(first_request_spike(picture(node(available_gib=FALL, util=BUSY_SINCE, engines=(first(),)))))
    assert found.confidence is Confidence.CONFIRMED
    assert found.subject == "vllm-qwen36"
    assert found.title.startswith("Stop vllm-qwen36 now")
    assert found.remedies[0].action == "stop-engine"
    assert any("--enforce-eager" in each.title for each in found.remedies)


def test_a_fall_to_nothing_has_not_ended() -> None:
    gone = [(-900.0, 45.4), (-7.0, 45.4), (-1.0, 0.4), (0.0, 0.4)]
    view = node(available_gib=gone, util=[(-900.0, 0.0), (-8.0, 0.0), (-7.5, 96.0), (0.0, 96.0)], engines=(first(),))
    assert "0.4 GiB left" in only(first_request_spike(picture(view))).brief
    assert only(falling(picture(view)))


def test_it_is_suspected_while_the_request_was_not_counted_yet() -> None:
    idle = engine(running=0)
    assert idle.metrics is not None
    idle = replace(idle, metrics=replace(idle.metrics, generation_tokens=0.0))
    found = only(first_request_spike(picture(node(available_gib=FALL, util=BUSY_SINCE, engines=(idle,)))))
    assert found.confidence is Confidence.SUSPECTED


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(node(available_gib=FALL, util=96.0, engines=(first(),)), id="the GPU has been busy for long"),
        pytest.param(node(available_gib=FALL, util=BUSY_SINCE, engines=(engine(),)), id="it has served for days"),
        pytest.param(node(available_gib=FALL, util=BUSY_SINCE, engines=(loading(),)), id="it still loads"),
        pytest.param(node(available_gib=FALL, util=BUSY_SINCE, engines=()), id="no engine at all"),
        pytest.param(node(util=BUSY_SINCE, engines=(first(),)), id="a first request that takes nothing"),
        pytest.param(
            node(available_gib=[(-900, 45.4), (-20, 45.4), (0, 31.0)], util=BUSY_SINCE, engines=(first(),)),
            id="a slow fall",
        ),
    ],
)
def test_no_first_request_is_blamed_in(view: NodeView) -> None:
    assert not list(first_request_spike(picture(view)))


# Starved


def test_a_host_that_stops_answering_after_a_fall_is_starved() -> None:
    gone = [(-900.0, 45.4), (-8.0, 45.4), (-6.0, 43.7), (-4.0, 31.9), (-2.0, 11.4), (0.0, 0.4)]
    found = only(starved(picture(node(available_gib=gone, link=STARVED, age_s=12.0))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert any("43.7" in each.text and "0.4" in each.text for each in found.evidence), "its trajectory"
    assert "0.4 GiB available" in found.explanation


def test_a_host_that_was_gone_may_be_booting() -> None:
    """Seen after a panic: its sshd took connections before it answered."""
    booting = replace(STARVED, was_gone=True)
    assert only(starved(picture(node(available_gib=0.4, link=booting, age_s=200.0)))).confidence is Confidence.SUSPECTED


def test_without_a_trajectory_it_is_suspected() -> None:
    found = only(starved(picture(node(link=STARVED, age_s=12.0))))
    assert found.confidence is Confidence.SUSPECTED
    assert found.settles
    assert "27.0 GiB" in found.explanation


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(node(link=link(LinkState.LOST, reach=Reach.NO_HOST)), id="the host is gone"),
        pytest.param(node(link=link(LinkState.STALE)), id="nothing was asked yet"),
        pytest.param(node(link=link(reach=Reach.SSH_SILENT)), id="it is back"),
        pytest.param(node(available_gib=0.5), id="low, and answering"),
    ],
)
def test_no_host_is_starved_in(view: NodeView) -> None:
    assert not list(starved(picture(view)))


# Low, pressure, swap


@over("available, severity", [(2.0, Severity.CRITICAL), (6.0, Severity.WARNING), (12.0, None), (110.0, None)])
def test_low_is_measured_in_available_memory(available: float, severity: Severity | None) -> None:
    found = list(low.low.check(picture(node(available_gib=available))))
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_scarce_memory_offers_a_stop_and_no_second_guard() -> None:
    def actions(**more: Any) -> list[str | None]:
        (found,) = low.low.check(picture(node(**more)))
        return [remedy.action for remedy in found.remedies]

    assert actions(available_gib=6.0) == ["relaunch", None, "guard"]
    assert actions(available_gib=2.0) == ["relaunch", "stop-engine", None, "guard"]
    assert actions(available_gib=2.0, guard=GuardState(phase=GuardPhase.ARMED)) == ["relaunch", "stop-engine", None]
    assert actions(available_gib=2.0, guard=GuardState(phase=GuardPhase.FIRED))[-1] == "guard"
    shareless = engine("llama", kind=EngineKind("llama.cpp"))
    assert actions(available_gib=6.0, engines=(shareless,)) == [None, "guard"], "it has no share to reduce"


def test_little_free_and_much_cache_is_not_low() -> None:
    full_of_cache = memory(60.0, cache_gib=58.0, free_bytes=gib(0.3))
    for rule in rules_on("memory"):
        assert not list(rule.check(picture(node(memory=full_of_cache)))), rule.id


def test_a_small_machine_is_measured_by_shares() -> None:
    small = memory(3.0, total_bytes=gib(16), available_bytes=gib(3))
    assert not list(low.low.check(picture(node(memory=small))))


LONG_ROOMY = [(-60.0, 108.0), (0.0, 108.0)]
ANSWERS_AGAIN = [(-60.0, 3.0), (-52.0, 0.4), (-2.0, 108.0), (0.0, 108.0)]
FREED_A_MINUTE_AGO = [(-90.0, 3.0), (-60.0, 108.0), (-30.0, 108.0), (0.0, 108.0)]
JUST_FREED = [(-60.0, 3.0), (-6.0, 3.0), (-2.0, 108.0), (0.0, 108.0)]


@over(
    "more, fires",
    [
        ({"psi_full": 34.0}, True),
        ({"swap_bytes_per_s": 180e6}, True),
        ({"swap_bytes_per_s": 180e6, "memory": memory(108.0)}, False),  # read back: the engine was stopped
        ({"memory": memory(108.0), "available_gib": LONG_ROOMY, "psi_full": 12.0}, True),
        ({"memory": memory(108.0), "available_gib": JUST_FREED, "psi_full": 12.0}, False),  # an average decays
        ({"memory": memory(108.0), "available_gib": ANSWERS_AGAIN, "psi_full": 29.0}, False),
        ({"memory": memory(108.0), "available_gib": FREED_A_MINUTE_AGO, "psi_full": 12.0}, True),
        ({"psi_full": 2.0}, False),
        ({"psi_full": 0.0, "psi_some": 40.0}, False),
        ({"swap_bytes_per_s": 3e6, "swap_gib": 6.0}, False),
    ],
)
def test_pressure_is_stalls_or_a_swap_storm(more: dict[str, Any], fires: bool) -> None:
    assert bool(list(low.pressure.check(picture(node(**more))))) is fires


@over(
    "view, severity",
    [
        (node(swap_gib=0.4), None),
        (node(swap_gib=3.1), Severity.INFO),
        (node(swap_gib=5.0), Severity.WARNING),
        (idle_node(memory=memory(116.0, swap_gib=5.0)), Severity.INFO),
    ],
)
def test_swap_is_a_warning_only_beside_an_engine(view: NodeView, severity: Severity | None) -> None:
    assert [each.severity for each in low.swap_used.check(picture(view))] == ([severity] if severity else [])


# Held after an exit

NORMAL = Baseline(after_boot_available_bytes=gib(108.0), after_boot_wall_s=WALL_S - 9000)


def ended(ago_s: float, **more: Any) -> Engine:
    box = container("sglang-m", status="exited", exit_code=137, finished_wall_s=WALL_S - ago_s)
    options: dict[str, Any] = {
        "container": box,
        "state": EngineState.EXITED,
        "exited_wall_s": WALL_S - ago_s,
        "pids": (),
        "gpu_bytes": None,
        "metrics": None,
        "rates": None,
        "exit_detail": "killed (exit code 137)",
    }
    return engine("sglang-m", **{**options, **more})


def after(available: Any, ago_s: float, *, baseline: Baseline | None = NORMAL, **more: Any) -> NodeView:
    """A node whose engine ended so long ago."""
    return idle_node("spark2", **{"available_gib": available, "engines": (ended(ago_s),), "baseline": baseline, **more})


def test_rising_still_is_information_with_a_forecast() -> None:
    found = only(held_after_exit(picture(after([(-900, 30), (-20, 30), (0, 68)], 22.0))))
    assert found.severity is Severity.INFO
    assert "being freed" in found.title
    assert "108.0 GiB available after its boot are free again in 21 s" in found.explanation
    assert "reboot" not in " ".join(each.title.lower() for each in found.remedies)


def test_nobody_s_memory_against_this_boot_s_own_figure_is_confirmed() -> None:
    found = only(held_after_exit(picture(after(74.0, 90.0))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert found.remedies[-1].action == "reboot" or any(each.action == "reboot" for each in found.remedies)
    assert "34.0 GiB" in found.title
    assert not any(each.action == "drop-caches" for each in found.remedies)


@over("resolved_ago_s, is_lost", [(5.0, False), (11.0, False), (13.0, True)])
def test_memory_is_lost_only_once_it_stood_since_the_end_of_its_last_holder(
    resolved_ago_s: float, is_lost: bool
) -> None:
    """The finding of a process that held it is resolved 8 s after the process has ended."""
    held = only(held_after_exit(picture(after(74.0, 90.0))))
    over = replace(held, phase=Phase.RESOLVED, resolved_wall_s=WALL_S - resolved_ago_s, remedies=())
    fleet = replace(picture(after(74.0, 90.0)), findings=(over,))
    assert bool(list(held_after_exit(fleet))) is is_lost


def test_a_dozen_gib_is_a_warning_until_the_wait_is_over() -> None:
    young, old = after(95.0, 90.0), after(95.0, 400.0)
    assert only(held_after_exit(picture(young))).severity is Severity.WARNING
    assert only(held_after_exit(picture(old))).severity is Severity.CRITICAL


@over("baseline", [None, Baseline(), replace(NORMAL, is_earlier_boot=True)])
def test_without_this_boot_s_figure_it_is_suspected(baseline: Baseline | None) -> None:
    found = only(held_after_exit(picture(after(74.0, 90.0, baseline=baseline))))
    assert found.confidence is Confidence.SUSPECTED
    assert found.severity is Severity.WARNING
    assert found.settles


@over("baseline", [Baseline(), replace(NORMAL, is_earlier_boot=True)])
def test_what_was_accounted_for_while_the_engine_ran_confirms_it(baseline: Baseline) -> None:
    watched = replace(baseline, least_unaccounted_bytes=gib(2.0))
    found = only(held_after_exit(picture(after(74.0, 90.0, baseline=watched))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert "Earlier in this boot 2.0 GiB were unaccounted for" in found.explanation
    assert found.blocks_starts


def test_a_console_that_came_after_the_loss_only_suspects_it() -> None:
    late = Baseline(least_unaccounted_bytes=gib(43.0))
    assert only(held_after_exit(picture(after(74.0, 90.0, baseline=late)))).confidence is Confidence.SUSPECTED


@over("first_ago_s, second_ago_s", [(90.0, 20.0), (4000.0, 3000.0)], ids=["soon", "an hour on"])
def test_what_is_told_as_lost_stays_with_the_engine_that_lost_it(first_ago_s: float, second_ago_s: float) -> None:
    """Another one that ends meanwhile, as it finds too little memory, lost nothing."""
    first = replace(ended(first_ago_s), name="first")
    one = picture(after(74.0, 90.0, engines=(first,)))
    told = Finding(
        rule=held.RULE, severity=Severity.CRITICAL, title="told", nodes=("spark2",),
        remedies=(Remedy(title="Reboot", action="reboot"),), since_wall_s=one.wall_s - first_ago_s + 20.0,
    )  # fmt: skip
    both = replace(one.nodes[0], engines=(first, replace(ended(second_ago_s), name="second")))
    found = only(held_after_exit(replace(one, nodes=(both,), findings=(told,))))
    assert found.title == "spark2: 34.0 GiB lost since first stopped: no process holds them"
    assert found.brief == "34.0 GiB lost, 74.0 GiB available"
    assert any(one.title.startswith("Wait until five minutes") for one in found.remedies) == (first_ago_s < 300)


def test_a_living_process_is_named() -> None:
    worker = process(8123, "VLLM::EngineCor", 1.2, parent_pid=1)
    row = GpuProcess(pid=8123, name="VLLM::EngineCore", used_bytes=gib(33.0))
    found = only(
        held_after_exit(picture(after(74.0, 90.0, processes=(worker,), gpu_processes=(row,), engines=(ended(90.0),))))
    )
    assert found.severity is Severity.WARNING
    assert "pid 8123" in found.title
    assert found.remedies[0].action == "end-holder"
    # It has just ended: that memory stood still while it lived says nothing of what comes back now.
    assert not list(held_after_exit(replace(picture(after(74.0, 90.0)), findings=(found,))))


def test_so_is_a_process_whose_container_has_ended() -> None:
    gone = ended(90.0)
    assert gone.container is not None
    left = process(8200, "python3", 1.2, container_id=gone.container.container_id)
    row = GpuProcess(pid=8200, name="python3", used_bytes=gib(33.0))
    found = only(held_after_exit(picture(after(74.0, 90.0, processes=(left,), gpu_processes=(row,), engines=(gone,)))))
    assert "its container has stopped" in found.explanation


def test_cache_is_told_from_a_leak() -> None:
    cached = memory(107.0, cache_gib=62.0, anonymous_bytes=gib(1.4))
    found = only(held_after_exit(picture(after(107.0, 90.0, memory=cached))))
    assert found.severity is Severity.INFO
    assert "not a leak" in found.title
    assert found.remedies[0].action == "drop-caches"
    assert "releases no leaked GPU memory" in found.remedies[0].cost


QUIET_EXITS = {
    "all is back": picture(after(107.5, 90.0)),
    "an engine runs, and holds what it should": picture(node(baseline=NORMAL)),
    "it is still settling": picture(after([(-900, 30), (-8, 30), (-4, 74), (0, 74)], 10.0)),
    "a service with the GPU of its own": picture(
        idle_node(
            available_gib=100.0,
            baseline=NORMAL,
            processes=(process(5120, "python3", 2.0, container_id=None),),
            gpu_processes=(GpuProcess(pid=5120, name="python3", used_bytes=gib(9.0)),),
            memory=memory(100.0, anonymous_bytes=gib(3.0)),
        )
    ),
    "cache beside memory that nobody accounts for, not yet still for long": picture(
        after([(-900, 30), (-8, 30), (-4, 68), (0, 68)], 10.0, baseline=None, memory=memory(68.0, cache_gib=28.0))
    ),
    "nothing is normal yet, and nothing unaccounted": picture(idle_node(baseline=None)),
    "the node is silent": picture(after(74.0, 90.0, link=link(LinkState.STALE))),
}


@over("fleet", QUIET_EXITS.values(), ids=QUIET_EXITS.keys())
def test_nothing_is_held_after_an_exit_in(fleet: FleetState) -> None:
    assert not list(held_after_exit(fleet))


@pytest.mark.parametrize("rule", rules_on("memory"), ids=lambda rule: rule.id)
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(node(), id="a healthy Spark"),
        pytest.param(idle_node(), id="nothing runs"),
        pytest.param(replace(node(), sample=None, sample_at_s=None, ledger=None, trend=None), id="nothing known"),
        pytest.param(node(engines=(engine(argv=ARGV, container=None),)), id="an engine outside containers"),
    ],
)
def test_every_rule_is_quiet_on(rule: Any, view: NodeView) -> None:
    check: Callable[[FleetState], Iterable[Finding]] = rule.check
    assert not list(check(picture(view)))
