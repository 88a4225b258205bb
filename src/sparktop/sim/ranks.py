"""Containers' lives when somebody ends and starts them: one engine may have ranks on both nodes, and needs them all.

A rank whose others are gone waits in vain; one that starts before they do waits for them, and serves nothing until all
of them began after the last of them ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparktop.sim import startup
from sparktop.sim.aftermath import (
    Moment,
    decoding,
    held_by,
    loading,
    of_container,
    released,
    spinning,
    tokens_per_s,
    with_memory,
    with_traffic,
)
from sparktop.sim.launched import flag_value, model_of, weighed
from sparktop.sim.script import ContainerScript, EngineScript, LogEntry, Needs, NodeScript, Run, Scenario
from sparktop.sim.startup import Start

_SPINS_GIB = 1.0
"""A rank that holds so much on its GPU has met the others, and waits for them there."""
_TRAFFIC_S = 6.0
"""After its first answer, until requests come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One container of an engine, on its node."""

    moment: Moment
    box: ContainerScript

    @property
    def node(self) -> str:
        return self.moment.script.name

    @property
    def run(self) -> Run | None:
        """Its life at that second, if it is alive."""
        t = self.moment.t
        begun = [run for run in self.box.runs if run.start_s <= t]
        return begun[-1] if begun and (begun[-1].end_s is None or begun[-1].end_s > t) else None

    @property
    def engine(self) -> EngineScript | None:
        """Its endpoint, where it has one."""
        return next((one for one in self.moment.script.engines if one.name == self.box.name), None)

    def showing(self, t: float) -> float:
        return t + self.moment.script.began_s


def with_node(scenario: Scenario, node: str, changed: NodeScript) -> Scenario:
    """The scenario with one node's script replaced: that of its present boot."""

    def of(script: NodeScript) -> NodeScript:
        if script.boots == changed.boots:
            return changed
        assert script.next_boot is not None
        return replace(script, next_boot=of(script.next_boot))

    return replace(scenario, nodes=tuple(of(one) if one.name == node else one for one in scenario.nodes))


def container(script: NodeScript, name: str) -> ContainerScript:
    """A container by its name."""
    return next(one for one in script.containers if one.name == name)


def with_container(script: NodeScript, changed: ContainerScript) -> NodeScript:
    """The node with one container replaced."""
    return replace(script, containers=tuple(changed if one.name == changed.name else one for one in script.containers))


def rank(scenario: Scenario, node: str, showing_s: float, name: str) -> Rank:
    """A container at a second of the showing."""
    script = next(one for one in scenario.nodes if one.name == node).at(showing_s)
    return Rank(
        moment=Moment(scenario=scenario, script=script, t=showing_s - script.began_s), box=container(script, name)
    )


def others(scenario: Scenario, node: str, showing_s: float, name: str) -> list[Rank]:
    """The further ranks of a container's engine that are meant to run: of several of a node, the newest."""
    group = rank(scenario, node, showing_s, name).box.reaction.group
    found: list[Rank] = []
    for script in scenario.nodes:
        now = script.at(showing_s)
        t = showing_s - now.began_s
        boxes = [
            box for box in now.containers
            if group and box.reaction.group == group and box.runs and box.runs[0].start_s <= t
        ]  # fmt: skip
        if script.name != node and boxes:
            newest = max(boxes, key=lambda box: max(run.start_s for run in box.runs if run.start_s <= t))
            found.append(rank(scenario, script.name, showing_s, newest.name))
    return found


def ended(
    scenario: Scenario, node: str, showing_s: float, name: str, *, after_s: float, exit_code: int
) -> Scenario:  # fmt: skip
    """A container that runs ends so many seconds later, and its engine's other ranks wait for it in vain."""
    one = rank(scenario, node, showing_s, name)
    run = one.run
    if run is None:
        return scenario
    t = one.moment.t + after_s
    scenario = with_node(scenario, node, _ended(one, run, t, exit_code))
    for other in others(scenario, node, showing_s, name):
        if other.run is not None:
            scenario = with_node(scenario, other.node, _waiting_in_vain(other, showing_s + after_s))
    return scenario


def _ended(one: Rank, run: Run, t: float, exit_code: int) -> NodeScript:
    script, box, engine = one.moment.script, one.box, one.engine
    runs = (
        *(each for each in box.runs if each.start_s < run.start_s),
        replace(run, end_s=t, exit_code=exit_code, oom_killed=False),
    )
    log = tuple(entry for entry in box.log if entry.at_s <= t)
    log = tuple(replace(entry, until_s=min(entry.until_s or t, t)) if entry.every_s else entry for entry in log)
    if exit_code == 0 and engine is not None:
        log += tuple(replace(entry, once=True) for entry in startup.leaving(box, engine.kind, t))
    script = with_container(script, replace(box, runs=runs, log=log))
    if engine is not None:
        serves = tuple((start, min(end, t)) for start, end in engine.serves if start < t)
        script = replace(
            script, engines=tuple(replace(each, serves=serves) if each is engine else each for each in script.engines)
        )
        script = with_traffic(script, engine.name, t, {})
    pids = [each.pid for each in of_container(script, box.name)]
    return released(replace(one.moment, script=script, t=t), pids, leaks_gib=_leak(one))


def _leak(one: Rank) -> float:
    """Only the scenario's own engine leaks: what was started anew ends cleanly."""
    return 0.0 if one.run is not None and one.run.asked else one.box.reaction.leaks_gib


def _waiting_in_vain(other: Rank, showing_s: float) -> NodeScript:
    script, engine = other.moment.script, other.engine
    t = showing_s - script.began_s
    if engine is not None and engine.serves_at(t):
        held = max(1.0, engine.tracks["running"].at(t))
        kv = engine.tracks["kv"].at(t)
        script = with_traffic(script, engine.name, t, {"running": [(t, held)], "kv": [(t, kv)]})
    figures = {name: script.tracks[name].cut(t) for name in ("available_gib", "cache_gib", "leaked_gib")}
    script = replace(script, tracks={**script.tracks, **figures})
    ours = [live for live in other.moment.spark.processes(t) if live.script.container == other.box.name]
    if sum(live.gpu_gib or 0.0 for live in ours) < _SPINS_GIB:
        return loading(script, t, None)  # it has not met the others yet: that is waited for without the GPU
    return spinning(script, t)


def started(scenario: Scenario, node: str, showing_s: float, name: str) -> Scenario:
    """A container that doesn't run starts; when all ranks of its engine have, they load and serve."""
    one = rank(scenario, node, showing_s, name)
    if one.run is not None:
        return scenario
    t = one.moment.t
    runs = (*(run for run in one.box.runs if run.start_s < t), Run(start_s=t, asked=True))
    log = tuple(entry for entry in one.box.log if entry.at_s <= t)
    log = tuple(replace(entry, until_s=min(entry.until_s or t, t)) if entry.every_s else entry for entry in log)
    scenario = with_node(scenario, node, with_container(one.moment.script, replace(one.box, runs=runs, log=log)))
    ranks = [rank(scenario, node, showing_s, name), *others(scenario, node, showing_s, name)]
    if len(ranks) < one.box.reaction.ranks or (len(ranks) > 1 and not _all_anew(ranks)):
        return with_node(scenario, node, _waiting(ranks[0]))
    ranks = [_weighed(each) for each in ranks]
    ready_s = max(showing_s + each.box.reaction.load_s for each in ranks)
    fault = next((each for each in ranks if each.box.reaction.fault and not is_satisfied(each)), None)
    for each in ranks:
        scenario = with_node(scenario, each.node, _loads(each, ready_s, fault, is_pair=len(ranks) > 1))
    return scenario


def _weighed(one: Rank) -> Rank:
    """A rank of a launch with what comes of its start now."""
    if one.box.launched is None:
        return one
    box = replace(one.box, reaction=weighed(one.moment, one.box))
    moment = replace(one.moment, script=with_container(one.moment.script, box))
    return Rank(moment=moment, box=box)


def _all_anew(ranks: list[Rank]) -> bool:
    starts = [each.showing(each.run.start_s) for each in ranks if each.run is not None]
    ends = [each.showing(run.end_s) for each in ranks for run in each.box.runs if run.end_s is not None]
    return len(starts) == len(ranks) and (not ends or min(starts) >= max(ends))


def is_satisfied(one: Rank) -> bool:
    """Whether what its trouble needs to be over is so."""
    needs: Needs = one.box.reaction.needs
    argv, script = " ".join(one.box.argv), one.moment.script
    names = {entry.partition("=")[0] for entry in one.box.environment}
    return not (
        needs.by_hand
        or (needs.reboot and not script.boots)
        or any(flag not in argv for flag in needs.flags)
        or any(flag in argv or flag in names for flag in needs.without)
        or any(name not in names for name in needs.environment)
    )


def _waiting(one: Rank) -> NodeScript:
    """It runs, and waits for the others to come up."""
    t = one.moment.t
    start = _start(one, t + one.box.reaction.load_s)
    script = with_memory(one.moment, one.box, [(t, 0.0), (t + 5, 0.005)], held_by(one.moment.script, one.box))
    script = loading(script, t, None)
    return _says(script, one, startup.lines(start, until_s=start.at(0.12)))


def _loads(one: Rank, ready_showing_s: float, fault: Rank | None, *, is_pair: bool) -> NodeScript:
    """It loads from now on, and serves from then on; or the trouble is back."""
    t, box = one.moment.t, one.box
    ready_s = ready_showing_s - one.moment.script.began_s
    start = _start(one, ready_s)
    kind = fault.box.reaction.fault if fault is not None else ""
    if kind == "exit" and fault is not None:
        return _refuses(one, start, fault.box.reaction.says)
    held = held_by(one.moment.script, box)
    script = with_memory(one.moment, box, start.shares, held)
    script = loading(script, t, ready_s)
    if kind == "capture":
        stuck_s = start.at(startup.CAPTURE)
        extra = (startup.stuck(start),) if start.rank == 0 else ()
        script = _says(script, one, (*startup.lines(start, until_s=stuck_s), *extra))
        return spinning(script, stuck_s)
    script = _says(script, one, startup.lines(start))
    busy_s = ready_s + _TRAFFIC_S
    engine = one.engine
    if engine is not None:
        serves = (*(row for row in engine.serves if row[0] < t), (ready_s, float("inf")))
        script = replace(
            script,
            engines=tuple(
                replace(each, serves=serves) if each.name == engine.name else each for each in script.engines
            ),
        )
        if kind != "spike" and box.launched is None:
            script = with_traffic(script, engine.name, t, _traffic(script, engine, box, t, busy_s))
        else:
            script = with_traffic(script, engine.name, t, {})
    if kind == "spike" or box.launched is not None:  # nobody asks it anything yet
        return script
    script = decoding(script, busy_s, is_pair=is_pair)
    if kind == "spin":
        script = spinning(script, busy_s + 20)
    return script


def _traffic(
    script: NodeScript, engine: EngineScript, box: ContainerScript, t: float, busy_s: float
) -> dict[str, list[tuple[float, float]]]:
    tokens = tokens_per_s(engine, box) * (0.5 if script.reaction("gpu").needs.by_hand else 1.0)
    requests = max(1, round(tokens / 24)) if tokens > 30 else 1
    return {
        "running": [(t, 0), (busy_s, 0), (busy_s, requests)],
        "prompt_tps": [(t, 0), (busy_s, 0), (busy_s, 900), (busy_s + 1, 900), (busy_s + 1, 0)],
        "gen_tps": [(t, 0), (busy_s + 1, 0), (busy_s + 1.5, tokens)],
        "kv": [(t, 0), (busy_s, 0), (busy_s + 60, 0.04)],
    }


def _refuses(one: Rank, start: Start, says: str) -> NodeScript:
    """It looks at the machines, says why not, and ends."""
    after = one.box.reaction.says_after
    end_s = max(one.moment.t + 8.0, start.at(after) + 1)
    last = (LogEntry(at_s=end_s - 1 + 0.05 * i, text=line) for i, line in enumerate(says.split("\n")))
    lines = (*startup.lines(start, until_s=start.at(after or 0.16)), *last)
    script = _says(loading(one.moment.script, one.moment.t, end_s), one, lines)
    run = one.run
    assert run is not None
    box = container(script, one.box.name)
    runs = (*box.runs[:-1], replace(run, end_s=end_s, exit_code=1))
    pids = [each.pid for each in of_container(script, box.name)]
    taken = [(at, share) for at, share in start.shares if at < end_s] if after else []
    taken = taken or [(one.moment.t, 0.0), (one.moment.t + 4, 0.005)]
    script = with_memory(replace(one.moment, script=script), box, taken, held_by(script, box))
    script = with_container(script, replace(box, runs=runs))
    return released(replace(one.moment, script=script, t=end_s), pids)


def _says(script: NodeScript, one: Rank, lines: tuple[LogEntry, ...]) -> NodeScript:
    box = container(script, one.box.name)
    earlier = tuple(entry for entry in box.log if entry.at_s < one.moment.t)
    said = tuple(replace(entry, once=True) for entry in lines)
    return with_container(script, replace(box, log=(*earlier, *said)))


def _start(one: Rank, ready_s: float) -> Start:
    engine, argv = one.engine, one.box.argv
    first = engine or _any_engine(one)
    return Start(
        container=one.box,
        engine=engine,
        kind=first.kind if first else ("sglang" if any("sglang" in word for word in argv) else "vllm"),
        version=first.version if first else "0.21.0",
        model=first.model if first else "model",
        begin_s=one.moment.t,
        ready_s=ready_s,
        gpu_gib=sum(held_by(one.moment.script, one.box).values()),
        rank=one.box.launched.rank if one.box.launched else _rank_number(argv),
        weights=one.box.reaction.load_share,
        shards=model_of(one.box.launched).shards if one.box.launched else 14,
    )


def _any_engine(one: Rank) -> EngineScript | None:
    """The endpoint of another rank: what version it is of, and which model."""
    scenario, group = one.moment.scenario, one.box.reaction.group
    return next(
        (
            engine
            for node in scenario.nodes
            for box in node.containers
            if group and box.reaction.group == group
            for engine in node.engines
            if engine.name == box.name
        ),
        None,
    )


def _rank_number(argv: tuple[str, ...]) -> int:
    value = flag_value(argv, "--node-rank")
    return int(value) if value is not None and value.isdecimal() else 0
