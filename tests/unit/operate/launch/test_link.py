"""The link between two Sparks as it is found on them: names, addresses and GIDs differ, and nothing is assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import idle_node, picture
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric as network
from tests.unit.diagnose.rules.pair_support import ring

from sparktop.model.fleet import FleetState
from sparktop.model.survey import Answer, Survey
from sparktop.model.telemetry import Interface, NetworkReading, RdmaPort
from sparktop.operate.launch.inputs.link import Fabric, fabrics, questions, reached_question

NODES = ("spark1", "spark2")
NOTHING = Survey()


def pair(one: NetworkReading | None, other: NetworkReading | None) -> FleetState:
    return picture(idle_node("spark1", network=one), idle_node("spark2", network=other))


def renamed(reading: NetworkReading, names: dict[str, str], devices: dict[str, str]) -> NetworkReading:
    """The same cable in another port."""
    return replace(
        reading,
        interfaces=tuple(replace(one, name=names.get(one.name, one.name)) for one in reading.interfaces),
        rdma_ports=tuple(
            replace(
                one,
                device=devices.get(one.device, one.device),
                interface=names.get(str(one.interface), one.interface),
            )
            for one in reading.rdma_ports
        ),
    )


def without_gids(reading: NetworkReading) -> NetworkReading:
    return replace(reading, rdma_ports=tuple(replace(one, roce_v2_gids=()) for one in reading.rdma_ports))


def both(state: FleetState, survey: Survey = NOTHING) -> tuple[Fabric, Fabric]:
    found = fabrics(NODES, state, survey)
    return found["spark1"], found["spark2"]


def test_a_pair_is_joined_by_its_cable() -> None:
    one, other = both(pair(network(1), network(2)))
    assert (one.ip, other.ip) == ("10.0.0.1", "10.0.0.2")
    assert one.interface == other.interface == "enp1s0f0np0"
    assert one.hcas == other.hcas == ("rocep1s0f0", "roceP2p1s0f0")
    assert (one.gid_index, one.mtu, one.rate_gbps, one.own.speed_mbps, one.own.is_up) == (3, 9000, 200.0, 200_000, True)
    assert one.problems == other.problems == ()
    assert questions(NODES, pair(network(1), network(2))) == ()


def test_four_nodes_meet_on_the_switch_or_beside_their_ring() -> None:
    names = ("spark1", "spark2", "spark3", "spark4")
    switch = fabrics(names, picture(*(idle_node(name, network=network(int(name[-1]))) for name in names)), NOTHING)
    assert [end.ip for end in switch.values()] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert {(end.is_ring, len(end.hcas), len(end.neighbours)) for end in switch.values()} == {(False, 2, 3)}
    for count, head_reaches in ((3, ("spark2", "spark3")), (4, ("spark2", "spark4"))):
        views = [idle_node(name, network=ring(int(name[-1]), count)) for name in names[:count]]
        found = fabrics(names[:count], picture(*views), NOTHING)
        assert [end.interface for end in found.values()] == ["enP7s7"] * count
        assert {(end.is_ring, end.hcas) for end in found.values()} == {(True, ("rocep1s0f0", "rocep1s0f1"))}
        assert found["spark1"].neighbours == head_reaches


def test_the_nodes_may_have_the_cable_in_different_ports() -> None:
    moved = renamed(
        network(2, gid=5),
        {"enp1s0f0np0": "enp1s0f1np1", "enp1s0f1np1": "enp1s0f0np0", "enP2p1s0f0np0": "enP2p1s0f1np1"},
        {"rocep1s0f0": "rocep1s0f1", "rocep1s0f1": "rocep1s0f0", "roceP2p1s0f0": "roceP2p1s0f1"},
    )
    one, other = both(pair(network(1), moved))
    assert (one.interface, other.interface) == ("enp1s0f0np0", "enp1s0f1np1")
    assert other.hcas == ("rocep1s0f1", "roceP2p1s0f1")
    assert (one.gid_index, other.gid_index) == (3, 5)


def test_twins_in_one_network_take_the_first_of_each_port() -> None:
    """Link-local addresses: all four lie in one network."""

    def local(number: int) -> NetworkReading:
        reading = network(number)
        given = {"enp1s0f0np0": f"169.254.7.{number}/16", "enP2p1s0f0np0": f"169.254.8.{number}/16"}
        return replace(
            reading,
            interfaces=tuple(
                replace(one, addresses=(given[one.name],)) if one.name in given else one for one in reading.interfaces
            ),
        )

    one, other = both(pair(local(1), local(2)))
    assert (one.ip, other.ip) == ("169.254.7.1", "169.254.7.2")
    assert len(one.hcas) == len(other.hcas) == 2


def test_without_rdma_the_fastest_wired_network_is_taken() -> None:
    def plain(number: int) -> NetworkReading:
        return NetworkReading(
            boot_s=1.0,
            interfaces=(
                Interface(name="wlP9s9", is_up=True, mtu=1500, addresses=(f"10.9.0.{number}/24",)),
                Interface(name="enP7s7", is_up=True, mtu=1500, speed_mbps=10_000, addresses=(f"10.8.0.{number}/24",)),
            ),
        )

    one, other = both(pair(plain(1), plain(2)))
    assert (one.interface, one.ip, other.ip) == ("enP7s7", "10.8.0.1", "10.8.0.2")
    assert one.hcas == ()
    assert ["spark1" in one and "RDMA" in one for one in one.problems] == [True]
    assert one.gid_index is None
    assert one.gid_reason


def test_a_pulled_cable_is_told() -> None:
    one, _ = both(pair(network(1, up=False), network(2, up=False)))
    assert one.interface == "enP7s7"
    assert one.hcas == ()
    assert "rocep1s0f0 DOWN" in one.problems[0]


def test_a_twin_without_an_address_is_told_and_left_out() -> None:
    bare = network(1)
    bare = replace(
        bare,
        interfaces=tuple(replace(i, addresses=()) if i.name == "enP2p1s0f0np0" else i for i in bare.interfaces),
    )
    one, other = both(pair(bare, network(2)))
    assert one.hcas == ("rocep1s0f0",)
    assert one.idle_devices == ("roceP2p1s0f0 is up, but enP2p1s0f0np0 has no address, so no way to spark2",)
    assert other.hcas == ("rocep1s0f0",)


@over("text", ["10.0.0.1", "nonsense", "10.0.0.1/24/7", "::1/64"])
def test_addresses_that_are_none_are_passed_over(text: str) -> None:
    odd = replace(
        network(1),
        interfaces=(Interface(name="a", is_up=True, addresses=(text,)), *network(1).interfaces),
    )
    assert both(pair(odd, network(2)))[0].ip == "10.0.0.1"


def test_an_address_that_both_have_joins_nothing() -> None:
    one, _ = both(pair(network(1), network(1)))
    assert one.ip == ""
    assert "no IPv4 addresses" in one.problems[0]
    assert "rocep1s0f0" in one.problems[0]


def test_a_port_without_an_entry_for_its_address_has_no_index() -> None:
    one, other = both(pair(without_gids(network(1)), network(2, gid=7)))
    assert one.gid_reason == "rocep1s0f0 has no RoCE v2 entry for 10.0.0.1"
    assert (one.gid_index, other.gid_index) == (None, 7)


def test_indices_that_differ_on_one_node_are_left_to_nccl() -> None:
    first, second, third = network(1).rdma_ports
    apart = replace(network(1), rdma_ports=(first, second, replace(third, roce_v2_gids=((5, "10.0.1.1"),))))
    one, other = both(pair(apart, network(2)))
    assert one.gid_index is None
    assert one.gid_reason == "the indices differ: 3 on rocep1s0f0, 5 on roceP2p1s0f0"
    assert other.gid_index == 3


def test_where_no_network_is_common_the_operators_own_connection_tells() -> None:
    lonely = NetworkReading(boot_s=1.0, interfaces=(Interface(name="eth0", is_up=True, addresses=("10.5.0.7/24",)),))
    state = pair(lonely, lonely)
    assert questions(NODES, state) == tuple(map(reached_question, NODES))
    answers: dict[Any, Answer] = {
        reached_question("spark1"): Answer(value="127.0.0.1 51000 127.0.0.2 2222\n"),
        reached_question("spark2"): Answer(value="127.0.0.1 51001 127.0.0.3 2222\n"),
    }
    one, other = both(state, Survey(answers=answers))
    assert (one.ip, one.interface, other.ip, other.interface) == ("127.0.0.2", "lo", "127.0.0.3", "lo")
    assert not one.is_same_network
    for said in ("", "127.0.0.1 51000 ;rm 22", "127.0.0.1 51000 127.0.0.3 2222"):
        answers[reached_question("spark1")] = Answer(value=said)
        assert both(state, Survey(answers=answers))[0].ip == ""


def test_one_node_has_no_link_and_an_unread_network_says_so() -> None:
    assert fabrics(("spark1",), pair(network(1), network(2)), NOTHING) == {}
    assert questions(("spark1",), pair(network(1), network(2))) == ()
    one, _ = both(pair(network(1), None))
    assert one.ip == ""
    assert one.problems == ("the network of spark2 has not been read yet",)


def test_a_device_with_a_name_that_is_none_reaches_no_command() -> None:
    odd = RdmaPort(device="../../etc;x", interface="enp1s0f0np0", state="ACTIVE", rate_gbps=200.0)
    one, _ = both(pair(replace(network(1), rdma_ports=(odd,)), network(2)))
    assert one.hcas == ()
