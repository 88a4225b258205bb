"""What is said of a machine that comes back: by a console that saw it go, and by one that never saw it before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.real.conftest import need
from tests.real.console import looked, rules, watching
from tests.real.machine import Machine
from tests.real.vm import BOOT_S, Guest

STARVE = """
for group in user.slice system.slice/ssh.service; do echo 1M >/sys/fs/cgroup/$group/memory.high; done
sleep 90
for group in user.slice system.slice/ssh.service; do echo max >/sys/fs/cgroup/$group/memory.high; done
"""


@pytest.fixture
def guest() -> Iterator[Guest]:
    """A machine with a kernel of its own, known to ssh as spark1."""
    need("vm")
    with Guest.up("spark1") as up:
        up.alias()
        yield up


def rebooted(picture_: Any) -> Any:
    """The finding of how the boot before ended; empty while there is none."""
    return rules(picture_).get("host.rebooted") or {}


def texts(finding: Any) -> str:
    return " | ".join(one["text"] for one in finding["evidence"])


def test_a_reboot_by_order_is_told_with_who_ordered_it(spark: Machine) -> None:
    with watching("spark1") as watch:
        before = spark.boot_id()
        spark.run("runuser", "-u", "spark", "--", "sudo", "-n", "systemctl", "reboot", "--no-block")
        spark.until(lambda: spark.boot_id() not in ("", before), what="another boot")
        told = rebooted(watch.until(rebooted, what="the end of the boot before"))
    assert (told["severity"], told["confidence"]) == ("info", "confirmed"), told
    assert "was rebooted by order: spark (/usr/bin/systemctl reboot" in told["title"]
    assert "systemd-logind: The system will reboot now!" in texts(told)
    fresh = rebooted(looked(rebooted, "spark1"))
    assert (fresh["title"], fresh["evidence"]) == (told["title"], told["evidence"])


def test_lost_power_is_suspected_of_a_journal_that_stops(spark: Machine) -> None:
    with watching("spark1") as watch:
        assert not rebooted(watch.last), "nothing is left of a boot before its first"
        spark.run("logger", "--tag", "app", "the last words")
        spark.run("journalctl", "--sync")
        spark.kill()
        spark.again()
        told = rebooted(watch.until(rebooted, what="the end of the boot before"))
    assert (told["severity"], told["confidence"]) == ("warning", "suspected"), told
    assert "lost power or was reset" in told["title"]
    assert told["settles"]
    fresh = rebooted(looked(rebooted, "spark1"))
    assert (fresh["title"], fresh["evidence"]) == (told["title"], told["evidence"])


def test_a_journal_that_does_not_outlast_a_boot_leaves_it_unknown(spark: Machine) -> None:
    spark.run("sh", "-c", "echo Storage=volatile >>/etc/systemd/journald.conf")
    spark.run("sh", "-c", "systemctl restart systemd-journald && rm -rf /var/log/journal")
    with watching("spark1") as watch:
        spark.reboot()
        told = rebooted(watch.until(rebooted, what="the end of the boot before"))
    assert (told["severity"], told["confidence"]) == ("info", "suspected"), told
    assert "doesn't outlast a boot" in told["explanation"]


@pytest.mark.slow
def test_a_machine_that_ran_out_of_memory_before_it_went_is_named_so(guest: Guest) -> None:
    """With a kernel of its own: its own OOM killer, its own log."""
    with watching("spark1") as watch:
        guest.run("sh", "-c", "python3 -c 'held = [bytearray(1 << 20) for _ in range(1 << 20)]'; true")
        assert "Out of memory: Killed process" in guest.run("journalctl", "-k")
        guest.run("sh", "-c", "journalctl --sync; sync")
        guest.kill()
        guest.again()
        told = rebooted(watch.until(rebooted, what="the end of the boot before", within_s=BOOT_S))
    assert (told["severity"], told["confidence"]) == ("warning", "suspected"), told
    assert "went down after it ran out of memory" in told["title"], told
    assert "task=python3" in texts(told)


@pytest.mark.slow
def test_a_machine_starved_of_memory_that_comes_back_is_named_so(guest: Guest) -> None:
    """What is logged in there, and SSH's own server, have next to no memory for a while: they wait for it."""
    with watching("spark1") as watch:
        guest.run("systemd-run", "--quiet", "sh", "-c", STARVE)
        away = watch.until(lambda one: one["nodes"][0]["link"] in ("stale", "lost"), what="away", within_s=BOOT_S)
        told = rules(watch.until(lambda one: "host.away" in rules(one), what="why it was away", within_s=BOOT_S))
    assert "host.rebooted" not in told
    found = told["host.away"]
    assert (found["severity"], found["confidence"]) == ("warning", "confirmed"), (found, away)
    assert "was starved of memory" in found["title"], found


@pytest.mark.slow
def test_a_panic_that_reached_no_disk_is_only_suspected(guest: Guest) -> None:
    """It has no pstore, and nobody reads a panic's lines from the log any more."""
    with watching("spark1") as watch:
        guest.run("systemd-run", "--quiet", "sh", "-c", "sleep 1; echo c >/proc/sysrq-trigger")
        told = rebooted(watch.until(rebooted, what="the end of the boot before", within_s=BOOT_S))
    assert (told["severity"], told["confidence"]) == ("warning", "suspected"), told
    assert "lost power or was reset" in told["title"], told
    assert any("panic" in text for text in told["distinction"])
