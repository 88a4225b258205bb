"""What sparktop consoles have stopped, as the audit of this machine tells: for findings that know our own work.

A stop is told from the moment before its step to the step's end; the audit is read on as it grows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.fleet import Intervention
from sparktop.operate.audit_file import (
    NEW,
    STOPPING_ACTIONS,
    audit_path,
    container_call,
    decoded,
    end_of,
    is_under_way,
    operator,
)
from sparktop.operate.step.run import RunState
from sparktop.operate.step.step_result import StepState

READ_EVERY_S = 0.5
FIRST_BYTES = 512 << 10
"""How far back the audit is read at the start."""
KEPT_S = 86_400.0
"""Ended engines are listed for a day."""
CUT_OFF_S = 300.0
"""A step without an end, of a run that is gone, may have stopped its engine for so long."""
MEANT_ACTIONS = (*STOPPING_ACTIONS, "end-holder", "launch")
"""Actions that leave stopped what they stop; a launch what it made room for."""
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Stop:
    """What one step stops."""

    node: str
    containers: tuple[str, ...]
    engine: str


@dataclass(slots=True)
class _AuditedRun:
    """One run, as far as the audit tells."""

    intent: Entry
    stops: Mapping[str, _Stop]
    """By step; what a run reboots has neither containers nor an engine."""
    order: tuple[str, ...]
    ended_steps: dict[str, tuple[float, float, bool]] = field(default_factory=dict)
    """By step: begun, ended, whether it may have done anything."""
    last_s: float = 0.0
    state: str = ""
    """How it ended; empty while it hasn't."""
    was_left: bool = False


class Interventions:
    """Reads an audit file on; called, it returns the stops of the last day, oldest first."""

    def __init__(
        self, path: Path | None = None, *, who: str = "", monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path or audit_path()
        self._who = who or operator()
        self._monotonic = monotonic
        self._read_s = float("-inf")
        self._offset = 0
        self._rest = b""
        self._runs: dict[str, _AuditedRun] = {}
        self._known: tuple[Intervention, ...] = ()

    def __call__(self) -> tuple[Intervention, ...]:
        """The stops, as of half a second ago at most; () without an audit, or where it can't be read."""
        now_s = self._monotonic()
        if now_s - self._read_s < READ_EVERY_S:
            return self._known
        self._read_s = now_s
        entries = self._news()
        for entry in entries:
            self._take(entry)
        if entries or any(not run.state for run in self._runs.values()):
            self._known = tuple(sorted(self._all(), key=lambda one: one.began_wall_s))
        return self._known

    def _news(self) -> list[dict[str, Any]]:
        try:
            size = os.stat(self._path).st_size
            if size == self._offset:
                return []
            if size < self._offset:
                self._offset, self._rest = 0, b""  # another file
            raw, self._offset = end_of(self._path, FIRST_BYTES, self._offset)
        except OSError:
            return []
        whole, _, self._rest = (self._rest + raw).rpartition(b"\n")
        return decoded(whole)[0]

    def _take(self, entry: Entry) -> None:
        run_id = entry.get("run")
        if not isinstance(run_id, str):
            return
        if entry["kind"] == "intent":
            for old_id in [key for key, run in self._runs.items() if entry["wall_s"] - run.last_s > KEPT_S]:
                del self._runs[old_id]
            if stops := dict(_stops(entry)):
                order = tuple(step["step"] for step in _steps(entry, "steps"))
                self._runs[run_id] = _AuditedRun(entry, stops, order, last_s=entry["wall_s"])
        run = self._runs.get(run_id)
        if run is None:
            return
        if entry["kind"] == "step" and isinstance(step := entry.get("step"), str):
            run.ended_steps[step] = run.last_s, entry["wall_s"], entry.get("state") != StepState.SKIPPED
        elif entry["kind"] == "end":
            run.state = str(entry.get("state") or "ended")
            run.was_left = entry.get("left") is True
        run.last_s = entry["wall_s"]

    def _all(self) -> Iterator[Intervention]:
        for run_id, run in self._runs.items():
            is_gone = not run.state and not is_under_way(run_id, self._path)
            for step, stop in run.stops.items():
                times = _times(run, step, is_gone=is_gone)
                if times is None:
                    continue
                action = sanitise.name(str(run.intent.get("action", "")))
                who = sanitise.name(str(run.intent.get("who", "")))
                is_meant = action in MEANT_ACTIONS and (not run.state or run.state == RunState.DONE)
                yield Intervention(
                    node=stop.node,
                    containers=stop.containers,
                    engine=stop.engine,
                    action=action,
                    who="" if who == self._who else who,
                    began_wall_s=times[0],
                    ended_wall_s=times[1],
                    is_under_way=not run.state and not is_gone,
                    is_meant=is_meant or (action in STOPPING_ACTIONS and run.state != RunState.REFUSED),
                )


def _times(run: _AuditedRun, step: str, *, is_gone: bool) -> tuple[float, float | None] | None:
    """When the step began and ended; None where it did nothing."""
    if step in run.ended_steps:
        began_s, ended_s, has_acted = run.ended_steps[step]
        return (began_s, ended_s) if has_acted else None
    current = next((name for name in run.order if name not in run.ended_steps), "")
    if step != current or (run.state and not run.was_left):
        return None
    return run.last_s, run.last_s + CUT_OFF_S if is_gone or run.state else None


def _stops(intent: Entry) -> Iterator[tuple[str, _Stop]]:
    for words in (*_steps(intent, "steps"), *_steps(intent, "way_back")):
        calls = filter(None, map(container_call, _dicts(words.get("operations"))))
        containers = tuple(container for container, verb in calls if verb in ("stop", "kill") and container != NEW)
        engine = sanitise.name(str(words.get("stops", "")))
        if containers or engine or (intent.get("action") == "reboot" and words["step"] == "reboot"):
            yield words["step"], _Stop(sanitise.name(str(words.get("node", ""))), containers, engine)


def _steps(intent: Entry, key: str) -> list[dict[str, Any]]:
    return [step for step in _dicts(intent.get(key)) if isinstance(step.get("step"), str)]


def _dicts(value: object) -> Sequence[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
