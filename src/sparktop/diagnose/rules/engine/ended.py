"""Rules on engines that ended badly, restart loops, restarts too soon, and restarts by both Docker and systemd."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace

from sparktop.cmdline.engine_command import command_of
from sparktop.diagnose.container_exit import LOOPING, TOO_SOON_S, Ending, ending_of, loop, restart_count
from sparktop.diagnose.ended_by import exit_code, failed
from sparktop.diagnose.names import names_of
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.engine.down import RECENT_S, Down, down, is_reported_elsewhere, remedies
from sparktop.diagnose.rules.memory.held import OTHER_HOLDER_BYTES
from sparktop.diagnose.rules.window import of_engine
from sparktop.model.engine import ORDINARY_EXITS, Container, Engine, EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Unit
from sparktop.text.units import GIB, gib

KILL_WINDOW_S = 30.0
"""A kernel OOM kill this close to a container's end caused it."""
BEFORE_END_S = 120.0
"""What memory did so long before an end may have led to it."""
LOOP_UPTIME_S = 600.0
ROUNDING_BYTES = 1 * GIB
"""A share is met by what is available within this."""
_SOURCES = ("field report 004", "Docker: restart policies")

_BY_ITS_LOG = Ending(
    rule="restart.failed",
    severity=Severity.CRITICAL,
    says="failed, by its log (exit code 0)",
    explanation=(
        "Its log says that it died. vLLM then exits with 0, as after a stop: the code proves nothing, and the restart "
        "policy `on-failure`, Docker's or systemd's, doesn't start it again."
    ),
    sources=("vLLM 0.32: EngineCore killed under load",),
)


@live_rule(
    "restart.ended",
    "An engine failed",
    Severity.CRITICAL,
    scope="any engine in a container, or a systemd service that runs one",
    sources=_SOURCES,
    clear_s=0.0,
    follows=("cluster.rank-died",),
)
def ended(fleet: FleetState) -> Iterator[Finding]:
    """Engines that ended badly, with what their exit code proves: of one that never served for some minutes."""
    for missing in down(fleet):
        if missing.by is not None or missing.is_since_reboot or is_reported_elsewhere(missing, fleet):
            continue
        if failed(missing.engine) and (missing.has_served or missing.ago_s < RECENT_S):
            for finding in _exit_finding(missing):
                offered = remedies(missing, fleet, finding.remedies) if missing.has_served else finding.remedies
                yield replace(finding, remedies=offered)


def _exit_finding(missing: Down) -> Iterator[Finding]:
    node, engine, ended_s = missing.node, missing.engine, missing.ended_s
    container = engine.container
    if container is None or exit_code(engine) is None:
        yield from _lost_process(missing)
        return
    ending = ending_of(container.exit_code, oom_killed=container.oom_killed, called=names_of(engine)) or _BY_ITS_LOG
    kill = _oom_kill(node, container, ended_s)
    text = f"{container.name}: exited, exit code {container.exit_code}{', OOMKilled' * container.oom_killed}"
    text += f", restart policy {container.restart_policy or 'no'}"
    evidence = [Evidence(source=f"docker @ {node.name}", text=text, wall_s=ended_s)]
    if engine.log is not None and engine.log.failure and container.exit_code in ORDINARY_EXITS:
        evidence.append(of_engine(engine, node, engine.log.failure))
    worst = engine.log.critical_finding if engine.log else None
    cause = worst.rule if worst else None
    is_killed = container.exit_code == 137 or container.oom_killed  # vLLM, its core killed, exits with 0 itself
    if kill is not None and (is_killed or kill.container_id is not None):
        evidence.append(Evidence(source=f"{node.name} kernel log", text=kill.text, wall_s=kill.last_wall_s))
        killed = f"The kernel's OOM killer killed it: the kernel's line names {kill.process or 'it'}."
        ending, cause = replace(ending, explanation=killed, settles=""), "kernel.oom-kill"
    lowest = _lowest_available(missing)
    if lowest is not None:
        evidence.append(Evidence(source=f"{node.name} memory", text=f"at least {gib(lowest)} stayed available"))
        if container.exit_code == 137 and kill is None and lowest > 16 * GIB:
            not_short = "Memory was not short in the last minutes, so another sender is likelier."
            ending = replace(ending, explanation=f"{ending.explanation} {not_short}")
    finding = ending.finding(engine.name, tuple(evidence))
    if missing.has_served:
        severity = Severity.CRITICAL if missing.requests else finding.severity  # as engine.down tells of other ends
        title = f"{missing.name} is down: it {ending.says}{missing.lost}"
        finding = replace(finding, title=title, severity=severity)
    yield replace(finding, nodes=(node.name,), caused_by=cause, since_wall_s=ended_s)


def _lowest_available(missing: Down) -> float | None:
    """The least memory that was available in the last minutes of the run, in bytes; None where nobody saw it."""
    node, container = missing.node, missing.engine.container
    if node.sample_at_s is None:
        return None
    end_s = node.sample_at_s - missing.ago_s
    started_s = container.started_wall_s if container is not None else None
    ran_s = BEFORE_END_S if started_s is None else missing.ended_s - started_s
    times, values = node.available_history.times, node.available_history.values
    first, after = bisect_left(times, end_s - min(ran_s, BEFORE_END_S)), bisect_right(times, end_s)
    return min((value for value in values[first:after] if value is not None), default=None)


def _lost_process(missing: Down) -> Iterator[Finding]:
    """A process that is gone without an exit code: its container runs on, or it had none."""
    node, engine, ended_s = missing.node, missing.engine, missing.ended_s
    is_down = f"{missing.name} is down: it " if missing.has_served else f"{engine.name} "
    if engine.log is None or not engine.log.failure:
        return
    yield Finding(
        rule="restart.failed",
        severity=Severity.CRITICAL if missing.requests else Severity.WARNING,
        confidence=Confidence.SUSPECTED,
        title=f"{is_down}failed, by its log{missing.lost}",
        explanation="Its process is gone, and sparktop can't read its exit code.",
        settles="the log of that run",
        evidence=(of_engine(engine, node, engine.log.failure, wall_s=ended_s),),
        nodes=(node.name,),
        subject=engine.name,
        caused_by=engine.log.findings[0].rule if engine.log.findings else None,
        since_wall_s=ended_s,
    )


def _oom_kill(node: NodeView, container: Container, ended_s: float) -> KernelEvent | None:
    """The OOM kill that ended a container: by container id, else one close in time without a known container."""
    kills = [event for event in node.kernel_events if event.kind == "oom-kill"]
    near = [event for event in kills if abs((event.last_wall_s or 0.0) - ended_s) <= KILL_WINDOW_S]
    own = [
        event
        for event in near
        if event.container_id is not None and container.container_id.startswith(event.container_id)
    ]
    return next(iter(own or [event for event in near if event.container_id is None]), None)


@live_rule(
    "restart.loop",
    "An engine is in a restart loop",
    Severity.CRITICAL,
    scope="any engine in a container, or a systemd service that runs one",
    sources=_SOURCES,
    clear_s=30.0,
)
def restart_loop(fleet: FleetState) -> Iterator[Finding]:
    """Containers and services that are restarted again and again."""
    for node in fleet.nodes:
        for engine in node.engines:
            container = engine.container
            if container is not None and is_looping(engine, container):
                age = "?" if engine.uptime_s is None else f"{engine.uptime_s:.0f} s"
                text = f"{container.name}: {container.status}, {container.restart_count} restarts, up {age}"
                source = Evidence(source=f"docker @ {node.name}", text=text)
                finding = loop(
                    engine.name, container.restart_count, policy=container.restart_policy, evidence=(source,)
                )
                worst = engine.log.critical_finding if engine.log else None
                yield replace(
                    finding,
                    nodes=(node.name,),
                    brief=restart_count(container.restart_count),
                    caused_by=worst.rule if worst else None,
                )
        for unit in node.facts.units if node.facts else ():
            if (unit.restarts or 0) >= LOOPING and (unit.active == "activating" or unit.result not in ("", "success")):
                yield _unit_loop(node, unit)


def is_looping(engine: Engine, container: Container) -> bool:
    """Whether Docker starts it again and again, and this start hasn't come further than those before."""
    if container.status == "restarting":
        return True
    if engine.log is not None and engine.log.has_come_further:
        return False  # what ended it again and again didn't end it this time
    is_young = engine.uptime_s is not None and engine.uptime_s < LOOP_UPTIME_S
    return (
        container.restart_count >= LOOPING and container.status == "running" and is_young and engine.state in STARTING
    )


def _unit_loop(node: NodeView, unit: Unit) -> Finding:
    delay = f" {unit.restart_delay_s:.0f} s after each exit" if unit.restart_delay_s is not None else ""
    return Finding(
        rule="restart.loop",
        severity=Severity.CRITICAL,
        title=f"{unit.name} is in a restart loop: systemd has started it {unit.restarts} times",
        explanation=(
            f"The service exits, and systemd restarts it{delay} (Restart={unit.restart or '?'}). For an engine on a "
            "Spark less than 60 s is too soon: its memory is free only after seconds to minutes. The service's "
            "journal says why it exits."
        ),
        evidence=(
            Evidence(
                source=f"systemd @ {node.name}",
                text=f"{unit.name}: {unit.active} ({unit.sub}), result {unit.result}, NRestarts {unit.restarts}",
            ),
        ),
        remedies=(
            Remedy(
                title="Stop the service, then read why it exits",
                steps=(f"sudo systemctl stop {unit.name}", f"journalctl -u {unit.name} -n 400 | sparktop explain"),
                cost="the engine stays down until it is started",
                action="break-restart-loop",
            ),
            Remedy(
                title="Give it a pause and a limit",
                steps=("[Unit] StartLimitBurst=3, StartLimitIntervalSec=600", "[Service] RestartSec=60"),
                cost="nothing",
            ),
        ),
        references=("field report 004",),
        nodes=(node.name,),
        subject=unit.name,
        brief=f"{unit.restarts} restarts",
    )


STARTING = (EngineState.UNKNOWN, EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


@live_rule(
    "restart.too-soon",
    "Started before memory was free",
    Severity.WARNING,
    scope="any engine in a container",
    sources=_SOURCES,
)
def too_soon(fleet: FleetState) -> Iterator[Finding]:
    """A loading engine that was started right after its last run ended, with less memory available than it asks for."""
    for node in fleet.nodes:
        memory = node.sample.memory if node.sample else None
        for engine in node.engines:
            container = engine.container
            if memory is None or container is None or engine.state not in STARTING or not container.started_wall_s:
                continue
            if engine.log is not None and engine.log.has_come_further:
                continue  # it has got past what memory it found
            gap_s = container.started_wall_s - (container.finished_wall_s or 0.0)
            needed_bytes = _requested_bytes(engine, memory.total_bytes)
            available_bytes = _available_at(node, container.started_wall_s)
            if (
                not 0 <= gap_s < TOO_SOON_S
                or needed_bytes is None
                or available_bytes is None
                or available_bytes >= needed_bytes - ROUNDING_BYTES
                or max(OTHER_HOLDER_BYTES, needed_bytes - available_bytes) <= _held_by_others(node, engine)
            ):
                continue
            yield Finding(
                rule="restart.too-soon",
                severity=Severity.WARNING,
                title=f"{engine.name} started {gap_s:.0f} s after its last run, before memory was free",
                explanation=(
                    f"It asks for {needed_bytes / GIB:.0f} GiB, and {available_bytes / GIB:.0f} GiB were available "
                    "when it started: memory of the previous run, or of a process that ended then, wasn't free yet. It "
                    "may measure too little memory, or be killed with exit code 137."
                ),
                distinction=(
                    "Memory that never becomes free is another finding; here the pause before the start was too short.",
                ),
                evidence=(
                    Evidence(source=f"docker @ {node.name}", text=f"started {gap_s:.0f} s after it finished"),
                    Evidence(source=f"{node.name} memory", text=f"{gib(available_bytes)} available at the start"),
                ),
                remedies=(
                    Remedy(
                        title="Stop it, wait until available memory stays constant, then start it",
                        steps=(f"docker stop -t 60 {engine.name}", "grep MemAvailable /proc/meminfo"),
                        cost="up to 5 minutes",
                        action="safe-restart",
                    ),
                ),
                references=("field report 004",),
                nodes=(node.name,),
                subject=engine.name,
                brief=f"{available_bytes / GIB:.0f} of {needed_bytes / GIB:.0f} GiB at the start",
            )


def _held_by_others(node: NodeView, engine: Engine) -> int:
    """What processes of others hold on the GPU: memory that no pause before the start would have freed. Those of its
    own container are the run before, or this one, whose processes aren't all known yet."""
    own = engine.container.container_id if engine.container else None
    table = node.processes.processes if node.processes else ()
    others = {process.pid for process in table if process.container_id != own} - set(engine.pids)
    return sum(user.used_bytes or 0 for user in node.gpu_processes if user.pid in others)


def _requested_bytes(engine: Engine, total_bytes: int) -> float | None:
    """The memory its own argument asks for; None if it leaves that to a default."""
    try:
        share = float(command_of(engine).value("gpu-memory-utilization", "mem-fraction-static") or "")
    except ValueError:
        return None
    return share * total_bytes if 0 < share <= 1 else None


def _available_at(node: NodeView, wall_s: float) -> float | None:
    """Available memory at most three seconds before a moment of the node's time, from the history."""
    history, sample, at_s = node.available_history, node.sample, node.sample_at_s
    if sample is None or at_s is None:
        return None
    moment_s = at_s - (sample.wall_s - wall_s)
    near = (
        value
        for time_s, value in zip(reversed(history.times), reversed(history.values), strict=True)
        if value is not None and moment_s - 3.0 < time_s <= moment_s
    )
    return next(near, None)


@live_rule(
    "restart.policies-fight",
    "Docker and systemd both restart one container",
    Severity.WARNING,
    scope="any engine in a container",
    sources=_SOURCES,
)
def policies_fight(fleet: FleetState) -> Iterator[Finding]:
    """A container that Docker and systemd both restart: if one stops it, the other starts it."""
    for node in fleet.nodes:
        units = node.facts.units if node.facts else ()
        for engine in node.engines:
            container = engine.container
            if container is None or container.restart_policy in ("", "no"):
                continue
            for unit in units:
                if unit.restart in ("", "no") or not _is_unit_of(unit, container):
                    continue
                yield Finding(
                    rule="restart.policies-fight",
                    severity=Severity.WARNING,
                    confidence=Confidence.SUSPECTED,
                    title=f"Docker ({container.restart_policy}) and systemd ({unit.name}) both restart {engine.name}",
                    explanation=(
                        "Two keepers of one container race: after a crash Docker starts it within 0.1 s and the unit's "
                        "own pause is passed over, and a stop by one is undone by the other."
                    ),
                    settles=f"`systemctl cat {unit.name}`: does its ExecStart run this container?",
                    evidence=(
                        Evidence(
                            source=f"docker @ {node.name}", text=f"{container.name}: restart {container.restart_policy}"
                        ),
                        Evidence(source=f"systemd @ {node.name}", text=f"{unit.name}: Restart={unit.restart}"),
                    ),
                    remedies=(
                        Remedy(
                            title="Leave it to systemd, which can wait for memory",
                            steps=(f"docker update --restart=no {container.name}",),
                            cost="nothing",
                        ),
                    ),
                    references=("field report 004",),
                    nodes=(node.name,),
                    subject=engine.name,
                )


def _is_unit_of(unit: Unit, container: Container) -> bool:
    stem = unit.name.removesuffix(".service")
    return (
        bool(stem)
        and stem not in ("docker", "containerd", "podman")
        and (stem == container.name or container.name in stem)
    )
