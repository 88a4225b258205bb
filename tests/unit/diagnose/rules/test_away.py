"""Why a node was away without a reboot, by its counters, its kernel log and what tests of the host showed."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import BOOT_S, GIB, claims, node, picture, rules_on
from tests.table import over

from sparktop.diagnose.kernel import line
from sparktop.model.finding import Confidence
from sparktop.model.fleet import Absence, Link, LinkState, NodeView, Reach
from sparktop.model.telemetry import LogLine, Pressure

RULES = [rule for rule in rules_on("host") if rule.id == "host.away"]
SURE, MAYBE = Confidence.CONFIRMED, Confidence.SUSPECTED
AWAY_S, BACK_S = 300.0, 20.0
OOM = "Out of memory: Killed process 48213 (VLLM::EngineCor) total-vm:251658240kB, anon-rss:7340032kB"
GSP = (
    "NVRM: Xid (PCI:000f:01:00): 119, pid=3849, name=KMS thread, Timeout after 45s of waiting for RPC response from "
    "GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a6a 0x4)."
)
SUSPEND = "PM: suspend entry (deep)"
LINK = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down"
NO_HOST, SILENT = (Reach.NO_HOST,), (Reach.SSH_SILENT,)


def pressure(total_s: float | None) -> Pressure:
    return Pressure(some_avg10=0, some_avg60=0, full_avg10=0, full_avg60=0, full_total_s=total_s)


def away(
    *reaches: Reach,
    memory_s: float | None = 0.0,
    disk_s: float = 0.0,
    kernel: str = "",
    kernel_s: float = 100.0,
    back_s: float = BACK_S,
) -> NodeView:
    """A node that was away for five minutes and has been back for `back_s`; all its tasks waited for so many seconds,
    and the kernel logged its line so long before the return."""
    view = node("spark1", link=Link(state=LinkState.LIVE))
    now = view.sample
    assert now is not None
    after = replace(
        now,
        boot_s=now.boot_s - back_s,
        memory_pressure=pressure(None if memory_s is None else 1000.0 + memory_s),
        io_pressure=pressure(10.0 + disk_s),
    )
    before = replace(
        after,
        boot_s=after.boot_s - AWAY_S,
        memory_pressure=pressure(1000.0),
        io_pressure=pressure(10.0),
        memory=replace(after.memory, available_bytes=3 * GIB),
    )
    at_s = after.boot_s - kernel_s
    event = line.read(LogLine(text=kernel, boot_s=at_s)) if kernel else None
    assert bool(event) is bool(kernel)
    absence = Absence(before=before, after=after, reaches=reaches)
    return replace(view, absence=absence, kernel_events=() if event is None else (event,))


@over(
    "view, severity, confidence, title",
    [
        (away(kernel=SUSPEND), "warning", SURE, "was suspended for 5 min"),
        (away(*SILENT, kernel=OOM, memory_s=200), "warning", SURE, "ran out of memory and was away"),
        (away(*SILENT, memory_s=200), "warning", SURE, "was starved of memory for 5 min"),
        (away(*SILENT, memory_s=20, disk_s=200), "warning", SURE, "waited for a disk"),
        (away(*SILENT, kernel=GSP), "warning", MAYBE, "hung for 5 min: "),
        (away(*SILENT, kernel=GSP, kernel_s=1000.0), "warning", MAYBE, "took connections"),
        (away(*SILENT), "warning", MAYBE, "took connections for 5 min, and its programs didn't answer"),
        (away(Reach.NO_HOST, Reach.SSH_SILENT), "warning", MAYBE, "took connections"),
        (away(*NO_HOST), "info", MAYBE, "was cut off for 5 min, and went on running"),
        (away(*NO_HOST, memory_s=200), "warning", SURE, "was starved of memory"),
        (away(*NO_HOST, kernel=LINK), "warning", SURE, "its link went down"),
        (away(Reach.NO_SSHD), "info", MAYBE, "its SSH server wasn't"),
        (away(), "info", MAYBE, "why isn't known"),
    ],
)
def test_why_it_was_away(view: NodeView, severity: str, confidence: Confidence, title: str) -> None:
    (found,) = claims(RULES, picture(view))
    assert (found.severity, found.confidence) == (severity, confidence), found
    assert title in found.title
    assert "  " not in found.explanation
    assert any("3.0 GiB available before" in one.text for one in found.evidence)


def test_a_kernel_that_counts_nothing_leaves_it_unsaid() -> None:
    counted, uncounted = (claims(RULES, picture(away(*SILENT, memory_s=one)))[0] for one in (0.0, None))
    assert "count" in counted.explanation
    assert "count" not in uncounted.explanation


def test_the_operators_own_network_is_no_trouble_of_the_nodes() -> None:
    assert not claims(RULES, picture(away(Reach.NO_NETWORK)))
    assert claims(RULES, picture(away(Reach.NO_NETWORK, memory_s=200)))


@over("view", [node("spark1"), away(*SILENT, back_s=2.0), away(*SILENT, back_s=3700.0)])
def test_not_before_it_is_read_nor_for_ever(view: NodeView) -> None:
    assert not claims(RULES, picture(view))


@over("view", [away(*SILENT, memory_s=200, back_s=280.0), away(*SILENT, kernel=OOM, memory_s=200, back_s=200.0)])
def test_what_is_new_stands_in_the_verdict(view: NodeView) -> None:
    assert [one.severity for one in claims(RULES, picture(view))] == ["warning"]


@over(
    "view",
    [
        away(*SILENT, memory_s=200, back_s=320.0),
        away(*SILENT, kernel=OOM, memory_s=200, back_s=320.0),
        away(kernel=SUSPEND, back_s=3500.0),
    ],
)
def test_it_is_a_note_once_it_is_no_news(view: NodeView) -> None:
    assert [one.severity for one in claims(RULES, picture(view))] == ["info"]


def test_it_is_a_note_as_soon_as_what_was_killed_serves_again() -> None:
    view = away(*SILENT, kernel=OOM, memory_s=200, back_s=200.0)
    killed = replace(view.kernel_events[0], container="vllm-a")
    view = replace(view, kernel_events=(killed,))
    started_s = BOOT_S - 100.0
    serves = replace(view.engines[0], name="vllm-a", started_boot_s=started_s, pids=(48213,))
    assert [one.severity for one in claims(RULES, picture(replace(view, engines=(serves,))))] == ["info"]
    runs_since = replace(serves, started_boot_s=started_s - 1000.0)
    assert [one.severity for one in claims(RULES, picture(replace(view, engines=(runs_since,))))] == ["warning"]
