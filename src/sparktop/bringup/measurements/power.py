"""Power under load: a GPU that stays slow although every status is green; `measure-power` loads it."""

from __future__ import annotations

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card,
    each,
    skipped,
    told,
    unknown,
)
from sparktop.checks.machine import LOADED_HEALTHY_MHZ, LOADED_HEALTHY_W, PowerFacts, judge_power
from sparktop.model.bringup import Gauge
from sparktop.operate.measure.gpu_load import PACKAGE, library_in
from sparktop.operate.measure.power import library_ask
from sparktop.operate.measure.power_run import BUSY, CLOCK, HEAT, POWER, THROTTLED, MeasurePower
from sparktop.operate.step.run import Run

MEASURE = "measure-power"


def _look(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node = nodes[0]
    ask = library_ask(node)
    if seen.has_answer(ask) and not library_in(seen.text(ask)):
        install = by_hand("Install it", f"on {node}: sudo apt install {PACKAGE}")
        return skipped("no cuBLAS is there to load the GPU with", install)
    return unknown("not measured yet", by_action(MEASURE, "Load the GPU for some seconds"))


def _judge(run: Run, nodes: Nodes) -> Outcome | None:
    step_run = next(
        (one for one in run.steps if isinstance(one.step.act, MeasurePower) and one.step.node == nodes[0]), None
    )
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
    state = judgement.state.shown
    gauges = [Gauge(label="SM clock", value=clock, unit="MHz", healthy=LOADED_HEALTHY_MHZ, state=state)]
    if power is not None:
        gauges.append(Gauge(label="power", value=power, unit="W", healthy=LOADED_HEALTHY_W, state=state))
    return told(judge_power, judgement, gauges=tuple(gauges), node=nodes[0], clock=clock, watts=power)


CARDS = (
    card(
        judge_power,
        look=_look,
        asks=each(library_ask),
        measured_by=MEASURE,
        judge=_judge,
        basis=(Basis.BOOT, Basis.DRIVER),
    ),
)
