"""The further rank of a launch over Ray: a container that only joins, before its head puts one there and afterwards."""

from __future__ import annotations

from dataclasses import replace

from tests.recipe_support import ray_rank
from tests.unit.observe.test_discovery import BOX, CID, NOW, docker, find, process, table

from sparktop.engines import labels
from sparktop.model.engine import EngineKind, EngineState
from sparktop.observe.engines.discovery import discover

JOINS = replace(
    BOX,
    name="vllm-pair",
    argv=ray_rank(1),
    image="registry.local/engine:1",
    labels={labels.RECIPE: "minimax", labels.RANK: "1"},
)
RAYLET = process(10, 1, "/usr/bin/python3", "/usr/bin/ray", "start", "--address=10.0.0.1:6379", "--block")
ACTOR = process(12, 11, "ray::RayWorkerWrapper.execute_method", comm="ray::RayWorkerW", start=102.0)


def test_a_container_that_waits_for_its_head_is_a_rank() -> None:
    (waits,) = find(table(RAYLET), None, docker(JOINS))
    assert (waits.key, waits.kind, waits.name) == (CID[:12], EngineKind.VLLM, "vllm-pair")
    assert (waits.state, waits.pids, waits.endpoint) == (EngineState.STARTING, (), None)
    (there,) = find(table(RAYLET, ACTOR), None, docker(JOINS), (waits,))
    assert (there.key, there.pids) == (waits.key, (12,))


def test_somebody_else_s_ray_is_no_engine() -> None:
    """A cluster that stands there without a server (run_cluster.sh) serves nothing, and is not about to."""
    assert find(table(RAYLET), None, docker(replace(JOINS, labels={}))) == ()


def test_a_rank_that_ended_is_not_taken_for_one_that_waits_until_its_container_starts_anew() -> None:
    (there,) = find(table(RAYLET, ACTOR), None, docker(JOINS))
    (ended,) = find(table(RAYLET), None, docker(JOINS), (there,))
    assert (ended.state, ended.exit_detail) == (
        EngineState.EXITED,
        "its process ended and the container still runs: see its log, or start it again there",
    )
    (still,) = find(table(RAYLET), None, docker(JOINS), (ended,))
    assert still.state is EngineState.EXITED
    (anew,) = find(table(RAYLET), None, docker(replace(JOINS, started_wall_s=NOW - 1)), (still,))
    assert anew.state is EngineState.STARTING


def test_one_that_was_removed_is_told_as_that_and_not_for_a_day() -> None:
    """A way back stops and removes what it made: nothing of it runs on, and nobody is woken by it hours later."""
    (there,) = find(table(RAYLET, ACTOR), None, docker(JOINS))
    (ended,) = find(table(RAYLET), None, docker(JOINS), (there,))
    (gone,) = find(table(), None, docker(), (ended,))
    assert gone.container is not None
    assert (gone.state, gone.exit_detail, gone.container.is_gone) == (
        EngineState.EXITED,
        "its container was removed",
        True,
    )
    assert discover(table(), None, docker(), (gone,), node_wall_s=NOW + 300) == (gone,)
    assert discover(table(), None, docker(), (gone,), node_wall_s=NOW + 601) == ()


def test_one_that_was_removed_after_it_ended_keeps_its_exit_code() -> None:
    over = replace(JOINS, status="exited", exit_code=1, finished_wall_s=NOW - 5)
    (ended,) = find(table(), None, docker(over))
    (gone,) = find(table(), None, docker(), (ended,))
    assert "exit code 1" in gone.exit_detail
    assert gone.exit_detail.endswith("; its container was removed")
    assert find(table(), None, docker(), (gone,)) == (gone,)


def test_one_that_has_ended_is_known_for_what_it_is_whatever_its_image_is_called() -> None:
    over = replace(JOINS, status="exited", exit_code=1, finished_wall_s=NOW - 5)
    (ended,) = find(table(), None, docker(over))
    assert (ended.kind, ended.state, ended.name) == (EngineKind.VLLM, EngineState.EXITED, "vllm-pair")
