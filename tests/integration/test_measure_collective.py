"""A collective over two machines with Docker Engines of their own: containers made, run, read and removed.

PyTorch is played: its ranks really meet over TCP, and print what NCCL prints. The cable is in the picture alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import told, while_running
from tests.integration.engine_image import IMAGE
from tests.integration.spark import Spark, sparks
from tests.integration.test_measure_link import no_password, with_gpus
from tests.support import PATIENCE_S, free_port
from tests.unit.diagnose.rules.pair_support import fabric

from sparktop.bringup.catalogue import measured
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.observe.monitor import Monitor
from sparktop.operate.audit_file import Audit
from sparktop.operate.measure import collective, link
from sparktop.operate.operations import Operations
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]
BOTH = ("spark1", "spark2")
TAG = "vllm/vllm-openai:test"
TORCH = '''
"""Plays PyTorch with NCCL: two ranks meet at MASTER_PORT on this machine."""
import os, socket, sys, time, types
float32, mode = "float32", open("/fake/mode").read().strip()
clock = [0.0]
time.perf_counter = lambda: clock[0]
cuda = types.SimpleNamespace(set_device=lambda number: None, synchronize=lambda: None)
def zeros(*size, **more):
    return []
distributed = types.ModuleType("torch.distributed")
sys.modules["torch.distributed"] = distributed
def init(backend, timeout):
    if mode == "no-memory":
        sys.exit("x misc/ibvwrap.cc:256 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")
    if mode == "hang":
        time.sleep(600)
    where = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if os.environ["RANK"] == "0":
        with socket.create_server(where) as server:
            server.accept()[0].recv(1)
        net = "Socket" if mode == "socket" else "IB"
        using = "[0]eth0:127.0.0.1" if mode == "socket" else "[0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE"
        print(f"x:1:1 [0] NCCL INFO NET/{net} : Using {using}<0>", flush=True)
        print(f"x:1:1 [0] NCCL INFO Using network {net}", flush=True)
    else:
        for _ in range(6000):
            try:
                with socket.create_connection(where, 1) as line:
                    line.sendall(b"x")
                break
            except OSError:
                time.sleep(0.1)
distributed.init_process_group = init
def all_reduce(data):
    clock[0] += 0.0458 if mode == "" else 0.35
distributed.all_reduce = all_reduce
distributed.destroy_process_group = lambda: None
'''


@pytest.fixture
def torch(sparks: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the stand-in, with `mode`; the plan's containers have it, and no GPU."""
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "mode").write_text("")
    tmp_path.chmod(0o755)
    host = {"NetworkMode": "host", "RestartPolicy": {"Name": "no"}, "Binds": [f"{tmp_path}:/fake:ro"]}
    monkeypatch.setattr(collective, "host_config", lambda node, devices, nodes: host)
    monkeypatch.setattr(collective, "PROGRAM", f"import sys; sys.path.insert(0, '/fake')\n{collective.PROGRAM}")
    monkeypatch.setattr(collective, "PORT", free_port())
    monkeypatch.setattr(link, "require_link", lambda nodes, picture, survey: None)
    for spark in sparks:
        repository, _, tag = TAG.partition(":")
        spark.dockerd.api.tag(IMAGE, repository, tag)
    yield tmp_path
    for spark in sparks:
        left = [row["Names"] for row in spark.dockerd.api.containers(all=True)]
        spark.dockerd.clear()
        assert left == [], "a container of the measurement outlived it"


def cabled(state: FleetState) -> FleetState:
    """With what a Spark alone has: idle GPUs, and a cable with RDMA."""
    nodes = tuple(replace(view, network=fabric(number)) for number, view in enumerate(state.nodes, 1))
    return with_gpus(replace(state, nodes=nodes))


class Console:
    def __init__(self, monitor: Monitor, operations: Operations) -> None:
        self.monitor, self.operations = monitor, operations

    async def planned(self, **options: str) -> Plan | Refusal:
        request = Request(action="measure-collective", nodes=BOTH, options=options)
        return await self.operations.plan(request)

    async def begun(self, **options: str) -> PlanExecution:
        plan = await self.planned(**options)
        assert isinstance(plan, Plan), plan
        return self.operations.start(plan, secret=no_password, changed=lambda run: None)

    async def measured(self, **options: str) -> Run:
        async with asyncio.timeout(PATIENCE_S):
            return await (await self.begun(**options)).finished()


@contextlib.asynccontextmanager
async def console(sparks: tuple[Spark, ...], folder: Path) -> AsyncIterator[Console]:
    lines = RunnerConnections()
    operations = Operations(
        picture=lambda: cabled(monitor.state), lines=lines, audit=Audit(folder / "audit.jsonl"), recalls=False
    )
    connectors = [spark.sshd.connector(spark.name) for spark in sparks]
    monitor = Monitor(connectors, publish=lambda picture: None, interval_s=0.25, connections=lines)
    async with while_running(monitor):
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(view.has_looked_for_engines and view.sample for view in monitor.state.nodes):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            yield Console(monitor, operations)
        finally:
            await operations.aclose()
            await lines.aclose()


def containers(sparks: tuple[Spark, ...]) -> list[Any]:
    return [row for spark in sparks for row in spark.dockerd.api.containers(all=True)]


async def running(sparks: tuple[Spark, ...]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(row["State"] == "running" for row in containers(sparks)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_it_is_measured_in_the_image_that_both_have(
    sparks: tuple[Spark, Spark], torch: Path, tmp_path: Path
) -> None:
    async with console(sparks, tmp_path) as at:
        run = await at.measured()
        assert run.state is RunState.DONE, told(run)
        (row,) = measured(run, cabled(at.monitor.state), now_wall_s=1.0)
    assert (str(row.state), row.check) == ("passed", "collective.all-reduce"), row.found
    assert " over IB" in row.found
    assert [step.step.id for step in run.steps] == [
        "make@spark1", "make@spark2", "start@spark2", "start@spark1", "all-reduce@spark1", "remove@spark1",
        "remove@spark2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "state", "said"),
    [("socket", RunState.DONE, " over Socket"), ("no-memory", RunState.FAILED, "Cannot allocate memory")],
)
async def test_what_is_wrong_is_told_and_both_containers_are_removed(
    sparks: tuple[Spark, Spark], torch: Path, tmp_path: Path, mode: str, state: RunState, said: str
) -> None:
    (torch / "mode").write_text(mode)
    async with console(sparks, tmp_path) as at:
        run = await at.measured(image=TAG)
        assert run.state is state, told(run)
        step = next(one for one in run.steps if one.step.id == "all-reduce@spark1")
        assert said in step.detail
        assert containers(sparks) == []


async def test_an_abort_removes_both(sparks: tuple[Spark, Spark], torch: Path, tmp_path: Path) -> None:
    (torch / "mode").write_text("hang")
    async with console(sparks, tmp_path) as at:
        execution = await at.begun()
        await running(sparks)
        execution.abort()
        async with asyncio.timeout(PATIENCE_S):
            run = await execution.finished()
        assert run.state is RunState.ABORTED, told(run)
        assert containers(sparks) == []


async def test_what_a_killed_console_left_is_removed_by_the_next(
    sparks: tuple[Spark, Spark], torch: Path, tmp_path: Path
) -> None:
    (torch / "mode").write_text("hang")
    async with console(sparks, tmp_path) as at:
        await at.begun()
        await running(sparks)
    assert len(containers(sparks)) == 2  # their time limit ends them; their names are taken
    (torch / "mode").write_text("")
    async with console(sparks, tmp_path) as at:
        run = await at.measured()
        assert run.state is RunState.DONE, told(run)
        assert [one.step.id for one in run.steps][:2] == ["clear@spark1", "clear@spark2"]
        assert all(one.state is StepState.DONE for one in run.steps)


async def test_an_image_that_one_lacks_is_named(sparks: tuple[Spark, Spark], torch: Path, tmp_path: Path) -> None:
    async with console(sparks, tmp_path) as at:
        refusal = await at.planned(image="vllm/vllm-openai:other")
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "vllm/vllm-openai:other is not on spark1"
