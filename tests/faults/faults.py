"""The faults, on real parts; each is over, and undone, when its function returns."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.lab import can_cut, cut
from tests.bench.processes import children, family
from tests.faults.draw import Trial
from tests.faults.stages import Scene
from tests.integration.dockerd import remove
from tests.integration.interrupting import OLD
from tests.integration.spark import Spark
from tests.integration.terminal import Terminal, hurried_program

from sparktop.probe.bundle import RUNNER_NAME

DOWN_S, LONG_DOWN_S = 8.0, 40.0
STEP_WITHIN_S = 30.0
"""For the next step on that node to be carried out."""
STATE_BYTES = 2 << 20
"""Of the small disk here."""


@dataclass(kw_only=True)
class Hit:
    """What a fault has done."""

    hurt_wall_s: float | None = None
    """When it was over, where it hurts the engine itself."""
    removed: set[str] = field(default_factory=set)
    missed: str = ""
    """Why it hit nothing."""
    undo: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What is undone once the console has ended."""
    rival: subprocess.Popen[bytes] | None = None
    """The second console."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault is played."""

    trial: Trial
    scene: Scene
    at: Terminal
    state_folder: Path
    rival_folder: Path

    @property
    def spark(self) -> Spark:
        return self.scene.sparks[self.trial.victim]

    def waits(self, seconds: float) -> None:
        """Read what the console writes meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.at.looks()


def processes(spark: Spark) -> list[int]:
    """All of ours that run there: under its sshd, and those left behind."""
    assert spark.sshd.process is not None
    there = {*family(spark.sshd.process.pid), *family(spark.init_pid)}
    return sorted(pid for pid in there if _is_ours(pid))


def _is_ours(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"sparktop-" in Path(f"/proc/{pid}/cmdline").read_bytes() or _name(pid).startswith("sparktop-")
    return False


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _runners(spark: Spark) -> list[int]:
    """The main process of each runner."""
    found = [pid for pid in processes(spark) if _name(pid) == RUNNER_NAME]
    inner = {child for pid in found for child in children(pid)}
    return [pid for pid in found if pid not in inner]


def _steps(runners: list[int]) -> list[int]:
    """The processes that carry out steps for them: each leads a session of its own, so as to outlive its runner."""
    return [child for pid in runners for child in children(pid) if _session(child) == child]


def _session(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return 0


def _step(place: Place) -> list[int]:
    """A step's process at a moment of its short life: looked for without a rest, as most live for some 0.1 s."""
    until = time.monotonic() + STEP_WITHIN_S
    while time.monotonic() < until and place.at.status is None:
        runners, soon = _runners(place.spark), time.monotonic() + 1.0
        while time.monotonic() < soon:
            if _steps(runners):
                time.sleep(place.trial.delay_s / 10)
                if found := _steps(runners):
                    return found
            place.at.looks(0.001)
    return []


def _soon(place: Place, find: Callable[[Spark], list[int]]) -> list[int]:
    """The processes, as soon as there is one."""
    until = time.monotonic() + 3.0
    while not (found := find(place.spark)) and time.monotonic() < until:
        place.at.looks()
    return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _console(place: Place) -> list[int]:
    return [place.at.pid] if place.at.status is None else []


def _sessions(spark: Spark) -> list[int]:
    return spark.sshd.session_pids()


_LEVELS: dict[str, Callable[[Place], list[int]]] = {
    "console": _console,
    "runner": lambda place: _soon(place, _runners),
    "step": _step,
    "session": lambda place: _soon(place, _sessions),
    # With nsenter, its parent, which stops itself where its child is stopped, and would not go on with it.
    "dockerd": lambda place: [place.spark.dockerd_pid, place.spark.dockerd.process.pid],
}


def _kill(place: Place, level: str) -> Hit:
    pids = _LEVELS[level](place)
    _signal(pids, signal.SIGKILL)
    return Hit(missed="" if pids else f"no {level} there")


def _freeze(place: Place, level: str) -> Hit:
    pids = _LEVELS[level](place)
    _signal(pids, signal.SIGSTOP)
    try:
        if level == "console":
            time.sleep(place.trial.for_s)
        else:
            place.waits(place.trial.for_s)
    finally:
        _signal(pids, signal.SIGCONT)
    return Hit(missed="" if pids else f"no {level} there")


def _dockerd(place: Place, number: int) -> Hit:
    place.spark.restart_dockerd(number)
    return Hit(hurt_wall_s=time.time())


def _engine(place: Place) -> str:
    """The id of the engine's container that runs there; the one that was there before where none does yet."""
    running = {box.name: box.container_id for box in place.scene.boxes() if box.node == place.spark.name and box.runs}
    name = place.scene.names[place.trial.victim]
    return running.get(name) or running.get(OLD, "")


def _engine_killed(place: Place) -> Hit:
    if not (container_id := _engine(place)):
        return Hit(missed="none runs")
    pid = int(place.spark.dockerd.api.inspect_container(container_id)["State"]["Pid"])
    # As numbered in its namespace: the daemon lives there.
    place.spark.run("kill", "-9", str(pid))
    return Hit(hurt_wall_s=time.time())


def _container_removed(place: Place) -> Hit:
    name = place.scene.names[place.trial.victim]
    found = [box for box in place.scene.boxes() if box.node == place.spark.name and box.name in (name, OLD)]
    if not found:
        return Hit(missed="none is there")
    box = next((box for box in found if box.name == name), found[0])
    remove(place.spark.dockerd.api, box.container_id)
    return Hit(hurt_wall_s=time.time(), removed={box.container_id})


def _second_console(place: Place) -> Hit:
    place.rival_folder.mkdir(parents=True)
    with (place.rival_folder / "output").open("wb") as output:
        rival = subprocess.Popen(
            [*hurried_program(), *place.scene.retry_words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **place.scene.environment, "XDG_STATE_HOME": str(place.rival_folder)},
        )
    return Hit(rival=rival)


def _ctrl_c(place: Place, times: int) -> Hit:
    for turn in range(times):
        if turn:
            place.waits(place.trial.for_s / 8)
        place.at.types("\x03")
    return Hit()


def _hang_up(place: Place) -> Hit:
    place.at.hangs_up()
    return Hit()


def _term(place: Place) -> Hit:
    _signal(_console(place), signal.SIGTERM)
    return Hit()


def _link_down(place: Place, seconds: float) -> Hit:
    with cut(place.spark.sshd) if can_cut() else _silent(place.spark):
        place.waits(seconds)
    return Hit()


@contextlib.contextmanager
def _silent(spark: Spark) -> Iterator[None]:
    """As near as it comes where no packet can be dropped: nobody there answers."""
    pids = _sessions(spark)
    with spark.sshd.frozen():
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)


def _disk_full_here(place: Place) -> Hit:
    filler = place.state_folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    hit = Hit()
    hit.undo.callback(filler.unlink)
    return hit


def _disk_full_there(place: Place) -> Hit:
    """/run, where a runner keeps its lock and its journals."""
    usage = os.statvfs(place.spark.root / "run")
    used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    place.spark.run("mount", "-o", f"remount,size={used}", "/run")
    hit = Hit()
    hit.undo.callback(place.spark.run, "mount", "-o", "remount,size=50%", "/run")
    return hit


FAULTS: dict[str, Callable[[Place], Hit]] = {
    "dockerd-term": lambda place: _dockerd(place, signal.SIGTERM),
    "dockerd-kill": lambda place: _dockerd(place, signal.SIGKILL),
    "engine-killed": _engine_killed,
    "container-removed": _container_removed,
    "second-console": _second_console,
    "ctrl-c": lambda place: _ctrl_c(place, 1),
    "ctrl-c-twice": lambda place: _ctrl_c(place, 2),
    "hang-up": _hang_up,
    "term": _term,
    "link-down": lambda place: _link_down(place, DOWN_S),
    "link-down-long": lambda place: _link_down(place, LONG_DOWN_S),
    "disk-full-here": _disk_full_here,
    "disk-full-there": _disk_full_there,
}


def strike(place: Place) -> Hit:
    """Play the trial's fault now."""
    verb, _, level = place.trial.fault.partition("-")
    if place.trial.fault in FAULTS:
        return FAULTS[place.trial.fault](place)
    return {"kill": _kill, "freeze": _freeze}[verb](place, level)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of STATE_BYTES on that folder while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES},mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
