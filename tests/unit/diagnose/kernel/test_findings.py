"""What a kernel log says as findings: the cause first, its train under it, and nothing of ordinary lines."""

from __future__ import annotations

from dataclasses import replace

from tests.table import over

from sparktop.diagnose.findings import ordered
from sparktop.diagnose.kernel import findings, xid
from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.telemetry import LogLine

XID = "NVRM: Xid (PCI:000f:01:00): "
KMS = XID + "119, pid=4102, name=KMS thread, Timeout after 45s of waiting for RPC response from GPU0 GSP!"
NO_MEMORY = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x @ y.c:1"
)
LINK = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link "
SCOPE = "docker-" + "5e" * 32 + ".scope"
KILL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg=/system.slice/{SCOPE},task=dockerd,pid=2411,uid=0"
)


def events(*lines: str, boot_s: float | None = 4000.0, step_s: float = 0.5) -> tuple[KernelEvent, ...]:
    folder = IncidentGrouper()
    for index, text in enumerate(lines):
        at = None if boot_s is None else boot_s + index * step_s
        event = kernel.read(LogLine(text=text, boot_s=at, wall_s=None if at is None else 1.78e9 + at))
        if event is not None:
            folder.add(replace(event, line=index + 1))
    return folder.events


def found(*lines: str, boot_s: float | None = 4000.0, step_s: float = 0.5) -> tuple[Finding, ...]:
    return ordered(findings.findings(events(*lines, boot_s=boot_s, step_s=step_s), source="stdin"))


def said(finding: Finding) -> str:
    remedies = [text for remedy in finding.remedies for text in (remedy.title, *remedy.steps)]
    return " ".join((finding.title, finding.explanation, *remedies)).lower()


def test_a_frozen_desktop_is_headed_by_what_hangs_and_the_reboot_comes_first_and_once() -> None:
    (only,) = found(KMS)
    assert only.title == "Xid 119: GPU firmware not answering, GSP RPC timeout (KMS thread)"
    first, *others = only.remedies
    assert (first.title, first.action) == ("Reboot, which stops the engines", "reboot")
    assert first.title not in first.steps
    assert any(remedy.title.startswith("To prevent it, ") for remedy in others)


def test_figures_beside_a_title_are_no_second_title() -> None:
    single = [finding.brief for finding in (*found(KMS), *found(KILL), *found(LINK + "down"))]
    assert single == ["", "", ""]
    (burst,) = found(*[NO_MEMORY] * 40, step_s=0.1)
    assert (burst.title[:5], burst.brief) == ("40 × ", "in 4 s")


@over(
    "text, severity, must_say",
    [
        ("8, pid=91, name=python3, channel 0x00000003", Severity.CRITICAL, "restart"),
        ("13, Graphics SM Warp Exception on (GPC 0, TPC 2, SM 1): Misaligned Address", Severity.CRITICAL, "faulted"),
        ("31, pid=91, name=python3, Ch 00000015, intr 00000000. MMU Fault", Severity.CRITICAL, "mmu fault"),
        ("32, pid=91, name=python3, Channel ID 00000008", Severity.CRITICAL, "push buffer"),
        ("38, pid=91, name=python3, Ch 00000008", Severity.CRITICAL, "firmware"),
        ("43, pid=91, name=python3, channel 0x00000002", Severity.CRITICAL, "gpu itself stays healthy"),
        ("45, pid=91, name=python3, channel 0x00000002", Severity.INFO, "killed"),
        ("48, pid='<unknown>', name=<unknown>, DBE detected", Severity.CRITICAL, "rma"),
        ("61, pid=91, name=python3, 0cd1", Severity.CRITICAL, "power-management"),
        ("62, 0e1f 00000000 00000000", Severity.CRITICAL, "power"),
        ("63, pid='<unknown>', name=<unknown>, Row Remapper", Severity.WARNING, "remap"),
        ("64, pid='<unknown>', name=<unknown>, Row Remapper", Severity.CRITICAL, "row couldn't be replaced"),
        ("69, pid=91, name=python3, Class Error", Severity.CRITICAL, "method"),
        ("74, pid='<unknown>', name=<unknown>, NVLink", Severity.CRITICAL, "nvlink"),
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", Severity.CRITICAL, "fallen off the bus"),
        ("92, pid='<unknown>', name=<unknown>, SBE", Severity.INFO, "corrects"),
        ("94, pid=91, name=python3, Contained: SM (0x1)", Severity.CRITICAL, "memory error"),
        ("95, pid=91, name=python3, Uncontained", Severity.CRITICAL, "more than one application"),
        ("109, pid=91, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT", Severity.CRITICAL, "switch"),
        ("119, Timeout after 6s of waiting for RPC response from GPU0 GSP!", Severity.CRITICAL, "gsp"),
        ("120, pid=91, name=python3, GSP task exception: load access fault", Severity.CRITICAL, "gsp"),
        ("121, pid='<unknown>', name=<unknown>, C2C Link Error", Severity.INFO, "corrected"),
        ("140, pid='<unknown>', name=<unknown>, ECC unrecovered", Severity.CRITICAL, "ecc"),
        ("141, pid=91, name=python3, Fast path", Severity.WARNING, "fast"),
        ("143, GPU init error", Severity.CRITICAL, "couldn't initialise"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01", Severity.CRITICAL, "nvlink"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Severity.CRITICAL, "reboot"),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Severity.INFO, "no recovery"),
        ("9999, something new", Severity.WARNING, "catalogue"),
    ],
)
def test_each_xid_says_what_it_means(text: str, severity: Severity, must_say: str) -> None:
    (only,) = found(XID + text)
    assert only.rule == f"kernel.xid-{text.partition(',')[0]}"
    assert (only.severity, only.caused_by) == (severity, None)
    assert must_say in said(only)
    assert only.references
    assert only.evidence[0].line == 1


def test_an_xid_79_gives_both_readings_with_their_sources() -> None:
    """Field report 000, "Xid 79": NVIDIA's meaning first, the screen that hung as what one owner saw."""
    (only,) = found(XID + "79, pid=5120, name=gnome-shell, GPU has fallen off the bus.")
    assert "fallen off the bus" in only.title
    assert "display hung" in only.explanation
    assert "display engine hang" not in said(only)
    assert {"NVIDIA Xid catalogue (no GB10 column, so by analogy)", "field report 000 (DGX Spark desktop)"} <= set(
        only.references
    )
    assert only.remedies[0].action == "reboot"


def test_an_applications_fault_speaks_of_nothing_else() -> None:
    (only,) = found(XID + "13, pid=91, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 2, SM 1): x")
    assert "fallen off" not in said(only)
    assert "thermal" not in said(only)
    assert only.remedies[0].action == "safe-restart"


@over("step_s", [0.0, 2.0])
def test_what_follows_hangs_under_its_cause(step_s: float) -> None:
    first, second, third = found(
        XID + "13, pid=91, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 2, SM 1): Illegal Instruction",
        XID + "43, pid=91, name=python3, channel 0x00000002",
        XID + "45, pid=91, name=python3, channel 0x00000003",
        step_s=step_s,
    )
    assert (first.rule, first.caused_by) == ("kernel.xid-13", None)
    assert (second.rule, second.caused_by) == ("kernel.xid-43", "kernel.xid-13")
    assert (third.rule, third.caused_by) == ("kernel.xid-45", "kernel.xid-43")
    assert third.severity is Severity.CRITICAL
    assert third.remedies == ()


def test_a_clean_up_written_before_its_cause_is_no_cause() -> None:
    first, second = found(XID + "45, pid=91, name=python3, channel 0x3", XID + "62, 0e1f 00000000")
    assert (first.rule, second.rule, second.caused_by) == ("kernel.xid-62", "kernel.xid-45", "kernel.xid-62")


def test_a_clean_up_hours_later_is_not_blamed_on_it() -> None:
    both = found(XID + "62, 0e1f", XID + "45, pid=91, name=python3, channel 0x3", step_s=7200.0)
    assert [(one.rule, one.caused_by) for one in both] == [("kernel.xid-62", None), ("kernel.xid-45", None)]


def test_the_desktop_freezes_train_has_one_root() -> None:
    lines = (
        KMS,
        XID + "120, pid=91, name=python3, GSP task exception: load access fault",
        XID + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "gnome-shell[4102]: Failed to post KMS update: drmModeAtomicCommit: Invalid argument",
        "nvidia-modeset: ERROR: GPU:0: Failed detecting connected display devices",
        "INFO: task gnome-shell:4102 blocked for more than 120 seconds.",
    )
    first, *rest = found(*lines)
    assert first.rule == "kernel.xid-119"
    assert all(one.caused_by for one in rest)
    assert "nvidia-suspend" in said(first)


@over(
    "count, step_s, severity",
    [(1, 0.0, Severity.INFO), (5, 5.0, Severity.WARNING), (12, 4.0, Severity.CRITICAL), (60, 30.0, Severity.CRITICAL)],
)
def test_refused_allocations_by_their_number(count: int, step_s: float, severity: Severity) -> None:
    (only,) = found(*[NO_MEMORY] * count, step_s=step_s)
    assert (only.rule, only.severity) == (findings.NO_MEMORY, severity)
    assert "NV_ERR_NO_MEMORY" in only.title


def test_an_oom_kill_names_its_victim_and_doubts_its_guilt() -> None:
    lines = (
        "VLLM::Worker_TP invoked oom-killer: gfp_mask=0x102cc2(GFP_HIGHUSER), order=0, oom_score_adj=0",
        KILL,
        "Out of memory: Killed process 2411 (dockerd) total-vm:2kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB",
        "oom_reaper: reaped process 2411 (dockerd), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    )
    named = tuple(kernel.with_container(event, {"5e" * 32: "vllm-qwen"}) for event in events(*lines))
    (only,) = findings.findings(named, source="stdin")
    assert (only.rule, only.severity) == (findings.OOM_KILL, Severity.CRITICAL)
    assert "dockerd in vllm-qwen" in only.title
    assert "isn't always what took the memory" in only.explanation
    assert "resident size" in only.explanation
    assert "xid" not in said(only)
    assert "gpu driver" not in said(only)
    assert only.evidence[0].line == 2


def test_a_containers_own_limit_is_another_failure() -> None:
    (only,) = found("Memory cgroup out of memory: Killed process 77 (python3) total-vm:4kB, anon-rss:2kB, file-rss:1kB")
    assert (only.rule, only.severity) == (findings.OOM_LIMIT, Severity.CRITICAL)


@over(
    "lines, rules",
    [
        ((LINK + "up", LINK + "down"), ["link-down"]),
        ((LINK + "down", LINK + "up"), []),
        (("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
          "I/O error, dev nvme0n1, sector 81788928 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2"),
         ["nvme-dead", "disk-io-error"]),
        (("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
          "NVRM: None of the NVIDIA devices were initialized."), ["driver-module-refused", "nvrm-init-failed"]),
        (("NVRM: RmInitAdapter failed! (0x62:0x65:2028)",), ["nvrm-init-failed"]),
        (("python3[91]: segfault at 10 ip 00007f sp 00007e error 4 in libtorch.so[7f+1]",), ["segfault"]),
    ],
)  # fmt: skip
def test_what_else_the_kernel_says(lines: tuple[str, ...], rules: list[str]) -> None:
    told = found(*lines)
    assert [one.rule for one in told] == [f"kernel.{rule}" for rule in rules]
    assert all(one.caused_by == told[0].rule for one in told[1:])


@over(
    "line",
    [
        "OOM killer disabled.",
        "mlx5_core 0000:01:00.1: Port module event: module 1, Cable unplugged",
        "mlx5_core 0000:01:00.1 enp1s0f1np1: Link down",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "nvidia-modeset: ERROR: GPU:0: DP-0: Failed to disable DisplayPort audio stream-3",
        "WARNING: CPU: 2 PID: 211 at drivers/gpu/drm/drm_atomic_helper.c:1681 x+0x1f0/0x210",
        "BERT: Error records from previous boot:",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Invalid state [NV_ERR_INVALID_STATE] returned from x @ y.c:2",
    ],
)
def test_ordinary_lines_are_no_findings(line: str) -> None:
    assert found(line, boot_s=None) == ()
    assert found(line, boot_s=12.0) == ()


def test_every_rule_an_event_can_have_has_a_card() -> None:
    cards = {card.id for card in findings.cards()}
    assert len(cards) == len(findings.cards())
    for pattern in kernel.patterns():
        for example in pattern.examples:
            event = kernel.read(LogLine(text=example, boot_s=4000.0))
            assert event is not None
            rule = findings.rule_of(event)
            assert rule is None or rule in cards, pattern.id
    assert {f"kernel.xid-{code}" for code in xid.catalogue()} <= cards


def test_a_clean_up_tells_of_the_xid_it_names_where_that_stands_elsewhere() -> None:
    (finding,) = found("NVRM: Xid (PCI:0000:ba:00): 45, pid=77, name=python3, Ch 00000002 caused by previous Xid 149")
    assert finding.severity is Severity.CRITICAL
    assert "Xid 149" in finding.explanation


def test_a_limit_reached_is_named_though_the_kill_is_cut_off() -> None:
    (finding,) = found("memory: usage 1048576kB, limit 1048576kB, failcnt 141")
    assert finding.severity is Severity.CRITICAL
    assert "limit" in finding.title
