"""What measure-link plans, and where it is refused: while anything works, or may, and without a link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.bringup_support import PING, view
from tests.pictures_support import engine, gib, gpu, picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric
from tests.unit.operate.machine.machine_support import ids, planned, refused

from sparktop.model.engine import EngineMetrics, EngineState
from sparktop.model.fleet import NodeView
from sparktop.model.request import Request
from sparktop.model.telemetry import GpuProcess, GpuReading
from sparktop.operate.measure import link
from sparktop.operate.measure.busy import busy_reason
from sparktop.operate.measure.link_load import MeasureLink
from sparktop.operate.step.plan import Plan

REQUEST = Request(action="measure-link", nodes=("spark1", "spark2"))
TOOLS = "/usr/bin/ib_write_bw\n/usr/bin/ib_write_lat\n"
THERE = {"which": TOOLS, "ping": PING}


def idle(name: str = "spark1", **more: Any) -> NodeView:
    """A Spark whose GPU does nothing."""
    reading = GpuReading(boot_s=1.0, gpus=(gpu(util=0.0, processes=()),))
    return view(name, **{"gpu": reading, **more})


def test_each_half_is_loaded_both_ways_then_both_then_the_latency() -> None:
    plan = planned(link, REQUEST, picture(idle(), idle("spark2")), outputs=THERE)
    compare_plan("measure-link", plan)
    assert ids(plan) == [
        "half-0@spark1", "half-1@spark1", "half-0@spark2", "half-1@spark2", "both@spark1", "latency@spark1",
    ]  # fmt: skip
    assert isinstance(plan, Plan)
    acts = [step.act for step in plan.steps]
    assert all(isinstance(act, MeasureLink) for act in acts)
    back = acts[2]
    assert isinstance(back, MeasureLink)
    (half,) = back.halves
    assert (half.ip, half.peer_ip, back.peer) == ("10.0.0.2", "10.0.0.1", "spark1")


def test_the_gid_is_the_one_that_was_read() -> None:
    """It moves when addresses change: each end has its own."""
    made = fabric(2)
    moved = tuple(replace(port, roce_v2_gids=((5, "10.0.0.2"), (7, "10.0.1.2"))) for port in made.rdma_ports)
    second = idle("spark2", network=replace(made, rdma_ports=moved))
    plan = planned(link, REQUEST, picture(idle(), second), outputs=THERE)
    assert isinstance(plan, Plan)
    act = plan.steps[0].act
    assert isinstance(act, MeasureLink)
    assert (act.halves[0].gid_index, act.halves[0].peer_gid_index) == (3, 5)


def busy(**more: Any) -> NodeView:
    return idle(engines=(engine("vllm-a", **more),))


def gpu_of(*processes: GpuProcess, utilisation: float | None = 0.0) -> NodeView:
    reading = GpuReading(boot_s=1.0, gpus=(gpu(processes=processes, utilisation_percent=utilisation),))
    return idle(gpu=reading)


@over(
    "first, reason",
    [
        (busy(running=3.0, waiting=1.0), "vllm-a on spark1 holds 4 requests"),
        (busy(has_metrics=False), "whether vllm-a on spark1 holds requests is not known"),
        (busy(metrics=EngineMetrics(wall_s=1.0)), "whether vllm-a on spark1 holds requests is not known"),
        (busy(state=EngineState.LOADING), "vllm-a on spark1 is loading"),
        (idle(has_looked_for_engines=False), "the engines of spark1 are not known yet"),
        (gpu_of(GpuProcess(pid=7, name="python3", used_bytes=gib(2))), "python3 (pid 7) holds 2.0 GiB of the GPU"),
        (gpu_of(GpuProcess(pid=7, name="python3", used_bytes=None)), "python3 (pid 7) holds memory of the GPU"),
        (gpu_of(utilisation=40.0), "the GPU of spark1 is 40 % busy"),
        (gpu_of(utilisation=None), "its utilisation was not read"),
        (idle(gpu=None), "its processes were not read"),
    ],
)
def test_work_and_what_may_be_work_refuse_it(first: NodeView, reason: str) -> None:
    assert reason in refused(planned(link, REQUEST, picture(first, idle("spark2")), outputs=THERE))


def test_an_idle_engine_is_in_the_way_of_a_loaded_gpu_alone() -> None:
    node = busy(running=0.0)
    assert busy_reason(node, "spark1") == ""
    assert "vllm-a is loaded on spark1" in busy_reason(node, "spark1", loads_gpu=True)
    small = GpuProcess(pid=7, name="Xorg", used_bytes=gib(1), kind="G"), GpuProcess(pid=8, name="x", used_bytes=1 << 20)
    assert busy_reason(gpu_of(*small), "spark1", loads_gpu=True) == ""


@over(
    "nodes, second, outputs, reason",
    [
        (("spark1",), idle("spark2"), THERE, "two ends"),
        (("spark1", "spark2"), idle("spark2"), {"which": "/usr/bin/ib_write_bw\n", "ping": PING}, "no ib_write_lat"),
        (("spark1", "spark2"), idle("spark2"), {"ping": PING}, "has no ib_write_bw"),
        (("spark1", "spark2"), idle("spark2", network=replace(fabric(2), rdma_ports=())), THERE, "without RDMA"),
        (("spark1", "spark2"), idle("spark2", network=fabric(2, up=False)), THERE, "without RDMA"),
        (
            ("spark1", "spark2"),
            idle("spark2"),
            {"which": TOOLS, "ping": PING.replace(" 0%", " 100%")},
            "does not reach",
        ),
    ],
)
def test_what_can_t_be_measured_is_refused(
    nodes: tuple[str, ...], second: NodeView, outputs: dict[str, str], reason: str
) -> None:
    request = Request(action="measure-link", nodes=nodes)
    assert reason in refused(planned(link, request, picture(idle(), second), outputs=outputs))


def test_a_device_without_its_gid_is_named() -> None:
    made = fabric(2)
    bare = tuple(replace(port, roce_v2_gids=((1, "10.9.9.9"),)) for port in made.rdma_ports)
    plan = planned(
        link, REQUEST, picture(idle(), idle("spark2", network=replace(made, rdma_ports=bare))), outputs=THERE
    )
    assert "has no RoCE v2 entry for 10.0.0.2" in refused(plan)
