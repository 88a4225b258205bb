"""Give the cable's interfaces of two Sparks addresses: one network for each half, static, without a route. Pure.

Addresses that work are never rewritten. Each node returns to what it had by itself, unless sparktop still reaches it
after the change: systemd starts the return two minutes after it was armed, and the last step disarms it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from sparktop.checks.fabric import half_of
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import Difference, Plan, Remote, Request, Risk, Step
from sparktop.model.survey import Ask, FileText, Survey
from sparktop.model.telemetry import Interface
from sparktop.operate.plan.common_steps import privilege_asks, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root_for, sudo_notes

FILE = "/etc/netplan/40-sparktop-cable.yaml"
MTU = 9000
RETURN_S = 120
"""Until a node goes back to its former addresses by itself."""
RETURN_UNIT = "sparktop-netplan-return"
FIRST_HOST = 10
NETWORKS = tuple(IPv4Network(f"192.168.{third}.0/24") for third in range(100, 140))
"""NVIDIA's playbooks use 192.168.100.0/24 and 192.168.101.0/24 for the two halves; the next ones where those are
taken."""
LIMIT_S = 60.0


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    return (*privilege_asks(request), *(_file_ask(node) for node in request.nodes))


def _file_ask(node: str) -> FileText:
    return FileText(node=node, path=FILE)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """A netplan file on both nodes, applied with a return armed; refused where addresses work already."""
    if len(request.nodes) != 2:
        raise Refused("addresses are set on two Sparks together", ("sparktop act set-addresses spark1 spark2",))
    sides = {node: _cabled(node, picture) for node in request.nodes}
    _refuse_what_works(sides)
    for node in request.nodes:
        if survey.value(_file_ask(node)) is not None or survey.problem(_file_ask(node)):
            raise Refused(
                f"{FILE} is there already on {node}",
                (f"read it, and remove it if it is of no use: on {node}: sudo rm {FILE} && sudo netplan apply",),
            )
    given = {node: chosen for node, chosen in _addresses(sides, picture).items() if chosen}
    files = {node: _file(chosen) for node, chosen in given.items()}
    steps = tuple(step for node, text in files.items() for step in _steps(node, text, request.nodes))
    for node in files:
        require_root_for(steps, survey, node)
    return Plan(
        request=request,
        title=f"Give the cable between {' and '.join(request.nodes)} addresses",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        way_back=tuple(_remove_step(node, request.nodes) for node in files),
        effect=(
            f"netplan applies {FILE}. If sparktop loses a node by it, that node removes the file by itself after "
            f"{RETURN_S} s. Interfaces that have an address keep it; no route is added."
        ),
        warnings=tuple(note for node in files for note in sudo_notes(steps, survey, node, with_lines=False)),
        differences=tuple(
            Difference(what="address", name=f"{interface} of {node}", before=None, after=f"{address}, MTU {MTU}")
            for node, chosen in given.items()
            for interface, address in chosen.items()
        ),
        equivalent=tuple(f"on {node}: sudo netplan try" for node in files),
        seen_monotonic_s=picture.monotonic_s,
    )


def _cabled(node: str, picture: FleetState) -> tuple[Interface, ...]:
    """The halves of the first port that has a link."""
    view = picture.node(node)
    if view is None or view.network is None:
        raise Refused(f"the interfaces of {node} have not been read yet", ("wait a minute, and try again",))
    halves = sorted(
        (one for one in view.interfaces if one.is_up and half_of(one.name) is not None),
        key=lambda one: half_of(one.name) or (9, 9),
    )
    if not halves:
        raise Refused(f"no cable is up on {node}", ("plug it into the same port of both, then reboot both",))
    port = (half_of(halves[0].name) or (0, 0))[0]
    return tuple(one for one in halves if (half_of(one.name) or (0, 0))[0] == port)


def _refuse_what_works(sides: Mapping[str, Sequence[Interface]]) -> None:
    first, second = sides.values()
    common = {network for one in first for network in one.networks} & {n for one in second for n in one.networks}
    bare = [one.name for side in sides.values() for one in side if not one.networks]
    if not bare:
        where = f"{min(map(str, common))} joins them" if common else "each has one of its own"
        raise Refused(
            f"the cable's interfaces have addresses: {where}",
            ("addresses that somebody set are not rewritten: change them by hand, with netplan try",),
        )


def _addresses(sides: Mapping[str, Sequence[Interface]], picture: FleetState) -> dict[str, dict[str, str]]:
    """The new address of each interface that has none, by node.

    A half that has an address on one node gives its network to the other.
    """
    free = iter(_free_networks(picture.nodes))
    first, second = sides.values()
    networks: dict[int, IPv4Network] = {}
    for half in range(max(len(first), len(second))):
        known = [network for side in (first, second) if half < len(side) for network in sorted(side[half].networks)]
        networks[half] = known[0] if known else next(free)
    return {
        node: {
            interface.name: _free_address(networks[half], number, picture.nodes)
            for half, interface in enumerate(side)
            if not interface.networks
        }
        for number, (node, side) in enumerate(sides.items())
    }


def _file(chosen: Mapping[str, str]) -> str:
    """The netplan file that gives these interfaces their addresses."""
    head = (
        "# Written by sparktop: the cable between two Sparks, without a route.\nnetwork:\n  version: 2\n  ethernets:\n"
    )
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


def _steps(node: str, text: str, nodes: Sequence[str]) -> tuple[Step, ...]:
    remove = _root(program("rm"), "-f", FILE)
    apply = _root(program("netplan"), "apply")
    arm = _root(
        *(program("systemd-run"), f"--unit={RETURN_UNIT}", f"--on-active={RETURN_S}", "--collect"),
        *(f"--property=ExecStartPost={program('netplan')} apply", program("rm"), "-f", FILE),
    )
    disarm = _root(program("systemctl"), "stop", f"{RETURN_UNIT}.timer")
    write = Command(
        argv=(program("install"), "-m", "0600", "-o", "root", "-g", "root", "{content}", FILE),
        content=text,
        privilege=Privilege.ROOT,
        limit_s=LIMIT_S,
    )
    return (
        Step(
            id=step_id("write", node, nodes),
            title=f"Write {FILE} on {node}, and let netplan check it",
            node=node,
            act=Remote(operations=(write, _root(program("netplan"), "generate")), undo=(remove,)),
            limit_s=2 * LIMIT_S + 60.0,  # time to type a password
            verifies="netplan accepts it",
            undone_by=f"sudo rm {FILE}",
        ),
        Step(
            id=step_id("apply", node, nodes),
            title=f"Apply it on {node}, with a return after {RETURN_S} s armed",
            node=node,
            act=Remote(operations=(arm, apply), undo=(remove, apply)),
            limit_s=2 * LIMIT_S,
            verifies="netplan applied it",
            undone_by=f"sudo rm {FILE} && sudo netplan apply",
        ),
        Step(
            id=step_id("stay", node, nodes),
            title=f"Still reached: disarm the return on {node}",
            node=node,
            act=Remote(operations=(disarm,)),
            limit_s=LIMIT_S,
            verifies="the addresses stay",
            has_no_undo=True,
            undone_by="nothing has to be undone",
        ),
    )


def _root(*argv: str) -> Command:
    return Command(argv=argv, privilege=Privilege.ROOT, limit_s=LIMIT_S)


def _remove_step(node: str, nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id("remove", node, nodes),
        title=f"Remove {FILE} on {node}, and apply what is left",
        node=node,
        act=Remote(operations=(_root(program("rm"), "-f", FILE), _root(program("netplan"), "apply"))),
        limit_s=2 * LIMIT_S,
        verifies="netplan applied what is left",
        undone_by="set-addresses again",
        undoes=(step_id("write", node, nodes), step_id("apply", node, nodes)),
    )
