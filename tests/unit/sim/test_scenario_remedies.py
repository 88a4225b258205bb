"""In the demo each scenario's `f` leads to its finding resolving: the whole operating side, over scenarios at no time.

What `f` offers first (evidence aside) is planned by the real planner from the real survey, carried out by the real
executor over the real runner's line, at whose end is the simulated Spark; and the finding is seen to go.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenario_support import Stage
from tests.stage_operations import Acting

from sparktop.documents.plan import plan_lines
from sparktop.model.change import SMALLER_SHARE, Change
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.guard import GuardPhase
from sparktop.model.request import Request, Risk
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.sim.reaction import acts
from sparktop.sim.scenario.scenario import available
from sparktop.ui.screens.fix import all_in_one

pytestmark = pytest.mark.slow


def found(stage: Stage, rule: str) -> Finding:
    """The finding of a rule; of several that of the last node."""
    firing = stage.firing(rule)
    assert firing, f"{rule} does not fire; what does: {[one.rule for one in stage.firing()]}"
    return firing[-1]


def offered(finding: Finding, action: str = "") -> Remedy:
    """What `f` offers first that changes anything."""
    changing = [one for one in finding.remedies if one.action not in (None, "collect-evidence", "guard")]
    assert changing, f"{finding.rule} offers nothing that does anything: {[one.title for one in finding.remedies]}"
    return next((one for one in changing if action in ("", one.action)), changing[0])


async def fix(
    stage: Stage, folder: Path, rule: str, action: str = "", *, read_for_s: float = 0.0, **options: str
) -> tuple[Run, Plan]:
    acting = Acting(stage, folder)
    try:
        finding = found(stage, rule)
        remedy = offered(finding, action)
        request = acting.requests(finding, remedy)[0]
        plan = await acting.plan(Request(
            action=request.action, nodes=request.nodes, target=request.target, change=request.change,
            finding=request.finding, options=options,
        ))  # fmt: skip
        assert not isinstance(plan, Refusal), (plan.reason, plan.remedies)
        if read_for_s:
            stage.run(stage.t + read_for_s)
        return await acting.run(plan), plan
    finally:
        await acting.aclose()


def told(run: Run) -> list[str]:
    return [f"{one.step.id}: {one.state} {one.detail}" for one in run.steps]


MENDED = {
    "capture-stuck": (400, "gpu.capture-stuck", "relaunch"),
    "desktop-freeze": (80, "kernel.xid-119", "reboot"),
    "driver-pending": (30, "host.driver-pending", "reboot"),
    "eight-nodes": (80, "cluster.rank-died", "safe-restart"),
    "leak-after-kill": (49, "memory.held-after-exit", "reboot"),
    "memory-spike": (18, "memory.first-request-spike", "stop-engine"),
    "orphan": (60, "memory.held-after-exit", "end-holder"),
    "restart-loop": (60, "restart.loop", "break-restart-loop"),
    "spin-deadlock": (120, "gpu.spin-deadlock", "safe-restart"),
    "swap-storm": (80, "memory.low", "relaunch"),
    "two-node-link": (110, "cluster.rank-died", "safe-restart"),
    "two-node-mismatch": (60, "cluster.memory-apart", "end-holder"),
    "two-node-misconfigured": (50, "cluster.bridge-network", "relaunch"),
    "two-node-tcp": (50, "cluster.no-infiniband-device", "relaunch"),
}
"""Scenario: (a second at which its trouble is there, its finding, what `f` offers first)."""

BY_HAND = {
    "power-wedge": "unplug it for a minute: nothing over the line can; the next showing begins after that",
    "thermal": "give it air: somebody does at 90 s",
    "link-loss": "nothing is wrong with the Sparks; the line comes back",
    "kv-full": "nothing is wrong but a batch job, which ends",
    "bare": "nothing is wrong, and nothing runs",
    "unpacked": "B finds what is wrong and offers its remedies: test_unpacked.py",
    "healthy": "nothing is wrong",
    "healthy-day": "nothing is wrong",
}


@pytest.mark.fast
def test_every_scenario_has_its_way_out() -> None:
    assert {name for name, _ in available()} == MENDED.keys() | BY_HAND.keys()


async def test_all_that_is_wrong_with_a_pair_can_be_mended_one_after_the_other(tmp_path: Path) -> None:
    stage = Stage("two-node-misconfigured").run(50)
    wanted = ("bridge-network", "interface-wrong", "gid-index", "environment-differs", "hca-wrong")
    for number, rule in enumerate(wanted):
        if not stage.firing(f"cluster.{rule}"):
            continue  # an engine that came up has refuted it
        run, _ = await fix(stage, tmp_path / str(number), f"cluster.{rule}")
        assert run.state is RunState.DONE, (rule, run.message, told(run))
        stage.run(stage.t + 20)
    left = {one.rule for one in stage.firing() if one.severity is not Severity.INFO}
    assert left <= {"cluster.image-differs", "cluster.engine-version-differs"}, "an image has to be copied by hand"


async def test_one_relaunch_fixes_all_that_is_wrong_with_a_pair_and_is_expected_to_succeed(tmp_path: Path) -> None:
    stage = Stage("two-node-misconfigured").run(50)
    finding = found(stage, "cluster.bridge-network")
    together = all_in_one(finding, stage.picture)
    assert together is not None
    acting = Acting(stage, tmp_path)
    plan = await acting.plan(acting.requests(finding, together)[0])
    assert isinstance(plan, Plan), plan
    assert not plan.expected_failure, "the other rank would take its default of 0.92"
    assert ("--gpu-memory-utilization", "0.80") in [(one.name, one.after) for one in plan.differences]
    run = await acting.run(plan)
    await acting.aclose()
    assert run.state is RunState.DONE, (run.message, told(run))


@pytest.mark.parametrize(
    ("action", "tokens_per_s", "mb_per_s"), [("relaunch", (40, 52), (150, 500)), ("safe-restart", (5, 12), (0, 1))]
)
async def test_a_pair_talks_rdma_once_its_containers_have_the_devices(
    tmp_path: Path, action: str, tokens_per_s: tuple[float, float], mb_per_s: tuple[float, float]
) -> None:
    stage = Stage("two-node-tcp").run(50)
    acting = Acting(stage, tmp_path)
    remedy = offered(found(stage, "cluster.no-infiniband-device"))
    change = remedy.change if action == "relaunch" else None
    plan = await acting.plan(
        Request(action=action, nodes=("spark1", "spark2"), target="pair-0", change=change or Change())
    )
    assert isinstance(plan, Plan), plan
    run = await acting.run(plan)
    await acting.aclose()
    assert run.state is RunState.DONE, (run.message, told(run))
    stage.run(stage.t + 20)
    before = stage.picture.nodes[0].rdma_ports[0]
    stage.run(stage.t + 10)
    node = stage.picture.nodes[0]
    (engine,) = [one for one in node.engines if one.state is EngineState.SERVING]
    assert engine.rates is not None
    low, high = tokens_per_s
    assert low < (engine.rates.generation_tokens_per_s or 0.0) < high
    low, high = mb_per_s
    assert low <= (node.rdma_ports[0].sent_bytes - before.sent_bytes) / 10e6 <= high


async def test_a_user_who_lingers_loses_nothing_at_logout(tmp_path: Path) -> None:
    stage = Stage("two-node-tcp").run(50)
    run, plan = await fix(stage, tmp_path, "cluster.linger")
    assert plan.request.action == "enable-linger"
    assert run.state is RunState.DONE, (run.message, told(run))
    assert not stage.firing("cluster.linger")


@pytest.mark.fast
async def test_a_start_is_doubted_while_an_orphan_holds_the_memory(tmp_path: Path) -> None:
    stage = Stage("orphan").run(45)
    acting = Acting(stage, tmp_path)
    finding = found(stage, "restart.failed")
    plan = await acting.plan(acting.requests(finding, offered(finding, "safe-restart"))[0])
    assert isinstance(plan, Plan), plan
    assert "still holds 76" in plan.expected_failure
    assert plan.expected_failure.endswith("kill that process first.")
    assert plan.risk is Risk.SAFE, "it stops nothing"
    assert not any(step.id.startswith("back-memory") for step in plan.rollback), "what was down is left down"
    assert plan.effect.startswith("vllm-qwen36 is down now, and serves again once it has loaded.")
    lines = "\n".join(line.plain for line in plan_lines(plan, 90, is_printed=True))
    assert "✓ safe  interrupts nothing" in lines
    assert "interrupts any running requests" not in lines
    await acting.aclose()


async def test_a_start_is_doubted_on_a_gpu_that_only_a_reboot_brings_back(tmp_path: Path) -> None:
    stage = Stage("desktop-freeze").run(80)
    acting = Acting(stage, tmp_path)
    name = stage.picture.nodes[0].engines[0].name
    plan = await acting.plan(Request(action="safe-restart", nodes=("spark1",), target=name))
    assert isinstance(plan, Plan), plan
    assert "Only a reboot of spark1 fixes that" in plan.expected_failure
    await acting.aclose()


async def test_a_leak_is_told_by_the_ladder_and_after_the_reboot_the_engine_starts(tmp_path: Path) -> None:
    """A console that comes after the loss can only suspect it: the restart stops at the missing memory, and starts
    nothing."""
    stage = Stage("leak-after-kill", begin_s=22.0).run(49)
    run, plan = await fix(stage, tmp_path / "first", "sglang.process-died", "safe-restart")
    assert run.state is RunState.FAILED
    assert "belong to no process" in " ".join(told(run))
    assert "only a reboot frees it" in plan.expected_failure
    assert plan.warnings[0] == plan.expected_failure
    waited = next(one for one in run.steps if one.state is StepState.FAILED)
    assert (waited.ended_wall_s or 0.0) - (waited.began_wall_s or 0.0) < 40, "what is lost is not waited for"
    assert not any(one.step.id.startswith("start") and one.state is StepState.DONE for one in run.steps)
    run, _ = await fix(stage, tmp_path / "second", "memory.held-after-exit")
    assert run.state is RunState.DONE, told(run)
    assert not stage.firing("sglang.process-died"), "the boot has ended what the log told of"
    run, plan = await fix(stage, tmp_path / "third", "restart.exit-137", "safe-restart")
    assert not plan.expected_failure, "what its log said, it said before the reboot"
    assert run.state is RunState.DONE, (run.message, told(run))
    stage.run(stage.t + 30)
    assert not [one.rule for one in stage.firing() if one.severity is Severity.CRITICAL]


async def test_a_start_into_memory_that_was_lost_before_our_eyes_is_refused(tmp_path: Path) -> None:
    stage = Stage("leak-after-kill").run(49)
    acting = Acting(stage, tmp_path)
    finding = found(stage, "sglang.process-died")
    answer = await acting.plan(acting.requests(finding, offered(finding, "safe-restart"))[0])
    assert isinstance(answer, Refusal), answer
    assert "only a reboot frees it" in answer.reason
    assert answer.remedies[0] == "sparktop act reboot spark2"
    await acting.aclose()


@pytest.mark.fast
async def test_while_memory_is_lost_what_can_run_now_is_offered_before_a_start_that_waits(tmp_path: Path) -> None:
    stage = Stage("leak-after-kill").run(34)
    acting = Acting(stage, tmp_path)
    first = stage.firing()[0]
    assert [remedy.action for remedy in first.remedies] == ["collect-evidence", "safe-restart"]
    plan = await acting.plan(acting.requests(first, first.remedies[1])[0])
    assert isinstance(plan, Plan), plan
    assert "67.9 GiB are available, 34.4 GiB belong to no process" in plan.expected_failure, (
        "f shows doubted remedies last"
    )
    stage.run(49)
    assert [remedy.action for remedy in stage.firing()[0].remedies] == ["reboot", None]
    await acting.aclose()


def test_a_deadlock_names_the_link_that_was_lost_before_it_also_once_that_is_up() -> None:
    spin = found(Stage("two-node-link").run(49), "gpu.spin-deadlock")
    assert "lost its link just before" in spin.explanation
    assert spin.evidence[0].text.endswith("Link down")
    actions = [remedy.action for remedy in spin.remedies]
    assert actions == ["collect-evidence", "safe-restart"], "graphs are not at fault"


async def test_ranks_start_once_their_link_is_up_and_nothing_stops_before(tmp_path: Path) -> None:
    stage = Stage("two-node-link").run(30)
    assert stage.firing("cluster.link-down")
    acting = Acting(stage, tmp_path)
    plan = await acting.plan(Request(action="safe-restart", nodes=("spark1", "spark2"), target="pair-0"))
    assert isinstance(plan, Plan), plan
    assert [step.id for step in plan.steps][:2] == ["evidence", "link"]
    assert plan.steps[1].title == "Seat the cable of enp1s0f0np0 on spark1 and spark2; waiting for the link"
    run = await acting.run(plan)
    assert run.state is RunState.DONE, (run.message, told(run))
    link, *later = run.steps[1:]
    assert (link.ended_wall_s or 0.0) - (link.began_wall_s or 0.0) > 10, "the cable was seated meanwhile"
    assert all((step.began_wall_s or 0.0) >= (link.ended_wall_s or 0.0) for step in later)
    await acting.aclose()


async def test_the_same_start_after_a_failed_one_is_doubted(tmp_path: Path) -> None:
    stage = Stage("restart-loop").run(60)
    acting = Acting(stage, tmp_path)
    finding = found(stage, "vllm.free-memory-below-utilisation")
    again = await acting.plan(Request(action="safe-restart", nodes=finding.nodes, target=finding.subject))
    assert isinstance(again, Plan), again
    assert "its own check at the start will probably fail" in again.expected_failure
    with_less = await acting.plan(acting.requests(finding, offered(finding, "relaunch"))[0])
    assert isinstance(with_less, Plan), with_less
    assert not with_less.expected_failure
    await acting.aclose()


async def test_a_plan_for_a_loop_outlives_the_run_it_was_made_in(tmp_path: Path) -> None:
    """The container is up for 15 s of each 24: whoever reads the review acts on a later run of it."""
    stage = Stage("restart-loop").run(52)
    run, _ = await fix(stage, tmp_path, "vllm.free-memory-below-utilisation", "relaunch", read_for_s=24)
    assert run.state is RunState.DONE, (run.message, told(run))


async def test_a_restart_that_does_not_help_says_so(tmp_path: Path) -> None:
    """A frozen desktop under a GPU whose firmware is gone: the shell alone is not what hangs."""
    stage = Stage("desktop-freeze").run(80)
    run, _ = await fix(stage, tmp_path, "desktop.frozen", "recover-desktop")
    assert run.state is RunState.NO_HELP
    assert stage.firing("desktop.frozen")


async def test_a_relaunch_into_a_leak_starts_nothing_and_leaves_the_old_one(tmp_path: Path) -> None:
    """Its memory doesn't come: it is told who has it, and the old container is there under its name."""
    stage = Stage("leak-after-kill", begin_s=22.0).run(49)
    assert all(remedy.change is None for remedy in found(stage, "memory.held-after-exit").remedies), "SGLang refuses it"
    acting = Acting(stage, tmp_path)
    plan = await acting.plan(
        Request(action="relaunch", nodes=("spark1", "spark2"), target="sglang-minimax-0", change=SMALLER_SHARE)
    )
    assert isinstance(plan, Plan), plan
    run = await acting.run(plan)
    await acting.aclose()
    assert run.state is RunState.FAILED, (run.message, told(run))
    assert "GiB belong to no process" in run.message
    assert run.can_go_back
    spark, t = stage.spark("spark2")
    names = [live.script.name for live in spark.containers(t)]
    assert "sglang-minimax-1" in names
    assert spark.container_id("sglang-minimax-1") == Stage("leak-after-kill").spark("spark2")[0].container_id(
        "sglang-minimax-1"
    )


async def test_a_relaunch_that_asks_for_less_ends_a_loop_for_good(tmp_path: Path) -> None:
    stage = Stage("restart-loop").run(60)
    run, plan = await fix(stage, tmp_path, "vllm.free-memory-below-utilisation", "relaunch")
    assert run.state is RunState.DONE, (run.message, told(run))
    (changed,) = [one for one in plan.differences if one.name == "--gpu-memory-utilization"]
    assert changed.before == "0.85"
    assert changed.after is not None
    assert float(changed.after) < 0.45
    stage.run(stage.t + 40)
    assert not [one.rule for one in stage.firing() if one.severity is not Severity.INFO], "its old log is no news"


async def test_the_program_that_holds_a_loops_memory_is_named_and_its_end_ends_the_loop(tmp_path: Path) -> None:
    stage = Stage("restart-loop").run(60)
    finding = found(stage, "vllm.free-memory-below-utilisation")
    assert finding.remedies[0].title == "Kill python3 (pid 93111), which holds 58.0 GiB on spark1, if nobody needs it"
    run, _ = await fix(stage, tmp_path, "vllm.free-memory-below-utilisation", "end-holder")
    assert run.state is RunState.DONE, (run.message, told(run))
    stage.run(stage.t + 150)
    assert not [one.rule for one in stage.firing() if one.severity is not Severity.INFO]
    (engine,) = stage.picture.nodes[0].engines
    assert engine.state is EngineState.SERVING
    assert engine.container is not None
    assert engine.container.restart_count > 8, "its policy has started it"


async def test_the_guard_ends_the_engine_before_memory_is_gone(tmp_path: Path) -> None:
    stage = Stage("memory-spike").run(8)
    acting = Acting(stage, tmp_path)
    options = {"floor_gib": "8"}
    plan = await acting.plan(Request(action="guard", nodes=("spark1",), target="vllm-gptoss", options=options))
    assert isinstance(plan, Plan), plan
    assert (await acting.run(plan)).state is RunState.DONE
    stage.run(40)
    guard = stage.picture.nodes[0].guard
    assert guard is not None
    assert guard.phase is GuardPhase.FIRED
    assert guard.available_bytes is not None
    assert guard.available_bytes < 32 << 30, guard.detail
    spark, t = stage.spark("spark1")
    assert not any(live.running for live in spark.containers(t) if live.script.name == "vllm-gptoss")
    assert spark.memory(t).available > 100, "and the host was never starved"
    assert stage.first("memory.starved") is None
    starts = found(stage, "guard.fired").remedies
    assert starts[0].change is not None, "what took the memory is known, and so is the change against it"
    assert starts[0].change.for_engine("vllm").flags == {"--enforce-eager": ""}
    await acting.aclose()


async def test_after_the_stop_of_a_first_request_a_start_that_can_run_is_offered(tmp_path: Path) -> None:
    """The kernel's refusals of memory are in its log still, and to stop an engine is no remedy any more."""
    stage = Stage("memory-spike").run(20)
    run, _ = await fix(stage, tmp_path / "stop", "memory.first-request-spike", "stop-engine")
    assert run.state is RunState.DONE, (run.message, told(run))
    assert stage.firing("kernel.nvrm-no-memory")
    assert {remedy.action for one in stage.firing() for remedy in one.remedies} == {"relaunch", "safe-restart"}
    run, plan = await fix(stage, tmp_path / "start", "engine.down")
    assert [(one.name, one.after) for one in plan.differences] == [("--enforce-eager", "")]
    assert not plan.expected_failure
    assert run.state is RunState.DONE, (run.message, told(run))


async def test_caches_are_dropped_on_both(tmp_path: Path) -> None:
    stage = Stage("healthy").run(30)
    acting = Acting(stage, tmp_path)
    plan = await acting.plan(Request(action="drop-caches", nodes=("spark1", "spark2")))
    assert isinstance(plan, Plan), plan
    run = await acting.run(plan)
    assert run.state is RunState.DONE
    stage.run(stage.t + 5)
    for node in stage.picture.nodes:
        assert node.sample is not None
        assert node.sample.memory.page_cache_bytes < 2 << 30
    assert not stage.alarms()
    await acting.aclose()


async def test_an_operator_who_wants_out_leaves_nothing_half_way(tmp_path: Path) -> None:
    stage = Stage("spin-deadlock").run(120)
    acting = Acting(stage, tmp_path)
    finding = found(stage, "gpu.spin-deadlock")
    plan = await acting.plan(acting.requests(finding, offered(finding))[0])
    assert isinstance(plan, Plan)
    is_waiting = "memory@spark1"
    run = await acting.run(plan, abort=lambda run: any(
        one.step.id == is_waiting and one.state is StepState.RUNNING for one in run.steps
    ))  # fmt: skip
    assert run.state is RunState.ABORTED
    assert run.can_go_back
    rollback = acting.operations.rollback(run)
    assert rollback is not None
    assert (await acting.run(rollback)).state is RunState.DONE
    stage.run(stage.t + 120)
    assert not [one.rule for one in stage.firing() if one.severity is Severity.CRITICAL]
    await acting.aclose()


def test_somebody_s_lock_holds_the_scenario() -> None:
    """From the moment that somebody takes a node nothing mends itself: what they see is what they change."""
    stage = Stage("spin-deadlock").run(150)
    stage.do(acts.hold()).run(300)
    assert stage.firing("gpu.spin-deadlock")
