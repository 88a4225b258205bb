"""What was measured here and what the operator sets win over the files, and the budget says whose a figure is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests import recipe_budget_support as made
from tests.recipe_budget_support import GIB, order, pair, room
from tests.recipe_support import order as rendered_order
from tests.table import over

from sparktop.cmdline.engine_command import of_container
from sparktop.engines.memory_taken import is_of
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import Taken
from sparktop.model.prospect import Budget, Fit, SliceKind
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.parameters import resolve
from sparktop.recipe.weigh.budget import budget

IMAGE = made.QWEN_RECIPE.container
ARGV = (
    "vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--port", "8000", "--gpu-memory-utilization", "0.70",
    "--max-model-len", "32768", "--kv-cache-dtype", "fp8",
)  # fmt: skip
COMMAND = of_container(ARGV, image=IMAGE)
WALL_S = time.mktime((2026, 11, 14, 13, 20, 0, 0, 0, -1))
TAKEN = Taken(
    wall_s=WALL_S,
    kind="vllm",
    model="Qwen/Qwen3.6-35B-A3B-FP8",
    image=IMAGE,
    version="0.21.0",
    flags=("kv-cache-dtype=fp8",),
    share=0.7,
    weights_bytes=36 * GIB,
    context_tokens=32768,
    context_bytes=GIB,
    beyond_bytes=2 * GIB,
)
WHEN = "measured here, Nov 14 13:20, at a share of 0.70"


def weighed(taken: Taken | None = TAKEN, *, argv: tuple[str, ...] = ARGV, **values: str) -> Budget:
    """The budget of Qwen3.6 where that was measured, with what the operator sets."""
    asked = order(made.QWEN_RECIPE, **{name.replace("need_", "need."): value for name, value in values.items()})
    rooms = [replace(room(), taken=(taken,) if taken else ())]
    return budget(resolve(asked), rooms, made.QWEN, command=of_container(argv, image=IMAGE))


def size_gib(found: Budget, kind: SliceKind) -> float:
    return next(one.size_bytes for one in found.nodes[0].after if one.kind is kind) / GIB


def test_what_was_measured_wins_over_the_files() -> None:
    found = weighed()
    assert found.figures == (
        f"weights of 36.0 GiB: {WHEN}",
        f"cache of 1.0 GiB for 32768 tokens: {WHEN}",
        f"2.0 GiB outside its share: {WHEN}",
    )
    assert [size_gib(found, kind) for kind in (SliceKind.WEIGHTS, SliceKind.CACHE, SliceKind.OVERHEAD)] == [36, 1, 2]
    assert found.unknowns == ()
    assert weighed(None).figures == ()


def test_what_the_operator_sets_wins_over_all() -> None:
    found = weighed(need_weights_gib="50", need_kv_bytes_per_token="65536", need_spike_gib="5")
    assert found.figures == (
        "weights of 50.0 GiB: as you set it",
        "cache of 65,536 bytes per token, as you set it",
        "5.0 GiB outside its share: as you set it",
    )
    assert [size_gib(found, kind) for kind in (SliceKind.WEIGHTS, SliceKind.CACHE, SliceKind.OVERHEAD)] == [50, 2, 5]
    assert weighed(need_weights_gib="200").fit is Fit.NO


@over(
    "figures, told",
    [
        ({"weights_bytes": None}, ("cache", "2.0 GiB")),
        ({"beyond_bytes": None}, ("weights", "cache")),
        ({"context_bytes": None, "context_tokens": None}, ("weights", "2.0 GiB")),
        ({"context_tokens": 65536}, ("weights", "2.0 GiB")),
    ],
)
def test_only_what_was_measured_wins(figures: dict[str, Any], told: tuple[str, ...]) -> None:
    found = weighed(replace(TAKEN, **figures)).figures
    assert len(found) == len(told)
    assert all(text.startswith(begin) for text, begin in zip(found, told, strict=True))


@over(
    "changed, image, counts",
    [
        ({}, IMAGE, True),
        ({"model": "org/other"}, IMAGE, False),
        ({"kind": "sglang"}, IMAGE, False),
        ({"flags": ()}, IMAGE, False),
        ({"flags": ("kv-cache-dtype=fp8", "max-num-seqs=9")}, IMAGE, False),
        ({"version": "0.22.0"}, IMAGE, False),
        ({"version": "0.21.0+cu130"}, IMAGE, True),
        ({"share": 0.5, "context_tokens": 1}, IMAGE, True),
        ({"image": "mine:1", "version": ""}, "mine:1", True),
        ({"image": "mine:1", "version": "0.21.0"}, "mine:1", True),
        ({"image": "mine:1", "version": "0.21.0"}, "mine:2", False),
        ({"image": "", "version": ""}, "", False),
    ],
)
def test_it_holds_for_the_same_model_build_and_flags(changed: dict[str, Any], image: str, counts: bool) -> None:
    assert COMMAND is not None
    assert is_of(replace(TAKEN, **changed), COMMAND, image) is counts


def test_another_setting_goes_without() -> None:
    assert weighed(argv=(*ARGV, "--enforce-eager")).figures == ()


def test_a_lever_that_changes_what_was_measured_goes_without() -> None:
    found = weighed(replace(TAKEN, weights_bytes=110 * GIB))
    assert found.fit is Fit.NO
    assert not any("kv_cache_dtype" in one.text for one in found.levers)


def test_a_spike_that_the_recipe_tells_of_stands() -> None:
    asked = order(made.GPT_OSS_RECIPE)
    argv = ("vllm", "serve", "openai/gpt-oss-120b")
    taken = replace(TAKEN, model="openai/gpt-oss-120b", flags=(), weights_bytes=None, context_bytes=None)
    rooms = [replace(room(), taken=(taken,))]
    found = budget(resolve(asked), rooms, made.GPT_OSS, command=of_container(argv, image=IMAGE))
    assert size_gib(found, SliceKind.OVERHEAD) > 40


def test_of_two_nodes_the_larger_figure_counts() -> None:
    asked = order(made.MINIMAX_RECIPE)
    argv = ("vllm", "serve", "MiniMaxAI/MiniMax-M2.7", "--tensor-parallel-size", "2")
    both = [
        replace(TAKEN, image="vllm-node:latest", version="", model="MiniMaxAI/MiniMax-M2.7", weights_bytes=size * GIB,
                flags=("tensor-parallel-size=2",), context_bytes=None, beyond_bytes=None)
        for size in (60, 62)
    ]  # fmt: skip
    rooms = [replace(one, taken=(taken,)) for one, taken in zip(pair(), both, strict=True)]
    found = budget(resolve(asked), rooms, made.minimax(130_600_000_000), command=of_container(argv))
    assert found.figures == (f"weights of 62.0 GiB: {WHEN}",)


@over("value", ["much", "-1", "", "1e9", "nan"])
def test_a_need_is_a_number(value: str) -> None:
    with pytest.raises(CannotRender, match=r"number|dash"):
        resolve(rendered_order({"need.weights_gib": value}, engine=EngineKind.VLLM)).checked()


def test_a_need_is_no_flag_and_an_unknown_one_is_refused() -> None:
    assert resolve(rendered_order({"need.weights_gib": "40"})).checked()["need.weights_gib"] == "40"
    with pytest.raises(CannotRender, match=r"did you mean need\.weights_gib"):
        resolve(rendered_order({"need.weight_gib": "40"})).checked()
