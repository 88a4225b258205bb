"""What "busy, and doing nothing" looks like on this GPU: the limits that spin, capture and power rules share.

Facts: facts/gb10.md section 0. On GB10 the memory counter reads 0 always and utilisation stops at 96 %, so power is
what tells waiting (13-27 W) from work (31-45 W), and the SM clock tells it from a power-delivery fault (500-850 MHz).
"""

from __future__ import annotations

from sparktop.diagnose.live.window import GpuStretch, gpu_stretch
from sparktop.model.fleet import FleetState, NodeView

BUSY_PERCENT = 90.0
IDLE_PERCENT = 8.0
WORK_W = 30.0
"""On a GB10 of which nothing is learned yet: less than this at full utilisation is no decode."""
PINNED_MHZ = (500.0, 850.0)
PINNED_BELOW_W = 25.0
SHARE_OF_WAY = 0.6
"""How far from loaded idle to decode a reading may stand and still be called idle."""


def low_power_w(node: NodeView) -> float | None:
    """Power below which this GPU, busy, does no work; None where nothing is known of it (another GPU, not learned)."""
    gpu, learned = node.first_gpu, node.baseline
    idle = learned.loaded_idle_power_w if learned else None
    decode = learned.decode_power_w if learned else None
    cap = WORK_W if gpu is not None and gpu.is_gb10 else None
    if idle is not None and decode is not None and decode > idle + 8:
        limit = idle + SHARE_OF_WAY * (decode - idle)
        return min(limit, cap) if cap is not None else limit
    if cap is None:
        return None
    if decode is not None:
        return min(cap, 0.75 * decode)
    return min(cap, idle + 14) if idle is not None else cap


def is_pinned(clock_mhz: float | None) -> bool:
    """Whether an SM clock is in the band of the power-delivery fault."""
    return clock_mhz is not None and PINNED_MHZ[0] <= clock_mhz <= PINNED_MHZ[1]


def spinning(node: NodeView, fleet: FleetState, *, longest_s: float) -> GpuStretch | None:
    """Since when the GPU is busy at the power of idleness, with its clock up; None when it isn't now.

    Where the bandwidth counter is known to move, more than 1 % of it is work.
    """
    gpu, limit_w = node.first_gpu, low_power_w(node)
    if gpu is None:
        return None
    moved = gpu.bandwidth_percent
    if moved is not None and moved > 1:
        return None
    if limit_w is None and moved is None:
        return None
    ceiling_w = limit_w if limit_w is not None else float("inf")

    def is_spin(util: float, power_w: float, clock_mhz: float | None) -> bool:
        return util >= BUSY_PERCENT and power_w < ceiling_w and not is_pinned(clock_mhz)

    return gpu_stretch(node, fleet, is_spin, longest_s=longest_s)


def normal_power(node: NodeView) -> str:
    """What decode takes here, for a sentence."""
    learned = node.baseline.decode_power_w if node.baseline else None
    if learned is not None:
        return f"decode takes {learned:.0f} W on this machine"
    return "decode takes 31-45 W on a GB10" if node.first_gpu and node.first_gpu.is_gb10 else "decode takes more"
