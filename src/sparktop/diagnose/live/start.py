"""How an engine is brought back: too soon after its end, or by two keepers (field report 004)."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.diagnose.exits import TOO_SOON_S
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import Container, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Unit

_GIB = 1024**3
STARTING = (EngineState.UNKNOWN, EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


def check_too_soon(fleet: FleetState) -> Iterator[Finding]:
    """An engine that loads now, was started right after its last run ended, and has less than it asks for."""
    for node in fleet.nodes:
        memory = node.sample.memory if node.sample else None
        for engine in node.engines:
            box = engine.container
            if memory is None or box is None or engine.state not in STARTING or not box.started_wall_s:
                continue
            gap_s = box.started_wall_s - (box.finished_wall_s or 0.0)
            wanted = _wanted_bytes(engine, memory.total_bytes)
            had = _available_at_start(node, engine)
            if not 0 <= gap_s < TOO_SOON_S or wanted is None or had is None or had >= wanted:
                continue
            yield Finding(
                rule="restart.too-soon",
                severity=Severity.WARNING,
                title=f"{engine.name} was started {gap_s:.0f} s after its last run ended, with too little memory back",
                explanation=(
                    f"It asks for {wanted / _GIB:.0f} GiB and {had / _GIB:.0f} GiB were available when it "
                    "started: the memory "
                    "of the run before had not come back. It will measure too little, or be killed with exit code 137."
                ),
                distinction=(
                    "Memory that never comes back is another finding: this one is about the pause before a start.",
                ),
                evidence=(
                    Evidence(source=f"docker @ {node.name}", text=f"started {gap_s:.0f} s after it finished"),
                    Evidence(source=f"{node.name} memory", text=f"{had / _GIB:.1f} GiB available at the start"),
                ),
                remedies=(
                    Remedy(
                        title="Stop it, wait until available memory stands still, then start it",
                        steps=(f"docker stop -t 60 {engine.name}", "grep MemAvailable /proc/meminfo"),
                        cost="up to 5 minutes",
                        action="safe-restart",
                    ),
                ),
                references=("field report 004",),
                nodes=(node.name,),
                subject=engine.name,
                brief=f"{had / _GIB:.0f} of {wanted / _GIB:.0f} GiB at the start",
            )


def _wanted_bytes(engine: Engine, total_bytes: int) -> float | None:
    """What its own argument asks for; None where it leaves that to a default."""
    for at, word in enumerate(engine.argv):
        name, _, value = word.replace("_", "-").partition("=")
        if name in ("--gpu-memory-utilization", "--mem-fraction-static"):
            try:
                share = float(value or engine.argv[at + 1])
            except (IndexError, ValueError):
                return None
            return share * total_bytes if 0 < share <= 1 else None
    return None


def _available_at_start(node: NodeView, engine: Engine) -> float | None:
    """Available memory when the engine began, from the history."""
    history, sample, at_s = node.available_history, node.sample, node.sample_at_s
    if engine.uptime_s is None or sample is None or at_s is None:
        return None
    began_s = at_s - engine.uptime_s
    near = [
        value
        for time_s, value in zip(reversed(history.times), reversed(history.values), strict=True)
        if value is not None and abs(time_s - began_s) < 3.0
    ]
    return near[0] if near else None


def check_policies(fleet: FleetState) -> Iterator[Finding]:
    """A container that Docker and systemd both bring back: whoever stops it, the other starts it."""
    for node in fleet.nodes:
        units = node.facts.units if node.facts else ()
        for engine in node.engines:
            box = engine.container
            if box is None or box.restart_policy in ("", "no"):
                continue
            for unit in units:
                if unit.restart in ("", "no") or not _is_unit_of(unit, box):
                    continue
                yield Finding(
                    rule="restart.policies-fight",
                    severity=Severity.WARNING,
                    confidence=Confidence.SUSPECTED,
                    title=f"Docker ({box.restart_policy}) and systemd ({unit.name}) both restart {engine.name}",
                    explanation=(
                        "Two keepers of one container race: after a crash Docker starts it within 0.1 s and the "
                        "unit's own "
                        "pause is passed over, and a stop by one is undone by the other."
                    ),
                    settles=f"`systemctl cat {unit.name}`: does its ExecStart run this container?",
                    evidence=(
                        Evidence(source=f"docker @ {node.name}", text=f"{box.name}: restart {box.restart_policy}"),
                        Evidence(source=f"systemd @ {node.name}", text=f"{unit.name}: Restart={unit.restart}"),
                    ),
                    remedies=(
                        Remedy(
                            title="Leave it to systemd, which can wait for memory",
                            steps=(f"docker update --restart=no {box.name}",),
                            cost="nothing",
                        ),
                    ),
                    references=("field report 004",),
                    nodes=(node.name,),
                    subject=engine.name,
                )


def _is_unit_of(unit: Unit, box: Container) -> bool:
    stem = unit.name.removesuffix(".service")
    return bool(stem) and stem not in ("docker", "containerd", "podman") and (stem == box.name or box.name in stem)


def _card(name: str, title: str) -> Rule:
    return Rule(
        id=f"restart.{name}",
        kind=RuleKind.LIVE,
        title=title,
        severity=Severity.WARNING,
        scope="any engine in a container",
        sources=("field report 004", "Docker: restart policies"),
    )


RULES: tuple[LiveRule, ...] = (
    LiveRule(card=_card("too-soon", "Started before the last run's memory came back"), check=check_too_soon),
    LiveRule(card=_card("policies-fight", "Docker and systemd both restart one container"), check=check_policies),
)
