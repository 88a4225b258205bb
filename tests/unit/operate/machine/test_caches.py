"""Dropping caches: what is run, what is said that it won't help, and who may."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import GIB, engine, gib, idle_node, memory, node, picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import (
    FREE,
    SPARK,
    SYSCTL,
    ids,
    operations,
    planned,
    refused,
    step,
    warned,
)

from sparktop.model.engine import EngineState
from sparktop.model.finding import Finding, Severity
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Privileges
from sparktop.operate.acts.arrivals import AwaitResolved
from sparktop.operate.machine import caches
from sparktop.operate.step.plan import OnFailure, Plan


def ask(*nodes: str, finding: Finding | None = None) -> Request:
    return Request(action="drop-caches", nodes=nodes or ("spark1",), finding=finding)


def test_one_node() -> None:
    plan = planned(caches, ask(), picture(idle_node("spark1", cache_gib=29.0)), privileges=FREE)
    compare_plan("drop-caches-one", plan)
    assert ids(plan) == ["sync", "drop"]
    assert isinstance(plan, Plan)
    assert plan.risk is Risk.SAFE
    (sync,), (drop,) = operations(plan, "sync"), operations(plan, "drop")
    assert (sync.argv, sync.privilege) == (("/usr/bin/sync",), Privilege.USER)
    assert (drop.argv, drop.privilege) == (SYSCTL, Privilege.ROOT)
    assert step(plan, "sync").on_failure is OnFailure.GO_ON, "a disk that hangs is no reason to drop nothing"
    assert step(plan, "drop").on_failure is OnFailure.STOP
    assert "MemAvailable hardly changes" in plan.effect
    assert "on spark1" in plan.effect
    assert step(plan, "drop").act.commands() == ("sudo sysctl -w vm.drop_caches=3",)


def test_two_nodes_have_steps_of_their_own() -> None:
    plan = planned(caches, ask("spark1", "spark2"), picture())
    compare_plan("drop-caches-two", plan)
    assert ids(plan) == ["sync@spark1", "drop@spark1", "sync@spark2", "drop@spark2"]
    assert isinstance(plan, Plan)
    assert plan.nodes == ("spark1", "spark2")


WEDGED = "belong to no process"


@over(
    "pictured, said, unsaid",
    [
        (picture(idle_node("spark1", cache_gib=29.0)), "", "will not help"),
        (
            picture(idle_node("spark1", memory=memory(116.0, cache_gib=1.0, anonymous_bytes=gib(1.4)))),
            "spark1: only",
            "loading",
        ),
        (
            picture(node("spark1", cache_gib=9.0)),
            "GPU processes hold 90.1 GiB, most in vllm-qwen36",
            WEDGED,
        ),
        (picture(idle_node("spark1", available_gib=60.0, cache_gib=9.0)), WEDGED, "will not help"),
        (
            picture(node("spark1", engines=(engine(state=EngineState.LOADING),))),
            "vllm-qwen36 is loading",
            "will not help",
        ),
    ],
)
def test_what_it_will_not_help(pictured: FleetState, said: str, unsaid: str) -> None:
    text = warned(planned(caches, ask(), pictured, privileges=FREE))
    assert said in text
    assert unsaid not in text


def test_it_is_doubted_where_another_process_holds_the_memory_that_a_finding_misses() -> None:
    view = node("spark1", engines=(), cache_gib=9.0)
    assert view.ledger is not None
    held = tuple(
        replace(holder, kind="gpu", label="python3", held_bytes=58 * GIB) for holder in view.ledger.holders[:1]
    )
    pictured = picture(replace(view, ledger=replace(view.ledger, holders=held)))
    short = Finding(rule="memory.short", severity=Severity.CRITICAL, title="t", nodes=("spark1",))
    plan = planned(caches, ask(finding=short), pictured, privileges=FREE)
    assert isinstance(plan, Plan)
    assert plan.expected_failure.startswith("python3 holds ")
    assert plan.warnings[0] == plan.expected_failure
    without = planned(caches, ask(), pictured, privileges=FREE)
    assert isinstance(without, Plan)
    assert without.expected_failure == "", "whoever asks for it without a finding knows why"


def test_it_is_doubted_where_the_driver_has_kept_memory() -> None:
    view = idle_node("spark1", cache_gib=29.0)
    assert view.ledger is not None
    lost = replace(view, ledger=replace(view.ledger, unaccounted_bytes=34 * GIB))
    apart = Finding(rule="cluster.memory-apart", severity=Severity.WARNING, title="t", nodes=("spark1",))
    plan = planned(caches, ask(finding=apart), picture(lost), privileges=FREE)
    assert isinstance(plan, Plan)
    assert plan.expected_failure.startswith("spark1: 34.0 GiB")
    assert plan.warnings.count(plan.expected_failure) == 1


def test_the_line_that_would_spare_the_password() -> None:
    text = warned(planned(caches, ask(), picture(idle_node("spark1", cache_gib=29.0)), privileges=SPARK))
    assert "spark's password" in text
    assert "spark ALL=(root) NOPASSWD: /usr/sbin/sysctl -w vm.drop_caches\\=3" in text


@over(
    "second, reason",
    [
        (Privileges(user="spark", sudo="denied"), "sudo on spark2 doesn't allow this for spark"),
        (Privileges(user="spark", sudo="missing"), "there is no sudo"),
        (Privileges(user="spark", sudo="tty"), "needs a terminal"),
        (None, "spark2 could not be asked"),
    ],
)
def test_it_is_refused_where_root_cannot_be_had(second: Privileges | None, reason: str) -> None:
    found = planned(caches, ask("spark1", "spark2"), picture(), privileges={"spark1": FREE, "spark2": second})
    assert reason in refused(found)


def test_a_picture_without_a_sample_is_planned_all_the_same() -> None:
    plan = planned(caches, ask(), picture(replace(node("spark1"), sample=None, ledger=None)))
    assert ids(plan) == ["sync", "drop"]


def test_the_finding_it_was_to_mend_is_looked_at() -> None:
    finding = Finding(rule="memory.held-after-exit", title="page cache", severity=Severity.INFO, nodes=("spark1",))
    plan = planned(caches, ask(finding=finding), picture())
    compare_plan("drop-caches-for-a-finding", plan)
    assert ids(plan) == ["sync", "drop", "resolved"]
    assert step(plan, "resolved").act == AwaitResolved(findings=(finding.key,))


def test_what_a_log_said_is_not_waited_for() -> None:
    finding = Finding(rule="log.no-free-memory", title="x", severity=Severity.CRITICAL, nodes=("spark1",))
    plan = planned(caches, ask(finding=finding), picture())
    assert ids(plan) == ["sync", "drop"]
    assert "starts again" in warned(plan)


def test_the_boundary_of_little() -> None:
    just = memory(60.0, cached_bytes=gib(4.0), shared_bytes=0, slab_reclaimable_bytes=0)
    assert just.page_cache_bytes == 4 * GIB
    text = warned(planned(caches, ask(), picture(idle_node("spark1", memory=just)), privileges=FREE))
    assert "will not help" not in text
