"""The GPU held back by the machine: a power controller that wedged, and heat. Spins and captures stand beside."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live import capture, spin
from sparktop.diagnose.live.idleness import BUSY_PERCENT, PINNED_BELOW_W, is_pinned, normal_power
from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import gpu_stretch, is_current, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView

WEDGE_SUSPECTED_S = 10.0
WEDGE_CONFIRMED_S = 20.0
_HOT = ("software thermal", "hardware thermal")

_WEDGE_SOURCES = (
    "Blackwellboy/model-serving-minefield (trap 124: 42.7 tok/s at 19.5 W and 799 MHz)",
    "DoctorMasterNewb/sparkbase",
)
_HEAT_SOURCES = ("DoctorMasterNewb/sparkbase", "NVIDIA Management Library: clocks event reasons")


def power_wedge(fleet: FleetState) -> Iterable[Finding]:
    """gpu.power-wedge: the SM clock is pinned to a fraction, with no reason given.

    Suspected after 10 s of full use at little power and a clock of 500-850 MHz, confirmed after 20 s where the driver's
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
            title=f"{node.name}'s GPU is stuck at {stretch.clock_mhz:.0f} MHz: its power controller has wedged",
            explanation=(
                f"For {span(stretch.seconds)} the GPU has been {stretch.util_percent:.0f} % busy at "
                f"{stretch.power_w:.0f} W with its SM clock pinned at {stretch.clock_mhz:.0f}{top} MHz and no throttle "
                f"reason set; {normal_power(node)}, at some 2400 MHz. The USB-C power controller holds it there: "
                "it still works, at about half its speed. A reboot doesn't reset that controller, nor does "
                "`nvidia-smi -lgc`; only taking the supply off the wall does."
            ),
            distinction=(
                "Not a deadlock: the clock of a GPU whose ranks wait on one another stands near 2.4 GHz.",
                "Not heat: no thermal bit is set"
                + (f", and it has {gpu.temperature_c} °C." if gpu.temperature_c is not None else "."),
            ),
            settles="" if sure else f"{WEDGE_CONFIRMED_S:.0f} s of it, with throttle reasons readable and empty.",
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
                        "plug it in, start, and look at the SM clock under load",
                    ),
                    cost="a walk to the machine, and everything running on it",
                ),
                Remedy(
                    title="Then bring the firmware up to date",
                    steps=("fwupdmgr refresh --force && fwupdmgr get-upgrades",),
                    cost="a reboot; where it comes back again and again, the unit is for exchange",
                ),
            ),
            references=_WEDGE_SOURCES,
            nodes=(node.name,),
            brief=f"{stretch.util_percent:.0f} % SM at {stretch.clock_mhz:.0f} MHz and {stretch.power_w:.0f} W",
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
            title=f"{node.name}'s GPU is slowed down by heat",
            explanation=(
                f"NVML names {' and '.join(hot)} as the reason for its clock, {clock}, at {heat}. "
                "On a Spark the processor's zones reach 90-97 °C while the GPU reads some 80, so the figure here may "
                "look harmless. It goes on working, slower."
            ),
            distinction=("The driver itself gives heat as the reason; power and work held are not in question.",),
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
                    title="Give it air: clear the vents, don't stack the two units, cool the room",
                    cost="nothing",
                ),
                Remedy(
                    title="Cap the clock until then",
                    steps=("sudo nvidia-smi -lgc 300,2100   # again after each reboot",),
                    cost="some prefill speed; decode is bound by memory and loses little",
                ),
            ),
            references=_HEAT_SOURCES,
            nodes=(node.name,),
            brief=f"{heat}, {clock}, {', '.join(hot)}",
        )


def _tokens(node: NodeView) -> Iterable[Evidence]:
    for engine in node.engines:
        speed = engine.rates.generation_tokens_per_s if engine.rates else None
        if is_alive(engine) and speed:
            yield Evidence(
                source=f"{engine.name} @ {node.name} metrics",
                text=f"{speed:.1f} tok/s generated: work is done, slowly",
                wall_s=engine.metrics.wall_s if engine.metrics else None,
            )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=Rule(
            id="gpu.power-wedge",
            kind=RuleKind.LIVE,
            title="The SM clock is pinned at 500-850 MHz under full use, with no throttle reason",
            severity=Severity.CRITICAL,
            scope="GB10 (DGX Spark and its makers' variants)",
            sources=_WEDGE_SOURCES,
        ),
        check=power_wedge,
        clear_s=4.0,
    ),
    *spin.RULES,
    *capture.RULES,
    LiveRule(
        card=Rule(
            id="gpu.thermal",
            kind=RuleKind.LIVE,
            title="The driver names heat as the reason for a low clock",
            severity=Severity.WARNING,
            scope="any NVIDIA GPU that gives its clocks event reasons",
            sources=_HEAT_SOURCES,
        ),
        check=thermal,
        hold_s=10.0,
        clear_s=15.0,
    ),
)
