"""Further models of a launch: which they are with what the operator sets, and what the container has of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.recipe_support import order, pair, recipe, seat, shipped
from tests.table import over

from sparktop.cmdline import engine_argv as flags
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.more_models import more_models
from sparktop.recipe.render.render import render

CACHE = "/home/me/.cache/huggingface"
SNAPSHOT = f"{CACHE}/hub/models--org--model/snapshots/abc"
COMMAND = "vllm serve {model} --speculative-draft-model-path {draft}"
DRAFT: dict[str, Any] = {"command": COMMAND, "defaults": {"draft": "org/draft"}, "more_models": ("org/draft",)}
JSON = {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}
SPECULATIVE: dict[str, Any] = {
    "command": "vllm serve {model} --speculative-config '{speculative_config}'",
    "defaults": {"speculative_config": json.dumps(JSON)},
    "more_models": ("org/draft",),
}
LITERAL: dict[str, Any] = {
    "command": "python3 -m sglang.launch_server --model-path {model} --speculative-draft-model-path org/draft",
    "more_models": ("org/draft", "org/tokens"),
    "defaults": {},
}


@pytest.mark.parametrize(
    ("fields", "values", "found"),
    [
        pytest.param({}, {}, (), id="none"),
        pytest.param(DRAFT, {}, ("org/draft",), id="as in the recipe"),
        pytest.param(DRAFT, {"draft": "me/better"}, ("me/better",), id="its parameter is set"),
        pytest.param(DRAFT, {"draft": "/models/d"}, ("/models/d",), id="to a path"),
        pytest.param(DRAFT, {"draft": ""}, (), id="to nothing"),
        pytest.param(DRAFT, {"draft": "org/model"}, (), id="to the model itself"),
        pytest.param(DRAFT, {"model": "org/draft"}, (), id="the model is set to what is listed"),
        pytest.param(DRAFT, {"model": "org/other", "port": "9000"}, ("org/draft",), id="others are set"),
        pytest.param({**DRAFT, "more_models": ("{draft}", "org/2")}, {}, ("org/draft", "org/2"), id="listed by name"),
        pytest.param({**DRAFT, "more_models": ("{draft}", "org/2")}, {"draft": "a/b"}, ("a/b", "org/2"), id="and set"),
        pytest.param({**DRAFT, "more_models": ("{x}",)}, {}, ("{x}", "org/draft"), id="a name that nobody knows"),
        pytest.param(SPECULATIVE, {}, ("org/draft",), id="in JSON"),
        pytest.param(
            SPECULATIVE, {"speculative_config": json.dumps(JSON | {"model": "a/b"})}, ("a/b",), id="in JSON and set"
        ),
        pytest.param(SPECULATIVE, {"speculative_config": '{"method": "ngram"}'}, (), id="JSON without one"),
        pytest.param(SPECULATIVE, {"speculative_config": "{broken"}, (), id="no JSON"),
        pytest.param(
            {**SPECULATIVE, "more_models": (), "command": ""}, {}, ("org/draft",), id="in defaults without a command"
        ),
        pytest.param(LITERAL, {}, ("org/draft", "org/tokens"), id="in the command"),
        pytest.param(
            {**LITERAL, "engine": EngineKind.SGLANG},
            {"speculative_draft_model_path": "a/b"},
            ("a/b", "org/tokens"),
            id="a flag in the place of the command's own",
        ),
        pytest.param(DRAFT, {"no_such_parameter": "1"}, ("org/draft",), id="an order that can't be rendered"),
    ],
)
def test_which_they_are(fields: dict[str, Any], values: dict[str, str], found: tuple[str, ...]) -> None:
    assert more_models(resolve(order(values, **fields))) == found


def test_the_shipped_recipe_has_its_draft_and_follows_another() -> None:
    one = shipped("mistral-small-4-119b-nvfp4")
    assert more_models(resolve(Order(recipe=one))) == ("mistralai/Mistral-Small-4-119B-2603-eagle",)
    other = Order(recipe=one, values={"draft_model": "me/eagle"})
    assert more_models(resolve(other)) == ("me/eagle",)
    assert flags.value_of(render(resolve(other), [seat()]).head.argv, "speculative-draft-model-path") == "me/eagle"


@over(
    "place, is_offline",
    [
        ({"model_path": SNAPSHOT}, True),
        ({"model_path": SNAPSHOT, "lacking": ("org/draft",)}, False),
        ({}, False),
    ],
)
def test_the_hub_is_shut_off_only_where_all_of_them_are_there(place: dict[str, Any], is_offline: bool) -> None:
    told = order(secrets={"HF_TOKEN": "hf_x"}, environment={"HF_TOKEN": "$HF_TOKEN"}, **DRAFT)
    found = render(resolve(told), [seat(**place)]).head.container
    assert ("HF_HUB_OFFLINE" in found.environment, "HF_TOKEN" in found.environment) == (is_offline, not is_offline)
    assert [mount.source for mount in found.mounts] == [CACHE]


def test_each_node_by_itself() -> None:
    first, second = pair(model_path=SNAPSHOT)
    made = render(
        resolve(order({"tensor_parallel": "2"}, **DRAFT, max_nodes=2)), (first, replace(second, lacking=("org/draft",)))
    )
    assert ["HF_HUB_OFFLINE" in rank.container.environment for rank in made.ranks] == [True, False]


def test_the_cache_is_mounted_for_a_draft_beside_a_folder() -> None:
    folder = order(
        **{**DRAFT, "model": "/models/mine"},
    )
    assert [mount.source for mount in render(resolve(folder), [seat()]).head.container.mounts] == [
        "/models/mine",
        CACHE,
    ]
    bare = order(model="/models/mine", more_models=("org/tokens",))
    assert [mount.source for mount in render(resolve(bare), [seat()]).head.container.mounts] == ["/models/mine", CACHE]
    alone = order(model="/models/mine")
    assert [mount.source for mount in render(resolve(alone), [seat()]).head.container.mounts] == ["/models/mine"]


@over("named, path", [("/models/d", "/models/d"), ("~/models/d", "/home/me/models/d")])
def test_a_draft_that_is_named_by_its_place_is_there_in_the_container(named: str, path: str) -> None:
    made = render(resolve(order({"draft": named}, **DRAFT)), [seat(model_path=SNAPSHOT)]).head
    assert flags.value_of(made.argv, "speculative-draft-model-path") == path
    (mount,) = [one for one in made.container.mounts if one.target == path]
    assert (mount.source, mount.is_read_only) == (path, True)


def test_a_place_that_docker_takes_for_two_is_refused() -> None:
    with pytest.raises(CannotRender, match="colon"):
        render(resolve(order({"draft": "/models/d:rw"}, **DRAFT)), [seat()])


def test_nothing_is_said_of_a_recipe_without_any() -> None:
    assert more_models(resolve(Order(recipe=recipe()))) == ()
