"""Checks of the cable between two nodes: is it up, how fast, and with one MTU at both ends."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning

_PLAYBOOKS = ("NVIDIA/dgx-spark-playbooks connect-two-sparks",)

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


@check(
    "cluster.link-down",
    "An engine runs over a link that is down",
    scope="one engine over two nodes, vLLM or SGLang",
    sources=_PLAYBOOKS,
    gate="link",
)
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


@check(
    "cluster.link-slow",
    "The cable runs below 200 Gb/s",
    scope="two DGX Sparks joined by cable",
    sources=_PLAYBOOKS,
    gate="rate",
    bring_up="rdma.rate",
)
def judge_rate(facts: RateFacts) -> Judgement:
    """Whether the port trained at its full rate."""
    if facts.gbps is None:
        return unknown("it doesn't tell its rate")
    is_full = facts.is_spark is False or facts.gbps >= FULL_GBPS * _TOLERANCE
    return passed() if is_full else warning()


@check(
    "cluster.mtu-differs",
    "The MTU differs at the ends of the cable",
    scope="two nodes joined by cable or engine",
    sources=_PLAYBOOKS,
    gate="mtu",
    bring_up="addresses.mtu",
)
def judge_mtu(sizes: tuple[int | None, int | None]) -> Judgement:
    """Whether both ends send packets of one size, by their MTUs in bytes; None: not known."""
    first, second = sizes
    if first is None or second is None:
        return unknown("an interface doesn't report its MTU")
    return passed() if first == second else warning()
