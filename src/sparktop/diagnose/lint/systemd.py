"""Lints of systemd units: restarts that come too soon, limits in the wrong section, waits that are cut short.

Facts: docs/facts/engines.md sections 1D and 6.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.cmdline.source import Item
from sparktop.diagnose.lint.lint import Edit, FindingBuilder, lint, removed, replaced
from sparktop.launchspec.spec import LaunchSpec
from sparktop.model.finding import Finding

RESTART_S = 60.0
DEFAULT_RESTART_S = 0.1
START_TIMEOUT_S = 90.0
"""systemd's default for TimeoutStartSec, which covers ExecStartPre too."""
_UNITS_S = {
    "": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "ms": 0.001, "msec": 0.001, "us": 1e-6,
    "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400,
}  # fmt: skip


def seconds_of(text: str) -> float | None:
    """A systemd time span in seconds (30, 90s, "2min 30s", infinity); None for anything else."""
    text = text.strip().lower()
    if text == "infinity":
        return float("inf")
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    if (
        not parts
        or re.sub(r"\d+(?:\.\d+)?\s*[a-z]*", "", text).strip()
        or any(unit not in _UNITS_S for _, unit in parts)
    ):
        return None
    return sum(float(number[:12]) * _UNITS_S[unit] for number, unit in parts)


def _restarts(spec: LaunchSpec) -> Item | None:
    item = spec.key("Restart", "Service")
    return item if item and item.value not in ("no", "", "on-success") else None


@lint("restart-sec")
def restart_sec(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.key("RestartSec", "Service")
    restarts = _restarts(spec)
    if not spec.unit or (item is None and (restarts is None or spec.is_drop_in)):
        return
    waits_s = seconds_of(item.value or "") if item else DEFAULT_RESTART_S
    if waits_s is None or waits_s >= RESTART_S or (restarts is None and not spec.is_drop_in):
        return
    edit = replaced(spec, item, "60") if item else Edit(("+ RestartSec=60",))
    figures = {"restart_sec": item.value if item else None, "default_s": DEFAULT_RESTART_S}
    yield build(item or restarts, "too-soon", figures, edits=[edit])


@lint("start-limit-section")
def start_limit_section(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    # systemd still reads the old names StartLimitInterval and StartLimitBurst in [Service].
    items = [item for item in spec.unit if item.section == "Service" and item.name.startswith("StartLimit")]
    if not any(item.name == "StartLimitIntervalSec" for item in items):
        return
    moved = tuple(f"+ {item.name}={item.value}" for item in items)
    yield build(items, "service", {"moved": moved}, edits=[removed(spec, *items)])


@lint("start-limit-absent")
def start_limit_absent(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    restarts = _restarts(spec)
    if restarts is None or spec.is_drop_in:
        return
    if any(item.name in ("StartLimitIntervalSec", "StartLimitInterval") for item in spec.unit):
        return
    yield build(restarts, "default")


@lint("start-timeout")
def start_timeout(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    kind = spec.key("Type", "Service")
    if kind is not None and kind.value == "oneshot":  # oneshot units have no time limit by default
        return
    waits = [(wait_s, item) for item in spec.unit if item.name == "ExecStartPre" and (wait_s := _wait_s(item)) > 0]
    if not waits:
        return
    wait_s, item = sum(wait for wait, _ in waits), max(waits, key=lambda wait: wait[0])[1]
    limit = spec.key("TimeoutStartSec", "Service") or spec.key("TimeoutSec", "Service")
    if limit is None and spec.is_drop_in:
        return
    limit_s = seconds_of(limit.value or "") if limit else START_TIMEOUT_S
    if limit_s is None or limit_s > wait_s or limit_s == 0:
        return
    suggested_s = max(600, int(wait_s) * 2)
    added = Edit((f"+ TimeoutStartSec={suggested_s}",))
    yield build(
        [item, *([limit] if limit else [])],
        "short",
        {"wait_s": wait_s, "limit_s": limit_s, "limit": limit.value if limit else None},
        edits=[replaced(spec, limit, str(suggested_s)) if limit else added],
    )


def _wait_s(item: Item) -> float:
    """The longest time a waiting command waits, by its arguments; 0 if it doesn't look like one."""
    text = item.value or ""
    if match := re.search(r"\b(?:sleep|timeout)\s+(?:-\S+\s+)*(\d+(?:\.\d+)?[smh]?)\b", text):
        return seconds_of(match[1]) or 0.0
    if not re.search(r"wait|memory|mem[-_]", text):
        return 0.0
    numbers = [float(number) for number in re.findall(r"(?<![\w.:-])(\d{1,6})s?(?![\w.:-])", text)]
    return numbers[-1] if len(numbers) > 1 or (numbers and numbers[0] >= START_TIMEOUT_S) else 0.0


@lint("gpu-reset-target")
def gpu_reset_target(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for item in spec.unit:
        if item.section != "Unit" or "nvidia-gpu-reset.target" not in (item.value or ""):
            continue
        is_needed = item.name in ("Requires", "BindsTo", "Requisite")
        other_units = [word for word in (item.value or "").split() if word != "nvidia-gpu-reset.target"]
        edit = replaced(spec, item, " ".join(other_units)) if other_units else removed(spec, item)
        case = "required" if is_needed else "ignored"
        yield build(item, case, {"key": item.name}, edits=[edit], subject=item.name)
