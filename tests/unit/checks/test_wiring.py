"""What is cabled to what, by what each port hears: a pair, rings of any length, a switch, and neither."""

from __future__ import annotations

import random

import pytest
from tests.table import over

from sparktop.checks.fabric import End, Heard, Shape, judge_wiring, wiring_of
from sparktop.model.state import State

Link = tuple[End, End]


def interface(port: int, half: int) -> str:
    return f"en{'P2' if half else ''}p1s0f{port}np{port}"


def heard(*links: Link, nodes: tuple[str, ...], halves: tuple[int, ...] = (0, 1)) -> dict[str, dict[str, Heard] | None]:
    """What is heard where these ports are joined; a machine is called NODE-host."""
    found: dict[str, dict[str, Heard] | None] = {node: {} for node in nodes}
    for near, far in (pair for one in links for pair in (one, one[::-1])):
        ends = found.get(near[0])
        if ends is None:
            continue
        for half in halves:
            is_node = far[0] in nodes
            port = interface(far[1], half) if is_node else f"qsfp56-dd-{far[1]}-1"
            ends[interface(near[1], half)] = Heard(machine=f"{far[0]}-host" if is_node else far[0], port=port)
    return found


def hosts(nodes: tuple[str, ...]) -> dict[str, str]:
    return {node: f"{node}-host" for node in nodes}


def ring(count: int) -> tuple[tuple[str, ...], list[Link]]:
    nodes = tuple(f"s{number}" for number in range(count))
    return nodes, [((nodes[number], 0), (nodes[(number + 1) % count], 1)) for number in range(count)]


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize("halves", [(0,), (1,), (0, 1)])
def test_a_ring_is_told_in_its_order_whoever_is_named_first(count: int, halves: tuple[int, ...]) -> None:
    nodes, links = ring(count)
    shuffled = list(nodes)
    random.Random(count).shuffle(shuffled)
    found = wiring_of(heard(*links, nodes=tuple(shuffled), halves=halves), hosts(nodes))
    assert found.shape is Shape.RING
    assert judge_wiring(found).state is State.PASSED
    assert found.cables[0][0] == (shuffled[0], 0)
    assert all(near[1] == 0 and far[1] == 1 for near, far in found.cables)
    assert [far[0] for _, far in found.cables] == [near[0] for near, _ in found.cables[1:]] + [shuffled[0]]


def test_a_ring_whose_equal_ports_are_joined_is_wrong() -> None:
    nodes, links = ring(3)
    links[0] = (("s0", 0), ("s1", 0))
    links[1] = (("s1", 1), ("s2", 1))
    links[2] = (("s2", 0), ("s0", 1))
    judgement = judge_wiring(wiring_of(heard(*links, nodes=nodes), hosts(nodes)))
    assert (judgement.state, judgement.case) == (State.FAILED, "same-port")
    assert {judgement.figures["first"], judgement.figures["second"]} == {"s0", "s1"}


def test_a_switch_is_one_machine_that_is_none_of_ours() -> None:
    nodes = ("s0", "s1", "s2", "s3")
    links: list[Link] = [((node, 0), ("crs804", number)) for number, node in enumerate(nodes)]
    found = wiring_of(heard(*links, nodes=nodes), hosts(nodes))
    assert (found.shape, found.cables) == (Shape.SWITCH, ())
    assert found.switched == tuple(("crs804", (node, 0)) for node in nodes)


def test_a_pair_is_one_with_two_cables_too() -> None:
    nodes = ("s0", "s1")
    found = wiring_of(heard((("s0", 0), ("s1", 0)), (("s0", 1), ("s1", 1)), nodes=nodes), hosts(nodes))
    assert (found.shape, len(found.cables)) == (Shape.PAIR, 2)


@over(
    "links",
    [
        ring(3)[1][:2],  # a chain
        [*ring(3)[1][:2], (("s2", 0), ("sw", 1))],
        [((node, 0), (f"switch{node}", 1)) for node in ("s0", "s1", "s2")],
        [(("s0", 0), ("s1", 1)), (("s0", 1), ("s1", 0)), (("s2", 0), ("s0", 0))],
    ],
)
def test_what_is_neither_is_a_warning(links: list[Link]) -> None:
    nodes = ("s0", "s1", "s2")
    found = wiring_of(heard(*links, nodes=nodes), hosts(nodes))
    assert found.shape is Shape.OTHER
    assert judge_wiring(found).state is State.WARNING


def test_who_hears_nobody_is_named() -> None:
    nodes, links = ring(3)
    one = heard(*links, nodes=nodes)
    alone = {**heard(links[0], nodes=nodes), "s2": None}
    found = wiring_of(alone, hosts(nodes))
    assert (found.shape, found.silent) == (Shape.UNKNOWN, ("s2",))
    assert wiring_of({**one, "s2": None}, hosts(nodes)).shape is Shape.RING  # its neighbours hear it
    assert "s2" in judge_wiring(found).unknown


def test_other_interfaces_and_a_machine_that_hears_itself_say_nothing() -> None:
    ends = {
        "enP7s7": Heard(machine="office-switch", port="7"),
        interface(0, 0): Heard(machine="s0-host", port=interface(1, 0)),
    }
    found = wiring_of({"s0": ends, "s1": {}}, hosts(("s0", "s1")))
    assert (found.shape, found.cables, found.switched) == (Shape.UNKNOWN, (), ())
