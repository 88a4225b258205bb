"""The probe: the guard, which ends one container by itself before memory is gone (the rest: `remote`).

SSH is what dies first on a starved host, so nothing here waits for the network: the line to the Docker Engine is open,
the request is written already, and memory is looked at four times a second or more (`remote_decide`). It acts once.
What it did is kept in tmpfs until a console has heard of it.

One guard a user and machine: its claim is a file, and a guard whose claim is gone or another's is off. So a newer
order ends an older guard, also one that stayed after its console had gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
if __name__ != "sparktop_probe":  # on a Spark this text runs among the probe's own names
    from sparktop.probe.remote import CLAIM, EVENT, Probe, _encode, _read, boottime, parse_process_stat
    from sparktop.probe.remote_decide import LOOK_S, decide, look_after_s, parse_order, reason
    from sparktop.probe.remote_docker import DockerLine
    from sparktop.probe.remote_journal import Journal, is_held

VERIFY_S = 20.0
RETRY_S = 1.0
ANSWER_S = 10.0
"""Docker answers a kill when the container is gone, and waits for that itself."""
GIVE_UP_S = 60.0
DEAF_S = 10.0
"""A session that ends may send SIGTERM to what it leaves behind; later it comes from somebody who means it."""
KEY = {True: "guard event", False: "guard"}
"""What it did isn't displaced by how it is."""


class Guard:
    """At most one a probe. `turn` is called by the main loop, `ready` when Docker has something to say."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.line = DockerLine(probe.settings.get("docker", ""))
        self.line.poll = probe.poll
        self.journal = Journal()
        self.order: Message = {}
        self.state = "off"
        """off; watching; ending: the request is out, and Docker hasn't answered yet."""
        self.verified = False
        """Docker has shown this container by this name."""
        self.message: Message = {}
        self.untold = False
        """What is in the journal has reached no console yet."""
        self.elder = False
        """Another probe's guard is armed, or was when this probe came."""
        self.claim = (0, 0)
        self.readings: list[tuple[float, int]] = []
        self.due_at = float("inf")
        """When `turn` wants to be called at the latest."""
        self.verify_at = 0.0
        self.fired_at = 0.0
        self.fired_kb: int | None = None
        self.until: float | None = None
        self.path = self.kill = b""
        self.why = ""

    # orders

    def take(self, words: Message) -> None:
        """An order of the console's: arm for a container, or disarm; one that came before is only answered again."""
        try:
            order = parse_order(words)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self.say("failed", f"the order wasn't understood: {error}")
            return
        if order["token"] and order["token"] == self.order.get("token"):
            self.tell()
            return
        self.off()
        self.journal.remove(CLAIM)  # whoever's it was: that guard is off by that
        self.order, self.message, self.until, self.elder = order, {}, None, False
        self.verified, self.readings, self.fired_kb = False, [], None
        if not order["id"]:
            self.say("disarmed", "by order")
            return
        self.path = b"/containers/" + order["id"].encode()
        self.kill = b"POST %b/kill HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n" % self.path
        self.state, self.due_at = "watching", 0.0
        self.probe.pace.guarded = True
        self.claim = self.make_claim()
        if self.claim == (0, 0):
            order["stay"] = 0.0  # nobody could switch it off
        if order["stay"]:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.verify(time.monotonic())

    def make_claim(self) -> tuple[int, int]:
        stat = parse_process_stat(_read("/proc/self/stat", 1024))
        body = {"pid": os.getpid(), "start": stat and stat[3], "until": self.until, "order": self.order}
        return self.journal.write(CLAIM, body)

    def is_claimed(self) -> bool:
        return self.claim == (0, 0) or self.journal.key(CLAIM) == self.claim

    def off(self) -> None:
        """Watch no more, and let go of the claim and the line."""
        if self.state != "off" and self.claim != (0, 0) and self.is_claimed():
            self.journal.remove(CLAIM)
        self.state, self.due_at, self.claim = "off", float("inf"), (0, 0)
        self.probe.pace.guarded = False
        self.line.close()

    # what is told

    def say(self, phase: str, detail: str = "", answered_s: float | None = None) -> None:
        """Tell how it is; nothing when that was told last."""
        order = self.order
        message = {
            "kind": "guard",
            "phase": phase,
            "id": order.get("id", ""),
            "name": order.get("name", ""),
            "floor": order.get("floor", 0),
            "within": order.get("within"),
            "stay": order.get("stay", 0.0),
            "since": self.message.get("since") if self.message.get("phase") == phase else round(time.time(), 3),
            "available": None if self.fired_kb is None else self.fired_kb * 1024,
            "answered": answered_s,
            "until": self.until,
            "detail": detail[:300],
        }
        if message == self.message:
            return
        self.message = message
        self.tell()
        if self.fired_kb is not None:
            self.untold = True
            self.journal.write(EVENT, {"message": message})

    def tell(self) -> None:
        if self.message:
            self.probe.slots[KEY[self.message["available"] is not None]] = _encode(self.message).encode()

    # what other probes left or hold

    def look_back(self) -> None:
        """At the start: what an earlier guard did and no console has heard; then whether one is armed yet."""
        self.elder = True
        self.due_at = time.monotonic() + (2.0 if self.recall() else 0.0)

    def recall(self) -> bool:
        message = (self.journal.read(EVENT) or {}).get("message")
        if not isinstance(message, dict) or message.get("available") is None:
            self.journal.remove(EVENT)
            return False
        self.message, self.untold = message, True
        self.tell()
        return True

    def watch_elder(self, now: float) -> None:
        """Another probe's guard is told while it is armed, and when it is no more."""
        self.due_at = now + 1.0
        claim = self.journal.read(CLAIM)
        if claim is not None and is_held(claim) and isinstance(claim.get("order"), dict):
            self.order, self.until = {**claim["order"], "token": ""}, claim.get("until")
            self.say("armed", "by another console" if self.until is None else "by a console that has gone")
            return
        self.journal.remove(CLAIM)
        self.elder, self.until, self.due_at = False, None, float("inf")
        if not self.recall() and self.message.get("phase") == "armed":
            self.say("disarmed", "the probe that held it has left")

    # looking

    def turn(self, now: float) -> None:
        """Look at memory when it is time, see to the line to Docker, forget what has been heard."""
        if self.untold and KEY[True] not in self.probe.slots and not self.probe.crowded(KEY[True]):
            self.untold = False
            self.journal.remove(EVENT)
        if now < self.due_at:
            return
        if self.state == "watching":
            self.look(now)
        elif self.state == "ending":
            self.due_at = now + LOOK_S
            self.wait(now)
        elif self.elder:
            self.watch_elder(now)

    def look(self, now: float) -> None:
        words = self.probe.pread("meminfo", 8192, b"MemAvailable").partition(b"MemAvailable:")[2].split(None, 1)
        if not words or not words[0].isdigit():
            self.due_at = now + LOOK_S
            return
        self.readings = [*self.readings[-40:], (now, int(words[0]))]
        floor_kb = self.order["floor"] // 1024
        self.due_at = now + look_after_s(self.readings, floor_kb)
        if not self.is_claimed():
            self.off()
            self.say("disarmed", "another console has taken the guard over, or switched it off")
            return
        why = decide(self.readings, floor_kb, self.order["within"])
        if why and self.verified:
            self.fire(now, why)
        elif not self.line.asked and now >= self.verify_at:
            self.verify(now)
        elif self.line.asked and now - self.line.asked[0][1] > ANSWER_S:
            self.say("failed", f"armed, but the Docker Engine hasn't answered for {ANSWER_S:g} s")

    def is_low(self) -> bool:
        return bool(self.readings and decide(self.readings, self.order["floor"] // 1024, None))

    def fire(self, now: float, why: str) -> None:
        """End the container; the request goes out before anything else is done."""
        if self.line.socket is None and not self.line.open():
            self.say("failed", f"armed and memory is short, but {self.line.problem}")
            return
        self.line.ask(self.kill, "kill", now)
        self.state, self.fired_at, self.fired_kb = "ending", now, self.readings[-1][1]
        self.why = reason(why, self.readings, self.order["floor"] // 1024)
        self.message = {}
        self.say("fired", self.why)
        self.journal.remove(CLAIM)

    def wait(self, now: float) -> None:
        """For Docker's answer; a line that broke meanwhile is opened again, and the container looked at first."""
        if now - self.fired_at > GIVE_UP_S:
            self.ended(f"Docker hasn't answered for {GIVE_UP_S:g} s")
        elif self.line.socket is None:
            if self.line.open():
                self.line.ask(b"GET %b/json HTTP/1.1\r\nHost: docker\r\n\r\n" % self.path, "check", now)
            else:
                self.say("failed", f"the request was out, but {self.line.problem}; it is tried again")
        elif not self.line.asked:
            self.line.ask(b"GET %b/json HTTP/1.1\r\nHost: docker\r\n\r\n" % self.path, "check", now)
        elif now - self.line.asked[0][1] > ANSWER_S:
            self.say("failed", f"the request is out, and Docker hasn't answered for {ANSWER_S:g} s")

    # Docker

    def verify(self, now: float) -> None:
        """Ask for the container; `ready` gets the answer."""
        self.verify_at = now + VERIFY_S
        if self.line.socket is None and not self.line.open():
            self.verify_at = now + RETRY_S
            self.say("failed", f"armed, but {self.line.problem}; it is tried again")
            return
        self.line.ask(b"GET %b/json HTTP/1.1\r\nHost: docker\r\n\r\n" % self.path, "look", now)

    def ready(self) -> None:
        """Docker has answered, or hung up because its daemon went: then what was under way isn't done again blindly."""
        now = time.monotonic()
        answers = self.line.take()
        if answers is None:
            self.line.close()
            if self.state == "watching":
                self.verify_at = max(now, self.verify_at - VERIFY_S + RETRY_S)  # an engine that hangs up each time
            return
        for asked, status, body in answers:
            if self.state == "watching" and asked == "look":
                self.looked(status, body)
            elif self.state == "ending" and asked == "kill":
                self.killed(status, body, now)
            elif self.state == "ending" and asked == "check":
                found = self.container(body) if status == 200 else {}
                if found.get("running"):
                    self.line.ask(self.kill, "kill", now)
                elif found or status == 404:
                    self.ended("", round(now - self.fired_at, 3))

    def container(self, body: bytes) -> Message:
        """What matters of Docker's answer; nothing else of it is kept."""
        try:
            found = json.loads(body)
            return {"id": found["Id"], "name": found["Name"].lstrip("/"), "running": bool(found["State"]["Running"])}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def looked(self, status: int, body: bytes) -> None:
        found = self.container(body) if status == 200 else {}
        wrong = ""
        if status == 404:
            wrong = "that container is no more" if self.verified else "there is no such container"
        elif status != 200 or not found:
            self.say("failed", f"armed, but Docker answered {status}: {said(body)}")
            self.verify_at = time.monotonic() + RETRY_S
            return
        elif found["id"] != self.order["id"] or found["name"] != self.order["name"]:
            wrong = f"that container is called {found['name']} now"
        elif not (self.verified or self.order["again"]) and self.is_low():  # arming is no order to end it at once
            wrong = f"only {self.readings[-1][1] / 1024**2:.1f} GiB are available, which is below that floor already"
        if wrong:
            self.off()
            self.say("disarmed", wrong)
            return
        self.verified = True
        # It may be armed before a start: a load is what it is for.
        self.say("armed", "" if found["running"] else "the container isn't running at the moment")

    def killed(self, status: int, body: bytes, now: float) -> None:
        if status in (200, 204):
            self.ended("", round(now - self.fired_at, 3))
        elif status == 404:
            self.ended("that container is no more")
        else:
            self.ended(f"Docker answered {status}: {said(body)}")

    def ended(self, problem: str, answered_s: float | None = None) -> None:
        self.off()
        if problem:
            self.say("failed", problem)
        else:
            self.say("fired", self.why, answered_s)

    # without a console

    def stand(self) -> None:
        """The console has gone: let go of all but the guard, and stay until the time is over, if that was the order."""
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
        for worker in self.probe.workers:  # each leaves when its pipe closes
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


def said(body: bytes) -> str:
    """Docker's own words about a failure."""
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode("utf-8", "replace")
