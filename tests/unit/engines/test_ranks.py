"""Which engines are ranks of one server, and in which order they stop and start."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.restart_support import ended, head, two, worker
from tests.table import over

from sparktop.cmdline.engine_command import with_argv
from sparktop.engines.ranks import find, missing, ranks, start_order, stop_order, teams
from sparktop.model.engine import EngineKind, EngineState


def names(team: tuple) -> list[tuple[str, str, bool]]:
    return [(rank.node.name, rank.engine.name, rank.is_head) for rank in team]


def test_both_ranks_are_found_from_either_head_first() -> None:
    expected = [("spark1", "vllm-head", True), ("spark2", "vllm-worker", False)]
    assert names(ranks("vllm-head", "spark1", two())) == expected
    assert names(ranks("vllm-worker", "spark2", two())) == expected


def test_head_is_stopped_first_and_started_last() -> None:
    team = ranks("vllm-head", "spark1", two())
    assert [rank.is_head for rank in stop_order(team)] == [True, False]
    assert [rank.is_head for rank in start_order(team)] == [False, True]
    assert missing(team) == 0


def test_with_ray_the_head_is_started_first() -> None:
    argv = (*made.ARGV, "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray")
    server = made.engine("ray-head", argv=argv)
    joined = made.container("ray-worker", argv=("bash", "-c", "ray start --block --address=10.0.0.1:6379"))
    other = made.engine(
        "ray-worker", argv=("ray::RayWorkerWrapper",), container=joined, endpoint=None, metrics=None, model=None
    )
    fleet = made.picture(made.node("spark1", engines=(server,)), made.node("spark2", engines=(other,)))
    team = ranks("ray-head", "spark1", fleet)
    assert [rank.engine.name for rank in start_order(team)] == ["ray-head", "ray-worker"]


@over("image, expected", [("vllm-node:latest", "0.21.0"), ("vllm-node:old", None)])
def test_a_worker_has_the_version_of_its_head_by_their_image(image: str, expected: str | None) -> None:
    """It serves no HTTP, and a pair's two memory targets would differ by CUDA graphs that their share includes."""
    first = replace(head(), version="0.21.0", container=made.container("vllm-head", image="vllm-node:latest"))
    second = replace(worker(), version=None, container=made.container("vllm-worker", image=image))
    fleet = made.picture(made.node("spark1", engines=(first,)), made.node("spark2", engines=(second,)))
    assert [rank.engine.version for rank in ranks("vllm-worker", "spark2", fleet)] == ["0.21.0", expected]


def test_sglang_ranks_meet_at_one_address() -> None:
    def rank(name: str, number: str, address: str, **more: object):
        argv = ("python3", "-m", "sglang.launch_server", "--model-path", "M", "--tp", "2", "--nnodes", "2")
        argv = (*argv, "--node-rank", number, "--dist-init-addr", address)
        return made.engine(name, kind=EngineKind.SGLANG, argv=argv, model="M", **more)

    one = rank("a", "0", "10.0.0.1:50000")
    its = rank("b", "1", "10.0.0.1:50000", endpoint=None, metrics=None)
    others = rank("c", "1", "10.0.0.9:50000", endpoint=None, metrics=None)
    fleet = made.picture(made.node("spark1", engines=(one,)), made.node("spark2", engines=(others, its)))
    assert names(ranks("a", "spark1", fleet)) == [("spark1", "a", True), ("spark2", "b", False)]


@over(
    "other",
    [
        made.engine("alone"),
        replace(worker(), model="another/model"),
        replace(worker(), kind=EngineKind.SGLANG),
        replace(with_argv(worker(), (*worker().argv, "--master-addr", "10.9.9.9")), model="another"),
    ],
)
def test_other_engines_are_no_ranks_of_it(other) -> None:
    fleet = made.picture(made.node("spark1", engines=(head(),)), made.node("spark2", engines=(other,)))
    team = ranks("vllm-head", "spark1", fleet)
    assert names(team) == [("spark1", "vllm-head", True)]
    assert missing(team) == 1


def test_two_engines_of_one_node_each_are_two() -> None:
    fleet = made.picture()
    assert names(ranks("vllm-qwen36", "spark1", fleet)) == [("spark1", "vllm-qwen36", True)]
    assert missing(ranks("vllm-qwen36", "spark1", fleet)) == 0


def test_engine_over_two_nodes_of_which_one_is_watched_lacks_a_rank() -> None:
    fleet = made.picture(made.node("spark1", engines=(head(),)))
    assert missing(ranks("vllm-head", "spark1", fleet)) == 1


def test_machine_with_two_gpus_runs_it_alone() -> None:
    argv = (*made.ARGV, "--tensor-parallel-size", "2")
    here = made.node("spark1", engines=(made.engine(argv=argv),))
    assert here.gpu is not None
    here = replace(here, gpu=replace(here.gpu, gpus=here.gpu.gpus * 2))
    team = ranks("vllm-qwen36", "spark1", made.picture(here))
    assert len(team) == 1
    assert missing(team) == 0


def test_engine_that_ended_is_found_after_the_one_that_lives() -> None:
    old = replace(ended(made.engine("same")), key="old")
    fleet = made.picture(made.node("spark1", engines=(old, made.engine("same"))))
    found = find("same", "", fleet)
    assert found is not None
    assert found.engine.key != "old"
    assert find("nothing", "", fleet) is None
    assert ranks("nothing", "spark1", fleet) == ()


def test_ended_engine_of_one_node_has_no_other_rank() -> None:
    """It has no endpoint any more, and so looks like a worker by that alone."""
    fleet = made.picture(made.node("spark1", engines=(ended(made.engine()),)), made.node("spark2", engines=(worker(),)))
    assert names(ranks("vllm-qwen36", "spark1", fleet)) == [("spark1", "vllm-qwen36", True)]


def test_what_loads_alone_on_each_node_is_no_team() -> None:
    """It has no endpoint yet, and so looks like a worker by that alone."""
    fleet = made.picture(
        *(
            made.node(name, engines=(made.engine(state=EngineState.LOADING, endpoint=None, metrics=None),))
            for name in ("spark1", "spark2")
        )
    )
    assert [len(team) for team in teams(fleet)] == [1, 1]
