"""Wiring, addresses and RDMA: the cable between Sparks, seen and never asked for.

What a launch's gates judge of a link (carrier, rate, MTU, devices, GIDs, packets) is shown as they have it.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, permutations
from typing import Any

from sparktop.bounds import json_of
from sparktop.bringup.card import (
    CheckInputs,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    command,
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
from sparktop.model.finding import Remedy
from sparktop.model.state import State
from sparktop.model.survey import Output, Question, Survey, looked_up
from sparktop.model.telemetry import Interface
from sparktop.operate.launch.gates import link as link_gates
from sparktop.operate.launch.inputs import link as link_inputs
from sparktop.operate.setup.mesh import login_question
from sparktop.operate.setup.neighbours import items, neighbours_question, parse_neighbours, wiring

_MIN_NODES = 2
_DARK = "no cable is up"


def _cabled(seen: CheckInputs, node: str) -> tuple[Interface, ...]:
    """The interfaces of the cable that are up: ConnectX-7 ports of a Spark, else those with an RDMA device."""
    view = seen.view(node)
    with_rdma = {port.interface for port in view.rdma_ports}
    return tuple(
        one for one in view.interfaces if one.is_up and (half_of(one.name) is not None or one.name in with_rdma)
    )


def _is_single(seen: CheckInputs) -> bool:
    return len(seen.picture.nodes) < _MIN_NODES


def _objects(text: str) -> list[dict[str, Any]] | None:
    """The objects of a list in JSON; None where it is another shape."""
    try:
        raw: Any = json_of(text)
    except ValueError:
        return None
    return [row for row in raw if isinstance(row, dict)] if isinstance(raw, list) else None


# --- wiring


_links_question = command("ip", "-j", "link", "show")


def _switched_off(text: str) -> frozenset[str]:
    """The interfaces that are switched off: without carrier, whatever is plugged in."""
    links = _objects(text) or ()
    return frozenset(str(row.get("ifname")) for row in links if "UP" not in (row.get("flags") or "UP"))


def _cable(seen: CheckInputs) -> Outcome:
    node, view = seen.node, seen.own
    if view.network is None:
        return unknown("its interfaces were not read yet")
    judgement = judge_cable(view.interfaces)
    if judgement.case in ("absent", "dark") and _is_single(seen):
        return skipped("no cable: not needed for one Spark")
    ports = halves(view.interfaces)
    lit = [f"port {port}: {' and '.join(half.name for half in items if half.is_up)}" for port, items in ports.items()
           if any(half.is_up for half in items)]  # fmt: skip
    names = [half.name for items in ports.values() for half in items]
    off = sorted(_switched_off(seen.words(_links_question(node))) & set(names), key=names.index)
    row = partial(told, judge_cable, judgement, lit="; ".join(lit), interfaces=", ".join(names))
    if off:
        up = row(by_hand("Switch it on", *(f"on {node}: sudo ip link set {shlex.quote(name)} up" for name in off)))
        return replace(up, found=f"{up.found}; switched off: {', '.join(off)}")
    plug = by_hand("Plug the cable into the same port of both, then reboot both with the cable in")
    return row(plug, by_action("reboot", f"Reboot {node} with the cable in"))


def _install_lldpd(title: str, *nodes: str) -> Remedy:
    return by_hand(title, *(f"on {node}: sudo apt install lldpd" for node in nodes))


def _neighbours(seen: CheckInputs) -> Outcome:
    question = neighbours_question(seen.node)
    if _is_single(seen):
        return skipped("one Spark")
    neighbours = parse_neighbours(seen.text(question))
    if neighbours is None:
        if seen.is_missing(question):
            return skipped("lldpctl is not installed", _install_lldpd("Install it", seen.node))
        return unknown(seen.why_not(question))
    names = {view.facts.hostname: view.name for view in seen.picture.nodes if view.facts is not None}
    ends = [
        f"{own} to {names.get(one.machine, one.machine or 'an unnamed machine')} {one.port}"
        for own, one in sorted(neighbours.items())
        if half_of(own) is not None
    ]
    return passed("; ".join(ends)) if ends else skipped("lldpd has heard no other machine on the cable yet")


def _wiring_questions(seen: CheckInputs) -> Iterator[Question]:
    if len(seen.picture.nodes) > _MIN_NODES:
        yield from (neighbours_question(view.name) for view in seen.picture.nodes)


def _wiring(seen: CheckInputs) -> Wiring | None:
    """The cables between three nodes or more; None for a pair, whose cable can only join both."""
    names = tuple(view.name for view in seen.picture.nodes)
    return wiring(seen.picture, seen.survey, names) if len(names) > _MIN_NODES else None


def _shape(seen: CheckInputs) -> Outcome:
    found = wiring(seen.picture, seen.survey, seen.nodes)
    if found.shape is Shape.UNKNOWN and len(seen.nodes) == _MIN_NODES:
        return skipped("a pair, whose cable can only join both; lldpd has heard nothing yet")
    judgement = judge_wiring(found)
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown, _install_lldpd("Install lldpd", *found.silent))
    return told(judge_wiring, judgement, drawn=_drawn(found))


def _drawn(found: Wiring) -> str:
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


def _drops_question(seen: CheckInputs) -> Output | None:
    names = [one.name for one in _cabled(seen, seen.node)]
    paths = [f"/sys/class/net/{name}/carrier_down_count" for name in names if "/" not in name]
    return Output(node=seen.node, argv=("grep", "-sH", ".", "--", *paths)) if paths else None


def _parse_counts(text: str) -> Mapping[str, int]:
    """carrier_down_count by interface, from grep's lines."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        path, _, number = line.rpartition(":")
        parts = path.split("/")
        if len(parts) > 2 and number.strip().isdecimal():
            counts[parts[-2]] = int(number)
    return counts


def _drops_questions(seen: CheckInputs) -> tuple[Output | None]:
    return (_drops_question(seen),)


def _drops(seen: CheckInputs) -> Outcome:
    question = _drops_question(seen)
    if question is None:
        return skipped(_DARK)
    judgement = judge_drops(_parse_counts(seen.words(question)))
    return told(judge_drops, judgement, losses="loss" if judgement.figures.get("count") == 1 else "losses")


# --- addresses


def _facing(seen: CheckInputs) -> tuple[tuple[Interface, ...], ...]:
    """The cabled interfaces of each of two nodes that lead to the other: of a pair all that are up."""
    sides = tuple(_cabled(seen, node) for node in seen.nodes)
    found = _wiring(seen)
    if found is None or found.shape not in (Shape.RING, Shape.SWITCH):
        return sides
    ends = [cable for cable in found.cables if {end[0] for end in cable} == set(seen.nodes)]
    ports = {*chain.from_iterable(ends), *(end for _, end in found.switched)}
    return tuple(
        tuple(one for one in side if (node, (half_of(one.name) or (-1, 0))[0]) in ports)
        for node, side in zip(seen.nodes, sides, strict=True)
    )


def _dark(seen: CheckInputs) -> Outcome | None:
    """What a row of the cable says where none is up: it isn't about the LAN. None where one is."""
    for node in seen.nodes:
        if seen.view(node).network is None:
            return unknown(f"the network of {node} has not been read yet")
    dark = [node for node, side in zip(seen.nodes, _facing(seen), strict=True) if not side]
    return skipped(f"{_DARK} on {' and '.join(dark)}") if dark else None


def _plan(seen: CheckInputs) -> Outcome:
    nodes, sides = seen.nodes, _facing(seen)
    if (dark := _dark(seen)) is not None:
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


def _jumbo(seen: CheckInputs) -> Outcome:
    side = _cabled(seen, seen.node)
    if not any(one.networks for one in side):
        return skipped(_NO_ADDRESSES if side else _DARK)
    steps = _netplan(seen.node, *((f"{one.name}.mtu", "9000") for one in side))
    return told(judge_jumbo, judge_jumbo({one.name: one.mtu for one in side}), netplan=steps)


def _pair_questions(seen: CheckInputs) -> Iterator[Question]:
    def look(look_ups: Survey) -> None:
        list(link_gates.pair_gates(_as_pair(replace(seen, survey=look_ups)), tuple(link_gates.PAIR_GATES)))

    yield from looked_up(seen.survey, look)


def _as_pair(seen: CheckInputs) -> link_gates.Pair:
    ends = link_inputs.fabrics(seen.nodes, seen.picture, seen.survey)
    return link_gates.Pair(picture=seen.picture, survey=seen.survey, ends=ends, wants_rdma=True)


_OF_RDMA = ("rate", "hca", "gid")
"""Gates on the RDMA devices of a link: without any there is nothing to say."""


def _of_gate(name: str) -> Callable[[CheckInputs], Outcome]:
    def look(seen: CheckInputs) -> Outcome:
        if (dark := _dark(seen)) is not None:
            return dark
        pair = _as_pair(seen)
        if name in _OF_RDMA and not all(end.hcas for end in pair.ends.values()):
            return skipped("RDMA doesn't lead to the other node yet")
        return from_gates(*link_gates.pair_gates(pair, (name,)))

    return look


def _link(seen: CheckInputs) -> Outcome:
    first, second = _facing(seen)
    if first and second and judge_addresses(AddressFacts(first=first, second=second)).case == "none":
        return skipped(_NO_ADDRESSES)
    return _of_gate("link")(seen)


_route_question = command("ip", "-j", "route", "show", "default")


def _route(seen: CheckInputs) -> Outcome:
    question = _route_question(seen.node)
    rows = _objects(seen.read(question))
    if rows is None:
        return unknown(seen.why_not(question))
    routes = [route for route in rows if isinstance(route.get("dev"), str)]
    routes.sort(key=lambda route: route["metric"] if isinstance(route.get("metric"), int) else 0)
    devices = tuple(route["dev"] for route in routes)  # the one that is used first
    return told(judge_default_route, judge_default_route(devices), device="".join(devices[:1]), node=seen.node)


_address_question = command("ip", "-j", "-4", "address", "show")
_profiles_question = command("nmcli", "-t", "-f", "DEVICE,AUTOCONNECT,FILENAME", "connection", "show")
_networkd_question = command("networkctl", "--json=short", "list")


def _leases(text: str) -> Mapping[str, bool]:
    """Whether an interface's address is a DHCP lease, by interface."""
    return {
        row["ifname"]: any(info.get("dynamic") is True for info in items(row, "addr_info"))
        for row in _objects(text) or ()
        if isinstance(row.get("ifname"), str)
    }


def _parse_profiles(nmcli: str | None, networkd: str | None) -> Mapping[str, str] | None:
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


def _kept_questions(seen: CheckInputs) -> Iterator[Question]:
    node = seen.node
    if any(one.networks for one in _cabled(seen, node)):
        yield from (_address_question(node), _profiles_question(node), _networkd_question(node))
        profiles = _profiles(seen) or {}
        yield from (_changed_question(node, file) for file in profiles.values() if file.startswith(_MADE))


def _profiles(seen: CheckInputs) -> Mapping[str, str] | None:
    return _parse_profiles(seen.text(_profiles_question(seen.node)), seen.text(_networkd_question(seen.node)))


_MADE = "/run/"
"""Where netplan puts what it makes of its own files, anew at each boot."""


def _changed_question(node: str, file: str) -> Output:
    """What of /etc/netplan is newer than a file that netplan made of it: one that was removed changes the folder."""
    return Output(node=node, argv=("find", "/etc/netplan", "-newer", file))


def _kept(seen: CheckInputs) -> Outcome:
    node = seen.node
    addressed = [one for one in _cabled(seen, node) if one.networks]
    if not addressed:
        return skipped("the cable's interfaces have no address")
    leases, profiles = _leases(seen.words(_address_question(node))), _profiles(seen)
    facts = [
        PersistenceFacts(
            interface=one.name,
            is_dynamic=leases.get(one.name),
            profile=file if profiles is not None and (not made or seen.has_answer(asked)) else None,
            is_stale=made and bool(seen.words(asked)),
        )
        for one in addressed
        for file in ((profiles or {}).get(one.name, ""),)
        for made, asked in ((file.startswith(_MADE), _changed_question(node, file)),)
    ]
    judgement = judge_persistence(facts)
    if judgement.state is State.UNKNOWN:
        return unknown(f"{judgement.unknown}: {seen.why_not(_profiles_question(node))}")
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


def _mesh_question(seen: CheckInputs, near: str, far: str) -> Output | None:
    """Asks one node to log in to the other by its fabric address; nothing is accepted or saved."""
    end = link_inputs.fabrics((near, far), seen.picture, seen.survey).get(far)
    return login_question(near, end.ip) if end is not None and end.ip else None


def _mesh_questions(seen: CheckInputs) -> Iterator[Question | None]:
    yield from _pair_questions(seen)
    yield from (_mesh_question(seen, near, far) for near, far in permutations(seen.nodes))


def _mesh(seen: CheckInputs) -> Outcome:
    sides = [{network for one in side for network in one.networks} for side in _facing(seen)]
    if all(_cabled(seen, node) for node in seen.nodes) and not sides[0] & sides[1]:
        return skipped("the cable has no addresses in common yet")
    answers: dict[str, MeshFacts] = {}
    for near, far in permutations(seen.nodes):
        question = _mesh_question(seen, near, far)
        if question is None:
            return skipped("there is no address of the other node")
        code = None if seen.is_missing(question) else seen.code(question)
        answers[f"{near} to {question.argv[-2]}"] = MeshFacts(code=code, text=seen.survey.problem(question))
    judgement = judge_mesh(answers)
    path = str(judgement.figures.get("path", ""))
    return told(judge_mesh, judgement, said=answers[path].text if path in answers else "")


CARDS = (
    card(judge_cable, look=_cable, questions=each(_links_question)),
    card("wiring.neighbours", look=_neighbours, questions=each(neighbours_question)),
    card(judge_wiring, look=_shape, questions=each(neighbours_question), scope=Scope.FLEET),
    card(judge_drops, look=_drops, questions=_drops_questions),
    card(judge_addresses, look=_plan, questions=_wiring_questions, scope=Scope.PAIR),
    card(judge_jumbo, look=_jumbo),
    card(judge_mtu, look=_of_gate("mtu"), questions=_pair_questions, scope=Scope.PAIR),
    card("addresses.ping", look=_of_gate("peer"), questions=_pair_questions, scope=Scope.PAIR),
    card(judge_default_route, look=_route, questions=each(_route_question)),
    card(judge_persistence, look=_kept, questions=_kept_questions),
    card(judge_mesh, look=_mesh, questions=_mesh_questions, scope=Scope.PAIR),
    card("rdma.link", look=_link, questions=_pair_questions, scope=Scope.PAIR),
    card(judge_rate, look=_of_gate("rate"), questions=_pair_questions, scope=Scope.PAIR),
    card("rdma.devices", look=_of_gate("hca"), questions=_pair_questions, scope=Scope.PAIR),
    card("rdma.gid", look=_of_gate("gid"), questions=_pair_questions, scope=Scope.PAIR),
)
