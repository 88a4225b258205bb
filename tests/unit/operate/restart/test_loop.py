"""The plan that breaks a restart loop: whoever starts it again is switched off, and it is seen to stay down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import pictures_support as made
from tests.restart_support import ended, golden, planned, request, spark

from sparktop.model.engine import Containers, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.model.plan import Plan, Refusal, Remote
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import Process, ProcessTable, Unit
from sparktop.operate.restart import loop

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
    assert "No room is left for the KV cache" in effect


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
    assert [step.id for step in plan(looping()).way_back] == ["back-start", "back-policy"]


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


@pytest.mark.parametrize(
    ("restarts", "state", "uptime_s"),
    [(0, EngineState.SERVING, 7200.0), (0, EngineState.LOADING, 20.0), (3, EngineState.SERVING, 7200.0)],
    ids=["serves", "loads-for-the-first-time", "has-ended-its-loop"],
)
def test_an_engine_that_does_not_loop_is_not_stopped_for_it(restarts: int, state: EngineState, uptime_s: float) -> None:
    box = made.container(restart_count=restarts, restart_policy="always")
    picture = made.picture(spark(engines=(made.engine(container=box, state=state, uptime_s=uptime_s),)))
    found = planned(loop, request("break-restart-loop", box.name), picture)
    assert isinstance(found, Refusal), found
    assert f"{box.name} doesn't loop" in found.reason
    assert "stop-engine spark1 --engine" in " ".join(found.remedies)


@pytest.mark.parametrize(
    ("state", "uptime_s"), [(EngineState.LOADING, 20.0), (EngineState.SERVING, 50.0)], ids=["loads", "serves-for-now"]
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


@pytest.mark.parametrize(
    "name", ["docker.service", "ssh.service", "--now", "x.service;id", "a b.service", "user@1.service"]
)
def test_services_that_the_node_needs_and_hostile_names_are_none(name: str) -> None:
    found = planned(loop, request("break-restart-loop", name), made.picture(service(name)))
    assert isinstance(found, Refusal)


def running_for(seconds: float, **more: object):
    """A node on which the service's process runs for so long."""
    node = service(active="active", sub="running", main_pid=4711, exit_status=0, **more)
    process = Process(pid=4711, parent_pid=1, command="vllm", state="S", resident_bytes=1, started_boot_s=100.0)
    table = ProcessTable(boot_s=100.0 + seconds, processes=(process,), total_count=1)
    return replace(node, processes=table)


@pytest.mark.parametrize(
    ("node", "reason", "remedy"),
    [
        (running_for(20.0, restarts=0), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (running_for(20.0, restarts=None), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (running_for(7200.0, restarts=14), "vllm.service doesn't loop", "systemctl stop -- vllm.service"),
        (service(active="failed", sub="failed"), "doesn't run, and nothing starts it again", "journalctl -u vllm"),
        (service(active="inactive", sub="dead"), "doesn't run, and nothing starts it again", "journalctl -u vllm"),
    ],
    ids=["never-restarted", "unknown", "has-ended-its-loop", "failed", "stopped"],
)
def test_a_service_that_does_not_loop_is_not_stopped_for_it(node: NodeView, reason: str, remedy: str) -> None:
    found = planned(loop, request("break-restart-loop", "vllm.service"), made.picture(node))
    assert isinstance(found, Refusal), found
    assert reason in found.reason
    assert remedy in " ".join(found.remedies)


@pytest.mark.parametrize(
    "node",
    [running_for(20.0, restarts=3), service(restarts=0), service(active="active", sub="running", main_pid=4711)],
    ids=["just-started-again", "about-to-be-started-again", "its-process-is-not-known"],
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
    assert "nothing starts it again" in found.reason


def test_bare_process_s_starter_is_not_known() -> None:
    node = spark(engines=(made.engine("vllm:8000", container=None),))
    found = planned(loop, request("break-restart-loop", "vllm:8000"), made.picture(node))
    assert isinstance(found, Refusal)
    assert "isn't known" in found.reason
