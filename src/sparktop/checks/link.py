"""Checks of the cable between two nodes: is it up, with one MTU at both ends, and what it was measured at.

A fabric can pass every status check and be slow (docs/facts/bringup.md section 0): measurements are judged here too,
and a case says which of the look-alikes of section 8 it is.
"""

from __future__ import annotations

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass

FULL_GBPS = 200.0
"""A linked ConnectX-7 port of a Spark (docs/facts/gb10.md section 5)."""
_TOLERANCE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """One end of the link between two nodes."""

    carrier: bool | None = None
    """Of the interface with the address; None: not known."""
    has_rdma: bool = False
    """Whether an RDMA port that is used, or could be, is up."""
    needs_rdma: bool = True
    """Whether the engine or its recipe relies on RDMA."""
    is_same_network: bool = True
    """Whether both ends have addresses in one network."""


@check("cluster.link-down", gate="link")
def judge_link(facts: LinkFacts) -> Judgement:
    """Whether the link is up, with RDMA where that is needed."""
    if facts.carrier is False:
        return failed("no-carrier")
    if facts.needs_rdma and not facts.has_rdma:
        return failed("no-rdma")
    return passed() if facts.is_same_network else warning("no-network")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFacts:
    """The rate of one end."""

    gbps: float | None
    is_spark: bool | None = None
    """Whether the machine is a DGX Spark; None: not known, so it is taken for one."""


@check("cluster.link-slow", gate="rate", bring_up="rdma.rate")
def judge_rate(facts: RateFacts) -> Judgement:
    """Whether the port trained at its full rate."""
    if facts.gbps is None:
        return unknown("it doesn't tell its rate")
    is_full = facts.is_spark is False or facts.gbps >= FULL_GBPS * _TOLERANCE
    return passed() if is_full else warning("below")


@check("cluster.mtu-differs", gate="mtu", bring_up="addresses.mtu")
def judge_mtu(sizes: tuple[int | None, int | None]) -> Judgement:
    """Whether both ends send packets of one size, by their MTUs in bytes; None: not known."""
    first, second = sizes
    if first is None or second is None:
        return unknown("an interface doesn't report its MTU")
    return passed() if first == second else warning()


# --- measured

HALF_FAIL_GBPS = 50.0
HALF_WARN_GBPS = 95.0
HALF_HEALTHY_GBPS = (109.0, 112.0)
"""One PCIe half by `ib_write_bw`: capetron/gb10-cluster-check fails it below 50 and warns below 95; the fault moves 12
to 16."""
BOTH_FAIL_GBPS = 2 * HALF_FAIL_GBPS
BOTH_WARN_GBPS = 184.0
"""NVIDIA Sync's floor for a link (docs/facts/bringup.md section 1)."""
BOTH_HEALTHY_GBPS = (189.0, 197.0)
"""Both halves of one cable at once: 189.85 by NVIDIA's playbook, 196.03 to 196.08 by three others."""
LATENCY_WARN_US = 10.0
"""sparkrun warns above it; 1.42 to 1.47 µs are healthy."""
LATENCY_HEALTHY_US = (1.4, 1.6)
SMALL_BYTES = 64
"""Up to so many bytes a message's time is the link's latency, not its bandwidth."""
JUMBO_PATH_MTU = 4096
"""The path MTU of RDMA where both interfaces have 9000."""
WITNESS_PERCENT = 90.0
"""Of the bytes that a program reports, how much the ports' own counters must have counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthFacts:
    """One run of `ib_write_bw` over one half, or over several at once."""

    gbps: float | None
    """The sum, where there are several."""
    halves: int = 1
    mtu_bytes: int | None = None
    """The path MTU; None: it wasn't printed."""
    counted_percent: float | None = None
    """Of the bytes that the program reports, what the RDMA ports' counters have counted; None: they were not read."""
    problem: str = ""
    """Why there is no figure."""


@check("bandwidth.slow", is_rule=False, bring_up="bandwidth.half")
def judge_bandwidth(facts: BandwidthFacts) -> Judgement:
    """Whether RDMA moves what the halves can; the counters of the ports bear witness that it was RDMA."""
    if facts.gbps is None:
        return unknown(facts.problem or "it was not measured")
    if facts.counted_percent is not None and facts.counted_percent < WITNESS_PERCENT:
        return failed("elsewhere", gbps=facts.gbps)
    is_half = facts.halves < 2
    fail, warn = (HALF_FAIL_GBPS, HALF_WARN_GBPS) if is_half else (BOTH_FAIL_GBPS, BOTH_WARN_GBPS)
    if facts.gbps < fail:
        return failed("fault", gbps=facts.gbps)
    if facts.gbps >= warn:
        return passed("unwitnessed" if facts.counted_percent is None else "", gbps=facts.gbps)
    is_small = facts.mtu_bytes is not None and facts.mtu_bytes < JUMBO_PATH_MTU
    return warning("small-packets" if is_small else "low", gbps=facts.gbps)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFacts:
    """One run of `ib_write_lat`."""

    typical_us: float | None
    message_bytes: int = 2
    problem: str = ""


@check("bandwidth.latency", is_rule=False, bring_up="bandwidth.latency")
def judge_latency(facts: LatencyFacts) -> Judgement:
    """Whether a small message takes microseconds; of a large one nothing is claimed."""
    if facts.typical_us is None:
        return unknown(facts.problem or "it was not measured")
    if facts.message_bytes > SMALL_BYTES:
        return unknown(f"messages of {facts.message_bytes} bytes tell no latency", case="large")
    return warning(typical_us=facts.typical_us) if facts.typical_us > LATENCY_WARN_US else passed()


COLLECTIVE_GATE_GBPS = 180.0
COLLECTIVE_HEALTHY_GBPS = (187.0, 196.0)
"""All-reduce of 1 GiB over two nodes, evanwtf/local-llm: 187 with one cable, 196 with two."""
COLLECTIVE_FAULT_GBPS = 64.0
"""unslothai/unsloth calls 8 GB/s degraded."""
CHURNED_RTT_MS = 0.97
"""A direct cable answers in 0.28 ms; after NetworkManager's changes in 1.016 ms (evanwtf/local-llm). A switch takes
0.73 to 0.95 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFacts:
    """An all-reduce of 1 GiB over two nodes, inside a serving image, and what else was measured of the pair."""

    gbps: float | None
    transport: str = ""
    """By NCCL's own line: "IB", "Socket"; empty: it printed none."""
    counted_percent: float | None = None
    """Of the bytes that each node had to send for it, what its RDMA ports have counted; None: not read."""
    rdma_gbps: float | None = None
    """Both halves by `ib_write_bw` just before; None: not measured."""
    rtt_ms: float | None = None
    """Of a ping over the cable; None: not read."""
    problem: str = ""


@check("collective.slow", is_rule=False, bring_up="collective.all-reduce")
def judge_collective(facts: CollectiveFacts) -> Judgement:
    """Whether NCCL gets the cable's bandwidth, over RDMA; where it doesn't, what separates the causes."""
    if facts.gbps is None:
        return unknown(facts.problem or "it was not measured")
    if facts.transport == "Socket":
        return failed("socket", gbps=facts.gbps)
    if facts.counted_percent is not None and facts.counted_percent < WITNESS_PERCENT:
        return failed("elsewhere", gbps=facts.gbps)
    if facts.gbps >= COLLECTIVE_GATE_GBPS:
        has_witness = facts.transport == "IB" and facts.counted_percent is not None
        return passed("" if has_witness else "unwitnessed", gbps=facts.gbps)
    case = _slow_collective(facts)
    return failed(case, gbps=facts.gbps) if facts.gbps < COLLECTIVE_FAULT_GBPS else warning(case, gbps=facts.gbps)


def _slow_collective(facts: CollectiveFacts) -> str:
    if facts.rdma_gbps is None:
        return "unseparated"
    if facts.rdma_gbps < BOTH_WARN_GBPS:
        return "cable"
    if facts.rtt_ms is not None and facts.rtt_ms >= CHURNED_RTT_MS:
        return "churned"
    return "gpu"
