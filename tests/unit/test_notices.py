"""The first lines of the console: plain facts, worst first."""

from __future__ import annotations

from dataclasses import replace

from sparktop.model.engine import Container, Engine, EngineKind, EngineMetrics, EngineRates, EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.fleet import Link, LinkState, NodeView, Reach, Trend
from sparktop.model.telemetry import Collector, CollectorState, Gpu, GpuReading, HostFacts, Memory, Sample
from sparktop.observe.notices import notices

GIB = 1024**3


def node(name: str = "spark1", available_gib: float = 50.0, state: LinkState = LinkState.LIVE) -> NodeView:
    memory = Memory(total_bytes=122 * GIB, available_bytes=int(available_gib * GIB), free_bytes=0)
    sample = Sample(sequence=1, boot_s=5000.0, wall_s=1.0, interval_s=1.0, memory=memory)
    return NodeView(name=name, link=Link(state=state, reason="no answer to TCP"), sample=sample)


def said(*nodes: NodeView, **fingerprints: str) -> list[str]:
    return [f"{notice.severity}: {notice.text}" for notice in notices(nodes, fingerprints=fingerprints)]


def test_a_healthy_pair_has_nothing_to_say() -> None:
    assert said(node("a"), node("b")) == []


def test_a_fall_says_when_it_ends() -> None:
    falling = replace(node(available_gib=20.0), trend=Trend(bytes_per_s=-6.1e9, time_to_empty_s=7.4))
    assert said(falling) == ["critical: 20.0 GiB available, falling 6.1 GB/s: empty in 0:07"]


def test_low_memory_is_named_without_a_fall() -> None:
    assert said(node(available_gib=0.4)) == ["critical: only 0.4 GiB available"]


def test_a_lost_node_keeps_its_trajectory() -> None:
    lost = replace(node(available_gib=0.4, state=LinkState.LOST), trend=Trend(bytes_per_s=-5.5e9, time_to_empty_s=0.1))
    (text,) = said(lost)
    assert text == "critical: lost: no answer to TCP · last seen with 0.4 GiB available, falling 5.5 GB/s"
    starved = replace(lost, link=Link(state=LinkState.STALE, reach=Reach.STARVED, reason="TCP answers, SSH doesn't"))
    (text,) = said(starved)
    assert text.startswith("critical: host up but starved, last seen with 0.4 GiB available, falling 5.5 GB/s · TCP")


def test_recent_critical_kernel_events_are_told_and_old_ones_are_not() -> None:
    event = KernelEvent(
        kind="xid", severity=Severity.CRITICAL, title="Xid 79  GPU has fallen off the bus", text="...", code=79,
        last_boot_s=4990.0,
    )  # fmt: skip
    assert "Xid 79" in said(replace(node(), kernel_events=(event,)))[0]
    assert said(replace(node(), kernel_events=(replace(event, last_boot_s=10.0),))) == []
    assert said(replace(node(), kernel_events=(replace(event, severity=Severity.WARNING),))) == []


def test_a_stuck_collector_is_told() -> None:
    stuck = Collector(name="nvml", state=CollectorState.STUCK, detail="no answer for 12 s")
    assert said(replace(node(), collectors={"nvml": stuck})) == ["warning: nvml is stuck: no answer for 12 s"]


def test_held_requests_without_a_token_are_told_with_the_power_drawn() -> None:
    engine = Engine(
        key="e", kind=EngineKind.VLLM, name="minimax", state=EngineState.SERVING,
        metrics=EngineMetrics(wall_s=1.0, running=3.0), rates=EngineRates(progress_age_s=42.0),
    )  # fmt: skip
    gpu = GpuReading(boot_s=1.0, gpus=(Gpu(name="NVIDIA GB10", utilisation_percent=96, power_w=15.2),))
    (text,) = said(replace(node(), engines=(engine,), gpu=gpu))
    assert text == "warning: minimax: 3 requests held and no token for 42 s, SM 96 % at 15 W"
    moving = replace(engine, rates=EngineRates(progress_age_s=2.0))
    idle = replace(engine, metrics=EngineMetrics(wall_s=1.0, running=0.0))
    assert said(replace(node(), engines=(moving, idle), gpu=gpu)) == []


def test_an_engine_that_ended_badly_is_told_for_a_while() -> None:
    box = Container(container_id="c" * 64, name="vllm", image="i", status="exited", exit_code=137)
    engine = Engine(
        key="c", kind=EngineKind.VLLM, name="vllm", state=EngineState.EXITED, container=box,
        exit_detail="137: killed", exited_wall_s=0.5,
    )  # fmt: skip
    assert said(replace(node(), engines=(engine,))) == ["warning: vllm has exited: 137: killed"]
    clean = replace(engine, container=replace(box, exit_code=0))
    old = replace(engine, exited_wall_s=-5000.0)
    assert said(replace(node(), engines=(clean, old))) == []


def test_twins_are_warned_of() -> None:
    one = replace(node("a"), facts=HostFacts(hostname="a", boot_id="1", machine_id_digest="m"))
    other = replace(node("b"), facts=HostFacts(hostname="b", boot_id="2", machine_id_digest="m"))
    assert "same SSH host key" in said(one, other, a="SHA256:x", b="SHA256:x")[0]
    assert "same machine id" in said(one, other, a="SHA256:x", b="SHA256:y")[0]
    same = replace(other, facts=HostFacts(hostname="b", boot_id="1", machine_id_digest="m"))
    assert "one machine" in said(one, same, a="SHA256:x", b="SHA256:x")[0]


def test_the_worst_comes_first() -> None:
    stuck = Collector(name="nvml", state=CollectorState.STUCK, detail="x")
    told = said(replace(node("a"), collectors={"nvml": stuck}), node("b", available_gib=0.1))
    assert [text.split(":")[0] for text in told] == ["critical", "warning"]
