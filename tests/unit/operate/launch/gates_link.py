"""What spoils the gates of the link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import facts
from tests.unit.diagnose.rules.pair_support import fabric as network
from tests.unit.operate.launch.gates_support import BOTH, FAILED, PASSED, UNKNOWN, WARNED, World, case

from sparktop.model.recipe import Requirement
from sparktop.model.survey import Answer
from sparktop.operate.launch.gates import link as gates_link
from sparktop.operate.launch.inputs import link as inputs_link

# --- link, rate, mtu, hca, gid, peer


def cable(world: World, node: str = "spark2", **more: Any) -> None:
    world.view(node, network=network(int(node[-1]), **more))


@case("link", "spark1", FAILED, "only enP7s7 192.168.20.21 leads to spark2, without RDMA", "/sys/class/infiniband")
def _(world: World) -> None:
    cable(world, "spark1", up=False)
    cable(world, "spark2", up=False)


@case("link", "spark1", PASSED, "enP7s7 192.168.20.21, no RDMA")
def _(world: World) -> None:
    cable(world, "spark1", up=False)
    cable(world, "spark2", up=False)
    world.asks_for(requires=Requirement(rdma=False))


@case("link", "spark1", FAILED, "have no IPv4 addresses in one network", "netplan")
def _(world: World) -> None:
    bare = replace(network(1), interfaces=tuple(replace(i, addresses=()) for i in network(1).interfaces))
    world.view("spark1", network=bare)


@case("link", "spark1", WARNED, "they would meet at an interface 10.7.0.1", "netplan")
def _(world: World) -> None:
    world.asks_for(requires=Requirement(rdma=False))
    for number, node in enumerate(BOTH, 1):
        world.view(node, network=replace(network(number), interfaces=(), rdma_ports=()))
        said = f"10.7.0.9 50000 10.7.0.{number} 22\n"
        world.answers[inputs_link.reached_question(node)] = Answer(value=said)


@case("link", "spark2", UNKNOWN, "has not been read yet")
def _(world: World) -> None:
    world.view("spark2", network=None)


@case("link", "", FAILED, "are one machine", "THE-OTHER-SPARK")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark1"))


@case("rate", "spark2", WARNED, "at 100 Gb/s, where a cabled port of a Spark has 200", "ethtool enp1s0f0np0")
def _(world: World) -> None:
    cable(world, rate=100.0)


@case("rate", "spark2", UNKNOWN, "doesn't tell its rate")
def _(world: World) -> None:
    reading = network(2)
    ports = tuple(replace(port, rate_gbps=None) for port in reading.rdma_ports)
    world.view("spark2", network=replace(reading, rdma_ports=ports))


@case(
    "mtu",
    "",
    WARNED,
    "9000 on spark1 (enp1s0f0np0), 1500 on spark2",
    "on spark2: sudo ip link set enp1s0f0np0 mtu 9000",
)
def _(world: World) -> None:
    cable(world, mtu=1500)


@case("mtu", "", UNKNOWN, "enp1s0f0np0 doesn't report its MTU")
def _(world: World) -> None:
    reading = network(2)
    world.view("spark2", network=replace(reading, interfaces=tuple(replace(i, mtu=None) for i in reading.interfaces)))


@case("hca", "spark1", FAILED, "rocep1s0f0 DOWN", "ibdev2netdev")
def _(world: World) -> None:
    cable(world, "spark1", up=False)
    cable(world, "spark2", up=False)


@case("hca", "spark1", PASSED, "the recipe asks for none")
def _(world: World) -> None:
    cable(world, "spark1", up=False)
    cable(world, "spark2", up=False)
    world.asks_for(requires=Requirement(rdma=False))


def bare_twin(world: World, *nodes: str) -> None:
    for node in nodes:
        reading = network(int(node[-1]))
        interfaces = tuple(replace(i, addresses=()) if i.name[:3] == "enP" and "p1s0" in i.name else i
                           for i in reading.interfaces)  # fmt: skip
        world.view(node, network=replace(reading, interfaces=interfaces))


@case("hca", "spark1", WARNED, "rocep1s0f0 of 2 that are up: roceP2p1s0f0 is up, but", "netplan")
def _(world: World) -> None:
    bare_twin(world, "spark1", "spark2")


@case("hca", "spark2", WARNED, "1 on spark1 (rocep1s0f0), 2 on spark2", "address")
def _(world: World) -> None:
    """All of one side in one network, a single device of the other."""
    bare_twin(world, "spark1")
    reading = network(2)
    local = {"enp1s0f0np0": ("10.0.0.2/24",), "enP2p1s0f0np0": ("10.0.0.3/24",)}
    interfaces = tuple(replace(i, addresses=local.get(i.name, i.addresses)) for i in reading.interfaces)
    world.view("spark2", network=replace(reading, interfaces=interfaces))


@case("gid", "spark2", PASSED, "RoCE v2 at index 5")
def _(world: World) -> None:
    cable(world, gid=5)


@case("gid", "spark2", PASSED, "left to NCCL: the indices differ: 3 on rocep1s0f0, 5 on roceP2p1s0f0")
def _(world: World) -> None:
    reading = network(2)
    first, second, third = reading.rdma_ports
    ports = (first, second, replace(third, roce_v2_gids=((5, "10.0.1.2"),)))
    world.view("spark2", network=replace(reading, rdma_ports=ports))


@case("gid", "spark2", WARNED, "rocep1s0f0 has no RoCE v2 entry for 10.0.0.2", "show_gids")
def _(world: World) -> None:
    reading = network(2)
    ports = tuple(replace(port, roce_v2_gids=()) for port in reading.rdma_ports)
    world.view("spark2", network=replace(reading, rdma_ports=ports))


@case("peer", "spark1", FAILED, "does not reach spark2 at 10.0.0.2 from 10.0.0.1: no answer", "on spark1: ping")
def _(world: World) -> None:
    world.ping(*world.ways()[0], lost=True)


@case("peer", "spark1", FAILED, "No route to host", "ping")
def _(world: World) -> None:
    one, other = world.ways()[0]
    world.silent(gates_link.ping_question(one, other), "there is no ping")
    world.answers[gates_link.tcp_question(one, other)] = Answer(value="failed: No route to host\n")


@case("peer", "spark1", PASSED, "reaches spark2 at 10.0.0.2 from 10.0.0.1 (by TCP)")
def _(world: World) -> None:
    one, other = world.ways()[0]
    world.silent(gates_link.ping_question(one, other), "there is no ping")
    world.answers[gates_link.tcp_question(one, other)] = Answer(value="refused\n")


@case("peer", "spark2", FAILED, "with small packets and not with those of 9000 bytes", "-s 8972 -I 10.0.0.2 10.0.0.1")
def _(world: World) -> None:
    world.ping(*world.ways()[1], is_large=True, lost=True)


@case("peer", "spark1", UNKNOWN, "there is no ping", "ping -c1")
def _(world: World) -> None:
    world.silent(gates_link.ping_question(*world.ways()[0]), "there is no ping")
