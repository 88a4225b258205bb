"""The guard in the real probe, by a real python3: a /proc/meminfo, a Docker socket and a tmpfs of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.guard_support import GIB, ID, NAME, FakeDocker, Place, elsewhere, order
from tests.nvml_stand_ins import BROKEN_NVML
from tests.probe_support import RunningProbe, processes_of
from tests.support import poll, unavailable

from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import Bye, Sample
from sparktop.probe import bundle
from sparktop.probe.remote.guard import processes

Start = Callable[..., RunningProbe]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def docker(place: Place) -> Iterator[FakeDocker]:
    engine = FakeDocker(place.docker_socket).start()
    yield engine
    engine.stop()


@pytest.fixture
def start(place: Place) -> Iterator[Start]:
    """Starts probes that look at the place, and ends them after the test."""
    if not sys.platform.startswith("linux"):
        unavailable("the probe reads /proc, which only Linux has")
    started: list[RunningProbe] = []

    def begin(*, lease_s: float = 30.0, interval_s: float = 0.2) -> RunningProbe:
        launch = bundle.launch(interval_s=interval_s, lease_s=lease_s, nvml_source=BROKEN_NVML.format(value=12))
        started.append(RunningProbe(place.move(launch)))
        started[-1].first(Sample)
        return started[-1]

    yield begin
    for probe in started:
        probe.close()
        for pid in processes_of(probe.launch):
            os.kill(pid, signal.SIGKILL)
    for probe in started:
        poll(lambda probe=probe: not processes_of(probe.launch), what="the end of every process of the probe")  # type: ignore[misc]


def phase(probe: RunningProbe, wanted: GuardPhase, words: str = "") -> GuardState:
    """The next state that is so, after those seen already."""
    found = probe.first(GuardState, lambda state: state.phase is wanted and words in state.detail)
    at = max(index for index, message in enumerate(probe.messages) if message is found)
    del probe.messages[: at + 1]
    return found


def armed_probe(start: Start, *, lease_s: float = 30.0, **changes: Any) -> RunningProbe:
    """A probe with the guard on."""
    probe = start(lease_s=lease_s)
    probe.send(order(**changes))
    phase(probe, GuardPhase.ARMED)
    return probe


def test_it_arms_and_looks_fast(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = start(interval_s=1.0)
    probe.send(order())
    armed = phase(probe, GuardPhase.ARMED)
    assert (armed.container_id, armed.container_name, armed.floor_bytes) == (ID, NAME, 4 * GIB)
    assert armed.detail == ""
    assert armed.since_wall_s == pytest.approx(time.time(), abs=10)
    assert probe.more_samples(3)[-1].interval_s == 0.25
    assert docker.requests == [(1, f"GET /containers/{ID}/json")]
    assert place.kept("guard")
    assert place.journal.stat().st_mode & 0o777 == 0o700
    probe.send(order("two", id=""))
    assert phase(probe, GuardPhase.DISARMED).detail == "by sparktop"
    assert place.kept("guard") is None
    probe.more_samples(1)
    assert probe.more_samples(2)[-1].interval_s == 1.0


def test_it_ends_the_container_once(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    place.set_available(4.01 * GIB)
    probe.more_samples(3)
    assert docker.running
    place.set_available(3.9 * GIB)
    fired = phase(probe, GuardPhase.FIRED)
    assert fired.available_bytes == pytest.approx(3.9 * GIB, abs=2048)
    assert "3.9 GiB" in fired.detail
    if fired.answered_s is None:
        fired = probe.first(GuardState, lambda state: state.answered_s is not None)
    assert fired.answered_s is not None
    assert 0 <= fired.answered_s < 5
    assert not docker.running
    # On the line that was open since it was armed, and never again, whatever is said and however low memory is.
    docker.running = True
    probe.send(order())
    probe.more_samples(8)
    assert docker.requests == [(1, f"GET /containers/{ID}/json"), (1, f"POST /containers/{ID}/kill")]


def test_a_fall_that_would_empty_it_is_acted_on(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start, within=3.0)
    left = 60.0
    while left > 5 and docker.running:
        place.set_available(left * GIB)
        probe.take(0.05)
        time.sleep(0.05)
        left -= 0.6  # some 6 GiB/s
    fired = phase(probe, GuardPhase.FIRED, "GiB/s")
    assert fired.available_bytes is not None
    assert 4.5 * GIB < fired.available_bytes < 30 * GIB
    assert docker.kill_count == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "ab" * 32}, "no such container"),
        ({"name": "another"}, f"now called {NAME}"),
        ({"floor": 61 * GIB}, "already below that floor"),
    ],
)
def test_what_is_not_so_is_not_armed(start: Start, docker: FakeDocker, changes: dict[str, object], words: str) -> None:
    probe = start()
    probe.send(order(**changes))  # type: ignore[arg-type]
    assert words in phase(probe, GuardPhase.DISARMED).detail
    assert docker.kill_count == 0


def test_it_can_be_armed_before_a_start(start: Start, docker: FakeDocker, place: Place) -> None:
    docker.running = False
    probe = start()
    probe.send(order())
    assert "not running" in phase(probe, GuardPhase.ARMED).detail
    docker.running = True
    place.set_available(3 * GIB)
    phase(probe, GuardPhase.FIRED)
    poll(lambda: not docker.running)


@pytest.mark.parametrize("words", [{"id": "x"}, {"floor": 0}, {"within": -1}, {"floor": "y"}, {"floor": None}])
def test_nonsense_is_refused(start: Start, docker: FakeDocker, words: dict[str, object]) -> None:
    probe = start()
    probe.send(order(**words))  # type: ignore[arg-type]
    assert "doesn't understand" in phase(probe, GuardPhase.FAILED).detail
    probe.send(b'{"guard":3}\n{"guard":null}\n')
    probe.more_samples(1)
    assert docker.requests == []


def test_a_daemon_that_restarts_is_found_again(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    docker.stop()
    assert "not running" in phase(probe, GuardPhase.FAILED).detail
    docker.start()
    assert phase(probe, GuardPhase.ARMED).detail == ""
    place.set_available(1 * GIB)
    phase(probe, GuardPhase.FIRED)
    poll(lambda: not docker.running)
    assert docker.kill_count == 1


def test_without_docker_it_says_so_and_acts_when_it_is_back(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    docker.stop()
    phase(probe, GuardPhase.FAILED)
    place.set_available(1 * GIB)
    phase(probe, GuardPhase.FAILED, "memory is low")
    docker.start()
    phase(probe, GuardPhase.FIRED)
    poll(lambda: not docker.running)
    assert docker.kill_count == 1


def test_a_line_that_breaks_at_the_kill_is_looked_into(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    docker.hangs_up_on_kill = True
    place.set_available(1 * GIB)
    answered = probe.first(GuardState, lambda state: state.answered_s is not None)
    assert answered.phase is GuardPhase.FIRED
    said = [request.partition(" ")[0] for _, request in docker.requests]
    assert said == ["GET", "POST", "GET", "POST"]  # it ran yet: only then again
    assert not docker.running


def test_a_kill_that_docker_refuses_is_told(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    docker.running = False
    place.set_available(1 * GIB)
    failed = phase(probe, GuardPhase.FAILED)
    assert "is not running" in failed.detail
    assert failed.has_acted


# --- the console goes


def test_it_goes_with_the_console(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start)
    probe.hang_up()
    probe.acknowledge = False
    assert probe.drain() == 0
    poll(lambda: not processes_of(probe.launch))
    assert place.kept("guard") is None
    place.set_available(1 * GIB)
    assert docker.running


@pytest.mark.parametrize("way", ["closed", "bye", "lease", "hup", "term"])
def test_told_to_stay_it_stays_alone_and_fires(start: Start, docker: FakeDocker, place: Place, way: str) -> None:
    probe = armed_probe(start, lease_s=1.5 if way == "lease" else 30.0, stay=60.0)
    probe.acknowledge = False
    if way == "bye":
        probe.send(b'{"bye":1}\n')
    elif way == "hup":
        probe.process.send_signal(signal.SIGHUP)
        probe.hang_up()
    elif way in ("closed", "term"):
        probe.hang_up()
    deadline = time.monotonic() + 20
    while not probe.ended and time.monotonic() < deadline:
        probe.take()
    assert probe.ended, "standard output stays open: sshd would keep the session"
    if way == "term":
        probe.process.terminate()  # as a session that ends may do to what it leaves behind
    poll(lambda: processes_of(probe.launch) == {probe.process.pid}, what="the end of its children")
    claim = place.kept("guard")
    assert claim is not None
    assert claim["until"] == pytest.approx(time.time() + 60, abs=10)
    place.set_available(1 * GIB)
    poll(lambda: not docker.running, what="the container's end")
    assert probe.process.wait(10) == 0
    assert docker.kill_count == 1
    # Whoever comes next hears of it, until another guard is armed.
    place.set_available(60 * GIB)
    for _ in range(2):
        later = start()
        assert phase(later, GuardPhase.FIRED).available_bytes == pytest.approx(1 * GIB, abs=2048)
        assert place.kept("guard") is None
    later.send(order())
    phase(later, GuardPhase.ARMED)
    assert place.kept("guard-event") is None


def test_it_leaves_when_the_time_is_over(start: Start, docker: FakeDocker, place: Place) -> None:
    probe = armed_probe(start, stay=1.0)
    probe.hang_up()
    assert probe.process.wait(10) == 0
    assert place.kept("guard") is None
    assert docker.kill_count == 0


def test_a_new_order_takes_over_from_one_that_stayed(start: Start, docker: FakeDocker, place: Place) -> None:
    old = armed_probe(start, stay=60.0)
    old.hang_up()
    poll(lambda: (place.kept("guard") or {}).get("until"), what="that it stays")
    new = start()
    seen = phase(new, GuardPhase.ARMED, "is gone")
    assert seen.until_wall_s == pytest.approx(time.time() + 60, abs=10)
    assert seen.container_name == NAME
    new.send(order("two", floor=2 * GIB))
    armed = phase(new, GuardPhase.ARMED)
    assert (armed.floor_bytes, armed.until_wall_s) == (2 * GIB, None)
    assert old.process.wait(10) == 0
    place.set_available(3 * GIB)
    new.more_samples(4)
    assert docker.running
    place.set_available(1 * GIB)
    phase(new, GuardPhase.FIRED)
    poll(lambda: docker.kill_count == 1)


def test_one_that_stayed_can_be_switched_off(start: Start, docker: FakeDocker, place: Place) -> None:
    old = armed_probe(start, stay=60.0)
    old.hang_up()
    poll(lambda: (place.kept("guard") or {}).get("until"), what="that it stays")
    new = start()
    new.send(order("two", id=""))
    phase(new, GuardPhase.DISARMED)
    assert old.process.wait(10) == 0


def test_another_consoles_guard_is_shown_and_its_end_too(start: Start, docker: FakeDocker, place: Place) -> None:
    one, two = start(), None
    one.send(order())
    phase(one, GuardPhase.ARMED)
    two = start()
    phase(two, GuardPhase.ARMED, "another console")
    one.process.kill()
    phase(two, GuardPhase.DISARMED)
    assert place.kept("guard") is None


def test_a_console_that_watches_already_sees_anothers_guard_armed_and_its_kill(
    start: Start, docker: FakeDocker, place: Place
) -> None:
    watching = start()
    watching.more_samples(1)
    one = armed_probe(start, stay=60.0)
    assert phase(watching, GuardPhase.ARMED, "another console").container_name == NAME
    one.hang_up()
    phase(watching, GuardPhase.ARMED, "is gone")
    place.set_available(1 * GIB)
    phase(watching, GuardPhase.FIRED)
    assert docker.kill_count == 1


def test_a_second_console_takes_the_guard_over(start: Start, docker: FakeDocker) -> None:
    one, two = start(), start()
    one.send(order())
    phase(one, GuardPhase.ARMED)
    two.send(order("two"))
    phase(two, GuardPhase.ARMED)
    assert "another console" in phase(one, GuardPhase.DISARMED).detail
    two.more_samples(2)
    assert not two.of(GuardState)


def test_a_folder_that_is_not_ours_alone_is_not_used(start: Start, docker: FakeDocker, place: Place) -> None:
    place.journal.mkdir(mode=0o777)
    place.journal.chmod(0o777)
    (place.journal / "guard-event").write_text('{"message":{"kind":"guard"}}')
    probe = start()
    probe.send(order(stay=60.0))
    armed = phase(probe, GuardPhase.ARMED)
    assert armed.stay_s == 0  # nobody could switch it off
    probe.hang_up()
    assert probe.process.wait(10) == 0


@pytest.mark.parametrize("left", ["", "[", "{}", '{"message":{"kind":"guard"},"boot_id":"x","wall":1}', "\x00" * 90])
def test_what_an_earlier_boot_or_chance_left_is_dropped(start: Start, place: Place, left: str) -> None:
    place.journal.mkdir(mode=0o700)
    for name in ("guard", "guard-event"):
        (place.journal / name).write_text(left)
    probe = start()
    probe.more_samples(2)
    poll(lambda: (probe.take(), not list(place.journal.iterdir()))[1], what="that they are gone")
    assert not probe.of(GuardState)
    assert not probe.of(Bye)


@pytest.mark.parametrize("is_deaf", [False, True])
def test_it_ends_a_process_by_its_pid_and_start(start: Start, place: Place, is_deaf: bool) -> None:
    """Without Docker: SIGTERM, and SIGKILL to what is left after the grace; the workers with it."""
    trap = "trap '' TERM;" if is_deaf else ""
    server = subprocess.Popen(["sh", "-c", f"{trap} sleep 600 & echo ready; wait; wait"], stdout=subprocess.PIPE)
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        workers = processes.family(server.pid)[1:]
        target = f"pid:{server.pid}:{processes.started(server.pid)}"
        probe = armed_probe(start, id=target, name="llama.cpp:8080")
        place.set_available(4.01 * GIB)
        probe.more_samples(3)
        assert server.poll() is None
        place.set_available(3.9 * GIB)
        fired = phase(probe, GuardPhase.FIRED)
        if fired.answered_s is None:
            fired = probe.first(GuardState, lambda state: state.answered_s is not None)
        assert (fired.container_id, fired.container_name) == (target, "llama.cpp:8080")
        assert server.wait(10) == (-signal.SIGKILL if is_deaf else -signal.SIGTERM)
        poll(lambda: not any(map(processes.started, workers)), what="the end of its workers")
    assert len(workers) == 1


@pytest.mark.parametrize(
    ("id_", "words"),
    [
        ("pid:{pid}:1", "no such process"),  # another that has its pid
        ("pid:4194300:17", "no such process"),
        ("pid:{pid}:x", "neither a container id nor"),
        ("pid:{pid}", "neither a container id nor"),
    ],
)
def test_another_process_with_its_pid_is_left_alone(start: Start, place: Place, id_: str, words: str) -> None:
    probe = start()
    place.set_available(3.9 * GIB)
    probe.send(order(id=id_.format(pid=os.getpid())))
    wanted = GuardPhase.FAILED if "neither" in words else GuardPhase.DISARMED
    assert words in phase(probe, wanted).detail


def test_a_process_that_ends_by_itself_disarms_it(start: Start, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "launch", _looking_often(bundle.launch))
    with subprocess.Popen(["sleep", "600"]) as server:
        target = f"pid:{server.pid}:{processes.started(server.pid)}"
        probe = armed_probe(start, id=target, name="llama.cpp:8080")
        server.kill()
        assert "no longer exists" in phase(probe, GuardPhase.DISARMED).detail


def _looking_often(launch: Callable[..., bundle.Launch]) -> Callable[..., bundle.Launch]:
    return lambda **more: elsewhere(launch(**more), {"VERIFY_S = 20.0": "VERIFY_S = 0.5"})
