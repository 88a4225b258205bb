"""Start and stop containers of engines whose ranks depend on each other, on one node or on both.

A rank whose other ranks are gone waits forever; one that starts before they do waits for them, and serves nothing until
all of them have started after the last of them ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.sim.reaction.figures import Moment, moment, released, tokens_per_s, with_memory, with_traffic, with_work
from sparktop.sim.reaction.new_engine import launch_reaction
from sparktop.sim.scenario.script import ContainerScript, EngineScript, Needs, NodeScript, Run, Scenario
from sparktop.sim.spark.engine_start import CAPTURE, FAILED, JOINED, Start, held_by, is_eager, of_container, start_of

_JOINED_GIB = 1.0
"""A rank that holds this much GPU memory has joined the others, and waits for them on the GPU."""
_WAIT_S = 30.0
"""How long a rank that waits for the others looks as if it loaded."""
_OVER_TCP = 0.2
"""Share of its tokens that a pair makes over TCP."""
_FIRST_TRAFFIC_S = 6.0
"""From the engine's first answer until requests come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRank:
    """One rank of an engine: its container, at one moment of its node."""

    moment: Moment
    container: ContainerScript

    @property
    def node(self) -> str:
        return self.moment.script.name

    @property
    def run(self) -> Run | None:
        """The container's current run, if it is running."""
        t = self.moment.t
        started_runs = [run for run in self.container.runs if run.start_s <= t]
        run = started_runs[-1] if started_runs else None
        return run if run is not None and (run.end_s is None or run.end_s > t) else None

    @property
    def engine(self) -> EngineScript | None:
        """The rank's endpoint, where it has one."""
        return self.moment.script.engine(self.container.name)

    def showing(self, t: float) -> float:
        return t + self.moment.script.began_s


def with_node(scenario: Scenario, node: str, changed: NodeScript) -> Scenario:
    """The scenario with one node's script replaced, for its current boot."""

    def replace_boot(script: NodeScript) -> NodeScript:
        if script.boots == changed.boots:
            return changed
        assert script.next_boot is not None
        return replace(script, next_boot=replace_boot(script.next_boot))

    return replace(
        scenario,
        nodes=tuple(
            replace_boot(node_script) if node_script.name == node else node_script for node_script in scenario.nodes
        ),
    )


def rank(scenario: Scenario, node: str, showing_s: float, name: str) -> SimRank:
    """The rank of a container at a second of the showing."""
    current = moment(scenario, node, showing_s)
    container = current.script.container(name)
    assert container is not None
    return SimRank(moment=current, container=container)


def other_ranks(scenario: Scenario, node: str, showing_s: float, name: str) -> list[SimRank]:
    """The other running ranks of a container's engine; where a node has several containers of it, the newest."""
    group = rank(scenario, node, showing_s, name).container.reaction.group
    ranks: list[SimRank] = []
    for other_node in (script.name for script in scenario.nodes if script.name != node):
        current = moment(scenario, other_node, showing_s)
        started_s = {
            container.name: max(run.start_s for run in container.runs if run.start_s <= current.t)
            for container in current.script.containers
            if group and container.reaction.group == group and container.runs and container.runs[0].start_s <= current.t
        }
        if started_s:
            ranks.append(rank(scenario, other_node, showing_s, max(started_s, key=started_s.__getitem__)))
    return ranks


def end_container(
    scenario: Scenario, node: str, showing_s: float, name: str, *, after_s: float, exit_code: int
) -> Scenario:  # fmt: skip
    """End a running container after `after_s` seconds; the other ranks of its engine then wait for it forever."""
    ended_rank = rank(scenario, node, showing_s, name)
    run = ended_rank.run
    if run is None:
        return scenario
    t = ended_rank.moment.t + after_s
    scenario = with_node(scenario, node, _ended_script(ended_rank, run, t, exit_code))
    for other_rank in other_ranks(scenario, node, showing_s, name):
        if other_rank.run is not None:
            scenario = with_node(scenario, other_rank.node, _waiting_forever(other_rank, showing_s + after_s))
    return scenario


def _ended_script(ended_rank: SimRank, run: Run, t: float, exit_code: int) -> NodeScript:
    script, container, engine = ended_rank.moment.script, ended_rank.container, ended_rank.engine
    runs = (
        *(earlier for earlier in container.runs if earlier.start_s < run.start_s),
        replace(run, end_s=t, exit_code=exit_code, oom_killed=False),
    )
    script = script.with_container(container.name, runs=runs)
    if engine is not None:
        serves = tuple((start, min(end, t)) for start, end in engine.serves if start < t)
        script = with_traffic(script.with_engine(engine.name, serves=serves), engine.name, t, {})
    pids = [process.pid for process in of_container(script, container.name)]
    leaks_gib = 0.0 if run.asked else container.reaction.leaks_gib  # an engine that was restarted ends cleanly
    return released(replace(ended_rank.moment, script=script, t=t), pids, leaks_gib=leaks_gib)


def _waiting_forever(waiting_rank: SimRank, showing_s: float) -> NodeScript:
    script, engine = waiting_rank.moment.script, waiting_rank.engine
    t = showing_s - script.began_s
    if engine is not None and engine.serves_at(t):
        requests = max(1.0, engine.tracks["running"].at(t))
        kv = engine.tracks["kv"].at(t)
        script = with_traffic(script, engine.name, t, {"running": [(t, requests)], "kv": [(t, kv)]})
    figures = {name: script.tracks[name].cut(t) for name in ("available_gib", "cache_gib", "leaked_gib")}
    script = replace(script, tracks={**script.tracks, **figures})
    own_processes = [
        live for live in waiting_rank.moment.spark.processes(t) if live.script.container == waiting_rank.container.name
    ]
    if sum(live.gpu_gib or 0.0 for live in own_processes) < _JOINED_GIB:
        return with_work(script, t, "loading", length_s=_WAIT_S)  # not joined yet: it waits without using the GPU
    return with_work(script, t, "spinning")


def start_container(scenario: Scenario, node: str, showing_s: float, name: str, *, is_asked: bool = True) -> Scenario:
    """Start a container that isn't running; once all ranks of its engine have started, they load and serve.

    Args:
        is_asked: False where its restart policy starts it.
    """
    started_rank = rank(scenario, node, showing_s, name)
    if started_rank.run is not None:
        return scenario
    t = started_rank.moment.t
    runs = (*(run for run in started_rank.container.runs if run.start_s < t), Run(start_s=t, asked=is_asked))
    scenario = with_node(scenario, node, started_rank.moment.script.with_container(name, runs=runs))
    ranks = [rank(scenario, node, showing_s, name), *other_ranks(scenario, node, showing_s, name)]
    if len(ranks) < started_rank.container.reaction.ranks or (len(ranks) > 1 and not _started_together(ranks)):
        return with_node(scenario, node, _waiting_for_others(ranks[0]))
    ranks = [_with_launch_reaction(member) for member in ranks]
    ready_s = max(showing_s + member.container.reaction.load_s for member in ranks)
    fault = next((member for member in ranks if member.container.reaction.fault and not is_satisfied(member)), None)
    for peer in ranks:
        scenario = with_node(scenario, peer.node, _loading_script(peer, ready_s, fault, ranks))
    return scenario


def started_by_policy(scenario: Scenario, node: str, showing_s: float, ended_pid: int) -> Scenario:
    """What waited for a process to end comes to serve from the next start that its restart policy gives it."""
    containers = moment(scenario, node, showing_s).script.containers
    for name in [one.name for one in containers if one.reaction.needs.ended_pid == ended_pid]:
        waiting = rank(scenario, node, showing_s, name)
        runs = tuple(run for run in waiting.container.runs if waiting.showing(run.start_s) <= showing_s)
        if len(runs) < len(waiting.container.runs):
            next_s = waiting.showing(waiting.container.runs[len(runs)].start_s)
            scenario = with_node(scenario, node, waiting.moment.script.with_container(name, runs=runs))
            scenario = start_container(scenario, node, next_s, name, is_asked=False)
    return scenario


def _with_launch_reaction(launched_rank: SimRank) -> SimRank:
    """A rank of a launch with the outcome of starting it now."""
    if launched_rank.container.launched is None:
        return launched_rank
    reaction = launch_reaction(launched_rank.moment, launched_rank.container)
    script = launched_rank.moment.script.with_container(launched_rank.container.name, reaction=reaction)
    return SimRank(
        moment=replace(launched_rank.moment, script=script),
        container=replace(launched_rank.container, reaction=reaction),
    )


def _started_together(ranks: list[SimRank]) -> bool:
    starts = [member.showing(member.run.start_s) for member in ranks if member.run is not None]
    ends = [rank.showing(run.end_s) for rank in ranks for run in rank.container.runs if run.end_s is not None]
    return len(starts) == len(ranks) and (not ends or min(starts) >= max(ends))


def is_satisfied(faulty_rank: SimRank) -> bool:
    """Whether the conditions under which the rank's fault disappears are met."""
    needs: Needs = faulty_rank.container.reaction.needs
    argv, script = " ".join(faulty_rank.container.argv), faulty_rank.moment.script
    names = {entry.partition("=")[0] for entry in faulty_rank.container.environment}
    holder = next((process for process in script.processes if process.pid == needs.ended_pid), None)
    if holder is not None and holder.end_s is not None and holder.end_s <= faulty_rank.moment.t:
        return True
    return not (
        needs.by_hand
        or (needs.reboot and not script.boots)
        or (needs.eager and not is_eager(faulty_rank.container.argv))
        or any(flag in argv or flag in names for flag in needs.without)
        or any(name not in names for name in needs.environment)
    )


def _waiting_for_others(waiting_rank: SimRank) -> NodeScript:
    """The container runs and waits for the other ranks to start."""
    t, script = waiting_rank.moment.t, waiting_rank.moment.script
    gib_by_pid = held_by(script, waiting_rank.container)
    script = with_memory(waiting_rank.moment, waiting_rank.container, [(t, 0.0), (t + 5, 0.005)], gib_by_pid)
    ready_s = t + waiting_rank.container.reaction.load_s
    return _with_run(with_work(script, t, "loading", length_s=_WAIT_S), waiting_rank, ready_s=ready_s, log_share=JOINED)


def _with_run(script: NodeScript, changed_rank: SimRank, **changes: Any) -> NodeScript:
    """The node with fields of the rank's current run replaced."""
    runs = changed_rank.container.runs
    return script.with_container(changed_rank.container.name, runs=(*runs[:-1], replace(runs[-1], **changes)))


def _loading_script(
    loading_rank: SimRank, ready_showing_s: float, fault: SimRank | None, ranks: Sequence[SimRank]
) -> NodeScript:
    """The rank loads from now on and then serves; or its fault returns."""
    t, container = loading_rank.moment.t, loading_rank.container
    ready_s = ready_showing_s - loading_rank.moment.script.began_s
    run = replace(container.runs[-1], ready_s=ready_s, joined_s=t if t > container.runs[-1].start_s else None)
    start = replace(_start_of(loading_rank), run=run, ready_s=ready_s)
    kind = fault.container.reaction.fault if fault is not None else ""
    if kind == "exit" and fault is not None:
        return _failing_script(loading_rank, start, fault.container.reaction.says)
    gib_by_pid = held_by(loading_rank.moment.script, container)
    script = with_memory(loading_rank.moment, container, start.shares, gib_by_pid)
    log_share = CAPTURE if kind == "capture" else float("inf")
    script = with_work(script, t, "loading", length_s=ready_s - t)
    script = _with_run(script, loading_rank, ready_s=ready_s, joined_s=run.joined_s, log_share=log_share)
    if kind == "capture":
        return with_work(script, start.at(CAPTURE), "spinning")
    busy_s = ready_s + _FIRST_TRAFFIC_S
    has_rdma = all(map(_has_rdma, ranks))
    is_unused = kind == "spike" or container.launched is not None  # no requests come yet
    engine = loading_rank.engine
    if engine is not None:
        serves = (*(row for row in engine.serves if row[0] < t), (ready_s, float("inf")))
        traffic = {} if is_unused else _traffic(script, engine, container, t, busy_s, has_rdma=has_rdma)
        script = with_traffic(script.with_engine(engine.name, serves=serves), engine.name, t, traffic)
    if is_unused:
        return script
    script = with_work(script, busy_s, "decoding", *(["decoding with another"] if len(ranks) > 1 and has_rdma else []))
    if kind == "spin":
        script = with_work(script, busy_s + 20, "spinning")
    return script


def _has_rdma(member: SimRank) -> bool:
    """Whether its container can open the RDMA devices; one engine alone needs none."""
    container = member.container
    return container.reaction.group == "" or container.privileged or "/dev/infiniband" in container.devices


def _traffic(
    script: NodeScript, engine: EngineScript, container: ContainerScript, t: float, busy_s: float, *, has_rdma: bool
) -> dict[str, list[tuple[float, float]]]:
    slower = (0.5 if script.reaction("gpu").needs.by_hand else 1.0) * (1.0 if has_rdma else _OVER_TCP)
    tokens = tokens_per_s(engine, container) * slower
    requests = max(1, round(tokens / 24)) if tokens > 30 else 1
    return {
        "running": [(t, 0), (busy_s, 0), (busy_s, requests)],
        "prompt_tps": [(t, 0), (busy_s, 0), (busy_s, 900), (busy_s + 1, 900), (busy_s + 1, 0)],
        "gen_tps": [(t, 0), (busy_s + 1, 0), (busy_s + 1.5, tokens)],
        "kv": [(t, 0), (busy_s, 0), (busy_s + 60, 0.04)],
    }


def _failing_script(failing_rank: SimRank, start: Start, says: str) -> NodeScript:
    """The rank starts, logs why it can't run, and exits."""
    after, t = failing_rank.container.reaction.says_after, failing_rank.moment.t
    end_s = max(t + 8.0, start.at(after) + 1)
    container, run = failing_rank.container, start.run
    script = with_work(failing_rank.moment.script, t, "loading", length_s=end_s - t)
    script = _with_run(
        script, failing_rank, ready_s=run.ready_s, joined_s=run.joined_s, log_share=after or FAILED, says=says,
        end_s=end_s, exit_code=1,
    )  # fmt: skip
    pids = [process.pid for process in of_container(script, container.name)]
    shares = [(at, share) for at, share in start.shares if at < end_s] if after else []
    shares = shares or [(t, 0.0), (t + 4, 0.005)]
    script = with_memory(replace(failing_rank.moment, script=script), container, shares, held_by(script, container))
    return released(replace(failing_rank.moment, script=script, t=end_s), pids)


def _start_of(starting_rank: SimRank) -> Start:
    _, script, container = starting_rank.moment.t, starting_rank.moment.script, starting_rank.container
    return start_of(starting_rank.moment.scenario, script, container, container.runs[-1])
