"""`sparktop watch` as a process, over real sshd and simulated Sparks, and what arrives at a webhook on loopback."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sshd import Sshd
from tests.sim_hosts import simulated_hosts
from tests.support import PATIENCE_S, free_port, interruptible, poll

from sparktop.config import config_home, state_home

pytestmark = [pytest.mark.integration]

HURRIED = """
import sys
from sparktop.cli import main
from sparktop.headless.watch import outbox, watcher
watcher.TICK_S, watcher.GATHER_S, watcher.AWAY_S, watcher.DOWN_S, watcher.ALIVE_S = 0.1, 0.5, 1.0, 3.0, 0.3
watcher.SETTLED_S = 2.0
outbox.FIRST_PAUSE_S, outbox.LONGEST_PAUSE_S = 0.2, 0.5
sys.exit(main())
"""
"""A watcher that waits for seconds less than one for people does."""


class Receiver:
    """A webhook on loopback that keeps what it got; down until it is up."""

    def __init__(self) -> None:
        self.port = free_port()
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.about = "watch."
        """What it keeps of the rules: on a real host, this machine's own findings come and go."""

    @property
    def kinds(self) -> list[str]:
        return [body["kind"] for body in self.got]

    @contextlib.contextmanager
    def up(self, status: int = 200) -> Iterator[None]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.paths.append(self.path)
                rule = body.get("finding", {}).get("rule", receiver.about)
                if status == 200 and rule.startswith(receiver.about):
                    receiver.got.append(body)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", self.port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def until(self, *kinds: str) -> None:
        poll(lambda: self.kinds == list(kinds), what=f"messages {kinds}", otherwise=lambda: str(self.got)[:3000])


@pytest.fixture
def receiver() -> Receiver:
    made = Receiver()
    config_home().mkdir(parents=True, exist_ok=True)
    (config_home() / "config.toml").write_text(
        f'[watch.target.hook]\nkind = "json"\nurl = "http://127.0.0.1:{made.port}/hook/Zq7secret"\n'
    )
    return made


@contextlib.contextmanager
def watching(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", HURRIED, "watch", *words]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=interruptible)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with Sshd.start(tmp_path / "sshd", host="127.0.0.2") as started:
        started.trust()
        started.alias("spark1")
        yield started


def test_each_change_arrives_once_and_in_order_also_after_the_receiver_was_down(
    sshd: Sshd, receiver: Receiver, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with watching("spark1", log=log) as process:
        with receiver.up():
            sshd.stop()
            receiver.until("new")
            sshd.run()
            receiver.until("new", "resolved")
        sshd.stop()
        poll(lambda: "tried again until it works" in log.read_text(), what="the receiver is missed")
        sshd.run()
        poll(lambda: log.read_text().count("resolved: spark1 doesn't") == 2, what="both are over")
        with receiver.up(503):
            poll(lambda: len(receiver.paths) > 3, what="it is refused")
        with receiver.up():
            receiver.until("new", "resolved", "new", "resolved")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    first, second, third, _ = receiver.got
    assert first["title"] == "✖ new: spark1 doesn't answer"
    assert first["incident"] == second["incident"] != third["incident"]
    assert len({body["id"] for body in receiver.got}) == 4
    said = log.read_text()
    assert said.count("hook: http://127.0.0.1: ") == 1, "said once"
    assert said.count("takes messages again") == 1
    assert "Zq7secret" not in said
    assert "Traceback" not in said


def test_killed_and_started_again_it_says_so_and_repeats_nothing(
    sshd: Sshd, receiver: Receiver, tmp_path: Path
) -> None:
    log, state = tmp_path / "log", state_home() / "watch.json"
    sshd.stop()
    with receiver.up(), watching("spark1", log=log):
        receiver.until("new")
        poll(lambda: json.loads(state.read_text())["queues"] == {"hook": []}, what="it is kept as sent")
    alive_s = json.loads(state.read_text())["alive_wall_s"]
    poll(lambda: time.time() - alive_s > 3.5, what="it was down for long enough")
    with receiver.up(), watching("spark1", log=log):
        receiver.until("new", "down")
        sshd.run()
        receiver.until("new", "down", "resolved")
    assert "was down from" in receiver.got[1]["title"]
    assert receiver.got[2]["incident"] == receiver.got[0]["incident"]
    assert state.stat().st_mode & 0o777 == 0o600


def test_messages_that_no_target_has_taken_outlive_the_watcher(sshd: Sshd, receiver: Receiver, tmp_path: Path) -> None:
    log = tmp_path / "log"
    sshd.stop()
    with watching("spark1", log=log):
        poll(lambda: "tried again until it works" in log.read_text(), what="nobody takes it")
    with receiver.up(), watching("spark1", log=log):
        receiver.until("new")


@pytest.mark.parametrize(("scenario", "kinds"), [
    ("swap-storm", {"new", "resolved"}), ("leak-after-kill", {"new", "worse", "resolved"}),
])  # fmt: skip
@pytest.mark.slow
def test_an_incident_of_a_spark_begins_once_may_get_worse_and_ends_once(
    scenario: str, kinds: set[str], receiver: Receiver, tmp_path: Path
) -> None:
    log, receiver.about = tmp_path / "log", ""
    with (
        simulated_hosts(scenario, tmp_path, speed=3) as config,
        receiver.up(),
        watching("-F", str(config), "spark1", "spark2", log=log),
    ):
        poll(lambda: kinds <= set(receiver.kinds), what=f"{kinds}", otherwise=log.read_text)
    assert len({body["id"] for body in receiver.got}) == len(receiver.got)
    of_each: dict[str, list[str]] = {}
    for body in receiver.got:
        of_each.setdefault(body["incident"], []).append(body["kind"])
    for changes in of_each.values():
        assert re.fullmatch(r"new( worse)*( resolved)?", " ".join(changes)), receiver.got
