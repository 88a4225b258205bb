"""Folds kernel events: a burst of one kind is one incident, and the lines of one OOM kill are one kill.

NVIDIA advises taking events less than three minutes apart as one incident (facts/gb10.md section 3): a single
faulting kernel on GB10 logged 91 Xid 13 in a second and one Xid 43.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import replace

from sparktop.diagnose import kernel, xid
from sparktop.model.event import Advice, KernelEvent, Severity

SILENCE_S = 180.0
CAPACITY = 500
OOM_REPORT_S = 60.0
"""The kernel's report of one OOM kill (call, memory table, constraint, kill) is over within this."""

_BACKWARDS_S = 1.0
"""A clock further back than this is another boot, not a late line."""

_WEIGHT = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def fold(
    events: tuple[KernelEvent, ...], event: KernelEvent, *, silence_s: float = SILENCE_S
) -> tuple[KernelEvent, ...]:
    """The incidents with one more event, ordered by first occurrence. Pure; for a flood use a Folder."""
    folder = Folder(events, silence_s=silence_s)
    folder.add(event)
    return folder.events


def describe(event: KernelEvent) -> str:
    """One line for the pane: "91 × Xid 13 in 1 s  graphics engine exception", the container behind it."""
    what, _, which = event.title.partition("  ")
    if event.count > 1:
        what = f"{event.count} × {what}"
        lasted_s = _span_s(event)
        if lasted_s is not None:
            what = f"{what} in {_duration(lasted_s)}"
    if event.kind == "xid" and event.process:
        which = f"{which} ({event.process})"
    if event.container:
        which = f"{which} in {event.container}"
    return f"{what}  {which}" if which else what


class Folder:
    """Folds events one at a time in constant time each; `events` is what has come together so far."""

    def __init__(
        self, events: Iterable[KernelEvent] = (), *, silence_s: float = SILENCE_S, capacity: int = CAPACITY
    ) -> None:
        self._silence_s = silence_s
        self._capacity = capacity
        self._incidents: deque[_Incident] = deque()
        self._open: dict[Hashable, _Incident] = {}
        self._xids: dict[int, _Incident] = {}
        """The newest incident of each Xid, in the order of their last lines."""
        self._called: _Incident | None = None
        """The call of the OOM killer that no kill has answered yet."""
        self._folded: tuple[KernelEvent, ...] | None = None
        for event in events:
            self._append(_Incident(event))

    @property
    def events(self) -> tuple[KernelEvent, ...]:
        """The incidents, newest last by their first line; at most `capacity` of them."""
        if self._folded is None:
            self._folded = tuple(incident.event for incident in self._incidents)
        return self._folded

    def add(self, event: KernelEvent) -> None:
        """Take one event in, in the order of the log."""
        self._folded = None
        key = _key(event)
        incident = self._open.get(key)
        if event.kind == "oom-kill":
            if incident is not None and incident.within(event, OOM_REPORT_S):
                incident.complete(event)
                return
            if self._called is not None and self._called.within(event, OOM_REPORT_S):
                self._answer(self._called, event)
                return
        elif incident is not None and incident.within(event, self._silence_s):
            incident.repeat(event)
            self._note_xid(incident)
            return
        self._append(_Incident(self._with_cause(event)))

    def _append(self, incident: _Incident) -> None:
        self._incidents.append(incident)
        self._open[incident.key] = incident
        self._note_xid(incident)
        if incident.event.kind == "oom-invoked":
            self._called = incident
        if len(self._incidents) > self._capacity:
            oldest = self._incidents.popleft()
            if self._open.get(oldest.key) is oldest:
                del self._open[oldest.key]

    def _answer(self, called: _Incident, kill: KernelEvent) -> None:
        """The call of the OOM killer becomes the kill it led to."""
        if self._open.get(called.key) is called:
            del self._open[called.key]
        called.become(kill)
        self._open[called.key] = called
        self._called = None

    def _note_xid(self, incident: _Incident) -> None:
        code = incident.event.code
        if code is not None:
            self._xids.pop(code, None)  # back in as the newest
            self._xids[code] = incident

    def _with_cause(self, event: KernelEvent) -> KernelEvent:
        """An Xid that only follows another says which: 45, 154 and the like after their cause."""
        if event.code is None or event.follows is not None:
            return event
        causes = xid.lookup(event.code).follows
        if not causes:
            return event
        for code, earlier in reversed(self._xids.items()):
            if code in causes and code != event.code and earlier.within(event, self._silence_s):
                return replace(event, follows=code, title=f"{event.title}, after Xid {code}")
        return event


class _Incident:
    """One incident while it may still grow."""

    __slots__ = ("_bursts", "_recent", "event", "key")

    def __init__(self, event: KernelEvent) -> None:
        self.event = event
        self._bursts = kernel.bursts().get(event.kind, ())
        self._recent: deque[float] = deque(maxlen=max((burst.count for burst in self._bursts), default=0))
        self.key = _key(event)
        self._remember(event)

    def within(self, event: KernelEvent, silence_s: float) -> bool:
        """Whether the event comes soon enough after the last line; without clocks in common, it does."""
        base = self.event
        if base.last_boot_s is not None and event.first_boot_s is not None:
            gap_s = event.first_boot_s - base.last_boot_s
        elif base.last_wall_s is not None and event.first_wall_s is not None:
            gap_s = event.first_wall_s - base.last_wall_s
        else:
            return True
        return -_BACKWARDS_S <= gap_s <= silence_s

    def repeat(self, event: KernelEvent) -> None:
        """The same again."""
        base = self.event
        self.event = replace(
            base,
            count=base.count + event.count,
            severity=_worse(base.severity, event.severity),
            last_boot_s=_later(base.last_boot_s, event.last_boot_s),
            last_wall_s=_later(base.last_wall_s, event.last_wall_s),
            pid=base.pid if base.pid is not None else event.pid,
            process=base.process or event.process,
            container_id=base.container_id or event.container_id,
            container=base.container or event.container,
            advice=_both(base.advice, event.advice),
        )
        self._remember(event)
        self._escalate()

    def complete(self, event: KernelEvent) -> None:
        """Another line of the same OOM kill: it adds what is missing and counts for nothing."""
        base = self.event
        self.event = replace(
            base,
            last_boot_s=_later(base.last_boot_s, event.last_boot_s),
            last_wall_s=_later(base.last_wall_s, event.last_wall_s),
            process=base.process or event.process,
            container_id=base.container_id or event.container_id,
            container=base.container or event.container,
        )

    def become(self, kill: KernelEvent) -> None:
        """The kill that a call of the OOM killer led to; the call's line and time stay the first."""
        called = self.event
        self.event = replace(
            kill,
            text=called.text,
            line=called.line,
            first_boot_s=called.first_boot_s,
            first_wall_s=called.first_wall_s,
        )
        self.key = _key(kill)

    def _remember(self, event: KernelEvent) -> None:
        """The times of the last lines, where a burst's rate matters; a folded event's are spread evenly."""
        if not self._recent.maxlen:
            return
        first_s, last_s = event.first_boot_s, event.last_boot_s
        if first_s is None or last_s is None:
            first_s, last_s = event.first_wall_s, event.last_wall_s
        if first_s is None or last_s is None:
            return
        told = min(event.count, self._recent.maxlen)
        step_s = (last_s - first_s) / max(1, event.count - 1)
        self._recent.extend(last_s - step_s * back for back in range(told - 1, -1, -1))

    def _escalate(self) -> None:
        base = self.event
        for burst in self._bursts:
            if burst.advice in base.advice or base.count < burst.count:
                continue
            if burst.within_s is not None:
                recent = self._recent
                if len(recent) < burst.count or recent[-1] - recent[-burst.count] > burst.within_s:
                    continue
            severity = _worse(base.severity, burst.severity)
            base = replace(base, severity=severity, advice=(*base.advice, burst.advice))
        self.event = base


def _key(event: KernelEvent) -> Hashable:
    """What makes two events the same incident, time apart."""
    if event.code == 154:  # what is asked for differs from line to line, and the worst must not hide
        return (event.kind, event.code, event.severity)
    if event.code is not None:
        return (event.kind, event.code, None if xid.lookup(event.code).whole_gpu else event.process)
    if event.kind == "oom-kill":
        return (event.kind, event.pid)
    if event.process:
        return (event.kind, event.title.partition("  ")[0], event.process)
    return (event.kind, event.title)


def _both(first: tuple[Advice, ...], second: tuple[Advice, ...]) -> tuple[Advice, ...]:
    if first is second or all(advice in first for advice in second):
        return first
    return (*first, *(advice for advice in second if advice not in first))


def _worse(one: Severity, other: Severity) -> Severity:
    return one if _WEIGHT[one] >= _WEIGHT[other] else other


def _later(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _span_s(event: KernelEvent) -> float | None:
    if event.first_boot_s is not None and event.last_boot_s is not None:
        return max(0.0, event.last_boot_s - event.first_boot_s)
    if event.first_wall_s is not None and event.last_wall_s is not None:
        return max(0.0, event.last_wall_s - event.first_wall_s)
    return None


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
