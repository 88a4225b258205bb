"""Checks of the fabric between Sparks: both halves of a cable, addresses, routes, and what a reboot leaves of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from ipaddress import IPv4Network

from sparktop.checks.judgement import Judgement, check, failed, note, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.telemetry import Interface

_HALF = re.compile(r"en(P2)?p1s0f([01])np\2")
"""A ConnectX-7 interface of a Spark: PCIe half and port. Each QSFP cage is fed by two halves (docs/facts/bringup.md
section 7)."""
JUMBO = 9000
"""The MTU that NVIDIA's and the community's cluster tools set."""
DROPS = 3
"""Carrier losses since boot; 21 were found on a link that everyone believed healthy."""


def half_of(interface: str) -> tuple[int, int] | None:
    """(port, half) of a ConnectX-7 interface of a Spark; None for any other."""
    match = _HALF.fullmatch(interface)
    return (int(match[2]), 1 if match[1] else 0) if match else None


def halves(interfaces: Sequence[Interface]) -> Mapping[int, tuple[Interface, ...]]:
    """The ConnectX-7 interfaces by port, the first half first."""
    by_port: dict[int, list[Interface]] = {}
    for interface in sorted(interfaces, key=lambda one: half_of(one.name) or (9, 9)):
        if (place := half_of(interface.name)) is not None:
            by_port.setdefault(place[0], []).append(interface)
    return {port: tuple(items) for port, items in sorted(by_port.items())}


@check("wiring.no-cable", is_rule=False, bring_up="wiring.cable")
def judge_cable(interfaces: tuple[Interface, ...] | None) -> Judgement:
    """Whether a port has a link, and both of its halves have one; without a cable the ports aren't even there."""
    if interfaces is None:
        return unknown("its interfaces were not read")
    ports = halves(interfaces)
    if not ports:
        return failed("absent")
    lit = {port: [half for half in items if half.is_up] for port, items in ports.items()}
    if not any(lit.values()):
        return failed("dark")
    for port, items in lit.items():
        if items and len(items) < 2:
            return warning("half", port=port, interface=items[0].name)
    return passed()


# --- what is cabled to what


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What an interface hears by LLDP from the other end of its cable."""

    machine: str
    """The name that it says it has."""
    port: str = ""
    """The interface or switch port at its end."""


class Shape(StrEnum):
    """How three Sparks or more are joined; a pair is a pair."""

    PAIR = "pair"
    RING = "ring"
    SWITCH = "switch"
    OTHER = "other"
    UNKNOWN = "unknown"
    """Not every node has told what it hears."""


End = tuple[str, int]
"""(node, port)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The cables between the nodes, by the ports that they join."""

    shape: Shape
    cables: tuple[tuple[End, End], ...] = ()
    """Between two nodes; of a ring in its order, from each node to the next."""
    switched: tuple[tuple[str, End], ...] = ()
    """(switch, the end that is plugged into it)."""
    silent: tuple[str, ...] = ()
    """Nodes that hear nobody."""


def wiring_of(heard: Mapping[str, Mapping[str, Heard] | None], host_names: Mapping[str, str]) -> Wiring:
    """The wiring, drawn from what each node's ports hear. Either half of a port tells of its cable.

    Args:
        heard: by node and interface; None: the node could not be asked.
        host_names: by node: the name by which the others hear it.
    """
    nodes = {name: node for node, name in host_names.items() if name}
    cables: dict[frozenset[End], tuple[End, End]] = {}
    switched: dict[tuple[str, End], None] = {}
    for node, ends in heard.items():
        for interface, one in sorted((ends or {}).items()):
            if (place := half_of(interface)) is None:
                continue
            near, far_place = (node, place[0]), half_of(one.port)
            other = nodes.get(one.machine)
            if other is None:
                switched[one.machine or "an unnamed machine", near] = None
            elif other != node and far_place is not None:
                far = (other, far_place[0])
                cables.setdefault(frozenset((near, far)), (near, far))
    told = {end[0] for cable in cables.values() for end in cable} | {end[0] for _, end in switched}
    silent = tuple(node for node in heard if node not in told)
    found = Wiring(shape=Shape.OTHER, cables=tuple(cables.values()), switched=tuple(switched), silent=silent)
    if silent:
        return replace(found, shape=Shape.UNKNOWN)
    if len({name for name, _ in switched}) == 1 and not cables and {end[0] for _, end in switched} == set(heard):
        return replace(found, shape=Shape.SWITCH)
    if switched:
        return found
    if len(heard) == 2:
        return replace(found, shape=Shape.PAIR)
    ring = _ring(next(iter(heard)), found.cables, len(heard))
    return replace(found, shape=Shape.RING, cables=ring) if ring else found


def _ring(start: str, cables: Sequence[tuple[End, End]], count: int) -> tuple[tuple[End, End], ...]:
    """The cables in the ring's order, each from one node to the next; empty where they are no ring."""
    left, ordered, node = list(cables), list[tuple[End, End]](), start
    if len(left) != count:
        return ()
    while left:
        ends = [(cable, cable if cable[0][0] == node else cable[::-1]) for cable in left if node in dict(cable)]
        if not ends or (ordered and len(ends) != 1):
            return ()
        cable, turned = min(ends, key=lambda one: one[1][0][1])  # the first goes out of port 0 where it can
        left.remove(cable)
        ordered.append((turned[0], turned[1]))
        node = turned[1][0]
    return tuple(ordered) if node == start and len({near[0] for near, _ in ordered}) == count else ()


@check("wiring.shape", is_rule=False, bring_up="wiring.shape")
def judge_wiring(wiring: Wiring) -> Judgement:
    """Whether what is cabled can be addressed, and a ring's cables go from each port 0 to the next port 1."""
    if wiring.shape is Shape.UNKNOWN:
        return unknown(f"no neighbour was heard by {' and '.join(wiring.silent)}")
    if wiring.shape is Shape.OTHER:
        return warning("other")
    same = next((cable for cable in wiring.cables if cable[0][1] == cable[1][1]), None)
    if wiring.shape is Shape.RING and same is not None:
        (first, port), (second, _) = same
        return failed("same-port", first=first, second=second, port=port)
    return passed()


@check("wiring.drops", is_rule=False, bring_up="wiring.drops")
def judge_drops(counts: Mapping[str, int] | None) -> Judgement:
    """How often a link that is up has lost its carrier since boot, by interface."""
    if not counts:
        return unknown("no counter of a link that is up was read")
    name = max(counts, key=lambda one: counts[one])
    return warning("often", count=counts[name], interface=name) if counts[name] > DROPS else passed(count=counts[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressFacts:
    """The cabled interfaces of two machines."""

    first: tuple[Interface, ...]
    second: tuple[Interface, ...]


@check("addresses.plan", is_rule=False, bring_up="addresses.plan")
def judge_addresses(facts: AddressFacts) -> Judgement:
    """Whether each half has an address, in a network of its own that the other machine is in too."""
    for number, interfaces in enumerate((facts.first, facts.second)):
        bare = [one.name for one in interfaces if not one.networks]
        if interfaces and len(bare) == len(interfaces):
            return failed("none", node=number)
        networks: dict[IPv4Network, str] = {}
        for one in interfaces:
            for network in one.networks:
                if network in networks:
                    return failed("twins", node=number, interface=one.name, other=networks[network])
                networks[network] = one.name
    own = [{network for one in side for network in one.networks} for side in (facts.first, facts.second)]
    if not own[0] & own[1]:
        return failed("apart")
    for number, interfaces in enumerate((facts.first, facts.second)):
        lonely = [one.name for one in interfaces if not one.networks & own[1 - number]]
        if lonely:
            return warning("one-half", node=number, interface=lonely[0])
    return passed()


@check("addresses.small-mtu", is_rule=False, bring_up="addresses.jumbo")
def judge_jumbo(sizes: Mapping[str, int | None]) -> Judgement:
    """Whether each cabled interface has jumbo frames, by its MTU in bytes."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if not known:
        return unknown("no MTU was read")
    small = min(known, key=lambda name: known[name])
    return warning("small", interface=small, mtu=known[small]) if known[small] < JUMBO else passed(mtu=known[small])


@check("addresses.default-route", is_rule=False, bring_up="addresses.route")
def judge_default_route(devices: Sequence[str] | None) -> Judgement:
    """Whether the internet is reached by another interface than the cable's, by the devices of the default routes."""
    if devices is None:
        return unknown("the routes were not read")
    into = [device for device in devices if half_of(device) is not None]
    if not into:
        return passed() if devices else note("none")
    return failed("first", interface=into[0]) if devices[0] == into[0] else warning("other", interface=into[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistenceFacts:
    """How the addresses of one interface came."""

    interface: str
    is_dynamic: bool | None
    """From DHCP; None: not known."""
    profile: str | None = None
    """Of NetworkManager or systemd-networkd; empty: none has it; None: not known."""
    is_stale: bool = False
    """It lies in /run, and what it was made from has changed since: the next boot makes another."""


@check("addresses.lost-at-reboot", is_rule=False, bring_up="addresses.kept")
def judge_persistence(all_facts: Sequence[PersistenceFacts]) -> Judgement:
    """Whether the addresses come back after a reboot: static, and in some configuration."""
    for facts in all_facts:
        if facts.is_dynamic:
            return warning("lease", interface=facts.interface)
        if facts.profile == "":
            return failed("undeclared", interface=facts.interface)
        if facts.is_stale:
            return warning("stale", interface=facts.interface)
    if not all_facts or any(facts.is_dynamic is None or facts.profile is None for facts in all_facts):
        return unknown("how the addresses are configured was not read")
    return passed()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshFacts:
    """What ssh from one node to another said."""

    code: int | None
    text: str = ""


@check("addresses.no-ssh", is_rule=False, bring_up="addresses.ssh")
def judge_mesh(answers: Mapping[str, MeshFacts]) -> Judgement:
    """Whether each node logs in to the other by its fabric address, without a question."""
    for name, facts in answers.items():
        if facts.code:
            is_key = "host key verification failed" in facts.text.lower()
            return warning("host-key" if is_key else "denied" if "denied" in facts.text.lower() else "other", path=name)
    return passed() if answers and all(facts.code == 0 for facts in answers.values()) else unknown("it was not tried")
