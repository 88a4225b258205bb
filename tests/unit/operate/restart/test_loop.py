"""The plan that breaks a restart loop: whoever starts it again is switched off, and it is seen to stay down."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.restart_support import ended, golden, head, planned, request, spark, worker
from tests.table import over

from sparktop.model.engine import Containers, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import Process, ProcessTable, Unit
from sparktop.operate.acts.remote import Remote
from sparktop.operate.restart import loop
from sparktop.operate.step.plan import Plan, Refusal

NAME = "vllm-qwen36"
FAILURE = "ValueError: No available memory for the cache blocks"


def looping(**more: object):
    """A container that Docker has started nine times."""
    box = made.container(status="restarting", restart_count=9, exit_code=1, pid=None, restart_policy="always", **more)
    said = Finding(rule="memory.kv", severity=Severity.CRITICAL, title="No room is left for the KV cache")
    engine = made.engine(
        container=box,
        state=EngineState.STARTING,
        metrics=None,
        rates=None,
        pids=(),
        gpu_bytes=None,
        log=LogFacts(failure=FAILURE, findings=(said,)),
    )
    return spark(engines=(engine,), containers=Containers(containers=(box,), available=True, detail=""))


def service(name: str = "vllm.service", **more: object):
    """A node on which systemd starts a service again and again, whose engine never lives to be seen."""
    unit = Unit(name=name, active="activating", sub="auto-restart", restarts=14, restart="always", exit_status=1)
    unit = replace(unit, **more)
    node = made.idle_node()
    assert node.facts is not None
    return replace(node, facts=replace(node.facts, units=(unit,)))


def plan(node, target: str = NAME, **more: object) -> Plan:
    found = planned(loop, request("break-restart-loop", target), made.picture(node), **more)
    assert isinstance(found, Plan), found
    return found


def test_container() -> None:
    golden("loop-container", plan(looping()))


def test_service() -> None:
    golden("loop-service", plan(service(), "vllm.service"))


def test_what_ended_it_is_told() -> None:
    effect = plan(looping()).effect
    assert "after 9 restarts" in effect
    assert FAILURE in effect
    assert "KV cache" in effect


def test_it_is_seen_to_stay_down_for_a_while() -> None:
    act = next(step.act for step in plan(looping()).steps if step.id == "still")
    assert isinstance(act, Remote)
    first, pause, last = act.operations
    assert isinstance(first, Expect)
    assert isinstance(last, Expect)
    assert isinstance(pause, Command)
    assert first.equals == last.equals
    assert first.equals["State.Running"] is False
    assert first.equals["State.Restarting"] is False
    assert last.within_s == 0.0


def test_policy_goes_off_before_the_stop_and_stays_off() -> None:
    steps = [step.id for step in plan(looping()).steps]
    assert steps == ["evidence", "policy-off", "stop", "kill", "gone", "still"]


def test_way_back_starts_it_and_gives_the_policy_back() -> None:
    assert [step.id for step in plan(looping()).rollback] == ["back-start", "back-policy"]


def test_loop_of_a_start_a_minute_is_broken_too() -> None:
    """Between two ends it runs, loading: Docker doesn't say that it restarts."""
    node = looping()
    box = replace(node.engines[0].container, status="running", pid=4711)
    engine = replace(node.engines[0], container=box, state=EngineState.LOADING, pids=(4711,))
    node = replace(node, engines=(engine,), containers=replace(node.containers, containers=(box,)))
    stop = next(step.act for step in plan(node).steps if step.id == "stop")
    assert isinstance(stop, Remote)
    assert isinstance(stop.operations[1], DockerCall)
    assert stop.operations[1].query == {"t": "20"}
    checks = [op for step in plan(node).steps if isinstance(step.act, Remote) for op in step.act.operations]
    bound = [check for check in checks if isinstance(check, Expect) and "State.StartedAt" in check.equals]
    assert not bound, "its next start would fail the step"


def test_container_that_a_service_starts_is_stopped_by_it() -> None:
    engine = made.engine(container=made.container(restart_policy="no"), state=EngineState.STARTING)
    node = spark(engines=(engine,))
    assert node.facts is not None
    node = replace(node, facts=replace(node.facts, units=(Unit(name="own.service", active="active", restarts=4),)))
    command = "argv[]=/usr/bin/docker start -a vllm-qwen36 ; ignore_errors=no"
    shown = f"Id=own.service\nExecStart={{ path=/usr/bin/docker ; {command} }}"
    found = plan(node, output=shown)
    stop = next(step.act for step in found.steps if step.id == "stop")
    assert isinstance(stop, Remote)
    assert isinstance(stop.operations[0], Command)
    assert stop.operations[0].argv[-3:] == ("stop", "--", "own.service")
    assert any("reset-failed" in warning for warning in found.warnings)


@over(
    "restarts, state, uptime_s",
    [
        (0, EngineState.SERVING, 7200.0),
        (0, EngineState.LOADING, 20.0),
        (3, EngineState.SERVING, 7200.0),
        (3, EngineState.SERVING, 600.0),
    ],
    ids=["serves", "loads-for-the-first-time", "has-ended-its-loop", "has-just-ended-its-loop"],
)
def test_an_engine_that_does_not_loop_is_not_stopped_for_it(restarts: int, state: EngineState, uptime_s: float) -> None:
    box = made.container(restart_count=restarts, restart_policy="always")
    picture = made.picture(spark(engines=(made.engine(container=box, state=state, uptime_s=uptime_s),)))
    found = planned(loop, request("break-restart-loop", box.name), picture)
    assert isinstance(found, Refusal), found
    assert f"{box.name} doesn't loop" in found.reason
    assert "stop-engine spark1 --engine" in " ".join(found.remedies)


@over(
    "state, uptime_s",
    [(EngineState.LOADING, 20.0), (EngineState.SERVING, 50.0), (EngineState.SERVING, 599.9)],
    ids=["loads", "serves-for-now", "serves-for-nearly-long-enough"],
)
def test_an_engine_that_was_started_again_lately_loops(state: EngineState, uptime_s: float) -> None:
    box = made.container(restart_count=1, restart_policy="always")
    engine = made.engine(container=box, state=state, uptime_s=uptime_s)
    found = planned(loop, request("break-restart-loop", box.name), made.picture(spark(engines=(engine,))))
    assert isinstance(found, Plan), found


def test_service_without_root_is_refused_with_the_line_that_would_permit_it() -> None:
    rights = Privileges(user="spark", docker="open", sudo="denied")
    found = planned(loop, request("break-restart-loop", "vllm.service"), made.picture(service()), privileges=rights)
    assert isinstance(found, Refusal)
    assert any("NOPASSWD: /usr/bin/systemctl stop -- vllm.service" in remedy for remedy in found.remedies)


@over("name", ["docker.service", "ssh.service", "--now", "x.service;id", "a b.service", "user@1.service"])
def test_services_that_the_node_needs_and_hostile_names_are_none(name: str) -> None:
    found = planned(loop, request("break-restart-loop", name), made.picture(service(name)))
    assert isinstance(found, Refusal)


def running_for(seconds: float, **more: object):
    """A node on which the service's process runs for so long."""
    node = service(**{"active": "active", "sub": "running", "main_pid": 4711, "exit_status": 0, **more})
    process = Process(pid=4711, parent_pid=1, command="vllm", state="S", resident_bytes=1, started_boot_s=5000.0)
    table = ProcessTable(boot_s=5000.0 + seconds, processes=(process,), total_count=1)
    return replace(node, processes=table)


@over(
    "node, reason, remedy",
    [
        (running_for(20.0, restarts=0), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (running_for(20.0, restarts=None), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (running_for(7200.0, restarts=14), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (running_for(600.0, restarts=14), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (service(active="failed", sub="failed"), "doesn't run, and nothing starts it again", "journalctl -u vllm"),
        (service(active="inactive", sub="dead"), "doesn't run, and nothing starts it again", "journalctl -u vllm"),
    ],
    ids=["never-restarted", "unknown", "has-ended-its-loop", "has-just-ended-its-loop", "failed", "stopped"],
)
def test_a_service_that_does_not_loop_is_not_stopped_for_it(node: NodeView, reason: str, remedy: str) -> None:
    found = planned(loop, request("break-restart-loop", "vllm.service"), made.picture(node))
    assert isinstance(found, Refusal), found
    assert reason in found.reason
    assert remedy in " ".join(found.remedies)


@over(
    "node",
    [
        running_for(20.0, restarts=3),
        running_for(599.9, restarts=3),
        running_for(7200.0, restarts=3, active="activating"),
        service(restarts=0),
        service(active="active", sub="running", main_pid=4711),
        replace(service(active="active", sub="running", main_pid=4711), processes=None),
    ],
    ids=[
        *("just-started-again", "started-again-not-long-ago", "never-comes-up", "about-to-be-started-again"),
        *("its-process-is-not-known", "no-process-is-known"),
    ],
)
def test_a_service_that_loops_is_stopped(node: NodeView) -> None:
    assert plan(node, "vllm.service").title == "Break the restart loop of vllm.service on spark1"


def test_what_a_finding_calls_a_loop_is_stopped() -> None:
    found = Finding(rule="restart.loop", severity=Severity.CRITICAL, title="vllm.service is in a restart loop")
    asked = replace(request("break-restart-loop", "vllm.service"), finding=found)
    assert isinstance(planned(loop, asked, made.picture(running_for(20.0, restarts=0))), Plan)


def test_what_nothing_starts_again_is_no_loop() -> None:
    node = spark(engines=(ended(made.engine()),))
    found = planned(loop, request("break-restart-loop", NAME), made.picture(node), inspects={NAME: {"policy": "no"}})
    assert isinstance(found, Refusal)
    assert "starts it again" in found.reason


def test_bare_process_s_starter_is_not_known() -> None:
    node = spark(engines=(made.engine("vllm:8000", container=None),))
    found = planned(loop, request("break-restart-loop", "vllm:8000"), made.picture(node))
    assert isinstance(found, Refusal)
    assert "isn't known" in found.reason


def served_by(unit: str, *, restarts: int = 0):
    """A node on which a service holds the engine's process, in no container."""
    engine = made.engine("vllm:8000", container=None, state=EngineState.LOADING, uptime_s=20.0)
    held = tuple(made.process(pid, "vllm", cgroup=f"/system.slice/{unit}") for pid in engine.pids)
    node = spark(engines=(engine,), processes=held)
    assert node.facts is not None
    units = (
        Unit(name="other.service", active="active", restarts=7),
        Unit(name=unit, active="active", restarts=restarts),
    )
    return replace(node, facts=replace(node.facts, units=units))


def test_a_service_s_own_process_is_stopped_by_the_service() -> None:
    found = plan(served_by("vllm.service", restarts=2), "vllm:8000")
    assert [step.id for step in found.steps] == ["evidence", "stop", "gone"]
    assert found.effect.startswith("vllm:8000 is stopped")
    assert not any("restart policy" in warning for warning in found.warnings)


def test_another_service_s_restarts_are_not_this_engine_s() -> None:
    found = planned(loop, request("break-restart-loop", "vllm:8000"), made.picture(served_by("vllm.service")))
    assert isinstance(found, Refusal)
    assert "vllm:8000 doesn't loop" in found.reason


def test_a_service_s_engine_without_root_is_refused() -> None:
    rights = Privileges(user="spark", docker="open", sudo="denied")
    picture = made.picture(served_by("vllm.service", restarts=2))
    found = planned(loop, request("break-restart-loop", "vllm:8000"), picture, privileges=rights)
    assert isinstance(found, Refusal)
    assert any("NOPASSWD: /usr/bin/systemctl stop -- vllm.service" in remedy for remedy in found.remedies)


def test_an_engine_that_docker_will_start_again_loops_while_it_is_down() -> None:
    box = made.container(restart_policy="always", restart_count=9)
    assert [step.id for step in plan(spark(engines=(ended(made.engine(container=box)),))).steps][:2] == [
        "evidence",
        "policy-off",
    ]


def test_the_first_restart_is_a_loop_before_docker_has_counted_it() -> None:
    node = looping()
    box = replace(node.engines[0].container, restart_count=0)
    node = replace(node, containers=replace(node.containers, containers=(box,)))
    assert plan(replace(node, engines=(replace(node.engines[0], container=box),))).steps


@over("count, policy", [(0, "always"), (3, "no")], ids=["never-restarted", "no-policy"])
def test_a_run_that_docker_does_not_restart_is_bound_to_its_start(count: int, policy: str) -> None:
    box = made.container(restart_count=count, restart_policy=policy)
    found = Finding(rule="restart.loop", severity=Severity.CRITICAL, title="It loops")
    asked = replace(request("break-restart-loop", NAME), finding=found)
    made_plan = planned(loop, asked, made.picture(spark(engines=(made.engine(container=box),))))
    assert isinstance(made_plan, Plan), made_plan
    operations = [op for step in made_plan.steps if isinstance(step.act, Remote) for op in step.act.operations]
    assert any(isinstance(op, Expect) and "State.StartedAt" in op.equals for op in operations)


def test_a_container_that_docker_removes_is_not_looked_at_when_it_is_gone() -> None:
    box = made.container(restart_count=2, restart_policy="no", auto_remove=True)
    engine = made.engine(container=box, state=EngineState.LOADING, uptime_s=20.0)
    assert "still" not in [step.id for step in plan(spark(engines=(engine,))).steps]


def test_without_a_log_its_exit_code_tells_how_it_ended() -> None:
    node = looping()
    node = replace(node, engines=(replace(node.engines[0], log=None),))
    assert "(exit code 1)" in plan(node).effect


# --- over two nodes


def looping_pair(*restarts: int, **more: object) -> FleetState:
    """One vLLM over two Sparks, each rank with its own failure."""
    fields = {"state": EngineState.LOADING, "uptime_s": 20.0, **more}
    first, second = head(**fields), worker()
    views = []
    for number, engine in enumerate((first, second)):
        assert engine.container is not None
        box = replace(engine.container, restart_count=restarts[number], restart_policy="always")
        failed = replace(engine, container=box, log=LogFacts(failure=f"failure {number}"))
        views.append(spark(f"spark{number + 1}", engines=(failed,)))
    return made.picture(*views)


def test_a_pair_is_named_by_its_head() -> None:
    found = Finding(rule="restart.loop", severity=Severity.CRITICAL, title="It loops")
    asked = replace(request("break-restart-loop", "vllm-head", "spark1", "spark2"), finding=found)
    both = planned(loop, asked, looping_pair(9, 10))
    assert isinstance(both, Plan), both
    assert both.title == "Break the restart loop of vllm-head on spark1 and spark2"
    assert "after 9 restarts" in both.effect
    assert 'its log: "failure 0"' in both.effect
    assert [step.node for step in both.steps if step.id == "resolved"] == ["spark1"]


def test_a_pair_that_does_not_loop_is_named_by_its_head() -> None:
    calm = looping_pair(0, 0, state=EngineState.SERVING, uptime_s=7200.0)
    found = planned(loop, request("break-restart-loop", "vllm-head", "spark1", "spark2"), calm)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("vllm-head doesn't loop")
    assert found.remedies == ("to stop it: sparktop act stop-engine spark1 spark2 --engine vllm-head",)


def test_a_pair_that_is_down_is_named_by_its_head() -> None:
    down = made.picture(
        spark("spark1", engines=(ended(head()),)),
        spark("spark2", engines=(ended(worker()),)),
    )
    off = {name: {"policy": "no"} for name in ("vllm-head", "vllm-worker")}
    found = planned(loop, request("break-restart-loop", "vllm-head", "spark1", "spark2"), down, inspects=off)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("vllm-head doesn't run")
