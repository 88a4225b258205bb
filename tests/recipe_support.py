"""Recipes and the nodes they are launched on, for tests of launching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Order, Recipe
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.read.recipe_file import read
from sparktop.recipe.render import rank_argv

ROOT = Path(__file__).parent.parent
SHIPPED = tuple(sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml")))
COMMAND = "vllm serve {model} --port {port} --gpu-memory-utilization {gpu_memory_utilization}"


def ray_rank(index: int, argv: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The command of a rank's container in a pair under Ray; `argv` is the engine's."""
    nodes = [NodeContext(node=f"spark{at + 1}", index=at, fabric_ip=f"10.0.0.{at + 1}") for at in range(2)]
    return rank_argv.under_ray(argv, nodes[index], nodes, "6379")[0]


def shipped(name: str) -> Recipe:
    """One of those that come with sparktop."""
    path = ROOT / "recipes" / f"{name}.yaml"
    reading = read(path.read_text(encoding="utf-8"), str(path))
    assert reading.recipe is not None, reading.problems
    return reading.recipe


def recipe(**more: Any) -> Recipe:
    """A small one for vLLM."""
    said: dict[str, Any] = {
        "id": "small",
        "path": "small.yaml",
        "dialect": Dialect.SPARKRUN,
        "engine": EngineKind.VLLM,
        "model": "org/model",
        "container": "vllm/vllm-openai:v0.19.0",
        "command": COMMAND,
        "defaults": {"port": 8000, "gpu_memory_utilization": 0.7},
        "keeps_compiled": False,
    }
    return Recipe(**{**said, **more})


def order(values: dict[str, str] | None = None, secrets: dict[str, str] | None = None, **more: Any) -> Order:
    """An order of such a recipe; the other words are the recipe's fields."""
    return Order(recipe=recipe(**more), values=values or {}, secrets=secrets or {})


def seat(index: int = 0, **more: Any) -> NodeContext:
    """A node with its own names for the link: nothing of it is the other's."""
    said: dict[str, Any] = {
        "node": f"spark{index + 1}",
        "index": index,
        "home": "/home/me",
        "cache": "/home/me/.cache/huggingface",
        "fabric_ip": f"192.168.100.{10 + index}",
        "fabric_interface": f"enp1s0f{index}np{index}",
        "hcas": (f"rocep1s0f{index}", f"roceP2p1s0f{index}"),
        "gid_index": 3,
    }
    return NodeContext(**{**said, **more})


def pair(**more: Any) -> tuple[NodeContext, NodeContext]:
    """Two of them, cabled."""
    return seat(0, **more), seat(1, **more)


def seats_for(one: Recipe) -> tuple[NodeContext, ...]:
    """As many as the recipe wants at the least."""
    return tuple(seat(index) for index in range(one.min_nodes))
