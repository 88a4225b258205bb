"""Pictures, inspects and surveys for tests of a relaunch: Docker's whole answers for a plain vLLM container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests import restart_support as restarts
from tests.planner_support import asks_of, plan_of

from sparktop.cmdline.engine_command import is_exec
from sparktop.knowledge.card import remedies
from sparktop.model.change import Change
from sparktop.model.engine import Container, Engine
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Answer, DockerGet, Question, Survey
from sparktop.operate.relaunch import relaunch
from sparktop.operate.step.plan import Plan, Refusal

MEMLOCK, INFINIBAND = (
    remedies(f"cluster.{name}", case, {})[0].change or Change()
    for name, case in (("memlock", "limited"), ("no-infiniband-device", "closed"))
)
"""The container options that RDMA needs."""
IMAGE_ID = "sha256:" + "5a" * 32
IMAGE = {
    "Id": IMAGE_ID,
    "Config": {
        "Env": ["PATH=/usr/bin", "CUDA_VERSION=13.0"],
        "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "Labels": {"com.nvidia.version": "26.05"},
        "WorkingDir": "/workspace",
    },
}
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz0123"


def inspect(box: Container, **more: Any) -> dict[str, Any]:
    """Docker's whole answer for a container that `docker run --gpus all --ipc host ...` made."""
    raw = restarts.inspect(box, **more.pop("state", {}))
    raw["Image"] = IMAGE_ID
    raw["Config"] = {
        "Hostname": "spark1-host",
        "Env": [f"HF_TOKEN={TOKEN}", "NCCL_DEBUG=WARN", *IMAGE["Config"]["Env"]],  # type: ignore[index]
        "Cmd": list(box.argv),
        "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "Image": box.image,
        "Labels": {"com.nvidia.version": "26.05", **(box.labels or {})},
        "WorkingDir": "/workspace",
        **more.pop("config", {}),
    }
    raw["HostConfig"] |= {
        "NetworkMode": "host",
        "IpcMode": "host",
        "ShmSize": 67108864,
        "Runtime": "runc",
        "Binds": ["/home/spark/.cache/huggingface:/root/.cache/huggingface"],
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}],
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
        **more.pop("host", {}),
    }
    raw["Mounts"] = more.pop("mounts", [])
    raw["NetworkSettings"] = {"Networks": {"host": {}}}
    return raw | more


def answered(picture: FleetState, questions: tuple[Question, ...], **more: Any) -> Survey:
    """The first round of answers, and what Docker says of containers, images and writable layers."""
    survey = restarts.survey(picture, questions, **more.get("survey", {}))
    answers = dict(survey.answers)
    boxes = {(node.name, box.container_id): box for node in picture.nodes for box in node.containers.containers}
    images = more.get("images", {"nvcr.io/nvidia/vllm:26.05.post1-py3": IMAGE, IMAGE_ID: IMAGE})
    for ask in questions:
        if not isinstance(ask, DockerGet):
            continue
        kind, name, *_ = ask.path.strip("/").split("/")
        box = boxes.get((ask.node, name))
        if kind == "containers" and ask.path.endswith("?size=1"):
            answers[ask] = more.get("written", Answer(value={"SizeRw": 0}))
        elif kind == "containers":
            answers[ask] = Answer(value=inspect(box, **more.get("inspect", {})) if box else None)
        else:
            answers[ask] = Answer(value=images.get(ask.path.removeprefix("/images/").removesuffix("/json")))
    return Survey(answers=answers)


def asked(change: Change, *nodes: str, **more: Any) -> Request:
    return Request(action="relaunch", nodes=nodes or ("spark1",), change=change, **more)


def engine(**more: Any) -> Engine:
    """An engine whose container may be another: name, labels, --rm."""
    one = made.engine()
    assert one.container is not None
    box = replace(one.container, **more)
    return replace(one, container=box, is_exec=is_exec(box, one.endpoint, one.pids))


def whole(plan: Plan | Refusal) -> str:
    """All of a plan that its reader sees, differences too."""
    assert isinstance(plan, Plan), plan
    rows = [f"{one.what} {one.name}: {one.before} -> {one.after}" for one in plan.differences]
    return "\n".join([restarts.whole(plan), "", "differences:", *rows])


def golden(name: str, plan: Plan | Refusal) -> None:
    """As `restart_support.golden`, with the differences."""
    restarts.golden(name, plan, whole)


Own = Callable[[Question], Answer | None]
"""What a test answers itself; None: as any plain vLLM container's node would."""


def planned(request: Request, picture: FleetState, own: Own = lambda ask: None, **more: Any) -> Plan | Refusal:
    """What the planner makes of it, asked until it wants no more."""
    survey = Survey()
    for _ in range(5):
        questions = asks_of(relaunch, request, picture, survey)
        if set(questions) <= set(survey.answers):
            break
        mine = {ask: said for ask in questions if (said := own(ask)) is not None}
        base = answered(picture, tuple(ask for ask in questions if ask not in mine), **more)
        survey = Survey(answers={**survey.answers, **base.answers, **mine})
    else:
        raise AssertionError("it asks again and again")
    return plan_of(relaunch, request, picture, survey)


def possible(plan: Plan | Refusal) -> Plan:
    assert isinstance(plan, Plan), plan
    return plan


def refusal(plan: Plan | Refusal) -> Refusal:
    assert isinstance(plan, Refusal), plan
    return plan
