"""What goes wrong of itself in the middle of a launch: told with the engine's own words, and all as it was before."""

from __future__ import annotations

import asyncio
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import NODE, Desk, hurried, told
from tests.integration.dockerd import IMAGE as BUSYBOX
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import IMAGE, EngineLike, Engines
from tests.integration.interrupting import Stage, stage
from tests.integration.launch_support import order
from tests.integration.spark import Spark, sparks
from tests.integration.test_launch import NAME, at_desk, boxes, planned, sshd
from tests.support import free_port

from sparktop.documents.run import printed_lines
from sparktop.operate.relaunch.next_try import next_try
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at_desk", "sparks", "sshd"]
OLD = "vllm-old"


@pytest.fixture
def old(engines: Engines) -> EngineLike:
    """What is stopped for the launch, and comes back."""
    env = {"ENGINE_LOAD_S": "0.2", "ENGINE_HOLD_MIB": "16"}
    return engines.start(OLD, env=env, restart_policy={"Name": "unless-stopped"})


def is_as_it_was(dockerd: Dockerd, old: EngineLike) -> bool:
    policy = old.inspect()["HostConfig"]["RestartPolicy"]["Name"]
    return boxes(dockerd) == {OLD: "running"} and policy == "unless-stopped"


async def made(at: Desk, port: int, *, values: dict[str, str] | None = None, **env: str) -> Plan:
    await at.serves(OLD)
    plan = await planned(at, order(port, env=env, stops=((NODE, OLD),), values=values or {}))
    assert isinstance(plan, Plan), plan
    return plan


def when(step: str, do: Callable[[], object]) -> Callable[[Run], None]:
    """Once, while that step is under way."""
    done: list[str] = []

    def changed(run: Run) -> None:
        if not done and any(one.step.id == step and one.state is StepState.RUNNING for one in run.steps):
            done.append(step)
            do()

    return changed


def logs(run: Run) -> str:
    """What the archive has of the engines' logs."""
    with tarfile.open(run.evidence_path) as archive:
        files = [archive.extractfile(one) for one in archive.getmembers() if f"/logs/{NAME}-" in one.name]
        return "".join(file.read().decode() for file in files if file is not None)


# --- between plan and run


@pytest.mark.parametrize("by", ["nothing", "another"])
async def test_the_image_has_gone_or_is_another(at_desk: Any, dockerd: Dockerd, old: EngineLike, by: str) -> None:
    dockerd.api.tag(IMAGE, "sparktop-engine", "passing")
    async with at_desk() as at:
        plan = await made(at, free_port(), values={"container": "sparktop-engine:passing"})
        dockerd.api.remove_image("sparktop-engine:passing", noprune=True)
        if by == "another":
            dockerd.api.tag(BUSYBOX, "sparktop-engine", "passing")
        try:
            run = await at.finished(at.begin(plan))
        finally:
            if by == "another":
                dockerd.api.remove_image("sparktop-engine:passing", noprune=True)
    assert run.state is RunState.FAILED, told(run)
    assert "sparktop-engine:passing was removed or replaced: plan again" in run.message
    assert is_as_it_was(dockerd, old)


async def test_the_name_was_taken_meanwhile(at_desk: Any, dockerd: Dockerd, engines: Engines, old: EngineLike) -> None:
    async with at_desk() as at:
        plan = await made(at, free_port())
        # In a thread: the figures must not grow old meanwhile.
        other = await asyncio.to_thread(engines.start, NAME, env={"ENGINE_LOAD_S": "0.1"})
        run = await at.finished(at.begin(plan))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert f"/{NAME}" in run.message
    assert "already in use" in run.message
    assert boxes(dockerd) == {OLD: "running", NAME: "running"}
    assert other.answers() is not None


async def test_a_model_that_is_nowhere_is_refused(at_desk: Any, dockerd: Dockerd, old: EngineLike) -> None:
    async with at_desk() as at:
        await at.serves(OLD)
        found = await planned(at, order(free_port(), values={"model": "/models/nowhere"}))
    assert isinstance(found, Refusal)
    assert f"/models/nowhere on {NODE}" in found.reason
    assert found.remedies


# --- while it loads


async def test_another_takes_its_port_while_it_loads(at_desk: Any, dockerd: Dockerd, old: EngineLike) -> None:
    port = free_port()
    with socket.socket() as thief:

        def takes() -> None:
            thief.bind(("127.0.0.1", port))
            thief.listen()

        async with at_desk() as at:
            plan = await made(at, port, ENGINE_LOAD_S="2")
            run = await at.finished(at.begin(plan, also=when("ready", takes)))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert "Address already in use" in run.message, told(run)
    assert "The port is already in use" in run.message, told(run)
    assert "Address already in use" in logs(run)
    assert is_as_it_was(dockerd, old)


@pytest.mark.parametrize(
    ("fails", "line", "finding"),
    [
        ("load", "CUDA error: out of memory", "CUDA is out of memory"),
        ("ready", "NCCL error: unhandled system error", "NCCL failed on a system call"),
    ],
)
async def test_what_failed_is_told_with_its_finding(
    at_desk: Any, dockerd: Dockerd, old: EngineLike, fails: str, line: str, finding: str
) -> None:
    async with at_desk() as at:
        run = await at.finished(at.begin(await made(at, free_port(), ENGINE_FAILS=fails)))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert line in run.message
    assert finding in run.message
    offered = [one.plain for one in printed_lines(run, 100, has_steps=False)]
    remedy = next_try(run)
    assert remedy is not None
    assert remedy.remedy.title in " ".join(" ".join(offered).split()), offered
    assert (f"  {remedy.command}" in offered) == bool(remedy.command)
    assert line in logs(run)
    assert is_as_it_was(dockerd, old)


async def test_the_docker_engine_is_restarted_while_it_loads(at_desk: Any, dockerd: Dockerd, old: EngineLike) -> None:
    async with at_desk() as at:
        plan = await made(at, free_port(), ENGINE_LOAD_S="30")
        run = await at.finished(at.begin(plan, also=when("ready", dockerd.restart)))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert "SIGKILL" in run.message or "exit code 137" in run.message
    assert is_as_it_was(dockerd, old)


# --- its first request, and the measurement


async def test_a_first_request_that_hangs(
    at_desk: Any, dockerd: Dockerd, old: EngineLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.operate.plan.start_steps.SMOKE_LIMIT_S", 4.0)
    async with at_desk() as at:
        run = await at.finished(at.begin(await made(at, free_port(), ENGINE_COMPLETION="hang")))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert "no answer within 4 s" in run.message
    assert "Application startup complete" in logs(run)
    assert is_as_it_was(dockerd, old)


async def test_a_first_request_that_takes_all_memory(
    at_desk: Any, dockerd: Dockerd, old: EngineLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard ends it, and what was there before it comes back. The floor is one that only its spike reaches."""
    async with at_desk() as at:
        await at.serves(OLD)
        sample = at.monitor.state.nodes[0].sample
        assert sample is not None
        floor = sample.memory.available_bytes - (3 << 30)
        monkeypatch.setattr("sparktop.operate.launch.planned_rank.floor_of", lambda budget: floor)
        run = await at.finished(at.begin(await made(at, free_port(), ENGINE_SPIKE_MIB="7168")))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert "guard" in run.message
    assert is_as_it_was(dockerd, old)


async def test_a_measurement_that_fails_is_told_and_no_more(
    at_desk: Any, dockerd: Dockerd, old: EngineLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.operate.launch.planned_rank.MEASURE_LIMIT_S", 2.0)
    async with at_desk() as at:
        run = await at.finished(at.begin(await made(at, free_port(), ENGINE_TOKENS_S="2")))
    assert run.state is RunState.DONE, told(run)
    assert "“Measure vllm-tiny: 40 tokens” failed: no answer within 2 s" in run.message
    assert boxes(dockerd) == {OLD: "exited", NAME: "running"}


# --- while it is fetched


@pytest.fixture
def pair(sparks: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    hurried(monkeypatch)
    with stage(sparks, tmp_path, 2) as made:
        yield made


async def test_the_disk_is_full_in_the_middle_of_the_copy(pair: Stage) -> None:
    pair.has_model("spark2", whether=False)
    there = pair.home("spark2") / ".cache/huggingface"
    there.mkdir(parents=True)
    second = pair.spark("spark2")
    second.run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(there))
    try:
        async with pair.console() as at:
            plan = await pair.possible(at)
            assert next(one.id for one in plan.steps) == "copy@spark2"
            second.run("sh", "-c", f"head -c 2000000 /dev/zero >{there}/full 2>/dev/null || true")
            run = await at.finished(at.begin(plan))
    finally:
        second.run("umount", str(there))
    assert run.state is RunState.FAILED, told(run)
    assert "No space left on device" in run.message
    assert f"downloaded by now stay in {there}" in run.message.replace("~", str(pair.home("spark2"))), run.message
    assert "on spark2. That disk is full: 0 bytes free." in run.message, run.message
    assert pair.boxes() == {"spark1": {}, "spark2": {}}
