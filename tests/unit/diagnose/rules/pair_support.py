"""Two Sparks joined by a cable with one engine over both, healthy until a keyword spoils it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import BOOT_S, WALL_S, container, engine, facts, gib, idle_node, node, picture, rules_on

from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.model.engine import Container, Engine, EngineState
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Interface, NetworkReading, RdmaPort

RULES = rules_on("cluster")
ENV = (
    "NCCL_SOCKET_IFNAME=enp1s0f0np0", "GLOO_SOCKET_IFNAME=enp1s0f0np0", "NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0",
    "NCCL_IB_DISABLE=0", "VLLM_NVFP4_GEMM_BACKEND=marlin", "HF_TOKEN=<masked>",
)  # fmt: skip
SERVE = (
    "vllm", "serve", "/models/Big-NVFP4", "--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "10.0.0.1",
    "--kv-cache-dtype", "fp8_e4m3",
)  # fmt: skip


def fabric(number: int, *, gid: int = 3, mtu: int = 9000, rate: float = 200.0, up: bool = True) -> NetworkReading:
    """A Spark's network: one cabled port with its two devices, an empty port, and the office."""
    state = "ACTIVE" if up else "DOWN"
    return NetworkReading(
        boot_s=BOOT_S,
        interfaces=(
            Interface(name="enp1s0f0np0", is_up=up, mtu=mtu, speed_mbps=200_000, addresses=(f"10.0.0.{number}/24",)),
            Interface(name="enP2p1s0f0np0", is_up=up, mtu=mtu, speed_mbps=200_000, addresses=(f"10.0.1.{number}/24",)),
            Interface(name="enp1s0f1np1", is_up=False, mtu=1500),
            Interface(
                name="enP7s7", is_up=True, mtu=1500, speed_mbps=10_000, addresses=(f"192.168.20.{20 + number}/24",)
            ),
            Interface(name="wlP9s9", is_up=False, mtu=1500),
        ),
        rdma_ports=(
            RdmaPort(
                device="rocep1s0f0",
                interface="enp1s0f0np0",
                state=state,
                rate_gbps=rate,
                roce_v2_gids=((gid, f"10.0.0.{number}"),),
            ),
            RdmaPort(device="rocep1s0f1", interface="enp1s0f1np1", state="DOWN", rate_gbps=40.0),
            RdmaPort(
                device="roceP2p1s0f0",
                interface="enP2p1s0f0np0",
                state=state,
                rate_gbps=rate,
                roce_v2_gids=((gid, f"10.0.1.{number}"),),
            ),
        ),
    )


def ring(number: int, count: int) -> NetworkReading:
    """A Spark's network in a ring: port 0 leads to the next, port 1 to the one before, each in a network of its own."""
    before = (number - 2) % count + 1
    cables = [("enp1s0f0np0", "rocep1s0f0", f"10.0.{number}.1"), ("enp1s0f1np1", "rocep1s0f1", f"10.0.{before}.2")]
    return NetworkReading(
        boot_s=BOOT_S,
        interfaces=(
            *(Interface(name=name, is_up=True, mtu=9000, addresses=(f"{ip}/24",)) for name, _, ip in cables),
            *(one for one in fabric(number).interfaces if one.name == "enP7s7"),
        ),
        rdma_ports=tuple(
            RdmaPort(device=device, interface=name, state="ACTIVE", rate_gbps=200.0, roce_v2_gids=((3, ip),))
            for name, device, ip in cables
        ),
    )


def box(rank: int, **more: Any) -> Container:
    made = container(
        f"big-rank{rank}",
        image="vllm-node:latest",
        argv=(*SERVE, "--node-rank", str(rank), *(["--headless"] if rank else [])),
        environment=ENV,
        ipc_mode="host",
        is_privileged=True,
        ulimits=("memlock=-1:-1",),
        restart_policy="no",
    )
    return replace(made, **more)


def rank(number: int, *, held: Container | None = None, **more: Any) -> Engine:
    """Rank 0 serves two requests; rank 1 has no endpoint and no figures."""
    made = held or box(number)
    options: dict[str, Any] = {
        "container": made,
        "argv": made.argv,
        "environment": made.environment,
        "model": "/models/Big-NVFP4",
        "pids": (500 + number, 600 + number),
        "gpu_bytes": gib(90),
    }
    if number:
        options |= {"endpoint": None, "metrics": None, "rates": None, "state": EngineState.UNKNOWN}
    return engine(made.name, **{**options, **more})


def spark(number: int, **more: Any) -> NodeView:
    """The node of that rank, counted from 1 as its addresses are."""
    name = f"spark{number}"
    options: dict[str, Any] = {
        "engines": (rank(number - 1),),
        "network": fabric(number),
        "rdma_bytes_per_s": 812e6,
        "available_gib": 16.0,
        **more,
    }
    return node(name, **options)


def bare(number: int, **more: Any) -> NodeView:
    """The node with no engine."""
    return idle_node(f"spark{number}", **{"network": fabric(number), **more})


def loading(number: int, *, uptime_s: float = 120.0, **more: Any) -> Engine:
    """A rank on its way up."""
    return rank(number, state=EngineState.LOADING, metrics=None, rates=None, uptime_s=uptime_s, **more)


def dead(number: int, *, ago_s: float = 30.0, **more: Any) -> Engine:
    """A rank that ended, as Docker tells of it."""
    options: dict[str, Any] = {
        "state": EngineState.EXITED, "pids": (), "metrics": None, "rates": None, "endpoint": None, "uptime_s": None,
        "gpu_bytes": None, "exited_wall_s": WALL_S - ago_s, "exit_detail": "exit code 137: killed", "log": None,
        "environment": (),
    }  # fmt: skip
    return rank(number, **{**options, **more})


def found(fleet: FleetState) -> dict[str, Finding]:
    """What the rules of this area claim of a picture, held or not."""
    claims = [claim for rule in RULES for claim in rule.check(fleet)]
    assert len({claim.key for claim in claims}) == len(claims)
    return {claim.rule.removeprefix("cluster."): claim for claim in claims}


def shown(*fleets: FleetState) -> list[str]:
    """The rules whose findings are shown after these pictures."""
    diagnosis = Diagnosis(RULES)
    findings: tuple[Finding, ...] = ()
    for fleet in fleets:
        findings = diagnosis.update(fleet)
    return [one.rule for one in findings]


__all__ = ["RULES", "bare", "box", "dead", "fabric", "facts", "found", "loading", "picture", "rank", "shown", "spark"]
