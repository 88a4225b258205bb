"""Play a scenario: the clock, the current showing and second, and the nodes as changed by acts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from sparktop.clock import Clock
from sparktop.cmdline.yaml_nodes import values_of
from sparktop.sim.reaction import acts, ranks, request
from sparktop.sim.reaction.acts import Act
from sparktop.sim.reaction.figures import (
    BACK_S,
    SHUTDOWN_S,
    Moment,
    burn,
    idle,
    moment,
    rebooted,
    released,
    with_tracks,
)
from sparktop.sim.reaction.new_engine import with_new_container
from sparktop.sim.scenario.script import (
    CapturedAnswer,
    ContainerScript,
    Fault,
    NodeScript,
    Repeat,
    Scenario,
    UnitScript,
)
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark import storage
from sparktop.sim.spark.spark import Spark

KILLED_S = 0.4
"""From SIGKILL until the container has exited."""


def with_act(scenario: Scenario, node: str, showing_s: float, act: Act) -> Scenario:
    """The scenario after `act` is done to one of its nodes at a second of the showing."""
    return _apply(act, without_repair(scenario, showing_s), node, showing_s)


def without_repair(scenario: Scenario, showing_s: float) -> Scenario:
    """The scenario without its own repair and without an end."""
    if scenario.repeat is Repeat.LOOP:
        return scenario
    cut_s = next((second for second in scenario.remedies_s if second > showing_s), None)
    nodes = scenario.nodes if cut_s is None else tuple(_cut_at(node, cut_s) for node in scenario.nodes)
    return replace(scenario, repeat=Repeat.HOLD, remedies_s=(), nodes=nodes)


def _cut_at(node: NodeScript, cut_s: float) -> NodeScript:
    """The node's state at `cut_s` from there on; cables and addresses stay as scripted, nobody can act on them."""

    def container(script: ContainerScript) -> ContainerScript:
        runs = tuple(
            replace(run, end_s=None, exit_code=0) if run.end_s is not None and run.end_s >= cut_s else run
            for run in script.runs if run.start_s < cut_s
        )  # fmt: skip
        return replace(script, runs=runs, log=tuple(entry for entry in script.log if entry.at_s < cut_s))

    containers = tuple(cut for cut in map(container, node.containers) if cut.runs)
    begun = {cut.name for cut in containers}
    processes = tuple(
        replace(
            process,
            end_s=process.end_s if process.end_s is not None and process.end_s < cut_s else None,
            gpu_gib=process.gpu_gib.cut(cut_s) if process.gpu_gib else None,
            resident_gib=process.resident_gib.cut(cut_s),
            swapped_gib=process.swapped_gib.cut(cut_s),
        )
        for process in node.processes
        if (process.container in begun if process.container else process.start_s < cut_s)
    )
    engines = tuple(
        replace(
            engine,
            tracks={name: track.cut(cut_s) for name, track in engine.tracks.items()},
            serves=tuple((a, b if b < cut_s else float("inf")) for a, b in engine.serves if a < cut_s),
        )
        for engine in node.engines
        if engine.name in begun
    )
    return replace(
        node,
        tracks={name: track.cut(cut_s) for name, track in node.tracks.items()},
        containers=containers,
        processes=processes,
        engines=engines,
        kernel=tuple(entry for entry in node.kernel if entry.at_s < cut_s),
    )


def _apply(act: Act, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    match act:
        case acts.StopContainer():
            container = moment(scenario, node, showing_s).script.container(act.name)
            assert container is not None
            stop_s = container.reaction.stop_s
            after_s, code = (act.grace_s + KILLED_S, 137) if stop_s is None or stop_s >= act.grace_s else (stop_s, 0)
            return ranks.end_container(scenario, node, showing_s, act.name, after_s=after_s, exit_code=code)
        case acts.KillContainer():
            return ranks.end_container(scenario, node, showing_s, act.name, after_s=KILLED_S, exit_code=137)
        case acts.StartContainer():
            return ranks.start_container(scenario, node, showing_s, act.name)
        case acts.RemoveContainer():
            scenario = ranks.end_container(scenario, node, showing_s, act.name, after_s=KILLED_S, exit_code=137)
        case acts.CompletionAct():
            return request.with_completion(scenario, node, showing_s, act.port, act.tokens)
        case acts.SignalProcess():
            return _signalled(act, scenario, node, showing_s)
        case acts.Reboot():
            return _rebooted(scenario, node, showing_s)
    return ranks.with_node(scenario, node, _changed(act, moment(scenario, node, showing_s)))


def _changed(act: Act, current: Moment) -> NodeScript:
    """The node after an act that concerns no other node."""
    script = current.script
    match act:
        case acts.RenameContainer():
            return _renamed(script, act.name, act.new_name)
        case acts.RemoveContainer():
            return replace(
                script,
                containers=tuple(container for container in script.containers if container.name != act.name),
                processes=tuple(process for process in script.processes if process.container != act.name),
                engines=tuple(engine for engine in script.engines if engine.name != act.name),
            )
        case acts.UpdateContainer():
            return _with_restart_policy(current, act)
        case acts.CreateContainer():
            return with_new_container(current, act.script, act.like)
        case acts.HaveImage():
            return storage.with_image(script, act.name)
        case acts.HaveModel():
            return storage.with_model(script, act.model)
        case acts.DropCaches():
            cached, shared = script.tracks["cache_gib"].at(current.t), script.tracks["shared_gib"].at(current.t)
            least = min(cached, shared + 0.35)
            curve = [(current.t, cached), (current.t + 0.5, least), (current.t + 300, min(cached, least + 0.8))]
            return with_tracks(script, current.t, {"cache_gib": curve})
        case acts.Desktop():
            return _with_desktop(current, act.way)
        case acts.Linger():
            return replace(script, machine=replace(script.machine, lingers=act.enabled))
        case acts.WriteFile():
            return _with_file(script, act)
        case acts.ApplyNetplan():
            return _with_netplan(script)
        case acts.LoadGpu():
            burning = burn(script, current.t)
            rested = replace(current, script=burning, t=current.t + act.seconds)
            return with_tracks(burning, rested.t, idle(rested))
        case acts.Unit():
            return _with_unit(current, act)
    return script


# Containers


def _renamed(script: NodeScript, name: str, new_name: str) -> NodeScript:
    old_id, new_id = f"<id of {name}>", f"<id of {new_name}>"
    container = script.container(name)
    assert container is not None
    return replace(
        script.with_container(name, name=new_name, key=container.key or name).with_engine(name, name=new_name),
        processes=tuple(
            replace(
                process,
                container=new_name if process.container == name else process.container,
                cgroup=process.cgroup.replace(old_id, new_id),
            )
            for process in script.processes
        ),
        kernel=tuple(replace(entry, text=entry.text.replace(old_id, new_id)) for entry in script.kernel),
    )


def _with_restart_policy(current: Moment, act: acts.UpdateContainer) -> NodeScript:
    live = next(live for live in current.spark.containers(current.t) if live.script.name == act.name)
    count, runs = live.restarts, live.script.runs
    if act.restart_policy == "no":  # restarts by the old policy no longer happen
        runs = tuple(run for run in runs if run.start_s <= current.t)
        count -= len([run for run in runs[1:] if not run.asked])
    return current.script.with_container(
        act.name, restart_policy=act.restart_policy, runs=runs, restart_count=max(0, count)
    )


# The machine


def _with_file(script: NodeScript, act: acts.WriteFile) -> NodeScript:
    others = tuple(answer for answer in script.answers if answer.name != act.path)
    new = (CapturedAnswer(name=act.path, output=act.text),) if act.text is not None else ()
    return replace(script, answers=(*others, *new))


def _with_netplan(script: NodeScript) -> NodeScript:
    """The node with the addresses and MTUs that its files in /etc/netplan give, and the RoCE v2 GIDs of those."""
    ethernets: dict[str, dict[str, Any]] = {}
    for answer in script.answers:
        if answer.name.startswith("/etc/netplan/"):
            ethernets |= values_of(answer.output)["network"]["ethernets"]
    own = {name: values for name, values in ethernets.items() if values.get("addresses")}
    interfaces = tuple(
        replace(
            one, addresses=tuple(own[one.name]["addresses"]), mtu=Track.constant(float(own[one.name].get("mtu", 1500)))
        )
        if one.name in own
        else one
        for one in script.interfaces
    )
    rdma = tuple(
        replace(port, gids=((3, own[port.interface]["addresses"][0].partition("/")[0]),))
        if port.interface in own
        else port
        for port in script.rdma
    )
    return replace(script, interfaces=interfaces, rdma=rdma)


def _signalled(act: acts.SignalProcess, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    current = moment(scenario, node, showing_s)
    live = current.spark.process(act.pid, current.t)
    if live is None or act.signal not in ("TERM", "KILL", "HUP", "INT"):
        return scenario
    if act.signal == "HUP":
        is_shell = live.script.comm == "gnome-shell"
        return ranks.with_node(scenario, node, _with_shell_restarted(current)) if is_shell else scenario
    if live.script.container:
        code = 137 if act.signal == "KILL" else 1
        return ranks.end_container(scenario, node, showing_s, live.script.container, after_s=1.0, exit_code=code)
    end_s = current.t + (KILLED_S if act.signal == "KILL" else 1.5)
    scenario = ranks.with_node(scenario, node, _with_processes_ended(current, [live.script.pid], end_s))
    return ranks.started_by_policy(scenario, node, end_s + current.script.began_s, live.script.pid)


def _with_processes_ended(current: Moment, pids: list[int], end_s: float) -> NodeScript:
    """The node whose processes (script pids) end at a second and release their memory."""
    processes = tuple(
        replace(process, end_s=end_s) if process.pid in pids else process for process in current.script.processes
    )
    return released(replace(current, script=replace(current.script, processes=processes), t=end_s), pids)


def _with_shell_restarted(current: Moment) -> NodeScript:
    """The desktop shell restarts: it answers again, unless its problem lies deeper."""
    needs = current.script.reaction("desktop").needs
    if needs.reboot and not current.script.boots:
        return current.script
    curve = [(current.t, 0.0), (current.t + 3, 0.0), (current.t + 3, 1.0)]
    return with_tracks(current.script, current.t, {"desktop_answers": curve})


def _with_desktop(current: Moment, way: str) -> NodeScript:
    back_s = current.t + 4 if way == "manager" else None
    processes = []
    for process in current.script.processes:
        if not process.container and process.gpu_kind == "G" and process.gpu_gib is not None:
            processes.append(replace(process, end_s=current.t + 1))
            if back_s is not None and process.comm in ("gnome-shell", "Xorg"):
                processes.append(replace(process, pid=process.pid + 20_011, start_s=back_s, end_s=None))
        else:
            processes.append(process)
    script = replace(current.script, processes=tuple(processes))
    if back_s is None:
        script = replace(script, machine=replace(script.machine, graphical=False))
    return _with_shell_restarted(replace(current, script=script))


def _with_unit(current: Moment, act: acts.Unit) -> NodeScript:
    script = current.script
    units = tuple(_after_verb(unit, act.verb, current.t) if unit.name == act.name else unit for unit in script.units)
    script = replace(script, units=units)
    own_pids = [process.pid for process in script.processes if process.cgroup.endswith(f"/{act.name}")]
    if act.verb == "start" or not own_pids:
        return script
    return _with_processes_ended(replace(current, script=script), own_pids, current.t + 1)


def _after_verb(unit: UnitScript, verb: str, t: float) -> UnitScript:
    if verb == "stop":
        return replace(unit, active="inactive", sub="dead", main_pid=None, restarts=unit.restarts.cut(t))
    return replace(unit, active="active", sub="running")


def _rebooted(scenario: Scenario, node: str, showing_s: float) -> Scenario:
    current = moment(scenario, node, showing_s)
    running = [live.script.name for live in current.spark.containers(current.t) if live.running]
    for name in running:  # the other ranks of its engines wait forever
        scenario = ranks.end_container(scenario, node, showing_s, name, after_s=SHUTDOWN_S, exit_code=137)
    current = moment(scenario, node, showing_s)
    scenario = ranks.with_node(scenario, node, rebooted(current))
    for container in current.script.containers:  # containers that somebody stopped stay stopped
        if container.restart_policy == "always" or (
            container.restart_policy == "unless-stopped" and container.name in running
        ):
            scenario = ranks.start_container(scenario, node, showing_s + BACK_S, container.name)
    return scenario


class Play:
    """The clock of a scenario and its nodes' current scripts."""

    def __init__(self, scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> None:
        self.scenario = scenario
        self.clock = clock
        self.speed = speed
        self._began_s = clock.monotonic()
        self._began_wall_s = clock.wall()
        self._fixed_showing: int | None = None
        """Once something is done in a showing there is no other."""
        self._sparks: dict[str, tuple[NodeScript, int, Spark]] = {}

    def now(self) -> tuple[int, float]:
        """(showing, second of it): only a scenario that restarts has more than one showing."""
        t = max(0.0, (self.clock.monotonic() - self._began_s) * self.speed)
        if self._fixed_showing is not None:
            return self._fixed_showing, t - self._fixed_showing * self.scenario.length_s
        if self.scenario.repeat is Repeat.RESTART:
            showing, t = divmod(t, self.scenario.length_s)
            return int(showing), t
        return 0, t

    def moment(self, name: str) -> tuple[Spark, float]:
        """A node's Spark, and the second of its current boot; a new Spark object when the node has changed."""
        showing, t = self.now()
        script = next(node for node in self.scenario.nodes if node.name == name).at(t)
        cached = self._sparks.get(name)
        if cached is None or cached[0] is not script or cached[1] != showing or cached[2].scenario is not self.scenario:
            began_wall_s = self._began_wall_s + showing * self.scenario.length_s + script.began_s
            spark = Spark(self.scenario, script, showing=showing, began_wall_s=began_wall_s)
            cached = self._sparks[name] = (script, showing, spark)
        return cached[2], t - script.began_s

    def react(self, name: str, act: Act) -> None:
        """Do something to a node now."""
        showing, t = self.now()
        restarted = self.scenario.repeat is Repeat.RESTART
        self.scenario = with_act(self.scenario, name, t, act)
        if restarted:
            self._fixed_showing = showing

    def fault(self, name: str) -> Fault | None:
        """The fault of a node's connection now."""
        spark, t = self.moment(name)
        looped = t % self.scenario.length_s if self.scenario.repeat is Repeat.LOOP else t
        return next(
            (fault for fault in spark.script.faults if fault.start_s <= (t if fault.once else looped) < fault.end_s),
            None,
        )

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""
        await asyncio.sleep(max(0.002, seconds / self.speed))
