"""Give the interfaces between Sparks addresses: one network for each half of a cable, static, without a route. Pure.

A pair has one cable. Three to eight are a ring, whose cables have networks of their own, or on one switch, where each
half of a port has one network for all: what is cabled to what is read by LLDP, and never guessed.

Addresses that work are never rewritten. A node returns to what it had unless sparktop still reaches it after the
change: the file is in /run first, so that a reboot takes it away, and systemd removes it two minutes after the change.
The last step sees the addresses there, disarms that return and moves the file to /etc.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network

from sparktop.checks.fabric import Shape, halves
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import FileText, Question, Survey
from sparktop.model.telemetry import Interface
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.remote_file import RemoteFile, remove
from sparktop.operate.plan.common_steps import privilege_questions, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root_for, sudo_notes
from sparktop.operate.setup.neighbours import neighbours_question, wiring
from sparktop.operate.step.plan import Difference, Plan, Step
from sparktop.text.sentences import listed

FILE = "/etc/netplan/40-sparktop-cable.yaml"
TRIED = "/run/netplan/40-sparktop-cable.yaml"
"""The same until it has proved itself: a reboot takes it away."""
MTU = 9000
RETURN_S = 120
"""Until a node goes back to its former addresses by itself."""
RETURN_UNIT = "sparktop-netplan-return"
NODES_AT_MOST = 8
FIRST_HOST = 10
NETWORKS = tuple(IPv4Network(f"192.168.{third}.0/24") for third in range(100, 140))
"""NVIDIA's playbooks use 192.168.100.0/24 and 192.168.101.0/24 for the two halves; the next ones where those are
taken."""
LIMIT_S = 60.0


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    heard = (neighbours_question(node) for node in request.nodes)
    return (*privilege_questions(request), *(_file_question(node) for node in request.nodes), *heard)


def _file_question(node: str) -> FileText:
    return FileText(node=node, path=FILE)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """A netplan file on each node, applied with a return armed; refused where addresses work already."""
    if not 2 <= len(request.nodes) <= NODES_AT_MOST:
        raise Refused(
            f"addresses are set on two to {NODES_AT_MOST} Sparks together",
            ("sparktop act set-addresses spark1 spark2",),
        )
    segments = (
        _pair_segments(request, picture, survey) if len(request.nodes) == 2 else _segments(request, picture, survey)
    )
    _refuse_what_works(segments)
    for node in request.nodes:
        if survey.value(_file_question(node)) is not None or survey.problem(_file_question(node)):
            raise Refused(
                f"{FILE} is there already on {node}",
                (f"read it, and remove it if it is of no use: on {node}: sudo rm {FILE} && sudo netplan apply",),
            )
    given = {node: chosen for node, chosen in _addresses(segments, request.nodes, picture).items() if chosen}
    files = {node: _file(chosen) for node, chosen in given.items()}
    back = {
        node: tuple(
            _set_mtu(segment[node].name, mtu)
            for segment in segments
            if node in segment and segment[node].name in given[node] and (mtu := segment[node].mtu or MTU) != MTU
        )
        for node in files
    }
    steps = tuple(
        step
        for node, text in files.items()
        for step in _steps(node, text, given[node].values(), back[node], request.nodes)
    )
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Give the cable{'s' if len(request.nodes) > 2 else ''} between {listed(request.nodes)} addresses",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=tuple(_remove_step(node, back[node], request.nodes) for node in files),
        effect=(
            f"netplan applies {FILE}. A node that sparktop loses by it takes the addresses back after {RETURN_S} s, "
            "or at a reboot. Interfaces that have an address keep it; no route is added."
        ),
        warnings=tuple(
            note for node in files for note in sudo_notes(steps, survey.privileges(node), node, with_lines=False)
        ),
        differences=tuple(
            Difference(what="address", name=f"{interface} of {node}", before=None, after=f"{address}, MTU {MTU}")
            for node, chosen in given.items()
            for interface, address in chosen.items()
        ),
        equivalent=tuple(
            f"on {node}: printf %s {shlex.quote(text)} | sudo tee {FILE} && sudo chmod 600 {FILE} && sudo netplan try"
            for node, text in files.items()
        ),
    )


Segment = Mapping[str, Interface]
"""The interfaces that one half of a cable, or of a switch, joins: one of each node."""


def _ports(node: str, picture: FleetState) -> Mapping[int, tuple[Interface, ...]]:
    """The halves that have a link, by port."""
    view = picture.node(node)
    if view is None or view.network is None:
        raise Refused(f"the interfaces of {node} have not been read yet", ("wait a minute, and try again",))
    ports = halves([one for one in view.interfaces if one.is_up])
    if not ports:
        names = [one.name for half in halves(view.interfaces).values() for one in half]
        raise Refused(
            f"no cable is up on {node}",
            (
                *(f"switched off? on {node}: sudo ip link set {shlex.quote(name)} up" for name in names),
                "plug it into the same port of both, then reboot both",
            ),
        )
    return ports


def _pair_segments(request: Request, picture: FleetState, survey: Survey) -> tuple[Segment, ...]:
    """The halves of the first cable that LLDP tells of; else of the first port of both that has a link."""
    ports = {node: _ports(node, picture) for node in request.nodes}
    cables = wiring(picture, survey, request.nodes).cables
    if cables:
        told = dict(cables[0])
        return _by_half({node: ports[node].get(told[node], ()) for node in request.nodes})
    return _by_half({node: next(iter(ports[node].values())) for node in request.nodes})


def _by_half(sides: Mapping[str, Sequence[Interface]]) -> tuple[Segment, ...]:
    count = max(len(side) for side in sides.values())
    return tuple({node: side[half] for node, side in sides.items() if half < len(side)} for half in range(count))


def _segments(request: Request, picture: FleetState, survey: Survey) -> tuple[Segment, ...]:
    """By LLDP: two for each cable of a ring; two for each port of the Sparks that leads to the switch."""
    found = wiring(picture, survey, request.nodes)
    if found.shape is Shape.UNKNOWN:
        raise Refused(
            f"what is cabled to what isn't known: {_heard(found.silent)} no neighbour by LLDP",
            tuple(f"on {node}: sudo apt install lldpd, then wait a minute" for node in found.silent),
        )
    if found.shape not in (Shape.RING, Shape.SWITCH):
        raise Refused(
            f"{listed(request.nodes)} are neither a ring nor all on one switch",
            ("sparktop bringup NODES --only wiring   # draws the cables that were heard",),
        )
    ports = {node: _ports(node, picture) for node in request.nodes}
    joined = [dict(cable) for cable in found.cables] or [
        {node: port for _, (node, port) in found.switched if port == number}
        for number in sorted({port for _, (_, port) in found.switched})
    ]
    return tuple(
        segment
        for ends in joined
        for segment in _by_half({node: ports[node].get(port, ()) for node, port in sorted(ends.items())})
    )


def _heard(silent: Sequence[str]) -> str:
    return f"{silent[0]} hears" if len(silent) == 1 else f"{listed(silent)} hear"


def _refuse_what_works(segments: Sequence[Segment]) -> None:
    members = [one for segment in segments for one in segment.values()]
    if any(not one.networks for one in members):
        return
    common = {
        network
        for segment in segments
        for network in frozenset.intersection(*(one.networks for one in segment.values()))
    }
    where = f"{min(map(str, common))} joins them" if common else "each has one of its own"
    raise Refused(
        f"the cable's interfaces have addresses: {where}",
        ("addresses that somebody set are not rewritten: change them by hand, with netplan try",),
    )


def _addresses(segments: Sequence[Segment], nodes: Sequence[str], picture: FleetState) -> dict[str, dict[str, str]]:
    """The new address of each interface that has none, by node; a node has the same last number everywhere.

    A half that has an address on one node gives its network to the others.
    """
    free = iter(_free_networks(picture.nodes))
    chosen: dict[str, dict[str, str]] = {node: {} for node in nodes}
    for segment in segments:
        known = [network for one in segment.values() for network in sorted(one.networks)]
        network = known[0] if known else next(free)
        for node, interface in segment.items():
            if not interface.networks:
                chosen[node][interface.name] = _free_address(network, nodes.index(node), picture.nodes)
    return chosen


def _file(chosen: Mapping[str, str]) -> str:
    """The netplan file that gives these interfaces their addresses."""
    head = "# Written by sparktop: the cables between Sparks, without a route.\nnetwork:\n  version: 2\n  ethernets:\n"
    return head + "".join(
        f"    {interface}:\n      addresses: [{address}]\n      mtu: {MTU}\n"
        "      dhcp4: false\n      dhcp6: false\n      optional: true\n"
        for interface, address in chosen.items()
    )


def _free_networks(views: Sequence[NodeView]) -> Iterator[IPv4Network]:
    """Those that no interface of any node overlaps."""
    taken = [network for view in views for one in view.interfaces for network in one.networks]
    return (network for network in NETWORKS if not any(network.overlaps(other) for other in taken))


def _free_address(network: IPv4Network, number: int, views: Sequence[NodeView]) -> str:
    taken = {text for view in views for one in view.interfaces for text in one.plain_addresses}
    hosts = list(network.hosts())
    wanted = hosts[FIRST_HOST + number - 1 :] if len(hosts) > FIRST_HOST + number else hosts
    address = next(str(host) for host in wanted if str(host) not in taken)
    return f"{address}/{network.prefixlen}"


def _steps(
    node: str, text: str, addresses: Iterable[str], back: tuple[Command, ...], nodes: Sequence[str]
) -> tuple[Step, ...]:
    """`back`: what sets the sizes of frames that were: netplan leaves those it no longer names as they are."""
    generate, apply = (_root(program("netplan"), verb) for verb in ("generate", "apply"))
    arm = _root(
        *(program("systemd-run"), f"--unit={RETURN_UNIT}", f"--on-active={RETURN_S}", "--collect"),
        "--timer-property=AccuracySec=1s",  # else it comes up to a minute late
        f"--property=ExecStartPost={program('netplan')} apply",
        *(f"--property=ExecStartPost={' '.join(command.argv)}" for command in back),
        *(program("rm"), "-f", TRIED),
    )
    is_still_tried = Command(
        argv=("test", "-e", TRIED),
        otherwise=f"{node} has taken the addresses back: sparktop did not reach it in time. Try again",
    )
    return (
        Step(
            id=step_id("write", node, nodes),
            title=f"Write {TRIED} on {node}, and let netplan check it",
            node=node,
            act=Remote(operations=(_file_at(TRIED, text).write(), generate), undo=(_remove(TRIED),)),
            limit_s=2 * LIMIT_S + 60.0,  # time to type a password
            verifies="netplan accepts it",
        ),
        Step(
            id=step_id("apply", node, nodes),
            title=f"Apply it on {node} (reverts after {RETURN_S} s unless confirmed)",
            node=node,
            act=Remote(operations=(arm, apply), undo=(_remove(TRIED), apply, *back)),
            limit_s=2 * LIMIT_S,
            verifies="netplan applied it",
        ),
        Step(
            id=step_id("stay", node, nodes),
            title=f"{node} is still reachable: keep the change, as {FILE}",
            node=node,
            act=Remote(
                operations=(
                    *(is_still_tried, *map(_has_address, addresses), *_disarm()),
                    *(is_still_tried, _file_at(FILE, text).write(), _remove(TRIED), generate),
                ),
                undo=_undo(back),
            ),
            limit_s=4 * LIMIT_S,
            verifies="the addresses are there, and netplan has them at the next boot",
        ),
    )


def _has_address(address: str) -> Command:
    """The kernel finds a route from an address only where that is its own; netplan's answer comes before it is."""
    ip = address.partition("/")[0]
    argv = ("ip", "-4", "route", "get", ip, "from", ip)
    return Command(argv=argv, again_s=LIMIT_S / 2, limit_s=LIMIT_S, otherwise=f"no interface has got {address}")


def _disarm() -> tuple[Command, ...]:
    """Stop the timer, and a return that it has just begun; 5: there is none."""
    return tuple(
        replace(_root(program("systemctl"), "stop", f"{RETURN_UNIT}.{kind}"), accepts=(0, 5))
        for kind in ("timer", "service")
    )


def _file_at(path: str, text: str) -> RemoteFile:
    mode = ("-m", "0600", "-o", "root", "-g", "root")
    return RemoteFile(path=path, after=text, privilege=Privilege.ROOT, mode=mode)


def _set_mtu(interface: str, mtu: int) -> Command:
    return replace(_root(program("ip"), "link", "set", "dev", interface, "mtu", str(mtu)), accepts=(0, 1))


def _remove(*paths: str) -> Command:
    return remove(*paths, privilege=Privilege.ROOT)


def _root(*argv: str) -> Command:
    return Command(argv=argv, privilege=Privilege.ROOT, limit_s=LIMIT_S)


def _undo(back: tuple[Command, ...]) -> tuple[Command, ...]:
    return (*_disarm(), _remove(FILE, TRIED), _root(program("netplan"), "apply"), *back)


def _remove_step(node: str, back: tuple[Command, ...], nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id("remove", node, nodes),
        title=f"Remove {FILE} on {node}, and apply what is left",
        node=node,
        act=Remote(operations=_undo(back), reverse=f"sparktop act set-addresses {shlex.join(nodes)}"),
        limit_s=4 * LIMIT_S,
        verifies="netplan applied what is left",
        undoes=tuple(step_id(name, node, nodes) for name in ("write", "apply", "stay")),
    )
