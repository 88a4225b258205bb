"""Rules on the power wedge and on heat, and how to recognise a GPU that is busy without working.

Facts: docs/facts/gb10.md section 0. On GB10 the memory counter always reads 0 and utilisation stops at 96 %, so power
tells waiting (13-27 W) from work (31-45 W), and the SM clock tells waiting from a power-delivery fault (500-850 MHz).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import GpuStretch, gpu_stretch, of_engine, seen
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView, is_current
from sparktop.text.units import span

BUSY_PERCENT = 90.0
IDLE_PERCENT = 8.0
WORK_W = 30.0
"""On a GB10 without a learned baseline: less power than this at full utilisation is no decode."""
PINNED_MHZ = (500.0, 850.0)
PINNED_BELOW_W = 25.0
IDLE_SHARE = 0.6
"""How far from loaded idle towards decode power a reading still counts as idle."""


def low_power_w(node: NodeView) -> float | None:
    """Power below which a busy GPU does no work; None if unknown (another GPU without a learned baseline)."""
    gpu, learned = node.first_gpu, node.baseline
    idle = learned.loaded_idle_power_w if learned else None
    decode = learned.decode_power_w if learned else None
    cap = WORK_W if gpu is not None and gpu.is_gb10 else None
    if idle is not None and decode is not None and decode > idle + 8:
        limit = idle + IDLE_SHARE * (decode - idle)
        return min(limit, cap) if cap is not None else limit
    if cap is None:
        return None
    if decode is not None:
        return min(cap, 0.75 * decode)
    return min(cap, idle + 14) if idle is not None else cap


HEAT_CAP_MHZ = 1400
"""A guess: below most clocks that heat leaves a Spark's GPU, so that it cools. Lower where it leaves less."""


def is_pinned(clock_mhz: float | None) -> bool:
    """Whether an SM clock is in the band of the power-delivery fault."""
    return clock_mhz is not None and PINNED_MHZ[0] <= clock_mhz <= PINNED_MHZ[1]


def spinning(node: NodeView, fleet: FleetState, *, longest_s: float) -> GpuStretch | None:
    """The stretch in which the GPU has been busy at idle power with its clock up; None if it isn't now.

    Where the bandwidth counter works, more than 1 % of it means work.
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
    """The power of decode on this machine, as a clause for a sentence."""
    learned = node.baseline.decode_power_w if node.baseline else None
    if learned is not None:
        return f"decode takes {learned:.0f} W on this machine"
    return "decode takes 31-45 W on a GB10" if node.first_gpu and node.first_gpu.is_gb10 else "decode takes more"


WEDGE_SUSPECTED_S = 10.0
WEDGE_CONFIRMED_S = 20.0
_HOT = ("software thermal", "hardware thermal")


@live_rule("gpu.power-wedge", clear_s=4.0)
def power_wedge(fleet: FleetState) -> Iterable[Finding]:
    """gpu.power-wedge: the SM clock is pinned to a fraction without a reason given.

    Suspected after 10 s of full use at low power and a clock of 500-850 MHz, confirmed after 20 s if the driver's
    throttle reasons can be read and name none.
    """
    for node in fleet.nodes:
        gpu = node.first_gpu
        if not is_current(node) or gpu is None or gpu.throttle_reasons:
            continue

        def is_wedged(util: float, power_w: float, clock_mhz: float | None) -> bool:
            return util >= BUSY_PERCENT and power_w < PINNED_BELOW_W and is_pinned(clock_mhz)

        stretch = gpu_stretch(node, fleet, is_wedged, longest_s=300.0)
        if stretch is None or stretch.seconds < WEDGE_SUSPECTED_S or stretch.clock_mhz is None:
            continue
        is_sure = stretch.seconds >= WEDGE_CONFIRMED_S and gpu.throttle_reasons is not None
        yield found(
            "gpu.power-wedge",
            "pinned",
            {
                "node": node.name,
                "mhz": stretch.clock_mhz,
                "top_mhz": gpu.sm_clock_max_mhz,
                "span": span(stretch.seconds),
                "util_percent": stretch.util_percent,
                "power_w": stretch.power_w,
                "normal_power": normal_power(node),
                "celsius": gpu.temperature_c,
                "confirmed_s": WEDGE_CONFIRMED_S,
            },
            confidence=Confidence.CONFIRMED if is_sure else Confidence.SUSPECTED,
            evidence=(
                seen(
                    node,
                    "GPU",
                    f"SM {stretch.util_percent:.0f} %, {stretch.power_w:.1f} W, {stretch.clock_mhz:.0f} MHz "
                    f"for {span(stretch.seconds)}, throttle mask {'0' if gpu.throttle_reasons == () else 'unknown'}",
                ),
                *_tokens(node),
            ),
            nodes=(node.name,),
        )


@live_rule("gpu.thermal", hold_s=10.0, clear_s=15.0)
def thermal(fleet: FleetState) -> Iterable[Finding]:
    """gpu.thermal: the GPU is slowed down by its temperature."""
    for node in fleet.nodes:
        gpu = node.first_gpu
        if not is_current(node) or gpu is None:
            continue
        hot = [reason for reason in gpu.throttle_reasons or () if reason in _HOT]
        if not hot:
            continue
        heat = f"{gpu.temperature_c} °C" if gpu.temperature_c is not None else "unknown temperature"
        clock = f"{gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz is not None else "a lower clock"
        power = f", {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        yield found(
            "gpu.thermal",
            "throttled",
            {
                "node": node.name,
                "reasons": tuple(hot),
                "heat": heat,
                "clock": clock,
                "cap_mhz": _cap_mhz(gpu.sm_clock_mhz),
                "bits": ", ".join(hot),
            },
            evidence=(
                seen(node, "GPU", f"throttle reasons: {', '.join(gpu.throttle_reasons or ())}; {heat}, {clock}{power}"),
            ),
            nodes=(node.name,),
        )


def _cap_mhz(clock_mhz: float | None) -> int:
    """A cap below what the heat leaves: one above it would change nothing. It stays while the clock wavers."""
    return min(HEAT_CAP_MHZ, int(clock_mhz * 0.9) // 100 * 100) if clock_mhz is not None else HEAT_CAP_MHZ


def _tokens(node: NodeView) -> Iterable[Evidence]:
    for engine in node.engines:
        speed = engine.rates.generation_tokens_per_s if engine.rates else None
        if is_alive(engine) and speed:
            text = f"{speed:.1f} tok/s generated: it works, slowly"
            yield of_engine(
                engine, node, text, part="metrics", wall_s=engine.metrics.wall_s if engine.metrics else None
            )
