"""What a launch has started, relaunched: labels, lines, and what only a launch can do; a Ray pair's ranks."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests import recipe_support as recipes
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.plan_golden import compare_plan
from tests.relaunch_support import asked, planned
from tests.table import over

from sparktop.cmdline.engine_command import joins_ray, of_container, with_argv
from sparktop.cmdline.engine_flag_edits import FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.documents.engine_table import EngineRow, details
from sparktop.documents.snapshot import snapshot_lines
from sparktop.engines import labels
from sparktop.engines.ranks import missing, ranks, spans_nodes, start_order, stop_order
from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineKind, EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.operation import DockerCall
from sparktop.model.survey import Answer, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs.docker import docker_there, list_question
from sparktop.operate.launch.name_holder import running_already
from sparktop.operate.machine import guard
from sparktop.operate.relaunch.sparktop_launch import relabelled
from sparktop.operate.restart import loop, restart, stop
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render import rank_argv
from sparktop.recipe.render.host_config import body as docker_body
from sparktop.recipe.render.render import render
from sparktop.text.lines import plain

SECRET = "canary-5f0b7c11d2"
SAID = {labels.RECIPE: "qwen36", labels.VALUES: '{"max_model_len": "65536"}', labels.RANK: "0", labels.LAUNCH: "l-1"}
LESS = Change(flags={"--gpu-memory-utilization": "0.60"})
ENGINE = (*made.ARGV, "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray")


def alone(**more: Any) -> FleetState:
    return made.picture(restarts.spark(engines=(support.engine(labels=SAID, **more),)))


def bodies(plan: Plan | Refusal) -> list[dict[str, Any]]:
    """Of the containers that are made."""
    assert isinstance(plan, Plan), plan
    steps = [step.act for step in plan.steps if step.id.startswith("make")]
    calls = [one for act in steps if isinstance(act, Remote) for one in act.operations if isinstance(one, DockerCall)]
    return [dict(call.body or {}) for call in calls if call.path == "/containers/create"]


def rank(index: int, starts: tuple[str, ...], **more: Any) -> Engine:
    box = made.container("vllm-pair", argv=starts, labels={**SAID, labels.RANK: str(index)}, **more.pop("box", {}))
    return made.engine("vllm-pair", container=box, **more)


def ray_pair(**worker: Any) -> FleetState:
    """As a launch over Ray starts them: the head is the engine, the worker's container only joins."""
    head = recipes.ray_rank(0, ENGINE)
    joins = recipes.ray_rank(1)
    silent = {"endpoint": None, "metrics": None, "rates": None, "model": None, "argv": ("ray::RayWorkerWrapper",)}
    return made.picture(
        restarts.spark("spark1", engines=(rank(0, head, argv=ENGINE),)),
        restarts.spark("spark2", engines=(rank(1, joins, **{**silent, **worker}),)),
    )


# --- one node


def test_a_launched_container_is_made_anew_as_any_other() -> None:
    plan = planned(asked(LESS), alone())
    support.golden("relaunch_launched", plan)
    (body,) = bodies(plan)
    values = {"gpu_memory_utilization": "0.60", "max_model_len": "65536"}
    assert json.loads(body["Labels"][labels.VALUES]) == values
    assert labels.CHANGED not in body["Labels"]
    assert body["Labels"][labels.LAUNCH] == "l-1"
    assert body["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert [step.id for step in plan.steps][-2:] == ["policy", "serving"]  # type: ignore[union-attr]


def test_what_no_parameter_says_is_named_and_its_value_is_not() -> None:
    change = Change(
        flags={"--api-key": SECRET, "--enforce-eager": "", "--some-new-flag": "7"},
        environment={"NCCL_DEBUG": "INFO", "VLLM_API_KEY": SECRET},
        options={"ShmSize": 1 << 34},
    )
    plan = planned(asked(change), alone())
    (body,) = bodies(plan)
    told = body["Labels"]
    assert json.loads(told[labels.VALUES]) == {"enforce_eager": "true", "max_model_len": "65536"}
    names = ["--api-key", "--some-new-flag", "NCCL_DEBUG", "ShmSize", "VLLM_API_KEY"]
    assert json.loads(told[labels.CHANGED]) == names
    assert SECRET not in json.dumps(told)
    assert isinstance(plan, Plan)
    assert not any(line.startswith("sparktop launch") for line in plan.equivalent), "no launch says all of this"
    assert labels.starter_words(told).startswith("sparktop launch qwen36, with --api-key, ")


def test_the_launch_that_does_the_same_is_told() -> None:
    plan = planned(asked(LESS), alone())
    assert isinstance(plan, Plan)
    assert plan.equivalent[0] == (
        "sparktop launch qwen36 spark1 --set gpu_memory_utilization=0.60 --set max_model_len=65536 --stop vllm-qwen36"
        "   # the same from its recipe"
    )
    again = restarts.planned(restart, restarts.request(), alone())
    assert isinstance(again, Plan)
    line = "sparktop launch qwen36 spark1 --set max_model_len=65536 --stop vllm-qwen36   # or from its recipe"
    assert again.equivalent[-1] == line
    ended = made.picture(restarts.spark(engines=(restarts.ended(support.engine(labels=SAID)),)))
    refused = restarts.planned(stop, restarts.request("stop-engine"), ended)
    assert isinstance(refused, Refusal)
    assert line in refused.remedies


@over(
    "flags, line",
    [
        ({"--tensor-parallel-size": "2"}, "spark1 HOST --set max_model_len=65536 --set tensor_parallel=2"),
        ({"--nnodes": "2", "--max-model-len": "1024"}, "spark1 --set max_model_len=1024"),
    ],
)  # fmt: skip
def test_what_a_launch_finds_out_is_a_launch_s_to_do(flags: dict[str, str | None], line: str) -> None:
    change = Change(flags=flags, environment={"A": "b c", "MY_TOKEN": SECRET})
    refused = planned(asked(change), alone())
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("vllm-qwen36 on spark1 was launched from qwen36: ")
    assert refused.remedies == (
        f"sparktop launch qwen36 {line} --stop vllm-qwen36",
        "in a copy of qwen36, in env: A=b c",
        "in a .env file of mode 0600, or exported: MY_TOKEN",
    )
    plain = planned(asked(Change(flags=flags)), made.picture(restarts.spark()))
    assert isinstance(plain, Plan), "what nobody launched is nobody's to know better"


def test_a_published_port_is_a_launch_s_to_change() -> None:
    host = {"NetworkMode": "bridge", "PortBindings": {"8000/tcp": [{"HostIp": "", "HostPort": "8000"}]}}
    refused = planned(asked(Change(flags={"--port": "9000"})), alone(), inspect={"host": host})
    assert isinstance(refused, Refusal)
    assert "--set port=9000" in refused.remedies[0]
    assert isinstance(planned(asked(Change(flags={"--port": "9000"})), alone()), Plan)


def test_what_can_t_be_edited_is_refused_with_the_launch_that_can() -> None:
    argv = ("bash", "-c", "vllm serve m $ARGS --max-num-seqs 4")
    refused = planned(asked(Change(flags={"--max-num-seqs": "8"})), alone(argv=argv))
    assert isinstance(refused, Refusal), refused
    line = "sparktop launch qwen36 spark1 --set max_model_len=65536 --set max_num_seqs=8 --stop vllm-qwen36"
    assert line in refused.remedies


def test_hostile_labels_stay_words() -> None:
    said = {labels.RECIPE: "x; $(reboot)\x1b[31m", labels.VALUES: '{"a b": "$(reboot)"}', labels.CHANGED: '["\x1b[2J"]'}
    one = support.engine(labels={**said, labels.CHANGED: ""})
    plan = planned(asked(LESS), made.picture(restarts.spark(engines=(one,))))
    assert isinstance(plan, Plan)
    words = shlex.split(plan.equivalent[0], comments=True)
    assert words[:4] == ["sparktop", "launch", labels.recipe_of(said), "spark1"]
    assert "a b=$(reboot)" in words
    assert "\x1b" not in plan.equivalent[0] + labels.starter_words(said)


@given(values=st.text(max_size=60), changed_=st.text(max_size=60))
def test_damaged_labels_are_made_whole(values: str, changed_: str) -> None:
    before = {labels.RECIPE: "r", labels.VALUES: values, labels.CHANGED: changed_}
    flag = FlagChange(name="--max-num-seqs", before=None, after="8")
    after = relabelled(before, EngineKind.VLLM, (flag,), ["A"], "")
    assert json.loads(after[labels.VALUES])["max_num_seqs"] == "8"
    assert "A" in json.loads(after[labels.CHANGED])


def test_the_operator_s_own_word_for_a_parameter_is_kept() -> None:
    before = {labels.RECIPE: "r", labels.VALUES: '{"context": "65536"}'}
    flag = FlagChange(name="--max-model-len", before="65536", after="8192")
    assert json.loads(relabelled(before, EngineKind.VLLM, (flag,), [], "")[labels.VALUES]) == {"context": "8192"}
    assert relabelled({"a": "b"}, EngineKind.VLLM, (flag,), ["A"], "i") == {"a": "b"}, "it is not ours"


def test_who_launched_it_is_told() -> None:
    picture = alone()
    (engine,) = picture.nodes[0].engines
    text = " ".join(line.plain for line in details(EngineRow(node="spark1", engine=engine), 110))
    assert "started by sparktop launch qwen36" in text
    assert "started by sparktop launch qwen36" in plain(snapshot_lines(picture, 100))
    assert "sparktop launch" not in plain(snapshot_lines(made.picture(restarts.spark()), 100))


def test_what_a_relaunch_has_changed_is_not_what_a_launch_asks_for() -> None:
    rendered = render(resolve(recipes.order()), (recipes.seat(0),))
    box = rendered.ranks[0].container
    row = {"Names": [f"/{box.name}"], "State": "running", "Id": "ab" * 32}

    def runs(more: dict[str, str]) -> bool:
        answer = Answer(value=[{**row, "Labels": {**box.labels, **more}}])
        survey = Survey(answers={list_question("spark1"): answer})
        return bool(running_already(rendered, {"spark1": docker_there(survey, "spark1", rendered.image)}))

    assert runs({})
    assert not runs({labels.CHANGED: '["NCCL_DEBUG"]'})
    flag = FlagChange(name="--max-num-seqs", before=None, after="8")
    assert not runs(relabelled(box.labels, EngineKind.VLLM, (flag,), [], ""))
    asked_for = render(resolve(recipes.order({"max_num_seqs": "8"})), (recipes.seat(0),)).ranks[0].container.labels
    assert relabelled(box.labels, EngineKind.VLLM, (flag,), [], "") == asked_for, "a launch says the same"


# --- two nodes under Ray


def test_the_head_s_flags_are_changed_behind_the_script_and_the_worker_only_joins() -> None:
    hostile = "it's; $(reboot)"
    change = Change(flags={"--max-num-seqs": "8", "--served-model-name": hostile}, environment={"NCCL_DEBUG": "INFO"})
    plan = planned(asked(change, "spark1", "spark2"), ray_pair())
    head, worker = bodies(plan)
    assert head["Cmd"][:8] == ["sh", "-c", rank_argv.HEAD_SCRIPT, "sparktop-ray-head", "2", "10.0.0.1", "6379", "900"]
    assert head["Cmd"][-2:] == ["--served-model-name", hostile] or hostile in head["Cmd"]
    assert head["Cmd"][head["Cmd"].index("--max-num-seqs") + 1] == "8"
    assert worker["Cmd"] == [*recipes.ray_rank(1)]
    assert all("NCCL_DEBUG=INFO" in body["Env"] for body in (head, worker))
    assert head["Labels"][labels.VALUES] == worker["Labels"][labels.VALUES]
    assert head["Labels"][labels.CHANGED] == worker["Labels"][labels.CHANGED] == '["NCCL_DEBUG"]'
    assert [body["Labels"][labels.RANK] for body in (head, worker)] == ["0", "1"]


def test_a_ray_pair_is_stopped_head_first_and_started_head_first() -> None:
    plan = planned(asked(LESS, "spark1", "spark2"), ray_pair())
    support.golden("relaunch_launched_ray", plan)
    assert isinstance(plan, Plan)
    ids = [step.id for step in plan.steps]
    assert ids.index("stop@spark1") < ids.index("stop@spark2") < ids.index("swap@spark1") < ids.index("swap@spark2")
    again = restarts.planned(restart, restarts.request("safe-restart", "", "spark1", "spark2"), ray_pair())
    assert isinstance(again, Plan)
    ids = [step.id for step in again.steps]
    assert ids.index("stop@spark1") < ids.index("stop@spark2") < ids.index("start@spark1") < ids.index("start@spark2")


def test_a_guard_and_a_broken_loop_cover_both_ranks() -> None:
    wanted = restarts.request("guard", "vllm-pair", "spark1", "spark2")
    armed = restarts.planned(guard, wanted, ray_pair())
    assert isinstance(armed, Plan), armed
    compare_plan("guard-ray-pair", armed)
    assert [step.node for step in armed.steps] == ["spark1", "spark2"]
    pair = ray_pair()
    boxes = [box.name for view in pair.nodes for box in view.containers.containers]
    wanted = restarts.request("break-loop", "", "spark1", "spark2")
    broken = restarts.planned(loop, wanted, pair, inspects={name: {"Restarting": True} for name in boxes})
    assert isinstance(broken, Plan), broken
    compare_plan("loop-ray-pair", broken)
    off = [step.id for step in broken.steps if step.id.startswith(("policy-off", "stop", "still"))]
    assert off == [f"{what}@spark{n}" for what in ("policy-off", "stop", "still") for n in (1, 2)]


@over(
    "worker",
    [
        {},
        {"argv": recipes.ray_rank(1), "pids": (),
         "state": EngineState.STARTING},
    ],
    ids=["its rank is there", "it waits"],
)  # fmt: skip
def test_a_worker_takes_of_its_node_what_the_head_says(worker: dict[str, Any]) -> None:
    fleet = ray_pair(**worker)
    for node in ("spark1", "spark2"):
        team = ranks("vllm-pair", node, fleet)
        assert [(one.node.name, one.is_head) for one in team] == [("spark1", True), ("spark2", False)]
        assert team[1].engine.argv == ENGINE
        assert missing(team) == 0
        for order in (start_order(team), stop_order(team)):
            assert [one.node.name for one in order] == ["spark1", "spark2"]


def test_the_ranks_of_two_launches_are_not_of_one() -> None:
    fleet = ray_pair()
    other = fleet.nodes[1].engines[0]
    assert other.container is not None
    box = replace(other.container, labels={**(other.container.labels or {}), labels.LAUNCH: "l-2"})
    fleet = made.picture(fleet.nodes[0], replace(fleet.nodes[1], engines=(replace(other, container=box),)))
    assert len(ranks("vllm-pair", "spark1", fleet)) == 1


def test_a_pair_that_has_ended_knows_its_head() -> None:
    fleet = ray_pair()
    ended = [with_argv(restarts.ended(one.engines[0]), one.engines[0].container.argv) for one in fleet.nodes]  # type: ignore[union-attr]
    fleet = made.picture(*(replace(node, engines=(one,)) for node, one in zip(fleet.nodes, ended, strict=True)))
    team = ranks("vllm-pair", "spark2", fleet)
    assert [(one.node.name, one.is_head) for one in team] == [("spark1", True), ("spark2", False)]


def test_who_joins_ray() -> None:
    head = recipes.ray_rank(0, ENGINE)
    worker = [*recipes.ray_rank(1)]
    assert (joins_ray(head), joins_ray(worker)) == (False, True)
    assert joins_ray(("bash", "-c", "ray start --block --address=10.0.0.1:6379"))
    assert not joins_ray(("bash", "-c", "ray start --block --head"))
    assert of_container(worker) is None
    assert spans_nodes(made.engine(argv=tuple(worker)))
    same = changed((), worker, {"--max-num-seqs": "8"}, {"address": "x"})
    assert (list(same.command), same.flags, same.variables) == (worker, (), ())


def test_what_is_rendered_is_what_is_relaunched() -> None:
    """Every shipped recipe's ranks take a change of a flag, and of a variable."""
    for name in recipes.SHIPPED:
        shipped = recipes.shipped(name)
        rendered = render(resolve(recipes.Order(recipe=shipped)), recipes.seats_for(shipped))
        for one in rendered.ranks:
            asked_of = docker_body(one.container)
            line = changed(
                [word for word in asked_of.get("Entrypoint", []) if word], asked_of["Cmd"], {"--max-num-seqs": "3"}, {}
            )
            was_engine = of_container(asked_of["Cmd"]) is not None
            assert bool(line.flags) is was_engine, name
            if was_engine:
                assert "3" in line.command
