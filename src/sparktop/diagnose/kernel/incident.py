"""Folds kernel events into incidents: a burst of one kind, or all lines of one OOM kill, becomes one event.

NVIDIA advises treating events less than three minutes apart as one incident (docs/facts/gb10.md section 3): a single
faulting kernel on GB10 logged 91 Xid 13 in a second and one Xid 43.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace

from sparktop.diagnose.kernel import line, xid
from sparktop.model.event import KernelEvent, worse

SILENCE_S = 180.0
CAPACITY = 500
OOM_REPORT_S = 60.0
"""The kernel's report of one OOM kill (call, memory table, constraint, kill) takes less than this."""
_BACKWARDS_S = 1.0
"""A clock that goes back further than this belongs to another boot; less is a late line."""
_CLOCKS = (("first_boot_s", "last_boot_s"), ("first_wall_s", "last_wall_s"))


def describe(event: KernelEvent) -> str:
    """An incident in one line for the pane: "91 × Xid 13 in 1 s  graphics engine exception in vllm-qwen"."""
    head, tail = counted(event), victim_text(event)
    return f"{head}  {tail}" if tail else head


def counted(event: KernelEvent) -> str:
    """What happened and how often: "91 × Xid 13 in 1 s"."""
    if event.count < 2:
        return event.title
    return f"{event.count} × {event.title} {lasted(event)}".rstrip()


def lasted(event: KernelEvent) -> str:
    """In which time it happened so often: "in 1 s"; empty for once, or where no clock tells."""
    spans = spans_on_one_clock(event) if event.count > 1 else None
    return f"in {_duration(spans[0][1] - spans[0][0])}" if spans else ""


def victim_text(event: KernelEvent) -> str:
    """Which, and to whom: "graphics engine exception in vllm-qwen"."""
    text = event.particulars
    if event.kind == "xid" and event.process:
        text = f"{text} ({event.process})"
    return f"{text} in {event.container}" if event.container else text


class IncidentGrouper:
    """Folds events in the order of the log, each in constant time; `events` holds the incidents so far."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._incidents: deque[_Incident] = deque()
        self._newest_by_key: dict[Hashable, _Incident] = {}
        self._xids: dict[int, _Incident] = {}
        """The newest incident of each Xid, ordered by last line."""
        self._oom_call: _Incident | None = None
        """The newest call of the OOM killer for which no kill has been logged yet."""
        self._folded: tuple[KernelEvent, ...] | None = None

    @property
    def events(self) -> tuple[KernelEvent, ...]:
        """The incidents ordered by first line; at most `capacity`, the newest."""
        if self._folded is None:
            self._folded = tuple(incident.event for incident in self._incidents)
        return self._folded

    def add(self, event: KernelEvent) -> None:
        """Fold in the log's next event."""
        self._folded = None
        key = _key(event)
        incident = self._newest_by_key.get(key)
        if event.kind == "oom-kill":
            if incident is not None and incident.within(event, OOM_REPORT_S):
                incident.complete(event)
                return
            if self._oom_call is not None and self._oom_call.within(event, OOM_REPORT_S):
                self._turn_into_kill(self._oom_call, event)
                return
        elif incident is not None and incident.within(event, SILENCE_S):
            incident.repeat(event)
            self._note_xid(incident)
            return
        self._append(_Incident(self._with_cause(event)))

    def _append(self, incident: _Incident) -> None:
        self._incidents.append(incident)
        self._newest_by_key[incident.key] = incident
        self._note_xid(incident)
        if incident.event.kind == "oom-invoked":
            self._oom_call = incident
        if len(self._incidents) > self._capacity:
            oldest = self._incidents.popleft()
            if self._newest_by_key.get(oldest.key) is oldest:
                del self._newest_by_key[oldest.key]
            if oldest.event.code is not None and self._xids.get(oldest.event.code) is oldest:
                del self._xids[oldest.event.code]

    def _turn_into_kill(self, oom_call: _Incident, kill: KernelEvent) -> None:
        """Turn the OOM killer's call into the kill it led to."""
        if self._newest_by_key.get(oom_call.key) is oom_call:
            del self._newest_by_key[oom_call.key]
        oom_call.become(kill)
        self._newest_by_key[oom_call.key] = oom_call
        self._oom_call = None

    def _note_xid(self, incident: _Incident) -> None:
        code = incident.event.code
        if code is not None:
            self._xids.pop(code, None)  # reinserted as the newest
            self._xids[code] = incident

    def _with_cause(self, event: KernelEvent) -> KernelEvent:
        """The event with the Xid it follows, for Xids such as 45 and 154 that only follow another."""
        if event.code is None or event.follows is not None:
            return event
        causes = xid.lookup(event.code).follows
        if not causes:
            return event
        for code, earlier in reversed(self._xids.items()):
            if code in causes and code != event.code and earlier.within(event, SILENCE_S):
                return replace(event, follows=code)
        return event


class _Incident:
    """One incident that may still grow."""

    __slots__ = ("_bursts", "_recent", "event", "key")

    def __init__(self, event: KernelEvent) -> None:
        self.event = event
        self._bursts = line.bursts().get(event.kind, ())
        self._recent: deque[float] = deque(maxlen=max((burst.count for burst in self._bursts), default=0))
        self.key = _key(event)
        self._remember(event)

    def within(self, event: KernelEvent, silence_s: float) -> bool:
        """Whether an event is close enough in time to belong here; True if there is no common clock."""
        spans = spans_on_one_clock(self.event, event)
        return spans is None or -_BACKWARDS_S <= spans[1][0] - spans[0][1] <= silence_s

    def repeat(self, event: KernelEvent) -> None:
        """Count another event of the same kind."""
        base = self.event
        self.complete(event)
        self.event = replace(
            self.event,
            count=base.count + event.count,
            severity=worse(base.severity, event.severity),
            pid=base.pid if base.pid is not None else event.pid,
            advice=tuple(dict.fromkeys((*base.advice, *event.advice))),
        )
        self._remember(event)
        self._escalate()

    def complete(self, event: KernelEvent) -> None:
        """Add what another line of the same incident says, without counting it."""
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
        """Turn the OOM killer's call into the kill, whose line names the victim; it began with the call."""
        began_at = self.event
        self.event = replace(kill, first_boot_s=began_at.first_boot_s, first_wall_s=began_at.first_wall_s)
        self.key = _key(kill)

    def _remember(self, event: KernelEvent) -> None:
        """Keep the newest lines' times, for bursts with a time limit; a folded event's lines are spread evenly."""
        if not self._recent.maxlen:
            return
        spans = spans_on_one_clock(event)
        if spans is None:
            return
        first_s, last_s = spans[0]
        count = min(event.count, self._recent.maxlen)
        step_s = (last_s - first_s) / max(1, event.count - 1)
        self._recent.extend(last_s - step_s * back for back in range(count - 1, -1, -1))

    def _escalate(self) -> None:
        base = self.event
        for burst in self._bursts:
            if burst.advice in base.advice or base.count < burst.count:
                continue
            if burst.within_s is not None:
                recent = self._recent
                if len(recent) < burst.count or recent[-1] - recent[-burst.count] > burst.within_s:
                    continue
            severity = worse(base.severity, burst.severity)
            base = replace(base, severity=severity, advice=(*base.advice, burst.advice))
        self.event = base


def _key(event: KernelEvent) -> Hashable:
    """Equal for events that are one incident if close enough in time."""
    if event.code == 154:  # lines may ask for different recovery actions, and the worst must stay visible
        return (event.kind, event.code, event.severity)
    if event.code is not None:
        return (event.kind, event.code, None if xid.lookup(event.code).whole_gpu else event.process)
    if event.kind == "oom-kill":
        return (event.kind, event.pid)
    pattern = line.pattern_by_id().get(event.pattern)
    what = (pattern.rule or pattern.id) if pattern is not None else event.title
    if event.process:  # what else the line names (how long a task is stuck) may change; a signal is another event
        return (event.kind, what, event.process, event.figure("signal"))
    return (event.kind, what, tuple(value for _, value in event.figures))


def _later(first_s: float | None, second_s: float | None) -> float | None:
    if first_s is None or second_s is None:
        return second_s if first_s is None else first_s
    return max(first_s, second_s)


def spans_on_one_clock(*events: KernelEvent) -> list[tuple[float, float]] | None:
    """(first, last) of each event, by the boot clock if all have it, else the wall clock; None without a common one."""
    for first, last in _CLOCKS:
        spans = [(getattr(event, first), getattr(event, last)) for event in events]
        if not any(None in times for times in spans):
            return spans
    return None


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
