"""What ended an engine, where that is known better than its exit code says: a console, a reboot or the guard; and which
engine has taken its place."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.diagnose.container_exit import ending_of
from sparktop.engines.labels import name_set_aside
from sparktop.engines.ranks import EngineRank, is_alive
from sparktop.model.engine import STOPPED_EXITS, Container, Engine
from sparktop.model.event import KernelEvent
from sparktop.model.fleet import FleetState, Intervention, NodeView, boot_s_now, node_wall_s
from sparktop.model.guard import GuardPhase, GuardState, pid_of
from sparktop.text.units import duration

CLOCK_SLACK_S = 3.0
"""Docker's stamp of an end against the console's stamps of the step that ended it."""
REBOOT_BEFORE_S, REBOOT_AFTER_S = 180.0, 60.0
"""An engine that ended so long before a boot, or this soon after it, ended with the machine."""
REBOOT_LASTS_S = 1200.0
"""A console waits 15 min for a node to come back; a later boot is another one."""
GUARD_REPORTED_S = 3600.0
"""The guard's kill is reported for an hour, or until the container runs again."""
SAME_END_S = 30.0
"""The guard's kill against Docker's stamp of the end."""
KILL_WINDOW_S = 30.0
"""A kernel OOM kill this close to a container's end caused it."""
BREAKS_LOOP = "break-restart-loop"
_NOUNS = {"stop-engine": "stop", BREAKS_LOOP: "stop of its restart loop"}
"""Actions whose names are no nouns."""


def stop_cause(node: NodeView, engine: Engine, fleet: FleetState) -> str:
    """How an engine ended, where that is known better than its exit code says: "stopped by you (40 s ago)"; else "".

    Known are a console's stops and reboots, and the kills of the guard and of the kernel.
    """
    now_s, ended_s = node_wall_s(node, fleet), engine.exited_wall_s
    if is_alive(engine) or now_s is None or ended_s is None:
        return ""
    if ended_by_guard(node, engine):
        words = "killed by the guard"
    else:
        by = stopped_by(node, engine, fleet)
        if by is not None and by.is_under_way:
            return doing(by)
        if is_since_reboot(by, node, engine, fleet):
            words = f"down {since_reboot(by)}"
        elif by is not None:
            words = stopped(by)
        elif engine.container and (kill := oom_kill(node, engine.container, ended_s)) and kill.container_id:
            words = "killed by the kernel, out of memory"
        else:
            return ""
    return f"{words} ({duration(max(0.0, now_s - ended_s))} ago)"


def exit_code(engine: Engine) -> int | None:
    """The exit code of its container, if that has ended."""
    container = engine.container
    return container.exit_code if container is not None and container.status in ("exited", "dead") else None


def failed(engine: Engine) -> bool:
    """Whether its log or its exit code tells of a failure that nobody meant.

    A vLLM whose EngineCore dies exits with 0, as after a stop, and logs its shutdown: of these the log decides.
    """
    log, container, code = engine.log, engine.container, exit_code(engine)
    if log is not None and log.failure and (not log.is_stopping or log.critical_finding is not None):
        return code not in STOPPED_EXITS
    if code is None or container is None or (log is not None and log.is_stopping):
        return False
    return ending_of(code, oom_killed=container.oom_killed) is not None


def successor(engine: Engine, node: NodeView) -> Engine | None:
    """The running engine of the node that took its place: it has its name or its port, or was started for its model
    after the end; None without one."""
    ended_s, now_s = engine.exited_wall_s, node.sample.wall_s if node.sample else 0.0
    names = {engine.name, name_set_aside(engine.name)}
    port = engine.endpoint.port if engine.endpoint else None
    return next(
        (
            other
            for other in node.engines
            if is_alive(other)
            and (
                other.name in names
                or (
                    engine.model is not None
                    and other.model == engine.model
                    and other.uptime_s is not None
                    and ended_s is not None
                    and now_s - other.uptime_s >= ended_s
                )
                or (port is not None and other.endpoint is not None and other.endpoint.port == port)
            )
        ),
        None,
    )


def stopped_by(node: NodeView, engine: Engine, fleet: FleetState) -> Intervention | None:
    """The console's step during which an engine ended; also one that broke its loop between two runs."""
    now_s, ended_s = node_wall_s(node, fleet), engine.exited_wall_s
    if now_s is None or ended_s is None:
        return None
    ended_here_s = ended_s + fleet.wall_s - now_s
    for one in reversed(fleet.interventions):
        if one.node != node.name or not (one.is_reboot or _is_of(one, engine)):
            continue
        # A step that checks what it has stopped may end before the stop is stamped.
        if one.is_reboot:
            until_s = _rebooted_until(one, node, fleet)
        else:
            until_s = fleet.wall_s if one.ended_wall_s is None else one.ended_wall_s
        if one.began_wall_s - CLOCK_SLACK_S <= ended_here_s <= until_s + CLOCK_SLACK_S:
            return one
        if one.action == BREAKS_LOOP and ended_here_s < one.began_wall_s:
            return one
    return None


def rebooted_by(node: NodeView, fleet: FleetState) -> Intervention | None:
    """The console's reboot that the node's boot came of."""
    if node.sample is None:
        return None
    booted_s = fleet.wall_s - boot_s_now(node, node.sample, fleet)
    ours = (one for one in reversed(fleet.interventions) if one.is_reboot and one.node == node.name)
    return next((one for one in ours if 0 <= booted_s - one.began_wall_s + CLOCK_SLACK_S <= REBOOT_LASTS_S), None)


def is_being_stopped(team: Sequence[EngineRank], fleet: FleetState) -> bool:
    """Whether a console's run that goes on has stopped one of these ranks, or is about to: it leaves the others
    waiting, which is no fault."""
    return any(
        one.is_under_way
        and one.node == rank.node.name
        and _is_of(one, rank.engine)
        and not _has_started_since(one, rank.engine, fleet)
        for one in fleet.interventions
        for rank in team
    )


def _has_started_since(one: Intervention, engine: Engine, fleet: FleetState) -> bool:
    return is_alive(engine) and engine.uptime_s is not None and fleet.wall_s - engine.uptime_s > one.began_wall_s


def _rebooted_until(reboot: Intervention, node: NodeView, fleet: FleetState) -> float:
    """Until when an engine's end belongs to a reboot: the boot after it, else the time that going down takes."""
    booted_s = None if node.sample is None else fleet.wall_s - boot_s_now(node, node.sample, fleet)
    if booted_s is None or booted_s < reboot.began_wall_s - CLOCK_SLACK_S:
        return reboot.began_wall_s + REBOOT_BEFORE_S
    return min(booted_s + REBOOT_AFTER_S, reboot.began_wall_s + REBOOT_LASTS_S)


def ended_by_guard(node: NodeView, engine: Engine) -> bool:
    """Whether the guard stopped this engine; guard.fired reports that."""
    guard, ended_s = node.guard, engine.exited_wall_s
    if guard is None or guard.phase is not GuardPhase.FIRED or ended_s is None:
        return False
    pid = pid_of(guard.container_id)
    target = engine.container.container_id if engine.container is not None else engine.key
    is_target = target == (guard.container_id if pid is None else f"pid:{pid}")
    return is_target and abs(ended_s - (guard.since_wall_s or ended_s)) < SAME_END_S


def oom_kill(node: NodeView, container: Container, ended_s: float) -> KernelEvent | None:
    """The OOM kill that ended a container: by container id, else one close in time without a known container."""
    kills = [event for event in node.kernel_events if event.kind == "oom-kill"]
    near = [event for event in kills if abs((event.last_wall_s or 0.0) - ended_s) <= KILL_WINDOW_S]
    own = [
        event
        for event in near
        if event.container_id is not None and container.container_id.startswith(event.container_id)
    ]
    return next(iter(own or [event for event in near if event.container_id is None]), None)


def is_guard_reported(node: NodeView, fleet: FleetState) -> bool:
    """Whether guard.fired reports the node's guard now."""
    guard = node.guard
    return guard is not None and guard.available_bytes is not None and not is_guard_outdated(node, guard, fleet)


def is_guard_outdated(node: NodeView, guard: GuardState, fleet: FleetState) -> bool:
    """Whether the container (by name: a relaunch changes its id) or the engine runs again, or the event is too old."""
    since_s, now_s = guard.since_wall_s, node_wall_s(node, fleet)
    if since_s is None:
        return False
    if now_s is not None and now_s - since_s > GUARD_REPORTED_S:
        return True
    if (pid := pid_of(guard.container_id)) is not None:
        others = (engine for engine in node.engines if engine.key != f"pid:{pid}")
        return any(engine.name == guard.container_name and is_alive(engine) for engine in others)
    return any(
        container.name == guard.container_name
        and container.status == "running"
        and (container.started_wall_s or 0.0) > since_s
        for container in node.containers.containers
    )


def is_since_reboot(by: Intervention | None, node: NodeView, engine: Engine, fleet: FleetState) -> bool:
    """Whether it ended with the machine, of the console's reboot `by` or of any other."""
    if by is not None and by.is_reboot:
        return True
    container, ended_s = engine.container, engine.exited_wall_s
    if node.sample is None or ended_s is None:
        return False
    booted_s = node.sample.wall_s - node.sample.boot_s
    started_s = container.started_wall_s if container is not None else None
    if started_s is not None and started_s < booted_s <= ended_s:
        return True  # what a panic or lost power ended, Docker stamps when it starts itself, however late in the boot
    if not booted_s - REBOOT_BEFORE_S <= ended_s <= booted_s + REBOOT_AFTER_S:
        return False
    booted_here_s = fleet.wall_s - boot_s_now(node, node.sample, fleet)
    ordered = (one.began_wall_s for one in fleet.interventions if one.node == node.name and one.is_reboot)
    # Of a reboot whose beginning is known, what ended before had another end.
    return not any(began_s - CLOCK_SLACK_S <= booted_here_s <= began_s + REBOOT_LASTS_S for began_s in ordered)


def _is_of(intervention: Intervention, engine: Engine) -> bool:
    if engine.container is not None and engine.container.container_id in intervention.containers:
        return True
    return not intervention.containers and intervention.engine == engine.name


def _whose(by: Intervention) -> str:
    return f"{by.who}'s" if by.who else "your"


def work(by: Intervention) -> str:
    """ "safe restart"."""
    return _NOUNS.get(by.action) or by.action.replace("-", " ")


def doing(by: Intervention) -> str:
    """ "your safe restart is in progress"."""
    return f"{_whose(by)} {work(by)} is in progress"


def since_reboot(by: Intervention | None) -> str:
    """ "since your reboot"."""
    return f"since {_whose(by) if by is not None else 'the'} reboot"


def stopped(by: Intervention) -> str:
    """ "stopped by you", "your safe restart left it stopped"."""
    return f"stopped by {by.who or 'you'}" if by.is_meant else f"{_whose(by)} {work(by)} left it stopped"
