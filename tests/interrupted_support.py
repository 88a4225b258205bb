"""A real launch plan on an executor whose nodes have a Docker Engine in memory: a launch broken off at any step.

    stage = LaunchStage(tmp_path, ROOM)
    stage.nodes[0].cuts["make"] = "after"
    run = await stage.carry_out(stage.plan)
    assert stage.is_as_before()

`ROOM` is a launch on one Spark, where an engine is stopped for it; `PAIR` one over two, to which image and model have
to come first; `RAY` one over two, whose head is started first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import pictures_support as made
from tests.operate_support import Stage
from tests.restart_support import STARTED_AT
from tests.unit.operate.launch.launch_support import GIB, IMAGE_ID, Sparks, recipe

from sparktop.model.engine import Container, Containers
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Transfer
from sparktop.model.recipe import Order
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState
from sparktop.operate.step.plan import Plan, Refusal, Step
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import RequestResult, StepState
from sparktop.probe.runner.docker import value_at

OLD = "vllm-old"
BOTH = ("spark1", "spark2")
HUB = {
    "status": 200, "problem": "", "gated": False, "revision": "a" * 40, "config": {},
    "files": [{"path": "config.json", "size_bytes": 2000}, {"path": "m.safetensors", "size_bytes": 36 * 10**9}],
}  # fmt: skip
POLICY = "unless-stopped"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch, and what is there before it."""

    recipe: str
    name: str
    """Of its containers."""
    nodes: tuple[str, ...]
    stops: bool = False
    """An engine on the first node makes room."""
    has_image: bool = False
    """No registry has it: it was built there."""

    def sparks(self) -> Sparks:
        old = (made.engine(OLD, gpu_bytes=60 * GIB),) if self.stops else ()
        return Sparks(*old, nodes=self.nodes)

    def order(self, *stops: tuple[str, str]) -> Order:
        shipped = recipe(self.recipe)
        return Order(recipe=replace(shipped, options={**shipped.options, "restart_policy": POLICY}), stops=stops)

    @cached_property
    def plan(self) -> Plan:
        """With nothing of it on the disks."""
        there = self.sparks()
        there.images = dict.fromkeys(self.nodes, self.has_image)
        there.models = dict.fromkeys(self.nodes)
        there.hub = HUB
        found = there.planned(self.order(*([("spark1", OLD)] if self.stops else [])))
        assert isinstance(found, Plan), found
        return found


ROOM = Launch(recipe="qwen3.6-35b-a3b-fp8", name="vllm-qwen3.6-35b-a3b-fp8", nodes=("spark1",), stops=True)
PAIR = Launch(recipe="minimax-m2.7-nvfp4", name="vllm-minimax-m2.7-nvfp4", nodes=BOTH)
RAY = Launch(recipe="minimax-m2.7-nvfp4-ray", name="vllm-minimax-m2.7-nvfp4-ray", nodes=BOTH, has_image=True)
LAUNCHES = {"room": ROOM, "pair": PAIR, "ray": RAY}


@dataclass(slots=True)
class Box:
    """A container."""

    box_id: str
    name: str
    status: str = "created"
    policy: str = "no"
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at: str = ""

    @property
    def inspect(self) -> dict[str, Any]:
        return {
            "Id": self.box_id,
            "Name": f"/{self.name}",
            "State": {"Status": self.status, "Running": self.status == "running", "StartedAt": self.started_at},
            "HostConfig": {"RestartPolicy": {"Name": self.policy}},
            "Config": {"Labels": dict(self.labels)},
        }


class Docker:
    """A Docker Engine with no more than a launch asks of one; operations are undone where one fails."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.fetched: list[str] = []

    def add(self, box: Box) -> None:
        self.boxes[box.box_id] = box

    def perform(self, act: Remote) -> Outcome:
        saved: dict[str, str] = {}
        results: list[OperationResult] = []
        for index, operation in enumerate(act.operations):
            problem = self._do(operation, saved)
            results.append(OperationResult(index=index, ok=not problem, problem=problem))
            if problem:
                undone = [self._do(one, saved) for one in act.undo if self._can(one, saved)]
                return Outcome(
                    state=OutcomeState.FAILED,
                    results=tuple(results),
                    problem=problem,
                    undone=not any(undone) if act.undo else None,
                )
        return Outcome(state=OutcomeState.DONE, results=tuple(results), saved=saved)

    def boot(self) -> None:
        """The machine has gone down and come up: only what has a policy runs again."""
        for box in self.boxes.values():
            if box.status == "running" and box.policy == "no":
                box.status = "exited"

    def _can(self, operation: Operation, saved: Mapping[str, str]) -> bool:
        return isinstance(operation, DockerCall) and "{" not in _filled(operation.path, saved)

    def _do(self, operation: Operation, saved: dict[str, str]) -> str:
        """What went wrong, or nothing."""
        match operation:
            case Transfer() | ImagePull():
                self.fetched.append(operation.key if isinstance(operation, Transfer) else operation.image)
                return ""
            case Expect():
                _, answer = self._answer("GET", _filled(operation.path, saved), {}, None)
                wrong = [key for key, value in operation.equals.items() if value_at(answer, key) != value]
                return f"{operation.otherwise} ({', '.join(wrong)})" if wrong else ""
            case DockerCall() if operation.only_where is not None and self._do(operation.only_where, saved):
                return ""
            case DockerCall():
                path = _filled(operation.path, saved)
                code, answer = self._answer(operation.method, path, operation.query, operation.body)
                if code not in operation.accepts:
                    return f"{operation.method} {path}: {code} {answer.get('message', '')}"
                if operation.saves:
                    saved[operation.saves] = answer["Id"]
                return ""
            case Command():
                return ""
        raise AssertionError(operation)

    def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        if path.startswith("/images/"):
            return 200, {"Id": IMAGE_ID}
        if path == "/containers/create":
            assert body is not None
            if any(box.name == query["name"] for box in self.boxes.values()):
                return 409, {"message": f"/{query['name']} is already in use"}
            box = Box(f"{next(self._numbers):064x}", query["name"], labels=body["Labels"])
            self.add(box)
            return 201, {"Id": box.box_id}
        _, _, box_id, *verb = path.split("/")
        there = next((one for one in self.boxes.values() if box_id in (one.box_id, one.name)), None)
        if there is None:
            return 404, {"message": f"No such container: {box_id}"}
        if method == "DELETE":
            if there.status == "running" and query.get("force") != "true":
                return 409, {"message": "it is running"}
            del self.boxes[there.box_id]
            return 204, {}
        match verb[0]:
            case "json":
                return 200, there.inspect
            case "start":
                if there.status == "running":
                    return 304, {}
                there.status, there.started_at = "running", STARTED_AT
                return 204, {}
            case "stop" | "kill":
                if there.status != "running":
                    return (304 if verb[0] == "stop" else 409), {"message": "it is not running"}
                there.status = "exited"
                return 204, {}
            case "update":
                assert body is not None
                there.policy = body["RestartPolicy"]["Name"]
                return 200, {}
            case "rename":
                there.name = query["name"]
                return 204, {}
        raise AssertionError(f"{method} {path}")


def _filled(path: str, saved: Mapping[str, str]) -> str:
    for name, value in saved.items():
        path = path.replace("{" + name + "}", value)
    return path


class LaunchStage(Stage):
    """The executor's surroundings in front of a launch; its nodes do what they are told."""

    def __init__(self, tmp_path: Path, launch: Launch, **means: Any) -> None:
        super().__init__(tmp_path, *launch.nodes, **means)
        self.launch = launch
        self.plan = launch.plan
        self.dockers = {name: Docker() for name in launch.nodes}
        for node in self.nodes:
            node.does = self.dockers[node.name].perform
        if launch.stops:
            box = made.container(OLD)
            self.dockers["spark1"].add(
                Box(box.container_id, OLD, "running", box.restart_policy, box.labels or {}, STARTED_AT)
            )
        self.acts.smokes = [RequestResult(ok=True, detail="it answered")] * 9
        self.acts.measured = RequestResult(ok=True, detail="40 tok/s")
        self.acts.collected = SimpleNamespace(path=tmp_path / "evidence.tar.gz", problems=())

    def picture(self) -> FleetState:
        """With the containers as they are, and tables that were read just now."""
        seen = super().picture()
        views = []
        for view in seen.nodes:
            assert view.sample is not None
            assert view.gpu is not None
            assert view.processes is not None
            boot_s = view.sample.boot_s
            views.append(
                replace(
                    view,
                    containers=Containers(containers=self.containers(view.name), available=True),
                    gpu=replace(view.gpu, boot_s=boot_s, gpus=()),
                    processes=replace(view.processes, boot_s=boot_s, processes=()),
                )
            )
        return replace(seen, nodes=tuple(views))

    def containers(self, node: str) -> tuple[Container, ...]:
        return tuple(
            made.container(
                box.name, container_id=box.box_id, status=box.status, restart_policy=box.policy, labels=box.labels,
                image="img",
            )
            for box in self.dockers[node].boxes.values()
        )  # fmt: skip

    def boxes(self) -> dict[str, dict[str, str]]:
        """By node: name -> state of every container."""
        return {name: {box.name: box.status for box in one.boxes.values()} for name, one in self.dockers.items()}

    def policies(self, name: str) -> list[str]:
        return [box.policy for one in self.dockers.values() for box in one.boxes.values() if box.name == name]

    def policy(self, node: str) -> str:
        """Of the new one there."""
        return next(box.policy for box in self.dockers[node].boxes.values() if box.name == self.launch.name)

    def is_as_before(self) -> bool:
        """Nothing but what was there, and that as it was."""
        before: dict[str, dict[str, str]] = {name: {} for name in self.launch.nodes}
        if self.launch.stops:
            before["spark1"][OLD] = "running"
        return self.boxes() == before and all(one == POLICY for one in self.policies(OLD))

    def serves(self) -> bool:
        """The new one runs everywhere, and what was stopped for it is stopped."""
        is_up = all(there.get(self.launch.name) == "running" for there in self.boxes().values())
        return is_up and (not self.launch.stops or self.boxes()["spark1"].get(OLD) == "exited")

    def never_ran(self) -> list[str]:
        return [name for there in self.boxes().values() for name, state in there.items() if state == "created"]

    def is_back(self) -> None:
        """All nodes are heard again."""
        self.views.clear()
        self.means = replace(self.means, link_patience_s=5.0)
        for node in self.nodes:
            node.is_back = True
            node.has_rebooted = False
            node.cuts.clear()
            node.fails.clear()
            node.at = lambda step_id: None
        self.at_state = lambda run: None
        self.at_pause = lambda: None

    def planned_again(self, *stops: tuple[str, str]) -> Plan | Refusal:
        """What the next launch makes of what is there now."""
        there = self.launch.sparks()
        for node in self.launch.nodes:
            boxes = self.containers(node)
            live = [box for box in boxes if box.status == "running"]
            engines = tuple(made.engine(box.name, container=box, gpu_bytes=60 * GIB) for box in live)
            there.views[node] = replace(
                there.views[node], engines=engines, containers=Containers(containers=boxes, available=True)
            )
            there.listed[node] = [
                {"Id": box.container_id, "Names": [f"/{box.name}"], "State": box.status,
                 "Labels": dict(box.labels or {}), "Image": box.image}
                for box in boxes
            ]  # fmt: skip
        return there.planned(self.launch.order(*stops))


def is_at(run: Run, step: Step) -> bool:
    return any(one.step.id == step.id and one.state is StepState.RUNNING for one in run.steps)


def fetches(step: Step) -> bool:
    return step.act.only_fetches
