"""The acts that can be done to a simulated Spark: each makes the scenario of what it becomes from that second on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

from sparktop.cmdline.yaml_nodes import values_of
from sparktop.sim.reaction import ranks, request
from sparktop.sim.reaction.figures import (
    BACK_S,
    SHUTDOWN_S,
    Moment,
    idle,
    moment,
    rebooted,
    released,
    with_tracks,
    with_work,
)
from sparktop.sim.reaction.new_engine import with_new_container
from sparktop.sim.scenario.script import (
    CapturedAnswer,
    ContainerScript,
    DiskModel,
    NodeScript,
    Repeat,
    Scenario,
    UnitScript,
)
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark import storage

KILLED_S = 0.4
"""From SIGKILL until the container has exited."""
Act = Callable[[Scenario, str, float], Scenario]
"""What is done to a node at a second of the showing: the scenario from then on."""
_P = ParamSpec("_P")


def _act(change: Callable[Concatenate[Moment, _P], Scenario | NodeScript]) -> Callable[_P, Act]:
    """An act by its details, from what it makes of a moment: the whole scenario, or that node alone."""

    def detailed(*args: _P.args, **details: _P.kwargs) -> Act:
        def done(scenario: Scenario, node: str, showing_s: float) -> Scenario:
            changed = change(moment(scenario, node, showing_s), *args, **details)
            return ranks.with_node(scenario, node, changed) if isinstance(changed, NodeScript) else changed

        return done

    return detailed


def with_act(scenario: Scenario, node: str, showing_s: float, act: Act) -> Scenario:
    """The scenario after `act` is done to one of its nodes at a second of the showing."""
    return act(without_repair(scenario, showing_s), node, showing_s)


@_act
def hold(current: Moment) -> Scenario:
    """Somebody is about to act: the scenario stops repairing itself and doesn't restart."""
    return current.scenario


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
        node, tracks={name: track.cut(cut_s) for name, track in node.tracks.items()}, containers=containers,
        processes=processes, engines=engines, kernel=tuple(entry for entry in node.kernel if entry.at_s < cut_s),
    )  # fmt: skip


# Containers


@_act
def stop_container(current: Moment, name: str, grace_s: float = 10.0) -> Scenario:
    """SIGTERM, then SIGKILL after the grace period."""
    container = current.script.container(name)
    assert container is not None
    stop_s = container.reaction.stop_s
    after_s, code = (grace_s + KILLED_S, 137) if stop_s >= grace_s else (stop_s, 0)
    return ranks.end_container(*current.where, name, after_s=after_s, exit_code=code)


@_act
def kill_container(current: Moment, name: str) -> Scenario:
    return ranks.end_container(*current.where, name, after_s=KILLED_S, exit_code=137)


@_act
def start_container(current: Moment, name: str) -> Scenario:
    return ranks.start_container(*current.where, name)


@_act
def remove_container(current: Moment, name: str) -> Scenario:
    _, node, showing_s = current.where
    killed = ranks.end_container(*current.where, name, after_s=KILLED_S, exit_code=137)
    script = moment(killed, node, showing_s).script
    script = replace(
        script,
        containers=tuple(container for container in script.containers if container.name != name),
        processes=tuple(process for process in script.processes if process.container != name),
        engines=tuple(engine for engine in script.engines if engine.name != name),
    )
    return ranks.with_node(killed, node, script)


@_act
def rename_container(current: Moment, name: str, new_name: str) -> NodeScript:
    script, old_id, new_id = current.script, f"<id of {name}>", f"<id of {new_name}>"
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


@_act
def update_container(current: Moment, name: str, restart_policy: str) -> NodeScript:
    live = next(live for live in current.spark.containers(current.t) if live.script.name == name)
    count, runs = live.restarts, live.script.runs
    if restart_policy == "no":  # restarts by the old policy no longer happen
        runs = tuple(run for run in runs if run.start_s <= current.t)
        count -= len([run for run in runs[1:] if not run.asked])
    count = max(0, count)
    return current.script.with_container(name, restart_policy=restart_policy, runs=runs, restart_count=count)


@_act
def create_container(current: Moment, script: ContainerScript, like: str = "") -> NodeScript:
    """Create a container, with the behaviour of `like` where a known one runs the same engine."""
    return with_new_container(current, script, like)


# The machine


@_act
def have_image(current: Moment, name: str) -> NodeScript:
    """An image has been pulled."""
    return storage.with_image(current.script, name)


@_act
def have_model(current: Moment, model: DiskModel) -> NodeScript:
    """A model, or a part of it, has been downloaded."""
    return storage.with_model(current.script, model)


@_act
def complete(current: Moment, port: int, tokens: int = 0) -> Scenario:
    """A completion of so many tokens is requested from an engine; the first one may trigger a fault."""
    return request.with_completion(*current.where, port, tokens)


@_act
def drop_caches(current: Moment) -> NodeScript:
    script, t = current.script, current.t
    cached, shared = script.tracks["cache_gib"].at(t), script.tracks["shared_gib"].at(t)
    least = min(cached, shared + 0.35)
    curve = [(t, cached), (t + 0.5, least), (t + 300, min(cached, least + 0.8))]
    return with_tracks(script, t, {"cache_gib": curve})


@_act
def linger(current: Moment, *, enabled: bool) -> NodeScript:
    """loginctl enable-linger or disable-linger of the login user."""
    return replace(current.script, machine=replace(current.script.machine, lingers=enabled))


@_act
def load_gpu(current: Moment, seconds: float) -> NodeScript:
    """A program of nobody's engine computes for so long."""
    burning = with_work(current.script, current.t, "burning")
    rested = replace(current, script=burning, t=current.t + seconds)
    return with_tracks(burning, rested.t, idle(rested))


@_act
def write_file(current: Moment, path: str, text: str | None) -> NodeScript:
    """Write a file, or with no text remove it."""
    script = current.script
    others = tuple(answer for answer in script.answers if answer.name != path)
    new = (CapturedAnswer(name=path, output=text),) if text is not None else ()
    return replace(script, answers=(*others, *new))


@_act
def apply_netplan(current: Moment) -> NodeScript:
    """The node with the addresses and MTUs that its files of netplan give, and the RoCE v2 GIDs of those."""
    script = current.script
    ethernets: dict[str, dict[str, Any]] = {}
    for answer in script.answers:
        if answer.name.startswith(("/etc/netplan/", "/run/netplan/")):
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


@_act
def signal_process(current: Moment, pid: int, signal: str) -> Scenario:
    """`signal` is TERM, KILL, HUP ..."""
    scenario, node, showing_s = current.where
    live = current.spark.process(pid, current.t)
    if live is None or signal not in ("TERM", "KILL", "HUP", "INT"):
        return scenario
    if signal == "HUP":
        is_shell = live.script.comm == "gnome-shell"
        return ranks.with_node(scenario, node, _with_shell_restarted(current)) if is_shell else scenario
    if live.script.container:
        code = 137 if signal == "KILL" else 1
        return ranks.end_container(scenario, node, showing_s, live.script.container, after_s=1.0, exit_code=code)
    end_s = current.t + (KILLED_S if signal == "KILL" else 1.5)
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


@_act
def desktop(current: Moment, way: str) -> NodeScript:
    """`way` is "manager" (restart the display manager) or "console" (stop it)."""
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


@_act
def unit(current: Moment, verb: str, name: str) -> NodeScript:
    """systemctl start, stop or restart of a unit."""
    script = current.script
    units = tuple(_after_verb(one, verb, current.t) if one.name == name else one for one in script.units)
    script = replace(script, units=units)
    own_pids = [process.pid for process in script.processes if process.cgroup.endswith(f"/{name}")]
    if verb == "start" or not own_pids:
        return script
    return _with_processes_ended(replace(current, script=script), own_pids, current.t + 1)


def _after_verb(unit: UnitScript, verb: str, t: float) -> UnitScript:
    if verb == "stop":
        return replace(unit, active="inactive", sub="dead", main_pid=None, restarts=unit.restarts.cut(t))
    return replace(unit, active="active", sub="running")


@_act
def reboot(current: Moment) -> Scenario:
    scenario, node, showing_s = current.where
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
