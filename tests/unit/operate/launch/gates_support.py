"""Two Sparks on which a launch passes every gate, and the table of what spoils each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.pictures_support import facts, idle_node, picture
from tests.unit.diagnose.rules.pair_support import fabric as network

from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Budget, Fit, Gate
from sparktop.model.recipe import Dialect, Order, Recipe
from sparktop.model.state import State
from sparktop.model.survey import Answer, Privileges, PrivilegesQuestion, Question, Survey, looked_up
from sparktop.operate.launch.gates import catalogue, docker, downloads
from sparktop.operate.launch.gates import link as gates_link
from sparktop.operate.launch.gates import node as gates_node
from sparktop.operate.launch.inputs import docker as inputs_docker
from sparktop.operate.launch.inputs import link as inputs_link
from sparktop.operate.launch.inputs.downloads import disk_question, models_on_nodes
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.recipe.container_spec import CannotRender, ContainerSpec, NodeContext, Rendered, RenderedRank
from sparktop.recipe.parameters import resolve

ONE, BOTH = ("spark1",), ("spark1", "spark2")
FOUR = (*BOTH, "spark3", "spark4")
IMAGE = "nvcr.io/nvidia/vllm:26.05.post1-py3"
MODEL = "org/Model-FP8"
CACHE = "/home/spark/.cache/huggingface"
PASSED, WARNED, FAILED, UNKNOWN = State.PASSED, State.WARNING, State.FAILED, State.UNKNOWN
TCP = "  sl  local_address rem_address   st\n   0: 00000000:0016 00000000:0000 0A 0 0 0\n"


def recipe(**more: Any) -> Recipe:
    made = Recipe(
        id="model-fp8",
        path="recipes/model-fp8.yaml",
        dialect=Dialect.SPARKRUN,
        engine=EngineKind.VLLM,
        model=MODEL,
        container=IMAGE,
        max_nodes=2,
        defaults={"port": 8000},
    )
    return replace(made, **more)


def image(number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "Id": "sha256:" + f"{number:x}" * 64,
        "Size": 21 * 10**9,
        "Created": f"2026-0{number}-01T00:00:00Z",
        "RepoDigests": [f"nvcr.io/nvidia/vllm@sha256:{'d' * 63}{number}"],
        "RootFS": {"Layers": [f"sha256:layer{number}"]},
        "Config": {"Env": [f"N={number}"], "Labels": {}},
        "Architecture": "arm64",
        **more,
    }


def disk(*, whole: bool = True, there: bool = True, **more: Any) -> dict[str, Any]:
    model = {
        "name": MODEL,
        "path": f"{CACHE}/hub/models--org--Model-FP8/snapshots/abc",
        "folder": f"{CACHE}/hub/models--org--Model-FP8",
        "where": "cache",
        "revision": "a" * 40,
        "refs": ["main"],
        "size_bytes": 34_600_000_000 if whole else 10_000_000_000,
        "is_complete": whole,
        "missing": [] if whole else ["model-00002-of-00004.safetensors"],
    }
    user = {"home": "/home/spark", "uid": 1000, "gid": 1000}
    return {"cache": CACHE, **user, "token": False, "models": [model] if there else [], **more}


def hub(**more: Any) -> dict[str, Any]:
    files = [{"path": "config.json", "size_bytes": 2000}, {"path": "model.safetensors", "size_bytes": 34_600_000_000}]
    return {"status": 200, "problem": "", "gated": False, "revision": "a" * 40, "files": files, "config": {}, **more}


def rendered(nodes: tuple[str, ...], **more: Any) -> Rendered:
    host = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}], "IpcMode": "host", "NetworkMode": "host"}
    spec = ContainerSpec(name="sparktop-model", image=IMAGE, argv=("vllm", "serve", MODEL), host=host)
    spec = replace(spec, **more)
    return Rendered(
        recipe_id="model-fp8",
        engine=EngineKind.VLLM,
        image=spec.image,
        ranks=tuple(
            RenderedRank(node=node, index=index, container=spec, argv=spec.argv, serves=index == 0)
            for index, node in enumerate(nodes)
        ),
        port=8000,
        served_name="model",
    )


def fits(fit: Fit = Fit.FITS, **more: Any) -> Budget:
    return Budget(fit=fit, why="80.2 GiB of 121.7 for it", **more)


@dataclass
class World:
    """Two Sparks on which a launch passes every gate; a case spoils something."""

    nodes: tuple[str, ...] = BOTH
    order: Order = field(default_factory=lambda: Order(recipe=recipe()))
    views: dict[str, Any] = field(default_factory=dict)
    answers: dict[Any, Answer] = field(default_factory=dict)
    rendered: Rendered | None = None
    unrendered: str = ""
    budget: Budget | None = field(default_factory=fits)

    def __post_init__(self) -> None:
        self.views = {
            node: idle_node(node, network=network(index + 1), facts=facts(node, is_lingering=True))
            for index, node in enumerate(FOUR)
        }
        self.rendered = rendered(self.nodes)
        for node in self.nodes:
            self.answers[PrivilegesQuestion(node=node)] = Answer(value=Privileges(user="spark", docker="open"))
            self.info(node)
            self.answers[inputs_docker.list_question(node)] = Answer(value=[])
            self.answers[docker.toolkit_question(node)] = Answer(value="NVIDIA Container Toolkit CLI version 1.18.0\n")
            self.image(node, image())
            self.answers[disk_question(node)] = Answer(value=disk())
        for path in gates_node._TABLES:
            self.answers[gates_node.port_question("spark1", path)] = Answer(value=TCP)
        self.every_ping()

    # --- what the nodes say

    def info(self, node: str, **more: Any) -> None:
        told = {"ServerVersion": "28.5.1", "Runtimes": {"nvidia": {}, "runc": {}}, "DockerRootDir": "/var/lib/docker"}
        self.answers[inputs_docker.info_question(node)] = Answer(value={**told, **more})

    def image(self, node: str, value: Any, *, name: str = IMAGE, problem: str = "") -> None:
        ask = inputs_docker.image_question(node, name)
        assert ask is not None
        self.answers[ask] = Answer(value=value, problem=problem)

    def silent(self, ask: Question | None, problem: str = "it did not answer") -> None:
        assert ask is not None
        self.answers[ask] = Answer(problem=problem)

    def df(self, node: str, path: str, free: int, mount: str = "/") -> None:
        self.answers[downloads.df_question(node, path)] = Answer(value=f"    Avail Mounted on\n{free} {mount}\n")

    def ways(self) -> tuple[tuple[inputs_link.Fabric, inputs_link.Fabric], ...]:
        return tuple(
            gates_link._directions(inputs_link.fabrics(self.nodes, self.picture, Survey(answers=self.answers)))
        )

    def every_ping(self) -> None:
        for one, other in self.ways():
            self.ping(one, other)
            self.ping(one, other, is_large=True)

    def ping(
        self, one: inputs_link.Fabric, other: inputs_link.Fabric, *, is_large: bool = False, lost: bool = False
    ) -> None:
        ask = gates_link.large_question(one, other) if is_large else gates_link.ping_question(one, other)
        if ask is not None:
            said = f"1 packets transmitted, {int(not lost)} received, {100 * lost}% packet loss, time 0ms\n"
            self.answers[ask] = Answer(value=said, problem="ping ended with 1" if lost else "")

    def view(self, name: str, **more: Any) -> None:
        self.views[name] = replace(self.views[name], **more)

    def asks_for(self, **more: Any) -> None:
        self.order = replace(self.order, recipe=replace(self.order.recipe, **more))

    def model_is_missing(self, *nodes: str, whole: bool = True, **said: Any) -> None:
        for node in nodes:
            self.answers[disk_question(node)] = Answer(value=disk(there=not whole, whole=False))
            self.df(node, CACHE, 900 * 10**9)
        if said:
            self.answers[self.looked.models[0].hub_question("spark1")] = Answer(value=said)

    # --- what comes of it

    @property
    def picture(self) -> FleetState:
        return picture(*(self.views[node] for node in self.nodes))

    @property
    def looked(self) -> GateInputs:
        return self.inputs(Survey(answers=self.answers))

    @property
    def questions(self) -> tuple[Question, ...]:
        """What is not known yet of what the gates look up."""
        return looked_up(Survey(answers=self.answers), lambda look_ups: catalogue.gates(self.inputs(look_ups)))

    def inputs(self, survey: Survey) -> GateInputs:
        values = resolve(self.order)
        if self.rendered is not None:
            values = replace(values, by_name={**values.by_name, "container": self.rendered.image})
        seats = tuple(
            NodeContext(node=node, index=index, home="/home/spark", cache=CACHE, fabric_ip=f"10.0.0.{index + 1}")
            for index, node in enumerate(self.nodes)
        )
        return GateInputs(
            values=values,
            nodes=self.nodes,
            picture=self.picture,
            survey=survey,
            links=inputs_link.fabrics(self.nodes, self.picture, survey),
            docker={node: inputs_docker.docker_there(survey, node, values.image) for node in self.nodes},
            contexts=seats,
            models=models_on_nodes(values, seats, survey),
            rendered=self.rendered,
            render_error=CannotRender(self.unrendered) if self.unrendered else None,
            budget=self.budget,
        )

    def gates(self) -> tuple[Gate, ...]:
        return catalogue.gates(self.looked)


FOUND: list[Finding] = []
"""What the linter is made to find."""


Spoil = Callable[[World], Any]
CASES: list[tuple[str, str, State, Spoil, str, str]] = []
"""(gate, node, state, what is spoilt, part of the detail, part of the remedy)."""


def case(name: str, node: str, state: State, detail: str, remedy: str = "") -> Callable[[Spoil], Spoil]:
    def add(spoil: Spoil) -> Spoil:
        CASES.append((name, node, state, spoil, detail, remedy))
        return spoil

    return add
