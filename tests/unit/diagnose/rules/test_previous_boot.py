"""How a boot ended, judged by what the node still knows of it: kernel lines of tests/cases and public reports, the
shutdown's lines from the real machine of tests/real."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import GIB, WALL_S, claims, node, picture, rules_on
from tests.table import over

from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import Intervention, LastSeen, NodeView
from sparktop.model.telemetry import YOUNG_BOOT_S, LogLine, PreviousBoot

RULES = [rule for rule in rules_on("host") if rule.id == "host.rebooted"]
SURE, MAYBE = Confidence.CONFIRMED, Confidence.SUSPECTED
END_S = WALL_S - 600.0
BOOT = "587ba0b6057a4de0a69a32fd4421db2d"
LIFE = "dockerd: API listen on /run/docker.sock"
SUDO = "sudo: spark : PWD=/home/spark ; USER=root ; COMMAND=/usr/sbin/reboot"
SHUTDOWN = (
    "systemd-logind: The system will reboot now!",
    "systemd-logind: System is rebooting.",
    "systemd: Reached target reboot.target - System Reboot.",
    "systemd: Shutting down.",
    "systemd-journald: Journal stopped",
)
POWER_KEY = (
    "systemd-logind: Power key pressed short.",
    "systemd-logind: The system will power off now!",
    "systemd: Reached target poweroff.target - System Power Off.",
)
OOM = (
    "VLLM::Worker_TP invoked oom-killer: gfp_mask=0x102cc2(GFP_HIGHUSER|__GFP_NOWARN), order=0, oom_score_adj=0",
    "Out of memory: Killed process 48213 (VLLM::EngineCor) total-vm:251658240kB, anon-rss:7340032kB",
)
REFUSED = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
    "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)
GSP = (
    "NVRM: Xid (PCI:000f:01:00): 119, pid=3849, name=KMS thread, Timeout after 45s of waiting for RPC response from "
    "GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a6a 0x4)."
)
OOPS = (
    "mt7925e 0009:01:00.0: Message 00020002 (seq 12) timeout",
    "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010",
    "Internal error: Oops: 0000000096000004 [#1] SMP",
    "Modules linked in: nvidia_uvm(OE) mt7925e mt7925_common mt792x_lib mt76_connac_lib mt76 mac80211",
    "pc : mt7925_mac_reset_work+0x8c/0x1a8 [mt7925_common]",
    "lr : process_one_work+0x170/0x3e8",
)
PANIC = "Kernel panic - not syncing: Oops: Fatal exception"
AER = (
    "pcieport 000f:00:00.0: AER: Uncorrectable (Fatal) error message received from 000f:01:00.0",
    "NVRM: Xid (PCI:000f:01:00): 79, pid=48213, name=VLLM::EngineCor, GPU has fallen off the bus.",
)
HOT = "thermal thermal_zone0: acpitz: critical temperature reached, shutting down"
EARLYOOM = 'earlyoom: sending SIGTERM to process 52114 uid 1000 "python3": badness 999, VmRSS 6318 MiB'
STUCK = "INFO: task gnome-shell:3849 blocked for more than 120 seconds."
WIFI = "mt7925e 0009:01:00.0: chip reset failed"
DUMP = (*OOPS, PANIC)
OLD = (("/var/lib/systemd/pstore/1795000000/dmesg.txt", END_S - 86_400.0),)
PSTORE = (("/var/lib/systemd/pstore/1795970450/dmesg.txt", END_S + 30.0),)


def lines(texts: tuple[str, ...] | str, last_s: float) -> tuple[LogLine, ...]:
    """The last of them `last_s` before the end, each a tenth of a second after the one before."""
    texts = (texts,) if isinstance(texts, str) else texts
    return tuple(
        LogLine(text=text, wall_s=END_S - last_s - 0.1 * (len(texts) - 1 - at), boot_s=9000.0 - last_s)
        for at, text in enumerate(texts)
    )


def ended(
    *system: str,
    kernel: tuple[str, ...] | str = (),
    kernel_s: float = 20.0,
    seen: LastSeen | None = None,
    dump: tuple[str, ...] = (),
    pstore: tuple[tuple[str, float], ...] = (),
) -> NodeView:
    """A node whose previous boot logged this; `kernel_s` seconds before its end the kernel logged its last."""
    previous = PreviousBoot(
        boot_id=BOOT,
        kernel=lines(kernel, kernel_s) if kernel else (),
        system=(*lines(LIFE, 30.0), *lines(system, 0.0)) if system else lines(LIFE, 0.0),
        dump=tuple(LogLine(text=text, boot_s=9000.0) for text in dump),
        pstore=pstore,
    )
    return node(previous_boot=previous, last_seen=seen)


def seen(available_gib: float, stall_percent: float = 0.0, boot: str = BOOT, ago_s: float = 1.0) -> LastSeen:
    return LastSeen(
        boot_id=f"{boot[:8]}-{boot[8:]}",
        wall_s=END_S - ago_s,
        available_bytes=int(available_gib * GIB),
        total_bytes=122 * GIB,
        stall_percent=stall_percent,
    )


def told(view: NodeView) -> list[Finding]:
    return claims(RULES, picture(view))


@over(
    "view, severity, confidence, title",
    [
        (ended(*SHUTDOWN), "info", SURE, "was rebooted by order"),
        (ended(SUDO, *SHUTDOWN), "info", SURE, "was rebooted by order: spark (/usr/sbin/reboot)"),
        (ended(*POWER_KEY), "info", SURE, "was shut down by order: Power key (pressed), then started again"),
        (ended(SUDO.replace("reboot", "reboot -f")), "info", SURE, "by order: spark (/usr/sbin/reboot -f)"),
        (ended(SUDO, *SHUTDOWN, kernel=GSP), "info", SURE, "was rebooted by order: spark"),
        (ended(), "warning", MAYBE, "lost power or was reset"),
        (ended("app (uid 1000): The system will reboot now!"), "warning", MAYBE, "lost power"),
        (ended("systemd-logind (uid 1000): The system will reboot now!"), "warning", MAYBE, "lost power"),
        (ended("systemd-logind: The system will reboot at Mon 2026-11-30 04:00!"), "warning", MAYBE, "lost power"),
        (ended(kernel=OOM), "warning", MAYBE, "went down after it ran out of memory"),
        (ended(kernel=OOM, kernel_s=1200.0), "warning", MAYBE, "lost power"),
        (ended(kernel=(REFUSED,) * 12), "warning", MAYBE, "starved of memory"),
        (ended(kernel=(REFUSED,) * 3), "warning", MAYBE, "lost power"),
        (ended(seen=seen(0.6)), "warning", MAYBE, "starved of memory"),
        (ended(seen=seen(9.0, stall_percent=46.0)), "warning", MAYBE, "starved of memory"),
        (ended(seen=seen(60.0)), "warning", MAYBE, "lost power"),
        (ended(seen=replace(seen(1.2), total_bytes=2 * GIB)), "warning", MAYBE, "lost power"),
        (ended(seen=seen(0.6, boot="0" * 32)), "warning", MAYBE, "lost power"),
        (ended(seen=seen(0.6, ago_s=7200.0)), "warning", MAYBE, "lost power"),
        (ended(seen=seen(0.6), kernel=GSP), "warning", MAYBE, "its GPU stopped answering"),
        (ended(kernel=GSP), "warning", MAYBE, "its GPU stopped answering"),
        (ended(kernel=OOPS), "warning", MAYBE, "crashed in mt7925_common"),
        (ended(kernel=(*OOPS, PANIC)), "warning", SURE, "crashed in mt7925_common: Kernel panic"),
        (ended(dump=DUMP, pstore=PSTORE), "warning", SURE, "crashed in mt7925_common: Kernel panic"),
        (ended(dump=DUMP, pstore=OLD), "warning", MAYBE, "lost power"),
        (ended(kernel=AER), "warning", MAYBE, "went down after a hardware error: PCIe fatal error"),
        (ended(*POWER_KEY[1:], kernel=HOT), "warning", SURE, "shut itself down: too hot"),
        (ended(kernel=STUCK), "warning", MAYBE, "hung before it went down: Task stuck"),
        (ended(kernel=WIFI), "warning", MAYBE, "hung before it went down: Wi-Fi chip hangs"),
        (ended(EARLYOOM), "warning", MAYBE, "starved of memory"),
    ],
)  # fmt: skip
def test_each_end_is_named(view: NodeView, severity: str, confidence: Confidence, title: str) -> None:
    (finding,) = told(view)
    assert (finding.severity, finding.confidence) == (Severity(severity), confidence), finding.title
    assert title in finding.title
    assert finding.evidence
    assert finding.nodes == ("spark1",)
    assert bool(finding.settles) is (confidence is MAYBE)


def test_a_wifi_drivers_crash_offers_to_turn_wifi_off() -> None:
    (crash,), (other,) = told(ended(kernel=OOPS)), told(ended(kernel=OOPS[1:3]))
    assert "nmcli radio wifi off" in crash.remedies[0].steps[0]
    assert "nmcli" not in str(other.remedies)


def test_an_order_tells_what_the_kernel_logged_before_it() -> None:
    (finding,) = told(ended(*SHUTDOWN, kernel=GSP))
    assert "Xid 119" in finding.explanation


def test_unknown_is_told_where_another_boot_was_seen() -> None:
    nothing = PreviousBoot(reason="there is no journalctl")
    assert told(node(previous_boot=nothing)) == []
    view = node(previous_boot=nothing, last_seen=replace(seen(60.0), available_bytes=None))
    assert told(view) == [], "its boot is days old"
    assert view.sample is not None
    (finding,) = told(replace(view, sample=replace(view.sample, boot_s=60.0)))
    assert (finding.severity, finding.confidence) == (Severity.INFO, MAYBE)
    assert nothing.reason in finding.explanation


def test_memory_that_was_gone_is_told_of_a_journal_that_nobody_may_read() -> None:
    view = node(previous_boot=PreviousBoot(reason="no journalctl", dump=DUMP, pstore=OLD), last_seen=seen(0.6))
    assert view.sample is not None
    (finding,) = told(replace(view, sample=replace(view.sample, boot_s=60.0)))
    assert finding.title == "spark1 went down starved of memory, without an OOM kill"
    assert "no journalctl" in finding.explanation
    assert finding.distinction == ()


def test_a_day_later_it_is_history() -> None:
    view = ended()
    assert view.sample is not None
    old = replace(view.sample, boot_s=YOUNG_BOOT_S + 1.0, wall_s=END_S + YOUNG_BOOT_S + 2.0)
    assert told(replace(view, sample=old)) == []
    assert told(replace(view, sample=replace(old, boot_s=60.0))), "it was off for a day"


@over("who, by", [("", "by you"), ("ops@desk", "by ops@desk")])
def test_a_reboot_from_a_console_is_no_riddle(who: str, by: str) -> None:
    unread = PreviousBoot(reason="there is no journalctl")
    view = node(previous_boot=unread, last_seen=replace(seen(60.0), available_bytes=None))
    assert view.sample is not None
    view = replace(view, sample=replace(view.sample, boot_s=60.0))
    order = Intervention(node="spark1", action="reboot", who=who, began_wall_s=WALL_S - 90.0)
    (finding,) = claims(RULES, replace(picture(view), interventions=(order,)))
    assert (finding.title, finding.brief) == (f"spark1 was rebooted {by}", "")
    assert (finding.severity, finding.confidence) == (Severity.INFO, SURE)
    long_ago = replace(order, began_wall_s=WALL_S - 9000.0)
    (other,) = claims(RULES, replace(picture(view), interventions=(long_ago,)))
    assert "why isn't known" in other.title
