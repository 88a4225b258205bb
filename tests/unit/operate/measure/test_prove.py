"""The plan of an endpoint's proof: its steps, its bounds, and when it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests.plan_golden import compare_plan
from tests.planner_support import asks_of, plan_of
from tests.table import over

from sparktop.documents.plan import plan_lines
from sparktop.documents.step_text import step_lines
from sparktop.model.engine import Engine, EngineKind, EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.proof import Proof
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Answer, DockerGet, Survey
from sparktop.operate.measure import prove
from sparktop.operate.measure.proofs import Prove
from sparktop.operate.measure.prove import is_open
from sparktop.operate.run.gate import plan_refusal
from sparktop.operate.step.plan import Plan, Refusal

NAME = "vllm-qwen36"
KEY = "sk-canary-4f2a9c77"


def spark(**more: Any) -> FleetState:
    return made.picture(made.node(engines=(made.engine(**{"running": 0.0, **more}),)))


def planned(picture: FleetState, *, variables: tuple[str, ...] = ()) -> Plan | Refusal:
    request = Request(action="prove-endpoint", nodes=("spark1",), target=NAME)
    questions = asks_of(prove, request, picture, Survey())
    survey = Survey(answers={ask: _inspected(ask, variables) for ask in questions})
    return plan_of(prove, request, picture, survey)


def _inspected(ask: Any, variables: tuple[str, ...]) -> Answer:
    assert isinstance(ask, DockerGet)
    container_id = ask.path.split("/")[2]
    return Answer(value={
        "Id": container_id, "Name": f"/{NAME}", "State": {"Running": True}, "HostConfig": {},
        "Config": {"Env": list(variables)}, "Args": [], "NetworkSettings": {"Ports": {}},
    })  # fmt: skip


def test_a_step_for_each_proof_within_a_minute() -> None:
    plan = planned(spark())
    assert isinstance(plan, Plan)
    acts = [step.act for step in plan.steps]
    assert [act.proof for act in acts if isinstance(act, Prove)] == list(Proof)
    assert sum(act.limit_s for act in acts if isinstance(act, Prove)) <= 60
    assert (plan.risk, plan.rollback) == (Risk.SAFE, ())
    assert all(step.act.changes for step in plan.steps), "no other run may be at the node meanwhile"
    own = [act.own_requests for act in acts if isinstance(act, Prove)]
    assert own == [0, 1, 1, 1, 1, 1, 2], "how many requests the proof before it had"


def test_what_serves_scores_is_not_asked_for_text() -> None:
    argv = ("vllm", "serve", "Qwen/Qwen3-Reranker-0.6B", "--runner", "pooling")
    plan = planned(spark(argv=argv, model="Qwen/Qwen3-Reranker-0.6B"))
    assert isinstance(plan, Plan)
    acts = [step.act for step in plan.steps if isinstance(step.act, Prove)]
    assert [act.proof for act in acts] == [Proof.HEALTH, Proof.ANSWER, Proof.TWO_AT_ONCE, Proof.WRONG_KEY]
    assert all(act.is_pooling for act in acts)
    assert "/v1/embeddings, else /v1/rerank, else /pooling: within" in list(acts[1].text())[1]
    assert plan.effect.startswith("Sends 5 requests within a minute")
    assert "/v1/rerank -H" in plan.equivalent[1]


def test_the_plan_is_as_on_file() -> None:
    plan = planned(spark(), variables=(f"VLLM_API_KEY={KEY}",))
    assert isinstance(plan, Plan)
    compare_plan("prove-endpoint", plan)


@over("metrics", [{}, {"has_metrics": False}], ids=["by its metrics", "by its command"])
def test_the_same_by_hand_asks_for_the_name_it_serves(metrics: dict[str, Any]) -> None:
    argv = ("vllm", "serve", "/models/tiny", "--served-model-name", "tiny")
    head = made.engine(running=0.0, argv=argv, model="/models/tiny", **metrics)
    assert '"model": "tiny"' in list(prove._equivalent("spark1", head, has_key=False))[1]


def test_its_key_is_in_its_steps_alone() -> None:
    plan = planned(spark(), variables=(f"VLLM_API_KEY={KEY}",))
    assert isinstance(plan, Plan)
    assert {act.api_key for step in plan.steps if isinstance(act := step.act, Prove)} == {KEY}
    assert plan.secrets == (KEY,)
    text = "\n".join(line.plain for line in plan_lines(plan, 100, is_printed=True))
    assert KEY not in text + repr(plan) + "".join(line for step in plan.steps for line in step_lines(step, plan))
    assert "$SPARKTOP_API_KEY" in text


def test_a_protected_host_and_a_stale_picture_are_left_alone() -> None:
    plan = planned(spark())
    assert isinstance(plan, Plan)
    plan, picture = replace(plan, seen_monotonic_s=made.NOW_S), spark()
    assert plan_refusal(plan, picture, now_s=made.NOW_S, is_read_only=False) is None
    assert plan_refusal(plan, picture, now_s=made.NOW_S, is_read_only=False, protected=("spark1",))
    assert plan_refusal(plan, picture, now_s=made.NOW_S + 60, is_read_only=False)
    assert plan_refusal(plan, picture, now_s=made.NOW_S, is_read_only=True)


@over(
    "engine, said, remedy",
    [
        ({"running": 2.0}, "vllm-qwen36 on spark1 holds 2 requests", "wait until they are done"),
        ({"waiting": 1.0}, "holds 1 request", "wait until they are done"),
        ({"has_metrics": False}, "is not known", "--disable-log-stats"),
        ({"has_metrics": False, "kind": EngineKind.SGLANG}, "is not known", "--enable-metrics"),
        ({"state": EngineState.LOADING}, "doesn't serve yet: it is loading", "wait until it is ready"),
        ({"endpoint": None}, "doesn't serve yet", "wait until it is ready"),
        ({"state": EngineState.EXITED}, "doesn't run", "sparktop act safe-restart spark1 --engine vllm-qwen36"),
    ],
)
def test_it_is_refused(engine: dict[str, Any], said: str, remedy: str) -> None:
    refusal = planned(spark(**engine))
    assert isinstance(refusal, Refusal)
    assert said in refusal.reason
    assert remedy in " ".join(refusal.remedies)


def on(network: str, *argv: str, kind: EngineKind = EngineKind.VLLM) -> Engine:
    return made.engine(argv=("serve", *argv), kind=kind, container=made.container(network_mode=network))


@over(
    "engine, ports, expected",
    [
        (on("host"), None, True),
        (on("host", "--host", "127.0.0.1"), None, False),
        (on("host", "--host=::1"), None, False),
        (on("host", kind=EngineKind.SGLANG), None, False),
        (on("host", "--host", "192.168.20.21"), None, True),
        (on("bridge"), {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}, False),
        (on("bridge"), {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"}]}, True),
        (on("bridge"), {"8000/tcp": [{"HostIp": "", "HostPort": "8000"}]}, True),
        (on("bridge"), {"8000/tcp": None}, False),
        (on("bridge"), None, False),
        (replace(on("host", "--host", "127.0.0.1"), container=None), None, False),
    ],
)
def test_who_reaches_its_port(engine: Engine, ports: dict[str, Any] | None, expected: bool) -> None:
    assert is_open(engine, ports) is expected
