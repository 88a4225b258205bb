"""How long a kernel line matters, and what the rest of the picture adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.kernel_support import (
    ASKS_NOTHING,
    ASKS_REBOOT,
    CORRECTED,
    DISK,
    HOUR_S,
    KILL,
    LINK,
    NO_MEMORY,
    NOT_STARTED,
    SEGFAULT,
    STUCK,
    XID_13,
    XID_43,
    XID_79,
    XID_119,
    XID_120,
    log,
)
from tests.pictures_support import (
    BOOT_S,
    NOW_S,
    WALL_S,
    claims,
    container,
    engine,
    idle_node,
    network,
    node,
    picture,
    process,
    rules_on,
)
from tests.table import over

from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.rule import LiveRule
from sparktop.model.engine import EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import GpuReading, Interface

RULES = rules_on("kernel")


def told(fleet: FleetState) -> list[tuple[str, Severity]]:
    return [(finding.rule.removeprefix("kernel."), finding.severity) for finding in claims(RULES, fleet)]


def one(events: Sequence[KernelEvent], **more: Any) -> FleetState:
    return picture(node(kernel_events=tuple(events), **more))


NO_GPU = GpuReading(boot_s=BOOT_S)
DOWN = network(interfaces=(Interface(name="enp1s0f0np0", is_up=False),))
C, W, I = Severity.CRITICAL, Severity.WARNING, Severity.INFO  # noqa: E741


@over(
    "fleet, expected",
    [
        (picture(), []),
        (one(log(XID_43)), [("xid-43", C)]),
        (one(log(XID_43, ago_s=3 * HOUR_S)), [("xid-43", I)]),
        (one(log(XID_43, ago_s=30 * HOUR_S)), []),
        (one(log(XID_43, ago_s=600), engines=(engine(started_boot_s=BOOT_S - 60),)), [("xid-43", I)]),
        (one(log(XID_79, ago_s=50 * HOUR_S)), [("xid-79", C)]),
        (one(log(XID_120, ago_s=50 * HOUR_S)), [("xid-120", C)]),
        (one(log(XID_119, ago_s=3 * HOUR_S)), [("xid-119", I)]),
        (one(log(XID_119, ago_s=3 * HOUR_S), gpu=NO_GPU), [("xid-119", C)]),
        (one(log(ASKS_REBOOT, ago_s=30 * HOUR_S)), [("xid-154", C)]),
        (one(log((ASKS_REBOOT, 5000.0), (ASKS_NOTHING, 4000.0))), [("xid-154", I)]),
        (one(log(LINK + "down")), []),  # its carrier is there: the line is out of date
        (one(log(LINK + "down"), network=None), [("link-down", W)]),
        (one(log(LINK + "down", ago_s=9 * HOUR_S), network=None), [("link-down", I)]),
        (one(log(LINK + "down", ago_s=9 * HOUR_S), network=DOWN), [("link-down", W)]),
        (one(log(LINK + "down", LINK + "up"), network=DOWN), []),
        (one(log(LINK + "up", LINK + "down"), network=DOWN), [("link-down", W)]),
        (one(log(LINK + "down", ago_s=BOOT_S - 20.0), network=DOWN), []),
        (one(log(NOT_STARTED, ago_s=9 * HOUR_S), gpu=NO_GPU), [("nvrm-init-failed", C)]),
        (one(log(NOT_STARTED, ago_s=60)), []),
        (one(log(DISK, ago_s=9 * HOUR_S)), [("nvme-dead", C)]),
        (one(log(KILL, ago_s=60)), [("oom-kill", C)]),
        (one(log(KILL, ago_s=2 * HOUR_S)), [("oom-kill", I)]),
        (one(log(STUCK, ago_s=60)), [("hung-task", C)]),
        (one(log(STUCK, ago_s=HOUR_S)), [("hung-task", I)]),
        (one(log(STUCK, ago_s=HOUR_S), processes=(process(1234, "python3", state="D"),)), [("hung-task", C)]),
        (one(log(SEGFAULT, ago_s=60)), [("segfault", I)]),
        (one(log(SEGFAULT, ago_s=HOUR_S)), []),
        (one(log(CORRECTED, ago_s=HOUR_S)), []),
    ],
)
def test_how_long_it_holds(fleet: FleetState, expected: list[tuple[str, Severity]]) -> None:
    assert told(fleet) == expected
    assert all(WALL_S - 60 * HOUR_S < (finding.since_wall_s or 0) <= WALL_S for finding in claims(RULES, fleet))


@over(
    "count, available_gib, severity",
    [
        (1, 4.0, I),
        (5, 30.0, W),
        (5, 4.0, C),
        (12, 30.0, W),
        (12, 12.0, C),
        (12, 3.0, C),
    ],
)
def test_refused_allocations_by_number_and_by_what_is_left(
    count: int, available_gib: float, severity: Severity
) -> None:
    fleet = one(log(*[NO_MEMORY] * count, every_s=0.5, ago_s=20), available_gib=available_gib)
    (finding,) = claims(RULES, fleet)
    assert (finding.rule, finding.severity) == ("kernel.nvrm-no-memory", severity)
    assert f"{available_gib:.1f} GiB" in finding.brief
    if severity is C:
        assert finding.remedies[0].action == "stop-engine"
    assert told(one(log(NO_MEMORY, ago_s=HOUR_S), available_gib=4.0)) == []


@over("available_gib, severity", [(110.0, I), (12.0, C)])
def test_refusals_are_over_a_minute_later_where_memory_is_to_spare(available_gib: float, severity: Severity) -> None:
    (finding,) = claims(RULES, one(log(*[NO_MEMORY] * 12, every_s=0.5, ago_s=80), available_gib=available_gib))
    assert finding.severity is severity
    assert bool(finding.remedies) is (severity is C), "what is over asks for nothing"


def test_what_was_said_last_comes_first_and_one_that_goes_on_says_when_it_was_last() -> None:
    fleet = one(log((XID_43, 1500.0), (XID_43, 1200.0), (XID_79, 3.0)))
    assert [finding.rule for finding in claims(RULES, fleet)] == ["kernel.xid-79", "kernel.xid-43"]
    assert [finding.figures for finding in claims(RULES, fleet)] == ["", "last 20 min ago"]


def test_an_engine_is_named_by_its_process() -> None:
    (finding,) = claims(RULES, one(log(XID_43)))
    assert "VLLM::EngineCor in vllm-qwen36" in finding.title
    box = container("vllm-other")
    other = engine("vllm-other", container=box, pids=(5,))
    event = XID_43.replace("77352", "91").replace("VLLM::EngineCor", "python3")
    table = (process(91, "python3", container_id=box.container_id),)
    (finding,) = claims(RULES, one(log(event), engines=(engine(), other), processes=table))
    assert "python3 in vllm-other" in finding.title


@over("container_id, is_named", [("", True), (container().container_id, True), ("9" * 64, False)])
def test_a_kill_in_a_container_is_that_container_s_or_nobody_s(container_id: str, is_named: bool) -> None:
    """Both were removed since, and an engine of the same kind serves."""
    killed = {"pid": 4, "process": "VLLM::EngineCor", "container_id": container_id or None}
    events = tuple(replace(event, **killed) for event in log(KILL))
    (finding,) = claims(RULES, one(events))
    assert ("vllm-qwen36" in finding.title) is is_named


def test_what_follows_hangs_under_its_cause_and_history_causes_nothing() -> None:
    first, second = claims(RULES, one(log(XID_13, XID_43)))
    assert (first.caused_by, second.caused_by) == (None, "kernel.xid-13")
    fleet = one(log((XID_13, 5 * HOUR_S), (XID_43, 5.0)))
    assert [(finding.severity, finding.caused_by) for finding in claims(RULES, fleet)] == [
        (C, None),
        (I, None),
    ]
    # Another rule that names "kernel.xid" as its cause means any of them that is news.
    rule = LiveRule(
        id="gpu.test", check=lambda _: [Finding(rule="gpu.test", severity=C, title="t", nodes=("spark1",))],
        follows=("kernel.xid",),
    )  # fmt: skip
    diagnosis = Diagnosis((*RULES, rule))
    diagnosis.update(fleet)
    shown = diagnosis.update(replace(fleet, monotonic_s=NOW_S + 3.0, wall_s=WALL_S + 3.0))
    assert [finding.caused_by for finding in shown if finding.rule == "gpu.test"] == ["kernel.xid-43"]


def test_an_oom_kill_says_who_holds_the_most() -> None:
    (finding,) = claims(RULES, one(log(KILL)))
    assert "dockerd" in finding.title
    assert "vllm-qwen36 holds the most" in finding.evidence[-1].text
    (quiet,) = claims(RULES, picture(idle_node(kernel_events=log(KILL))))
    assert quiet.rule == "kernel.oom-kill"


@over(
    "state, restarts, severity",
    [
        (EngineState.SERVING, 0, I),
        (EngineState.LOADING, 0, C),
        (EngineState.SERVING, 3, C),
    ],
    ids=["relaunched by somebody, and serves", "not yet", "its policy has restarted it"],
)
def test_an_oom_kill_is_history_once_the_engine_in_its_place_serves(
    state: EngineState, restarts: int, severity: Severity
) -> None:
    aside = container("vllm-a-before-20261124T043443", status="exited", exit_code=137, finished_wall_s=WALL_S - 300)
    killed = engine(aside.name, container=aside, state=EngineState.EXITED, pids=(), exited_wall_s=WALL_S - 300)
    now = engine(
        "vllm-a", state=state, started_boot_s=BOOT_S - 100, container=container("vllm-a", restart_count=restarts)
    )
    box = {"container_id": aside.container_id, "container": "vllm-a"}  # as a picture names one that was set aside
    events = tuple(replace(event, **box) for event in log(KILL, ago_s=300))
    for engines in ((killed, now), (now,)):
        (finding,) = claims(RULES, one(events, engines=engines))
        assert finding.severity is severity
    (alone,) = claims(RULES, one(events, engines=(killed,)))
    assert alone.severity is C, "nothing took its place"


def test_the_same_on_both_nodes_at_once_is_one_finding() -> None:
    def both(later_s: float) -> list[Finding]:
        return claims(
            RULES,
            picture(
                node("spark1", kernel_events=log(XID_13)), node("spark2", kernel_events=log(XID_13, ago_s=5 + later_s))
            ),
        )

    (together,) = both(1.0)
    assert together.nodes == ("spark1", "spark2")
    assert {evidence.source for evidence in together.evidence} == {"spark1 kernel log", "spark2 kernel log"}
    assert [finding.nodes for finding in both(30.0)] == [("spark1",), ("spark2",)]


def test_a_full_log_costs_little() -> None:
    """500 incidents of two kinds, hours apart: bounded work (no time is asserted, only that it comes to an end)."""
    lines = [(text, 80_000.0 - index * 300.0) for index in range(250) for text in (XID_13, XID_43)]
    assert len(told(one(log(*lines)))) == 2


def test_what_starvation_led_to_hangs_under_it() -> None:
    rule = LiveRule(
        id="memory.falling",
        check=lambda _: [Finding(rule="memory.falling", severity=C, title="t", nodes=("spark1",))],
    )
    diagnosis = Diagnosis((*RULES, rule))
    fleet = one(log(KILL), available_gib=0.8)
    diagnosis.update(fleet)
    shown = diagnosis.update(replace(fleet, monotonic_s=NOW_S + 3.0, wall_s=WALL_S + 3.0))
    assert [(finding.rule, finding.caused_by) for finding in shown] == [
        ("memory.falling", None),
        ("kernel.oom-kill", "memory.falling"),
    ]
