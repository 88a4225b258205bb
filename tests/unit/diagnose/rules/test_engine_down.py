"""Live rules on engines that are down: whoever stopped them is named, and what starts them again is offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.pictures_support import WALL_S, claims, container, engine, idle_node, link, only, picture, rules_on
from tests.table import over

from sparktop.diagnose.ended_by import stop_cause
from sparktop.documents.engine_table import engine_rows, state_cell
from sparktop.model.change import SMALLER_SHARE, Change
from sparktop.model.engine import Engine, EngineState, LogFacts, Served
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, Intervention, LinkState
from sparktop.model.guard import GuardPhase, GuardState

SERVED = Served(wall_s=WALL_S - 42.0, requests=2)
BOX = container()


def ended(code: int = 143, *, ago_s: float = 40.0, served: Served | None = SERVED, **more: Any) -> Engine:
    place = replace(BOX, status="exited", exit_code=code, finished_wall_s=WALL_S - ago_s)
    made = engine(state=EngineState.EXITED, container=place, metrics=None, rates=None, gpu_bytes=None, pids=())
    return replace(made, endpoint=None, served=served, exited_wall_s=WALL_S - ago_s, log=None, **more)


def stop(action: str = "stop-engine", **more: Any) -> Intervention:
    made = Intervention(
        node="spark1", containers=(BOX.container_id,), action=action, began_wall_s=WALL_S - 42.0,
        ended_wall_s=WALL_S - 39.0, is_meant=action == "stop-engine",
    )  # fmt: skip
    return replace(made, **more)


def said(*engines: Engine, **more: Any) -> list[Finding]:
    return claims(rules_on("restart", "engine"), fleet(*engines, **more))


def fleet(*engines: Engine, **more: Any) -> FleetState:
    return picture(idle_node(engines=engines), **more)


@over("code", [0, 1, 130, 137, 139, 143])
def test_a_stop_of_ours_is_told_as_ours_whatever_the_exit_code(code: int) -> None:
    found = only(said(ended(code), interventions=(stop(),)))
    assert (found.rule, found.severity, found.title) == (
        "engine.down", Severity.INFO, "vllm-qwen36 is down: stopped by you",
    )  # fmt: skip
    assert [remedy.action for remedy in found.remedies] == ["safe-restart"]
    assert found.since_wall_s == pytest.approx(WALL_S - 40.0, abs=0.5)


@over(
    "by, words",
    [
        (stop(), "stopped by you (40 s ago)"),
        (stop(who="ada@desk"), "stopped by ada@desk (40 s ago)"),
        (stop("safe-restart"), "your safe restart left it stopped (40 s ago)"),
        (stop("safe-restart", is_under_way=True), "your safe restart is in progress"),
        (stop(is_under_way=True), "your stop is in progress"),
        (stop("break-restart-loop", is_under_way=True), "your stop of its restart loop is in progress"),
        (stop("reboot", containers=()), "down since your reboot (40 s ago)"),
        (stop(node="spark2"), ""),
    ],
)
def test_the_engine_table_tells_an_ending_as_the_finding_does(by: Intervention, words: str) -> None:
    seen = fleet(ended(137), interventions=(by,))
    (row,) = engine_rows(seen)
    assert stop_cause(seen.nodes[0], seen.nodes[0].engines[0], seen) == words
    assert row.engine.exit_detail == words
    assert state_cell(row).plain == ("– stopped" if words else "✖ exited 137"), "no failure, where it was meant"
    title = only(claims(rules_on("restart", "engine"), seen)).title
    assert words.removeprefix("down ").partition(" (")[0] in title


def test_the_engine_table_names_the_guard_that_killed_an_engine() -> None:
    guard = GuardState(
        phase=GuardPhase.FIRED, container_id=BOX.container_id, container_name=BOX.name, since_wall_s=WALL_S - 40.0
    )
    (node,) = fleet(ended(137)).nodes
    (row,) = engine_rows(picture(replace(node, guard=guard)))
    assert row.engine.exit_detail == "killed by the guard (40 s ago)"
    assert stop_cause(node, engine(), picture(node)) == "", "it runs"


def test_another_console_is_named_and_its_stop_is_a_warning() -> None:
    found = only(said(ended(137), interventions=(stop(who="ada@desk"),)))
    assert (found.severity, found.title) == (Severity.WARNING, "vllm-qwen36 is down: stopped by ada@desk")


def test_a_run_that_goes_on_is_a_note_and_one_that_failed_an_alarm() -> None:
    restart = stop("safe-restart", is_under_way=True)
    found = only(said(ended(137), interventions=(restart,)))
    assert (found.severity, found.title) == (
        Severity.INFO, "vllm-qwen36 is down: your safe restart is in progress; it had 2 requests",
    )  # fmt: skip
    found = only(said(ended(137), interventions=(replace(restart, is_under_way=False),)))
    assert (found.severity, found.title) == (
        Severity.CRITICAL, "vllm-qwen36 is down: your safe restart left it stopped; it had 2 requests",
    )  # fmt: skip


@over(
    "other",
    [
        stop(node="spark2"),
        stop(containers=("f" * 64,)),
        stop(began_wall_s=WALL_S - 400, ended_wall_s=WALL_S - 390),
        stop(began_wall_s=WALL_S - 20, ended_wall_s=WALL_S - 10),
    ],
    ids=["another node", "another container", "long before", "after it"],
)
def test_a_stop_of_something_else_explains_nothing(other: Intervention) -> None:
    assert only(said(ended(137), interventions=(other,))).rule == "restart.exit-137"


def test_a_loop_that_was_broken_between_two_runs_is_down_by_us() -> None:
    broken = stop("break-restart-loop", began_wall_s=WALL_S - 20, ended_wall_s=WALL_S - 10, is_meant=True)
    assert only(said(ended(1), interventions=(broken,))).title == "vllm-qwen36 is down: stopped by you"


def test_what_served_is_missed_whoever_stopped_it() -> None:
    found = only(said(ended(143)))
    assert (found.severity, found.title) == (
        Severity.CRITICAL, "vllm-qwen36 is down: stopped from outside; it had 2 requests",
    )  # fmt: skip
    by_log = replace(ended(0, served=None), log=LogFacts(has_served=True))
    assert only(said(by_log)).severity is Severity.WARNING
    early = only(said(ended(143, served=None)))
    assert (early.severity, early.title) == (
        Severity.INFO, "vllm-qwen36 is down: stopped from outside before it served",
    )  # fmt: skip
    assert not said(ended(143, served=None, ago_s=700.0)), "it never served: nobody misses it"
    assert not said(ended(0, served=None))
    assert only(said(ended(143, ago_s=7200.0, served=replace(SERVED, wall_s=WALL_S - 7201)))).rule == "engine.down"


def test_a_failure_of_what_served_is_told_until_it_runs_again() -> None:
    found = only(said(ended(1, ago_s=7200.0, served=replace(SERVED, wall_s=WALL_S - 7201))))
    assert (found.rule, found.title) == (
        "restart.failed", "vllm-qwen36 is down: it failed (exit code 1); it had 2 requests",
    )  # fmt: skip
    assert found.remedies[-1].title == "Start it again"
    assert found.severity is Severity.CRITICAL, "requests were lost with it"
    idle = replace(SERVED, wall_s=WALL_S - 7201, requests=0)
    assert only(said(ended(1, ago_s=7200.0, served=idle))).severity is Severity.WARNING
    assert not said(ended(1, ago_s=7200.0, served=None))


def test_an_engine_that_ended_with_the_machine_is_down_since_the_reboot() -> None:
    (node,) = fleet(ended(137)).nodes
    assert node.sample is not None
    young = replace(node, sample=replace(node.sample, boot_s=20.0))
    found = only(claims(rules_on("restart", "engine"), picture(young)))
    assert (found.rule, found.severity, found.title) == (
        "engine.down", Severity.CRITICAL, "vllm-qwen36 is down since the reboot; it had 2 requests",
    )  # fmt: skip
    ours = Intervention(node="spark1", action="reboot", began_wall_s=WALL_S - 60, ended_wall_s=WALL_S - 50)
    found = only(claims(rules_on("restart", "engine"), picture(young, interventions=(ours,))))
    assert found.title == "vllm-qwen36 is down since your reboot; it had 2 requests"


def test_what_a_panic_ended_is_down_since_the_reboot_however_late_docker_says_so() -> None:
    """Docker 26 after a panic: exit code 255, stamped 142 s after the boot; the machine took long to start it."""
    late = ended(255)
    assert late.container is not None
    late = replace(late, container=replace(late.container, started_wall_s=WALL_S - 500.0))
    (node,) = fleet(late).nodes
    assert node.sample is not None
    young = replace(node, sample=replace(node.sample, boot_s=182.0))
    found = only(claims(rules_on("restart", "engine"), picture(young)))
    assert (found.rule, found.title) == ("engine.down", "vllm-qwen36 is down since the reboot; it had 2 requests")
    assert stop_cause(young, late, picture(young)) == "down since the reboot (40 s ago)"


def test_an_end_that_docker_tells_before_the_first_sample_of_a_new_boot_waits_for_that() -> None:
    (node,) = fleet(ended(255)).nodes
    assert node.sample is not None
    before = replace(node.sample, wall_s=node.sample.wall_s - 300.0)
    assert not claims(rules_on("restart", "engine"), picture(replace(node, sample=before, link=link(LinkState.LOST))))
    assert claims(rules_on("restart", "engine"), picture(replace(node, sample=before)))


def test_what_failed_before_our_reboot_is_not_down_since_the_reboot() -> None:
    (node,) = fleet(ended(1, ago_s=100.0, served=replace(SERVED, wall_s=WALL_S - 101))).nodes
    assert node.sample is not None
    young = replace(node, sample=replace(node.sample, boot_s=20.0))
    ours = Intervention(node="spark1", action="reboot", began_wall_s=WALL_S - 60, ended_wall_s=WALL_S - 50)
    found = only(claims(rules_on("restart", "engine"), picture(young, interventions=(ours,))))
    assert found.title == "vllm-qwen36 is down: it failed (exit code 1); it had 2 requests"
    found = only(claims(rules_on("restart", "engine"), picture(young)))
    assert found.rule == "engine.down", "of another's reboot nobody knows when it began"


@over(
    "began_ago_s, up_s, title",
    [
        (60.0, 20.0, "vllm-qwen36 is down since your reboot; it had 2 requests"),
        (60.0, 4 * 86400.0, "vllm-qwen36 is down since your reboot; it had 2 requests"),
        (3600.0, 4 * 86400.0, "vllm-qwen36 is down: stopped from outside; it had 2 requests"),
        (86400.0, 86340.0, "vllm-qwen36 is down: stopped from outside; it had 2 requests"),
        (86400.0, 7200.0, "vllm-qwen36 is down: stopped from outside; it had 2 requests"),
    ],
    ids=["with it", "while it goes down", "it never went down", "a day after it", "and after another one"],
)
def test_a_reboot_of_ours_ends_only_what_ended_with_it(began_ago_s: float, up_s: float, title: str) -> None:
    (node,) = fleet(ended(143)).nodes
    assert node.sample is not None
    node = replace(node, sample=replace(node.sample, boot_s=up_s))
    began_s = WALL_S - began_ago_s
    ours = Intervention(node="spark1", action="reboot", began_wall_s=began_s, ended_wall_s=began_s + 5)
    assert only(claims(rules_on("restart", "engine"), picture(node, interventions=(ours,)))).title == title


def test_a_kill_of_ours_has_a_known_sender() -> None:
    killed = replace(ended(137), exit_detail="killed by SIGKILL, sender unknown (exit code 137)")
    (told,) = only(said(killed)).evidence[:1]
    ours = only(claims(rules_on("restart", "engine"), fleet(killed, interventions=(stop(),))))
    assert "exit code 137" in told.text
    assert ours.evidence[0].text.startswith("vllm-qwen36: exit code 137, restart policy")


def test_what_a_running_engine_replaces_is_not_missed() -> None:
    again = engine(container=container(container_id="a" * 64))
    assert not said(ended(137), again), "of the same name"
    renamed = replace(engine("vllm-new", container=container("vllm-new")), endpoint=None)
    assert not said(ended(137), replace(renamed, uptime_s=30.0)), "with the same model, started after the end"
    for other in (renamed, replace(renamed, model="tiny", uptime_s=30.0)):
        assert only(said(ended(137), other)).subject == "vllm-qwen36", "a replica; another model"


DIED = LogFacts(failure="EngineDeadError: EngineCore encountered an issue", has_served=True)
REASON = Finding(rule="vllm.engine-died", severity=Severity.CRITICAL, title="its core died")


@over(
    "log, rule",
    [
        (DIED, "restart.failed"),
        (replace(DIED, is_stopping=True, findings=(REASON,)), "restart.failed"),
        (replace(DIED, is_stopping=True), "engine.down"),
        (replace(DIED, failure=""), "engine.down"),
    ],
    ids=["died", "died, then shut down", "told to stop: its core's end is part of that", "nothing logged"],
)
def test_of_an_exit_with_0_the_log_decides(log: LogFacts, rule: str) -> None:
    over = replace(ended(0), log=log)
    found = only(one for one in said(over) if one.rule != REASON.rule)
    assert (found.rule, found.severity) == (rule, Severity.CRITICAL)
    assert "2 requests" in found.title
    (row,) = engine_rows(fleet(over))
    assert state_cell(row).plain.startswith("✖" if rule == "restart.failed" else "–")
    assert found.caused_by == (REASON.rule if log.findings else None)


def test_a_container_that_a_relaunch_set_aside_is_the_engine_it_was() -> None:
    aside = replace(ended(137), name="vllm-qwen36-before-20261123T031211")
    assert only(said(aside)).title.startswith("vllm-qwen36 is down: it was killed")
    assert [one.subject for one in said(aside, ended(1))] == ["vllm-qwen36"]


EAGER = Remedy(
    title="Relaunch without graphs", action="relaunch", change=Change(flags={"--enforce-eager": ""}), cost="speed"
)
SPIKE = Finding(
    rule="memory.first-request-spike", severity=Severity.CRITICAL, title="Spike", nodes=("spark1",),
    subject="vllm-qwen36", remedies=(Remedy(title="Stop it", action="stop-engine"), EAGER),
)  # fmt: skip


def test_the_remedy_of_what_it_was_stopped_for_stays_offered() -> None:
    before = fleet(ended(137), interventions=(stop(),), findings=(SPIKE,))
    found = only(claims(rules_on("restart", "engine"), before))
    assert [remedy.title for remedy in found.remedies] == [EAGER.title, "Start it again"]
    later = replace(before, findings=(found,))
    assert only(claims(rules_on("restart", "engine"), later)).remedies == found.remedies, "the spike is long forgotten"
    old = replace(SPIKE, phase=Phase.RESOLVED, resolved_wall_s=WALL_S - 200)
    assert len(only(said(ended(137), interventions=(stop(),), findings=(old,))).remedies) == 1


@over("order", [1, -1])
def test_a_removed_container_hides_nothing_of_the_one_that_took_its_name(order: int) -> None:
    gone = ended(0, ago_s=600.0, served=None, key="gone")
    gone = replace(gone, container=replace(gone.container, container_id="f" * 64, is_gone=True, exit_code=None))
    found = only(said(*(ended(137), gone)[::order]))
    assert "2 requests" in found.title, found.title
    assert "removed" not in found.title


@over("is_gone", [False, True])
def test_the_remedy_of_a_lesser_problem_stands_behind_the_start(is_gone: bool) -> None:
    monitor = replace(EAGER, title="Switch Ray's memory monitor off", change=Change(environment={"RAY": "0"}))
    settings = replace(SPIKE, rule="config.ray-memory-monitor", severity=Severity.WARNING, remedies=(monitor,))
    stopped = ended(143)
    assert stopped.container is not None
    stopped = replace(stopped, container=replace(stopped.container, is_gone=is_gone))
    before = fleet(stopped, findings=(settings, SPIKE))
    found = only(claims(rules_on("restart", "engine"), before))
    titles = [remedy.title for remedy in found.remedies]
    assert titles == [EAGER.title, "Start it again", monitor.title]
    later = replace(before, findings=(found,))
    assert only(claims(rules_on("restart", "engine"), later)).remedies == found.remedies


def test_the_remedy_of_memory_short_on_the_whole_node_is_its_only_engines() -> None:
    smaller = replace(EAGER, title="Reduce the engine's share", change=SMALLER_SHARE)
    short = replace(SPIKE, rule="memory.pressure", severity=Severity.WARNING, subject="", remedies=(smaller,))
    found = only(said(ended(137), interventions=(stop(),), findings=(short,)))
    assert [remedy.title for remedy in found.remedies] == [smaller.title, "Start it again"]
    again = replace(smaller, title="Free memory, or reduce the engine's share")
    twice = replace(short, rule="memory.low", remedies=(again,))
    found = only(said(ended(137), interventions=(stop(),), findings=(short, twice)))
    assert [remedy.title for remedy in found.remedies] == [smaller.title, "Start it again"], "one change, once"
    held = replace(short, rule="memory.held-after-exit", blocks_starts=True)
    assert len(only(said(ended(137), interventions=(stop(),), findings=(held,))).remedies) == 1, "until it is free"
    elsewhere = replace(short, nodes=("spark2",))
    assert len(only(said(ended(137), interventions=(stop(),), findings=(elsewhere,))).remedies) == 1


def test_a_removed_container_is_launched_by_hand() -> None:
    gone = ended(137)
    assert gone.container is not None
    found = only(said(replace(gone, container=replace(gone.container, is_gone=True, exit_code=None))))
    assert "its container was removed" in found.title
    assert "--rm" not in found.explanation
    with_rm = replace(gone.container, is_gone=True, exit_code=None, auto_remove=True)
    lost = only(said(replace(gone, container=with_rm)))
    assert "started with --rm, and Docker removed its exit code and log" in lost.title
    assert "Start it without --rm" in lost.explanation
    assert [remedy.action for remedy in found.remedies] == [None]
