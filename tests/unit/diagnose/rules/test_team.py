"""One engine over four Sparks on a switch: each thing that is wrong is told once, of the ranks that it is true of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import engine, facts, node
from tests.table import over
from tests.unit.diagnose.rules.pair_support import (
    ENV,
    SERVE,
    bare,
    box,
    dead,
    fabric,
    found,
    picture,
    rank,
    spark,
)

from sparktop.engines.pair import over_nodes
from sparktop.engines.ranks import ranks, teams
from sparktop.model.engine import Container, EngineState
from sparktop.model.fleet import FleetState

FOUR = tuple("4" if word == "2" else word for word in SERVE)
ALL = ("spark1", "spark2", "spark3", "spark4")


def of_four(number: int, **more: Any) -> Container:
    words = (*FOUR, "--node-rank", str(number), *(["--headless"] if number else []))
    return box(number, **{"argv": words, **more})


def four(*, engines: dict[int, Any] | None = None, **more: Any) -> FleetState:
    """All ranks run; `engines` replace those of some, and `more` is true of spark3."""
    own = {number: rank(number, held=of_four(number)) for number in range(4)} | (engines or {})
    return picture(*(spark(n + 1, engines=(own[n],), **(more if n == 2 else {})) for n in range(4)))


def ended(number: int, ago_s: float = 30.0) -> Any:
    return dead(number, held=of_four(number), ago_s=ago_s)


def held(number: int, **more: Any) -> dict[int, Any]:
    return {number: rank(number, held=of_four(number, **more))}


BARE = {number: held(number, environment=[one for one in ENV if "HCA" not in one])[number] for number in range(4)}


@over(
    "fleet, told",
    [
        (four(), {}),
        (four(engines={2: ended(2)}), {"rank-died": ALL}),
        (four(engines={0: ended(0), 2: ended(2, 90.0)}), {"rank-died": ALL}),
        (four(engines=held(2, image_id="sha256:" + "e" * 64)), {"image-differs": ("spark1", "spark3")}),
        (four(engines=held(2, environment=(*ENV, "VLLM_X=1"))), {"environment-differs": ("spark1", "spark3")}),
        (four(engines=held(2, network_mode="bridge")), {"bridge-network": ("spark3",)}),
        (four(engines=BARE), {"hca-unset": ALL}),
        (four(network=fabric(3, up=False)), {"link-down": ALL}),
        (four(network=fabric(3, mtu=1500)), {"mtu-differs": ("spark1", "spark3")}),
        (four(network=fabric(3, rate=100.0)), {"link-slow": ("spark3",)}),
        (four(facts=facts("spark3", kernel="6.11.0-1")), {"kernel-differs": ("spark1", "spark3")}),
        (
            picture(*(bare(n, available_gib=80.0 if n == 3 else 116.0) for n in range(1, 5))),
            {"memory-apart": ("spark1", "spark3")},
        ),
        (picture(bare(1), bare(2, available_gib=80.0, network=None), bare(3)), {}),
    ],
)
def test_what_is_wrong_is_told_once_of_its_ranks(fleet: FleetState, told: dict[str, tuple[str, ...]]) -> None:
    assert {rule: finding.nodes for rule, finding in found(fleet).items() if rule != "hca-wrong"} == told


def test_the_first_to_die_is_named_and_who_waits() -> None:
    one = found(four(engines={0: ended(0), 2: ended(2, 90.0)}))["rank-died"]
    assert one.title == "big-rank2 on spark3 exited; spark2 and spark4 wait for it"
    assert found(four(engines={1: ended(1)}))["rank-died"].title.endswith("; spark1, spark3 and spark4 wait for it")


def test_of_many_who_wait_the_number_is_told() -> None:
    words = tuple("8" if word == "2" else word for word in SERVE)
    eight = [rank(n, held=box(n, argv=(*words, "--node-rank", str(n), *["--headless"][:n]))) for n in range(8)]
    gone = dead(5, held=eight[5].container)
    fleet = picture(*(spark(n + 1, engines=(gone if n == 5 else eight[n],)) for n in range(8)))
    assert found(fleet)["rank-died"].title == "big-rank5 on spark6 exited; its other 7 ranks wait for it"


def test_tcp_is_told_where_no_rank_of_four_uses_rdma() -> None:
    silent = picture(*(spark(n + 1, engines=(rank(n, held=of_four(n)),), rdma_bytes_per_s=0.0) for n in range(4)))
    assert found(silent)["nccl-on-tcp"].nodes == ALL


def test_an_engine_that_serves_over_four_is_one_with_ready_workers() -> None:
    (team,) = over_nodes(four())
    assert [one.node.name for one in team.ranks] == [*ALL]
    assert (team.is_up, team.nodes, len(team.pairs)) == (True, ALL, 3)
    assert [pair.nodes for pair in team.pairs] == [("spark1", name) for name in ALL[1:]]


@over("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_two_servers_of_one_model_keep_their_own_ranks(order: tuple[int, ...]) -> None:
    """Neither has labels: they differ in the address at which they meet."""
    engines = []
    for server, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        argv = tuple(f"10.0.0.{1 + 2 * server}" if word == "10.0.0.1" else word for word in SERVE)
        made = box(number, argv=(*argv, "--node-rank", str(number), *(["--headless"] if number else [])))
        engines.append(
            rank(number, held=replace(made, name=f"s{server}r{number}", container_id=f"{server}{number}" * 32))
        )
        engines[-1] = replace(engines[-1], name=f"s{server}r{number}", key=f"s{server}r{number}")
    fleet = picture(*(node(f"spark{at}", engines=(engines[at],)) for at in order))
    found_teams = {tuple(one.engine.name for one in team) for team in teams(fleet)}
    assert found_teams == {("s0r0", "s0r1"), ("s1r0", "s1r1")}
    assert [one.engine.name for one in ranks("s1r1", "spark3", fleet)] == ["s1r0", "s1r1"]


def test_an_old_rank_that_ended_elsewhere_is_none_of_a_running_engine() -> None:
    old = replace(ended(1), name="old", key="old")
    fleet = four()
    first = node("spark0", engines=(old, engine("other")))
    (team,) = over_nodes(replace(fleet, nodes=(first, *fleet.nodes)))
    assert [one.node.name for one in team.ranks] == [*ALL]
    assert all(one.engine.state is not EngineState.EXITED for one in team.ranks)
