"""Bursts fold into incidents, the lines of one OOM kill into one kill, and a consequence names its cause."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.kernel import incident, line
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.telemetry import LogLine

CONTAINER = "4f1d5c0b7a9e8d2c6b3a1f0e9d8c7b6a5f4e3d2c1b0a9f8e7d6c5b4a39281706"
XID_13 = "NVRM: Xid (PCI:000f:01:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Misaligned Address"
XID_13_GLOBAL = (
    "NVRM: Xid (PCI:000f:01:00): 13, Graphics SM Global Exception on (GPC 0, TPC 1, SM 0): Multiple Warp Errors"
)
XID_43 = "NVRM: Xid (PCI:000f:01:00): 43, pid=74059, name=train_gpt2_bf16, channel 0x00000002"
XID_45 = "NVRM: Xid (PCI:000f:01:00): 45, pid=74059, name=train_gpt2_bf16, channel 0x00000002"
XID_79 = "NVRM: Xid (PCI:000f:01:00): 79, pid={pid}, name={name}, GPU has fallen off the bus."
XID_154 = "NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
NO_MEMORY = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x @ m.c:1"
)
CALLED = "VLLM::Worker_TP invoked oom-killer: gfp_mask=0x102cc2(GFP_HIGHUSER), order=0, oom_score_adj=0"
CONSTRAINT = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg=/system.slice/docker-{CONTAINER}.scope,task=VLLM::EngineCor,pid=48213,uid=0"
)
KILLED = "Out of memory: Killed process 48213 (VLLM::EngineCor) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
REAPED = "oom_reaper: reaped process 48213 (VLLM::EngineCor), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB"


def event(text: str, boot_s: float | None = None, wall_s: float | None = None) -> KernelEvent:
    found = line.read(LogLine(text=text, boot_s=boot_s, wall_s=wall_s))
    assert found is not None
    return found


def folded(*lines: tuple[str, float | None]) -> tuple[KernelEvent, ...]:
    folder = incident.IncidentGrouper()
    for text, boot_s in lines:
        folder.add(event(text, boot_s))
    return folder.events


def test_xids_of_ever_new_codes_are_forgotten_with_their_incidents() -> None:
    folder = incident.IncidentGrouper(capacity=10)
    for code in range(1000, 1100):
        folder.add(event(f"NVRM: Xid (PCI:000f:01:00): {code}, something new", float(code)))
    assert len(folder.events) == 10
    assert list(folder._xids) == list(range(1090, 1100))
    assert len(folder._newest_by_key) == 10


def test_the_burst_of_the_field_log_is_one_crash() -> None:
    lines = [(XID_13_GLOBAL if index % 2 else XID_13, 5000.0 + index / 91) for index in range(91)]
    first, last = folded(*lines, (XID_43, 5001.2))
    assert (first.code, first.count, first.first_boot_s) == (13, 91, 5000.0)
    assert incident.describe(first) == "91 × Xid 13 in 1 s  graphics engine exception"
    assert (last.code, last.count, last.follows) == (43, 1, 13)
    assert incident.describe(last) == "Xid 43  GPU stopped processing, after Xid 13 (train_gpt2_bf16)"
    assert first.text == XID_13


def test_advice_gathers_what_the_lines_show() -> None:
    (only,) = folded((XID_13, 1.0), (XID_13_GLOBAL, 1.1))
    assert any("once per SM" in advice.meaning for advice in only.advice)
    assert len(only.advice) == len(set(only.advice))


@over("gap_s, incidents", [(179.0, 1), (180.0, 1), (181.0, 2)])
def test_three_minutes_of_silence_end_an_incident(gap_s: float, incidents: int) -> None:
    assert len(folded((XID_13, 100.0), (XID_13, 100.0 + gap_s))) == incidents


def test_silence_counts_from_the_last_line_not_the_first() -> None:
    (only,) = folded(*((XID_13, 100.0 * index) for index in range(10)))
    assert (only.count, only.first_boot_s, only.last_boot_s) == (10, 0.0, 900.0)
    assert incident.describe(only).startswith("10 × Xid 13 in 15 min")


def test_a_clock_that_starts_again_is_another_boot() -> None:
    before, after = folded((XID_13, 5000.0), (XID_13, 12.0))
    assert (before.first_boot_s, after.first_boot_s) == (5000.0, 12.0)


def test_wall_time_serves_where_there_is_no_boot_time() -> None:
    folder = incident.IncidentGrouper()
    for wall_s in (1.78e9, 1.78e9 + 30, 1.78e9 + 1000):
        folder.add(event(XID_13, wall_s=wall_s))
    assert [(each.count, incident.describe(each)) for each in folder.events] == [
        (2, "2 × Xid 13 in 30 s  graphics engine exception"),
        (1, "Xid 13  graphics engine exception"),
    ]


def test_without_any_time_the_same_is_one_incident() -> None:
    (only,) = folded((XID_13, None), (XID_13, None))
    assert incident.describe(only) == "2 × Xid 13  graphics engine exception"


def test_processes_are_kept_apart_unless_the_gpu_itself_failed() -> None:
    other = XID_43.replace("train_gpt2_bf16", "python3")
    assert len(folded((XID_43, 1.0), (other, 2.0))) == 2
    (lost,) = folded(
        (XID_79.format(pid=5344, name="gnome-shell"), 1.0),
        (XID_79.format(pid=99, name="python3"), 1.1),
        ("NVRM: GPU 000f:01:00.0: GPU has fallen off the bus.", 1.2),
    )
    assert (lost.code, lost.count, lost.process) == (79, 3, "gnome-shell")


def test_interleaved_floods_are_two_incidents() -> None:
    link = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link "
    lines = [(text, 500.0 + at) for at in range(20) for text in (XID_13, link + "down", link + "up")]
    assert [(each.kind, each.count) for each in folded(*lines)] == [("xid", 20), ("link", 20), ("link", 20)]


def test_two_devices_are_two_incidents() -> None:
    lines = [(f"mlx5_core 0000:01:00.{port} enp1s0f{port}np{port}: Link down", 500.0 + port) for port in (0, 1)]
    assert [each.headline for each in folded(*lines)] == ["link down  enp1s0f0np0", "link down  enp1s0f1np1"]


def test_consequences_name_the_newest_cause() -> None:
    events = folded((XID_13, 10.0), (XID_79.format(pid=1, name="a"), 20.0), (XID_154, 20.5), (XID_45, 21.0))
    assert [(each.code, each.follows) for each in events] == [(13, None), (79, None), (154, 79), (45, 79)]
    assert events[2].particulars.endswith(", after Xid 79")


def test_a_cause_long_ago_is_none() -> None:
    assert [each.follows for each in folded((XID_13, 10.0), (XID_45, 400.0))] == [None, None]


def test_what_the_line_says_stands() -> None:
    events = folded((XID_13, 10.0), (XID_45 + " caused by previous Xid 31", 11.0))
    assert events[1].follows == 31


def test_a_recovery_that_is_over_does_not_hide_one_that_is_asked_for() -> None:
    over = XID_154.replace("0x0 (None) to 0x1 (GPU Reset Required)", "0x1 (GPU Reset Required) to 0x0 (None)")
    events = folded((over, 1.0), (XID_154, 2.0))
    assert [each.severity for each in events] == [Severity.INFO, Severity.CRITICAL]


# --- out of memory --------------------------------------------------------------------------------------------------


def test_the_lines_of_one_oom_kill_are_one_event() -> None:
    (kill,) = folded((CALLED, 100.0), (CONSTRAINT, 100.9), (KILLED, 101.0), (REAPED, 101.4))
    assert (kill.kind, kill.count, kill.severity) == ("oom-kill", 1, Severity.CRITICAL)
    assert (kill.pid, kill.process, kill.container_id) == (48213, "VLLM::EngineCor", CONTAINER)
    assert (kill.first_boot_s, kill.last_boot_s) == (100.0, 101.4)
    assert kill.text == CONSTRAINT
    named = line.with_container(kill, {CONTAINER: "vllm-minimax"})
    assert incident.describe(named) == "OOM kill  VLLM::EngineCor, pid 48213 in vllm-minimax"


def test_the_container_is_found_whichever_line_comes_first() -> None:
    (kill,) = folded((KILLED, 101.0), (CONSTRAINT, 101.1))
    assert kill.container_id == CONTAINER


def test_a_kill_within_a_containers_limit_stays_one() -> None:
    limit = CONSTRAINT.replace("CONSTRAINT_NONE", "CONSTRAINT_MEMCG").replace("global_oom", "oom_memcg=/docker/x")
    (kill,) = folded(
        (CALLED, 1.0), (limit, 1.1), (KILLED.replace("Out of", "Memory cgroup out of"), 1.2), (REAPED, 1.3)
    )
    assert kill.severity is Severity.WARNING
    assert "container's limit" in kill.title


def test_two_victims_are_two_kills() -> None:
    second = KILLED.replace("48213", "50001")
    events = folded((CALLED, 100.0), (KILLED, 101.0), (CALLED, 103.0), (second, 104.0))
    assert [(each.kind, each.pid, each.count) for each in events] == [("oom-kill", 48213, 1), ("oom-kill", 50001, 1)]


def test_a_call_that_led_to_no_kill_stays() -> None:
    events = folded((CALLED, 100.0), (KILLED, 200.0))
    assert [each.kind for each in events] == ["oom-invoked", "oom-kill"]


def test_a_pid_used_again_later_is_another_kill() -> None:
    assert len(folded((KILLED, 100.0), (KILLED, 900.0))) == 2


# --- many of one kind -----------------------------------------------------------------------------------------------


@over(
    "count, every_s, severity",
    [
        (1, 1.0, Severity.INFO),
        (3, 0.001, Severity.INFO),  # one failed allocation
        (4, 1.0, Severity.WARNING),
        (9, 1.0, Severity.WARNING),
        (10, 1.0, Severity.CRITICAL),
        (10, 6.0, Severity.CRITICAL),
        (10, 30.0, Severity.WARNING),
        (198, 0.1, Severity.CRITICAL),
    ],
)
def test_refused_memory_is_routine_alone_and_a_warning_in_a_burst(
    count: int, every_s: float, severity: Severity
) -> None:
    (only,) = folded(*((NO_MEMORY, 5000.0 + index * every_s) for index in range(count)))
    assert (only.count, only.severity) == (count, severity)
    if severity is Severity.CRITICAL:
        assert any("while the machine still answers" in advice.remedy for advice in only.advice)
        assert incident.describe(only).startswith(f"{count} × NVRM out of memory in ")


def test_a_slow_trickle_that_turns_into_a_burst_is_seen() -> None:
    trickle = [(NO_MEMORY, 100.0 * index) for index in range(30)]
    sudden = [(NO_MEMORY, 3000.0 + index / 10) for index in range(12)]
    (only,) = folded(*trickle, *sudden)
    assert only.severity is Severity.CRITICAL


def test_many_without_times_warn() -> None:
    (only,) = folded(*((NO_MEMORY, None) for _ in range(50)))
    assert only.severity is Severity.WARNING


# --- the folder as such ---------------------------------------------------------------------------------------------


def test_only_the_last_500_are_kept() -> None:
    lines = [(f"mlx5_core 0000:01:00.0 eth{index}: Link down", 500.0 + index) for index in range(620)]
    events = folded(*lines)
    assert len(events) == 500
    assert events[-1].headline == "link down  eth619"
    assert events[0].headline == "link down  eth120"


def test_an_incident_that_was_dropped_starts_anew() -> None:
    folder = incident.IncidentGrouper(capacity=2)
    for text, boot_s in ((XID_13, 1.0), (XID_43, 2.0), (XID_154, 3.0), (XID_13, 4.0)):
        folder.add(event(text, boot_s))
    assert [(each.code, each.count) for each in folder.events] == [(154, 1), (13, 1)]


def test_events_are_built_once_until_one_is_added() -> None:
    folder = incident.IncidentGrouper()
    folder.add(event(XID_13, 1.0))
    seen = folder.events
    assert folder.events is seen
    folder.add(event(XID_13, 2.0))
    assert folder.events is not seen
    assert seen[0].count == 1


LINES = st.sampled_from([XID_13, XID_13_GLOBAL, XID_43, XID_45, XID_154, NO_MEMORY, CALLED, CONSTRAINT, KILLED, REAPED])


@given(st.lists(st.tuples(LINES, st.floats(0, 400)), max_size=40))
def test_folding_loses_and_invents_no_line(steps: list[tuple[str, float]]) -> None:
    at = 0.0
    folder = incident.IncidentGrouper()
    counted = 0
    for text, gap_s in steps:
        at += gap_s
        one = event(text, at)
        counted += one.kind not in ("oom-kill", "oom-invoked")
        folder.add(one)
    incidents = folder.events
    assert counted == sum(each.count for each in incidents if each.kind not in ("oom-kill", "oom-invoked"))
    starts = [each.first_boot_s or 0.0 for each in incidents]
    assert all(one <= other for one, other in pairwise(starts))
    assert all(each.first_boot_s <= each.last_boot_s for each in incidents)  # type: ignore[operator]
