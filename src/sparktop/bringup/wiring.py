"""Wiring, addresses and RDMA: the cable between Sparks, seen and never asked for.

What a launch's gates judge of a link (carrier, rate, MTU, devices, GIDs, packets) is shown as they have it.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from sparktop.bounds import json_of
from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    each,
    from_gates,
    passed,
    skipped,
    told,
    unknown,
)
from sparktop.checks.fabric import (
    AddressFacts,
    MeshFacts,
    PersistenceFacts,
    Shape,
    Wiring,
    half_of,
    halves,
    judge_addresses,
    judge_cable,
    judge_default_route,
    judge_drops,
    judge_jumbo,
    judge_mesh,
    judge_persistence,
    judge_wiring,
)
from sparktop.checks.link import judge_mtu, judge_rate
from sparktop.model.state import State
from sparktop.model.survey import Ask, Output
from sparktop.model.telemetry import Interface
from sparktop.operate.launch.gates import link as link_gates
from sparktop.operate.launch.inputs import link as link_inputs
from sparktop.operate.setup.mesh import login_ask
from sparktop.operate.setup.neighbours import items, neighbours_ask, parse_neighbours, wiring

_MIN_NODES = 2


def cabled(seen: CheckInputs, node: str) -> tuple[Interface, ...]:
    """The interfaces of the cable that are up: ConnectX-7 ports of a Spark, else those with an RDMA device."""
    view = seen.view(node)
    if view is None:
        return ()
    with_rdma = {port.interface for port in view.rdma_ports}
    return tuple(
        one for one in view.interfaces if one.is_up and (half_of(one.name) is not None or one.name in with_rdma)
    )


def _is_single(seen: CheckInputs) -> bool:
    return len(seen.picture.nodes) < _MIN_NODES


# --- wiring


def links_ask(node: str) -> Output:
    return Output(node=node, argv=("ip", "-j", "link", "show"))


def parse_switched_off(text: str | None) -> frozenset[str]:
    """The interfaces that are switched off: without carrier, whatever is plugged in."""
    try:
        rows: Any = json_of(text or "[]")
    except ValueError:
        return frozenset()
    links = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return frozenset(str(row.get("ifname")) for row in links if "UP" not in (row.get("flags") or "UP"))


def _cable(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view = nodes[0], seen.view(nodes[0])
    if view is None or view.network is None:
        return unknown("its interfaces were not read yet")
    judgement = judge_cable(view.interfaces)
    if judgement.case in ("absent", "dark") and _is_single(seen):
        return skipped("no cable: not needed for one Spark")
    ports = halves(view.interfaces)
    lit = [f"port {port}: {' and '.join(half.name for half in items if half.is_up)}" for port, items in ports.items()
           if any(half.is_up for half in items)]  # fmt: skip
    ends, names = "; ".join(lit), ", ".join(half.name for items in ports.values() for half in items)
    switched_off = parse_switched_off(seen.text(links_ask(node)))
    off = [half.name for items in ports.values() for half in items if half.name in switched_off]
    if off:
        up = (f"on {node}: sudo ip link set {shlex.quote(name)} up" for name in off)
        row = told(judge_cable, judgement, by_hand("Switch it on", *up), lit=ends, interfaces=names)
        return replace(row, found=f"{row.found}; switched off: {', '.join(off)}")
    plug = by_hand("Plug the cable into the same port of both, then reboot both with the cable in")
    again = by_action("reboot", f"Reboot {node} with the cable in")
    return told(judge_cable, judgement, plug, again, lit=ends, interfaces=names)


def _neighbours(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, ask = nodes[0], neighbours_ask(nodes[0])
    if _is_single(seen):
        return skipped("one Spark")
    neighbours = parse_neighbours(seen.text(ask))
    if neighbours is None:
        if seen.is_missing(ask):
            return skipped("lldpctl is not installed", by_hand("Install it", f"on {node}: sudo apt install lldpd"))
        return unknown(seen.why_not(ask))
    names = {view.facts.hostname: view.name for view in seen.picture.nodes if view.facts is not None}
    ends = [
        f"{own} to {names.get(one.machine, one.machine or 'an unnamed machine')} {one.port}"
        for own, one in sorted(neighbours.items())
        if half_of(own) is not None
    ]
    return passed("; ".join(ends)) if ends else skipped("lldpd has heard no other machine on the cable yet")


def _wiring_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    if len(seen.picture.nodes) > _MIN_NODES:
        yield from (neighbours_ask(view.name) for view in seen.picture.nodes)


def _wiring(seen: CheckInputs) -> Wiring | None:
    """The cables between three nodes or more; None for a pair, whose cable can only join both."""
    names = tuple(view.name for view in seen.picture.nodes)
    return wiring(seen.picture, seen.survey, names) if len(names) > _MIN_NODES else None


def _shape(seen: CheckInputs, nodes: Nodes) -> Outcome:
    found = wiring(seen.picture, seen.survey, nodes)
    if found.shape is Shape.UNKNOWN and len(nodes) == _MIN_NODES:
        return skipped("a pair, whose cable can only join both; lldpd has heard nothing yet")
    judgement = judge_wiring(found)
    if judgement.state is State.UNKNOWN:
        return unknown(
            judgement.unknown,
            by_hand("Install lldpd", *(f"on {node}: sudo apt install lldpd" for node in found.silent)),
        )
    return told(judge_wiring, judgement, drawn=drawn(found))


def drawn(found: Wiring) -> str:
    """The wiring in one line: a ring in its order, a switch with what is plugged into it, else each cable."""
    if found.shape is Shape.RING:
        (start, _), _ = found.cables[0]
        steps = [f"{near[0]} {near[1]}→{far[1]}" for near, far in found.cables]
        return f"ring: {' '.join(steps)} {start}"
    cables = [f"{near[0]} {near[1]}→{far[1]} {far[0]}" for near, far in found.cables]
    by_switch: dict[str, list[str]] = {}
    for name, (node, port) in found.switched:
        by_switch.setdefault(name, []).append(f"{node} {port}")
    plugged = [f"{name} ← {', '.join(sorted(set(ends)))}" for name, ends in by_switch.items()]
    head = "switch: " if found.shape is Shape.SWITCH else ""
    return head + ("; ".join((*cables, *plugged)) or "no cable between them")


def drops_ask(seen: CheckInputs, node: str) -> Output | None:
    names = [one.name for one in cabled(seen, node)]
    paths = [f"/sys/class/net/{name}/carrier_down_count" for name in names if "/" not in name]
    return Output(node=node, argv=("grep", "-sH", ".", "--", *paths)) if paths else None


def parse_counts(text: str | None) -> Mapping[str, int]:
    """carrier_down_count by interface, from grep's lines."""
    counts: dict[str, int] = {}
    for line in (text or "").splitlines():
        path, _, number = line.rpartition(":")
        parts = path.split("/")
        if len(parts) > 2 and number.strip().isdecimal():
            counts[parts[-2]] = int(number)
    return counts


def _drops_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    if (ask := drops_ask(seen, nodes[0])) is not None:
        yield ask


def _drops(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = drops_ask(seen, nodes[0])
    if ask is None:
        return skipped("no cable is up")
    judgement = judge_drops(parse_counts(seen.text(ask)))
    return told(judge_drops, judgement, losses="loss" if judgement.figures.get("count") == 1 else "losses")


# --- addresses


def facing(seen: CheckInputs, nodes: Nodes) -> tuple[tuple[Interface, ...], ...]:
    """The cabled interfaces of each of two nodes that lead to the other: of a pair all that are up."""
    sides = tuple(cabled(seen, node) for node in nodes)
    found = _wiring(seen)
    if found is None or found.shape not in (Shape.RING, Shape.SWITCH):
        return sides
    ends = [cable for cable in found.cables if {end[0] for end in cable} == set(nodes)]
    ports = {*chain.from_iterable(ends), *(end for _, end in found.switched)}
    return tuple(
        tuple(one for one in side if (node, (half_of(one.name) or (-1, 0))[0]) in ports)
        for node, side in zip(nodes, sides, strict=True)
    )


def _dark(seen: CheckInputs, nodes: Nodes) -> Outcome | None:
    """What a row of the cable says where none is up: it isn't about the LAN. None where one is."""
    for node in nodes:
        if (view := seen.view(node)) is None or view.network is None:
            return unknown(f"the network of {node} has not been read yet")
    dark = [node for node, side in zip(nodes, facing(seen, nodes), strict=True) if not side]
    return skipped(f"no cable is up on {' and '.join(dark)}") if dark else None


def _plan(seen: CheckInputs, nodes: Nodes) -> Outcome:
    sides = facing(seen, nodes)
    if (dark := _dark(seen, nodes)) is not None:
        return dark
    judgement = judge_addresses(AddressFacts(first=sides[0], second=sides[1]))
    at_fault = nodes[int(judgement.figures.get("node", 0))]
    shown = [f"{node} {one.name} {' '.join(one.addresses) or 'none'}" for node, side in zip(nodes, sides, strict=True)
             for one in side]  # fmt: skip
    row = partial(told, judge_addresses, judgement, at_fault=at_fault, shown="; ".join(shown))
    if any(not one.networks for side in sides for one in side):
        if (together := _wiring(seen)) is not None:
            all_nodes = " ".join(view.name for view in seen.picture.nodes)
            found = row(by_hand("Give all of them addresses together", f"here: sparktop act set-addresses {all_nodes}"))
            is_known = together.shape in (Shape.RING, Shape.SWITCH)
            return found if is_known else unknown(f"{found.found}; what is cabled to what isn't known")
        return row(by_action("set-addresses", "Configure netplan on both; a node that drops off reverts by itself"))
    moved = judgement.figures.get("interface") or sides[1][0].name
    where = nodes[1] if judgement.case == "apart" else at_fault
    steps = _netplan(where, (f"{moved}.addresses", "[ADDRESS/24]"))
    return row(by_hand("Give each half a network of its own, the same on both nodes", *steps))


def _ipv4(interface: Interface) -> tuple[str, ...]:
    return tuple(address for address in interface.addresses if ":" not in address)


_ORIGIN = "40-cx7"
"""The netplan file of what is set by hand, as NVIDIA's playbooks name it; set-addresses has one of its own."""


def _netplan(node: str, *settings: tuple[str, str]) -> tuple[str, ...]:
    """The commands that set these keys of interfaces, and try them."""
    words = [shlex.quote(f"ethernets.{key}={value}") for key, value in settings]
    return (
        *(f"on {node}: sudo netplan set --origin-hint {_ORIGIN} {word}" for word in words),
        f"on {node}: sudo netplan try   # returns to what was, unless you press Enter",
    )


_NO_ADDRESSES = "the cable has no addresses yet"


def _jumbo(seen: CheckInputs, nodes: Nodes) -> Outcome:
    side = cabled(seen, nodes[0])
    if not any(one.networks for one in side):
        return skipped(_NO_ADDRESSES if side else "no cable is up")
    steps = _netplan(nodes[0], *((f"{one.name}.mtu", "9000") for one in side))
    return told(judge_jumbo, judge_jumbo({one.name: one.mtu for one in side}), netplan=steps)


def _pair_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield from link_inputs.asks(nodes, seen.picture)
    yield from link_gates.asks(link_inputs.fabrics(nodes, seen.picture, seen.survey), seen.survey)


_OF_RDMA = ("rate", "hca", "gid")
"""Gates on the RDMA devices of a link: without any there is nothing to say."""


def _of_gate(name: str) -> Callable[[CheckInputs, Nodes], Outcome]:
    def look(seen: CheckInputs, nodes: Nodes) -> Outcome:
        if (dark := _dark(seen, nodes)) is not None:
            return dark
        ends = link_inputs.fabrics(nodes, seen.picture, seen.survey).values()
        if name in _OF_RDMA and not all(end.hcas for end in ends):
            return skipped("RDMA doesn't lead to the other node yet")
        return from_gates(*link_gates.pair_gates(nodes, seen.picture, seen.survey, wants_rdma=True, names=(name,)))

    return look


def _link(seen: CheckInputs, nodes: Nodes) -> Outcome:
    first, second = facing(seen, nodes)
    if first and second and judge_addresses(AddressFacts(first=first, second=second)).case == "none":
        return skipped(_NO_ADDRESSES)
    return _of_gate("link")(seen, nodes)


def route_ask(node: str) -> Output:
    return Output(node=node, argv=("ip", "-j", "route", "show", "default"))


def parse_routes(text: str | None) -> tuple[str, ...] | None:
    """The devices of the default routes, the one that is used first; None: no such JSON."""
    try:
        raw: Any = json_of(text or "")
    except ValueError:
        return None
    if not isinstance(raw, list):
        return None
    routes = [route for route in raw if isinstance(route, dict) and isinstance(route.get("dev"), str)]
    routes.sort(key=lambda route: route["metric"] if isinstance(route.get("metric"), int) else 0)
    return tuple(route["dev"] for route in routes)


def _route(seen: CheckInputs, nodes: Nodes) -> Outcome:
    devices = parse_routes(seen.text(route_ask(nodes[0])))
    if devices is None:
        return unknown(seen.why_not(route_ask(nodes[0])))
    return told(judge_default_route, judge_default_route(devices), device=devices[0] if devices else "", node=nodes[0])


def address_ask(node: str) -> Output:
    return Output(node=node, argv=("ip", "-j", "-4", "address", "show"))


def profiles_ask(node: str) -> Output:
    return Output(node=node, argv=("nmcli", "-t", "-f", "DEVICE,AUTOCONNECT,FILENAME", "connection", "show"))


def networkd_ask(node: str) -> Output:
    return Output(node=node, argv=("networkctl", "--json=short", "list"))


def parse_dynamic(text: str | None) -> Mapping[str, bool]:
    """Whether an interface's address is a DHCP lease, by interface."""
    try:
        raw: Any = json_of(text or "")
    except ValueError:
        return {}
    leases: dict[str, bool] = {}
    for item in raw if isinstance(raw, list) else ():
        if isinstance(item, dict) and isinstance(item.get("ifname"), str):
            infos = items(item, "addr_info")
            leases[item["ifname"]] = any(info.get("dynamic") is True for info in infos)
    return leases


def parse_profiles(nmcli: str | None, networkd: str | None) -> Mapping[str, str] | None:
    """The file that configures each interface, by NetworkManager or systemd-networkd; None: neither answered.

    A file of networkd's that matches an interface declares nothing of addresses that networkd has not set itself.
    """
    try:
        raw: Any = json_of(networkd or "")
    except ValueError:
        raw = None
    if nmcli is None and raw is None:
        return None
    profiles: dict[str, str] = {}
    for line in (nmcli or "").splitlines():
        device, _, rest = line.partition(":")
        autoconnect, _, path = rest.partition(":")
        if device and device != "--" and autoconnect == "yes":
            profiles[device] = path
    for item in items(raw, "Interfaces"):
        network_file = item.get("NetworkFile")
        is_by_hand = any(
            address.get("Family") == socket.AF_INET and address.get("ConfigSource") == "foreign"
            for address in items(item, "Addresses")
        )
        if isinstance(item.get("Name"), str) and isinstance(network_file, str) and network_file and not is_by_hand:
            profiles[item["Name"]] = network_file
    return profiles


def _kept_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    if any(one.networks for one in cabled(seen, nodes[0])):
        yield address_ask(nodes[0])
        yield profiles_ask(nodes[0])
        yield networkd_ask(nodes[0])
        profiles = _profiles(seen, nodes[0]) or {}
        yield from (changed_ask(nodes[0], file) for file in profiles.values() if file.startswith(_MADE))


def _profiles(seen: CheckInputs, node: str) -> Mapping[str, str] | None:
    return parse_profiles(seen.text(profiles_ask(node)), seen.text(networkd_ask(node)))


_MADE = "/run/"
"""Where netplan puts what it makes of its own files, anew at each boot."""


def changed_ask(node: str, file: str) -> Output:
    """What of /etc/netplan is newer than a file that netplan made of it: one that was removed changes the folder."""
    return Output(node=node, argv=("find", "/etc/netplan", "-newer", file))


def _kept(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node = nodes[0]
    addressed = [one for one in cabled(seen, node) if one.networks]
    if not addressed:
        return skipped("the cable's interfaces have no address")
    leases = parse_dynamic(seen.text(address_ask(node)))
    profiles = _profiles(seen, node)
    facts = [
        PersistenceFacts(
            interface=one.name,
            is_dynamic=leases.get(one.name),
            profile=file if profiles is not None and (not made or seen.has_answer(asked)) else None,
            is_stale=made and bool((seen.text(asked) or "").strip()),
        )
        for one in addressed
        for file in ((profiles or {}).get(one.name, ""),)
        for made, asked in ((file.startswith(_MADE), changed_ask(node, file)),)
    ]
    judgement = judge_persistence(facts)
    if judgement.state is State.UNKNOWN:
        return unknown(f"{judgement.unknown}: {seen.why_not(profiles_ask(node))}")
    loose = [one for one, fact in zip(addressed, facts, strict=True) if fact.is_dynamic or not fact.profile]
    return told(
        judge_persistence,
        judgement,
        profiles=", ".join(f"{one.interface}: {one.profile}" for one in facts),
        profile=(profiles or {}).get(str(judgement.figures.get("interface"))),
        reads=tuple(f"on {node}: sudo netplan get ethernets.{one.name}" for one in addressed),
        netplan=_netplan(
            node,
            *((f"{one.name}.addresses", f"[{','.join(_ipv4(one))}]") for one in loose),
            *((f"{one.name}.dhcp4", "false") for one in loose),
        ),
    )


def mesh_ask(seen: CheckInputs, near: str, far: str) -> Output | None:
    """Asks one node to log in to the other by its fabric address; nothing is accepted or saved."""
    end = link_inputs.fabrics((near, far), seen.picture, seen.survey).get(far)
    return login_ask(near, end.ip) if end is not None and end.ip else None


def _mesh_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield from _pair_asks(seen, nodes)
    for near, far in (nodes, nodes[::-1]):
        if (ask := mesh_ask(seen, near, far)) is not None:
            yield ask


def _mesh(seen: CheckInputs, nodes: Nodes) -> Outcome:
    sides = [{network for one in side for network in one.networks} for side in facing(seen, nodes)]
    if all(cabled(seen, node) for node in nodes) and not sides[0] & sides[1]:
        return skipped("the cable has no addresses in common yet")
    answers: dict[str, MeshFacts] = {}
    for near, far in (nodes, nodes[::-1]):
        ask = mesh_ask(seen, near, far)
        if ask is None:
            return skipped("there is no address of the other node")
        answer = seen.survey.answers.get(ask)
        answers[f"{near} to {ask.argv[-2]}"] = MeshFacts(
            code=answer.code if answer is not None and not seen.is_missing(ask) else None,
            text=answer.problem if answer is not None else "",
        )
    judgement = judge_mesh(answers)
    path = str(judgement.figures.get("path", ""))
    return told(judge_mesh, judgement, said=answers[path].text if path in answers else "")


CARDS = (
    card(judge_cable, look=_cable, asks=each(links_ask)),
    card("wiring.neighbours", look=_neighbours, asks=each(neighbours_ask)),
    card(judge_wiring, look=_shape, asks=each(neighbours_ask), scope=Scope.FLEET),
    card(judge_drops, look=_drops, asks=_drops_asks),
    card(judge_addresses, look=_plan, asks=_wiring_asks, scope=Scope.PAIR),
    card(judge_jumbo, look=_jumbo),
    card(judge_mtu, look=_of_gate("mtu"), asks=_pair_asks, scope=Scope.PAIR),
    card("addresses.ping", look=_of_gate("peer"), asks=_pair_asks, scope=Scope.PAIR),
    card(judge_default_route, look=_route, asks=each(route_ask)),
    card(judge_persistence, look=_kept, asks=_kept_asks),
    card(judge_mesh, look=_mesh, asks=_mesh_asks, scope=Scope.PAIR),
    card("rdma.link", look=_link, asks=_pair_asks, scope=Scope.PAIR),
    card(judge_rate, look=_of_gate("rate"), asks=_pair_asks, scope=Scope.PAIR),
    card("rdma.devices", look=_of_gate("hca"), asks=_pair_asks, scope=Scope.PAIR),
    card("rdma.gid", look=_of_gate("gid"), asks=_pair_asks, scope=Scope.PAIR),
)
