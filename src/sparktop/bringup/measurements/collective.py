"""Collective: what NCCL gets of the cable, inside a serving image; `measure-collective` runs it."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    card,
    skipped,
    told,
    unknown,
)
from sparktop.bringup.measurements import bandwidth
from sparktop.checks.link import COLLECTIVE_HEALTHY_GBPS, CollectiveFacts, judge_collective
from sparktop.model.bringup import Gauge
from sparktop.model.survey import Ask
from sparktop.operate.launch.inputs import link as link_inputs
from sparktop.operate.measure.collective_run import COUNTED, FIGURE, NETWORK, MeasureCollective
from sparktop.operate.measure.link_load import MeasureLink, name_of
from sparktop.operate.step.run import Run

MEASURE = "measure-collective"


def _asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield from link_inputs.asks(nodes, seen.picture)


def _look(seen: CheckInputs, nodes: Nodes) -> Outcome:
    if not link_inputs.rails(nodes, seen.picture, seen.survey):
        return skipped("RDMA doesn't lead to the other node yet")
    return unknown("not measured yet", by_action(MEASURE, "Run an all-reduce of 1 GiB inside a serving image"))


def _judge(run: Run, nodes: Nodes) -> Outcome | None:
    step_run = next((one for one in run.steps if isinstance(one.step.act, MeasureCollective)), None)
    if step_run is None or (gbps := step_run.number(FIGURE)) is None:
        return None
    rdma_gbps, rtt_ms = _cable(run)
    transport = str(step_run.figures.get(NETWORK, ""))
    facts = CollectiveFacts(
        gbps=gbps,
        transport=transport,
        counted_percent=step_run.number(COUNTED),
        rdma_gbps=rdma_gbps,
        rtt_ms=rtt_ms,
    )
    judgement = judge_collective(facts)
    state = judgement.state.shown
    gauge = Gauge(label="all-reduce of 1 GiB", value=gbps, unit="Gb/s", healthy=COLLECTIVE_HEALTHY_GBPS, state=state)
    return told(
        judge_collective,
        judgement,
        gauges=(gauge,),
        transport=transport,
        rdma=rdma_gbps,
        rtt_ms=rtt_ms,
        again=f"sparktop act {MEASURE} {' '.join(nodes)}",
        looks=tuple(f"on {node}: ls /dev/infiniband; rdma link" for node in nodes),
        reboots=tuple(f"sparktop act reboot {node}" for node in nodes),
        offs=tuple(f"on {node}: sudo poweroff" for node in nodes),
    )


def _cable(run: Run) -> tuple[float | None, float | None]:
    """(Gb/s of the cable alone, time of a ping in ms) by the run's own measurement before the collective."""
    for step_run in run.steps:
        act = step_run.step.act
        if isinstance(act, MeasureLink) and not act.is_latency:
            return step_run.number(f"{name_of(act)}_gbps"), step_run.number("rtt_ms")
    return None, None


CARDS = (
    card(
        judge_collective,
        look=_look,
        asks=_asks,
        measured_by=MEASURE,
        judge=_judge,
        scope=Scope.PAIR,
        basis=bandwidth.BASIS,
    ),
)
