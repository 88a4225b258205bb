"""Relaunch with a change: whole plans, what can't be, and what hostile names come to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.plan_golden import compare_plan
from tests.relaunch_support import INFINIBAND, asked, planned, possible
from tests.table import over

from sparktop.cmdline.engine_command import with_argv
from sparktop.model.change import SMALLER_SHARE, WITHOUT_GRAPHS, Change
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import DockerCall, Expect
from sparktop.model.survey import Answer, ModelsOnDisk, Question
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step

LESS = Change(flags={"--gpu-memory-utilization": "0.60", "--enforce-eager": ""}, environment={"NCCL_DEBUG": "INFO"})


def calls(step: Step) -> list[DockerCall]:
    assert isinstance(step.act, Remote)
    return [one for one in step.act.operations if isinstance(one, DockerCall)]


def created(plan: Plan | Refusal) -> dict[str, Any]:
    """The body of the container that is made."""
    step = next(one for one in possible(plan).steps if one.id.startswith("make"))
    body = next(call.body for call in calls(step) if call.path == "/containers/create")
    assert body is not None
    return dict(body)


def test_a_plain_container() -> None:
    plan = planned(asked(LESS), made.picture(restarts.spark()), written=Answer(value={"SizeRw": 5 << 20}))
    support.golden("relaunch", plan)
    assert support.TOKEN not in support.whole(plan)
    assert support.TOKEN not in repr(plan)
    assert possible(plan).secrets == (support.TOKEN,)


@over(
    "written, told",
    [
        (Answer(value={"SizeRw": 0}), ()),
        (Answer(value={"SizeRw": 10240}), ("10.0 KiB", "docker commit")),
        (Answer(problem="Docker didn't answer within 10 s"), ("not known", "within 10 s")),
        (Answer(value={}), ("not known",)),
    ],
)
def test_the_review_says_how_much_the_new_container_lacks(written: Answer, told: tuple[str, ...]) -> None:
    warnings = possible(planned(asked(LESS), made.picture(restarts.spark()), written=written)).warnings
    lost = [warning for warning in warnings if "the new one lacks it" in warning]
    assert len(lost) == bool(told)
    assert all(word in "".join(lost) for word in told)


@over("tokens, is_told", [("16384", True), ("16k", True), ("8192", False), ("auto", False)])
def test_a_context_above_the_model_s_own_is_told(tokens: str, is_told: bool) -> None:
    model = {"name": "tiny", "where": "folder", "path": "/data/models/tiny", "is_complete": True}
    config = {"max_position_embeddings": 8192}
    one = replace(support.engine(), model="/models/tiny")
    mounts = [{"Type": "bind", "Source": "/data/models", "Destination": "/models", "RW": True}]
    asked_for: list[ModelsOnDisk] = []

    def own(ask: Question) -> Answer | None:
        if not isinstance(ask, ModelsOnDisk):
            return None
        asked_for.append(ask)
        return Answer(value={"home": "/home/x", "models": [{**model, "config": config}]})

    change = Change(flags={"--max_model_len": tokens})
    picture = made.picture(restarts.spark(engines=(one,)))
    plan = possible(planned(asked(change), picture, own, inspect={"mounts": mounts}))
    assert any("8,192" in warning for warning in plan.warnings) == is_told
    assert {ask.roots for ask in asked_for} == ({("/data/models/tiny",)} if tokens != "auto" else set())


def test_a_finding_is_seen_to_resolve_and_the_old_one_removed_where_asked() -> None:
    finding = Finding(rule="memory.starved", severity=Severity.WARNING, title="t", nodes=("spark1",), subject="x")
    plan = possible(planned(asked(LESS, finding=finding, options={"keep_old": "no"}), made.picture(restarts.spark())))
    compare_plan("relaunch_for_a_finding", plan)
    assert [step.id for step in plan.steps[-4:]] == ["policy", "resolved", "serving", "remove"]
    assert "there is no rollback" in plan.effect


@over("change, is_theirs", [(WITHOUT_GRAPHS, True), (SMALLER_SHARE, False)])
def test_the_operators_memory_holds_on_the_way_back_unless_the_change_alters_it(
    change: Change, is_theirs: bool
) -> None:
    wish = asked(change, options={"target_gib": "50"})
    plan = possible(planned(wish, made.picture(restarts.spark())))
    waits = {
        step.id: step.act.target_bytes for step in (*plan.steps, *plan.rollback) if isinstance(step.act, AwaitMemory)
    }
    assert waits["memory"] == 50 << 30
    assert (waits["back-memory"] == 50 << 30) is is_theirs


def test_two_ranks_are_changed_together() -> None:
    plan = planned(asked(SMALLER_SHARE), restarts.two())
    support.golden("relaunch_two", plan)
    ids = [step.id for step in possible(plan).steps]
    assert ids.index("swap@spark2") < ids.index("swap@spark1"), "workers first without Ray"


def test_rm() -> None:
    one = support.engine(auto_remove=True, restart_policy="no")
    plan = planned(asked(LESS), made.picture(restarts.spark(engines=(one,))))
    support.golden("relaunch_rm", plan)


def test_a_guard_that_gives_way_is_told() -> None:
    guard = GuardState(phase=GuardPhase.ARMED, container_id="cd" * 32, container_name="other", floor_bytes=1 << 31)
    node = replace(restarts.spark(), guard=guard)
    plan = possible(planned(asked(LESS), made.picture(node)))
    assert [one for one in plan.warnings if one.startswith("The guard armed on spark1 over other is replaced")]
    assert not [
        one for one in possible(planned(asked(LESS), made.picture(restarts.spark()))).warnings if "guard" in one
    ]


def test_a_network_of_any_name_is_one_part_of_a_path() -> None:
    name = "../containers/prune?all=1#"
    networks = {"bridge": {}, name: {"Aliases": ["engine"]}}
    more = {"NetworkSettings": {"Networks": networks}, "host": {"NetworkMode": "bridge"}}
    plan = possible(planned(asked(LESS), made.picture(restarts.spark()), inspect=more))
    (call,) = [call for call in calls(plan.steps[1]) if call.path.startswith("/networks/")]
    assert call.path == "/networks/..%2Fcontainers%2Fprune%3Fall%3D1%23/connect"


def test_the_way_back_of_rm_starts_nobody_elses_container() -> None:
    """Whatever has the name by then is looked at before it is started."""
    one = support.engine(auto_remove=True, restart_policy="no")
    plan = possible(planned(asked(LESS), made.picture(restarts.spark(engines=(one,)))))
    old = next(step for step in plan.rollback if step.id == "back-old")
    assert isinstance(old.act, Remote)
    create, check, start = old.act.operations
    assert isinstance(create, DockerCall)
    assert isinstance(start, DockerCall)
    assert 409 in create.accepts
    assert isinstance(check, Expect)
    assert check.path == "/containers/vllm-qwen36/json"
    assert check.equals == {"Image": support.IMAGE_ID, "HostConfig.AutoRemove": True}
    assert start.path == "/containers/vllm-qwen36/start"


def test_what_is_removed_at_its_end_can_be_made_anew_as_it_is() -> None:
    one = support.engine(auto_remove=True, restart_policy="no")
    plan = possible(planned(asked(Change()), made.picture(restarts.spark(engines=(one,)))))
    assert plan.title == "Relaunch vllm-qwen36 on spark1 as it is"
    assert created(plan)["Cmd"] == list(made.ARGV)


def test_a_failed_start_or_load_goes_back_by_itself_and_a_failed_request_offers_it() -> None:
    plan = possible(planned(asked(LESS), made.picture(restarts.spark())))
    ways = {step.id: step.on_failure for step in plan.steps}
    assert ways["swap"] is ways["ready"] is OnFailure.ROLL_BACK
    assert ways["smoke"] is ways["memory"] is ways["stop"] is OnFailure.STOP
    armed = [step.act for step in plan.steps if isinstance(step.act, GuardOrder)]
    assert [order.container_id for order in armed] == ["{NEW}", "{NEW}", ""]


def test_an_engine_that_has_ended_is_made_anew_and_not_started_on_the_way_back() -> None:
    one = restarts.ended(made.engine())
    plan = possible(planned(asked(LESS), made.picture(restarts.spark(engines=(one,)))))
    assert "stop" not in {step.id for step in plan.steps}
    assert not any("start" in call.path for step in plan.rollback if step.id == "back-old" for call in calls(step))


# --- the body


def test_only_what_was_asked_is_another() -> None:
    body = created(planned(asked(LESS), made.picture(restarts.spark())))
    assert body["Cmd"] == [*made.ARGV[:8], "0.60", *made.ARGV[9:], "--enforce-eager"]
    assert body["Env"][:2] == [f"HF_TOKEN={support.TOKEN}", "NCCL_DEBUG=INFO"]
    assert body["Image"] == "nvcr.io/nvidia/vllm:26.05.post1-py3"
    assert body["HostConfig"]["DeviceRequests"][0]["Count"] == -1
    assert body["HostConfig"]["RestartPolicy"]["Name"] == "no"


def test_options_are_added_to_what_is_there() -> None:
    body = created(planned(asked(INFINIBAND), made.picture(restarts.spark())))
    assert [one["PathOnHost"] for one in body["HostConfig"]["Devices"]] == ["/dev/infiniband"]
    assert body["HostConfig"]["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]


def test_a_moved_tag_is_left_for_the_image_itself() -> None:
    other = {**support.IMAGE, "Id": "sha256:" + "77" * 32}
    images = {"nvcr.io/nvidia/vllm:26.05.post1-py3": other, support.IMAGE_ID: support.IMAGE}
    plan = possible(planned(asked(LESS), made.picture(restarts.spark()), images=images))
    assert created(plan)["Image"] == support.IMAGE_ID
    assert any("has changed or is gone" in warning for warning in plan.warnings)


def test_another_image() -> None:
    other = {"Id": "sha256:" + "77" * 32, "Config": {"Entrypoint": ["/new.sh"], "Env": ["PATH=/new"]}}
    images = {"org/new:2": other, "nvcr.io/nvidia/vllm:26.05.post1-py3": support.IMAGE, support.IMAGE_ID: support.IMAGE}
    plan = planned(asked(Change(image="org/new:2")), made.picture(restarts.spark()), images=images)
    body = created(plan)
    assert body["Image"] == "org/new:2"
    assert body["Entrypoint"] is None
    assert body["Env"] == [f"HF_TOKEN={support.TOKEN}", "NCCL_DEBUG=WARN"]
    assert (body["WorkingDir"], body["Labels"]) == ("", {})
    assert [one.what for one in possible(plan).differences] == ["image"]


# --- what can't be


def starters() -> list[tuple[str, dict[str, Any], str, str]]:
    compose = {
        "com.docker.compose.project": "llm",
        "com.docker.compose.service": "engine",
        "com.docker.compose.project.working_dir": "/srv/my llm",
        "com.docker.compose.project.config_files": "/srv/my llm/compose.yaml",
    }
    return [
        ("compose", {"labels": compose}, "docker compose", "up -d --no-deps engine"),
        (
            "sparkrun",
            {"name": "sparkrun_ab12_solo", "argv": ("sleep", "infinity")},
            "sparkrun",
            "sparkrun run RECIPE",
        ),
        (
            "eugr",
            {"argv": ("sleep", "infinity"), "auto_remove": True, "ipc_mode": "host", "is_privileged": True},
            "spark-vllm-docker",
            "launch-cluster.sh",
        ),
        (
            "ray",
            {"name": "node-31415", "argv": ("bash", "-c", "ray start --block --head")},
            "run_cluster.sh",
            "docker exec",
        ),
    ]


@pytest.mark.parametrize(("name", "box", "words", "line"), starters(), ids=[one[0] for one in starters()])
def test_what_others_started_is_told_by_hand(name: str, box: dict[str, Any], words: str, line: str) -> None:
    one = support.engine(**box)
    refusal = planned(asked(LESS), made.picture(restarts.spark(engines=(one,))))
    if isinstance(refusal, Plan):
        pytest.skip("that way has a plan of its own by now")
    assert words in refusal.reason
    assert any(line in each for each in refusal.remedies)
    assert any("--gpu-memory-utilization 0.60" in each for each in refusal.remedies)


@over(
    "request_, more, words",
    [
        (asked(Change()), {}, "no change is given"),
        (asked(Change(flags={"--gpu-memory-utilization": "0.70"})), {}, "already"),
        (asked(Change(options={"Ipc": "host"})), {}, "did you mean IpcMode"),
        (asked(Change(options={"IpcMode": 3})), {}, "wants a text"),
        (asked(Change(image="org/new:2")), {}, "is not on spark1"),
        (asked(Change(image="../containers/x")), {}, "is not on spark1"),
        (asked(LESS), {"images": {}}, "not on spark1 any more"),
        (asked(LESS), {"inspect": {"config": {"Entrypoint": ["bash", "-c"], "Cmd": ["/start.sh"]}}}, "a script"),
        (asked(LESS, options={"grace_s": "x"}), {}, "the grace must be between"),
        (asked(Change(options={"RestartPolicy": {"Name": "always"}, "AutoRemove": True})), {}, "Docker refuses"),
        (asked(LESS, target="nobody"), {}, "no engine of that name"),
    ],
)
def test_refusals(request_: Any, more: dict[str, Any], words: str) -> None:
    refusal = planned(request_, made.picture(restarts.spark()), **more)
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason, refusal.reason


def test_a_rank_that_is_not_seen_is_not_left_alone() -> None:
    refusal = planned(asked(LESS), made.picture(restarts.spark(engines=(restarts.head(),))))
    assert isinstance(refusal, Refusal)
    assert "runs over 2 nodes" in refusal.reason


# --- names and values of a remote machine


def test_hostile_names_reach_no_shell_and_no_terminal() -> None:
    evil = "a\x1b]52;c;AAAA\x07$(reboot)`id`'\"\n--rm; :"
    change = Change(environment={"X": evil}, flags={"--served-model-name": evil})
    mounts = [{"Type": "volume", "Name": "v" * 8, "Destination": "/x\x1b[2J", "RW": True}]
    plan = possible(planned(asked(change), made.picture(restarts.spark()), inspect={"mounts": mounts}))
    text = support.whole(plan)
    assert "\x1b" not in text
    assert "\x07" not in text
    body = created(plan)
    assert f"X={evil}" in body["Env"]
    assert evil in body["Cmd"]
    assert json.dumps(body)


def test_secrets_are_in_the_body_alone() -> None:
    change = Change(environment={"VLLM_API_KEY": "canary-environment"}, flags={"--api-key": "canary-flag"})
    argv = (*made.ARGV, "--api-key", "canary-old")
    one = with_argv(
        support.engine(argv=argv, labels={"my.password": "canary-label"}), (*made.ARGV, "--api-key", "<masked>")
    )
    plan = possible(planned(asked(change), made.picture(restarts.spark(engines=(one,)))))
    canaries = ("canary-environment", "canary-flag", "canary-old", "canary-label")
    assert set(canaries) <= set(plan.secrets)
    for canary in canaries:
        assert canary not in support.whole(plan)
        assert canary not in repr(plan)
    assert "VLLM_API_KEY=canary-environment" in created(plan)["Env"]


# --- figures left to the machine


def test_the_share_is_computed_for_the_machine() -> None:
    plan = possible(planned(asked(SMALLER_SHARE), made.picture(restarts.spark(baseline_gib=100.0, available_gib=10.0))))
    (share,) = plan.differences
    assert (share.name, share.before) == ("--gpu-memory-utilization", "0.70")
    assert share.after == "0.63"
    assert any("reserved for the host" in note for note in plan.warnings)


def test_a_step_less() -> None:
    change = Change(flags={"--gpu-memory-utilization": "-0.05"})
    (share,) = possible(planned(asked(change), made.picture(restarts.spark()))).differences
    assert share.after == "0.65"


def test_no_share_is_left() -> None:
    full = restarts.spark(baseline_gib=30.0, available_gib=3.0)
    refusal = planned(asked(SMALLER_SHARE), made.picture(full))
    assert isinstance(refusal, Refusal)
    assert "no share of memory is left" in refusal.reason


def test_without_graphs() -> None:
    body = created(planned(asked(WITHOUT_GRAPHS), made.picture(restarts.spark())))
    assert body["Cmd"][-2:] == ["-cc.cudagraph_mode", "NONE"]
