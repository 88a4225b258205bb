"""The cable measured between two machines with networks of their own: programs that load, hang, fail and lie."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.integration.cabled import Cable, cabled
from tests.integration.desk import told, while_running
from tests.pictures_support import gpu
from tests.support import PATIENCE_S

from sparktop.bringup.catalogue import measured
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.request import Request
from sparktop.model.telemetry import GpuReading
from sparktop.observe.monitor import Monitor
from sparktop.operate.audit_file import Audit
from sparktop.operate.operations import Operations
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
BOTH = ("spark1", "spark2")
REQUEST = Request(action="measure-link", nodes=BOTH)


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cable]:
    with cabled(tmp_path_factory.mktemp("cable") / "c") as cable:
        yield cable


@pytest.fixture
def cable(wired: Cable) -> Iterator[Cable]:
    wired.mode = ""
    yield wired
    assert wired.alive == [], "a program of the measurement outlived it"


@dataclass
class Console:
    """A watching console on both; what only a GPU would tell is put into its picture."""

    monitor: Monitor
    operations: Operations
    lines: RunnerConnections

    @property
    def picture(self) -> FleetState:
        return with_gpus(self.monitor.state)

    async def ready(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not all(map(is_ready, self.picture.nodes)):  # noqa: ASYNC110 - other processes make it true
                await asyncio.sleep(0.1)

    async def begun(self) -> PlanExecution:
        plan = await self.operations.plan(REQUEST)
        assert isinstance(plan, Plan), plan
        return self.operations.start(plan, secret=no_password, changed=lambda run: None)

    async def measured(self) -> Run:
        async with asyncio.timeout(PATIENCE_S):
            return await (await self.begun()).finished()


def is_ready(view: NodeView) -> bool:
    """Both halves were read, and engines were looked for."""
    halves = [one for one in view.interfaces if one.is_up and one.networks]
    return view.has_looked_for_engines and len(halves) == 3 and len(view.rdma_ports) == 2


def with_gpus(state: FleetState) -> FleetState:
    """Idle GPUs, which this machine has none of."""
    reading = GpuReading(boot_s=1.0, gpus=(gpu(utilisation_percent=0.0, processes=()),))
    return replace(state, nodes=tuple(replace(view, gpu=reading) for view in state.nodes))


async def no_password(node: str, wrong: int) -> str | None:
    return None


@contextlib.asynccontextmanager
async def console(cable: Cable, folder: Path) -> AsyncIterator[Console]:
    lines = RunnerConnections()
    operations = Operations(picture=lambda: with_gpus(monitor.state), lines=lines, audit=Audit(folder / "audit.jsonl"))
    monitor = Monitor(
        [machine.sshd.connector(name) for name, machine in cable.machines.items()],
        publish=lambda picture: None,
        interval_s=0.25,
        connections=lines,
    )
    async with while_running(monitor):
        try:
            at = Console(monitor, operations, lines)
            await at.ready()
            yield at
        finally:
            await operations.aclose()
            await lines.aclose()


async def loading(cable: Cable) -> None:
    """A server and its client run."""
    async with asyncio.timeout(PATIENCE_S):
        while len(cable.alive) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def quiet(cable: Cable) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while cable.alive:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.fast
async def test_each_half_both_ways_both_at_once_and_the_latency(cable: Cable, tmp_path: Path) -> None:
    async with console(cable, tmp_path) as at:
        run = await at.measured()
        assert run.state is RunState.DONE, told(run)
        figures = {one.step.id: dict(one.figures) for one in run.steps}
        assert figures["half-0@spark1"] == {
            "rocep1s0f0_gbps": 111.86, "rocep1s0f0_path_mtu": 4096, "rocep1s0f0_counted_percent": 100.0,
            "rtt_ms": 0.282,
        }  # fmt: skip
        assert figures["both@spark1"]["both_halves_rocep1s0f0_gbps"] == 223.72
        assert figures["latency@spark1"]["latency_us"] == 1.42
        rows = {row.check: row for row in measured(run, at.picture, now_wall_s=1.0)}
        assert {check: str(row.state) for check, row in rows.items()} == {
            "bandwidth.half": "passed", "bandwidth.both": "passed", "bandwidth.latency": "passed",
        }  # fmt: skip
    assert len(cable.started) == 2 * 7  # a server and a client each: four halves, two at once, the latency


async def test_a_slow_cable_is_measured_and_its_remedies_are_in_order(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "slow"
    async with console(cable, tmp_path) as at:
        run = await at.measured()
        assert run.state is RunState.DONE, told(run)
        row = next(row for row in measured(run, at.picture, now_wall_s=1.0) if row.check == "bandwidth.half")
    assert (str(row.state), row.found[:9]) == ("failed", "12.9 Gb/s")
    order = ("Reboot both with the cable in", "Bring both to the same OTA", "Take the power", "Try another cable")
    assert [start for start, remedy in zip(order, row.remedies, strict=True) if remedy.title.startswith(start)] == [
        *order
    ]


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("error-exit-0", "Completion with error at client"),
        ("error", "on spark1: Completion with error at client"),
        ("dead-server", "on spark2: Couldn't allocate MR"),
        ("no-client", "Couldn't connect to 10.0.0.2:18515"),
        ("small", "packets of 9000 bytes from 10.0.0.1 don't reach 10.0.0.2"),
    ],
)
async def test_what_fails_says_why_and_no_figure_is_made_up(cable: Cable, tmp_path: Path, mode: str, why: str) -> None:
    async with console(cable, tmp_path) as at:
        execution = await at.begun()  # the plan's own pings pass; what is wrong comes after
        cable.mode = mode
        async with asyncio.timeout(PATIENCE_S):
            run = await execution.finished()
        assert run.state is RunState.FAILED, told(run)
        first = run.steps[0]
        assert (first.state, first.figures) == (StepState.FAILED, {})
        assert why in first.detail
        assert [row for row in measured(run, at.picture, now_wall_s=1.0) if row.proven_wall_s is not None] == []


async def test_what_went_elsewhere_is_no_rdma(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "elsewhere"
    async with console(cable, tmp_path) as at:
        run = await at.measured()
        row = next(row for row in measured(run, at.picture, now_wall_s=1.0) if row.check == "bandwidth.half")
    assert (str(row.state), "did not go over RDMA" in row.found) == ("failed", True)


async def test_an_abort_ends_server_and_client(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "hang"
    async with console(cable, tmp_path) as at:
        execution = await at.begun()
        await loading(cable)
        execution.abort()
        async with asyncio.timeout(PATIENCE_S):
            run = await execution.finished()
        assert run.state is RunState.ABORTED
        await quiet(cable)


async def test_a_console_that_closes_leaves_nothing(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "hang"
    async with console(cable, tmp_path) as at:
        await at.begun()
        await loading(cable)
    await quiet(cable)


async def test_a_lost_connection_ends_the_program_there_and_its_peer(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "hang"
    async with console(cable, tmp_path) as at:
        execution = await at.begun()
        await loading(cable)
        cable.machines["spark1"].sshd.kill_sessions()
        cable.mode = "no-client"
        async with asyncio.timeout(PATIENCE_S):
            run = await execution.finished()
        assert "nothing was measured" in run.steps[0].detail, told(run)
        await quiet(cable)


async def test_a_program_that_ignores_its_end_is_killed(
    cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.operate.measure.perftest.START_S", 1.0)  # its time is over after 7 s
    cable.mode = "hang"
    async with console(cable, tmp_path) as at:
        execution = await at.begun()
        await loading(cable)
        cable.mode = "no-client"
        async with asyncio.timeout(PATIENCE_S):
            run = await execution.finished()
        assert run.steps[0].state is StepState.FAILED
        assert run.steps[0].detail.endswith("ib_write_bw did not end within 7 s, and was killed"), told(run)
        await quiet(cable)


async def test_a_killed_runner_takes_its_programs_with_it(cable: Cable, tmp_path: Path) -> None:
    cable.mode = "hang"
    async with console(cable, tmp_path) as at:
        execution = await at.begun()
        await loading(cable)
        line = at.lines.line("spark2")
        assert isinstance(line, RunnerLine)
        os.kill(cable.machines["spark2"].outer_pid(line.pid), signal.SIGKILL)
        cable.mode = "no-client"
        async with asyncio.timeout(PATIENCE_S):
            await execution.finished()
        await quiet(cable)
