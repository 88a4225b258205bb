"""The probe's side of the conversation, for a simulated Spark: what to send and when, by the rules of probe.remote.

Times are seconds of the showing, but for the lease, which is the operator's clock: it is about them being there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparktop.probe.remote import FACTS_S, PAUSE_PRESSURE, PROTOCOL, Pace
from sparktop.probe.remote_desktop import SILENT_S
from sparktop.sim import lines
from sparktop.sim.acts import Act
from sparktop.sim.guard import Guard
from sparktop.sim.spark import Spark
from sparktop.wire import LEASE_S, WINDOW

_encode = json.JSONEncoder(separators=(",", ":")).encode
_LIMITS = {"sample": WINDOW, "gpu": WINDOW}
_NEVER = float("-inf")
LOOK_S = 4.9
"""From one look at the desktop to the next."""


class Leave(Exception):
    """The conversation is over; `reason` is said in a bye, or nothing is when it is None."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class _Desk:
    """Where the child that watches the desktop is."""

    asks: bool = True
    """Whether the next look asks."""
    asked_s: float | None = None
    """Since when a question is open."""
    unanswered: int = 0
    answers: bool | None = None
    silent_s: float | None = None


class Talk:
    """One conversation: `advance` gives the bytes due by now, `hear` takes what the console sent."""

    def __init__(
        self,
        spark: Spark,
        *,
        interval_s: float,
        digest: str,
        began_s: float,
        now_s: float,
        lease_s: float = LEASE_S,
        react: Callable[[Act], None] | None = None,
    ) -> None:
        self.spark = spark
        """The node as it is; another one once something was done to it."""
        self._guard = Guard(react)
        """What the probe does to its node by itself."""
        self._began_s = began_s
        self._heard_s = now_s
        self._digest = digest
        self._lease_s = lease_s
        self._last_t = began_s
        self._pace = Pace(interval_s)
        self._sequence = 0
        self._acked = 0
        self._in_flight: dict[str, list[int]] = {}
        self._slots: dict[str, dict[str, Any]] = {}
        self._kernel: list[dict[str, Any]] = []
        self._kernel_until_s = _NEVER
        self._kernel_after = 0
        self._skipped = 0
        self._states: dict[str, tuple[str, str]] = {}
        self._facts_due_s = began_s + 0.1
        self._due = {"sample": began_s, "gpu": began_s + 0.05, "processes": began_s + 0.1, "kernel": began_s + 0.15}
        self._due["desktop"] = began_s + 0.3
        self._desk = _Desk()
        self._input = b""

    def opening(self) -> bytes:
        """The first line: who this is."""
        facts = lines.facts(self.spark)
        body = {"kind": "hello", "protocol": PROTOCOL, "pid": 21_377, "digest": self._digest, "facts": facts}
        return _encode(body).encode() + b"\n"

    @property
    def due_s(self) -> float:
        """When there is something to say next."""
        return min(*self._due.values(), self._guard.due_s)

    def hear(self, data: bytes, now_s: float) -> None:
        """Take input; `now_s` is the operator's clock.

        Raises:
            Leave: the input ended, or asked for the end.
        """
        if not data:
            raise Leave(None)
        self._heard_s = now_s
        *complete, self._input = (self._input + data).split(b"\n")
        if len(self._input) > 65536:
            raise Leave("what came in is no protocol of ours")
        for line in complete:
            try:
                message = json.loads(line)
                if "ack" in message:
                    self._acked = max(self._acked, min(int(message["ack"]), self._sequence))
                elif "interval" in message:
                    self._pace.interval_s = min(60.0, max(0.1, float(message["interval"])))
                    self._due["sample"] = min(self._due["sample"], self._last_t + self._pace.interval_s)
                elif "guard" in message:
                    self._guard.take(message["guard"], self.spark, self._last_t)
                    self._guarded()
                elif "bye" in message:
                    raise Leave("asked to")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue

    def advance(self, t: float, now_s: float) -> bytes:
        """Everything due at second `t` that the window has room for; `now_s` is the operator's clock.

        Raises:
            Leave: nothing was heard for as long as the lease.
        """
        if now_s - self._heard_s >= self._lease_s:
            raise Leave(f"nothing came for {self._lease_s:g} s")
        self._last_t = t
        if t >= self._guard.due_s:
            self._guard.look(self.spark, t)
            self._guarded()
        sent = b""
        if t >= self._due["sample"]:
            sent += self._sample(t)
        if t >= self._due["gpu"]:
            self._due["gpu"] = t + max(0.9, self._pace.interval_s * 0.9)
            self._slots["gpu"] = lines.gpu(self.spark, t)
            self._collector("nvml", "ok", "", t)
        if t >= self._due["processes"]:
            self._scan(t)
        if t >= self._due["desktop"]:
            self._due["desktop"] = self._look_at_desktop(t)
        if t >= self._due["kernel"]:
            self._due["kernel"] = t + 0.25
            self._collector("kernel", "ok", "journal", t)
            self._kernel += lines.kernel_messages(lines.kernel_rows(self.spark, self._kernel_until_s, t))
            self._kernel_until_s = t
        return sent + self._waiting()

    def _guarded(self) -> None:
        self._pace.guarded = self._guard.is_armed
        if self._guard.message is not None:
            self._slots["guard"], self._guard.message = self._guard.message, None

    def _sample(self, t: float) -> bytes:
        if self._crowded("sample"):
            self._skipped += 1
            line = b""
        else:
            boot_s = self.spark.boot_s(t)
            memory = self.spark.memory(t)
            self._pace.saw(boot_s, int(memory.available * 1024**2), int(memory.total * 1024**2))
            body = lines.sample(
                self.spark,
                t,
                interval_s=self._pace.next_s(boot_s),
                skipped=self._skipped,
                running_s=t - self._began_s,
            )
            line = self._queue("sample", body)
        interval_s = self._pace.next_s(self.spark.boot_s(t))
        self._due["sample"] += interval_s
        if self._due["sample"] <= t:
            self._due["sample"] = t + interval_s
        return line

    def _scan(self, t: float) -> None:
        pressure = lines.pressure(self.spark, "psi", t)[2]
        paused = self._states.get("processes", ("", ""))[0] == "paused"
        if pressure > (PAUSE_PRESSURE / 2 if paused else PAUSE_PRESSURE):
            self._due["processes"] = t + 1.0
            detail = "memory pressure is high; looking at processes would add to it"
            self._collector("processes", "paused", detail, t)
            return
        self._due["processes"] = t + (1.9 if t - self._began_s < 20 else 4.9)
        self._slots["processes"] = lines.processes(self.spark, t)
        self._slots["network"] = lines.network(self.spark, t)
        self._collector("processes", "ok", "", t)
        if t >= self._facts_due_s:
            self._facts_due_s = t + FACTS_S
            self._slots["facts"] = {"kind": "facts", **lines.slow_facts(self.spark, t)}

    def _look_at_desktop(self, t: float) -> float:
        """Say how the compositor does, asked every second time, and again at once when silent; when to look next."""
        desk, live = self._desk, lines.compositor(self.spark, t)
        if live is None or lines.pressure(self.spark, "psi", t)[2] > PAUSE_PRESSURE:
            return t + LOOK_S
        if live.script.user_id != self.spark.script.machine.user_id:
            desk.answers = None
            next_s = t + LOOK_S
        elif desk.asked_s is None and not desk.asks:
            desk.asks, next_s = True, t + LOOK_S
        elif self.spark.figure("desktop_answers", t) > 0.5:
            desk.answers, desk.silent_s, desk.asked_s, desk.asks, next_s = True, None, None, False, t + LOOK_S
        elif desk.asked_s is None:
            desk.asked_s, desk.unanswered = t, 0
            return t + SILENT_S
        else:
            desk.answers, desk.silent_s = False, desk.asked_s if desk.silent_s is None else desk.silent_s
            desk.unanswered += 1
            next_s = t + SILENT_S
            if desk.unanswered == 2:
                desk.asked_s, desk.asks, next_s = None, False, t
        self._slots["desktop"] = lines.desktop(self.spark, t, live, answers=desk.answers, silent_s=desk.silent_s)
        self._collector("desktop", "ok", "", t)
        return max(next_s, t + 0.1)

    def _collector(self, name: str, state: str, detail: str, t: float) -> None:
        if self._states.get(name) != (state, detail):
            self._states[name] = (state, detail)
            since = round(self.spark.boot_s(t), 3)
            body = {"kind": "collector", "name": name, "state": state, "detail": detail, "since": since}
            self._slots[f"collector {name}"] = body

    def _crowded(self, key: str) -> bool:
        flying = [number for number in self._in_flight.get(key, []) if number > self._acked]
        self._in_flight[key] = flying
        return len(flying) >= _LIMITS.get(key, 1)

    def _waiting(self) -> bytes:
        sent = b""
        for key in list(self._slots):
            if not self._crowded(key):
                sent += self._queue(key, self._slots.pop(key))
        if self._kernel and self._acked >= self._kernel_after:
            sent += self._queue("kernel", self._kernel.pop(0))
            self._kernel_after = self._sequence
        return sent

    def _queue(self, key: str, body: dict[str, Any]) -> bytes:
        self._sequence += 1
        self._in_flight.setdefault(key, []).append(self._sequence)
        return b'{"seq":%d,%b\n' % (self._sequence, _encode(body).encode()[1:])


def farewell(reason: str) -> bytes:
    """The last line."""
    return _encode({"kind": "bye", "reason": reason}).encode() + b"\n"
