"""Pictures and surveys for tests of the planners that stop and start engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests.plan_golden import compare, compare_plan
from tests.planner_support import asks_of, plan_of

from sparktop.documents.step_text import step_lines
from sparktop.model.engine import Container, Engine, EngineState
from sparktop.model.fleet import Baseline, FleetState, NodeView
from sparktop.model.request import Request
from sparktop.model.survey import Answer, DockerGet, FileText, Output, Privileges, PrivilegesQuestion, Question, Survey
from sparktop.operate.step.plan import Plan, Refusal, Step

STARTED_AT = "2026-05-28T18:26:40.123456789Z"
GIB = made.GIB


def inspect(box: Container, **state: Any) -> dict[str, Any]:
    """What Docker would say of a picture's container."""
    policy = state.pop("policy", box.restart_policy)
    environment = state.pop("environment", [])
    arguments = state.pop("arguments", list(box.argv[1:]))
    return {
        "Id": box.container_id,
        "RestartCount": box.restart_count or 0,
        "Name": f"/{box.name}",
        "Args": arguments,
        "State": {
            "Status": box.status,
            "Running": box.status in ("running", "restarting"),
            "Restarting": box.status == "restarting",
            "StartedAt": STARTED_AT,
            "Pid": box.pid,
            **state,
        },
        "HostConfig": {
            "RestartPolicy": {"Name": policy, "MaximumRetryCount": 0},
            "AutoRemove": box.auto_remove,
            "IpcMode": box.ipc_mode,
        },
        "Config": {"Env": environment, "Labels": dict(box.labels or {})},
    }


def spark(name: str = "spark1", *, baseline_gib: float | None = 116.0, **more: Any) -> NodeView:
    """A node whose normal is known."""
    normal = Baseline(after_boot_available_bytes=made.gib(baseline_gib)) if baseline_gib else None
    return made.node(name, baseline=normal, **more)


def worker(name: str = "vllm-worker", **more: Any) -> Engine:
    """The second rank of a headless vLLM: no endpoint, no figures."""
    argv = (*made.ARGV, "--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--headless")
    return made.engine(
        name,
        argv=argv,
        container=made.container(name, argv=argv),
        endpoint=None,
        metrics=None,
        rates=None,
        state=EngineState.UNKNOWN,
        **more,
    )


def head(name: str = "vllm-head", **more: Any) -> Engine:
    argv = (*made.ARGV, "--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1")
    return made.engine(name, argv=argv, container=made.container(name, argv=argv), **more)


def two(**more: Any) -> FleetState:
    """One vLLM over two Sparks."""
    return made.picture(spark("spark1", engines=(head(),)), spark("spark2", engines=(worker(),)), **more)


def survey(picture: FleetState, questions: tuple[Question, ...], **more: Any) -> Survey:
    """Answers as healthy nodes would give them; `answers` wins, `privileges` is everybody's, `inspects` by name."""
    answers: dict[Question, Answer] = {}
    rights = more.get("privileges", Privileges(user="spark", docker="open", sudo="free", has_compose=True))
    inspects: dict[str, Any] = more.get("inspects", {})
    boxes = {(node.name, box.container_id): box for node in picture.nodes for box in node.containers.containers}
    for one in questions:
        match one:
            case PrivilegesQuestion():
                answers[one] = Answer(value=rights)
            case DockerGet():
                box = boxes.get((one.node, one.path.split("/")[2]))
                raw = inspect(box, **inspects.get(box.name, {})) if box else None
                answers[one] = Answer(value=raw)
            case Output():
                answers[one] = Answer(value=more.get("output", ""))
            case FileText():
                answers[one] = Answer(value=more.get("files", {}).get(one.path))
            case _:
                answers[one] = Answer(problem="not asked in this test")
    return Survey(answers=answers | {key: Answer(value=value) for key, value in more.get("answers", {}).items()})


def planned(planner: Any, request: Request, picture: FleetState, **more: Any) -> Plan | Refusal:
    """What the planner makes of it, its questions answered."""
    asked = asks_of(planner, request, picture, Survey())
    answers = survey(picture, asked, **more)
    assert set(asks_of(planner, request, picture, answers)) <= set(answers.answers), "it asks again and again"
    return plan_of(planner, request, picture, answers)


def request(action: str = "safe-restart", target: str = "", *nodes: str, **more: Any) -> Request:
    return Request(action=action, nodes=nodes or ("spark1",), target=target, **more)


def told(plan: Plan | Refusal, *, back: bool = False) -> str:
    """A plan's steps as text, for a golden."""
    assert isinstance(plan, Plan), plan

    def lines(step: Step) -> Iterator[str]:
        yield f"{step.id}  {step.node}  {step.limit_s:.0f} s  {step.on_failure.value}: {step.title}"
        for line in step_lines(step, plan):
            yield f"    {line}"

    return "\n".join(line for step in (plan.rollback if back else plan.steps) for line in lines(step))


def ended(engine: Engine, **more: Any) -> Engine:
    """The same engine after its end."""
    box = engine.container
    assert box is not None
    return replace(
        engine,
        state=EngineState.EXITED,
        pids=(),
        endpoint=None,
        metrics=None,
        rates=None,
        gpu_bytes=None,
        uptime_s=None,
        container=replace(box, status="exited", exit_code=1, pid=None),
        exited_wall_s=made.WALL_S - 60,
        **more,
    )


def golden(name: str, plan: Plan | Refusal, shown: Callable[[Plan | Refusal], str] | None = None) -> None:
    """Compare what a reader sees with tests/cases/operate/NAME.txt, and every field with tests/cases/plans/NAME.txt."""
    compare(f"operate/{name}", (shown or whole)(plan))
    compare_plan(name, plan)


def whole(plan: Plan | Refusal) -> str:
    """All of a plan that its reader sees."""
    assert isinstance(plan, Plan), plan
    parts = [
        f"{plan.title}  [{plan.risk.value}]",
        plan.effect,
        *(f"! {warning}" for warning in plan.warnings),
        "",
        told(plan),
        "",
        "way back:",
        told(plan, back=True),
        "",
        "the same as commands:",
        *plan.equivalent,
    ]
    return "\n".join(parts)
