"""Bandwidth: what the cable carries, by a bounded measurement that `measure-link` makes.

A fabric that is slow passes every status check, so nothing here passes without a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    judged,
    skipped,
    told,
    unknown,
    warning,
)
from sparktop.bringup.memory import TOOLS, missing_tools, tools_ask
from sparktop.checks.judgement import Judgement, worst
from sparktop.checks.link import (
    BOTH_HEALTHY_GBPS,
    HALF_HEALTHY_GBPS,
    LATENCY_HEALTHY_US,
    BandwidthFacts,
    LatencyFacts,
    judge_bandwidth,
    judge_latency,
)
from sparktop.model.bringup import Gauge
from sparktop.model.state import State
from sparktop.model.survey import Ask
from sparktop.operate.launch.inputs import link as link_inputs
from sparktop.operate.measure.link_load import COUNTED, PATH_MTU, MeasureLink, name_of
from sparktop.operate.measure.perftest import BANDWIDTH
from sparktop.operate.step.run import Run, StepRun

MEASURE = "measure-link"
BASIS = (Basis.BOOT, Basis.ADDRESSES)
"""A reboot with the cable in, and new addresses, have cured a slow link and made one."""


# --- before it is measured


def _asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    for node in nodes:
        yield tools_ask(node)
    yield from link_inputs.asks(nodes, seen.picture)


def _look(seen: CheckInputs, nodes: Nodes) -> Outcome:
    """Why it can't be measured, else that it isn't yet."""
    if not link_inputs.rails(nodes, seen.picture, seen.survey):
        return skipped("RDMA doesn't lead to the other node yet")
    for node in nodes:
        if BANDWIDTH in (missing_tools(seen, node) or ()):
            package = TOOLS[BANDWIDTH]
            return skipped(
                f"{node} has no {BANDWIDTH}", by_hand(f"Install {package}", f"on {node}: sudo apt install {package}")
            )
    return unknown("not measured yet", by_action(MEASURE, "Measure the cable: loads it for half a minute"))


# --- what a run has measured


def _measured(run: Run, nodes: Nodes) -> Iterator[tuple[StepRun, MeasureLink]]:
    """The steps of the run that loaded the cable between the nodes."""
    for step_run in run.steps:
        act = step_run.step.act
        if isinstance(act, MeasureLink) and {step_run.step.node, act.peer} == set(nodes):
            yield step_run, act


def _bandwidths(run: Run, nodes: Nodes, *, halves: int) -> list[tuple[Judgement, Gauge | None]]:
    """Each load of so many halves at once, judged, with its bar."""
    rows: list[tuple[Judgement, Gauge | None]] = []
    for step_run, act in _measured(run, nodes):
        if act.is_latency or len(act.halves) != halves:
            continue
        name = name_of(act)
        gbps, mtu = step_run.number(f"{name}_gbps"), step_run.number(f"{name}_{PATH_MTU}")
        facts = BandwidthFacts(
            gbps=gbps,
            halves=halves,
            mtu_bytes=int(mtu) if mtu is not None else None,
            counted_percent=step_run.number(f"{name}_{COUNTED}"),
            problem=step_run.detail,
        )
        judgement = judge_bandwidth(facts)
        label = "both halves" if halves > 1 else act.halves[0].device
        where = f"{label}, {step_run.step.node} to {act.peer}"
        healthy = BOTH_HEALTHY_GBPS if halves > 1 else HALF_HEALTHY_GBPS
        gauge = (
            Gauge(label=where, value=gbps, unit="Gb/s", healthy=healthy, state=judgement.state.shown) if gbps else None
        )
        rows.append((judgement, gauge))
    return rows


def _judge(halves: int) -> Callable[[Run, Nodes], Outcome | None]:
    def judge(run: Run, nodes: Nodes) -> Outcome | None:
        loads = _bandwidths(run, nodes, halves=halves)
        gauges = tuple(gauge for _, gauge in loads if gauge is not None)
        if not gauges:
            return None
        judgement = worst(*(judgement for judgement, _ in loads))
        slowest = min(gauges, key=lambda gauge: gauge.value)
        found = f"{slowest.value:.1f} Gb/s over {slowest.label}"
        if judgement.state is State.UNKNOWN:  # part of it was measured, and that part is well
            why = by_hand("Measure again, or by hand", f"sparktop act {MEASURE} {' '.join(nodes)} --dry-run")
            return replace(warning(f"{found}; another half has no figure: {judgement.unknown}", why), gauges=gauges)
        return told(
            judge_bandwidth,
            judgement,
            gauges=gauges,
            gbps=slowest.value,
            label=slowest.label,
            again=f"sparktop act {MEASURE} {' '.join(nodes)}",
            reboots=tuple(f"sparktop act reboot {node}" for node in nodes),
            offs=tuple(f"on {node}: sudo poweroff" for node in nodes),
            jumbo=tuple(f"# see addresses.jumbo of {node}" for node in nodes),
            looks=tuple(f"on {node}: rdma link; ip -br -4 addr" for node in nodes),
            errors=tuple(f"on {node}: ethtool -S IF | grep err_lane" for node in nodes),
        )

    return judge


def _judge_latency(run: Run, nodes: Nodes) -> Outcome | None:
    for step_run, act in _measured(run, nodes):
        typical_us = step_run.number("latency_us")
        if not act.is_latency or typical_us is None:
            continue
        size = step_run.number("latency_bytes")
        judgement = judge_latency(LatencyFacts(typical_us=typical_us, message_bytes=int(size or 0)))
        p99_us = step_run.number("latency_p99_us")
        tail = f", 99 % within {p99_us:.2f}" if p99_us is not None else ""
        found = f"{typical_us:.2f} µs{tail}, {act.halves[0].device}, {step_run.step.node} to {act.peer}"
        gauge = Gauge(
            label=f"{act.halves[0].device}, {step_run.step.node} to {act.peer}",
            value=typical_us,
            unit="µs",
            healthy=LATENCY_HEALTHY_US,
            state=judgement.state.shown,
        )
        hint = by_hand(
            "Look at the cable's errors and at what else uses it", *(f"on {node}: rdma link" for node in nodes)
        )
        return judged(judgement, found, hint, gauges=(gauge,))
    return None


CARDS = (
    card(judge_bandwidth, look=_look, asks=_asks, measured_by=MEASURE, judge=_judge(1), scope=Scope.PAIR, basis=BASIS),
    card(
        "bandwidth.both",
        check=judge_bandwidth,
        look=_look,
        asks=_asks,
        measured_by=MEASURE,
        judge=_judge(2),
        scope=Scope.PAIR,
        basis=BASIS,
    ),
    card(
        judge_latency, look=_look, asks=_asks, measured_by=MEASURE, judge=_judge_latency, scope=Scope.PAIR, basis=BASIS
    ),
)
