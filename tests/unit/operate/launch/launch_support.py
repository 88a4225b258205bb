"""Two Sparks that answer whatever the planner of a launch asks, so that its plans can be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from tests import pictures_support as made
from tests.planner_support import asks_of, plan_of
from tests.restart_support import inspect
from tests.unit.diagnose.rules.pair_support import fabric as network

from sparktop.model.engine import Container, Containers, Engine
from sparktop.model.fleet import Baseline, FleetState
from sparktop.model.recipe import Order, Recipe
from sparktop.model.request import Request
from sparktop.model.survey import (
    ROUNDS_AT_MOST,
    Answer,
    DockerGet,
    FileText,
    HubModel,
    ModelsOnDisk,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
    Survey,
)
from sparktop.operate.launch import launch
from sparktop.operate.launch.launches_here import recipe_of_file
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe.read import shelf

GIB = made.GIB
COMMIT = "a" * 40
IMAGE_ID = "sha256:" + "1" * 64
TCP = "  sl  local_address rem_address   st\n   0: 00000000:0016 00000000:0000 0A 0 0 0\n"
CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "num_attention_heads": 16,
    "head_dim": 256,
    "hidden_size": 2048,
    "quantization_config": {"quant_method": "fp8"},
    "max_position_embeddings": 262144,
}


@cache
def recipe(name: str) -> Recipe:
    """A shipped one; its file's place is another on each machine."""
    return replace(shelf.recipe(name), path=f"recipes/{name}.yaml")


class Sparks:
    """Idle, with image and model on their disks; a test spoils something."""

    def __init__(self, *engines: Engine, nodes: tuple[str, ...] = ("spark1",), available_gib: float = 112.0) -> None:
        self.nodes = nodes
        self.images = dict.fromkeys(nodes, True)
        self.models: dict[str, tuple[str, float] | None] = {}
        """By node: (repository, GiB); a node that is missing has what is asked for."""
        self.configs: dict[str, dict[str, Any]] = {}
        """By repository, where it isn't CONFIG."""
        self.listed: dict[str, list[dict[str, Any]]] = {}
        self.rights = Privileges(user="spark", docker="open", sudo="free", has_compose=True)
        self.hub: Mapping[str, Any] | None = None
        self.files: dict[str, str | None] = {}
        """By path, where the node has them; None: not to be read."""
        self.asked: list[Question] = []
        held = sum(one.gpu_bytes or 0 for one in engines) / GIB
        self.views = {}
        for index, node in enumerate(nodes):
            view = made.idle_node(
                node,
                available_gib=available_gib - (held if index == 0 else 0.0),
                network=network(index + 1),
                facts=made.facts(node, is_lingering=True, is_graphical=False),
                baseline=Baseline(after_boot_available_bytes=made.gib(available_gib)),
                **({"engines": engines} if index == 0 and engines else {}),
            )
            self.views[node] = view

    @property
    def picture(self) -> FleetState:
        return made.picture(*self.views.values())

    def planned(self, order: Order, **options: str) -> Plan | Refusal:
        """What the planner makes of it, all its questions answered within the rounds there are."""
        request = Request(action="launch", nodes=self.nodes, order=order, options=options)
        picture = self.picture
        survey = Survey()
        for _ in range(ROUNDS_AT_MOST):
            left = [ask for ask in asks_of(launch, request, picture, survey) if ask not in survey.answers]
            if not left:
                break
            self.asked += left
            survey = Survey(answers={**survey.answers, **{ask: self._answer(ask, order) for ask in left}})
        more = [ask for ask in asks_of(launch, request, picture, survey) if ask not in survey.answers]
        assert not more, f"asked after the last round: {more}"
        return plan_of(launch, request, picture, survey)

    def _answer(self, ask: Question, order: Order) -> Answer:
        match ask:
            case PrivilegesQuestion():
                return Answer(value=self.rights)
            case ModelsOnDisk():
                return Answer(value=self._disk(ask.node, order))
            case HubModel():
                return Answer(value=self.hub) if self.hub is not None else Answer(problem="no way to the hub")
            case DockerGet(path="/info"):
                return Answer(value={"ServerVersion": "28.5.1", "Runtimes": {"nvidia": {}}, "DockerRootDir": "/d"})
            case DockerGet(path="/version"):
                return Answer(value={"ApiVersion": "1.51"})
            case DockerGet():
                return self._docker(ask)
            case Output():
                return self._output(ask)
            case FileText(path=path) if path.startswith("/proc/net/tcp"):
                return Answer(value=TCP)
            case FileText(path=path):
                text = self.files.get(path, "")
                return Answer(problem="permission denied") if text is None else Answer(value=text or None)
        return Answer(problem="not in this test")

    def _docker(self, ask: DockerGet) -> Answer:
        if ask.path.startswith("/images/"):
            image = {"Id": IMAGE_ID, "Size": 21 * 10**9, "Architecture": "arm64", "Config": {"Env": []}}
            return Answer(value=image if self.images[ask.node] else None)
        if ask.path.startswith("/containers/json"):
            return Answer(value=self.listed.get(ask.node, []))
        box = self._box(ask.node, ask.path.split("/")[2])
        return Answer(value=inspect(box) if box is not None else None)

    def _box(self, node: str, container_id: str) -> Container | None:
        boxes = self.views[node].containers.containers
        return next((one for one in boxes if one.container_id == container_id), None)

    def _output(self, ask: Output) -> Answer:
        program = ask.argv[0]
        if program == "ping":
            return Answer(value="1 packets transmitted, 1 received, 0% packet loss, time 0ms\n")
        if program == "df":
            return Answer(value="    Avail Mounted on\n900000000000 /\n")
        if program == "nvidia-ctk":
            return Answer(value="NVIDIA Container Toolkit CLI version 1.18.0\n")
        if "rsync" in json.dumps(ask.argv):
            return Answer(value="rsync  version 3.2.7  protocol version 31\n")
        if "hf" in json.dumps(ask.argv):
            return Answer(value="/home/spark/.local/bin/hf\n")
        return Answer(problem="not in this test")

    def _disk(self, node: str, order: Order) -> dict[str, Any]:
        wanted = order.values.get("model", order.recipe.model), order.recipe.need.weights_gib or 34.6
        has = self.models.get(node, wanted)
        cache = "/home/spark/.cache/huggingface"
        rows = []
        if has is not None:
            name, size = has
            folder = f"{cache}/hub/models--{name.replace('/', '--')}"
            rows.append({
                "name": name,
                "path": f"{folder}/snapshots/{COMMIT}",
                "folder": folder,
                "where": "cache",
                "revision": COMMIT,
                "refs": ["main"],
                "size_bytes": int(size * 1.01 * GIB),
                "weights_bytes": int(size * GIB),
                "is_complete": True,
                "missing": [],
                "config": self.configs.get(name, CONFIG),
            })  # fmt: skip
        return {"cache": cache, "hub": f"{cache}/hub", "home": "/home/spark", "token": False, "models": rows,
                "free_bytes": 900 * 10**9, "uid": 1000, "gid": 1000}  # fmt: skip


FOLDER = "/srv/llm"
COMPOSE = """\
services:
  engine:
    image: vllm/vllm-openai:v0.20.2
    network_mode: host
    restart: unless-stopped
    environment: {HF_TOKEN: "${HF_TOKEN}"}
    volumes: ["~/.cache/huggingface:/root/.cache/huggingface"]
    command: --model ${MODEL} --gpu-memory-utilization 0.6 --max-model-len 32768
"""
COMPOSE_FILES = {f"{FOLDER}/compose.yaml": COMPOSE, f"{FOLDER}/.env": "MODEL=Qwen/Qwen3-0.6B\n"}


def composed(files: Mapping[str, str] = COMPOSE_FILES, *, name: str = "compose.yaml", **labels: str) -> Recipe:
    """The recipe of the engine that a compose file on spark1 starts.

    Args:
        labels: compose's, of a container of its project.
    """
    said = {f"com.docker.compose.{key.replace('__', '.')}": value for key, value in labels.items()}
    boxes = (made.container("other", labels=said),) if said else ()
    view = made.idle_node("spark1", containers=Containers(containers=boxes, available=True))

    async def ask(questions: Sequence[Question]) -> Mapping[Question, Answer]:
        return {one: Answer(value=files.get(one.path)) for one in questions if isinstance(one, FileText)}

    adopted = asyncio.run(recipe_of_file(f"{FOLDER}/{name}", "engine", view, ask))
    assert adopted.reading.recipe is not None, adopted.reading.problems
    return adopted.reading.recipe
