"""The plan that stops an engine, and sees its memory come back."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.restart_support import GIB, ended, golden, head, planned, request, spark, two
from tests.table import over

from sparktop.model.engine import Containers, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.operation import DockerCall, Privilege, Signal
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import GapReason
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.remote import Remote
from sparktop.operate.restart import stop
from sparktop.operate.step.plan import OnFailure, Plan, Refusal

ONE = made.picture(spark())
TICKS = int((made.BOOT_S - 7200) * 100)


def stat(pid: int, command: str, parent: int, ticks: int = TICKS, state: str = "S") -> str:
    return f"{pid} ({command}) {state} {parent} " + "0 " * 17 + f"{ticks} 0 0"


def plan(picture=ONE, wish=None, **more: object) -> Plan:
    found = planned(stop, wish or request("stop-engine", "vllm-qwen36"), picture, **more)
    assert isinstance(found, Plan), found
    return found


def bare(**more: object):
    """A server and its worker in no container."""
    engine = made.engine("vllm:8000", container=None, pids=(76811, 77352))
    table = (
        made.process(76811, "vllm", user_id=more.get("user_id", 1000), parent_pid=1),
        made.process(77352, "VLLM::EngineCor", user_id=1000, parent_pid=76811),
    )
    return made.picture(spark(engines=(engine,), processes=table))


FILES = {"/proc/76811/stat": stat(76811, "vllm", 1), "/proc/77352/stat": stat(77352, "VLLM::EngineCor", 76811)}


def test_one_spark() -> None:
    golden("stop-one", plan())


def test_two_sparks() -> None:
    golden("stop-two", plan(two(), request("stop-engine", "vllm-head", "spark1", "spark2")))


def test_a_rank_that_docker_starts_anew_as_its_head_ends_is_stopped_all_the_same() -> None:
    """A worker under Ray ends with its head; its policy starts it within the second."""
    policies = {name: {"policy": "unless-stopped"} for name in ("vllm-head", "vllm-worker")}
    found = plan(two(), request("stop-engine", "vllm-head", "spark1", "spark2"), inspects=policies)
    runs = [
        step.id
        for step in found.steps
        if isinstance(step.act, Remote) and "State.StartedAt" in getattr(step.act.operations[0], "equals", ())
    ]
    assert runs == ["stop@spark1", "kill@spark1"]


def test_bare_processes() -> None:
    golden("stop-processes", plan(bare(), request("stop-engine", "vllm:8000"), files=FILES))


def test_memory_is_watched_and_its_ladder_told_without_failing_the_stop() -> None:
    step = next(one for one in plan().steps if one.id == "memory")
    assert step.on_failure is OnFailure.GO_ON
    assert isinstance(step.act, AwaitMemory)
    assert 100 * GIB < step.act.target_bytes <= 112 * GIB


def test_policy_stays_as_it_is_and_always_is_warned_of() -> None:
    assert [one.path.rpartition("/")[2] for one in calls(plan())] == ["stop", "kill"]
    told = plan(inspects={"vllm-qwen36": {"policy": "always"}})
    assert any("is always" in warning for warning in told.warnings)


@over("rule", ["memory.falling", "memory.first-request-spike"])
def test_where_memory_runs_out_every_second_counts(rule: str) -> None:
    finding = Finding(rule=rule, severity=Severity.CRITICAL, title="out of memory in 5 s", nodes=("spark1",))
    found = plan(wish=request("stop-engine", "vllm-qwen36", finding=finding))
    steps = [step.id for step in found.steps]
    assert steps[:2] == ["stop", "kill"]
    assert "evidence" in steps
    assert calls(found)[0].query == {"t": "2"}
    assert "collects evidence afterwards" in found.warnings[0]


def test_fall_that_is_seen_is_as_urgent_as_its_finding() -> None:
    falling = Finding(rule="memory.falling", severity=Severity.CRITICAL, title="falling", nodes=("spark1",))
    seen = replace(ONE, findings=(falling,))
    assert plan(seen).steps[0].id == "stop"
    assert plan().steps[0].id == "evidence"


def calls(found: Plan) -> list[DockerCall]:
    acts = [step.act for step in found.steps if isinstance(step.act, Remote)]
    return [one for act in acts for one in (*act.operations, *act.undo) if isinstance(one, DockerCall)]


def test_other_users_processes_need_root() -> None:
    found = plan(bare(user_id=0), request("stop-engine", "vllm:8000"), files=FILES)
    act = next(step.act for step in found.steps if step.id == "stop")
    assert isinstance(act, Remote)
    assert all(isinstance(one, Signal) and one.privilege is Privilege.ROOT for one in act.operations)
    denied = Privileges(user="spark", docker="open", sudo="denied")
    refused = planned(stop, request("stop-engine", "vllm:8000"), bare(user_id=0), files=FILES, privileges=denied)
    assert isinstance(refused, Refusal)


@over(
    "files",
    [
        {},
        {"/proc/76811/stat": stat(76811, "bash", 1, ticks=TICKS + 90_000)},
        {"/proc/76811/stat": stat(76811, "vllm", 1, state="Z")},
        {"/proc/76811/stat": "nonsense"},
    ],
)
def test_pids_that_are_others_by_now_are_left_alone(files) -> None:
    found = planned(stop, request("stop-engine", "vllm:8000"), bare(), files=files)
    assert isinstance(found, Refusal)
    assert "does not run" in found.reason


def test_process_that_took_a_pid_is_never_signalled() -> None:
    files = {**FILES, "/proc/77352/stat": stat(77352, "other", 1, ticks=TICKS + 90_000)}
    found = plan(bare(), request("stop-engine", "vllm:8000"), files=files)
    act = next(step.act for step in found.steps if step.id == "stop")
    assert isinstance(act, Remote)
    assert {one.pid for one in act.operations if isinstance(one, Signal)} == {76811}


def test_container_of_rm_is_stopped_and_its_end_is_told() -> None:
    box = made.container(auto_remove=True, restart_policy="no")
    found = plan(made.picture(spark(engines=(made.engine(container=box),))))
    assert any("Docker removes it when it stops" in warning for warning in found.warnings)
    assert found.rollback == ()
    kill = next(step.act for step in found.steps if step.id == "kill")
    assert isinstance(kill, Remote)
    assert [type(one) for one in kill.operations] == [DockerCall], "there may be nothing left to be asked"


def test_launcher_s_container_is_stopped_whole() -> None:
    engine = made.engine("vllm_node", container=made.container("vllm_node", argv=("sleep", "infinity")))
    found = plan(made.picture(spark(engines=(engine,))), request("stop-engine", "vllm_node"))
    assert any("the launcher starts it again" in warning for warning in found.warnings)
    assert found.rollback == ()


def test_rank_whose_other_is_not_seen_is_stopped_with_a_warning() -> None:
    found = plan(made.picture(spark(engines=(head(),))), request("stop-engine", "vllm-head"))
    assert any("can't be seen here" in warning for warning in found.warnings)


def test_what_does_not_run_is_not_stopped() -> None:
    node = spark(engines=(ended(made.engine()),))
    found = planned(stop, request("stop-engine", "vllm-qwen36"), made.picture(node))
    assert isinstance(found, Refusal)
    assert "does not run" in found.reason
    assert found.remedies == ("to start it: docker start vllm-qwen36",)


def test_requests_that_are_lost_are_counted() -> None:
    assert "2 requests" in plan().warnings[0]
    idle = made.picture(spark(engines=(made.engine(running=0.0),)))
    assert not any("requests" in warning for warning in plan(idle).warnings)


def test_grace_that_makes_no_sense_is_refused() -> None:
    found = planned(stop, request("stop-engine", "vllm-qwen36", options={"grace_s": "-1"}), ONE)
    assert isinstance(found, Refusal)


def test_engine_that_loads_is_stopped_too() -> None:
    node = spark(engines=(made.engine(state=EngineState.LOADING, metrics=None, rates=None),))
    assert "stop" in [step.id for step in plan(made.picture(node)).steps]


@over("docker, words", [("denied", "may not use Docker"), ("open", "has not shown which yet")])
def test_a_container_that_docker_does_not_show_is_not_taken_for_none(docker: str, words: str) -> None:
    """Its processes could be ended; by its policy Docker would start it again."""
    engine = made.engine("vllm:8000", container=None, pids=(76811,), gaps={"container": GapReason.NO_PERMISSION})
    picture = made.picture(spark(engines=(engine,)))
    rights = Privileges(user="spark", docker=docker, sudo="free")
    refused = planned(stop, request("stop-engine", "vllm:8000"), picture, files=FILES, privileges=rights)
    assert isinstance(refused, Refusal), refused
    assert words in refused.reason


@over("name", ["", "vllm-elsewhere"])
def test_an_engine_that_is_not_shown_yet_is_not_known_rather_than_missing(name: str) -> None:
    nothing = made.picture(spark(engines=()))
    missing = planned(stop, request("stop-engine", name), nothing)
    assert isinstance(missing, Refusal)
    assert "not known" not in missing.reason
    for gap in ({"has_looked_for_engines": False}, {"containers": Containers(available=False, detail="it is away")}):
        found = planned(stop, request("stop-engine", name), made.picture(spark(engines=(), **gap)))
        assert isinstance(found, Refusal)
        assert "not known" in found.reason
