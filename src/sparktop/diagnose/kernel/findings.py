"""Turns kernel events into findings: one finding for each kind of failure, consequences linked to their causes.

The texts come from xid.toml and patterns.toml; this module decides severity, wording and cause. It reports what the log
says, however old: whether it still matters on a live node is decided in rules/host/kernel_log.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel import line, xid
from sparktop.diagnose.kernel.incident import SILENCE_S, lasted, spans_on_one_clock
from sparktop.diagnose.kernel.knowledge import KernelRule
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Advice, KernelEvent, Severity, worse
from sparktop.model.finding import Evidence, Finding, LogPlace, Remedy

OOM_KILL = "kernel.oom-kill"
OOM_LIMIT = "kernel.oom-kill-in-limit"
OOM_CALLED = "kernel.oom-invoked"
NO_MEMORY = "kernel.nvrm-no-memory"
NEWEST = 20
"""How many of the newest events of a repeated failure are compared when looking for its cause."""
_PROGRAMS = frozenset(("earlyoom", "oomd"))
"""Kinds whose titles begin with a program's name, which isn't capitalised."""
_COSTS = {
    "reboot": "everything that runs on the machine",
    "safe-restart": "its requests, and the time to load",
    "relaunch": "the time to load",
    "stop-engine": "its requests",
}
"""Action -> what it costs."""


@dataclass(frozen=True, slots=True)
class _Case:
    """All events of one finding."""

    rule: str
    events: tuple[KernelEvent, ...]

    @property
    def first(self) -> KernelEvent:
        return self.events[0]

    @property
    def worst(self) -> KernelEvent:
        return max(self.events, key=lambda event: event.severity.weight)

    @property
    def count(self) -> int:
        return sum(event.count for event in self.events)


def findings(events: Sequence[KernelEvent], *, source: str, nodes: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """One finding for each kind of failure in these folded events, in the order of their first lines.

    `source` names the log in the evidence ("stdin", "spark1 kernel log"). Evidence carries `KernelEvent.line`: readers
    of text set it before folding, and the first line's number is kept.
    """
    cases = _cases(events)
    present = {case.rule: case for case in cases}
    return tuple(_finding(case, present, source, nodes) for case in cases)


GPU_GONE = ("kernel.xid-79", "kernel.xid-119", "kernel.xid-120", "kernel.nvrm-gsp")
"""Rules of kernel lines that say that the GPU, or its firmware, doesn't answer the driver any more."""


def rule_of(event: KernelEvent) -> str | None:
    """The rule an event belongs to; None for events that report nothing wrong."""
    known = knowledge_of(event)
    return known.id if known is not None else None


def knowledge_of(event: KernelEvent) -> KernelRule | None:
    """What is known of the rule an event belongs to; None for events that report nothing wrong."""
    if event.code is not None:
        return xid.lookup(event.code).rule
    pattern = line.pattern_by_id().get(event.pattern)
    return line.rules().get(pattern.rule) if pattern is not None else None


def is_restored(event: KernelEvent, events: Iterable[KernelEvent]) -> bool:
    """Whether a later event undoes this one: the same link is up again."""
    rule = rule_of(event)
    return rule is not None and any(
        _undoes(later) == rule and later.figures == event.figures and not _is_before(later, event) for later in events
    )


def live_cause(rule: str) -> str:
    """The live rule that causes a kernel rule on a watched node; "" where none does."""
    known = line.rules().get(rule)
    return known.live_cause if known is not None else ""


def _undoes(event: KernelEvent) -> str | None:
    pattern = line.pattern_by_id().get(event.pattern)
    return pattern.undoes or None if pattern is not None else None


@cache
def cards() -> tuple[Rule, ...]:
    """The cards of all kernel rules: Xids by number, then the others."""
    cards_by_id: dict[str, Rule] = {}
    for code, entry in sorted(xid.catalogue().items()):
        sources = tuple(dict.fromkeys(advice.source for advice in entry.advice))
        card = Rule(
            id=f"kernel.xid-{code}",
            kind=RuleKind.KERNEL,
            title=f"Xid {code}: {entry.name}",
            severity=_xid_severity(entry, entry.severity, follows=entry.rule.only_follows),
            scope="NVIDIA driver, any GPU" + ("; seen on GB10" if entry.seen_on_gb10 else ""),
            sources=sources,
        )
        cards_by_id[card.id] = card
    for pattern in line.patterns():
        if pattern.rule and pattern.rule not in cards_by_id:
            event = KernelEvent(kind=pattern.kind, pattern=pattern.id, severity=pattern.severity, title="", text="")
            is_escalating = line.rules()[pattern.rule].critical_at is not None
            cards_by_id[pattern.rule] = Rule(
                id=pattern.rule,
                kind=RuleKind.KERNEL,
                title=_general_title(pattern),
                severity=Severity.CRITICAL if is_escalating else _severity(event),
                scope="any text of a kernel log; live on every node",
                sources=tuple(advice.source for advice in pattern.advice),
            )
    return tuple(cards_by_id.values())


def _general_title(pattern: line.Pattern) -> str:
    """A pattern's title without process, device or port: "task stuck", "{process}" becomes "Task stuck"."""
    has_detail = pattern.detail and "{" not in pattern.detail
    text = re.sub(r"\{\w+\}", "…", f"{pattern.title}: {pattern.detail}" if has_detail else pattern.title)
    return text[0].upper() + text[1:]


# --- which failures --------------------------------------------------------------------------------------------------


def _cases(events: Sequence[KernelEvent]) -> list[_Case]:
    events_by_rule: dict[str, list[KernelEvent]] = {}
    for event in events:
        rule = rule_of(event)
        if rule is None or not _is_news(event, events):
            continue
        if rule == OOM_CALLED and any(candidate.kind == "oom-kill" for candidate in events):
            continue  # the kill itself says more
        events_by_rule.setdefault(rule, []).append(replace(event, severity=_severity(event)))
    return [_Case(rule, tuple(rule_events)) for rule, rule_events in events_by_rule.items()]


def _is_news(event: KernelEvent, events: Sequence[KernelEvent]) -> bool:
    """Whether a link-down event is worth reporting: not while booting, nor on a port that never had a cable."""
    rule = rule_of(event)
    if rule not in {pattern.undoes for pattern in line.patterns()}:
        return True
    if is_restored(event, events):
        return False
    if event.first_boot_s is not None:
        return event.severity is not Severity.INFO
    return any(_undoes(earlier) == rule and earlier.figures == event.figures for earlier in events)


def _severity(event: KernelEvent) -> Severity:
    """The severity for somebody asking why an engine or machine died; the kernel pane is milder."""
    if event.code is not None:
        return _xid_severity(xid.lookup(event.code), event.severity, follows=event.follows is not None)
    pattern = line.pattern_by_id()[event.pattern]
    critical_at = line.rules()[pattern.rule].critical_at
    if critical_at is not None and event.count >= critical_at:
        return Severity.CRITICAL
    is_meant = pattern.of_process is None or pattern.of_process.match(event.process or "")
    return worse(event.severity, pattern.finding_severity) if is_meant else event.severity


def _xid_severity(entry: xid.XidEntry, severity: Severity, *, follows: bool) -> Severity:
    if entry.rule.only_follows:
        return Severity.CRITICAL if follows else Severity.INFO
    return worse(severity, entry.finding_severity)


def _cause_rule(case: _Case, present: dict[str, _Case]) -> str | None:
    event = case.first
    if event.code is not None:
        cause_codes = xid.lookup(event.code).follows
        named_rules = [f"kernel.xid-{code}" for code in (event.follows,) if code is not None]
        near_rules = [
            rule
            for rule, other in present.items()
            if other.first.code in cause_codes and other.first.code != event.code and _are_near(other, case)
        ]
        for rule in (*named_rules, *near_rules):
            if rule in present and rule != case.rule:
                return rule
    known = knowledge_of(event)
    for rule in known.follows if known is not None else ():
        if rule in present and _are_near(present[rule], case):
            return rule
    return None


def _are_near(cause: _Case, effect: _Case) -> bool:
    """Whether any two of their events lie in one incident. The driver's threads don't always write in order."""
    for cause_event, effect_event in product(cause.events[-NEWEST:], effect.events[-NEWEST:]):
        spans = spans_on_one_clock(cause_event, effect_event)
        if spans is None or max(spans[1][0] - spans[0][1], spans[0][0] - spans[1][1]) <= SILENCE_S:
            return True
    return False


def _is_before(event: KernelEvent, later: KernelEvent) -> bool:
    """Whether `event` ended before `later`'s last line; False without a common clock or in a tie."""
    spans = spans_on_one_clock(event, later)
    return spans is not None and spans[0][1] < spans[1][1]


# --- wording ---------------------------------------------------------------------------------------------------------

LINES_SHOWN = 4


def _finding(case: _Case, present: dict[str, _Case], source: str, nodes: tuple[str, ...]) -> Finding:
    advice = tuple(dict.fromkeys(entry for event in case.events for entry in event.advice))
    events = case.events
    shown_events = events if len(events) <= LINES_SHOWN else (*events[: LINES_SHOWN - 1], events[-1])
    caused_by = _cause_rule(case, present)
    worst, known = case.worst, knowledge_of(case.first)
    assert known is not None
    log = LogPlace(nodes[0]) if nodes else None
    if known.only_follows and caused_by is not None:
        worst = replace(worst, severity=Severity.CRITICAL)
    return Finding(
        rule=case.rule,
        severity=worst.severity,
        title=_oom_title(case) if case.rule in (OOM_KILL, OOM_LIMIT, OOM_CALLED) else _title(case),
        explanation=_explanation(case, advice, present),
        distinction=known.distinction,
        evidence=tuple(
            Evidence(source=source, text=event.text, line=event.line, wall_s=event.first_wall_s, log=log)
            for event in shown_events
        ),
        remedies=() if known.only_follows else _remedies(case, advice),
        references=tuple(dict.fromkeys(entry.source for entry in advice)),
        nodes=nodes,
        brief=lasted(worst),  # the title has the rest
        caused_by=caused_by,
    )


def _title(case: _Case) -> str:
    event = case.worst
    head, detail = event.title, event.detail
    if event.code is None:
        details = dict.fromkeys(each_event.detail for each_event in case.events if each_event.detail)
        detail = ", ".join([*details][:3])
        if event.kind not in _PROGRAMS:
            head = head[0].upper() + head[1:]
    times = f"{case.count} × " if case.count > 1 else ""
    victim = f" ({_victim(event)})" if event.code is not None and _victim(event) else ""
    return f"{times}{head}: {detail}{victim}" if detail else f"{times}{head}{victim}"


def _victim(event: KernelEvent) -> str:
    """Process and container, as far as known: "python3 in vllm-qwen"."""
    if event.container:
        return f"{event.process} in {event.container}" if event.process else event.container
    return event.process or ""


def _oom_title(case: _Case) -> str:
    if case.rule == OOM_CALLED:
        return f"Out of memory: the kernel's OOM killer was called {case.worst.detail}"
    victims = list(dict.fromkeys(_victim(event) or "a process" for event in case.events))
    victim_names = ", ".join(victims[:3]) + (f" and {len(victims) - 3} more" if len(victims) > 3 else "")
    if case.rule == OOM_LIMIT:
        return f"The kernel killed {victim_names} at its container's memory limit (OOM kill)"
    return f"Out of memory: the kernel killed {victim_names} (OOM kill)"


def _explanation(case: _Case, advice: tuple[Advice, ...], present: dict[str, _Case]) -> str:
    sentences = [advice[0].meaning] if advice else []
    missing = {event.follows for event in case.events if event.follows} - {
        present_case.first.code for present_case in present.values()
    }
    for code in sorted(code for code in missing if code is not None):
        entry = xid.lookup(code)
        meaning = f": {entry.advice[0].meaning}" if entry.advice else ""
        sentences.append(
            f"The driver names Xid {code} ({entry.name}) as what came before, which isn't in this text{meaning}"
        )
    sentences += [f"{other.meaning.rstrip('.')} ({other.source})." for other in advice[1:]]
    if case.rule == OOM_KILL:
        sentences.append("The victim isn't always what took the memory: look for what took the most just before.")
    return " ".join(dict.fromkeys(sentences))


def _remedies(case: _Case, advice: tuple[Advice, ...]) -> tuple[Remedy, ...]:
    by_remedy: dict[str, str | None] = {}
    for entry in advice:
        if entry.remedy:
            by_remedy.setdefault(entry.remedy, entry.action)
    remedies: list[Remedy] = []
    for text, action in by_remedy.items():
        title, *steps = re.split(r"(?<=[a-z0-9)])\. (?=[A-Z])", text.rstrip("."))
        same_action = next((index for index, remedy in enumerate(remedies) if action and remedy.action == action), None)
        if same_action is not None:  # two sources advise the same in other words
            first = remedies[same_action]
            added = [text for text in (title, *steps) if text not in (first.title, *first.steps)]
            remedies[same_action] = replace(first, steps=(*first.steps, *added))
            continue
        remedies.append(Remedy(title=title, steps=tuple(steps), action=action, cost=_COSTS[action] if action else ""))
    if case.first.code is not None and case.worst.severity is Severity.CRITICAL:
        remedies.sort(key=lambda entry: entry.action != "reboot")  # on this machine every other remedy ends in a reboot
    return tuple(remedies)
