"""Gates on several nodes: the link between them, what NCCL needs of it, and whether they reach each other. Pure.

What a pair has to have is judged of the head and each other node; in a ring also of each node and the next.

Facts: docs/facts/gb10.md section 5, docs/facts/engines.md 1C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from sparktop.checks.link import FULL_GBPS, LinkFacts, RateFacts, judge_link, judge_mtu, judge_rate
from sparktop.dataclass import dataclass
from sparktop.engines.pair import is_one_machine
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.model.survey import Output, Survey
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, failed, judged, passed, told, unknown, warned
from sparktop.operate.launch.inputs.link import End, Fabric, rails
from sparktop.text.sentences import listed

USUAL_MTU = 1500
PING_LARGEST = 65507
"""Bytes of payload in the largest IPv4 packet."""
_ADDRESS_HELP = "docs.nvidia.com/dgx/dgx-spark: connect two Sparks; then on each: sudo netplan apply && ip -br -4 addr"
_TCP_PROBE = """\
import socket, sys
with socket.socket() as line:
    line.settimeout(2)
    try:
        line.bind((sys.argv[1], 0))
        line.connect((sys.argv[2], 22))
        print("open")
    except ConnectionRefusedError:
        print("refused")
    except OSError as error:
        print("failed:", error.strerror or error)
"""
"""Whether packets come back: a port that refuses has answered."""


# --- questions


def ping_question(near: Fabric, far: Fabric) -> Output:
    """One small ping from one end of the link to the other."""
    return Output(node=near.node, argv=("ping", "-c1", "-W1", "-n", "-I", near.ip, far.ip), limit_s=5.0)


def large_question(near: Fabric, far: Fabric) -> Output | None:
    """A ping of the whole MTU that may not be fragmented; None where the MTU isn't above the usual one."""
    sizes = [end.mtu for end in (near, far) if end.mtu]
    if len(sizes) < 2 or min(sizes) <= USUAL_MTU:
        return None
    payload = str(min(min(sizes) - 28, PING_LARGEST))
    argv = ("ping", "-c1", "-W1", "-n", "-M", "do", "-s", payload, "-I", near.ip, far.ip)
    return Output(node=near.node, argv=argv, limit_s=5.0)


def tcp_question(near: Fabric, far: Fabric) -> Output:
    """A TCP connection, for a node without ping or a network that doesn't answer it."""
    return Output(node=near.node, argv=("python3", "-I", "-S", "-c", _TCP_PROBE, near.ip, far.ip), limit_s=6.0)


def _directions(ends: Mapping[str, Fabric]) -> Iterator[tuple[Fabric, Fabric]]:
    """From the head to each other node, and back."""
    head, *others = ends.values() or (None,)
    for other in others:
        if head is not None and other is not None and head.ip and other.ip:
            yield from ((head, other), (other, head))


# --- gates


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What is judged of two nodes and more."""

    picture: FleetState
    survey: Survey
    ends: Mapping[str, Fabric]
    wants_rdma: bool


def gates_of(name: str) -> Callable[[GateInputs], Iterator[Gate]]:
    """The gates of this name of a launch."""

    def gates(inputs: GateInputs) -> Iterator[Gate]:
        wants_rdma = inputs.order.recipe.requires.rdma
        pair = Pair(picture=inputs.picture, survey=inputs.survey, ends=inputs.links, wants_rdma=wants_rdma)
        return pair_gates(pair, (name,))

    return gates


def pair_gates(pair: Pair, names: Sequence[str]) -> Iterator[Gate]:
    """Gates of these names of `PAIR_GATES`; nothing for one node."""
    for name in names if pair.ends else ():
        if name == "link" or all(end.ip for end in pair.ends.values()):
            yield from PAIR_GATES[name](pair)


def _link(pair: Pair) -> Iterator[Gate]:
    picture, ends = pair.picture, pair.ends
    views = [view for view in map(picture.node, ends) if view is not None]
    for one, other in combinations(views, 2):
        if is_one_machine(one, other):
            why = f"{one.name} and {other.name} are one machine (one boot id)"
            yield failed("", why, f"sparktop {one.name} THE-OTHER-SPARK")
            return
    for end in ends.values():
        unread = (view := picture.node(end.node)) is None or view.network is None
        why = "; ".join(end.problems)
        if not end.ip:
            if unread or end.is_unread:
                yield unknown(end.node, why, "wait a minute: the probe reports interfaces once a minute")
            else:
                yield failed(end.node, why, f"give the cable's interfaces addresses: {_ADDRESS_HELP}")
            continue
        where = f"{end.interface or 'an interface'} {end.ip}"
        judgement = judge_link(
            LinkFacts(
                carrier=end.own.is_up,
                has_rdma=bool(end.hcas),
                needs_rdma=pair.wants_rdma,
                is_same_network=end.is_same_network,
            )
        )
        yield told(
            end.node,
            judge_link,
            judgement,
            where=where,
            interface=end.interface,
            hcas=end.hcas,
            others=tuple(node for node in ends if node != end.node),
            reason=why,
            address_help=_ADDRESS_HELP,
        )


def _rate(pair: Pair) -> Iterator[Gate]:
    for end in pair.ends.values():
        rate = end.rate_gbps if end.hcas else end.own.speed_mbps / 1000 if end.own.speed_mbps else None
        view = pair.picture.node(end.node)
        judgement = judge_rate(RateFacts(gbps=rate, is_spark=view.is_spark if view is not None else None))
        device = " and ".join(end.hcas) or end.interface or "the interface"
        yield told(
            end.node,
            judge_rate,
            judgement,
            device=device,
            rate=rate,
            interface=end.interface,
            full=f"{FULL_GBPS:g}",
        )


def _hops(pair: Pair) -> Iterator[tuple[End, End]]:
    """What packets go over: from the head to each other node; in a ring, also each cable to the next node."""
    head, *others = pair.ends.values()
    yield from ((head, other) for other in others)
    for near, far in _in_a_circle(pair.ends):
        for rail in rails((near.node, far.node), pair.picture) if near.is_ring else ():
            yield rail.near, rail.far


def _in_a_circle(ends: Mapping[str, Fabric]) -> Iterator[tuple[Fabric, Fabric]]:
    """Each node and the next, the last and the head too: as NCCL's ring sends."""
    nodes = tuple(ends.values())
    yield from zip(nodes, (*nodes[1:], nodes[0]), strict=True)


def _mtu(pair: Pair) -> Iterator[Gate]:
    told: dict[str, None] = {}
    for first, second in _hops(pair):
        judgement = judge_mtu((first.mtu, second.mtu))
        if judgement.state is State.UNKNOWN:
            silent = " and ".join(end.interface or end.node for end in (first, second) if end.mtu is None)
            yield judged("", judgement, f"{silent} doesn't report its MTU")
        elif not judgement.is_problem:
            told[f"{first.mtu} at both ends" if len(pair.ends) == 2 else str(first.mtu)] = None
        else:
            low, high = sorted((first, second), key=lambda end: end.mtu or 0)
            yield judged(
                "",
                judgement,
                f"{first.mtu} on {first.node} ({first.interface}), {second.mtu} on {second.node} ({second.interface}): "
                "long messages of the larger end may be dropped, and a rank's start hangs",
                f"on {low.node}: sudo ip link set {low.interface} mtu {high.mtu}",
                "and in its netplan file",
            )
    if told:
        yield passed("", " and ".join(told))


def _hca(pair: Pair) -> Iterator[Gate]:
    ends, wants_rdma = pair.ends, pair.wants_rdma
    if not all(end.hcas for end in ends.values()):
        for end in ends.values():
            if end.hcas:
                yield passed(end.node, " and ".join(end.hcas))
                continue
            why = "; ".join(end.problems) or f"no RDMA device of {end.node} is up"
            if wants_rdma:
                yield failed(end.node, why, "ibdev2netdev   # (Up) on the cabled port's two devices, on every node")
            else:
                yield passed(end.node, f"none, and the recipe asks for none: {why}")
        return
    apart = [(near, far) for near, far in _in_a_circle(ends) if far.node not in near.neighbours]
    for near, far in apart:
        leads = f"RDMA of {near.node} leads to {listed(near.neighbours)}, not to {far.node}, the next rank"
        order = "name the nodes in the order of their cables, each after the one that it is cabled to"
        yield (failed if wants_rdma else warned)(near.node, leads, order)
    if apart:
        return
    counts = ", ".join(f"{len(end.hcas)} on {end.node} ({', '.join(end.hcas)})" for end in ends.values())
    for end in ends.values():
        spare = end.idle_devices
        if len({len(each.hcas) for each in ends.values()}) > 1:
            yield warned(
                end.node,
                f"{counts}: only as many as all have are used" + "".join(f"; {problem}" for problem in spare),
                f"give each interface of the cable its own address on every node: {_ADDRESS_HELP}",
            )
        elif spare:
            yield warned(
                end.node,
                f"{', '.join(end.hcas)} of {len(end.hcas) + len(spare)} that are up: {'; '.join(spare)}",
                f"give it an address in a network of its own on every node: {_ADDRESS_HELP}",
            )
        else:
            yield passed(end.node, f"{', '.join(end.hcas)}, found on it")


def _gid(pair: Pair) -> Iterator[Gate]:
    for end in pair.ends.values():
        if not end.hcas:
            continue
        if end.gid_index is not None:
            yield passed(end.node, f"RoCE v2 at index {end.gid_index} of {' and '.join(end.hcas)}")
        elif end.has_several_gids:
            yield passed(end.node, f"left to NCCL: {end.gid_reason}")
        else:
            yield warned(
                end.node,
                f"{end.gid_reason or 'no RoCE v2 entry'}; NCCL is left to find one",
                f"on {end.node}: show_gids   # an entry v2 with the address; sudo ip link set {end.interface} down, up",
            )


# --- reachability


def _peer(pair: Pair) -> Iterator[Gate]:
    survey = pair.survey
    for near, far in _directions(pair.ends):
        ping, tcp, large = ping_question(near, far), tcp_question(near, far), large_question(near, far)
        to = f"{far.node} at {far.ip} from {near.ip}"
        by_hand = f"on {near.node}: {' '.join(ping.argv)}"
        is_whole = large is None or survey.answer(large) is None or _came_back(survey, large)
        if survey.answer(ping) is None:
            yield unknown(near.node, f"whether it reaches {to} is not known: it was not asked", by_hand)
        elif not _came_back(survey, ping):
            outcome = (survey.text(tcp) or "").strip()
            if outcome in ("open", "refused"):
                yield passed(near.node, f"reaches {to} (by TCP)")
            elif outcome.startswith("failed:") or _is_loss(survey, ping):
                why = outcome.removeprefix("failed:").strip() or "no answer within 1 s"
                yield failed(near.node, f"does not reach {to}: {why}", by_hand, "ip -br -4 addr, on each")
            else:
                why = survey.problem(tcp) or survey.problem(ping)
                yield unknown(near.node, f"whether it reaches {to} is not known: {why}", by_hand)
        elif large is not None and not is_whole:
            size = min(end.mtu or 0 for end in (near, far))
            yield failed(
                near.node,
                f"reaches {to} with small packets and not with those of {size} bytes, its MTU",
                f"on {near.node}: {' '.join(large.argv)}",
                "set one MTU on both interfaces and on a switch between",
            )
        else:
            size_note = f", with packets of {min(end.mtu or 0 for end in (near, far))} bytes too" if large else ""
            yield passed(near.node, f"reaches {to}{size_note}")


def _came_back(survey: Survey, question: Output) -> bool:
    return not survey.problem(question) and " 0% packet loss" in (survey.text(question) or "")


def _is_loss(survey: Survey, question: Output) -> bool:
    return "packet loss" in (survey.text(question) or "")


PAIR_GATES: Mapping[str, Callable[[Pair], Iterator[Gate]]] = {
    "link": _link,
    "rate": _rate,
    "mtu": _mtu,
    "hca": _hca,
    "gid": _gid,
    "peer": _peer,
}
"""In the order shown."""
