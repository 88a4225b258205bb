"""What kernel events mean together: one finding a failure, the Xids that only follow under the one they follow.

The words are those of xid.toml and kernel_patterns.toml; this decides how bad, which, and what follows what. For a live
node it says what the log says, whenever that was: whether it still matters is `live.kernel`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from sparktop.diagnose import kernel, xid
from sparktop.diagnose.burst import SILENCE_S, describe
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.finding import Evidence, Finding, Remedy

OOM_KILL = "kernel.oom-kill"
OOM_LIMIT = "kernel.oom-kill-in-limit"
OOM_CALLED = "kernel.oom-invoked"
NO_MEMORY = "kernel.nvrm-no-memory"
NEWEST = 20
"""Of a failure that comes again and again, so many are looked at for what caused them."""
MANY = 50
"""So many refused allocations are a wedge in the making however long they took."""

_RULES = {
    "oom.cgroup-line": OOM_KILL,
    "oom.killed": OOM_KILL,
    "oom.reaped": OOM_KILL,
    "oom.limit-line": OOM_LIMIT,
    "oom.killed-in-cgroup": OOM_LIMIT,
    "nvrm.iova-metadata": NO_MEMORY,
    "link.mlx5-down": "kernel.link-down",
    "link.nic-down": "kernel.link-down",
    "aer.reported-fatal": "kernel.aer-fatal",
    "aer.reported-uncorrected": "kernel.aer-uncorrected",
    "disk.io-error-nvme": "kernel.disk-io-error",
}
"""Rules that several patterns feed; any other has its pattern's name."""
_SILENT = frozenset(
    [
        "link.plugged",
        "link.mlx5-up",
        "link.nic-up",
        "link.slot-power",
        "hardware.corrected",
        "kernel.warn",
        "nvrm.assertion",
        "display.modeset-error",
    ]
)
"""Patterns for the kernel pane alone: nothing is wrong when they come."""
_RESTORED = {"kernel.link-down": ("link.mlx5-up", "link.nic-up"), "kernel.link-unplugged": ("link.plugged",)}
"""What undoes a finding, and patterns alike: for the same interface or port."""

_STOPS_WORK = frozenset((38, 43, 56, 61, 74, 174, *range(144, 151)))
"""Xids that NVIDIA rates below a reset and that nevertheless ended somebody's work."""
_MEDIA = frozenset((60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142))
_BREAKS = frozenset(
    [
        "nvrm.api-mismatch",
        "driver.nvml-unknown",
        "oom.invoked",
        "oom.limit-reached",
        "oom.limit-line",
        "oom.killed-in-cgroup",
    ],
)
"""Patterns that are a warning in the pane and the end of an engine to whoever asks why it died."""
_ENGINE = re.compile(r"VLLM::|sglang::|ray::|vllm|sglang|python|pt_main_thread", re.IGNORECASE)
_STUCK_MATTERS = re.compile(r"VLLM::|sglang::|vllm|python|nvidia|gnome-shell|Xorg|kwin|KMS thread|dockerd|containerd")

_GPU_GONE = ("kernel.xid-79", "kernel.xid-119", "kernel.xid-120", "kernel.xid-62", "kernel.xid-143")
_AFTER = {
    "kernel.nvrm-gpu-lost": (*_GPU_GONE, "kernel.xid-154"),
    "kernel.nvrm-gsp": _GPU_GONE,
    "kernel.uvm-fatal": (*_GPU_GONE, "kernel.xid-31", "kernel.xid-13", "kernel.xid-48", "kernel.xid-95"),
    "kernel.display-flip-timeout": (*_GPU_GONE, "kernel.nvrm-gsp"),
    "kernel.display-kms-update": (*_GPU_GONE, "kernel.nvrm-gsp", "kernel.display-flip-timeout"),
    "kernel.display-modeset-stuck": (*_GPU_GONE, "kernel.nvrm-gsp", "kernel.display-flip-timeout"),
    "kernel.hung-task": (*_GPU_GONE, "kernel.nvrm-gsp", "kernel.nvme-dead", "kernel.oops"),
    "kernel.lockup": (*_GPU_GONE, "kernel.nvrm-gsp", OOM_KILL),
    "kernel.rcu-stall": (*_GPU_GONE, "kernel.nvrm-gsp", OOM_KILL, "kernel.lockup"),
    "kernel.nvrm-init-failed": ("kernel.driver-module-refused", "kernel.nvrm-open-module", "kernel.nvrm-sec2-boot"),
    "kernel.driver-probe-failed": (
        "kernel.driver-module-refused",
        "kernel.driver-module-for-other-kernel",
        "kernel.nvrm-gsp-firmware",
        "kernel.nvrm-init-failed",
    ),
    "kernel.xid-119": ("kernel.nvrm-sec2-boot",),
    "kernel.disk-io-error": ("kernel.nvme-dead",),
    "kernel.disk-read-only": ("kernel.nvme-dead", "kernel.disk-io-error"),
    "kernel.memory-page-allocation": (OOM_KILL,),
    "kernel.memory-earlyoom-low": ("kernel.memory-earlyoom-kill",),
    "kernel.aer-uncorrected": ("kernel.aer-fatal",),
    "kernel.aer-recovery-failed": ("kernel.aer-fatal", "kernel.aer-uncorrected"),
}
"""What a finding follows from, where that is there too; the first is named. Xids have theirs in xid.toml."""


@dataclass(frozen=True, slots=True)
class _Case:
    """All events that are one finding."""

    rule: str
    events: tuple[KernelEvent, ...]

    @property
    def first(self) -> KernelEvent:
        return self.events[0]

    @property
    def worst(self) -> KernelEvent:
        return min(self.events, key=lambda event: _RANK[event.severity])

    @property
    def count(self) -> int:
        return sum(event.count for event in self.events)


_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def findings(events: Sequence[KernelEvent], *, source: str, nodes: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """One finding for each kind of failure in these folded events, in the order of their first lines.

    `source` stands in the evidence ("stdin", "spark1 kernel log") with the events' own line numbers: a reader of text
    sets `KernelEvent.line` before it folds, and the first line's number stays.
    """
    cases = _cases(events)
    present = {case.rule: case for case in cases}
    return tuple(_finding(case, present, source, nodes) for case in cases)


def rule_of(event: KernelEvent) -> str | None:
    """The rule an event belongs to; None for events that say nothing is wrong."""
    if event.code is not None:
        return f"kernel.xid-{event.code}"
    if not event.pattern or event.pattern in _SILENT:
        return None
    return _RULES.get(event.pattern) or "kernel." + event.pattern.removeprefix("kernel.").replace(".", "-")


def is_restored(event: KernelEvent, events: Iterable[KernelEvent]) -> bool:
    """Whether a later event says the opposite of this one: the same link is up again."""
    undoing = _RESTORED.get(rule_of(event) or "", ())
    return any(
        other.pattern in undoing and _which(other) == _which(event) and not _is_before(other, event) for other in events
    )


@cache
def cards() -> tuple[Rule, ...]:
    """The card of every kernel rule: Xids by number, then the others."""
    found: dict[str, Rule] = {}
    for code, entry in sorted(xid.catalogue().items()):
        sources = tuple(dict.fromkeys(advice.source for advice in entry.advice))
        card = Rule(
            id=f"kernel.xid-{code}",
            kind=RuleKind.KERNEL,
            title=f"Xid {code}: {entry.name}",
            severity=_xid_severity(code, entry.severity, follows=code == 45),
            scope="NVIDIA driver, any GPU" + ("; seen on GB10" if entry.seen_on_gb10 else ""),
            sources=sources,
        )
        found[card.id] = card
    for pattern in kernel.patterns():
        event = KernelEvent(kind=pattern.kind, pattern=pattern.id, severity=pattern.severity, title="", text="")
        rule = rule_of(event)
        if rule is not None and rule not in found:
            title = " ".join(re.sub(r"[,:]?\s*\{\w+\}", "", pattern.title).split())
            found[rule] = Rule(
                id=rule,
                kind=RuleKind.KERNEL,
                title=title[0].upper() + title[1:],
                severity=Severity.CRITICAL if rule == NO_MEMORY else _severity(event),
                scope="any text of a kernel log; live on every node",
                sources=tuple(advice.source for advice in pattern.advice),
            )
    return tuple(found.values())


# --- which failures --------------------------------------------------------------------------------------------------


def _cases(events: Sequence[KernelEvent]) -> list[_Case]:
    grouped: dict[str, list[KernelEvent]] = {}
    for event in events:
        rule = rule_of(event)
        if rule is None or (rule in _RESTORED and not _is_news(event, events)):
            continue
        if rule == OOM_CALLED and any(other.kind == "oom-kill" for other in events):
            continue  # the kill says it better
        grouped.setdefault(rule, []).append(replace(event, severity=_severity(event)))
    return [_Case(rule, tuple(found)) for rule, found in grouped.items()]


def _is_news(event: KernelEvent, events: Sequence[KernelEvent]) -> bool:
    """Whether a link that is down was up before: a port without a cable, and links while a machine boots, are none."""
    if is_restored(event, events):
        return False
    if event.first_boot_s is not None:
        return event.severity is not Severity.INFO
    undoing = _RESTORED[rule_of(event) or ""]
    return any(other.pattern in undoing and _which(other) == _which(event) for other in events)


def _severity(event: KernelEvent) -> Severity:
    """How bad, said to somebody who asks what ended an engine or a machine; the pane is calmer."""
    if event.code is not None:
        return _xid_severity(event.code, event.severity, follows=event.follows is not None)
    process = event.process or ""
    if event.pattern == "kernel.segfault" and _ENGINE.match(process):
        return Severity.WARNING
    if event.pattern in _BREAKS or (event.pattern == "kernel.hung-task" and _STUCK_MATTERS.match(process)):
        return Severity.CRITICAL
    if event.kind == "nvrm-no-memory" and event.count >= MANY:
        return Severity.CRITICAL
    return event.severity


def _xid_severity(code: int, severity: Severity, *, follows: bool) -> Severity:
    entry = xid.lookup(code)
    if code == 45:
        return Severity.CRITICAL if follows else Severity.INFO
    if code == 63:
        return min(severity, Severity.WARNING, key=_RANK.__getitem__)
    if severity is Severity.WARNING and code not in _MEDIA:
        ends_application = entry.immediate == "RESTART_APP" or code in _STOPS_WORK
        return Severity.CRITICAL if ends_application else severity
    return severity


def _cause(case: _Case, present: dict[str, _Case]) -> str | None:
    event = case.first
    if event.code is not None:
        wanted = xid.lookup(event.code).follows
        named = [f"kernel.xid-{code}" for code in (event.follows,) if code is not None]
        near = [
            rule
            for rule, other in present.items()
            if other.first.code in wanted and other.first.code != event.code and _are_near(other, case)
        ]
        for rule in (*named, *near):
            if rule in present and rule != case.rule:
                return rule
    for rule in _AFTER.get(case.rule, ()):
        if rule in present and _are_near(present[rule], case):
            return rule
    return None


def _are_near(cause: _Case, effect: _Case) -> bool:
    """Whether some event of each lie in one incident: the driver's threads don't always write in order."""
    for one in cause.events[-NEWEST:]:
        for other in effect.events[-NEWEST:]:
            gap_s = _gap_s(one, other)
            if gap_s is None or gap_s <= SILENCE_S:
                return True
    return False


def _gap_s(one: KernelEvent, other: KernelEvent) -> float | None:
    """Seconds between two events' spans; None without a clock in common."""
    for first, last in (("first_boot_s", "last_boot_s"), ("first_wall_s", "last_wall_s")):
        times = [getattr(event, name) for event in (one, other) for name in (first, last)]
        if None not in times:
            return float(max(0.0, times[2] - times[1], times[0] - times[3]))
    return None


def _is_before(one: KernelEvent, other: KernelEvent) -> bool:
    """Whether `one` was over before `other`'s last line; without a common clock, and in a tie, it was not."""
    for name in ("last_boot_s", "last_wall_s"):
        first, second = getattr(one, name), getattr(other, name)
        if first is not None and second is not None:
            return bool(first < second)
    return False


def _which(event: KernelEvent) -> str:
    return event.title.partition("  ")[2]


# --- what is said ----------------------------------------------------------------------------------------------------

LINES_SHOWN = 4


def _finding(case: _Case, present: dict[str, _Case], source: str, nodes: tuple[str, ...]) -> Finding:
    advice = tuple(dict.fromkeys(each for event in case.events for each in event.advice))
    events = case.events
    shown = events if len(events) <= LINES_SHOWN else (*events[: LINES_SHOWN - 1], events[-1])
    caused_by = _cause(case, present)
    worst = case.worst
    if worst.code == 45 and caused_by is not None:
        worst = replace(worst, severity=Severity.CRITICAL)
    return Finding(
        rule=case.rule,
        severity=worst.severity,
        title=_oom_title(case) if case.rule in (OOM_KILL, OOM_LIMIT, OOM_CALLED) else _title(case),
        explanation=_explanation(case, advice, present),
        distinction=xid.lookup(case.first.code).distinction if case.first.code is not None else _distinction(case),
        evidence=tuple(
            Evidence(source=source, text=event.text, line=event.line, wall_s=event.first_wall_s) for event in shown
        ),
        remedies=_remedies(case, advice),
        references=tuple(dict.fromkeys(each.source for each in advice)),
        nodes=nodes,
        brief=describe(worst),
        caused_by=caused_by,
    )


def _title(case: _Case) -> str:
    event = case.worst
    head, _, which = event.title.partition("  ")
    which = re.sub(r", after Xid \d+$", "", which)
    if event.code is None:
        others = dict.fromkeys(_which(each) for each in case.events if _which(each))
        which = ", ".join([*others][:3])
        if not event.title.startswith(("earlyoom", "systemd-oomd")):
            head = head[0].upper() + head[1:]
    times = f"{case.count} × " if case.count > 1 else ""
    who = f" ({_who(event)})" if event.code is not None and _who(event) else ""
    return f"{times}{head}: {which}{who}" if which else f"{times}{head}{who}"


def _who(event: KernelEvent) -> str:
    """ "python3 in vllm-qwen", as much of it as is known."""
    if event.container:
        return f"{event.process} in {event.container}" if event.process else event.container
    return event.process or ""


def _oom_title(case: _Case) -> str:
    if case.rule == OOM_CALLED:
        return f"Out of memory: the kernel's OOM killer was called {_which(case.worst)}"
    victims = list(dict.fromkeys(_who(event) or "a process" for event in case.events))
    named = ", ".join(victims[:3]) + (f" and {len(victims) - 3} more" if len(victims) > 3 else "")
    if case.rule == OOM_LIMIT:
        return f"The kernel killed {named} at its container's memory limit (OOM kill)"
    return f"Out of memory: the kernel killed {named} (OOM kill)"


def _explanation(case: _Case, advice: tuple[Advice, ...], present: dict[str, _Case]) -> str:
    told = [advice[0].meaning] if advice else []
    missing = {event.follows for event in case.events if event.follows} - {
        other.first.code for other in present.values()
    }
    for code in sorted(code for code in missing if code is not None):
        entry = xid.lookup(code)
        why = f": {entry.advice[0].meaning}" if entry.advice else ""
        told.append(f"The driver names Xid {code} ({entry.name}) as what came before, which isn't in this text{why}")
    told += [f"According to {each.source}: {each.meaning}" for each in advice[1:]]
    if case.rule == OOM_KILL:
        told.append("So the victim may be a bystander: look for what held or took the most just before.")
    return " ".join(dict.fromkeys(told))


def _distinction(case: _Case) -> tuple[str, ...]:
    if case.rule == OOM_KILL:
        return ("The kernel says so itself: it is neither a stop by hand nor an engine's own CUDA allocation error.",)
    if case.rule == OOM_LIMIT:
        return ("Only that container had run out; the machine had not.",)
    return ()


_KEYS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"(?:Stop the (?:engines|work)[^.]*reboot|Reboot)"), "reboot", "everything that runs on the machine"),
    (re.compile(r"Restart (?:the|that) engine\b(?! first)"), "safe-restart", "its requests, and the time to load"),
    (re.compile(r"Choose another MoE backend|With no other Xid before it, lower"), "relaunch", "the time to load"),
    (re.compile(r"Stop an engine now|Look at available memory. If these repeat, stop"), "stop-engine", "its requests"),
    (re.compile(r"Wait until available memory has come back, then restart"), "relaunch", "the time to load"),
)
"""Which action does what an advice asks for, by how it begins, and what that costs."""


def _remedies(case: _Case, advice: tuple[Advice, ...]) -> tuple[Remedy, ...]:
    if case.first.code == 45:
        return ()  # what ended the application is the thing to mend
    found: list[Remedy] = []
    for text in dict.fromkeys(each.action for each in advice if each.action):
        key = next((row for row in _KEYS if row[0].match(text)), None)
        first, rest = _sentences(text)
        known = next((index for index, one in enumerate(found) if key and one.action == key[1]), None)
        if known is not None:  # two sources ask for the same, in other words
            found[known] = replace(found[known], steps=(*found[known].steps, first, *rest))
            continue
        found.append(
            Remedy(title=first, steps=rest, action=key[1] if key else None, cost=key[2] if key else ""),
        )
    if case.first.code is not None and xid.lookup(case.first.code).severity is Severity.CRITICAL:
        found.sort(key=lambda each: each.action != "reboot")  # what the rest comes down to on this machine
    return tuple(found)


def _sentences(text: str) -> tuple[str, tuple[str, ...]]:
    first, *rest = re.split(r"(?<=[a-z0-9)])\. (?=[A-Z])", text.rstrip("."))
    return first, tuple(rest)
