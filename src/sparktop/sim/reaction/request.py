"""The effect of a completion request on a simulated engine: tokens for as long as it takes, or memory runs out."""

from __future__ import annotations

from sparktop.sim.reaction.figures import (
    Moment,
    idle,
    moment,
    tokens_per_s,
    with_memory,
    with_tracks,
    with_traffic,
    with_work,
)
from sparktop.sim.reaction.ranks import SimRank, is_satisfied, other_ranks, rank, with_node
from sparktop.sim.scenario.script import Scenario
from sparktop.sim.spark.engine_start import held_by, of_container

PREFILL_S = 0.4
_PROMPT_TOKENS = 24.0
_TAIL_S = 0.3
_REMAINING_GIB = 0.5
"""Memory left when a first request has taken the rest."""


def with_completion(scenario: Scenario, node: str, showing_s: float, port: int, tokens: int) -> Scenario:
    """A completion of so many tokens is requested from the engine on that port."""
    current = moment(scenario, node, showing_s)
    t, engine = current.t, current.spark.engine_at(port, current.t)
    if engine is None:
        return scenario
    target = rank(scenario, node, showing_s, engine.name)
    is_busy = engine.tracks["running"].at(t) > 0
    spikes = (
        target.container.reaction.fault == "spike"
        and not is_satisfied(target)
        and target.run is not None
        and target.run.asked
    )
    if spikes:
        return scenario if is_busy else _exhausting_memory(scenario, target)
    if target.container.launched is None or is_busy:
        return scenario
    return _answering(scenario, target, tokens)


def _answering(scenario: Scenario, target: SimRank, tokens: int) -> Scenario:
    """Prefill, then decoding on all of the engine's nodes, then idle again."""
    engine, t = target.engine, target.moment.t
    assert engine is not None
    speed = tokens_per_s(engine, target.container)
    begin_s, end_s = t + PREFILL_S, t + PREFILL_S + tokens / speed + _TAIL_S
    showing_s = target.showing(t)
    ranks = [target, *other_ranks(scenario, target.node, showing_s, target.container.name)]
    for member in ranks:
        works = ["decoding", *(["decoding with another"] if len(ranks) > 1 else [])]
        script = with_work(member.moment.script, member.moment.t, *works)
        after_s = member.moment.t + (end_s - t)
        resting = Moment(scenario=scenario, script=script, t=after_s)
        script = with_tracks(script, after_s, idle(resting))
        if member is target:
            script = with_traffic(script, engine.name, t, {
                "running": [(t, 1.0), (end_s, 1.0), (end_s, 0.0)],
                "prompt_tps": [(t, _PROMPT_TOKENS / PREFILL_S), (begin_s, _PROMPT_TOKENS / PREFILL_S), (begin_s, 0.0)],
                "gen_tps": [(t, 0.0), (begin_s, 0.0), (begin_s, speed), (end_s - _TAIL_S, speed),
                            (end_s - _TAIL_S, 0.0)],
                "kv": [(t, 0.0), (begin_s, 0.001), (end_s, 0.002), (end_s, 0.0)],
                "itl_s": [(0.0, 1.0 / speed)],
            })  # fmt: skip
        scenario = with_node(scenario, member.node, script)
    return scenario


def _exhausting_memory(scenario: Scenario, target: SimRank) -> Scenario:
    """Graphs and kernels outside any budget take all remaining memory within seconds, or the model's known spike."""
    engine, script, t = target.engine, target.moment.script, target.moment.t
    assert engine is not None
    spare_gib = max(0.0, script.tracks["available_gib"].at(t) - _REMAINING_GIB)
    spike_gib = min(spare_gib, target.container.reaction.spike_gib or spare_gib)
    held_gib = sum(
        process.gpu_gib.at(t) for process in of_container(script, engine.name) if process.gpu_gib is not None
    )
    curve = [(0.0, 0.0), (1.5, 0.05), (3.5, 0.35), (5.5, 0.85), (7.0, 1.0)]
    shares = [(t + after, (held_gib + share * spike_gib) / held_gib) for after, share in curve]
    serving_gib = held_by(script, target.container)
    scale = held_gib / (sum(serving_gib.values()) or 1.0)
    script = with_memory(
        target.moment, target.container, shares, {pid: gib * scale for pid, gib in serving_gib.items()}
    )
    script = with_traffic(script, engine.name, t, {"running": [(t, 1.0)]})
    return with_node(scenario, target.node, with_work(script, t, "decoding"))
