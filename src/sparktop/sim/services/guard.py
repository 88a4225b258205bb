"""The simulated Spark's guard: the probe's own, with a simulated Docker Engine and without files."""

from __future__ import annotations

import json
import select
from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from sparktop.dataclass import dataclass
from sparktop.probe.remote.guard.docker import DockerLine
from sparktop.probe.remote.guard.guard import Guard
from sparktop.probe.remote.outbox import Outbox
from sparktop.probe.remote.pace import SampleInterval
from sparktop.sim.reaction import acts
from sparktop.sim.services.docker_state import find
from sparktop.sim.spark.spark import Spark


class Moment(Protocol):
    """A node as it is now, and what can be done to it."""

    spark: Spark
    t: float
    react: Callable[[acts.Act], None] | None
    """None: nothing can be done to it."""


@dataclass(slots=True)
class SimulatedProbe:
    """What the guard needs of the probe that holds it."""

    moment: Moment
    outbox: Outbox
    pace: SampleInterval
    settings: dict[str, str] = field(default_factory=dict)
    poll: select.poll = field(default_factory=select.poll)
    workers: list[Any] = field(default_factory=list)
    out: int = -1

    def pread(self, name: str, limit: int, until: bytes = b"") -> bytes:
        """/proc/meminfo, as much as the guard reads of it."""
        return b"MemAvailable: %d kB" % int(self.moment.spark.memory(self.moment.t).available * 1024**2)


class SimulatedLine(DockerLine):
    """The guard's connection to the simulated Docker Engine: an answer is there when its time has come."""

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self._moment = moment
        self._answers: list[tuple[float, int, bytes]] = []

    @property
    def due_s(self) -> float:
        """When the next answer is there."""
        return self._answers[0][0] if self._answers else float("inf")

    def open(self) -> bool:
        self.close()
        self.socket = True
        return True

    def close(self) -> None:
        self.socket, self.asked, self._answers = None, [], []

    def ask(self, request: bytes, word: str, now: float) -> None:
        self.asked.append((word, now))
        moment, container_id = self._moment, request.split(b"/")[2].partition(b" ")[0].decode()
        live = find(moment.spark, container_id, moment.t)
        if live is None:
            self._answers.append((now, 404, _message(f"No such container: {container_id}")))
        elif word != "kill":
            words = {"Id": live.container_id, "Name": f"/{live.script.name}", "State": {"Running": live.running}}
            self._answers.append((now, 200, json.dumps(words).encode()))
        elif moment.react is None or not live.running:
            self._answers.append((now, 409, _message(f"container {container_id} is not running")))
        else:
            moment.react(acts.kill_container(name=live.script.name))
            self._answers.append((now + acts.KILLED_S, 204, b""))

    def take(self) -> list[tuple[str, int, bytes]]:
        answers = []
        while self.due_s <= self._moment.t:
            _, status, body = self._answers.pop(0)
            answers.append((self.asked.pop(0)[0], status, body))
        return answers


class _NoJournal:
    """Keeps nothing: a simulated probe ends with its console."""

    def write(self, name: str, body: dict[str, Any]) -> tuple[int, int]:
        return 0, 0

    def read(self, name: str) -> None:
        return None

    def key(self, name: str) -> tuple[int, int]:
        return 0, 0

    def remove(self, name: str) -> None:
        pass


class SimulatedGuard(Guard):
    """The guard of one conversation."""

    def __init__(self, moment: Moment, outbox: Outbox, pace: SampleInterval) -> None:
        self._line = SimulatedLine(moment)
        self._moment = moment
        super().__init__(SimulatedProbe(moment, outbox, pace), line=self._line, journal=_NoJournal())

    @property
    def due_s(self) -> float:
        """When it must `advance` at the latest, in seconds of the boot."""
        return min(self.due_at, self._line.due_s)

    def advance(self) -> None:
        """Do what is due."""
        self.turn(self.now())
        while self._line.due_s <= self._moment.t:
            self.ready()

    def now(self) -> float:
        return self._moment.t

    def wall_s(self) -> float:
        return self._moment.spark.wall_s(self._moment.t)

    def make_claim(self) -> tuple[int, int]:
        return 1, 1

    def is_claimed(self) -> bool:
        return True

    def line_to(self, order: dict[str, Any]) -> DockerLine:
        return self._line

    def outlive_session(self) -> None:
        pass


def _message(text: str) -> bytes:
    return json.dumps({"message": text}).encode()
