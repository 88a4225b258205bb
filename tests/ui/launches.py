"""Recipes and prospects made by hand, as shelf and planner would make them; and a console that can launch them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.ui.acting import USUAL, acting
from tests.ui.operating import GIB, HOSTILE, ID, FakeOperating
from textual.pilot import Pilot

from sparktop.documents.recipe import RecipeRow
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, DockerCall, ImagePull, Transfer
from sparktop.model.prospect import Budget, Download, Fit, Gate, Lever, NodeBudget, OnDisk, Prospect, Slice, SliceKind
from sparktop.model.recipe import Dialect, Executor, Expected, Need, Provenance, Recipe
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step
from sparktop.recipe.read.shelf import Origin
from sparktop.ui.app import SparktopApp

TOTAL = int(121.69 * GIB)
PASSED = (
    "recipe-lint", "docker", "gpu-runtime", "driver", "image", "model", "disk", "port", "name", "linger", "memory",
)  # fmt: skip

QWEN = Recipe(
    id="qwen3.6-35b-a3b-fp8",
    path="/usr/share/sparktop/recipes/qwen3.6-35b-a3b-fp8.yaml",
    dialect=Dialect.SPARKRUN,
    engine=EngineKind.VLLM,
    model="Qwen/Qwen3.6-35B-A3B-FP8",
    container="nvcr.io/nvidia/vllm:26.05.post1-py3",
    title="Qwen3.6-35B-A3B, FP8, one Spark",
    description="Qwen3.6-35B-A3B (FP8, mixture of experts, 3 B active) on one Spark.",
    defaults={
        "host": "0.0.0.0",
        "port": 8000, "tensor_parallel": 1, "gpu_memory_utilization": 0.70, "max_model_len": 131072,
        "max_num_seqs": 8, "reasoning_parser": "qwen3",
    },
    need=Need(weights_gib=34.6, active_gib=3.0, spike_gib=4.0),
    expected=Expected(tokens_s=48, tokens_s_most=53, first_token_s=0.4, load_s=260, source="field report 002"),
    provenance=(
        Provenance(
            source="Field report \"Why Qwen3.6-35B runs on a DGX Spark\" (corti.com)", date="2026-06-08",
            says="0.70 on NGC 26.05 loads in 4 min 20 and serves at 52 tokens/s; the quantisation that worked had sat "
            "on the disk for 27 days.",
            resolved="0.70 as the most that is tried; the share is computed from what is there.",
        ),
        Provenance(source="NVIDIA playbook vLLM", says="0.4 with the NVFP4 model and a context of 262144.",
                   resolved="Another quantisation: kept as an alternative where it is on the disk."),
    ),
)  # fmt: skip
GPT = replace(
    QWEN,
    id="gpt-oss-120b",
    path="/usr/share/sparktop/recipes/gpt-oss-120b.yaml",
    model="openai/gpt-oss-120b",
    title="gpt-oss-120b, stock vLLM, one Spark",
    description="gpt-oss-120b (MXFP4, mixture of experts, 5 B active) on one Spark, without CUDA graphs.",
    defaults={"port": 8000, "tensor_parallel": 1, "gpu_memory_utilization": 0.70, "max_model_len": 32768,
              "max_num_seqs": 4, "enforce_eager": True},
    need=Need(weights_gib=61.0, active_gib=2.9, spike_gib=47.0, share=0.70),
    expected=Expected(source="nobody has reported a figure"),
    metadata={"model_dtype": "mxfp4"},
    environment={"HF_TOKEN": "$HF_TOKEN"},
    risks=(
        "MXFP4 runs through young kernels on this GPU: the first request has hung or taken all memory.",
        "Without graphs it is slow: about half the speed.",
    ),
)  # fmt: skip
MINIMAX = replace(
    QWEN,
    id="minimax-m2.7-nvfp4",
    path="/usr/share/sparktop/recipes/minimax-m2.7-nvfp4.yaml",
    model="MiniMaxAI/MiniMax-M2.7-NVFP4",
    title="MiniMax-M2.7, NVFP4, two Sparks, no Ray",
    executor=Executor.NATIVE,
    min_nodes=2,
    max_nodes=2,
    need=Need(weights_gib=128.0, active_gib=6.0),
    expected=Expected(tokens_s=32, tokens_s_most=35, source="field report 003"),
)
MISTRAL = replace(
    QWEN,
    id="mistral-small-4-119b-nvfp4",
    path="/home/ops/.config/sparktop/recipes/mistral-small-4-119b-nvfp4.yaml",
    engine=EngineKind.SGLANG,
    model="mistralai/Mistral-Small-4-119B-2603-NVFP4",
    container="lmsysorg/sglang:latest-cu130",
    title="Mistral Small 4, NVFP4, SGLang with EAGLE",
    max_nodes=2,
    executor=Executor.NATIVE,
    defaults={"port": 30000, "mem_fraction_static": 0.75, "context_length": 65536},
    expected=Expected(tokens_s=26),
)
HOSTILE_RECIPE = replace(
    QWEN, id=HOSTILE, path=HOSTILE, model=HOSTILE, container=HOSTILE, title=HOSTILE, description=HOSTILE,
    defaults={HOSTILE: HOSTILE, "port": HOSTILE}, environment={HOSTILE: HOSTILE, "KEY": "$KEY"}, risks=(HOSTILE,),
    provenance=(Provenance(source=HOSTILE, date=HOSTILE, says=HOSTILE, resolved=HOSTILE),),
    expected=Expected(tokens_s=1, source=HOSTILE), metadata={"quantization": HOSTILE},
)  # fmt: skip
SHELF = (
    RecipeRow(id=GPT.id, path=GPT.path, recipe=GPT),
    RecipeRow(id=MINIMAX.id, path=MINIMAX.path, recipe=MINIMAX),
    RecipeRow(id=QWEN.id, path=QWEN.path, recipe=QWEN),
    RecipeRow(id=MISTRAL.id, path=MISTRAL.path, recipe=MISTRAL, origin=Origin.OWN),
    RecipeRow(
        id="my-broken", path="/home/ops/.config/sparktop/recipes/my-broken.yaml", origin=Origin.OWN,
        problems=("my-broken.yaml:7: defaults.prot: unknown key: did you mean `port`?",
                  "my-broken.yaml:12: mods: not supported: a mod is a patch of the image's files"),
    ),
)  # fmt: skip
HOSTILE_SHELF = (
    RecipeRow(id=HOSTILE, path=HOSTILE, recipe=HOSTILE_RECIPE),
    RecipeRow(id="x", path=HOSTILE, origin=Origin.OWN, problems=(HOSTILE,)),
)


def part(kind: SliceKind, label: str, gib: float) -> Slice:
    name, _, amount = label.rpartition(" ")
    return Slice(kind=kind, label=name, size_bytes=int(gib * GIB), amount=amount)


def gates(**bad: tuple[State, str, str]) -> tuple[Gate, ...]:
    """Those that pass, but for the bad ones: name -> (state, detail, remedy)."""
    found = [Gate(name=name, node="spark1", state=State.PASSED, detail="well") for name in PASSED]
    for name, (state, detail, remedy) in bad.items():
        name = name.replace("_", "-")
        found = [one for one in found if one.name != name]
        found.append(Gate(name=name, node="spark1", state=state, detail=detail, steps=(remedy,) if remedy else ()))
    return tuple(found)


WARNED = gates(
    image_version=(State.WARNING, "26.05.post1 is newer than what the recipe was proven with (26.04)", ""),
    hub=(State.UNKNOWN, "huggingface.co gave no answer within 8 s", "curl -sI https://huggingface.co"),
)
FAILED = gates(
    memory=(
        State.FAILED,
        "at 0.90 the engine takes 109.5 GiB of spark1's 121.7 plus 47.0 outside its share, but only 89.6 is usable",
        "--set gpu_memory_utilization=0.52",
    ),
    port=(State.FAILED, "port 8000 is held by vllm-minimax", "--stop vllm-minimax, or --set port=8001"),
    image_version=(State.WARNING, "26.05.post1 is newer than what the recipe was proven with (26.04)", ""),
)
_OPENS = {
    "memory": (Lever(values={"gpu_memory_utilization": "0.52"}),),
    "port": (Lever(stops=("vllm-minimax",)), Lever(values={"port": "8001"})),
}
FAILED = tuple(replace(gate, levers=_OPENS.get(gate.name, ())) for gate in FAILED)


def fitting(order_values: Mapping[str, str], nodes: tuple[str, ...]) -> Prospect:
    """Qwen on a node whose engine goes."""
    budgets = []
    for node in nodes:
        before = (part(SliceKind.HOST, "host 9.1", 9.1), part(SliceKind.TO_BE_STOPPED, "vllm-minimax 66.0", 66.0),
                  part(SliceKind.FREE, "free 46.6", 46.59))  # fmt: skip
        after = (
            part(SliceKind.HOST, "host 9.1", 9.1), part(SliceKind.WEIGHTS, "weights 34.6", 34.6),
            part(SliceKind.CACHE, "KV cache 36.4", 36.4), part(SliceKind.UNTOUCHED, "rest 2.0", 2.0),
            part(SliceKind.OVERHEAD, "graphs and spike 4.0", 4.0), part(SliceKind.RESERVE, "reserve 20.0", 20.0),
            part(SliceKind.FREE, "free 15.6", 15.59),
        )  # fmt: skip
        budgets.append(NodeBudget(
            node=node, total_bytes=TOTAL, available_bytes=int(45.4 * GIB), before=before, after=after,
            left_bytes=int(35.6 * GIB), fit=Fit.FITS,
            sentence="73.0 GiB of 121.7 for it, 4.0 beside that, 35.6 left to the host",
        ))  # fmt: skip
    budget = Budget(
        fit=Fit.FITS,
        why=f"at 0.60 it takes 73.0 GiB of {nodes[0]}'s 121.7 and 4.0 beside that; 35.6 are left, 20.0 are the reserve "
        "(there is a desktop)",
        nodes=tuple(budgets), share=0.60, share_source="computed: what the context needs and a third more",
        context_tokens=131072, cache_tokens=894_000,
        unknowns=("graphs and spike: by other models of this size, nobody has measured this one",),
    )  # fmt: skip
    return Prospect(
        recipe_id=QWEN.id, title=QWEN.title, nodes=nodes,
        values={"model": QWEN.model, "container": QWEN.container, "port": "8000", "name": "qwen3.6-35b-a3b-fp8",
                "gpu_memory_utilization": "0.60", "max_model_len": "131072", "tensor_parallel": "1", **order_values},
        budget=budget, gates=WARNED,
        on_disk=(
            OnDisk(name=QWEN.model, path="/home/ops/.cache/huggingface/hub/models--Qwen--Qwen3.6-35B-A3B-FP8/"
                   "snapshots/1a2b", nodes=("spark1", "spark2"), size_bytes=int(34.9 * GIB), quantisation="fp8",
                   is_wanted=True),
            OnDisk(name="nvidia/Qwen3.6-35B-A3B-NVFP4", path="/srv/models/qwen3.6-nvfp4", nodes=("spark1",),
                   size_bytes=int(20.1 * GIB), quantisation="nvfp4", note="the same model in NVFP4"),
        ),
        fetches=(Download(kind="image", name="nvcr.io/nvidia/vllm:26.05.post1-py3", node="spark1", size="21 GB",
                          source="from its registry"),),
    )  # fmt: skip


def short(order_values: Mapping[str, str], nodes: tuple[str, ...]) -> Prospect:
    """gpt-oss-120b at 0.90 beside an engine that stays."""
    before = (part(SliceKind.HOST, "host 9.1", 9.1), part(SliceKind.OTHERS, "vllm-minimax 66.0", 66.0),
              part(SliceKind.FREE, "free 46.6", 46.59))  # fmt: skip
    after = (
        part(SliceKind.HOST, "host 9.1", 9.1), part(SliceKind.OTHERS, "vllm-minimax 66.0", 66.0),
        part(SliceKind.WEIGHTS, "weights 61.0", 46.59), part(SliceKind.SHORT, "short 109.9", 109.9),
    )  # fmt: skip
    sentence = (
        "at 0.90 the engine takes 109.5 GiB of spark1's 121.7 plus 47.0 outside its share, but only 44.6 is usable"
    )
    node = NodeBudget(
        node=nodes[0], total_bytes=TOTAL, available_bytes=int(45.4 * GIB), before=before, after=after,
        left_bytes=-int(109.9 * GIB), fit=Fit.NO, sentence="109.5 GiB of 121.7 for it, 47.0 beside that, 109.9 short",
    )  # fmt: skip
    budget = Budget(
        fit=Fit.NO, why=sentence, nodes=(node,), share=0.90, share_source="as you set it",
        levers=(
            Lever(values={"gpu_memory_utilization": "0.52"}, stops=("vllm-minimax",)),
            Lever(values={"max_model_len": "16384"}, stops=("vllm-minimax",)),
            Lever(
                values={"tensor_parallel": "2"}, nodes=2,
                words="two nodes: sparktop launch gpt-oss-120b spark1 OTHER-HOST --set tensor_parallel=2",
            ),
        ),
        context_tokens=32768,
    )  # fmt: skip
    return Prospect(
        recipe_id=GPT.id, title=GPT.title, nodes=nodes, budget=budget, gates=FAILED, risks=GPT.risks,
        values={"model": GPT.model, "port": "8000", "name": "gpt-oss-120b", **order_values},
        on_disk=(OnDisk(name=GPT.model, path="/srv/hub/models--openai--gpt-oss-120b/snapshots/9",
                        nodes=("spark1",), size_bytes=int(60.8 * GIB), quantisation="mxfp4", is_wanted=True,
                        is_complete=False),),
    )  # fmt: skip


def launch(request: Request, prospect: Prospect | None = None) -> Plan:
    """The plan of a launch on the request's nodes."""
    order = request.order
    assert order is not None
    name, head = order.recipe.id, request.nodes[0]
    token = order.secrets.get("HF_TOKEN", "")
    download = Command(argv=("hf", "download", order.recipe.model), environment={"HF_TOKEN": token}, limit_s=7200)
    steps = [
        Step(id="image", title=f"Pull {order.recipe.container}", node=head, limit_s=3600,
             act=Remote(operations=(ImagePull(image=order.recipe.container),))),
        Step(id="model", title=f"Download {order.recipe.model}, 34.9 GiB", node=head, limit_s=7200,
             act=Remote(operations=(Transfer(command=download, grows="~/.cache", key="model"),))),
        *(Step(id=f"stop-{engine}@{node}", title=f"Stop {engine}, 60 s grace", node=node, limit_s=90,
               act=Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop"),),
                          reverse="started again"))
          for node, engine in order.stops),
        Step(id="memory", title="Wait until 96 GiB are available", node=head, limit_s=300,
             act=AwaitMemory(target_bytes=96 * GIB)),
        Step(id="start", title=f"Start {name}", node=head, limit_s=60, on_failure=OnFailure.ROLL_BACK,
             act=Remote(operations=(DockerCall(method="POST", path="/containers/create", query={"name": name},
                                               saves="NEW", body={"Image": "x"}),))),
        Step(id="ready", title="Wait until it answers", node=head, limit_s=3600, act=AwaitReady(name=name)),
        Step(id="smoke", title="Send one request, with the guard armed", node=head, limit_s=120,
             act=SmokeTest(engine=name, floor_bytes=4 * GIB)),
        Step(id="measure", title="Measure 256 tokens", node=head, limit_s=120, on_failure=OnFailure.GO_ON,
             act=Measure(engine=name, expected=order.recipe.expected, floor_bytes=4 * GIB)),
    ]  # fmt: skip
    return Plan(
        request=request,
        title=f"Launch {name} on {' and '.join(request.nodes)}",
        risk=Risk.DISRUPTIVE if order.stops else Risk.SAFE,
        steps=tuple(steps),
        rollback=tuple(replace(step, id=f"back-{step.id}", title=step.title.replace("Stop", "Start").partition(",")[0])
                       for step in steps if step.id.startswith("stop-")),
        effect="It serves on port 8000 in some 5 minutes.",
        equivalent=(f"docker run -d --name {name} --gpus all {order.recipe.container} serve {order.recipe.model}",),
        secrets=tuple(order.secrets.values()),
        prospect=prospect,
    )  # fmt: skip


def answer(request: Request) -> Plan | Refusal:
    """gpt-oss at 0.70 or more, or beside the engine that runs, is refused; anything else is planned."""
    order = request.order
    assert order is not None
    if order.recipe.id == HOSTILE:
        return hostile(request)
    if order.recipe.id == GPT.id and (
        float(order.values.get("gpu_memory_utilization", "0.7")) >= 0.6 or not order.stops
    ):
        prospect = short(order.values, request.nodes)
        assert prospect.budget is not None
        return Refusal(request=request, reason=prospect.budget.sentence, prospect=prospect, is_verdict=True)
    prospect = fitting(order.values, request.nodes)
    return launch(request, replace(prospect, recipe_id=order.recipe.id, title=order.recipe.title))


def hostile(request: Request) -> Plan:
    """Every text of the prospect attacks the terminal, the shell or the markup."""
    slices = tuple(Slice(kind=kind, label=HOSTILE, size_bytes=12 * GIB) for kind in SliceKind)
    node = NodeBudget(node="spark1", total_bytes=TOTAL, available_bytes=GIB, before=slices[:4], after=slices,
                      left_bytes=0, fit=Fit.TIGHT, sentence=HOSTILE)  # fmt: skip
    prospect = Prospect(
        recipe_id=HOSTILE, title=HOSTILE, nodes=request.nodes, values={HOSTILE: HOSTILE, "port": HOSTILE},
        budget=Budget(fit=Fit.TIGHT, why=HOSTILE, advice=HOSTILE, nodes=(node,), share=0.5,
                      levers=(Lever(words=HOSTILE), Lever(values={"x": HOSTILE}, stops=(HOSTILE,))),

                      share_source=HOSTILE, unknowns=(HOSTILE,)),
        gates=tuple(
            Gate(name=HOSTILE, node=HOSTILE, state=state, detail=HOSTILE, steps=(HOSTILE,)) for state in State
        ),
        on_disk=(OnDisk(name=HOSTILE, path=HOSTILE, nodes=(HOSTILE,), size_bytes=1, note=HOSTILE),),
        fetches=(Download(kind=HOSTILE, name=HOSTILE, node=HOSTILE, source=HOSTILE),), risks=(HOSTILE,),
    )  # fmt: skip
    return launch(request, prospect)


async def nothing_here(fleet: FleetState) -> tuple[RecipeRow, ...]:
    """No launch is there but recipes."""
    return ()


@asynccontextmanager
async def launching(
    picture: str = "decode",
    size: tuple[int, int] = USUAL,
    *,
    shelf: tuple[RecipeRow, ...] = SHELF,
    answers: Callable[[Request], Plan | Refusal] = answer,
    here: Callable[[FleetState], Awaitable[tuple[RecipeRow, ...]]] = nothing_here,
    **more: Any,
) -> AsyncIterator[tuple[SparktopApp, FakeOperating, Pilot[int]]]:
    """A console whose shelf holds these recipes."""
    side = FakeOperating(is_read_only=bool(more.get("read_only")))
    side.answer = answers
    async with acting(picture, size, side, **more) as (app, side, pilot):
        app.acting.launching.shelf = lambda _: shelf
        app.acting.launching.here = here
        yield app, side, pilot
