"""A launch whose recipe has a draft beside its model: planned with both, on one node and on two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.table import over
from tests.unit.operate.launch.launch_support import GIB, Sparks, recipe

from sparktop.cmdline import engine_argv as flags
from sparktop.model.operation import DockerCall
from sparktop.model.prospect import Gate
from sparktop.model.recipe import Order
from sparktop.model.state import State
from sparktop.model.survey import HubModel, ModelsOnDisk
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Plan, Refusal

MISTRAL = "mistral-small-4-119b-nvfp4"
MODEL, DRAFT = "mistralai/Mistral-Small-4-119B-2603-NVFP4", "mistralai/Mistral-Small-4-119B-2603-eagle"
NODES = ("spark1", "spark2")
SMALL = {"num_hidden_layers": 1, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096}
HUB = {
    "status": 200,
    "files": [{"path": "model.safetensors", "size_bytes": 2 * GIB}],
    "config": SMALL,
    "revision": "b" * 40,
}


class Drafted(Sparks):
    """Idle, with the model on their disks, and the draft on some."""

    def __init__(self, *has_draft: str, **more: Any) -> None:
        super().__init__(**more)
        self.has_draft = has_draft
        self.hub = HUB

    def _disk(self, node: str, order: Order) -> dict[str, Any]:
        self.models[node] = (MODEL, 62.0)
        found = super()._disk(node, order)
        if node in self.has_draft:
            (row,) = found["models"]
            folder = row["folder"].replace(MODEL.replace("/", "--"), DRAFT.replace("/", "--"))
            sizes = {"size_bytes": 2 * GIB, "weights_bytes": 2 * GIB, "config": SMALL}
            found["models"].append({**row, "name": DRAFT, "folder": folder, "path": f"{folder}/snapshots/x", **sizes})
        return found


def order(**values: str) -> Order:
    return Order(recipe=recipe(MISTRAL), values=values)


def on_two(**values: str) -> Order:
    return Order(recipe=replace(recipe(MISTRAL), max_nodes=2), values={"tensor_parallel": "2", **values})


def planned(spot: Sparks, asked: Order) -> Plan:
    found = spot.planned(asked)
    assert isinstance(found, Plan), found
    return found


def environments(plan: Plan) -> list[dict[str, str]]:
    acts = [step.act for step in plan.steps if step.id.startswith("make") and isinstance(step.act, Remote)]
    bodies = [one.body for act in acts for one in act.operations if isinstance(one, DockerCall) and one.body]
    return [dict(pair.split("=", 1) for pair in body["Env"]) for body in bodies]


def gates(found: Plan | Refusal, name: str) -> list[Gate]:
    assert found.prospect is not None
    return [gate for gate in found.prospect.gates if gate.name == name and DRAFT in gate.detail]


def test_with_both_on_disk_nothing_comes_and_the_hub_is_shut_off() -> None:
    spot = Drafted("spark1")
    plan = planned(spot, order())
    assert plan.steps[0].id == "make"
    assert plan.prospect is not None
    assert plan.prospect.fetches == ()
    assert environments(plan)[0]["HF_HUB_OFFLINE"] == "1"
    assert [gate.state for gate in gates(plan, "model")] == [State.PASSED]
    assert not any(isinstance(ask, HubModel) for ask in spot.asked)


def test_a_draft_that_is_missing_comes_first_and_is_named() -> None:
    spot = Drafted()
    plan = planned(spot, order())
    assert [step.id for step in plan.steps[:2]] == ["model", "make"]
    assert plan.steps[0].title == f"Download {DRAFT} (2.1 GB) to spark1"
    assert plan.prospect is not None
    assert tuple(download.text for download in plan.prospect.fetches) == (
        f"model {DRAFT} (2.1 GB) on spark1, from huggingface.co",
    )
    assert "HF_HUB_OFFLINE" not in environments(plan)[0]
    assert [gate.state for gate in gates(plan, "model")] == [State.WARNING]
    assert [gate.state for gate in gates(plan, "hub")] == [State.PASSED]
    assert [gate.state for gate in gates(plan, "disk")] == [State.PASSED]
    assert any(DRAFT in line for line in plan.equivalent)
    assert [ask.repo for ask in spot.asked if isinstance(ask, HubModel)] == [DRAFT]
    assert len([ask for ask in spot.asked if isinstance(ask, ModelsOnDisk)]) == 1


def test_on_two_nodes_it_is_downloaded_once_and_copied() -> None:
    two = planned(Drafted(nodes=NODES), on_two())
    assert [step.id for step in two.steps[:2]] == ["model@spark1", "copy@spark2"]
    one = planned(Drafted("spark2", nodes=NODES), on_two())
    assert [step.id for step in one.steps[:1]] == ["copy@spark1"]
    assert ["HF_HUB_OFFLINE" in found for found in environments(one)] == [False, True]
    none = planned(Drafted(*NODES, nodes=NODES), on_two())
    assert none.steps[0].id == "make@spark1"


def test_it_is_weighed_with_its_cache() -> None:
    def tokens(plan: Plan) -> int:
        budget = plan.prospect.budget if plan.prospect is not None else None
        assert budget is not None
        assert budget.cache_tokens is not None
        return budget.cache_tokens

    there, coming = planned(Drafted("spark1"), order()), planned(Drafted(), order())
    assert tokens(there) == tokens(coming)  # by its files, or by the hub
    alone = planned(Drafted("spark1"), order(draft_model=""))
    assert tokens(there) < tokens(alone) * 0.95


def test_another_draft_of_the_operator_s_is_followed() -> None:
    spot = Drafted("spark1")
    plan = planned(spot, order(draft_model="me/Other"))
    assert plan.steps[0].title == "Download me/Other (2.1 GB) to spark1"
    act = next(step.act for step in plan.steps if step.id == "make")
    assert isinstance(act, Remote)
    body = next(one.body for one in act.operations if isinstance(one, DockerCall))
    assert body is not None
    assert flags.value_of(body["Cmd"], "speculative-draft-model-path") == "me/Other"
    back = planned(spot, order(draft_model=DRAFT))
    assert back.steps[0].id == "make"


@over(
    "hub, said",
    [({"status": 404, "files": []}, f"the hub has no {DRAFT} (HTTP 404)"), ({**HUB, "gated": "manual"}, "is gated")],
)
def test_a_draft_that_can_t_be_had_refuses_the_launch(hub: dict[str, Any], said: str) -> None:
    spot = Drafted()
    spot.hub = hub
    found = spot.planned(order())
    assert isinstance(found, Refusal)
    assert said in found.reason
    assert DRAFT in found.reason
    assert any("draft_model" in one or DRAFT in one for one in found.remedies)
