"""Rules on engines that ended badly, restart loops, restarts too soon, and restarts by both Docker and systemd."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.container_exit import LOOPING, TOO_SOON_S, ending_of, endings, loop, restart_count
from sparktop.diagnose.ended_by import exit_code, failed, oom_kill
from sparktop.diagnose.names import names_of
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.engine.down import RECENT_S, Down, down, is_reported_elsewhere, remedies
from sparktop.diagnose.rules.memory.held import OTHER_HOLDER_BYTES
from sparktop.diagnose.rules.window import of_engine
from sparktop.knowledge.card import found
from sparktop.model.engine import ORDINARY_EXITS, Container, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Unit
from sparktop.text.units import GIB, gib

BEFORE_END_S = 120.0
"""What memory did so long before an end may have led to it."""
LOOP_UPTIME_S = 600.0
ROUNDING_BYTES = 1 * GIB
"""A share is met by what is available within this."""


@live_rule("restart.ended", clear_s=0.0, follows=("cluster.rank-died",))
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
    ending = ending_of(container.exit_code, oom_killed=container.oom_killed, called=names_of(engine))
    ending = ending or endings()["log"]
    kill = oom_kill(node, container, ended_s)
    text = f"{container.name}: exited, exit code {container.exit_code}{', OOMKilled' * container.oom_killed}"
    text += f", restart policy {container.restart_policy or 'no'}"
    evidence = [Evidence(source=f"docker @ {node.name}", text=text, wall_s=ended_s)]
    if engine.log is not None and engine.log.failure and container.exit_code in ORDINARY_EXITS:
        evidence.append(of_engine(engine, node, engine.log.failure))
    worst = engine.log.critical_finding if engine.log else None
    cause = worst.rule if worst else None
    is_killed = container.exit_code == 137 or container.oom_killed  # vLLM, its core killed, exits with 0 itself
    by_kernel = kill if kill is not None and (is_killed or kill.container_id is not None) else None
    if by_kernel is not None:
        evidence.append(Evidence(source=f"{node.name} kernel log", text=by_kernel.text, wall_s=by_kernel.last_wall_s))
        cause = "kernel.oom-kill"
    lowest = _lowest_available(missing)
    if lowest is not None:
        evidence.append(Evidence(source=f"{node.name} memory", text=f"at least {gib(lowest)} stayed available"))
    figures = {
        "engine": missing.name,
        "says": ending.says,
        "lost": missing.lost,
        "why": ending.explanation,
        "victim": by_kernel and (by_kernel.process or "it"),
        "has_spare": container.exit_code == 137 and kill is None and lowest is not None and lowest > 16 * GIB,
    }
    told = found("restart.ended", "container", figures)
    settles = "" if by_kernel is not None else ending.settles
    finding = replace(ending, explanation=told.explanation, settles=settles).finding(engine.name, tuple(evidence))
    if missing.has_served:
        severity = Severity.CRITICAL if missing.requests else finding.severity  # as engine.down tells of other ends
        finding = replace(finding, title=told.title, severity=severity)
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
    if engine.log is None or not engine.log.failure:
        return
    gone = found(
        "restart.ended",
        "process",
        {"engine": engine.name, "name": missing.has_served and missing.name, "lost": missing.lost},
        severity=Severity.CRITICAL if missing.requests else Severity.WARNING,
        references=(),
        evidence=(of_engine(engine, node, engine.log.failure, wall_s=ended_s),),
        nodes=(node.name,),
        subject=engine.name,
        caused_by=engine.log.findings[0].rule if engine.log.findings else None,
        since_wall_s=ended_s,
    )
    yield replace(gone, rule="restart.failed")


@live_rule("restart.loop", clear_s=30.0)
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
    return found(
        "restart.loop",
        "systemd",
        {"unit": unit.name, "restarts": unit.restarts, "delay_s": unit.restart_delay_s, "policy": unit.restart or "?"},
        evidence=(
            Evidence(
                source=f"systemd @ {node.name}",
                text=f"{unit.name}: {unit.active} ({unit.sub}), result {unit.result}, NRestarts {unit.restarts}",
            ),
        ),
        nodes=(node.name,),
        subject=unit.name,
    )


STARTING = (EngineState.UNKNOWN, EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


@live_rule("restart.too-soon")
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
            yield found(
                "restart.too-soon",
                "short",
                {
                    "engine": engine.name,
                    "gap_s": gap_s,
                    "needed_gib": needed_bytes / GIB,
                    "available_gib": available_bytes / GIB,
                },
                evidence=(
                    Evidence(source=f"docker @ {node.name}", text=f"started {gap_s:.0f} s after it finished"),
                    Evidence(source=f"{node.name} memory", text=f"{gib(available_bytes)} available at the start"),
                ),
                nodes=(node.name,),
                subject=engine.name,
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
        share = float(engine.command.value("gpu-memory-utilization", "mem-fraction-static") or "")
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


@live_rule("restart.policies-fight")
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
                policy, box = container.restart_policy, container.name
                yield found(
                    "restart.policies-fight",
                    "both",
                    {"engine": engine.name, "container": box, "policy": policy, "unit": unit.name},
                    evidence=(
                        Evidence(source=f"docker @ {node.name}", text=f"{box}: restart {policy}"),
                        Evidence(source=f"systemd @ {node.name}", text=f"{unit.name}: Restart={unit.restart}"),
                    ),
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
