"""What the GPU rules say of pictures, and of those that look alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.pictures_support import (
    ARGV,
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
    rules_on,
)
from tests.table import over

from sparktop.diagnose.rules.gpu import capture, power, spin
from sparktop.engines.cuda_graphs import flag_without_graphs
from sparktop.model.engine import Engine, EngineKind, EngineState, LogFacts, Progress
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, LogPlace
from sparktop.model.fleet import Baseline, FleetState, Intervention, LinkState, NodeView
from sparktop.model.telemetry import Gpu, GpuProcess, GpuReading, Series

capture_stuck, spin_deadlock = capture.capture_stuck.check, spin.spin_deadlock.check
power_wedge, thermal = power.power_wedge.check, power.thermal.check

TWO = (*ARGV, "--tensor-parallel-size", "2", "--nnodes", "2")
FELL = [(-900.0, 38.0), (-130.0, 38.0), (-128.0, 15.2), (0.0, 15.0)]
"""Power: decode until 128 s ago, idleness since."""


def spinning(name: str = "spark1", **more: Any) -> NodeView:
    """Requests held, 96 % at 15 W for 128 s, tokens still."""
    return node(name, **{"power_w": FELL, "engines": (engine(stuck_s=126.0),), **more})


def head(**more: Any) -> Engine:
    return engine("rank0", **{"argv": (*TWO, "--node-rank", "0"), "stuck_s": 126.0, **more})


def worker(**more: Any) -> Engine:
    """The other node's rank: no server, no figures, a log that is silent by nature."""
    options: dict[str, Any] = {
        "argv": (*TWO, "--node-rank", "1", "--headless"),
        "endpoint": None,
        "has_metrics": False,
        "state": EngineState.UNKNOWN,
        "silent_s": 7000.0,
        "container": container("rank1"),
    }
    return engine("rank1", **{**options, **more})


def blind(**more: Any) -> Engine:
    """SGLang without --enable-metrics, whose log fell silent 76 s ago."""
    options: dict[str, Any] = {
        "kind": EngineKind.SGLANG,
        "argv": ("python3", "-m", "sglang.launch_server", "--model-path", "m"),
        "has_metrics": False,
        "silent_s": 76.0,
        "state": EngineState.SERVING,
    }
    return engine("sglang-m", **{**options, **more})


def capturing(still_s: float, *, done: int = 0, over: bool = True, **more: Any) -> Engine:
    bar = Progress(phase="capture", done=done, total=36)
    options: dict[str, Any] = {
        "kind": EngineKind.SGLANG,
        "argv": ("python3", "-m", "sglang.launch_server", *(("--nnodes", "2") if over else ())),
        "version": "0.5.12",
        "state": EngineState.CAPTURING,
        "progress": bar,
        "has_metrics": False,
        "log": LogFacts(
            phase="capture", progress=bar, moved_wall_s=WALL_S - still_s, last_line_wall_s=WALL_S - still_s
        ),
    }
    return engine("sglang-m", **{**options, **more})


def test_a_spin_on_one_node_is_confirmed_by_its_counters() -> None:
    found = only(spin_deadlock(picture(spinning(), node("spark2"))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert found.nodes == ("spark1",)
    assert found.brief == "96 % SM at 15 W, 0 tok/s, 2 requests held"
    assert [each.action for each in found.remedies] == ["collect-evidence", "safe-restart"]
    assert any("unchanged for 2 min" in each.text for each in found.evidence)


def test_requests_held_are_those_of_the_table_beside_it() -> None:
    found = only(spin_deadlock(picture(spinning(engines=(engine(running=3, waiting=1, stuck_s=76.0),)))))
    assert found.brief == "96 % SM at 15 W, 0 tok/s, 3 requests held, 1 waiting"


def test_a_younger_spin_is_suspected_and_says_what_settles_it() -> None:
    young = [(-900.0, 38.0), (-26.0, 38.0), (-25.0, 15.0)]
    found = only(spin_deadlock(picture(spinning(power_w=young, engines=(engine(stuck_s=24.0),)))))
    assert found.confidence is Confidence.SUSPECTED
    assert "120 s" in found.settles


@over(
    "still_s, others, confidence",
    [
        (70.0, {}, Confidence.SUSPECTED),
        (126.0, {}, Confidence.CONFIRMED),
        (70.0, {"rdma_bytes_per_s": 900.0}, Confidence.CONFIRMED),
        (70.0, {"util": 0.0, "power_w": 11.0}, Confidence.CONFIRMED),
        (126.0, {"gpu_processes": (GpuProcess(pid=9, name="python3", used_bytes=gib(9)),)}, Confidence.SUSPECTED),
    ],
)
def test_a_second_sign_confirms_it_sooner_and_another_job_never(
    still_s: float, others: dict[str, Any], confidence: Confidence
) -> None:
    first = spinning(engines=(head(stuck_s=still_s),), **({} if "util" in others else others))
    fleet = picture(first, spinning("spark2", engines=(worker(),), **others))
    assert only(spin_deadlock(fleet)).confidence is confidence


def test_many_ranks_that_spin_are_counted_in_the_title() -> None:
    five = [word.replace("2", "5") if word.isdigit() else word for word in TWO]
    others = [
        spinning(f"spark{rank + 1}", engines=(worker(argv=(*five, "--node-rank", f"{rank}", "--headless")),))
        for rank in range(1, 5)
    ]
    found = only(spin_deadlock(picture(spinning(engines=(head(argv=(*five, "--node-rank", "0")),)), *others)))
    assert len(found.nodes) == 5
    assert found.title == "Spin deadlock: 5 nodes wait for each other"


def test_both_ranks_spinning_are_one_finding_that_names_both() -> None:
    found = only(
        spin_deadlock(
            picture(
                spinning(engines=(head(),), rdma_bytes_per_s=1200.0),
                spinning("spark2", engines=(worker(),), rdma_bytes_per_s=900.0),
            )
        )
    )
    assert found.nodes == ("spark1", "spark2")
    assert found.confidence is Confidence.CONFIRMED
    assert "spark1 and spark2 wait for each other" in found.title
    assert sum("byte counters flat" in each.text for each in found.evidence) == 2
    restart = next(each for each in found.remedies if each.action == "safe-restart")
    assert "every rank together" in restart.title
    assert any("NCCL 2.30.4" in step for each in found.remedies for step in each.steps)
    assert any('"cudagraph_mode":"none"' in step for each in found.remedies for step in each.steps)


def test_a_rank_that_a_console_stops_left_nobody_waiting() -> None:
    idle = node("spark2", util=0.0, power_w=11.0, engines=(worker(),))
    fleet = picture(spinning(engines=(head(),)), idle)
    stop = Intervention(
        node="spark2", engine="rank1", action="safe-restart", began_wall_s=WALL_S - 5, is_under_way=True
    )
    assert not list(spin_deadlock(replace(fleet, interventions=(stop,))))
    over = replace(stop, is_under_way=False, ended_wall_s=WALL_S - 3)
    assert only(spin_deadlock(replace(fleet, interventions=(over,))))


def test_the_rank_that_spins_and_the_one_that_is_idle_are_told_apart() -> None:
    idle = node("spark2", util=0.0, power_w=11.0, engines=(worker(),))
    found = only(spin_deadlock(picture(spinning(engines=(head(),)), idle)))
    assert "spark1 waits for spark2" in found.title
    assert any("this rank is idle" in each.text for each in found.evidence)


def test_a_rank_that_died_is_said_to_have_ended() -> None:
    dead = worker(state=EngineState.EXITED, exited_wall_s=WALL_S - 80, exit_detail="killed (exit code 137)", pids=())
    found = only(spin_deadlock(picture(spinning(engines=(head(),)), idle_node("spark2", engines=(dead,)))))
    assert found.nodes == ("spark1", "spark2")
    assert any("the rank has exited: killed (exit code 137)" in each.text for each in found.evidence)
    assert "has exited" in found.explanation


def test_without_figures_it_is_only_ever_suspected() -> None:
    found = only(spin_deadlock(picture(spinning(engines=(blind(silent_s=600.0),), power_w=15.0))))
    assert found.confidence is Confidence.SUSPECTED
    assert "--enable-metrics" in found.settles
    assert "localhost 28028" in found.settles


def test_a_vllm_without_statistics_is_suspected_after_the_time_of_a_compilation() -> None:
    mute = blind(argv=(*ARGV, "--disable-log-stats"), kind=EngineKind.VLLM, silent_s=600.0)
    found = only(spin_deadlock(picture(spinning(engines=(mute,), power_w=15.0))))
    assert found.confidence is Confidence.SUSPECTED


def test_one_sample_in_ten_seconds_finds_it_too() -> None:
    """Between two samples the newest is older than what a hung collector leaves at one a second."""
    rare = spinning()
    histories = {
        name: Series(times=tuple(time_s - 8.0 for time_s in kept.times[::10]), values=kept.values[::10])
        for name in ("utilisation_history", "power_history", "clock_history")
        if (kept := getattr(rare, name)).times
    }
    assert only(spin_deadlock(picture(replace(rare, **histories))))


def test_figures_that_can_t_be_read_any_more_don_t_confirm() -> None:
    old = engine(stuck_s=126.0)
    assert old.metrics is not None
    old = replace(old, metrics=replace(old.metrics, wall_s=WALL_S - 60))
    assert only(spin_deadlock(picture(spinning(engines=(old,))))).confidence is Confidence.SUSPECTED


def test_this_machine_s_own_decode_power_decides_where_it_is_known() -> None:
    frugal = Baseline(loaded_idle_power_w=10.0, decode_power_w=27.0)
    prefill = spinning(power_w=25.0, baseline=frugal)
    assert not list(spin_deadlock(picture(prefill)))
    assert only(spin_deadlock(picture(spinning(power_w=15.0, baseline=frugal))))


H100 = Gpu(name="NVIDIA H100", utilisation_percent=100.0, power_w=120.0, sm_clock_mhz=1980, bandwidth_percent=0.0)


def on_h100(bandwidth: float | None, baseline: Baseline | None = None) -> NodeView:
    card = replace(H100, bandwidth_percent=bandwidth)
    return spinning(
        util=100.0,
        power_w=120.0,
        sm_mhz=1980.0,
        baseline=baseline,
        gpu=GpuReading(boot_s=0.0, gpus=(card,)),
    )


def test_where_the_bandwidth_counter_moves_nought_is_evidence() -> None:
    assert only(spin_deadlock(picture(on_h100(0.0)))).confidence is Confidence.CONFIRMED
    assert not list(spin_deadlock(picture(on_h100(34.0))))
    learned = Baseline(loaded_idle_power_w=110.0, decode_power_w=400.0)
    assert only(spin_deadlock(picture(on_h100(None, learned))))
    assert not list(spin_deadlock(picture(on_h100(None))))


QUIET_SPINS = {
    "healthy decode, 96 % and a memory counter of 0": picture(),
    "idle with no request": picture(node(util=0.0, power_w=11.5, engines=(engine(running=0, stuck_s=900.0),))),
    "no request held, and the GPU busy with something else": picture(
        spinning(engines=(engine(running=0, stuck_s=900.0),))
    ),
    "a long prefill at 92 W": picture(node(power_w=92.0, sm_mhz=2281.0, engines=(engine(stuck_s=80.0),))),
    "the first JIT: SM idle, processor busy": picture(
        node(util=0.0, power_w=12.0, cpu_busy_percent=70.0, engines=(engine(stuck_s=80.0),))
    ),
    "loading: the disk is busy, the SMs are not": picture(
        node(util=3.0, power_w=13.0, engines=(engine(state=EngineState.LOADING, has_metrics=False, silent_s=80.0),))
    ),
    "loading with the SMs busy for a minute": picture(
        node(power_w=FELL, engines=(engine(state=EngineState.LOADING, has_metrics=False, silent_s=76.0),))
    ),
    "power alternates 15-36 W and tokens move": picture(
        node(power_w=[(-x, 15.0 if x % 2 else 36.0) for x in range(900, -1, -1)])
    ),
    "power alternates and nothing can be counted": picture(
        node(power_w=[(-float(x), 15.0 if x % 2 else 36.0) for x in range(900, -1, -1)], engines=(blind(),))
    ),
    "training without an engine": picture(node(power_w=20.0, engines=())),
    "the clock is pinned: a power fault": picture(spinning(sm_mhz=650.0)),
    "the spin has just ended": picture(spinning(power_w=[(-900, 15.0), (-3, 15.0), (-2, 39.0), (0, 38.0)])),
    "the SGLang log still speaks": picture(spinning(engines=(blind(silent_s=2.0),), power_w=20.0)),
    "SGLang without figures is ready and idle": picture(spinning(engines=(blind(state=EngineState.READY),))),
    "statistics are switched off in the log": picture(
        spinning(engines=(blind(argv=(*ARGV, "--disable-log-stats"), kind=EngineKind.VLLM),))
    ),
    "tokens still, the other rank's traffic flowing: a long prefill": picture(
        spinning(engines=(head(),), rdma_bytes_per_s=1.8e9),
        spinning("spark2", engines=(worker(),), rdma_bytes_per_s=1.8e9),
    ),
    "tokens still for a minute beside another job on that GPU": picture(
        spinning(
            engines=(engine(stuck_s=76.0),),
            gpu_processes=(GpuProcess(pid=9, name="python3", used_bytes=gib(9)),),
        )
    ),
    "a worker alone, its traffic flowing": picture(spinning(engines=(worker(),), rdma_bytes_per_s=2e9)),
    "a worker alone, its traffic unknown": picture(spinning(engines=(worker(),))),
    "another job computes there, for less than 90 s": picture(
        spinning(
            engines=(blind(),),
            gpu_processes=(
                GpuProcess(pid=77352, name="sglang", used_bytes=gib(60)),
                GpuProcess(pid=9, name="python3", used_bytes=gib(9)),
            ),
        )
    ),
    "GPU readings stopped two minutes ago": picture(
        replace(spinning(), utilisation_history=replace(spinning().utilisation_history, times=tuple(range(901))))
    ),
    "the node does not answer": picture(spinning(link=link(LinkState.STALE, since_s=5.0))),
    "a capture that stands has its own rule": picture(spinning(engines=(capturing(76.0),))),
}


@over("fleet", QUIET_SPINS.values(), ids=QUIET_SPINS.keys())
def test_no_spin_is_seen_in(fleet: FleetState) -> None:
    assert not list(spin_deadlock(fleet))


def test_its_finding_keeps_its_key_from_suspicion_to_certainty() -> None:
    young = spinning(power_w=[(-900, 38.0), (-26, 38.0), (-25, 15.0)], engines=(head(stuck_s=24.0),))
    early = only(spin_deadlock(picture(young, node("spark2", engines=(worker(),), power_w=38.0))))
    late = only(spin_deadlock(picture(spinning(engines=(head(),)), spinning("spark2", engines=(worker(),)))))
    assert early.key == late.key


@over(
    "version, flag",
    [
        ("0.5.12", "--disable-cuda-graph"),
        ("0.5.23", "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"),
        (None, "--disable-cuda-graph"),
    ],
)
def test_sglang_s_flag_is_that_of_its_version(version: str | None, flag: str) -> None:
    assert flag_without_graphs(blind(version=version)) == flag


# Capture


def stuck(name: str, still_s: float, **more: Any) -> NodeView:
    return node(name, **{"power_w": 15.0, "engines": (capturing(still_s),), "cpu_busy_percent": 11.0, **more})


def test_a_capture_at_nought_on_two_nodes_is_one_finding_confirmed_after_five_minutes() -> None:
    found = only(capture_stuck(picture(stuck("spark1", 340.0), stuck("spark2", 335.0))))
    assert found.evidence[0].log == LogPlace("spark1", found.subject), "`l` leads there"
    assert found.confidence is Confidence.CONFIRMED
    assert found.nodes == ("spark1", "spark2")
    assert "0/36" in found.title
    assert "--disable-cuda-graph" in found.remedies[0].title
    assert any("SGLANG_DISABLE_CUDA_GRAPH" in step for step in found.remedies[0].steps)


def test_a_younger_one_is_suspected() -> None:
    found = only(capture_stuck(picture(stuck("spark1", 200.0), stuck("spark2", 196.0))))
    assert found.confidence is Confidence.SUSPECTED
    assert found.settles


def test_no_capture_is_stuck_whose_other_rank_a_console_stops() -> None:
    fleet = picture(stuck("spark1", 340.0), stuck("spark2", 335.0))
    (engine,) = fleet.nodes[0].engines
    stop = Intervention(
        node="spark1", engine=engine.name, action="relaunch", began_wall_s=WALL_S - 5, is_under_way=True
    )
    assert not list(capture_stuck(replace(fleet, interventions=(stop,))))
    assert only(capture_stuck(replace(fleet, interventions=(replace(stop, is_under_way=False),))))
    again = tuple(
        replace(one, engines=tuple(replace(each, uptime_s=400.0) for each in one.engines)) for one in fleet.nodes
    )
    earlier = replace(stop, began_wall_s=WALL_S - 460)
    assert only(capture_stuck(replace(fleet, nodes=again, interventions=(earlier,)))), "the run has started it again"


def test_vllm_gets_vllm_s_flag() -> None:
    vllm = capturing(400.0, kind=EngineKind.VLLM, argv=TWO)
    found = only(capture_stuck(picture(stuck("spark1", 0.0, engines=(vllm,)))))
    assert """--compilation-config '{"cudagraph_mode":"none"}'""" in found.remedies[0].title


QUIET_CAPTURES = {
    "a bar at 0 for a minute": picture(stuck("spark1", 58.0), stuck("spark2", 56.0)),
    "the processor compiles": picture(
        stuck("spark1", 400.0, cpu_busy_percent=64.0), stuck("spark2", 400.0, cpu_busy_percent=58.0)
    ),
    "the capture draws power": picture(stuck("spark1", 400.0, power_w=41.0), stuck("spark2", 400.0, power_w=43.0)),
    "the SMs rest": picture(stuck("spark1", 400.0, util=4.0), stuck("spark2", 400.0, util=3.0)),
    "it is through": picture(stuck("spark1", 0.0, engines=(capturing(400.0, done=36),))),
    "one node alone, two minutes": picture(stuck("spark1", 0.0, engines=(capturing(115.0, over=False),))),
    "an engine that serves": picture(),
}


@over("fleet", QUIET_CAPTURES.values(), ids=QUIET_CAPTURES.keys())
def test_no_capture_is_stuck_in(fleet: FleetState) -> None:
    assert not list(capture_stuck(fleet))


# Power and heat


def test_a_pinned_clock_at_low_power_is_a_wedged_power_controller() -> None:
    found = only(power_wedge(picture(node(sm_mhz=611.0, power_w=14.2, engines=(engine(tokens_per_s=38.4),)))))
    assert found.confidence is Confidence.CONFIRMED
    assert "611 MHz" in found.title
    assert "unplug" in found.remedies[0].title
    assert any("38.4 tok/s" in each.text for each in found.evidence)
    assert "reboot" not in found.remedies[0].title


def test_it_needs_no_engine_and_is_suspected_at_first() -> None:
    fresh = [(-900.0, 2400.0), (-14.0, 2400.0), (-14.0, 721.0)]
    found = only(power_wedge(picture(node(sm_mhz=fresh, power_w=12.0, engines=()))))
    assert found.confidence is Confidence.SUSPECTED


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(node(), id="healthy decode"),
        pytest.param(node(power_w=15.0), id="a deadlock's power at the full clock"),
        pytest.param(node(util=0.0, sm_mhz=600.0, power_w=5.0), id="resting at a low clock"),
        pytest.param(
            node(sm_mhz=650.0, power_w=14.0, throttle=("hardware thermal",)), id="heat is given as the reason"
        ),
        pytest.param(node(sm_mhz=650.0, power_w=14.0, throttle=("application clocks",)), id="someone set that clock"),
        pytest.param(node(sm_mhz=800.0, power_w=60.0), id="power is drawn"),
    ],
)
def test_no_wedge_is_seen_in(view: NodeView) -> None:
    assert not list(power_wedge(picture(view)))


@over("reason", ["software thermal", "hardware thermal"])
def test_heat_is_named_where_the_driver_names_it(reason: str) -> None:
    found = only(thermal(picture(node(throttle=(reason,), power_w=61.0, sm_mhz=1650.0))))
    assert "sudo nvidia-smi -lgc 300,1400 " in found.remedies[1].steps[0], "it stays while the clock wavers"
    colder = only(thermal(picture(node(throttle=(reason,), power_w=61.0, sm_mhz=1250.0))))
    assert "sudo nvidia-smi -lgc 300,1100 " in colder.remedies[1].steps[0], "a cap above 1250 MHz would change nothing"
    assert found.severity is Severity.WARNING
    assert reason in found.explanation


@over("reasons", [(), ("software power cap",), ("application clocks",)])
def test_no_heat_is_seen_in(reasons: tuple[str, ...]) -> None:
    assert not list(thermal(picture(node(throttle=reasons))))


@pytest.mark.parametrize("rule", rules_on("gpu"), ids=lambda rule: rule.id)
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(idle_node(), id="nothing runs"),
        pytest.param(node(util=None, power_w=None, sm_mhz=None), id="no GPU reading"),
        pytest.param(replace(node(), gpu=None, sample=None, sample_at_s=None), id="nothing known"),
        pytest.param(
            node(memory=memory(27.0), engines=(engine(log=None, rates=None),)), id="an engine that says little"
        ),
    ],
)
def test_every_rule_is_quiet_where_nothing_is_known(rule: Any, view: NodeView) -> None:
    check: Callable[[FleetState], Iterable[Finding]] = rule.check
    assert not list(check(picture(view)))
