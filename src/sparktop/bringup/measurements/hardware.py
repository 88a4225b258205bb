"""What the hardware does under load: the cable (`measure-link`), a collective in a serving image
(`measure-collective`) and the GPU (`measure-power`).

A fabric or a GPU that is slow passes every status check, so nothing here passes without a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    each,
    judged,
    skipped,
    told,
    unknown,
    warning,
)
from sparktop.bringup.machine import TOOLS, missing_tools, tools_question
from sparktop.checks.judgement import Judgement, worst
from sparktop.checks.link import (
    BOTH_HEALTHY_GBPS,
    COLLECTIVE_HEALTHY_GBPS,
    HALF_HEALTHY_GBPS,
    LATENCY_HEALTHY_US,
    BandwidthFacts,
    CollectiveFacts,
    LatencyFacts,
    judge_bandwidth,
    judge_collective,
    judge_latency,
)
from sparktop.checks.machine import LOADED_HEALTHY_MHZ, LOADED_HEALTHY_W, PowerFacts, judge_power
from sparktop.model.bringup import Gauge
from sparktop.model.state import State
from sparktop.model.survey import Question
from sparktop.operate.launch.inputs import link as link_inputs
from sparktop.operate.measure.collective_run import COUNTED as COLLECTIVE_COUNTED
from sparktop.operate.measure.collective_run import FIGURE, NETWORK, MeasureCollective
from sparktop.operate.measure.gpu_load import PACKAGE, library_in
from sparktop.operate.measure.link_load import COUNTED, PATH_MTU, MeasureLink, name_of
from sparktop.operate.measure.perftest import BANDWIDTH
from sparktop.operate.measure.power import library_question
from sparktop.operate.measure.power_run import BUSY, CLOCK, HEAT, POWER, THROTTLED, MeasurePower
from sparktop.operate.step.run import Run, StepRun

LINK, COLLECTIVE, GPU = "measure-link", "measure-collective", "measure-power"
"""The actions."""


# --- before it is measured


def _no_rdma(seen: CheckInputs) -> Outcome | None:
    """Why nothing of the cable can be measured; None where it can."""
    if link_inputs.rails(seen.nodes, seen.picture):
        return None
    return skipped("RDMA doesn't lead to the other node yet")


def _collective_questions(seen: CheckInputs) -> Iterator[Question]:
    yield from link_inputs.questions(seen.nodes, seen.picture)


def _link_questions(seen: CheckInputs) -> Iterator[Question]:
    yield from map(tools_question, seen.nodes)
    yield from _collective_questions(seen)


def _link(seen: CheckInputs) -> Outcome:
    if (without := _no_rdma(seen)) is not None:
        return without
    for node in seen.nodes:
        if BANDWIDTH in (missing_tools(seen, node) or ()):
            package = TOOLS[BANDWIDTH]
            return skipped(
                f"{node} has no {BANDWIDTH}", by_hand(f"Install {package}", f"on {node}: sudo apt install {package}")
            )
    return unknown("not measured yet", by_action(LINK, "Measure the cable: loads it for half a minute"))


def _collective(seen: CheckInputs) -> Outcome:
    run_it = by_action(COLLECTIVE, "Run an all-reduce of 1 GiB inside a serving image")
    return _no_rdma(seen) or unknown("not measured yet", run_it)


def _power(seen: CheckInputs) -> Outcome:
    question = library_question(seen.node)
    if seen.has_answer(question) and not library_in(seen.text(question)):
        install = by_hand("Install it", f"on {seen.node}: sudo apt install {PACKAGE}")
        return skipped("no cuBLAS is there to load the GPU with", install)
    return unknown("not measured yet", by_action(GPU, "Load the GPU for some seconds"))


# --- what a run has measured


def _loads(run: Run, nodes: Nodes, *, halves: int) -> Iterator[tuple[StepRun, MeasureLink, str]]:
    """The steps of the run that loaded so many halves of the cable between the nodes at once (0: latency), each with
    its way."""
    for step_run in run.steps:
        act = step_run.step.act
        if not isinstance(act, MeasureLink) or {step_run.step.node, act.peer} != set(nodes):
            continue
        if halves == (0 if act.is_latency else len(act.halves)):
            label = "both halves" if halves > 1 else act.halves[0].device
            yield step_run, act, f"{label}, {step_run.step.node} to {act.peer}"


def _judge_bandwidth(halves: int) -> Callable[[Run, Nodes], Outcome | None]:
    """Each load of so many halves at once, judged, with its bar."""
    healthy = BOTH_HEALTHY_GBPS if halves > 1 else HALF_HEALTHY_GBPS

    def judge(run: Run, nodes: Nodes) -> Outcome | None:
        judgements: list[Judgement] = []
        gauges: list[Gauge] = []
        for step_run, act, way in _loads(run, nodes, halves=halves):
            name = name_of(act)
            gbps, mtu = step_run.number(f"{name}_gbps"), step_run.number(f"{name}_{PATH_MTU}")
            facts = BandwidthFacts(
                gbps=gbps,
                halves=halves,
                mtu_bytes=int(mtu) if mtu is not None else None,
                counted_percent=step_run.number(f"{name}_{COUNTED}"),
                problem=step_run.detail,
            )
            judgements.append(judge_bandwidth(facts))
            gauges += [_gauge(way, gbps, "Gb/s", healthy, judgements[-1])] if gbps else []
        if not gauges:
            return None
        judgement = worst(*judgements)
        slowest = min(gauges, key=lambda gauge: gauge.value)
        found = f"{slowest.value:.1f} Gb/s over {slowest.label}"
        if judgement.state is State.UNKNOWN:  # part of it was measured, and that part is well
            why = by_hand("Measure again, or by hand", f"sparktop act {LINK} {' '.join(nodes)} --dry-run")
            text = f"{found}; another half has no figure: {judgement.unknown}"
            return warning(text, why, gauges=tuple(gauges))
        return told(
            judge_bandwidth,
            judgement,
            gauges=tuple(gauges),
            gbps=slowest.value,
            label=slowest.label,
            again=f"sparktop act {LINK} {' '.join(nodes)}",
            jumbo=tuple(f"# see addresses.jumbo of {node}" for node in nodes),
            looks=tuple(f"on {node}: rdma link; ip -br -4 addr" for node in nodes),
            errors=tuple(f"on {node}: ethtool -S IF | grep err_lane" for node in nodes),
            **_power_cycle(nodes),
        )

    return judge


def _gauge(label: str, value: float, unit: str, healthy: tuple[float, float], judgement: Judgement) -> Gauge:
    return Gauge(label=label, value=value, unit=unit, healthy=healthy, state=judgement.state.shown)


def _power_cycle(nodes: Nodes) -> Mapping[str, Any]:
    """The steps that have cured a slow link."""
    return {
        "reboots": tuple(f"sparktop act reboot {node}" for node in nodes),
        "offs": tuple(f"on {node}: sudo poweroff" for node in nodes),
    }


def _judge_latency(run: Run, nodes: Nodes) -> Outcome | None:
    for step_run, _, way in _loads(run, nodes, halves=0):
        typical_us = step_run.number("latency_us")
        if typical_us is None:
            continue
        size = step_run.number("latency_bytes")
        judgement = judge_latency(LatencyFacts(typical_us=typical_us, message_bytes=int(size or 0)))
        p99_us = step_run.number("latency_p99_us")
        tail = f", 99 % within {p99_us:.2f}" if p99_us is not None else ""
        gauge = _gauge(way, typical_us, "µs", LATENCY_HEALTHY_US, judgement)
        steps = (f"on {node}: rdma link" for node in nodes)
        hint = by_hand("Look at the cable's errors and at what else uses it", *steps)
        return judged(judgement, f"{typical_us:.2f} µs{tail}, {way}", hint, gauges=(gauge,))
    return None


def _judge_collective(run: Run, nodes: Nodes) -> Outcome | None:
    step_run = next((one for one in run.steps if isinstance(one.step.act, MeasureCollective)), None)
    if step_run is None or (gbps := step_run.number(FIGURE)) is None:
        return None
    rdma_gbps, rtt_ms = _cable(run)
    transport = str(step_run.figures.get(NETWORK, ""))
    facts = CollectiveFacts(
        gbps=gbps,
        transport=transport,
        counted_percent=step_run.number(COLLECTIVE_COUNTED),
        rdma_gbps=rdma_gbps,
        rtt_ms=rtt_ms,
    )
    judgement = judge_collective(facts)
    gauge = _gauge("all-reduce of 1 GiB", gbps, "Gb/s", COLLECTIVE_HEALTHY_GBPS, judgement)
    return told(
        judge_collective,
        judgement,
        gauges=(gauge,),
        transport=transport,
        rdma=rdma_gbps,
        rtt_ms=rtt_ms,
        again=f"sparktop act {COLLECTIVE} {' '.join(nodes)}",
        looks=tuple(f"on {node}: ls /dev/infiniband; rdma link" for node in nodes),
        **_power_cycle(nodes),
    )


def _cable(run: Run) -> tuple[float | None, float | None]:
    """(Gb/s of the cable alone, time of a ping in ms) by the run's own measurement before the collective."""
    for step_run in run.steps:
        act = step_run.step.act
        if isinstance(act, MeasureLink) and not act.is_latency:
            return step_run.number(f"{name_of(act)}_gbps"), step_run.number("rtt_ms")
    return None, None


def _judge_power(run: Run, nodes: Nodes) -> Outcome | None:
    loads = (one for one in run.steps if isinstance(one.step.act, MeasurePower) and one.step.node == nodes[0])
    step_run = next(loads, None)
    if step_run is None or (clock := step_run.number(CLOCK)) is None:
        return None
    power = step_run.number(POWER)
    judgement = judge_power(
        PowerFacts(
            busy_percent=step_run.number(BUSY),
            power_w=power,
            sm_mhz=clock,
            temperature_c=step_run.number(HEAT),
            is_throttled=THROTTLED in step_run.figures,
        )
    )
    gauges = [_gauge("SM clock", clock, "MHz", LOADED_HEALTHY_MHZ, judgement)]
    gauges += [_gauge("power", power, "W", LOADED_HEALTHY_W, judgement)] if power is not None else []
    return told(judge_power, judgement, gauges=tuple(gauges), node=nodes[0], clock=clock, watts=power)


_CABLE = (Basis.BOOT, Basis.ADDRESSES)
"""A reboot with the cable in, and new addresses, have cured a slow link and made one."""
_OF_LINK: Mapping[str, Any] = {
    "look": _link,
    "questions": _link_questions,
    "measured_by": LINK,
    "scope": Scope.PAIR,
    "basis": _CABLE,
}
CARDS = (
    card(judge_power, look=_power, questions=each(library_question), measured_by=GPU, judge=_judge_power,
         basis=(Basis.BOOT, Basis.DRIVER)),
    card(judge_bandwidth, judge=_judge_bandwidth(1), **_OF_LINK),
    card("bandwidth.both", check=judge_bandwidth, judge=_judge_bandwidth(2), **_OF_LINK),
    card(judge_latency, judge=_judge_latency, **_OF_LINK),
    card(judge_collective, look=_collective, questions=_collective_questions, measured_by=COLLECTIVE,
         judge=_judge_collective, scope=Scope.PAIR, basis=_CABLE),
)  # fmt: skip
