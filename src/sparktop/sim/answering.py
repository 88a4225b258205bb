"""What a completion does to a simulated engine: tokens flow for as long as it takes, or memory runs out."""

from __future__ import annotations

from dataclasses import replace

from sparktop.sim.aftermath import (
    Moment,
    decoding,
    held_by,
    idle,
    of_container,
    tokens_per_s,
    with_memory,
    with_tracks,
    with_traffic,
)
from sparktop.sim.ranks import Rank, is_satisfied, others, rank, with_node
from sparktop.sim.script import Scenario
from sparktop.sim.tracks import Track

PREFILL_S = 0.4
_PROMPT_TOKENS = 24.0
_TAIL_S = 0.3
_LEFT_GIB = 0.5
"""Of all memory, when a first request has taken the rest."""


def asked(scenario: Scenario, node: str, showing_s: float, port: int, tokens: int) -> Scenario:
    """A completion of so many tokens is asked of the engine on that port."""
    script = next(one for one in scenario.nodes if one.name == node).at(showing_s)
    t = showing_s - script.began_s
    engine = next((one for one in script.engines if one.port == port and one.serves_at(t)), None)
    if engine is None:
        return scenario
    one = rank(scenario, node, showing_s, engine.name)
    is_busy = engine.tracks["running"].at(t) > 0
    spikes = one.box.reaction.fault == "spike" and not is_satisfied(one) and one.run is not None and one.run.asked
    if spikes:
        return scenario if is_busy else _takes_too_much(scenario, one)
    if one.box.launched is None or is_busy:
        return scenario
    return _answers(scenario, one, tokens)


def _answers(scenario: Scenario, one: Rank, tokens: int) -> Scenario:
    """Prefill, then decoding on all of its nodes, then nothing to do again."""
    engine, t = one.engine, one.moment.t
    assert engine is not None
    speed = tokens_per_s(engine, one.box)
    begin_s, end_s = t + PREFILL_S, t + PREFILL_S + tokens / speed + _TAIL_S
    showing_s = one.showing(t)
    ranks = [one, *others(scenario, one.node, showing_s, one.box.name)]
    for each in ranks:
        script = decoding(each.moment.script, each.moment.t, is_pair=len(ranks) > 1)
        after_s = each.moment.t + (end_s - t)
        resting = Moment(scenario=scenario, script=script, t=after_s)
        script = with_tracks(script, after_s, idle(resting))
        if each is one:
            script = with_traffic(script, engine.name, t, {
                "running": [(t, 1.0), (end_s, 1.0), (end_s, 0.0)],
                "prompt_tps": [(t, _PROMPT_TOKENS / PREFILL_S), (begin_s, _PROMPT_TOKENS / PREFILL_S), (begin_s, 0.0)],
                "gen_tps": [(t, 0.0), (begin_s, 0.0), (begin_s, speed), (end_s - _TAIL_S, speed),
                            (end_s - _TAIL_S, 0.0)],
                "kv": [(t, 0.0), (begin_s, 0.001), (end_s, 0.002), (end_s, 0.0)],
            })  # fmt: skip
            engines = tuple(
                replace(known, tracks={**known.tracks, "itl_s": known.tracks["itl_s"].then(t, _pace(speed))})
                if known.name == engine.name else known
                for known in script.engines
            )  # fmt: skip
            script = replace(script, engines=engines)
        scenario = with_node(scenario, each.node, script)
    return scenario


def _takes_too_much(scenario: Scenario, one: Rank) -> Scenario:
    """Graphs and kernels that no budget counts: within seconds all that is left, or what is known of the model."""
    engine, script, t = one.engine, one.moment.script, one.moment.t
    assert engine is not None
    most = max(0.0, script.tracks["available_gib"].at(t) - _LEFT_GIB)
    takes = min(most, one.box.reaction.spike_gib or most)
    held = sum(each.gpu_gib.at(t) for each in of_container(script, engine.name) if each.gpu_gib is not None)
    curve = [(0.0, 0.0), (1.5, 0.05), (3.5, 0.35), (5.5, 0.85), (7.0, 1.0)]
    shares = [(t + after, (held + part * takes) / held) for after, part in curve]
    whole = held_by(script, one.box)
    scale = held / (sum(whole.values()) or 1.0)
    script = with_memory(one.moment, one.box, shares, {pid: gib * scale for pid, gib in whole.items()})
    script = with_traffic(script, engine.name, t, {"running": [(t, 1.0)]})
    return with_node(scenario, one.node, decoding(script, t, is_pair=False))


def _pace(speed: float) -> Track:
    return Track.constant(1.0 / speed)
