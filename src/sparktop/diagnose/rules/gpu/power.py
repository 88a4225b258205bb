"""Rules on the power wedge and on heat, and how to recognise a GPU that is busy without working.

Facts: docs/facts/gb10.md section 0. On GB10 the memory counter always reads 0 and utilisation stops at 96 %, so power
tells waiting (13-27 W) from work (31-45 W), and the SM clock tells waiting from a power-delivery fault (500-850 MHz).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import GpuStretch, gpu_stretch, of_engine, seen
from sparktop.engines.ranks import is_alive
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
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
_WEDGE_SOURCES = (
    "Blackwellboy/model-serving-minefield (trap 124: 42.7 tok/s at 19.5 W and 799 MHz)",
    "DoctorMasterNewb/sparkbase",
)
_HEAT_SOURCES = ("DoctorMasterNewb/sparkbase", "NVIDIA Management Library: clocks event reasons")


@live_rule(
    "gpu.power-wedge",
    "The GPU is stuck at 500-850 MHz under full load, with no throttle reason",
    Severity.CRITICAL,
    scope="GB10 (DGX Spark and its makers' variants)",
    sources=_WEDGE_SOURCES,
    clear_s=4.0,
)
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
        sure = stretch.seconds >= WEDGE_CONFIRMED_S and gpu.throttle_reasons is not None
        top = f" of {gpu.sm_clock_max_mhz}" if gpu.sm_clock_max_mhz else ""
        yield Finding(
            rule="gpu.power-wedge",
            severity=Severity.CRITICAL,
            confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
            title=f"{node.name}'s GPU is stuck at {stretch.clock_mhz:.0f} MHz: its power controller hangs",
            explanation=(
                f"For {span(stretch.seconds)} the GPU was {stretch.util_percent:.0f} % busy at {stretch.power_w:.0f} "
                f"W. Its SM clock stayed at {stretch.clock_mhz:.0f}{top} MHz, with no throttle reason set; "
                f"{normal_power(node)}, at some 2400 MHz. The USB-C power controller limits it: it still works, at "
                "about half its speed. Neither a reboot nor `nvidia-smi -lgc` resets that controller. Only "
                "unplugging the supply from the wall does."
            ),
            distinction=(
                "Not a deadlock: when ranks wait for each other, the GPU's clock is near 2.4 GHz.",
                "Not heat: no thermal bit is set"
                + (f", and it has {gpu.temperature_c} °C." if gpu.temperature_c is not None else "."),
            ),
            settles=""
            if sure
            else f"Confirmed after {WEDGE_CONFIRMED_S:.0f} s, with throttle reasons readable and empty.",
            evidence=(
                seen(
                    node,
                    "GPU",
                    f"SM {stretch.util_percent:.0f} %, {stretch.power_w:.1f} W, {stretch.clock_mhz:.0f} MHz "
                    f"for {span(stretch.seconds)}, throttle mask {'0' if gpu.throttle_reasons == () else 'unknown'}",
                ),
                *_tokens(node),
            ),
            remedies=(
                Remedy(
                    title="Shut down, unplug the supply from the wall and from the unit for 60 s, start again",
                    steps=(
                        "sudo shutdown -h now",
                        "unplug the power brick at both ends; 60 s at least, 5 min to be sure",
                        "plug it in, start, and check the SM clock under load",
                    ),
                    cost="somebody on site; everything running on it",
                ),
                Remedy(
                    title="Then update the firmware",
                    steps=("sudo fwupdmgr refresh --force && sudo fwupdmgr update",),
                    cost="a reboot; if it keeps happening, an RMA of the unit",
                ),
            ),
            references=_WEDGE_SOURCES,
            nodes=(node.name,),
            brief=f"{stretch.util_percent:.0f} % SM at {stretch.clock_mhz:.0f} MHz and {stretch.power_w:.0f} W",
        )


@live_rule(
    "gpu.thermal",
    "Heat slows the GPU down",
    Severity.WARNING,
    scope="any NVIDIA GPU that reports clocks event reasons",
    sources=_HEAT_SOURCES,
    hold_s=10.0,
    clear_s=15.0,
)
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
        yield Finding(
            rule="gpu.thermal",
            severity=Severity.WARNING,
            title=f"Heat slows down {node.name}'s GPU",
            explanation=(
                f"NVML gives {' and '.join(hot)} as the reason for its clock, {clock}, at {heat}. On a Spark the "
                "processor's zones reach 90-97 °C while the GPU reads some 80, so this figure may look harmless. The "
                "GPU keeps working, slower."
            ),
            distinction=(
                "The driver itself gives heat as the reason; neither the power supply nor a hang is at fault.",
            ),
            evidence=(
                seen(
                    node,
                    "GPU",
                    f"throttle reasons: {', '.join(gpu.throttle_reasons or ())}; {heat}, {clock}"
                    + (f", {gpu.power_w:.0f} W" if gpu.power_w is not None else ""),
                ),
            ),
            remedies=(
                Remedy(
                    title="Improve the airflow: clear the vents, don't stack the two units, cool the room",
                    cost="nothing",
                ),
                Remedy(
                    title="Cap the clock until then",
                    steps=(
                        f"sudo nvidia-smi -lgc 300,{_cap_mhz(gpu.sm_clock_mhz)}   # again after each reboot",
                        "sudo nvidia-smi -rgc   # removes the cap",
                    ),
                    cost="part of its speed, as the heat does now; prefill loses most",
                ),
            ),
            references=_HEAT_SOURCES,
            nodes=(node.name,),
            brief=f"{heat}, {clock}, {', '.join(hot)}",
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
