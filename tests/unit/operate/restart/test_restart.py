"""The plan of a safe restart: its states in order, what it refuses, and what it warns of."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.restart_support import GIB, ended, golden, head, inspect, planned, request, spark, two, whole
from tests.table import over

from sparktop.model.engine import Containers, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import Command, DockerCall, Expect, Privilege
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import Process, Unit
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.restart import restart
from sparktop.operate.step.plan import OnFailure, Plan, Refusal

ONE = made.picture(spark())
NAME = "vllm-qwen36"


def plan(picture=ONE, wish=None, **more: object) -> Plan:
    found = planned(restart, wish or request(target=NAME), picture, **more)
    assert isinstance(found, Plan), found
    return found


def refusal(picture=ONE, wish=None, **more: object) -> Refusal:
    found = planned(restart, wish or request(target=NAME), picture, **more)
    assert isinstance(found, Refusal), found
    return found


def ids(found: Plan) -> list[str]:
    return [step.id for step in found.steps]


def act(found: Plan, step_id: str):
    return next(step.act for step in found.steps if step.id == step_id)


def test_one_spark() -> None:
    golden("restart-one", plan())


def test_two_sparks() -> None:
    golden("restart-two", plan(two(), request("safe-restart", "vllm-head", "spark1", "spark2")))


def test_either_rank_s_name_restarts_both() -> None:
    by_worker = plan(two(), request("safe-restart", "vllm-worker", "spark2"))
    assert ids(by_worker) == ids(plan(two(), request("safe-restart", "vllm-head", "spark1")))


def test_shared_memory_caches_and_an_earlier_guard() -> None:
    box = made.container(ipc_mode="host")
    engine = made.engine(container=box)
    armed = GuardState(phase=GuardPhase.ARMED, container_id="a" * 64, container_name="other", floor_bytes=2 * GIB)
    node = spark(engines=(engine,), guard=armed, memory=made.memory(27.0, cache_gib=40.0, free_bytes=GIB))
    listed = "1001\t0\t167772160\tpsm_0a1b2c3d\n1002\t0\t4096\tsem.mp-abc_1\n1003\t0\t10\tnot-an-engine\n"
    golden("restart-shared", plan(made.picture(node), output=listed))


def test_service_is_stopped_and_started_not_its_container() -> None:
    box = made.container(auto_remove=True, restart_policy="no")
    node = spark(engines=(made.engine(container=box),))
    assert node.facts is not None
    node = replace(node, facts=replace(node.facts, units=(Unit(name="vllm.service", active="active"),)))
    shown = (
        "Id=vllm.service\nExecStart={ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --rm --name vllm-qwen36 IMG ; "
        "ignore_errors=no ; start_time=[n/a] }\n"
    )
    golden("restart-service", plan(made.picture(node), output=shown))


def test_nothing_is_started_before_the_memory_is_there() -> None:
    found = plan()
    steps = ids(found)
    assert steps.index("stop") < steps.index("kill") < steps.index("gone") < steps.index("memory")
    assert steps.index("memory") < steps.index("guard-load") < steps.index("start") < steps.index("ready")
    assert steps.index("ready") < steps.index("guard-request") < steps.index("smoke") < steps.index("policy-back")
    wait = next(step for step in found.steps if step.id == "memory")
    assert wait.on_failure is OnFailure.STOP
    assert wait.limit_s == 300


def test_every_call_is_preceded_by_the_question_whether_it_is_the_same_container() -> None:
    found = plan(two(), request("safe-restart", "vllm-head", "spark1"))
    for step in (*found.steps, *found.rollback):
        if isinstance(step.act, Remote) and any(isinstance(one, DockerCall) for one in step.act.operations):
            first = step.act.operations[0]
            assert isinstance(first, Expect), step.id
            assert {"Id", "Name"} <= set(first.equals), step.id
            assert first.otherwise, step.id


def test_stop_that_fails_puts_the_policy_back() -> None:
    for step in plan().steps:
        if step.id in ("policy-off", "stop"):
            assert isinstance(step.act, Remote)
            undo = step.act.undo[0]
            assert isinstance(undo, DockerCall)
            assert undo.body == {"RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0}}


def test_way_back_of_a_run_that_stopped_nothing_waits_for_no_memory() -> None:
    wait = plan().rollback[0].act
    assert isinstance(wait, AwaitMemory)
    assert wait.unless_runs == made.container().container_id


def test_way_back_gives_the_policy_back_only_to_what_answers() -> None:
    back = ["back-memory", "back-start", "back-ready", "back-guard", "back-policy", "back-serving"]
    assert [step.id for step in plan().rollback] == back
    ready = plan().rollback[2].act
    assert isinstance(ready, AwaitReady)
    assert ready.any_run


def test_what_shares_its_container_is_told() -> None:
    box = made.container()
    both = (made.engine(container=box), replace(made.engine("vllm-qwen36:8001", container=box), key="other", pids=(9,)))
    assert any("vllm-qwen36:8001" in one for one in plan(made.picture(spark(engines=both))).warnings)


def test_engine_without_a_policy_keeps_none() -> None:
    found = plan(inspects={NAME: {"policy": "no"}})
    assert not [one for one in ids(found) if "policy" in one]
    assert not any("restart policy" in warning for warning in found.warnings)


def test_engine_that_ended_is_only_started() -> None:
    node = spark(engines=(ended(made.engine()),), available_gib=110.0)
    found = plan(made.picture(node))
    assert ids(found)[:4] == ["evidence", "policy-off", "gone", "memory"]
    assert "start" in ids(found)


@over(
    "rule, available_gib, is_doubted",
    [
        ("vllm.free-memory-below-utilisation", 40.0, True),
        ("vllm.free-memory-below-utilisation", 110.0, False),
        ("vllm.kv-no-memory", 110.0, True),
    ],
)
def test_memory_that_others_held_at_its_last_start_is_no_doubt_once_it_is_free(
    rule: str, available_gib: float, is_doubted: bool
) -> None:
    why = Finding(rule=rule, severity=Severity.CRITICAL, title="Only 53 GiB free at start")
    failed = replace(ended(made.engine()), log=LogFacts(findings=(why,)))
    doubt = plan(made.picture(spark(engines=(failed,), available_gib=available_gib))).expected_failure
    assert bool(doubt) is is_doubted, doubt


def test_target_is_the_operator_s_where_it_is_set() -> None:
    wish = request(target=NAME, options={"target_gib": "50", "grace_s": "20", "memory_limit_s": "30"})
    found = plan(wish=wish)
    wait = act(found, "memory")
    assert isinstance(wait, AwaitMemory)
    assert wait.target_bytes == 50 * GIB
    assert any("85.2 GiB" in warning for warning in found.warnings)
    assert "at most 20 s" in found.effect


@over(
    "options, reason",
    [
        ({"target_gib": "much"}, "not a size"),
        ({"grace_s": "0"}, "between 1 and 600"),
        ({"grace_s": "1e9"}, "between 1 and 600"),
        ({"memory_limit_s": "5"}, "between 10 and"),
        ({"memory_limit_s": "x"}, "between 10 and"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, reason: str) -> None:
    assert reason in refusal(wish=request(target=NAME, options=options)).reason


def test_smoke_test_can_be_left_out() -> None:
    found = plan(wish=request(target=NAME, options={"smoke": "no"}))
    assert "smoke" not in ids(found)
    assert "guard-request" not in ids(found)


def test_long_load_is_given_twice_its_time() -> None:
    engine = made.engine(uptime_s=9000.0)
    assert engine.log is not None
    box = made.container(started_wall_s=made.WALL_S - 9000)
    slow = replace(engine, container=box, log=replace(engine.log, ready_wall_s=made.WALL_S - 9000 + 2400))
    found = plan(made.picture(spark(engines=(slow,))))
    assert next(step.limit_s for step in found.steps if step.id == "ready") == 4800


def test_guard_s_floor_is_below_what_it_leaves_when_it_serves() -> None:
    orders = [one.act for one in plan(made.picture(spark(available_gib=5.0))).steps if isinstance(one.act, GuardOrder)]
    assert orders[0].floor_bytes == int(2.5 * GIB)
    assert orders[0].empty_within_s is None, "a load falls fast by design"
    assert orders[1].empty_within_s is not None


def test_caches_are_dropped_only_where_free_memory_falls_short() -> None:
    node = spark(memory=made.memory(27.0, cache_gib=40.0, free_bytes=GIB))
    step = next(one for one in plan(made.picture(node)).steps if one.id == "drop")
    assert step.on_failure is OnFailure.GO_ON
    assert isinstance(step.act, Remote)
    for operation in step.act.operations:
        assert isinstance(operation, Command)
        assert operation.done_when is not None
        assert operation.done_when.privilege is Privilege.USER
    assert "drop" not in ids(plan(made.picture(spark(memory=made.memory(27.0, cache_gib=0.5, free_bytes=26 * GIB)))))


def test_what_needs_root_is_left_out_where_there_is_none() -> None:
    box = made.container(ipc_mode="host")
    memory = made.memory(27.0, cache_gib=40.0, free_bytes=GIB)
    node = spark(engines=(made.engine(container=box),), memory=memory)
    rights = Privileges(user="spark", docker="open", sudo="denied")
    found = plan(made.picture(node), output="1001\t0\t5\tpsm_0a1b2c3d\n", privileges=rights)
    assert not {"shm", "drop"} & set(ids(found))
    assert any("/dev/shm" in warning and "needs root" in warning for warning in found.warnings)
    assert any("Caches" in warning for warning in found.warnings)


def test_key_is_taken_for_the_request_and_shown_nowhere() -> None:
    for state in (
        {"environment": ["A=b", "VLLM_API_KEY=sk-canary-0001"]},
        {"arguments": ["serve", "M", "--api-key", "sk-canary-0001"]},
        {"arguments": ["serve", "M", "--api-key=sk-canary-0001"]},
    ):
        found = plan(inspects={NAME: state})
        test = act(found, "smoke")
        assert isinstance(test, SmokeTest)
        assert test.api_key == "sk-canary-0001"
        assert found.secrets == ("sk-canary-0001",)
        assert "canary" not in repr(found)
        assert "canary" not in whole(found)


def test_what_embeds_is_asked_for_an_embedding() -> None:
    for argv, is_pooling in ((("vllm", "serve", "m"), False), (("vllm", "serve", "m", "--task", "embed"), True)):
        test = act(plan(made.picture(spark(engines=(made.engine(argv=argv),)))), "smoke")
        assert isinstance(test, SmokeTest)
        assert test.is_pooling is is_pooling


def test_finding_that_it_mends_has_to_resolve() -> None:
    finding = Finding(rule="gpu.spin", severity=Severity.CRITICAL, title="spins", nodes=("spark1",), subject=NAME)
    assert ids(plan(wish=request(target=NAME, finding=finding)))[-2:] == ["resolved", "serving"]


def test_only_engine_needs_no_name() -> None:
    assert plan(wish=request()).title == "Safe restart of vllm-qwen36 on spark1"
    several = made.picture(spark(engines=(made.engine("one"), made.engine("two"))))
    found = refusal(several, request())
    assert "which engine" in found.reason
    assert len(found.remedies) == 2


# --- what can't be


def test_rank_alone_is_refused() -> None:
    found = refusal(made.picture(spark(engines=(head(),))), request(target="vllm-head"))
    assert "2 nodes" in found.reason


def test_container_of_rm_is_refused_towards_relaunch() -> None:
    node = spark(engines=(made.engine(container=made.container(auto_remove=True, restart_policy="no")),))
    found = refusal(made.picture(node))
    assert "--rm" in found.reason
    assert any("sparktop act relaunch spark1 --engine vllm-qwen36" in remedy for remedy in found.remedies)


@over(
    "name, argv, words",
    [
        ("vllm_node", ("sleep", "infinity"), "launch-cluster.sh"),
        ("sparkrun_ab12_solo", ("sleep", "infinity"), "sparkrun"),
        ("node-123", ("bash", "-c", "ray start --block --head --port=6379"), "docker exec"),
    ],
)
def test_engine_that_a_launcher_put_there_is_refused_with_the_launcher_s_commands(name, argv, words) -> None:
    engine = made.engine(name, container=made.container(name, argv=argv))
    found = refusal(made.picture(spark(engines=(engine,))), request(target=name))
    assert "own command" in found.reason
    assert words in " ".join(found.remedies)
    assert "vllm serve Qwen/Qwen3.6-35B-A3B-FP8" in found.remedies[-1]


def test_bare_process_is_refused_with_what_to_do() -> None:
    engine = made.engine("vllm:8000", container=None)
    found = refusal(made.picture(spark(engines=(engine,))), request(target="vllm:8000"))
    assert "no service" in found.reason
    assert "stop-engine" in found.remedies[0]


def test_process_in_a_service_is_restarted_by_it() -> None:
    engine = made.engine("vllm:8000", container=None, pids=(76811,))
    table = (Process(**{**vars_of(made.process(76811, "vllm")), "cgroup": "/system.slice/my-vllm.service"}),)
    found = plan(made.picture(spark(engines=(engine,), processes=table)), request(target="vllm:8000"))
    stop = act(found, "stop")
    assert isinstance(stop, Remote)
    assert isinstance(stop.operations[0], Command)
    assert stop.operations[0].argv == ("/usr/bin/systemctl", "stop", "--", "my-vllm.service")
    ready = act(found, "ready")
    assert isinstance(ready, AwaitReady)
    assert ready.name == "vllm:8000"


def vars_of(row: Process) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


@over("docker, words", [("denied", "may not use Docker"), ("missing", "no Docker Engine")])
def test_without_docker_it_is_refused(docker, words) -> None:
    found = refusal(privileges=Privileges(user="spark", docker=docker, sudo="free"))
    assert words in found.reason
    assert found.remedies


def test_container_that_vanished_or_is_paused_is_refused() -> None:
    asked = restart.questions(request(target=NAME), ONE, restart_survey())
    gone = {one: None for one in asked if "/json" in getattr(one, "path", "")}
    assert "no container of vllm-qwen36" in refusal(answers=gone).reason
    assert "is paused" in refusal(inspects={NAME: {"Status": "paused"}}).reason


def restart_survey():
    from sparktop.model.survey import Survey

    return Survey()


@over("wish", [request("safe-restart", "nothing"), request("safe-restart", NAME, "elsewhere")])
def test_what_is_not_there_is_refused(wish) -> None:
    assert refusal(wish=wish).remedies


# --- hostile machines


@over("name", ["x'; reboot #", "$(reboot)", "-rf", "a\nb", "\x1b]52;c;aGk=\x07", "../../etc", "x" * 400, ""])
def test_names_that_docker_would_not_give_are_refused(name: str) -> None:
    """Docker's own names are [a-zA-Z0-9][a-zA-Z0-9_.-]+: another daemon may say anything."""
    box = made.container()
    raw = {**inspect(box), "Name": f"/{name}"}
    asked = restart.questions(request(target=NAME), ONE, restart_survey())
    answers = {one: raw for one in asked if "/json" in getattr(one, "path", "")}
    assert isinstance(planned(restart, request(target=NAME), ONE, answers=answers), Refusal)


@over("container_id", ["abc", "../" * 10, "A" * 64, "f" * 63 + "\n", ""])
def test_ids_that_are_none_are_not_asked_for(container_id: str) -> None:
    node = spark(engines=(made.engine(container=made.container(container_id=container_id)),))
    fleet = made.picture(node)
    assert not [one for one in restart.questions(request(target=NAME), fleet, restart_survey()) if hasattr(one, "path")]
    assert isinstance(planned(restart, request(target=NAME), fleet), Refusal)


@over("raw", [None, [], "x", 7, {}, {"Id": "y"}, {"State": 3, "HostConfig": []}])
def test_answers_of_another_shape_are_refused(raw) -> None:
    asked = restart.questions(request(target=NAME), ONE, restart_survey())
    answers = {one: raw for one in asked if "/json" in getattr(one, "path", "")}
    assert isinstance(planned(restart, request(target=NAME), ONE, answers=answers), Refusal)


def test_hostile_units_reach_no_command() -> None:
    units = (Unit(name="--now"), Unit(name="x.service; reboot"), Unit(name="$(reboot).service"), Unit(name="a.service"))
    node = spark()
    assert node.facts is not None
    node = replace(node, facts=replace(node.facts, units=units))
    words = [
        one.argv
        for one in restart.questions(request(target=NAME), made.picture(node), restart_survey())
        if hasattr(one, "argv")
    ]
    assert words
    assert all(argv[-1] == "a.service" and "--now" not in argv for argv in words)


def test_container_that_starts_over_and_over_is_known_by_its_id_alone() -> None:
    box = made.container(status="restarting", restart_count=9)
    engine = made.engine(container=box, state=EngineState.STARTING, metrics=None, pids=())
    node = spark(engines=(engine,), containers=Containers(containers=(box,), available=True, detail=""))
    stop = act(plan(made.picture(node)), "stop")
    assert isinstance(stop, Remote)
    assert isinstance(stop.operations[0], Expect)
    assert "State.StartedAt" not in stop.operations[0].equals
