"""Checks of a machine's release: DGX OS by its OTA, firmware, held packages, a due reboot."""

from __future__ import annotations

from collections.abc import Collection

from sparktop.checks.judgement import Judgement, check, note, passed, unknown, warning
from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtaFacts:
    """The DGX Dashboard's snapshot of updates (D-Bus GetOTAAvailabilitySnapshot), which changes nothing."""

    status: str = ""
    """ready, cache-pending, updates-disabled, no-ota-available, missing-ota-name, already-prompted."""
    is_available: bool | None = None
    name: str = ""
    """Of the OTA that waits: "July 2026"."""


@check("release.ota-behind", is_rule=False, bring_up="release.ota")
def judge_ota(facts: OtaFacts) -> Judgement:
    """Whether the machine is at the current OTA: the release of record, whatever packages wait (210 may)."""
    if facts.is_available is None:
        return unknown("the DGX Dashboard has not told")
    if facts.is_available:
        return warning("behind")
    if facts.status in ("ready", "no-ota-available", "already-prompted"):
        return passed()
    return unknown(facts.status or "the DGX Dashboard has not told", "pending")


@check("release.reboot-due", is_rule=False, bring_up="release.reboot")
def judge_reboot_due(packages: Collection[str] | None) -> Judgement:
    """Whether /run/reboot-required is there, by the packages that ask for it; None: it is not."""
    return passed() if packages is None else warning()


@check("release.firmware-waits", is_rule=False, bring_up="release.firmware")
def judge_firmware(devices: Collection[str] | None) -> Judgement:
    """Whether fwupd has an update, by the devices it has one for; None: it could not be asked."""
    if devices is None:
        return unknown("fwupd did not answer")
    return warning() if devices else passed()


@check("release.packages-held", is_rule=False, bring_up="release.held")
def judge_held(packages: Collection[str] | None) -> Judgement:
    """Whether somebody holds packages back, which an update then leaves alone."""
    if packages is None:
        return unknown("apt did not answer")
    return note("held") if packages else passed()
