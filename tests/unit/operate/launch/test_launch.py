"""The plan of a launch: its steps in their order, the way back, what it says, and the picture of why not."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests.planner_support import asks_of, plan_of
from tests.restart_support import ended, head, worker
from tests.table import over
from tests.unit.operate.launch.launch_support import GIB, IMAGE_ID, Sparks, recipe

from sparktop.cmdline.engine_command import of_container
from sparktop.documents.plan import plan_lines, refusal_lines
from sparktop.engines.memory_taken import deciding_flags
from sparktop.headless.plan_data import plan_data, refusal_data
from sparktop.model.engine import EngineKind, EngineState
from sparktop.model.fleet import Taken
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Transfer
from sparktop.model.prospect import Fit, Gate
from sparktop.model.recipe import Need, Order
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.model.survey import Survey
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.launch import launch
from sparktop.operate.secrets.masking import Masker, operation_entry
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step
from sparktop.recipe.read import shelf
from sparktop.text.lines import plain

QWEN, RAY, NATIVE, TINY = "qwen3.6-35b-a3b-fp8", "minimax-m2.7-nvfp4-ray", "minimax-m2.7-nvfp4", "qwen3-0.6b"
BOTH = ("spark1", "spark2")
LABELS = {"sparktop.recipe": TINY, "sparktop.values": "{}", "sparktop.rank": "0"}


def order(name: str = TINY, **more: Any) -> Order:
    return Order(recipe=recipe(name), **more)


def ids(steps: tuple[Step, ...]) -> list[str]:
    return [step.id for step in steps]


def step_of(plan: Plan, name: str) -> Step:
    return next(step for step in (*plan.steps, *plan.rollback) if step.id == name)


def planned(spot: Sparks, asked: Order, **options: str) -> Plan:
    found = spot.planned(asked, **options)
    assert isinstance(found, Plan), found
    return found


def refused(spot: Sparks, asked: Order, **options: str) -> Refusal:
    found = spot.planned(asked, **options)
    assert isinstance(found, Refusal), found
    return found


def audited(plan: Plan) -> str:
    """What the audit has of its operations."""
    masker = Masker(plan.secrets)
    acts = [step.act for step in (*plan.steps, *plan.rollback) if isinstance(step.act, Remote)]
    return json.dumps([operation_entry(one, masker) for act in acts for one in (*act.operations, *act.undo)])


def calls(step: Step) -> list[str]:
    assert isinstance(step.act, Remote)
    return [f"{one.method} {one.path}" if isinstance(one, DockerCall) else "expect" for one in step.act.operations]


# --- the steps


def test_on_one_node_with_all_on_disk() -> None:
    plan = planned(Sparks(), order(QWEN))
    assert plan.title == "Launch Qwen3.6-35B-A3B-FP8 on spark1 (vLLM)"
    assert ids(plan.steps) == [
        *("make", "memory", "guard-load", "start", "ready", "guard-request", "smoke", "measure", "guard-back"),
        "serving",
    ]
    assert ids(plan.rollback) == ["back-evidence", "back-stop", "back-guard-launch", "back-remove"]
    assert plan.risk is Risk.SAFE
    assert plan.is_all_or_nothing
    assert {step.id for step in plan.steps if step.on_failure is OnFailure.ROLL_BACK} == {
        *("make", "memory", "start", "ready", "smoke", "serving"),
    }
    assert step_of(plan, "measure").on_failure is OnFailure.GO_ON
    assert plan.differences == ()


def test_the_container_is_made_of_the_image_that_was_seen_and_starts_without_a_policy() -> None:
    plan = planned(Sparks(), order(QWEN))
    act = step_of(plan, "make").act
    assert isinstance(act, Remote)
    image, folder, create = act.operations
    assert isinstance(image, Expect)
    assert image.equals == {"Id": IMAGE_ID}
    assert isinstance(create, DockerCall)
    assert create.body is not None
    assert create.body["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert isinstance(folder, Command)  # Docker would make it as root
    assert f"{folder.argv[-1]}:/cache/compiled" in create.body["HostConfig"]["Binds"]
    assert create.body["Labels"]["sparktop.launch"] == "20260528T202640"
    assert "--gpu-memory-utilization" in create.body["Cmd"]
    assert [f"{one.method} {one.path}" for one in act.undo if isinstance(one, DockerCall)] == [
        "DELETE /containers/{NEW}"
    ]


def test_its_own_container_is_known_by_its_id_alone() -> None:
    plan = planned(Sparks(), order(QWEN))
    for name in ("start", "back-stop", "back-remove"):
        assert all("{NEW}" in one for one in calls(step_of(plan, name)) if one != "expect"), name
    ready, guard = step_of(plan, "ready").act, step_of(plan, "guard-load").act
    assert isinstance(ready, AwaitReady)
    assert isinstance(guard, GuardOrder)
    assert ready.container_id == guard.container_id == "{NEW}"


def test_the_proof_is_the_recipe_s_own() -> None:
    plan = planned(Sparks(), order(QWEN, secrets={"VLLM_API_KEY": "sk-canary-4f2a9c77"}))
    smoke, measure = step_of(plan, "smoke").act, step_of(plan, "measure").act
    assert isinstance(smoke, SmokeTest)
    assert isinstance(measure, Measure)
    assert (smoke.max_tokens, smoke.prompt[:11]) == (1024, "What is 12*")
    assert measure.expected.tokens_s == 28
    assert smoke.api_key == measure.api_key == "sk-canary-4f2a9c77"


@over("thinks, tokens", [(True, 512), (False, 16)])
def test_a_reasoning_model_gets_tokens_for_an_answer_behind_its_thoughts(thinks: bool, tokens: int) -> None:
    asked = order(QWEN)
    proof = replace(asked.recipe.proof, max_tokens=16, is_reasoning=thinks)
    smoke = step_of(planned(Sparks(), replace(asked, recipe=replace(asked.recipe, proof=proof))), "smoke").act
    assert isinstance(smoke, SmokeTest)
    assert smoke.max_tokens == tokens


def test_what_serves_embeddings_is_asked_for_one_and_not_measured() -> None:
    asked = order(TINY)
    pooling = replace(asked, recipe=replace(asked.recipe, command=f"{asked.recipe.command.rstrip()} --runner pooling"))
    plan = planned(Sparks(), pooling)
    assert "measure" not in ids(plan.steps)
    smoke = step_of(plan, "smoke")
    assert isinstance(smoke.act, SmokeTest)
    assert smoke.act.is_pooling
    assert next(smoke.act.text()).startswith("POST /v1/embeddings, else /v1/rerank, else /pooling, of ")
    assert "proven by one request. " in plan.effect
    assert "/v1/embeddings" in plan.outcome_command


def test_the_recipe_s_own_commands_run_once_it_has_served() -> None:
    asked = order(TINY)
    hooks = (
        "curl -fsS http://127.0.0.1:{port}/v1/models | grep -q '\"id\"'",
        "echo ${HOME} \x1b[31m{container_name}",
        "set -e\necho 'a b'\n",
    )
    plan = planned(Sparks(), replace(asked, recipe=replace(asked.recipe, post_exec=hooks)))
    steps = ids(plan.steps)
    assert steps[steps.index("smoke") :][:3] == ["smoke", "post-exec", "measure"]
    step = step_of(plan, "post-exec")
    assert (step.on_failure, step.limit_s) == (OnFailure.FAIL_AT_END, 1800.0)
    assert list(step.act.text()) == [
        "in vllm-qwen3-0.6b, as root, by bash:",
        "post_exec 1:",
        "  curl -fsS http://127.0.0.1:8000/v1/models | grep -q '\"id\"'",
        "post_exec 2:",
        "  echo ${HOME} \ufffd[31mvllm-qwen3-0.6b",
        "post_exec 3:",
        "  set -e",
        "  echo 'a b'",
    ]
    assert isinstance(step.act, Remote)
    first = step.act.operations[0]
    assert isinstance(first, Command)
    assert first.argv[:-1] == ("docker", "exec", "--user", "0", "vllm-qwen3-0.6b", "bash", "-c")
    by_hand = "on spark1: docker exec --user 0 vllm-qwen3-0.6b bash -c $'set -e\\necho \\'a b\\''"
    assert by_hand in plan.equivalent
    assert any("(post_exec)" in warning for warning in plan.warnings)


def test_memory_is_waited_for_by_the_budget() -> None:
    plan = planned(Sparks(), order(QWEN))
    assert plan.prospect is not None
    assert plan.prospect.budget is not None
    share = plan.prospect.budget.share
    act = step_of(plan, "memory").act
    assert share is not None
    assert isinstance(act, AwaitMemory)
    assert share * made.TOTAL_BYTES < act.target_bytes < 112 * GIB


@over("weights_gib, at_most", [("10", 0.2), ("", 0.04)])
def test_a_unit_of_an_engine_without_a_share_waits_for_what_the_launch_waits_for(
    weights_gib: str, at_most: float
) -> None:
    """Where even the weights are unknown: for what the host needs."""
    own = {"engine": EngineKind.LLAMA_CPP, "model": "/opt/m.gguf", "has_model_inside": True, "need": Need()}
    llama = replace(
        recipe(TINY),
        **own,
        defaults={},
        container="scitrera/dgx-spark-llama-cpp:b8094-cu131",
        command="llama-server -m {model}",
    )
    values = {"need.weights_gib": weights_gib} if weights_gib else {}
    plan = planned(Sparks(), Order(recipe=llama, values=values))
    assert plan.prospect is not None
    (text,) = plan.prospect.files["systemd"].values()
    share = float(text.partition(" wait-for-memory ")[2].split()[0])
    acts = [step.act for step in plan.steps if isinstance(step.act, AwaitMemory)]
    assert [round(act.target_bytes / made.TOTAL_BYTES, 4) for act in acts] == [share] * bool(weights_gib)
    assert 0.03 < share < at_most


@over("name, starts", [(RAY, ["start@spark1", "start@spark2"]), (NATIVE, ["start@spark2", "start@spark1"])])
def test_two_ranks_are_made_started_and_taken_away_together(name: str, starts: list[str]) -> None:
    plan = planned(Sparks(nodes=BOTH), order(name))
    order_of = ids(plan.steps)
    assert [one for one in order_of if one.startswith("start")] == starts
    assert order_of.index(starts[1]) == order_of.index(starts[0]) + 1, "nothing between the two starts"
    assert max(order_of.index(f"make@{node}") for node in BOTH) < order_of.index(starts[0])
    for node, other in (BOTH, BOTH[::-1]):
        act = step_of(plan, f"ready@{node}").act
        assert isinstance(act, AwaitReady)
        assert [one[0] for one in act.together] == [other]
        assert act.is_worker is (node == "spark2")
    back = ids(plan.rollback)
    assert back[:3] == ["back-evidence", "back-stop@spark1", "back-stop@spark2"]
    assert back[-2:] == ["back-remove@spark1", "back-remove@spark2"]


def test_the_log_is_kept_of_the_rank_that_was_started_first() -> None:
    assert step_of(planned(Sparks(nodes=BOTH), order(NATIVE)), "back-evidence").node == "spark2"
    assert step_of(planned(Sparks(nodes=BOTH), order(RAY)), "back-evidence").node == "spark1"


def test_the_policy_comes_when_it_has_served() -> None:
    asked = order()
    asked = replace(asked, recipe=replace(asked.recipe, options={"restart_policy": "on-failure:3"}))
    plan = planned(Sparks(), asked)
    assert ids(plan.steps)[-2:] == ["policy", "serving"]
    act = step_of(plan, "policy").act
    assert isinstance(act, Remote)
    call = act.operations[0]
    assert isinstance(call, DockerCall)
    assert call.body == {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}


# --- making room


def test_what_is_agreed_is_stopped_after_the_containers_are_made_and_comes_back() -> None:
    old = made.engine("vllm-old", gpu_bytes=60 * GIB)
    plan = planned(Sparks(old), order(QWEN, stops=(("spark1", "vllm-old"),)), grace_s="20")
    order_of = ids(plan.steps)
    assert order_of[:5] == ["make", "policy-off-1@spark1", "stop-1@spark1", "kill-1@spark1", "gone-1@spark1"]
    assert order_of.index("memory") > order_of.index("gone-1@spark1")
    assert plan.risk is Risk.DISRUPTIVE
    stop = step_of(plan, "stop-1@spark1")
    assert stop.on_failure is OnFailure.ROLL_BACK
    assert stop.title == "Stop vllm-old, 20 s grace"
    back = ids(plan.rollback)
    assert back[back.index("back-remove") + 1 :] == [
        *("back-memory-1@spark1", "back-start-1@spark1", "back-ready-1@spark1", "back-guard-1@spark1"),
        *("back-policy-1@spark1", "back-serving-1@spark1"),
    ]
    assert any("vllm-old on spark1" in one and "stays stopped" in one for one in plan.warnings)
    assert any("docker stop -t 20 vllm-old" in one for one in plan.equivalent)


def test_a_guard_on_what_is_stopped_goes_with_it() -> None:
    old = made.engine("vllm-old", gpu_bytes=60 * GIB)
    assert old.container is not None
    spot = Sparks(old)
    guard = GuardState(
        phase=GuardPhase.ARMED, container_id=old.container.container_id, container_name="vllm-old", floor_bytes=9
    )
    spot.views["spark1"] = replace(spot.views["spark1"], guard=guard)
    plan = planned(spot, order(QWEN, stops=(("spark1", "vllm-old"),)))
    assert step_of(plan, "guard-back").act == GuardOrder(container_id="")
    assert sum("guard armed on spark1" in one for one in plan.warnings) == 1
    assert any("over vllm-old goes with it: M arms one on vllm-qwen3" in one for one in plan.warnings)
    back = step_of(plan, "back-guard-1@spark1").act
    assert isinstance(back, GuardOrder)
    assert back.container_id == old.container.container_id, "and comes back with it"


def test_an_engine_over_two_nodes_goes_with_both_ranks() -> None:
    spot = Sparks(head(), nodes=BOTH)
    rank = worker()
    assert rank.container is not None
    view = spot.views["spark2"]
    boxes = replace(view.containers, containers=(rank.container,))
    spot.views["spark2"] = replace(view, engines=(rank,), containers=boxes)
    plan = planned(spot, order(NATIVE, stops=(("spark1", "vllm-head"),)))
    assert {step.node for step in plan.steps if step.id.startswith("stop-1")} == set(BOTH)


def test_what_was_started_with_rm_is_not_promised_back() -> None:
    old = made.engine("vllm-old", gpu_bytes=60 * GIB)
    assert old.container is not None
    old = replace(old, container=replace(old.container, auto_remove=True))
    plan = planned(Sparks(old), order(QWEN, stops=(("spark1", "vllm-old"),)))
    assert not any(step.id.startswith("back-start-1") for step in plan.rollback)
    assert any("does not come back if the launch fails: it was started with --rm" in one for one in plan.warnings)


def test_half_of_a_pair_can_be_stopped_and_is_not_started_again_alone() -> None:
    plan = planned(Sparks(head(), nodes=BOTH), order(NATIVE, stops=(("spark1", "vllm-head"),)))
    assert any(step.id.startswith("stop-1") for step in plan.steps)
    assert not any(step.id.startswith("back-start-1") for step in plan.rollback)
    assert any("it runs over 2 nodes, and 1 of its ranks can't be seen here" in one for one in plan.warnings)


def test_what_is_to_be_stopped_and_is_not_there_refuses() -> None:
    found = refused(Sparks(made.engine("vllm-old")), order(stops=(("spark1", "vllm-older"),)))
    assert found.reason == "there is no engine vllm-older on spark1 to stop"
    assert found.remedies == ("--stop vllm-old",)


# --- fetching


def test_what_is_missing_comes_before_anything_is_made_or_stopped() -> None:
    spot = Sparks(made.engine("vllm-old", gpu_bytes=60 * GIB))
    spot.images["spark1"] = False
    spot.models["spark1"] = None
    spot.hub = {
        "status": 200, "problem": "", "gated": False, "revision": "a" * 40, "config": {},
        "files": [{"path": "config.json", "size_bytes": 2000}, {"path": "m.safetensors", "size_bytes": 36 * 10**9}],
    }  # fmt: skip
    plan = planned(spot, order(QWEN, stops=(("spark1", "vllm-old"),), secrets={"HF_TOKEN": "hf_canaryABCDEFGHIJKLMN"}))
    assert ids(plan.steps)[:4] == ["image", "model", "make", "policy-off-1@spark1"]
    acts = [step.act.operations[-1] for step in plan.steps[:2] if isinstance(step.act, Remote)]
    assert isinstance(acts[0], ImagePull)
    assert isinstance(acts[1], Transfer)
    assert plan.prospect is not None
    assert len(plan.prospect.fetches) == 2
    shown = "\n".join(
        [
            plain(plan_lines(plan, 100, is_printed=True)),
            json.dumps(plan_data(plan)),
            repr(plan),
            audited(plan),
        ]
    )
    assert "hf_canary" not in shown
    assert "hf_canaryABCDEFGHIJKLMN" in plan.secrets


def test_nothing_is_fetched_where_that_is_not_wanted() -> None:
    spot = Sparks()
    spot.images["spark1"] = False
    found = refused(spot, order(QWEN, may_fetch=False))
    assert "nvcr.io/nvidia/vllm:26.05.post1-py3" in found.reason


# --- names


def row(state: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"Id": "ef" * 32, "Names": ["/vllm-qwen3-0.6b"], "State": state, "Labels": labels, "Image": "x"}


def test_a_stopped_one_of_before_gives_its_name_up_when_the_new_one_starts() -> None:
    spot = Sparks()
    spot.listed["spark1"] = [row("exited", LABELS)]
    plan = planned(spot, order())
    make, start, remove = (step_of(plan, name) for name in ("make", "start", "back-remove"))
    assert make.title.endswith("as vllm-qwen3-0.6b-next-20260528T202640 until it takes the name")
    before = "vllm-qwen3-0.6b-before-20260528T202640"
    assert before in start.title
    renames = [one.query["name"] for one in start.act.operations if isinstance(one, DockerCall) and one.query]  # type: ignore[union-attr]
    assert renames == [before, "vllm-qwen3-0.6b"]
    assert calls(remove) == ["DELETE /containers/{NEW}", f"POST /containers/{before}/rename"]
    guards = ids(plan.steps)
    assert guards.index("guard-load") > guards.index("start"), "before that it has another name"


def test_a_guard_on_the_one_of_before_goes_over_to_the_new_one() -> None:
    spot = Sparks()
    spot.listed["spark1"] = [row("exited", LABELS)]
    guard = GuardState(phase=GuardPhase.ARMED, container_id="ef" * 32, container_name="vllm-qwen3-0.6b", floor_bytes=9)
    spot.views["spark1"] = replace(spot.views["spark1"], guard=guard)
    plan = planned(spot, order())
    after, back = step_of(plan, "guard-back").act, step_of(plan, "back-guard-launch").act
    assert after == GuardOrder(container_id="{NEW}", container_name="vllm-qwen3-0.6b", floor_bytes=9)
    assert back == GuardOrder(container_id=""), "it has another name until the new one is removed"


def test_what_an_interrupted_launch_never_started_is_removed_first() -> None:
    """And what was made under the name that it would have changed; what has run is kept."""
    spot = Sparks()
    made_by = {**LABELS, "sparktop.launch": "20260528T190000"}
    left = row("created", made_by)
    renamed = row("created", made_by) | {"Id": "ab" * 32, "Names": ["/vllm-qwen3-0.6b-next-20260528T190000"]}
    foreign = row("created", LABELS) | {"Id": "cd" * 32, "Names": ["/vllm-qwen3-0.6b-next-mine"]}
    spot.listed["spark1"] = [left, renamed, foreign]
    plan = planned(spot, order())
    clear = step_of(plan, "clear")
    assert ids(plan.steps).index("clear") + 1 == ids(plan.steps).index("make")
    gone = [f"DELETE /containers/{'ef' * 32}", f"DELETE /containers/{'ab' * 32}"]
    assert calls(clear) == ["expect", gone[0], "expect", gone[1]]
    expected = [one for one in clear.act.operations if isinstance(one, Expect)]  # type: ignore[union-attr]
    assert all(one.equals["State.Status"] == "created" for one in expected)
    assert step_of(plan, "make").title == "Make the container vllm-qwen3-0.6b"
    assert not [one for one in step_of(plan, "start").act.operations if isinstance(one, DockerCall) and one.query]  # type: ignore[union-attr]


def test_one_that_nobody_here_made_is_left_alone() -> None:
    spot = Sparks()
    spot.listed["spark1"] = [row("exited")]
    assert "so it stays" in refused(spot, order()).reason


def test_what_runs_already_as_it_is_asked_for_is_not_launched_again() -> None:
    spot = Sparks()
    spot.listed["spark1"] = [row("running", LABELS)]
    found = refused(spot, order())
    assert found.reason == "vllm-qwen3-0.6b runs on spark1 already, launched from this recipe with these values"
    assert found.remedies[0].endswith("sparktop act safe-restart spark1 --engine vllm-qwen3-0.6b")
    assert found.remedies[1] == "to launch it again: --stop vllm-qwen3-0.6b"


def test_what_runs_as_it_is_asked_for_is_launched_anew_once_it_may_be_stopped() -> None:
    spot = Sparks(made.engine("vllm-qwen3-0.6b", gpu_bytes=4 * GIB))
    spot.listed["spark1"] = [row("running", LABELS)]
    plan = planned(spot, order(stops=(("spark1", "vllm-qwen3-0.6b"),)))
    assert plan.risk is Risk.DISRUPTIVE
    assert any(step.title.startswith("Stop vllm-qwen3-0.6b") for step in plan.steps)


def test_what_runs_with_other_values_is_to_be_stopped_first() -> None:
    spot = Sparks(made.engine("vllm-qwen3-0.6b", gpu_bytes=4 * GIB, container=made.container("vllm-qwen3-0.6b")))
    spot.listed["spark1"] = [row("running", {**LABELS, "sparktop.values": '{"max_model_len":"4096"}'})]
    found = refused(spot, order(values={"port": "8001"}))
    assert found.reason.startswith("name on spark1: vllm-qwen3-0.6b already exists")
    assert any(one.startswith("--stop vllm-qwen3-0.6b") for one in found.remedies)


def test_a_container_that_holds_no_engine_is_not_offered_to_be_stopped() -> None:
    spot = Sparks()
    spot.listed["spark1"] = [row("running")]
    found = refused(spot, order())
    assert "sparktop doesn't know it as an engine" in found.reason
    assert not any("--stop" in one for one in found.remedies)
    assert isinstance(spot.planned(order(values={"name": "vllm-qwen3-0.6b-2"})), Plan), "what is offered works"


def test_a_wait_knows_the_key_that_makes_it_longer() -> None:
    mine = replace(order(), recipe=replace(order().recipe, path="/srv/my recipes/mine.yaml"))
    wait = step_of(planned(Sparks(), mine), "ready")
    assert isinstance(wait.act, AwaitReady)
    key = "set runtime_config.sparktop.ready.limit_s, 3600 now, in "
    assert wait.act.longer == f"to allow more time, {key}'/srv/my recipes/mine.yaml'"
    ours = replace(order(), recipe=replace(order().recipe, path=str(shelf.entry(TINY).path)))
    wait = step_of(planned(Sparks(), ours), "ready")
    assert isinstance(wait.act, AwaitReady)
    assert key + "a copy of the recipe: mkdir -p ~/.config/sparktop/recipes && cp " in wait.act.longer


# --- why not


def test_what_does_not_fit_is_refused_with_the_picture_of_why() -> None:
    spot = Sparks(made.engine("vllm-old", gpu_bytes=90 * GIB))
    found = refused(spot, order(QWEN))
    assert found.reason.startswith("Does not fit")
    assert "--stop vllm-old" in found.remedies
    assert found.prospect is not None
    assert found.prospect.budget is not None
    assert found.prospect.budget.fit is Fit.NO
    text = plain(refusal_lines(found, 100, is_printed=True))
    assert "\nGates\n" in text
    assert refusal_data(found)["prospect"]["budget"]["fit"] == "does not fit"


def test_stopping_what_is_offered_makes_it_fit() -> None:
    spot = Sparks(made.engine("vllm-old", gpu_bytes=90 * GIB))
    assert isinstance(spot.planned(order(QWEN, stops=(("spark1", "vllm-old"),))), Plan)


def test_a_gate_that_is_shut_is_the_reason() -> None:
    spot = Sparks()
    spot.images["spark1"] = False
    found = refused(spot, order(QWEN, values={"container": "mine:latest"}))
    assert found.reason.startswith("image on spark1: mine:latest is not on spark1")
    assert found.remedies


@over(
    "values, said",
    [
        ({"max_modl_len": "4096"}, "the recipe has no parameter 'max_modl_len': did you mean max_model_len?"),
        ({"port": "http"}, "port is 'http'"),
        ({"model": "a b"}, "model is 'a b'"),
        ({"max_model_len": "--help"}, "begins with a dash"),
    ],
)
def test_what_can_t_be_rendered_says_why(values: dict[str, str], said: str) -> None:
    found = refused(Sparks(), order(values=values))
    assert said in found.reason
    assert found.prospect is not None


def test_as_many_nodes_as_the_recipe_is_for() -> None:
    found = refused(Sparks(), order(RAY))
    assert found.reason == f"{RAY} is for 2 nodes, and 1 is named"
    assert found.remedies == (f"sparktop launch recipes/{RAY}.yaml HOST HOST",)
    either = order(TINY)
    either = replace(either, recipe=replace(either.recipe, max_nodes=2))
    many = plan_of(launch, Request(action="launch", nodes=("a", "b", "c"), order=either), Sparks().picture, Survey())
    assert isinstance(many, Refusal)
    assert many.remedies == (f"sparktop launch recipes/{TINY}.yaml HOST [HOST]",)
    assert Sparks().asked == []


def test_without_a_recipe_there_is_nothing_to_launch() -> None:
    request = Request(action="launch", nodes=("spark1",))
    picture = Sparks().picture
    assert asks_of(launch, request, picture, Survey()) == ()
    assert isinstance(plan_of(launch, request, picture, Survey()), Refusal)


@over("docker", ["denied", "missing"])
def test_without_docker_there_is_no_launch(docker: str) -> None:
    spot = Sparks()
    spot.rights = replace(spot.rights, docker=docker)
    assert "Docker" in refused(spot, order()).reason


def test_a_grace_that_is_none_is_told() -> None:
    assert "the grace must be between" in refused(Sparks(), order(), grace_s="soon").reason


def test_an_engine_that_ended_is_nothing_to_stop() -> None:
    gone = ended(made.engine("vllm-old"))
    assert gone.state is EngineState.EXITED
    plan = planned(Sparks(gone), order(stops=(("spark1", "vllm-old"),)))
    assert not any(step.id.startswith("stop-") for step in plan.steps)


# --- what is said


def test_the_line_by_hand_is_one_line_whatever_the_container_runs() -> None:
    plan = planned(Sparks(nodes=BOTH), order(RAY))
    lines = [one for one in plan.equivalent if "docker run" in one]
    assert len(lines) == 2
    assert not any("\n" in one for one in lines)
    assert all("$'" in one for one in lines)


def test_secrets_stand_in_nothing_that_is_shown() -> None:
    secret = "sk-canary-4f2a9c77aa"
    plan = planned(Sparks(), order(QWEN, secrets={"VLLM_API_KEY": secret}))
    shown = "\n".join(
        [
            plain(plan_lines(plan, 100, is_printed=True)),
            json.dumps(plan_data(plan)),
            repr(plan),
            audited(plan),
        ]
    )
    assert secret not in shown
    assert secret in plan.secrets
    assert any(one.endswith("export VLLM_API_KEY   # each with its value") for one in plan.equivalent)


def test_hostile_values_reach_neither_a_shell_nor_a_path() -> None:
    hostile = "a$(touch x)'\";b"
    plan = planned(Sparks(), order(values={"served_model_name": hostile}))
    act = step_of(plan, "make").act
    assert isinstance(act, Remote)
    create = act.operations[-1]
    assert isinstance(create, DockerCall)
    assert create.body is not None
    assert hostile in create.body["Cmd"], "one word of an argv"
    line = next(one for one in plan.equivalent if "docker run" in one)
    assert hostile in shlex.split(line)
    assert "a container name has only letters" in refused(Sparks(), order(values={"name": "a/../b$(x)"})).reason


def test_a_tight_one_says_so_before_anything_else_of_it_and_one_that_fits_does_not() -> None:
    asked = order(NATIVE, values={"gpu_memory_utilization": "0.82"})
    tight = planned(Sparks(nodes=BOTH, available_gib=108.0), asked)
    assert tight.prospect is not None
    assert tight.prospect.budget is not None
    assert tight.prospect.budget.fit is Fit.TIGHT
    assert tight.prospect.budget.sentence in tight.warnings
    assert any(
        one.startswith("Tight: at 0.82 the engine takes") and "below the reserve of 12.0" in one
        for one in tight.warnings
    )
    roomy = planned(Sparks(nodes=BOTH, available_gib=116.0), asked)
    assert roomy.prospect is not None
    assert roomy.prospect.budget is not None
    assert roomy.prospect.budget.fit is Fit.FITS, roomy.prospect.budget.sentence
    assert not any("Tight" in one for one in roomy.warnings)


def test_its_risks_and_what_is_guessed_are_told() -> None:
    plan = planned(Sparks(nodes=BOTH), order(RAY))
    assert any("Its report built the image" in one for one in plan.warnings)
    assert "Its load took 18 min elsewhere" in plan.effect


def test_of_several_gates_that_are_shut_one_is_told_whole_and_the_others_by_name() -> None:
    def shut(name: str, node: str = "") -> Gate:
        return Gate(name=name, node=node, state=State.FAILED, detail=f"{name} is not as it should be")

    assert launch.blocking_reason([shut("port", "spark1")]) == "port on spark1: port is not as it should be"
    several = [
        shut("link", "spark1"),
        shut("link", "spark2"),
        shut("hca", "spark1"),
        shut("hca", "spark2"),
        shut("hub"),
    ]
    assert launch.blocking_reason(several) == (
        "link on spark1: link is not as it should be; shut too: link on spark2, hca on spark1 and spark2, hub"
    )


def test_what_was_measured_here_wins_and_the_plan_says_so() -> None:
    spot = Sparks()
    act = step_of(planned(spot, order()), "make").act
    assert isinstance(act, Remote)
    (body,) = [one.body for one in act.operations if isinstance(one, DockerCall) and one.path == "/containers/create"]
    assert body is not None
    image = order().recipe.container
    command = of_container(body["Cmd"], image=image)
    assert command is not None
    taken = Taken(
        wall_s=1.0, kind="vllm", model=order().recipe.model, image=image, version="0.21.0",
        flags=deciding_flags(command), weights_bytes=2 * GIB,
    )  # fmt: skip
    view = spot.views["spark1"]
    assert view.baseline is not None
    spot.views["spark1"] = replace(view, baseline=replace(view.baseline, taken=(taken,)))
    for asked, says in ((order(), "measured here, "), (order(values={"need.weights_gib": "3"}), "as you set it")):
        plan = planned(spot, asked)
        assert plan.prospect is not None
        assert plan.prospect.budget is not None
        (text,) = plan.prospect.budget.figures
        assert says in text
        assert text in "\n".join(line.plain for line in plan_lines(plan, 200))
        assert list(plan_data(plan)["prospect"]["budget"]["figures"]) == [text]
