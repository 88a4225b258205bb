"""A process that this machine's own kernel kills for want of memory, in a container of a machine: named by its line."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.conftest import machines
from tests.real.console import looked, rules, state, told, watching
from tests.real.engines import Engine, docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE
from tests.support import poll

MEMORY = Path("/sys/fs/cgroup/memory")
KILLED = "kernel.oom-kill-in-limit"
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


def test_an_oom_kill_is_named_with_its_container(spark: Machine) -> None:
    words = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1")
    environment = ("--env", "ENGINE_LOAD_S=0.3", "--env", "ENGINE_SPIKE_MIB=400")
    spark.run(*docker_run("vllm", *environment), ENGINE_IMAGE, *words)
    other = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1", "--port", "8001")
    spark.run(*docker_run("other", "--env", "ENGINE_LOAD_S=0.3"), ENGINE_IMAGE, *other)
    engine = Engine(spark, "vllm", 8000)
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, "vllm") in ("ready", "serving"), what="serves")
        with limited(engine, 200 * MIB):
            ask = 'curl --silent --data \'{"model": "tiny", "prompt": "a"}\' localhost:8000/v1/completions; true'
            spark.run("sh", "-c", ask)
            engine.ended()
            live = watch.until(lambda one: KILLED in rules(one), what="the kill")
    for one in (live, looked(lambda one: KILLED in rules(one), "spark1")):
        assert "vllm" in rules(one)[KILLED]["title"], told(one)
        assert "other" not in rules(one)[KILLED]["title"]
    kernel = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert f"docker-{engine.inspect()['Id']}.scope" in kernel
