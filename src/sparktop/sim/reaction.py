"""What the Sparks of a scenario become when something is done to one of them: a scenario in, another out.

Nothing else in the simulator knows of actions: what reads a script reads the rewritten one. Up to the second of the
action it says what it said; from then on, what follows from it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from sparktop.sim import acts, answering, disk, images, ranks
from sparktop.sim.aftermath import Moment, released, with_tracks
from sparktop.sim.booting import BACK_S, SHUTDOWN_S, rebooted
from sparktop.sim.creating import created
from sparktop.sim.script import ContainerScript, NodeScript, Repeat, Scenario, UnitScript

KILLED_S = 0.4
"""From SIGKILL to the end of a container."""


def reacted(scenario: Scenario, node: str, showing_s: float, act: acts.Act) -> Scenario:
    """The scenario from a second of the showing on, when `act` is done to one of its nodes then."""
    return _done(act, held(scenario, showing_s), node, showing_s)


def held(scenario: Scenario, showing_s: float) -> Scenario:
    """Without what would mend it by itself, and without an end."""
    if scenario.repeat is Repeat.LOOP:
        return scenario
    cut_s = next((second for second in scenario.remedies_s if second > showing_s), None)
    nodes = scenario.nodes if cut_s is None else tuple(_without_remedy(node, cut_s) for node in scenario.nodes)
    return replace(scenario, repeat=Repeat.HOLD, remedies_s=(), nodes=nodes)


def _without_remedy(node: NodeScript, cut_s: float) -> NodeScript:
    """What the scenario holds up to a second, and then the end stays; cables and addresses are nobody's to act on."""

    def container(script: ContainerScript) -> ContainerScript:
        runs = tuple(
            replace(run, end_s=None, exit_code=0) if run.end_s is not None and run.end_s >= cut_s else run
            for run in script.runs if run.start_s < cut_s
        )  # fmt: skip
        return replace(script, runs=runs, log=tuple(entry for entry in script.log if entry.at_s < cut_s))

    processes = tuple(
        replace(
            one,
            end_s=one.end_s if one.end_s is not None and one.end_s < cut_s else None,
            gpu_gib=one.gpu_gib.cut(cut_s) if one.gpu_gib else None,
            resident_gib=one.resident_gib.cut(cut_s),
            swapped_gib=one.swapped_gib.cut(cut_s),
        )
        for one in node.processes if one.container or one.start_s < cut_s
    )  # fmt: skip
    engines = tuple(
        replace(
            one,
            tracks={name: track.cut(cut_s) for name, track in one.tracks.items()},
            serves=tuple((a, b if b < cut_s else float("inf")) for a, b in one.serves if a < cut_s),
        )
        for one in node.engines
    )
    return replace(
        node,
        tracks={name: track.cut(cut_s) for name, track in node.tracks.items()},
        containers=tuple(box for box in map(container, node.containers) if box.runs),
        processes=tuple(one for one in processes if not one.container or _lives(node, one.container, cut_s)),
        engines=tuple(one for one in engines if _lives(node, one.name, cut_s)),
        kernel=tuple(entry for entry in node.kernel if entry.at_s < cut_s),
    )


def _lives(node: NodeScript, name: str, cut_s: float) -> bool:
    return any(run.start_s < cut_s for box in node.containers if box.name == name for run in box.runs)


def moment(scenario: Scenario, node: str, showing_s: float) -> Moment:
    """A node at a second of the showing, in its own time."""
    script = next(one for one in scenario.nodes if one.name == node).at(showing_s)
    return Moment(scenario=scenario, script=script, t=showing_s - script.began_s)


def _with(scenario: Scenario, node: str, changed: NodeScript) -> Scenario:
    return ranks.with_node(scenario, node, changed)


@singledispatch
def _done(act: acts.Act, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    raise TypeError(f"nothing is known of {act!r}")


@_done.register
def _(act: acts.Hold, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return scenario


# Containers


@_done.register
def _(act: acts.StopContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    stop_s = ranks.container(moment(scenario, node, showing_s).script, act.name).reaction.stop_s
    listens = stop_s is not None and stop_s < act.grace_s
    after_s = stop_s if listens and stop_s is not None else act.grace_s + KILLED_S
    return ranks.ended(scenario, node, showing_s, act.name, after_s=after_s, exit_code=0 if listens else 137)


@_done.register
def _(act: acts.KillContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return ranks.ended(scenario, node, showing_s, act.name, after_s=KILLED_S, exit_code=act.exit_code)


@_done.register
def _(act: acts.StartContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return ranks.started(scenario, node, showing_s, act.name)


@_done.register
def _(act: acts.RenameContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    script = moment(scenario, node, showing_s).script
    old, new = f"<id of {act.name}>", f"<id of {act.new_name}>"
    renamed = replace(
        script,
        containers=tuple(
            replace(one, name=act.new_name, key=one.key or one.name) if one.name == act.name else one
            for one in script.containers
        ),
        processes=tuple(
            replace(
                one,
                container=act.new_name if one.container == act.name else one.container,
                cgroup=one.cgroup.replace(old, new),
            )
            for one in script.processes
        ),
        engines=tuple(replace(one, name=act.new_name) if one.name == act.name else one for one in script.engines),
        kernel=tuple(replace(entry, text=entry.text.replace(old, new)) for entry in script.kernel),
    )
    return _with(scenario, node, renamed)


@_done.register
def _(act: acts.RemoveContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    if any(live.running for live in now.spark.containers(now.t) if live.script.name == act.name):
        scenario = _done(acts.KillContainer(name=act.name), scenario, node, showing_s)
        now = moment(scenario, node, showing_s)
    removed = replace(
        now.script,
        containers=tuple(one for one in now.script.containers if one.name != act.name),
        processes=tuple(one for one in now.script.processes if one.container != act.name),
        engines=tuple(one for one in now.script.engines if one.name != act.name),
    )
    return _with(scenario, node, removed)


@_done.register
def _(act: acts.UpdateContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    boxes = []
    for box in now.script.containers:
        if box.name == act.name:
            count = next((live.restarts for live in now.spark.containers(now.t) if live.script.name == act.name), 0)
            runs = box.runs
            if act.restart_policy == "no":  # what its policy would have started no longer starts
                runs = tuple(run for run in runs if run.start_s <= now.t)
                count -= len([run for run in runs[1:] if not run.asked])
            box = replace(box, restart_policy=act.restart_policy, runs=runs, restart_count=max(0, count))
        boxes.append(box)
    return _with(scenario, node, replace(now.script, containers=tuple(boxes)))


@_done.register
def _(act: acts.CreateContainer, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    return _with(scenario, node, created(now, act.script, act.like))


@_done.register
def _(act: acts.Request, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return answering.asked(scenario, node, showing_s, act.port, act.tokens)


@_done.register
def _(act: acts.HaveImage, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return _with(scenario, node, images.with_image(moment(scenario, node, showing_s).script, act.name))


@_done.register
def _(act: acts.HaveModel, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    return _with(scenario, node, disk.with_model(moment(scenario, node, showing_s).script, act.model))


# The machine


@_done.register
def _(act: acts.DropCaches, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    cached, shared = now.script.tracks["cache_gib"].at(now.t), now.script.tracks["shared_gib"].at(now.t)
    least = min(cached, shared + 0.35)
    curve = [(now.t, cached), (now.t + 0.5, least), (now.t + 300, min(cached, least + 0.8))]
    return _with(scenario, node, with_tracks(now.script, now.t, {"cache_gib": curve}))


@_done.register
def _(act: acts.SignalProcess, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    live = next((one for one in now.spark.processes(now.t) if one.pid == act.pid), None)
    if live is None or act.signal not in ("TERM", "KILL", "HUP", "INT"):
        return scenario
    if act.signal == "HUP":
        return _with(scenario, node, _shell_anew(now)) if live.script.comm == "gnome-shell" else scenario
    if live.script.container:
        code = 137 if act.signal == "KILL" else 1
        return ranks.ended(scenario, node, showing_s, live.script.container, after_s=1.0, exit_code=code)
    end_s = now.t + (KILLED_S if act.signal == "KILL" else 1.5)
    return _with(scenario, node, _without(now, [live.script.pid], end_s))


def _without(now: Moment, pids: list[int], end_s: float) -> NodeScript:
    """The node whose processes of these pids (their scripts') end at a second, and give back what they held."""
    processes = tuple(replace(one, end_s=end_s) if one.pid in pids else one for one in now.script.processes)
    return released(replace(now, script=replace(now.script, processes=processes), t=end_s), pids)


def _shell_anew(now: Moment) -> NodeScript:
    """The shell replaces itself: it answers again, unless what it waits for is below it."""
    needs = now.script.reaction("desktop").needs
    if needs.reboot and not now.script.boots:
        return now.script
    curve = [(now.t, 0.0), (now.t + 3, 0.0), (now.t + 3, 1.0)]
    return with_tracks(now.script, now.t, {"desktop_answers": curve})


@_done.register
def _(act: acts.Desktop, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    back_s = now.t + 4 if act.way == "manager" else None
    fresh = []
    for one in now.script.processes:
        if not one.container and one.gpu_kind == "G" and one.gpu_gib is not None:
            fresh.append(replace(one, end_s=now.t + 1))
            if back_s is not None and one.comm in ("gnome-shell", "Xorg"):
                fresh.append(replace(one, pid=one.pid + 20_011, start_s=back_s, end_s=None))
        else:
            fresh.append(one)
    script = replace(now.script, processes=tuple(fresh))
    if back_s is None:
        script = replace(script, machine=replace(script.machine, graphical=False))
    return _with(scenario, node, _shell_anew(replace(now, script=script)))


@_done.register
def _(act: acts.Unit, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    script, ends = now.script, act.verb in ("stop", "restart", "kill")

    def unit(one: UnitScript) -> UnitScript:
        if one.name != act.name:
            return one
        if act.verb == "stop":
            return replace(one, active="inactive", sub="dead", main_pid=None, restarts=one.restarts.cut(now.t))
        return replace(one, active="active", sub="running")

    script = replace(script, units=tuple(unit(one) for one in script.units))
    mine = [one.pid for one in script.processes if one.cgroup.endswith(f"/{act.name}")]
    if not (ends and mine):
        return _with(scenario, node, script)
    return _with(scenario, node, _without(replace(now, script=script), mine, now.t + 1))


@_done.register
def _(act: acts.Reboot, scenario: Scenario, node: str, showing_s: float) -> Scenario:
    now = moment(scenario, node, showing_s)
    running = [live.script.name for live in now.spark.containers(now.t) if live.running]
    for name in running:  # the other ranks of its engines wait in vain
        scenario = ranks.ended(scenario, node, showing_s, name, after_s=SHUTDOWN_S, exit_code=137)
    now = moment(scenario, node, showing_s)
    scenario = _with(scenario, node, rebooted(now))
    for box in now.script.containers:  # those that somebody stopped stay so
        if box.restart_policy == "always" or (box.restart_policy == "unless-stopped" and box.name in running):
            scenario = ranks.started(scenario, node, showing_s + BACK_S, box.name)
    return scenario
