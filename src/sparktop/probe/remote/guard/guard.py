"""The guard: kills one container, or one engine outside containers, by itself before memory runs out.

SSH dies first on a starved host, so the guard never waits for the network: its connection to the Docker Engine is open,
the kill request is written in advance, and memory is read four times a second or more (`guard_decision`). It acts once.
What it did is kept in tmpfs until a console has received it.

One guard per user and machine: its claim is a file, and a guard whose claim is gone or replaced is off. So a newer
order switches off an older guard, even one that stayed after its console had gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from sparktop.probe.remote.guard.decision import LOOK_S, decide, look_after_s, parse_order, reason
from sparktop.probe.remote.guard.docker import DockerLine
from sparktop.probe.remote.guard.journal import Journal, is_held
from sparktop.probe.remote.guard.processes import ProcessLine
from sparktop.probe.remote.parsers import parse_process_stat
from sparktop.probe.remote.system import CLAIM, EVENT, boottime, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select as _select
    from typing import Any, Protocol

    from sparktop.probe.remote.children import Worker
    from sparktop.probe.remote.outbox import Outbox
    from sparktop.probe.remote.pace import SampleInterval

    class Probe(Protocol):
        """What the guard needs of the probe that holds it."""

        settings: dict[str, str]
        poll: _select.poll
        out: int
        outbox: Outbox
        pace: SampleInterval
        workers: list[Worker]

        def pread(self, name: str, limit: int, until: bytes = b"") -> bytes:
            raise NotImplementedError

    Message = dict[str, Any]

VERIFY_S = 20.0
"""Between two checks that the container exists under its name."""
RETRY_S = 1.0
ANSWER_S = 10.0
"""Docker answers a kill only when the container is gone; no answer for so long is a problem."""
GIVE_UP_S = 60.0
DEAF_S = 10.0
"""A session that ends may send SIGTERM to the processes it leaves; a later SIGTERM is meant for the guard."""
KEY = {True: "guard event", False: "guard"}
"""Kinds of message, by whether it acted: a state never replaces an event in the outbox."""


class Guard:
    """At most one in a probe. The main loop calls `turn`, and `ready` when Docker has answered or hung up."""

    def __init__(self, probe: Probe, line: DockerLine | None = None, journal: Any = None) -> None:
        """`line` and `journal` are the simulated guard's; it has its own of the next six methods, too."""
        self.probe = probe
        self.docker = line or DockerLine(probe.settings.get("docker", ""))
        self.docker.poll = probe.poll
        self.line: DockerLine | ProcessLine = self.docker
        """To what is guarded."""
        self.journal = journal or Journal()
        self.order: Message = {}
        self.state = "off"
        """off; watching; ending: the kill is sent, and Docker hasn't answered yet."""
        self.verified = False
        """Docker has confirmed that this container has this name."""
        self.message: Message = {}
        self.has_rival = False
        """Another probe's guard is armed, or was when this probe started."""
        self.claim = (0, 0)
        self.readings: list[tuple[float, int]] = []
        self.due_at = float("inf")
        """When `turn` must be called at the latest."""
        self.verify_at = 0.0
        self.fired_at = 0.0
        self.fired_kb: int | None = None
        """Memory that was available when it acted."""
        self.until: float | None = None
        """Wall time until which it stays without a console."""
        self.path = self.kill = b""
        self.why = ""

    # the machine

    def now(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    def line_to(self, order: Message) -> DockerLine | ProcessLine:
        return ProcessLine(order["id"], order["name"]) if order["id"].startswith("pid:") else self.docker

    def outlive_session(self) -> None:
        """Ignore the signal that a session's end sends."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def make_claim(self) -> tuple[int, int]:
        """Write the claim; returns its key in the journal."""
        stat = parse_process_stat(read_file("/proc/self/stat", 1024))
        body = {"pid": os.getpid(), "start": stat and stat[3], "until": self.until, "order": self.order}
        return self.journal.write(CLAIM, body)

    def is_claimed(self) -> bool:
        """Whether no other guard has replaced or removed the claim."""
        return self.claim == (0, 0) or self.journal.key(CLAIM) == self.claim

    # orders

    def take(self, words: Message) -> None:
        """Follow the console's order: arm, or disarm. A repeated order gets the state again."""
        try:
            order = parse_order(words)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self.report("failed", f"the probe doesn't understand the order: {error}")
            return
        if order["token"] and order["token"] == self.order.get("token"):
            self.send()
            return
        self.off()
        self.journal.remove(CLAIM)  # whoever wrote it: this switches that guard off
        self.journal.remove(EVENT)
        self.order, self.message, self.until, self.has_rival = order, {}, None, False
        self.verified, self.readings, self.fired_kb = False, [], None
        if not order["id"]:
            self.report("disarmed", "by sparktop")
            return
        self.line = self.line_to(order)
        self.path = b"/containers/" + order["id"].encode()
        self.kill = b"POST %b/kill HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n" % self.path
        self.state, self.due_at = "watching", 0.0
        self.probe.pace.guarded = True
        self.claim = self.make_claim()
        if self.claim == (0, 0):
            order["stay"] = 0.0  # without a claim nobody could switch it off
        if order["stay"]:
            self.outlive_session()
        self.verify(self.now())

    def off(self) -> None:
        """Stop watching, remove the claim and close the connection."""
        if self.state != "off" and self.claim != (0, 0) and self.is_claimed():
            self.journal.remove(CLAIM)
        self.state, self.due_at, self.claim = "off", float("inf"), (0, 0)
        self.probe.pace.guarded = False
        self.line.close()

    # reports

    def report(self, phase: str, detail: str = "", answered_s: float | None = None) -> None:
        """Report a phase; the journal keeps it where the guard has acted. The same report isn't sent twice."""
        order = self.order
        message = {
            "kind": "guard",
            "phase": phase,
            "id": order.get("id", ""),
            "name": order.get("name", ""),
            "floor": order.get("floor", 0),
            "within": order.get("within"),
            "stay": order.get("stay", 0.0),
            "since": self.message.get("since") if self.message.get("phase") == phase else round(self.wall_s(), 3),
            "available": None if self.fired_kb is None else self.fired_kb * 1024,
            "answered": answered_s,
            "until": self.until,
            "detail": detail[:300],
        }
        if message == self.message:
            return
        self.message = message
        self.send()
        if self.fired_kb is not None:
            self.journal.write(EVENT, {"message": message})

    def send(self) -> None:
        if self.message:
            self.probe.outbox.put(KEY[self.message["available"] is not None], self.message)

    # guards of other probes

    def is_idle(self) -> bool:
        """Whether neither this guard is armed nor another probe's is followed."""
        return self.state == "off" and not self.has_rival

    def look_back(self) -> None:
        """Report what an earlier guard did, then whether another probe's guard is armed."""
        self.has_rival = True
        self.due_at = time.monotonic() + (2.0 if self.recall() else 0.0)

    def recall(self) -> bool:
        """Report the journal's event; False where it has none."""
        message = (self.journal.read(EVENT) or {}).get("message")
        if not isinstance(message, dict) or message.get("available") is None:
            self.journal.remove(EVENT)
            return False
        self.message = message
        self.send()
        return True

    def watch_rival(self, now: float) -> None:
        """Report another probe's guard while it is armed, and when it no longer is."""
        self.due_at = now + 1.0
        claim = self.journal.read(CLAIM)
        if claim is not None and is_held(claim) and isinstance(claim.get("order"), dict):
            self.order, self.until = {**claim["order"], "token": ""}, claim.get("until")
            self.report("armed", "by another console" if self.until is None else "by a console that is gone")
            return
        self.journal.remove(CLAIM)
        self.has_rival, self.until, self.due_at = False, None, float("inf")
        if not self.recall() and self.message.get("phase") == "armed":
            self.report("disarmed", "its probe exited")

    # watching memory

    def turn(self, now: float) -> None:
        """Do what is due: read memory, tend the connection to Docker."""
        if now < self.due_at:
            return
        if self.state == "watching":
            self.look(now)
        elif self.state == "ending":
            self.due_at = now + LOOK_S
            self.wait(now)
        elif self.has_rival:
            self.watch_rival(now)
        if self.line is not self.docker and self.line.asked:
            self.ready()

    def look(self, now: float) -> None:
        """Read memory and decide."""
        words = self.probe.pread("meminfo", 8192, b"MemAvailable").partition(b"MemAvailable:")[2].split(None, 1)
        if not words or not words[0].isdigit():
            self.due_at = now + LOOK_S
            return
        self.readings = [*self.readings[-40:], (now, int(words[0]))]
        floor_kb = self.order["floor"] // 1024
        self.due_at = now + look_after_s(self.readings, floor_kb)
        if not self.is_claimed():
            self.off()
            self.report("disarmed", "another console took over the guard, or disarmed it")
            return
        why = decide(self.readings, floor_kb, self.order["within"])
        if why and self.verified:
            self.fire(now, why)
        elif not self.line.asked and now >= self.verify_at:
            self.verify(now)
        elif self.line.asked and now - self.line.asked[0][1] > ANSWER_S:
            self.report("failed", f"armed, but {self.line.silence} for {ANSWER_S:g} s")

    def is_low(self) -> bool:
        """Whether less than the floor is available."""
        return bool(self.readings and decide(self.readings, self.order["floor"] // 1024, None))

    def fire(self, now: float, why: str) -> None:
        """Kill it; the request is sent before anything else is done."""
        if self.line.socket is None and not self.line.open():
            self.report("failed", f"armed and memory is low, but {self.line.problem}")
            return
        self.line.ask(self.kill, "kill", now)
        self.state, self.fired_at, self.fired_kb = "ending", now, self.readings[-1][1]
        self.why = reason(why, self.readings, self.order["floor"] // 1024)
        self.message = {}
        self.report("fired", self.why)
        self.journal.remove(CLAIM)

    def wait(self, now: float) -> None:
        """Wait for Docker's answer to the kill; after a broken connection, reconnect and inspect the container."""
        if now - self.fired_at > GIVE_UP_S:
            self.finish(f"{self.line.silence} for {GIVE_UP_S:g} s")
        elif self.line.socket is None and not self.line.open():
            self.report("failed", f"sent the request, but {self.line.problem}; trying again")
        elif not self.line.asked:
            self.inspect("check", now)
        elif now - self.line.asked[0][1] > ANSWER_S:
            self.report("failed", f"sent the request, but {self.line.silence} for {ANSWER_S:g} s")

    # Docker

    def verify(self, now: float) -> None:
        """Ask Docker for the container; `ready` gets the answer."""
        self.verify_at = now + VERIFY_S
        if self.line.socket is None and not self.line.open():
            self.verify_at = now + RETRY_S
            self.report("failed", f"armed, but {self.line.problem}; trying again")
            return
        self.inspect("look", now)

    def inspect(self, word: str, now: float) -> None:
        self.line.ask(b"GET %b/json HTTP/1.1\r\nHost: docker\r\n\r\n" % self.path, word, now)

    def ready(self) -> None:
        """Take Docker's answers; after it hung up, `wait` inspects the container before it repeats a kill."""
        now = self.now()
        answers = self.line.take()
        if answers is None:
            self.line.close()
            if self.state == "watching":
                # At most once a second, for a Docker that hangs up each time.
                self.verify_at = max(now, self.verify_at - VERIFY_S + RETRY_S)
            return
        for asked, status, body in answers:
            if self.state == "watching" and asked == "look":
                self.on_inspected(status, body)
            elif self.state == "ending" and asked == "kill":
                self.on_killed(status, body, now)
            elif self.state == "ending" and asked == "check":
                container = parse_container(body) if status == 200 else {}
                if container.get("running"):
                    self.line.ask(self.kill, "kill", now)
                elif container or status == 404:
                    self.finish("", round(now - self.fired_at, 3))

    def on_inspected(self, status: int, body: bytes) -> None:
        """Take the answer to `verify`: the guard is armed, or disarms itself."""
        container = parse_container(body) if status == 200 else {}
        refusal = ""
        if status == 404:
            noun = self.line.noun
            refusal = f"the {noun} no longer exists" if self.verified else f"there is no such {noun}"
        elif status == 403:
            refusal = docker_message(body)
        elif status != 200 or not container:
            self.report("failed", f"armed, but Docker answered {status}: {docker_message(body)}")
            self.verify_at = self.now() + RETRY_S
            return
        elif container["id"] != self.order["id"] or container["name"] != self.order["name"]:
            refusal = f"the container is now called {container['name']}"
        elif not (self.verified or self.order["again"]) and self.is_low():  # arming must not kill at once
            refusal = f"only {self.readings[-1][1] / 1024**2:.1f} GiB is available, already below that floor"
        if refusal:
            self.off()
            self.report("disarmed", refusal)
            return
        self.verified = True
        # It may be armed before the container starts: loading a model is what it guards.
        self.report("armed", "" if container["running"] else "not running at the last look")

    def on_killed(self, status: int, body: bytes, now: float) -> None:
        """Take the answer to the kill."""
        if status in (200, 204):
            self.finish("", round(now - self.fired_at, 3))
        elif status == 404:
            self.finish(f"the {self.line.noun} no longer exists")
        else:
            self.finish(docker_message(body) if status == 403 else f"Docker answered {status}: {docker_message(body)}")

    def finish(self, problem: str, answered_s: float | None = None) -> None:
        """Switch off and report the outcome of the kill."""
        self.off()
        if problem:
            self.report("failed", problem)
        else:
            self.report("fired", self.why, answered_s)

    # after the console has gone

    def stay(self) -> None:
        """Keep the guard alone running, where the order says so, until its time is over."""
        if self.state == "off" or (self.state == "watching" and not (self.order["stay"] and self.is_claimed())):
            self.off()
            return
        stay_s = self.order["stay"] if self.state == "watching" else GIVE_UP_S
        end_boot = boottime() + stay_s
        self.until = round(time.time() + stay_s, 3)
        if self.state == "watching":
            self.claim = self.make_claim()
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        hears_at = time.monotonic() + DEAF_S
        for worker in self.probe.workers:  # each child leaves when its pipe closes
            for descriptor in (worker.control, worker.data):
                if descriptor >= 0:
                    os.close(descriptor)
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2, self.probe.out):
            os.dup2(null, standard)  # nothing of the SSH channel stays open
        self.line.poll = select.poll()
        if self.line.socket is not None:
            self.line.poll.register(self.line.descriptor, select.POLLIN)
        while self.state != "off" and boottime() < end_boot:
            if time.monotonic() > hears_at:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.turn(time.monotonic())
            rest_s = min(LOOK_S, self.due_at - time.monotonic())
            if self.state != "off" and self.line.poll.poll(max(0, int(rest_s * 1000)) + 1):
                self.ready()
        self.off()


def parse_container(body: bytes) -> Message:
    """id, name and running of an inspect answer; nothing where it has none of them."""
    try:
        words = json.loads(body)
        return {"id": words["Id"], "name": words["Name"].lstrip("/"), "running": bool(words["State"]["Running"])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def docker_message(body: bytes) -> str:
    """Docker's message about a failure."""
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode("utf-8", "replace")
