"""Whole plans and refusals of launches, kept as files: every field, and of some what a reader sees.

tests/cases/plans/launch/NAME.txt is every field, and tests/cases/operate/launch/NAME.txt the text that
`sparktop launch --dry-run` prints. SPARKTOP_GOLDENS=write writes both, to be read before they are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests.golden import CASES, compare
from tests.plan_golden import compare_plan
from tests.recipe_support import SHIPPED
from tests.restart_support import head, worker
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric as network
from tests.unit.operate.launch.launch_support import COMMIT, COMPOSE_FILES, CONFIG, GIB, Sparks, composed, recipe
from tests.unit.recipe.test_model_caches import MODELS

from sparktop.documents.plan import plan_lines, refusal_lines
from sparktop.model.engine import EngineKind
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.recipe import Dialect, Executor, Order, Recipe, Requirement
from sparktop.model.request import Request
from sparktop.model.survey import Answer, HubModel, ModelsOnDisk, Output, PrivilegesQuestion, Question
from sparktop.model.telemetry import Unit
from sparktop.operate.step.plan import Plan
from sparktop.text.lines import plain

QWEN, TINY, GPT_OSS = "qwen3.6-35b-a3b-fp8", "qwen3-0.6b", "gpt-oss-120b"
MISTRAL, NATIVE, RAY = "mistral-small-4-119b-nvfp4", "minimax-m2.7-nvfp4", "minimax-m2.7-nvfp4-ray"
DENSE, HYBRID = "qwen3.8-27b-nvfp4", "nemotron-3.5-lightning-30b-a3b-nvfp4"
DEEPSEEK, FLASH_NEXT, GLM = "deepseek-v4-flash-0731", "qwen3.8-flash-next-nvfp4", "glm-5.3-flash-nvfp4"
DRAFT = "mistralai/Mistral-Small-4-119B-2603-eagle"
DRAFTS = {MISTRAL: DRAFT, HYBRID: "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4-DSpark"}
WEIGHTS_GIB = {QWEN: 34.6, TINY: 1.2, GPT_OSS: 61.0, MISTRAL: 66.0, NATIVE: 121.6, RAY: 121.6, DEEPSEEK: 161.6} | {
    DENSE: 20.4,
    HYBRID: 20.0,
    FLASH_NEXT: 124.0,
    GLM: 174.8,
}
CONFIGS = {
    DEEPSEEK: MODELS["DeepSeek-V4-Flash"][0] | {"quantization_config": {"quant_method": "fp8"}},
    GLM: MODELS["GLM-5.3-Flash, MTP"][0] | {"quantization_config": {"quant_method": "modelopt"}},
}
"""Of those whose recipe fixes its cache: another model's config would ask for more."""
BOTH = ("spark1", "spark2")
SECRETS = {"HF_TOKEN": "hf_canaryABCDEFGHIJKLMN", "VLLM_API_KEY": "sk-canary-4f2a9c77"}
SGLANG_PAIR = Recipe(
    id="sglang-pair",
    path="recipes/sglang-pair.yaml",
    dialect=Dialect.SPARKRUN,
    engine=EngineKind.SGLANG,
    model="org/Big-FP8",
    container="lmsysorg/sglang:v0.5.12",
    executor=Executor.NATIVE,
    min_nodes=2,
    max_nodes=2,
    defaults={"port": 30000, "tensor_parallel": 2, "mem_fraction_static": 0.7, "context_length": 32768},
    command="python3 -m sglang.launch_server --model-path {model} --port {port} --tp {tensor_parallel} "
    "--mem-fraction-static {mem_fraction_static} --context-length {context_length}",
)


class Nodes(Sparks):
    """Sparks whose models, programs and services can be said one by one."""

    def __init__(self, *engines: Any, nodes: tuple[str, ...] = ("spark1",), available_gib: float = 112.0) -> None:
        super().__init__(*engines, nodes=nodes, available_gib=available_gib)
        self.also: tuple[str, ...] = ()
        """Further models that are on every node."""
        self.folders: dict[str, str] = {}
        """By node: the path of a model that is in no cache."""
        self.outputs: dict[str, str | None] = {}
        """By node and program, "spark2 ssh": what it prints; None: it can't be run."""
        self.rights_of: dict[str, Any] = {}
        self.hubs: dict[str, dict[str, Any]] = {}
        """By repository, where the hub has something else to say of it."""

    def change(self, node: str, **more: Any) -> None:
        self.views[node] = replace(self.views[node], **more)

    def without_models(self, *nodes: str) -> None:
        for node in nodes:
            self.models[node] = None

    def without_image(self, *nodes: str) -> None:
        for node in nodes:
            self.images[node] = False

    def run_a_pair(self) -> None:
        """One engine over both nodes; its head was given to __init__."""
        rank = worker()
        assert rank.container is not None
        boxes = replace(self.views["spark2"].containers, containers=(rank.container,))
        self.change("spark2", engines=(rank,), containers=boxes)

    def _answer(self, ask: Question, order: Order) -> Answer:
        if isinstance(ask, PrivilegesQuestion) and ask.node in self.rights_of:
            return Answer(value=self.rights_of[ask.node])
        if isinstance(ask, Output) and (name := f"{ask.node} {ask.argv[0]}") in self.outputs:
            said = self.outputs[name]
            return Answer(value=said) if said is not None else Answer(problem=f"there is no program {ask.argv[0]}")
        if isinstance(ask, HubModel) and ask.repo in self.hubs:
            return Answer(value=self.hubs[ask.repo])
        found = super()._answer(ask, order)
        if isinstance(ask, ModelsOnDisk):
            listed = [*found.value["models"], *(self._row(name) for name in self.also)]
            if path := self.folders.get(ask.node):
                listed.append({**self._row(path), "path": path, "folder": path, "where": "folder", "revision": ""})
            found = Answer(value={**found.value, "models": listed})
        return found

    @staticmethod
    def _row(name: str) -> dict[str, Any]:
        folder = f"/home/spark/.cache/huggingface/hub/models--{name.replace('/', '--')}"
        return {
            "name": name, "path": f"{folder}/snapshots/{COMMIT}", "folder": folder, "where": "cache",
            "revision": COMMIT, "refs": ["main"], "size_bytes": GIB, "weights_bytes": GIB, "is_complete": True,
            "missing": [], "config": CONFIG,
        }  # fmt: skip


def hub(weights_gib: float = 34.6) -> dict[str, Any]:
    files = [
        {"path": "config.json", "size_bytes": 2000},
        {"path": "m.safetensors", "size_bytes": round(weights_gib * 10**9)},
        {"path": "original/consolidated.pth", "size_bytes": 10**9},
    ]
    return {"status": 200, "problem": "", "gated": False, "revision": "a" * 40, "config": {}, "files": files}


def old_engine(held_gib: float = 60.0, name: str = "vllm-old", **box: Any) -> Any:
    return made.engine(name, gpu_bytes=made.gib(held_gib), container=made.container(name, **box))


def row(name: str, state: str, number: str = "ef", **labels: str) -> dict[str, Any]:
    said = {f"sparktop.{label}": value for label, value in labels.items()}
    return {"Id": number * 32, "Names": [f"/{name}"], "State": state, "Labels": said, "Image": "x"}


Case = tuple[Nodes, Order, dict[str, str]]
CASES_OF: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    """Its function's name is its file's."""
    CASES_OF[build.__name__.strip("_").replace("_", "-")] = build
    return build


def of(name: str, spot: Nodes | None = None, *, grace_s: str = "", **more: Any) -> Case:
    """An order of a shipped recipe, on as many nodes as it is for; its model is on their disks."""
    one = recipe(name)
    spot = spot or Nodes(nodes=BOTH[: one.min_nodes])
    for node in spot.nodes:
        spot.models.setdefault(node, (more.get("values", {}).get("model", one.model), WEIGHTS_GIB[name]))
    if name in CONFIGS:
        spot.configs[one.model] = {"max_position_embeddings": 1048576, **CONFIGS[name]}
    if name in DRAFTS and not spot.also and spot.hub is None:
        spot.also = (DRAFTS[name],)
    return spot, Order(recipe=one, **more), ({"grace_s": grace_s} if grace_s else {})


def with_recipe(found: Case, **more: Any) -> Case:
    """The same of a recipe that says something else."""
    spot, order, options = found
    return spot, replace(order, recipe=replace(order.recipe, **more)), options


# --- every shipped recipe, all of it on disk


for _name in SHIPPED:
    CASES_OF[f"shipped-{_name}"] = lambda name=_name: of(name)


@case
def sglang_pair() -> Case:
    return Nodes(nodes=BOTH), Order(recipe=SGLANG_PAIR), {}


# --- what is fetched


@case
def fetch_image_and_model() -> Case:
    """By hf, with the operator's token; an API key besides."""
    spot = Nodes()
    spot.without_image("spark1")
    spot.without_models("spark1")
    spot.hub = hub()
    return of(QWEN, spot, secrets=SECRETS)


@case
def fetch_by_the_image() -> Case:
    """No hf on the node, a mirror, a revision."""
    spot = Nodes()
    spot.without_models("spark1")
    spot.outputs["spark1 which"] = None
    spot.hub = hub()
    found = of(QWEN, spot, secrets=SECRETS, hub="https://mirror.example/")
    return with_recipe(found, model_revision="b" * 40)


@case
def fetch_model_and_draft() -> Case:
    spot = Nodes()
    spot.without_models("spark1")
    spot.hub = hub(66.0)
    spot.hubs[DRAFT] = hub(0.7)
    return of(MISTRAL, spot)


@case
def fetch_once_and_copy() -> Case:
    """To one node from the hub, to the other over the fabric; the image to both."""
    spot = Nodes(nodes=BOTH)
    spot.without_image(*BOTH)
    spot.without_models(*BOTH)
    spot.hub = hub(121.6)
    return of(NATIVE, spot, secrets={"HF_TOKEN": SECRETS["HF_TOKEN"]})


@case
def fetch_from_the_other_node() -> Case:
    """Only the head has it; the users of the nodes are two."""
    spot = Nodes(nodes=BOTH)
    spot.without_models("spark2")
    spot.rights_of["spark2"] = replace(spot.rights, user="other")
    return of(RAY, spot)


@case
def fetch_to_both_where_nothing_can_be_copied() -> Case:
    spot = Nodes(nodes=BOTH)
    spot.without_models(*BOTH)
    spot.hub = hub(121.6)
    spot.outputs["spark2 ssh"] = spot.outputs["spark1 ssh"] = None
    return of(NATIVE, spot)


@case
def fetch_a_folder_from_the_other_node() -> Case:
    """The model is named by its path."""
    spot = Nodes(nodes=BOTH)
    spot.without_models(*BOTH)
    spot.folders["spark1"] = "/home/spark/models/mine"
    return of(NATIVE, spot, values={"model": "~/models/mine"})


@case
def fetch_and_stop() -> Case:
    spot = Nodes(old_engine())
    spot.without_image("spark1")
    spot.without_models("spark1")
    spot.hub = hub()
    return of(QWEN, spot, stops=(("spark1", "vllm-old"),), secrets=SECRETS)


# --- what is stopped to make room


@case
def stop_one() -> Case:
    return of(QWEN, Nodes(old_engine()), stops=(("spark1", "vllm-old"),), grace_s="20")


@case
def stop_one_that_was_started_with_rm() -> Case:
    return of(QWEN, Nodes(old_engine(auto_remove=True)), stops=(("spark1", "vllm-old"),))


@case
def stop_two() -> Case:
    engines = (old_engine(40.0), old_engine(20.0, "vllm-older", container_id="cd" * 32, restart_policy="no"))
    return of(QWEN, Nodes(*engines), stops=(("spark1", "vllm-old"), ("spark1", "vllm-older")))


@case
def stop_a_service() -> Case:
    spot = Nodes(old_engine())
    facts = spot.views["spark1"].facts
    assert facts is not None
    spot.change("spark1", facts=replace(facts, units=(Unit(name="vllm.service", active="active"),)))
    spot.outputs["spark1 systemctl"] = (
        "Id=vllm.service\nExecStart={ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --rm --name vllm-old IMG ; "
        "ignore_errors=no ; start_time=[n/a] }\n"
    )
    return of(QWEN, spot, stops=(("spark1", "vllm-old"),))


@case
def stop_a_pair() -> Case:
    spot = Nodes(head(), nodes=BOTH)
    spot.run_a_pair()
    return of(NATIVE, spot, stops=(("spark1", "vllm-head"),))


@case
def stop_half_of_a_pair() -> Case:
    return of(RAY, Nodes(head(), nodes=BOTH), stops=(("spark1", "vllm-head"),))


@case
def stop_what_runs_as_asked() -> Case:
    """Launched anew: the name that is freed is the new one's."""
    name = "vllm-qwen3-0.6b"
    spot = Nodes(old_engine(4.0, name, container_id="ef" * 32))
    spot.listed["spark1"] = [row(name, "running", recipe=TINY, values="{}", rank="0")]
    return of(TINY, spot, stops=(("spark1", name),))


# --- names


@case
def name_of_an_earlier_launch() -> Case:
    spot = Nodes()
    spot.listed["spark1"] = [row("vllm-qwen3-0.6b", "exited", recipe=TINY, values="{}", rank="0")]
    return of(TINY, spot)


@case
def name_on_one_of_two() -> Case:
    spot = Nodes(nodes=BOTH)
    spot.listed["spark2"] = [row(f"vllm-{RAY}", "exited", recipe=RAY, values="{}", rank="1")]
    return of(RAY, spot)


@case
def leftovers_are_removed() -> Case:
    """Of a launch that was interrupted; a container that somebody else has made stays."""
    spot, name, said = Nodes(), "vllm-qwen3-0.6b", {"recipe": TINY, "values": "{}", "rank": "0"}
    spot.listed["spark1"] = [
        row(name, "created", **said, launch="20260528T190000"),
        row(f"{name}-next-20260528T190000", "created", "ab", **said, launch="20260528T190000"),
        row(f"{name}-next-mine", "created", "cd", **said),
    ]
    return of(TINY, spot)


# --- options, values, and how the nodes are


@case
def values_and_grace() -> Case:
    values = {"port": "8001", "gpu_memory_utilization": "0.5", "max_model_len": "8192", "name": "my-qwen"}
    return of(QWEN, values=values, grace_s="5")


@case
def values_that_are_hostile() -> Case:
    return of(TINY, values={"served_model_name": "a$(touch x)'\";b"})


@case
def another_model_and_image() -> Case:
    return of(TINY, values={"model": "org/Other-FP8", "container": "vllm/vllm-openai:v0.22.1"})


@case
def a_restart_policy() -> Case:
    return with_recipe(of(TINY), options={"restart_policy": "on-failure:3"})


@case
def a_guard_that_is_armed_already() -> Case:
    spot = Nodes(old_engine(8.0))
    armed = GuardState(
        phase=GuardPhase.ARMED, container_id="a" * 64, container_name="vllm-old", floor_bytes=6 * GIB, stay_s=600.0
    )
    spot.change("spark1", guard=armed)
    return of(TINY, spot, values={"port": "8001"})


@case
def caches_are_dropped() -> Case:
    spot = Nodes()
    sample = spot.views["spark1"].sample
    assert sample is not None
    full = made.memory(112.0, cache_gib=100.0, free_bytes=4 * GIB, anonymous_bytes=made.gib(1.4))
    spot.change("spark1", sample=replace(sample, memory=full))
    spot.rights = replace(spot.rights, sudo="password")
    return of(QWEN, spot)


@case
def a_tight_fit() -> Case:
    return of(NATIVE, Nodes(nodes=BOTH, available_gib=108.0), values={"gpu_memory_utilization": "0.82"})


@case
def beside_an_engine_that_stays() -> Case:
    return of(TINY, Nodes(old_engine(30.0)), values={"port": "8001"})


# --- a compose file's service


@case
def a_compose_service() -> Case:
    """By the secrets of the operator, with room made for it."""
    spot = Nodes(old_engine())
    spot.files |= COMPOSE_FILES
    secrets = {"HF_TOKEN": SECRETS["HF_TOKEN"]}
    return spot, Order(recipe=composed(), secrets=secrets, stops=(("spark1", "vllm-old"),)), {"grace_s": "20"}


@case
def a_compose_service_with_other_values() -> Case:
    """Which its file has not: a container of sparktop's own."""
    spot = Nodes()
    spot.files |= COMPOSE_FILES
    return spot, Order(recipe=composed(), values={"max_model_len": "16384"}), {}


# --- refusals


@case
def refused_compose_service_was_stopped() -> Case:
    spot = Nodes()
    spot.files |= COMPOSE_FILES
    labels = {"project": "llm", "service": "engine", "oneoff": "False"}
    said = {f"com.docker.compose.{label}": value for label, value in labels.items()}
    spot.listed["spark1"] = [{**row("llm-engine-1", "exited"), "Labels": said}]
    return spot, Order(recipe=composed(), secrets={"HF_TOKEN": SECRETS["HF_TOKEN"]}), {}


@case
def refused_does_not_fit() -> Case:
    return of(QWEN, Nodes(old_engine(90.0)))


@case
def refused_does_not_fit_on_two() -> Case:
    return of(NATIVE, Nodes(nodes=BOTH, available_gib=60.0), values={"gpu_memory_utilization": "0.82"})


@case
def refused_port_is_held() -> Case:
    return of(TINY, Nodes(old_engine(4.0)))


@case
def refused_image_is_built_locally() -> Case:
    spot = Nodes(nodes=BOTH)
    spot.without_image(*BOTH)
    return of(RAY, spot, values={"container": "vllm-own:1"})


@case
def image_of_a_local_name_is_pulled() -> Case:
    spot = Nodes(nodes=BOTH)
    spot.without_image(*BOTH)
    return of(RAY, spot)


@case
def refused_hub_is_out_of_reach() -> Case:
    spot = Nodes()
    spot.without_models("spark1")
    return of(GPT_OSS, spot)


@case
def refused_nothing_may_be_fetched() -> Case:
    spot = Nodes()
    spot.without_image("spark1")
    spot.without_models("spark1")
    return of(QWEN, spot, may_fetch=False)


@case
def refused_value_is_none() -> Case:
    return of(TINY, values={"max_modl_len": "4096"})


@case
def refused_name_is_somebody_else_s() -> Case:
    spot = Nodes()
    spot.listed["spark1"] = [row("vllm-qwen3-0.6b", "exited")]
    return of(TINY, spot)


@case
def refused_name_runs_with_other_values() -> Case:
    name = "vllm-qwen3-0.6b"
    spot = Nodes(old_engine(4.0, name))
    spot.listed["spark1"] = [row(name, "running", recipe=TINY, values='{"max_model_len":"4096"}', rank="0")]
    return of(TINY, spot, values={"port": "8001"})


@case
def refused_runs_already() -> Case:
    spot = Nodes()
    spot.listed["spark1"] = [row("vllm-qwen3-0.6b", "running", recipe=TINY, values="{}", rank="0")]
    return of(TINY, spot)


@case
def refused_runs_already_without_its_policy() -> Case:
    """Its launch was interrupted before its end."""
    name = "vllm-qwen3-0.6b"
    spot = Nodes(old_engine(4.0, name, container_id="ef" * 32, restart_policy="no"))
    spot.listed["spark1"] = [row(name, "running", recipe=TINY, values="{}", rank="0")]
    return with_recipe(of(TINY, spot), options={"restart_policy": "unless-stopped"})


@case
def refused_nodes_that_are_no_pair() -> Case:
    """The cable is out, drivers and memory differ, nobody lingers, and no ping gets through."""
    spot = Nodes(nodes=BOTH)
    spot.change("spark2", network=network(2, gid=5, mtu=1500, rate=100.0, up=False))
    facts = made.facts("spark2", driver_version="575.51", kernel="6.11.0-1000-nvidia", is_lingering=False)
    sample = spot.views["spark2"].sample
    assert sample is not None
    spot.change("spark2", facts=facts, sample=replace(sample, memory=made.memory(104.0)))
    spot.outputs["spark1 ping"] = "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n"
    spot.outputs["spark2 ping"] = None
    return with_recipe(of(RAY, spot), requires=Requirement(driver="580", ray=True, linger=True, equal_memory_gib=5.0))


@case
def refused_nothing_of_that_name_to_stop() -> Case:
    return of(TINY, Nodes(old_engine(4.0)), stops=(("spark1", "vllm-older"),))


@case
def refused_for_two_nodes() -> Case:
    return of(RAY, Nodes())


@case
def refused_without_docker() -> Case:
    spot = Nodes()
    spot.rights = replace(spot.rights, docker="denied")
    return of(TINY, spot)


@case
def refused_grace() -> Case:
    return of(TINY, grace_s="soon")


WITH_FILES = {
    *(name for name in CASES_OF if name.startswith("shipped-")),
    *("sglang-pair", "fetch-image-and-model", "values-and-grace", "values-that-are-hostile", "a-restart-policy"),
}
"""Their exported files stand in full; of the others' only sizes and digests do."""
WITH_TEXT = {
    *("sglang-pair", "fetch-and-stop", "fetch-once-and-copy", "stop-a-pair", "stop-a-service"),
    *("stop-what-runs-as-asked", "name-on-one-of-two", "leftovers-are-removed", "values-that-are-hostile"),
    *("a-guard-that-is-armed-already", "caches-are-dropped", "a-tight-fit", "refused-does-not-fit"),
    *("refused-hub-is-out-of-reach", "refused-value-is-none", "refused-name-is-somebody-else-s"),
    *("refused-runs-already", "refused-runs-already-without-its-policy", "refused-nodes-that-are-no-pair"),
    *("refused-for-two-nodes", "refused-grace", "refused-compose-service-was-stopped"),
    *("a-compose-service", "a-compose-service-with-other-values"),
}
"""They have between them every kind of line that a launch's text has; the others' say nothing but their fields."""


@over("name", CASES_OF)
def test_a_launch_is_planned_as_it_is_on_file(name: str) -> None:
    spot, order, options = CASES_OF[name]()
    found = spot.planned(order, **options)
    assert found.request == Request(action="launch", nodes=spot.nodes, order=order, options=options)
    assert isinstance(found, Plan) is not name.startswith("refused-"), getattr(found, "reason", "it is planned")
    if name in WITH_TEXT:
        written = plan_lines if isinstance(found, Plan) else refusal_lines
        compare(f"operate/launch/{name}", plain(written(found, 100, is_printed=True)))
    compare_plan(f"launch/{name}", found, with_files=name in WITH_FILES)


@over("folder, names", [("operate/launch", WITH_TEXT), ("plans/launch", set(CASES_OF))])
def test_no_file_is_left_of_a_launch_that_is_no_longer_planned(folder: str, names: set[str]) -> None:
    assert {path.stem for path in (CASES / folder).glob("*.txt")} == names
