"""What is done to the machine itself, planned and then carried out by a real runner over a real sshd."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sshd import Sshd, sshd  # noqa: F401 - a fixture
from tests.pictures_support import facts, gib, idle_node, picture, process
from tests.support import poll, unavailable

from sparktop.model.request import Request
from sparktop.model.survey import Privileges, PrivilegesQuestion, Survey
from sparktop.model.telemetry import GpuProcess
from sparktop.operate.actions import Planner
from sparktop.operate.acts.remote import Remote
from sparktop.operate.machine import caches, end_process
from sparktop.operate.plan.process import parse_stat
from sparktop.operate.runner.api import Outcome, OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.step.plan import Plan
from sparktop.probe import bundle

pytestmark = pytest.mark.integration
MIB = 1024 * 1024


@pytest.fixture
async def line(sshd: Sshd, tmp_path: Path) -> AsyncIterator[RunnerLine]:  # noqa: F811
    sshd.trust()
    transport = await sshd.connector().connect(patience_s=10.0)
    (tmp_path / "state").mkdir(mode=0o1777)
    launch = bundle.launch_runner(state_folder=str(tmp_path / "state"))
    opened = await RunnerLine.open("spark1", transport, key="test", launch=launch)
    try:
        yield opened
    finally:
        await opened.close()
        await transport.close()


async def planned(planner: Planner, request: Request, view: Any, line: RunnerLine) -> Plan:
    """The plan, from the node's own answers."""
    fleet, survey = picture(view), Survey()
    while questions := [ask for ask in planner.questions(request, fleet, survey) if ask not in survey.answers]:
        survey = Survey(answers={**survey.answers, **await line.ask(questions)})
    made = planner.plan(request, fleet, survey)
    assert isinstance(made, Plan), made
    return made


async def done(plan: Plan, step_id: str, line: RunnerLine) -> Outcome:
    step = next(step for step in plan.steps if step.id == step_id)
    assert isinstance(step.act, Remote)

    async def no_password(node: str, wrong: int) -> str | None:
        return None

    return await line.perform("run-1", step_id, step.act, told=lambda result: None, secret=no_password)


def cached_pages(path: Path) -> int:
    """How many of a file's pages are in the page cache, by mincore(2)."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        whole = (ctypes.c_char * size).from_buffer(mapped)
        try:
            assert ctypes.CDLL(None, use_errno=True).mincore(whole, ctypes.c_size_t(size), pages) == 0
        finally:
            del whole
    return sum(page & 1 for page in pages)


async def test_caches_are_dropped_on_this_kernel(line: RunnerLine, tmp_path: Path) -> None:
    privileges = (await line.ask((PrivilegesQuestion(node="spark1"),)))[PrivilegesQuestion(node="spark1")].value
    assert isinstance(privileges, Privileges)
    if not privileges.is_root:
        unavailable("root, to drop caches")
    file = tmp_path / "read"
    with file.open("wb") as out:
        out.write(os.urandom(MIB) * 64)
        out.flush()
        os.fsync(out.fileno())
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(file):
        unavailable("a temporary folder on a disk: tmpfs is no page cache that can be dropped")
    plan = await planned(caches, Request(action="drop-caches", nodes=("spark1",)), idle_node("spark1"), line)
    assert (await done(plan, "sync", line)).state is OutcomeState.DONE
    file.read_bytes()
    assert cached_pages(file) > 10_000
    outcome = await done(plan, "drop", line)
    assert outcome.state is OutcomeState.DONE, outcome
    assert cached_pages(file) == 0
    assert "vm.drop_caches = 3" in outcome.results[0].output


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a GPU's list is to name, deaf to TERM."""
    started = subprocess.Popen(
        ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"], stdout=subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"deaf\n"
        yield started
    finally:
        started.kill()
        started.wait()


def holding(pid: int, started_boot_s: float) -> Any:
    row = process(pid, "sh", 0.1, user_id=os.getuid(), started_boot_s=started_boot_s)
    used = GpuProcess(pid=pid, name="sh", used_bytes=gib(61.0))
    return idle_node("spark1", processes=(row,), gpu_processes=(used,), facts=facts("spark1", user_id=os.getuid()))


async def test_one_process_is_ended_and_no_other(
    line: RunnerLine, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_process, "TERM_S", 0.5)
    stat = parse_stat(Path(f"/proc/{sleeper.pid}/stat").read_text("utf-8"))
    assert stat is not None
    request = Request(action="end-holder", nodes=("spark1",), target=str(sleeper.pid))
    plan = await planned(end_process, request, holding(sleeper.pid, stat.started_boot_s), line)

    end = next(step for step in plan.steps if step.id == "end")
    assert isinstance(end.act, Remote)
    strangers = tuple(replace(one, started_ticks=stat.started_ticks + 1) for one in end.act.operations)  # type: ignore[type-var,call-arg]
    other = replace(plan, steps=(replace(end, id="other", act=replace(end.act, operations=strangers)),))
    outcome = await done(other, "other", line)
    assert outcome.state is OutcomeState.DONE, outcome
    assert all(one.was_done for one in outcome.results)
    assert sleeper.poll() is None, "another process with that pid is left alone"

    outcome = await done(plan, "end", line)
    assert outcome.state is OutcomeState.DONE, outcome
    poll(lambda: sleeper.poll() is not None, what="its end")
    assert sleeper.returncode == -9
