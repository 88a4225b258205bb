"""A process that this machine's own kernel kills for want of memory, in a container of a machine: named by its line,
also where a guard kills another."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.terminal import sparktop
from tests.real.conftest import machines
from tests.real.console import act, looked, rules, state, told, watching
from tests.real.engines import Engine, docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE
from tests.real.test_machine import guard
from tests.support import poll

MEMORY = Path("/sys/fs/cgroup/memory")
KILLED, TAKEN, FIRED, DOWN = "kernel.oom-kill-in-limit", "start.port-in-use", "guard.fired", "restart.exit-137"
MIB = 2**20


@pytest.fixture
def spark() -> Iterator[Machine]:
    """With this machine's kernel log."""
    if not (MEMORY / "memory.limit_in_bytes").exists():
        pytest.skip("no memory controller of cgroup v1 here: a machine's containers can't be limited from outside")
    for (one,) in machines("spark1", has_kernel_log=True):
        yield one


@contextlib.contextmanager
def limited(engine: Engine, limit_bytes: int) -> Iterator[None]:
    """Its processes in a memory cgroup that is called as systemd and Docker call theirs."""
    folder = MEMORY / f"system.slice/docker-{engine.inspect()['Id']}.scope"
    folder.mkdir(parents=True)
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        for pid in init_and_children(engine):
            move(pid, folder)
        yield
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            move(int(pid), MEMORY)
        poll(lambda: is_removed(folder), what="the end of what was killed in it")
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


def move(pid: int, group: Path) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        (group / "cgroup.procs").write_text(str(pid))


def is_removed(group: Path) -> bool:
    with contextlib.suppress(OSError):  # busy
        group.rmdir()
    return not group.exists()


def init_and_children(engine: Engine) -> list[int]:
    """Of its container, numbered as here."""
    inside = engine.machine.run("docker", "top", engine.name, "-o", "pid").split()[1:]
    found = engine.machine.pids()
    return [pid for pid in found if number_inside(pid) in inside]


def number_inside(pid: int) -> str:
    """Of a process in the machine's own numbering: the outer of those below this machine's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    numbers = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
    return numbers[2] if len(numbers) > 2 else ""


def killed_now(one: Any) -> bool:
    """Other tests write to this kernel's log, too: what they left is told as earlier."""
    return KILLED in rules(one) and not rules(one)[KILLED]["title"].startswith("Earlier")


def killed_first(one: Any) -> bool:
    order = list(rules(one))
    return killed_now(one) and order.index(KILLED) < order.index(TAKEN)


def start(spark: Machine, name: str, port: int = 8000, *options: str) -> Engine:
    """The tests' own engine."""
    words = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1", "--port", str(port))
    spark.run(*docker_run(name, "--env", "ENGINE_LOAD_S=0.3", *options), ENGINE_IMAGE, *words)
    return Engine(spark, name, port)


SPIKES = ("--env", "ENGINE_SPIKE_MIB=400")
"""With its first request."""


def ask(engine: Engine) -> None:
    """Until it has ended with that."""
    words = ("--silent", "--data", '{"model": "tiny", "prompt": "a"}', f"localhost:{engine.port}/v1/completions")
    engine.machine.run("sh", "-c", 'curl "$@"; true', "sh", *words)
    engine.ended()


def test_an_oom_kill_is_named_with_its_container_before_an_older_failure(spark: Machine) -> None:
    engine = start(spark, "vllm", 8000, *SPIKES)
    start(spark, "other", 8001)
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, "vllm") in ("ready", "serving"), what="serves")
        start(spark, "second", 8001)
        watch.until(lambda one: TAKEN in rules(one), what="a taken port")
        spark.run("docker", "rm", "second")
        watch.until(lambda one: rules(one)[TAKEN]["severity"] == "warning", what="its removal")
        with limited(engine, 200 * MIB):
            ask(engine)
            live = watch.until(killed_first, what="the kill, before the taken port")
    for one in (live, looked(killed_now, "spark1")):
        assert "vllm" in rules(one)[KILLED]["title"], told(one)
        assert "other" not in rules(one)[KILLED]["title"]
    kernel = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert f"docker-{engine.inspect()['Id']}.scope" in kernel


HOG = """
import sys, time
held = []
while True:  # whatever the others on this machine free
    lines = open("/proc/meminfo").read().splitlines()
    gib = next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable:"))
    if gib > float(sys.argv[1]) - 1 and len(held) < 64:
        held.append(b"x" * (128 << 20))
    else:
        time.sleep(0.05)
"""
"""Takes memory until a GiB less than a floor is available, and again when others free some; 8 GiB at most."""


def available_gib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable:"))


def test_a_kill_of_the_guard_and_one_of_the_kernel_are_each_told_as_what_they_are(spark: Machine) -> None:
    guarded, limited_ = start(spark, "guarded"), start(spark, "limited", 8001, *SPIKES)
    with watching("spark1") as watch:  # since before another console arms it
        watch.until(lambda one: state(one, "guarded") == state(one, "limited") == "ready", what="both serve")
        with limited(limited_, 200 * MIB):
            ask(limited_)
            watch.until(killed_now, what="the kernel's kill")
        floor_gib = f"{available_gib() - 1:.1f}"
        act("guard", "spark1", "--engine", "guarded", "--set", f"floor_gib={floor_gib}", "--set", "stay_minutes=30")
        watch.until(lambda one: guard(one) == "armed", what="armed")
        spark.run("systemd-run", "--unit=hog", "python3", "-c", HOG, floor_gib)
        watch.until(each_by_its_killer, what="both kills")
        spark.run("systemctl", "stop", "hog")
    assert guarded.ended()["ExitCode"] == limited_.ended()["ExitCode"] == 137
    for _ in range(2):  # by whoever looks later, too
        looked(each_by_its_killer, "spark1")
    assert "sender unknown" not in sparktop("status", "spark1").stdout


def each_by_its_killer(one: Any) -> bool:
    """One is down by the guard, the other by the kernel, and neither is told as anything more."""
    told_of = [
        (found["rule"], name)
        for found in one["findings"]
        for name in ("guarded", "limited")
        if found.get("phase") != "resolved" and name in found["title"]
    ]
    return guard(one) == "fired" and sorted(told_of) == [(FIRED, "guarded"), (KILLED, "limited"), (DOWN, "limited")]
