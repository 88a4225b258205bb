"""Checks of the container of an engine over two nodes: its network, the RDMA devices, the memory it may lock."""

from __future__ import annotations

import math
import re

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass

MEMLOCK_BYTES = 1 << 30
"""Less doesn't hold NCCL's registered buffers; Docker's default is 8 MiB."""
FLOWING_BYTES_PER_S = 1e6
"""More than this over the RDMA ports is NCCL's own traffic."""
_INFINIBAND = re.compile(r"/dev(?:/infiniband(?:/[^:]*)?)?/?(?::|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFacts:
    """The network of a rank's container."""

    mode: str | None
    """Docker's network mode; None: not known, or no container."""
    serves: bool = False
    """Whether the engine came up all the same."""


@check("cluster.bridge-network", lint="config.host-network")
def judge_network(facts: NetworkFacts) -> Judgement:
    """Whether the container is on the host's network: on any other its peer can't reach it."""
    if facts.mode is None or facts.mode.startswith("container:"):
        return unknown("another container's network" if facts.mode else "not known")
    if facts.mode == "host":
        return passed()
    is_bridge = facts.mode in ("", "bridge", "default") or facts.mode.endswith("_default")
    judge = warning if facts.serves else failed
    return judge("bridge" if is_bridge else "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaAccessFacts:
    """What a rank's container may do with the node's RDMA devices."""

    is_privileged: bool = False
    """It may open every device, and lock any memory (CAP_IPC_LOCK)."""
    devices: tuple[str, ...] = ()
    """/dev/infiniband, /host/path:/container/path."""
    mounts: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    """memlock=-1, memlock=soft:hard."""
    is_tcp: bool = False
    """Whether NCCL_IB_DISABLE=1 forgoes RDMA."""
    has_rdma: bool | None = None
    """Whether an RDMA port of the node is up; None: not known, as in a file."""
    bytes_per_s: float = 0.0
    """Traffic over the node's RDMA ports."""
    serves: bool = False
    may_lock: bool = False
    """Whether it has IPC_LOCK, which no limit holds for."""

    @property
    def needs_none(self) -> bool:
        """Whether it can do without: there is nothing to open, or it is shown to work."""
        is_flowing = self.bytes_per_s > FLOWING_BYTES_PER_S
        return self.is_privileged or self.is_tcp or self.has_rdma is False or is_flowing


@check("cluster.no-infiniband-device", lint="config.rdma-devices")
def judge_rdma_devices(facts: RdmaAccessFacts) -> Judgement:
    """Whether the container may open /dev/infiniband; without it NCCL takes TCP and says nothing."""
    if facts.needs_none or any(_INFINIBAND.match(device) for device in (*facts.devices, *facts.mounts)):
        return passed()
    return warning()


@check("cluster.memlock", lint="config.memlock")
def judge_memlock(facts: RdmaAccessFacts) -> Judgement:
    """Whether the container may lock the memory that RDMA registers."""
    limit = next((text.partition("=")[2] for text in facts.ulimits if text.startswith("memlock")), None)
    soft = (limit or "").partition(":")[0]
    if facts.needs_none or facts.serves or facts.may_lock:
        return passed()
    if limit is not None and not re.fullmatch(r"-?\d+", soft):
        return unknown(f"memlock={limit}")
    limit_bytes = 0.0 if limit is None else math.inf if int(soft) < 0 else float(soft)
    return passed() if limit_bytes >= MEMLOCK_BYTES else warning()
