"""Engines that ended badly, and those that are started again and again (facts/engines.md 1D, field report 004)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.enginecommand import joins_ray
from sparktop.diagnose.exits import LOOPING, ending_of, loop
from sparktop.diagnose.live.guard import ended_by_guard
from sparktop.diagnose.live.ranks import Rank, is_alive, other_ranks
from sparktop.diagnose.live.start import STARTING
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import Container, Engine, EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Unit

RECENT_S = 600.0
"""An ending is told for ten minutes; after that it is the engine table's."""
KILL_WINDOW_S = 30.0
"""A kernel kill this close to a container's end is taken for its end."""
HEAD_SEEN_S = 15.0
"""Another node's containers are listed some seconds late: by then the end of a head is known."""
LOOP_UPTIME_S = 600.0
_GIB = 1024**3


def check_ended(fleet: FleetState) -> Iterator[Finding]:
    """Engines that ended badly in the last minutes, with what their exit code proves."""
    for node in fleet.nodes:
        now_s = node.sample.wall_s if node.sample else None
        for engine in node.engines:
            ended_s = engine.exited_wall_s
            if engine.state is not EngineState.EXITED or ended_s is None or now_s is None:
                continue
            if now_s - ended_s < RECENT_S and not (
                (engine.log and engine.log.is_stopping)
                or ended_by_guard(node, engine)
                or _went_with_its_head(engine, node, fleet, now_s - ended_s)
            ):
                yield from _ended(node, engine, ended_s)


def _went_with_its_head(engine: Engine, node: NodeView, fleet: FleetState, ago_s: float) -> bool:
    """`ray start --block` ends with code 1 when the head's Ray is gone: what is to be told of is the head's end."""
    box = engine.container
    if box is None or not joins_ray(box.argv) or box.exit_code not in (None, 0, 1):
        return False
    if ago_s < HEAD_SEEN_S:
        return True
    heads = [other.engine for other in other_ranks(Rank(node=node, engine=engine), fleet)]
    # One that began afterwards is another launch's, or the same one's started again: ages, as clocks differ.
    return bool(heads) and all(not is_alive(head) or (head.uptime_s or 0.0) < ago_s for head in heads)


def _ended(node: NodeView, engine: Engine, ended_s: float) -> Iterator[Finding]:
    box = engine.container
    if box is None or box.exit_code is None or box.status not in ("exited", "dead"):
        yield from _vanished(node, engine, ended_s)
        return
    ending = ending_of(box.exit_code, oom_killed=box.oom_killed, name=engine.name)
    if ending is None:
        return
    kill = _kill(node, box, ended_s)
    evidence = [Evidence(source=f"docker @ {node.name}", text=_state(box), wall_s=ended_s)]
    explanation, settles, cause = ending.explanation, ending.settles, None
    confidence = Confidence.SUSPECTED if settles else Confidence.CONFIRMED
    if kill is not None and box.exit_code == 137:
        evidence.append(Evidence(source=f"{node.name} kernel log", text=kill.text, wall_s=kill.last_wall_s))
        explanation = f"The kernel's OOM killer ended it for want of memory: its line names {kill.process or 'it'}."
        confidence, settles, cause = Confidence.CONFIRMED, "", "kernel.oom-kill"
    if (low := _lowest(node)) is not None:
        evidence.append(Evidence(source=f"{node.name} memory", text=f"at least {low / _GIB:.1f} GiB stayed available"))
        if box.exit_code == 137 and kill is None and low > 16 * _GIB:
            explanation += " Memory was not short in the last minutes, so another sender is likelier."
    worst = (
        next((one for one in engine.log.findings if one.severity is Severity.CRITICAL), None) if engine.log else None
    )
    yield Finding(
        rule=ending.rule,
        severity=ending.severity,
        confidence=confidence,
        title=f"{engine.name} {ending.says}",
        explanation=explanation,
        settles=settles,
        evidence=tuple(evidence),
        remedies=ending.remedies,
        references=ending.sources,
        nodes=(node.name,),
        subject=engine.name,
        caused_by=cause or (worst.rule if worst else None),
        since_wall_s=ended_s,
    )


def _vanished(node: NodeView, engine: Engine, ended_s: float) -> Iterator[Finding]:
    """A process that is gone while its container runs on, or that had none: no exit code to read."""
    if engine.log is None or not engine.log.failure:
        return
    yield Finding(
        rule="restart.failed",
        severity=Severity.WARNING,
        confidence=Confidence.SUSPECTED,
        title=f"{engine.name} has ended, and its log told of a failure",
        explanation="Its process is gone without an exit code that can be read from here.",
        settles="the log of that run",
        evidence=(Evidence(source=f"{engine.name} @ {node.name}", text=engine.log.failure, wall_s=ended_s),),
        nodes=(node.name,),
        subject=engine.name,
        caused_by=engine.log.findings[0].rule if engine.log.findings else None,
        since_wall_s=ended_s,
    )


def _kill(node: NodeView, box: Container, ended_s: float) -> KernelEvent | None:
    """The kernel's kill that fits: of this container by name, else any at that moment whose container isn't known."""
    kills = [event for event in node.kernel_events if event.kind == "oom-kill"]
    near = [event for event in kills if abs((event.last_wall_s or 0.0) - ended_s) <= KILL_WINDOW_S]
    own = [
        event for event in near if event.container_id is not None and box.container_id.startswith(event.container_id)
    ]
    return next(iter(own or [event for event in near if event.container_id is None]), None)


def _lowest(node: NodeView) -> float | None:
    values = [value for value in node.available_history.values[-120:] if value is not None]
    return min(values, default=None)


def _state(box: Container) -> str:
    killed = ", OOMKilled" if box.oom_killed else ""
    return f"{box.name}: exited, exit code {box.exit_code}{killed}, restart policy {box.restart_policy or 'no'}"


def check_loop(fleet: FleetState) -> Iterator[Finding]:
    """Containers and services that are started again and again."""
    for node in fleet.nodes:
        for engine in node.engines:
            box = engine.container
            if box is not None and _is_looping(engine, box):
                text = f"{box.name}: {box.status}, {box.restart_count} restarts, up {_seconds(engine.uptime_s)}"
                source = Evidence(source=f"docker @ {node.name}", text=text)
                found = loop(engine.name, box.restart_count, policy=box.restart_policy, evidence=(source,))
                yield _placed(found, node, engine)
        for unit in node.facts.units if node.facts else ():
            if (unit.restarts or 0) >= LOOPING and (unit.active == "activating" or unit.result not in ("", "success")):
                yield _unit_loop(node, unit)


def _is_looping(engine: Engine, box: Container) -> bool:
    if box.status == "restarting":
        return True
    is_young = engine.uptime_s is not None and engine.uptime_s < LOOP_UPTIME_S
    return box.restart_count >= LOOPING and box.status == "running" and is_young and engine.state in STARTING


def _placed(found: Finding, node: NodeView, engine: Engine) -> Finding:
    said = engine.log.findings if engine.log else ()
    return replace(
        found,
        nodes=(node.name,),
        brief=f"{engine.container.restart_count if engine.container else 0} restarts",
        caused_by=next((one.rule for one in said if one.severity is Severity.CRITICAL), None),
    )


def _unit_loop(node: NodeView, unit: Unit) -> Finding:
    delay = f" {unit.restart_delay_s:.0f} s after each end" if unit.restart_delay_s is not None else ""
    return Finding(
        rule="restart.loop",
        severity=Severity.CRITICAL,
        title=f"{unit.name} is in a restart loop: systemd has started it {unit.restarts} times",
        explanation=(
            f"The service ends, and systemd starts it again{delay} (Restart={unit.restart or '?'}). For an engine "
            "on a Spark "
            "less than 60 s is too soon: memory comes back over seconds to minutes. What ends it stands in its journal."
        ),
        evidence=(
            Evidence(
                source=f"systemd @ {node.name}",
                text=f"{unit.name}: {unit.active} ({unit.sub}), result {unit.result}, NRestarts {unit.restarts}",
            ),
        ),
        remedies=(
            Remedy(
                title="Stop the service, then read why it ends",
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


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.0f} s"


def _card(name: str, title: str) -> Rule:
    return Rule(
        id=f"restart.{name}",
        kind=RuleKind.LIVE,
        title=title,
        severity=Severity.CRITICAL,
        scope="any engine in a container, or a systemd service that runs one",
        sources=("field report 004", "Docker: restart policies"),
    )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=_card("ended", "An engine ended badly"), check=check_ended, clear_s=0.0, follows=("cluster.rank-died",)
    ),
    LiveRule(card=_card("loop", "An engine is started again and again"), check=check_loop, clear_s=30.0),
)
