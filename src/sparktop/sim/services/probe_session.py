"""The simulated probe: its conversation with the console, its guard and its desktop check.

It ends with its conversation, even when told to stay: the Sparks of a demo live as long as their console.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn

from sparktop.dataclass import dataclass
from sparktop.probe.remote.desktop import SILENT_S
from sparktop.probe.remote.host_facts import FACTS_S
from sparktop.probe.remote.main import PAUSE_PRESSURE, PROTOCOL
from sparktop.probe.remote.outbox import Outbox, encode
from sparktop.probe.remote.pace import SampleInterval
from sparktop.sim.reaction.acts import Act
from sparktop.sim.services.guard import SimulatedGuard
from sparktop.sim.services.process import Departed, ProgramSession
from sparktop.sim.spark import probe_lines
from sparktop.sim.spark.spark import Spark
from sparktop.wire import LEASE_S

_NEVER = float("-inf")
LOOK_S = 4.9
"""Seconds between two checks of the desktop."""


@dataclass(slots=True)
class _Desk:
    """State of the child process that checks the desktop."""

    asks: bool = True
    """Whether the next check sends a question."""
    asked_s: float | None = None
    """Since when a question is unanswered."""
    unanswered: int = 0
    answers: bool | None = None
    silent_s: float | None = None


class SimulatedOutbox(Outbox):
    """The probe's messages, until the talk takes them."""

    def __init__(self) -> None:
        super().__init__(-1, _not_written)
        self.written = b""

    def flush(self) -> None:
        self.written, self.unsent = self.written + self.unsent, b""

    def take(self) -> bytes:
        """The lines that are due."""
        self.send_waiting()
        written, self.written = self.written, b""
        return written


def _not_written() -> NoReturn:
    raise AssertionError("nothing is written here")


class Talk(ProgramSession):
    """One conversation: `advance` returns the messages that fit into the window."""

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
        super().__init__(spark, digest=digest, now_s=now_s, lease_s=lease_s)
        self.t = began_s
        """The second of its boot."""
        self.react = react
        self._began_s = began_s
        self._pace = SampleInterval(interval_s)
        self._outbox = SimulatedOutbox()
        self._guard = SimulatedGuard(self, self._outbox, self._pace)
        """What the probe does to its node by itself."""
        self._kernel_until_s = _NEVER
        self._skipped = 0
        self._states: dict[str, tuple[str, str]] = {}
        self._facts_due_s = began_s + 0.1
        self._due = {"sample": began_s, "gpu": began_s + 0.05, "processes": began_s + 0.1, "kernel": began_s + 0.15}
        self._due["desktop"] = began_s + 0.3
        self._desk = _Desk()
        self._input = b""

    def opening(self) -> bytes:
        facts = probe_lines.facts(self.spark)
        body = {"kind": "hello", "protocol": PROTOCOL, "pid": 21_377, "digest": self.digest, "facts": facts}
        return encode(body).encode() + b"\n"

    @property
    def due_s(self) -> float:  # type: ignore[override]
        return min(*self._due.values(), self._guard.due_s)

    def follow(self, chunk: bytes) -> None:
        *complete, self._input = (self._input + chunk).split(b"\n")
        if len(self._input) > 65536:
            raise Departed("the input is not sparktop's protocol")
        for line in complete:
            try:
                message = json.loads(line)
                if "ack" in message:
                    self._outbox.acknowledge(int(message["ack"]))
                elif "interval" in message:
                    self._pace.interval_s = min(60.0, max(0.1, float(message["interval"])))
                    self._due["sample"] = min(self._due["sample"], self.t + self._pace.interval_s)
                elif "facts" in message:
                    self._facts_due_s = self._due["processes"] = self.t
                elif "previous" in message:
                    reason = "its journal holds no boot before this one"
                    self._outbox.put("previous", {"kind": "previous", "reason": reason})
                elif "guard" in message:
                    self._guard.take(message["guard"])
                elif "bye" in message:
                    raise Departed("asked to")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue

    def advance(self, t: float, now_s: float) -> bytes:
        super().advance(t, now_s)
        self.t = t
        if t >= self._guard.due_s:
            self._guard.advance()
        if t >= self._due["sample"]:
            self._sample(t)
        if t >= self._due["gpu"]:
            self._due["gpu"] = t + max(0.9, self._pace.interval_s * 0.9)
            self._outbox.put("gpu", probe_lines.gpu(self.spark, t))
            self._collector("nvml", "ok", "", t)
        if t >= self._due["processes"]:
            self._scan(t)
        if t >= self._due["desktop"]:
            self._due["desktop"] = self._look_at_desktop(t)
        if t >= self._due["kernel"]:
            self._due["kernel"] = t + 0.25
            self._collector("kernel", "ok", "journal", t)
            rows = probe_lines.kernel_rows(self.spark, self._kernel_until_s, t)
            for batch in probe_lines.kernel_messages(rows):
                self._outbox.put_kernel_batch(encode(batch).encode())
            self._kernel_until_s = t
        return self._outbox.take()

    def _sample(self, t: float) -> None:
        if self._outbox.is_full("sample"):
            self._skipped += 1
        else:
            boot_s = self.spark.boot_s(t)
            memory = self.spark.memory(t)
            self._pace.saw(boot_s, int(memory.available * 1024**2), int(memory.total * 1024**2))
            body = probe_lines.sample(
                self.spark, t, interval_s=self._pace.next_s(boot_s), skipped=self._skipped, running_s=t - self._began_s
            )
            self._outbox.send("sample", encode(body).encode())
            self._outbox.flush()
        interval_s = self._pace.next_s(self.spark.boot_s(t))
        self._due["sample"] += interval_s
        if self._due["sample"] <= t:
            self._due["sample"] = t + interval_s

    def _scan(self, t: float) -> None:
        pressure = probe_lines.pressure(self.spark, "psi", t)[2]
        paused = self._states.get("processes", ("", ""))[0] == "paused"
        if pressure > (PAUSE_PRESSURE / 2 if paused else PAUSE_PRESSURE):
            self._due["processes"] = t + 1.0
            detail = "memory pressure is high"
            self._collector("processes", "paused", detail, t)
            return
        self._due["processes"] = t + (1.9 if t - self._began_s < 20 else 4.9)
        self._outbox.put("processes", probe_lines.processes(self.spark, t))
        self._outbox.put("network", probe_lines.network(self.spark, t))
        self._collector("processes", "ok", "", t)
        if t >= self._facts_due_s:
            self._facts_due_s = t + FACTS_S
            self._outbox.put("facts", {"kind": "facts", **probe_lines.slow_facts(self.spark, t)})

    def _look_at_desktop(self, t: float) -> float:
        """Report how the compositor responds, asking every second time and again at once when silent; returns the
        next check's time."""
        desk, live = self._desk, probe_lines.compositor(self.spark, t)
        if live is None or probe_lines.pressure(self.spark, "psi", t)[2] > PAUSE_PRESSURE:
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
        message = probe_lines.desktop(self.spark, t, live, answers=desk.answers, silent_s=desk.silent_s)
        self._outbox.put("desktop", message)
        self._collector("desktop", "ok", "", t)
        return max(next_s, t + 0.1)

    def _collector(self, name: str, state: str, detail: str, t: float) -> None:
        if self._states.get(name) != (state, detail):
            self._states[name] = (state, detail)
            since = round(self.spark.boot_s(t), 3)
            body = {"kind": "collector", "name": name, "state": state, "detail": detail, "since": since}
            self._outbox.put(f"collector {name}", body)
