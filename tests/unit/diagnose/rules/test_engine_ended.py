"""Live rules on ends and starts of engines: firing and quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import WALL_S, claims, container, engine, facts, idle_node, node, picture, process, rules_on
from tests.table import over

from sparktop.cmdline.engine_command import with_argv
from sparktop.model.engine import Engine, EngineState, LogFacts
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import GpuProcess, Series, Unit
from sparktop.text.units import GIB


def ended(code: int = 137, *, ago_s: float = 20.0, log: LogFacts | None = None, **box: Any) -> Engine:
    place = container(status="exited", exit_code=code, finished_wall_s=WALL_S - ago_s, **box)
    return engine(
        state=EngineState.EXITED,
        container=place,
        metrics=None,
        rates=None,
        gpu_bytes=None,
        pids=(),
        exited_wall_s=WALL_S - ago_s,
        log=log,
    )


DEAD = LogFacts(failure="engine core exited unexpectedly")


def said(fleet: FleetState) -> list[Finding]:
    return claims(rules_on("restart"), fleet)


def rules(fleet: FleetState) -> list[str]:
    return [finding.rule for finding in said(fleet)]


def kill(ago_s: float = 21.0, **more: Any) -> KernelEvent:
    made = KernelEvent(
        kind="oom-kill",
        severity=Severity.CRITICAL,
        title="OOM kill",
        text="Out of memory: Killed process 4711 (VLLM::EngineCor)",
        process="VLLM::EngineCor",
        last_wall_s=WALL_S - ago_s,
    )
    return replace(made, **more)


@over(
    "fleet, expected",
    [
        (picture(), []),
        (picture(idle_node()), []),
        (picture(idle_node(engines=(ended(0),))), []),
        (picture(idle_node(engines=(ended(143),))), []),
        (picture(idle_node(engines=(ended(137),))), ["restart.exit-137"]),
        (picture(idle_node(engines=(ended(137, ago_s=7200),))), []),
        (picture(idle_node(engines=(ended(137, oom_killed=True),))), ["restart.oom-killed"]),
        (picture(idle_node(engines=(ended(1),))), ["restart.failed"]),
        (picture(idle_node(engines=(ended(137, log=LogFacts(is_stopping=True)),))), []),
    ],
)
def test_how_an_engine_ended(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


@over(
    "engine, event",
    [
        (ended(), kill()),
        (ended(0, oom_killed=True, log=DEAD), kill()),
        (ended(0, log=DEAD), kill(container_id=container().container_id)),
    ],
    ids=["137", "vLLM ends its server with 0", "Docker saw no kill"],
)
def test_an_end_beside_the_kernels_kill_is_confirmed_and_follows_from_it(engine: Engine, event: KernelEvent) -> None:
    (found,) = said(picture(idle_node(engines=(engine,), kernel_events=(event,))))
    assert (found.confidence, found.caused_by) == (Confidence.CONFIRMED, "kernel.oom-kill")
    assert "VLLM::EngineCor" in found.explanation


@over(
    "event", [kill(ago_s=600), kill(container_id="9" * 64), kill(kind="xid")], ids=["long ago", "another's", "no kill"]
)
def test_a_kill_that_does_not_fit_proves_nothing(event: KernelEvent) -> None:
    (found,) = said(picture(idle_node(engines=(ended(),), kernel_events=(event,))))
    assert (found.confidence, found.caused_by) == (Confidence.SUSPECTED, None)
    assert found.settles
    assert "another sender is likelier" in found.explanation  # 116 GiB stayed available


@over("ran_s, lowest", [(10.0, "90.0"), (50.0, "2.0"), (None, "2.0")], ids=["a run since", "a run then", "any run"])
def test_the_memory_beside_an_end_is_that_of_its_run(ran_s: float | None, lowest: str) -> None:
    """2 GiB were available 40 s before the end, and 1 GiB 10 s after it."""
    box = {} if ran_s is None else {"started_wall_s": WALL_S - 20.0 - ran_s}
    here = idle_node(engines=(ended(**box),))
    assert here.sample_at_s is not None
    ago = {60.0: 2, 30.0: 100, 25.0: 90, 10.0: 1}
    times, gibs = tuple(here.sample_at_s - each for each in ago), tuple(float(each * GIB) for each in ago.values())
    (found,) = said(picture(replace(here, available_history=Series(times=times, values=gibs))))
    assert f"at least {lowest} GiB stayed available" in [evidence.text for evidence in found.evidence]


def test_what_the_log_said_is_the_cause_of_the_end() -> None:
    reason = Finding(rule="vllm.torch-oom", severity=Severity.CRITICAL, title="out of memory")
    (found,) = said(picture(idle_node(engines=(ended(1, log=LogFacts(findings=(reason,))),))))
    assert found.caused_by == "vllm.torch-oom"


def loading(**more: Any) -> Engine:
    box = container(**{"started_wall_s": WALL_S - 30, "finished_wall_s": WALL_S - 42, **more.pop("box", {})})
    return engine(
        container=box, state=EngineState.LOADING, metrics=None, rates=None, uptime_s=30.0, gpu_bytes=None, **more
    )


@over(
    "fleet, expected",
    [
        (picture(node(engines=(engine(container=container(status="restarting", restart_count=2)),))), ["restart.loop"]),
        (
            picture(node(engines=(loading(box={"restart_count": 4, "finished_wall_s": None}),))),
            ["restart.loop"],
        ),
        (picture(node(engines=(engine(container=container(restart_count=4)),))), []),
        (
            picture(idle_node(facts=facts(units=(Unit(name="vllm.service", active="activating", restarts=5),)))),
            ["restart.loop"],
        ),
        (picture(idle_node(facts=facts(units=(Unit(name="vllm.service", active="active", restarts=5),)))), []),
        (picture(idle_node(facts=facts(units=(Unit(name="vllm.service", active="activating", restarts=1),)))), []),
    ],
)
def test_loops(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


@over(
    "fleet, expected",
    [
        (picture(node(engines=(loading(),), available_gib=[(-40, 44), (-30, 44), (0, 100)])), ["restart.too-soon"]),
        (
            picture(
                node(
                    engines=(loading(log=LogFacts(has_come_further=True)),),
                    available_gib=[(-40, 44), (-30, 44), (0, 100)],
                )
            ),
            [],
        ),
        (picture(node(engines=(loading(),), available_gib=[(-40, 110), (-30, 110), (0, 60)])), []),
        (picture(node(engines=(loading(box={"finished_wall_s": WALL_S - 400}),), available_gib=44)), []),
        (picture(node(engines=(loading(argv=("vllm", "serve", "m")),), available_gib=44)), []),
        (
            picture(
                node(
                    engines=(loading(),),
                    available_gib=44,
                    gpu_processes=(GpuProcess(pid=93111, name="python3", used_bytes=60 * GIB),),
                    processes=(process(93111, "python3", 1.2),),
                )
            ),
            [],
        ),
        (
            picture(
                node(
                    engines=(loading(),),
                    available_gib=44,
                    gpu_processes=(GpuProcess(pid=93111, name="VLLM::Worker", used_bytes=60 * GIB),),
                    processes=(process(93111, "VLLM::Worker", 1.2, container_id=container().container_id),),
                )
            ),
            ["restart.too-soon"],
        ),
    ],
    ids=[
        "too little back",
        "past its memory check",
        "enough back",
        "waited",
        "asks for nothing we know",
        "another process holds it",
        "its last run does",
    ],
)
def test_started_too_soon(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


@over(
    "policy, unit, expected",
    [
        ("unless-stopped", Unit(name="vllm-qwen36.service", restart="always"), ["restart.policies-fight"]),
        ("no", Unit(name="vllm-qwen36.service", restart="always"), []),
        ("unless-stopped", Unit(name="vllm-qwen36.service", restart="no"), []),
        ("unless-stopped", Unit(name="docker.service", restart="always"), []),
    ],
)
def test_two_keepers(policy: str, unit: Unit, expected: list[str]) -> None:
    engines = (engine(container=container(restart_policy=policy)),)
    assert rules(picture(node(engines=engines, facts=facts(units=(unit,))))) == expected


def test_a_ray_worker_that_ended_with_its_head_is_no_news() -> None:
    joins = ("bash", "-c", "ray start --block --address=10.0.0.1:6379")
    wide = ("vllm", "serve", "M", "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray")
    one = with_argv(replace(ended(1, argv=joins), endpoint=None), joins)
    over = with_argv(ended(143, argv=wide), wide)
    serving = engine(argv=wide, container=container(argv=wide))

    def told(worker: Engine, head: Engine) -> list[str]:
        return rules(picture(idle_node("spark1", engines=(head,)), idle_node("spark2", engines=(worker,))))

    assert told(one, over) == []
    assert told(one, serving) == ["restart.failed"]
    assert told(one, replace(serving, uptime_s=12.0)) == [], "that head began when this one had ended"
    sooner = with_argv(replace(ended(1, argv=joins, ago_s=3.0), endpoint=None), joins)
    assert told(sooner, serving) == [], "whether its head lives is not known yet"
    killed = with_argv(replace(ended(139, argv=joins), endpoint=None), joins)
    assert told(killed, over) == ["restart.segfault"]
