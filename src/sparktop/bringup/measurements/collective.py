"""Collective: what NCCL gets of the cable, inside a serving image; `measure-collective` runs it."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    judged,
    skipped,
    unknown,
)
from sparktop.bringup.measurements import bandwidth
from sparktop.checks.link import COLLECTIVE_HEALTHY_GBPS, CollectiveFacts, judge_collective
from sparktop.model.bringup import Gauge
from sparktop.model.finding import Remedy
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
    found = f"{gbps:.1f} Gb/s{f' over {transport}' if transport else ''}{_note(judgement.case, facts)}"
    state = judgement.state.shown
    gauge = Gauge(label="all-reduce of 1 GiB", value=gbps, unit="Gb/s", healthy=COLLECTIVE_HEALTHY_GBPS, state=state)
    return judged(judgement, found, *_remedies(judgement.case, nodes), gauges=(gauge,))


def _cable(run: Run) -> tuple[float | None, float | None]:
    """(Gb/s of the cable alone, time of a ping in ms) by the run's own measurement before the collective."""
    for step_run in run.steps:
        act = step_run.step.act
        if isinstance(act, MeasureLink) and not act.is_latency:
            return step_run.number(f"{name_of(act)}_gbps"), step_run.number("rtt_ms")
    return None, None


def _note(case: str, facts: CollectiveFacts) -> str:
    rdma = f"{facts.rdma_gbps:.0f} Gb/s" if facts.rdma_gbps is not None else ""
    return {
        "": "; NCCL and the RDMA ports' counters say that it was RDMA",
        "unwitnessed": "; not every witness was read",
        "socket": ": NCCL found no RDMA device in the container, and used TCP without an error",
        "elsewhere": ": the RDMA ports did not count it: it did not go over RDMA",
        "unseparated": ": whether the cable alone is fast was not measured",
        "cable": f": the cable itself carries only {rdma}",
        "churned": f": the cable carries {rdma}, and a ping takes {facts.rtt_ms:.2f} ms instead of 0.28"
        if facts.rtt_ms is not None
        else "",
        "gpu": f": the cable carries {rdma}, so the fault is on the GPUs' side",
    }[case]


def _remedies(case: str, nodes: Nodes) -> tuple[Remedy, ...]:
    again = f"sparktop act {MEASURE} {' '.join(nodes)}"
    match case:
        case "socket" | "elsewhere":
            return (
                by_hand("Give the container RDMA, then measure again", "--device /dev/infiniband --ulimit memlock=-1"),
                by_hand(
                    "See which devices are there", *(f"on {node}: ls /dev/infiniband; rdma link" for node in nodes)
                ),
            )
        case "unseparated":
            return (by_action(bandwidth.MEASURE, "Measure the cable alone first: it separates the causes"),)
        case "cable":
            return (by_action(bandwidth.MEASURE, "Measure each half of the cable: its row has the remedies"),)
        case "churned":
            reboots = (f"sparktop act reboot {node}" for node in nodes)
            return (by_hand("Reboot both: changed addresses have left RDMA slow", *reboots, again),)
        case _:
            return (
                by_action("measure-power", "Measure the power under load first: a stuck GPU is the usual cause"),
                by_hand(
                    "Take the power from both for half a minute: a reboot is not enough",
                    *(f"on {node}: sudo poweroff" for node in nodes),
                    "# unplug both bricks from the wall; start both after 30 s",
                    again,
                ),
            )


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
