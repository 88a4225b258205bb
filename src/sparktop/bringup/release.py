"""Release and firmware: the OTA of record, driver and kernel, firmware, held packages, a due reboot.

Looking never changes: NVIDIA's `check_ota_status.py is-ota-available` may install a newer checker, so the Dashboard's
own snapshot is read instead, over D-Bus, which a plain user may (docs/facts/bringup.md section 2.2).
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from sparktop.bounds import json_of
from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card,
    each,
    from_gates,
    judged,
    passed,
    skipped,
    told,
    unknown,
)
from sparktop.checks.host import judge_driver_branch, judge_driver_pending, judge_next_kernel
from sparktop.checks.release import OtaFacts, judge_firmware, judge_held, judge_ota, judge_reboot_due
from sparktop.model.state import State
from sparktop.model.survey import FileText, Output
from sparktop.operate.launch.gates.node import driver_gate

_NO_UPDATES = 2
"""fwupdmgr's exit code where there is nothing to do."""


def _release(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    facts = view.facts if view is not None else None
    if facts is None:
        return unknown("not read yet")
    if not facts.dgx_release:
        return skipped("there is no /etc/dgx-release: not DGX OS")
    return passed(f"DGX OS {facts.dgx_release}, kernel {facts.kernel}")


def ota_ask(node: str) -> Output:
    """The Dashboard's snapshot: `ssbbs "ready" "2026-09-05T10:33:15+03:00" true true "July 2026"`."""
    argv = (
        *("busctl", "call", "com.nvidia.dgx.dashboard.admin1", "/com/nvidia/dgx/dashboard/admin"),
        *("com.nvidia.dgx.dashboard.admin1", "GetOTAAvailabilitySnapshot"),
    )
    return Output(node=node, argv=argv)


def parse_ota(text: str | None) -> OtaFacts:
    """The snapshot from busctl's line; the second boolean tells whether an OTA is available."""
    try:
        words = shlex.split(text or "")
    except ValueError:
        words = []
    if len(words) < 6 or words[0] != "ssbbs" or words[4] not in ("true", "false"):
        return OtaFacts()
    return OtaFacts(status=words[1], is_available=words[4] == "true", name=words[5])


def _ota(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, ask = nodes[0], ota_ask(nodes[0])
    facts = parse_ota(seen.text(ask))
    judgement = judge_ota(facts)
    if judgement.state is State.UNKNOWN:
        why = seen.why_not(ask) if facts.is_available is None else f"the Dashboard says {facts.status}"
        return unknown(
            f"whether an update is out: {why}",
            by_hand("Ask the Dashboard", f"ssh -L 11000:localhost:11000 {node}, then http://localhost:11000"),
        )
    return told(judge_ota, judgement, node=node, name=facts.name or "an update")


_REBOOT_PACKAGES = "/run/reboot-required.pkgs"
_REBOOT = "/run/reboot-required"


def _flag_ask(node: str) -> FileText:
    return FileText(node=node, path=_REBOOT)


def _packages_ask(node: str) -> FileText:
    return FileText(node=node, path=_REBOOT_PACKAGES)


def _reboot(seen: CheckInputs, nodes: Nodes) -> Outcome:
    flag = _flag_ask(nodes[0])
    if not seen.has_answer(flag):
        return unknown(seen.why_not(flag))
    packages = (seen.text(_packages_ask(nodes[0])) or "").split() if seen.text(flag) is not None else None
    names = ", ".join(dict.fromkeys(packages or ())) or "packages"
    return told(judge_reboot_due, judge_reboot_due(packages), node=nodes[0], names=names)


def _driver(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    outcome = from_gates(driver_gate(nodes[0], view))
    if view is None or not judge_driver_pending(view).is_problem:
        return outcome
    return replace(outcome, remedies=(by_action("reboot", f"Reboot {nodes[0]}: then both are one version"),))


def _next_kernel(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    if view is None or view.facts is None:
        return unknown("not read yet")
    upcoming = view.facts.kernel_next or view.facts.kernel
    return told(judge_next_kernel, judge_next_kernel(view), upcoming=upcoming, kernel=view.facts.kernel)


def firmware_ask(node: str) -> Output:
    argv = ("fwupdmgr", "get-updates", "--json", "--no-metadata-check", "--no-unreported-check")
    return Output(node=node, argv=argv, limit_s=20.0)


def parse_firmware(text: str | None) -> tuple[str, ...] | None:
    """The devices that fwupd has an update for, with its version; None where the text is no such JSON."""
    try:
        raw = json_of(text or "")
    except ValueError:
        return None
    devices = raw.get("Devices") if isinstance(raw, dict) else None
    if not isinstance(devices, list):
        return None
    names = []
    for device in devices:
        releases = device.get("Releases") if isinstance(device, dict) else None
        if isinstance(releases, list) and releases and isinstance(releases[0], dict):
            names.append(f"{device.get('Name', 'a device')} {releases[0].get('Version', '')}".strip())
    return tuple(names)


def _firmware(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = firmware_ask(nodes[0])
    answer = seen.survey.answers.get(ask)
    if seen.is_missing(ask):
        return skipped("fwupdmgr is not installed", by_hand("Install it", f"on {nodes[0]}: sudo apt install fwupd"))
    devices = () if answer is not None and answer.code == _NO_UPDATES else parse_firmware(seen.text(ask))
    names = ", ".join(devices or ())
    return told(judge_firmware, judge_firmware(devices), why=seen.why_not(ask), node=nodes[0], names=names)


def held_ask(node: str) -> Output:
    return Output(node=node, argv=("apt-mark", "showhold"))


def _held(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = held_ask(nodes[0])
    text = seen.text(ask)
    if text is None and not seen.has_answer(ask):
        return unknown(seen.why_not(ask))
    packages = (text or "").split()
    judgement = judge_held(packages)
    shown = ", ".join(packages[:4]) + (f" and {len(packages) - 4} more" if len(packages) > 4 else "")
    return judged(judgement, f"held back: {shown}" if packages else "no package is held back")


CARDS = (
    card("release.os", look=_release),
    card(judge_ota, look=_ota, asks=each(ota_ask)),
    card(judge_reboot_due, look=_reboot, asks=each(_flag_ask, _packages_ask)),
    card(judge_driver_branch, look=_driver),
    card(judge_next_kernel, look=_next_kernel),
    card(judge_firmware, look=_firmware, asks=each(firmware_ask), basis=(Basis.BOOT, Basis.RELEASE)),
    card(judge_held, look=_held, asks=each(held_ask)),
)
