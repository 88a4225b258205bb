"""Gates of two nodes: the link between them, what NCCL needs of it, and whether each can reach the other. Pure.

Facts: facts/gb10.md section 5, facts/engines.md 1C. Whatever is named here was found on the node it is said of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktop.model.prospect import Gate
from sparktop.operate.launching.fabric import Fabric, fabrics
from sparktop.operate.launching.looked import Looked, failed, passed, unknown, warned
from sparktop.operate.survey import Ask, Output, Survey

FULL_GBPS = 200.0
USUAL_MTU = 1500
PING_LARGEST = 65507
"""Bytes of payload in the largest packet of IPv4."""
_ADDRESSES = "docs.nvidia.com/dgx/dgx-spark: connect two Sparks; then on both: sudo netplan apply && ip -br -4 addr"
_MEET = """\
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


def ping_ask(one: Fabric, other: Fabric) -> Output:
    return Output(node=one.node, argv=("ping", "-c1", "-W1", "-n", "-I", one.ip, other.ip), limit_s=5.0)


def large_ask(one: Fabric, other: Fabric) -> Output | None:
    """A packet of the whole MTU that may not be taken apart; None where the usual size is all there is."""
    sizes = [end.mtu for end in (one, other) if end.mtu]
    if len(sizes) < 2 or min(sizes) <= USUAL_MTU:
        return None
    payload = str(min(min(sizes) - 28, PING_LARGEST))
    argv = ("ping", "-c1", "-W1", "-n", "-M", "do", "-s", payload, "-I", one.ip, other.ip)
    return Output(node=one.node, argv=argv, limit_s=5.0)


def meet_ask(one: Fabric, other: Fabric) -> Output:
    """For a node without ping, or a network that doesn't answer one."""
    return Output(node=one.node, argv=("python3", "-I", "-S", "-c", _MEET, one.ip, other.ip), limit_s=6.0)


def asks(found: Mapping[str, Fabric], survey: Survey) -> Iterator[Ask]:
    """Whether each reaches the other, where both addresses are known."""
    for one, other in _ways(found):
        ping = ping_ask(one, other)
        yield ping
        if (large := large_ask(one, other)) is not None:
            yield large
        if ping in survey.answers and not _came_back(survey, ping):
            yield meet_ask(one, other)


def _ways(found: Mapping[str, Fabric]) -> tuple[tuple[Fabric, Fabric], ...]:
    ends = [end for end in found.values() if end.ip]
    return ((ends[0], ends[1]), (ends[1], ends[0])) if len(ends) == 2 else ()


# --- gates


def gates(looked: Looked) -> Iterator[Gate]:
    """link, rate, mtu, hca, gid and peer; nothing on one node."""
    found = fabrics(looked.nodes, looked.picture, looked.survey)
    if len(found) != 2:
        return
    yield from _link(looked, found)
    if not all(end.ip for end in found.values()):
        return
    yield from _rate(looked, found)
    yield _mtu(found)
    yield from _hca(looked, found)
    yield from _gid(found)
    yield from _peer(looked, found)


def _is_one_machine(looked: Looked) -> bool:
    facts = [view.facts for node in looked.nodes if (view := looked.view(node)) is not None]
    return len(facts) == 2 and all(facts) and len({one.boot_id for one in facts if one}) == 1


def _link(looked: Looked, found: Mapping[str, Fabric]) -> Iterator[Gate]:
    wants_rdma = looked.order.recipe.requires.rdma
    if _is_one_machine(looked):
        one, other = looked.nodes
        yield failed("link", "", f"{one} and {other} are one machine (one boot id)", f"sparktop {one} THE-OTHER-SPARK")
        return
    for end in found.values():
        unread = (view := looked.view(end.node)) is None or view.network is None
        why = "; ".join(end.problems)
        if not end.ip:
            if unread or "not been read yet" in why:
                yield unknown("link", end.node, why, "wait some seconds: the probe tells of interfaces once a minute")
            else:
                yield failed("link", end.node, why, f"give the cable's interfaces addresses: {_ADDRESSES}")
            continue
        where = f"{end.interface or 'an interface'} {end.ip}"
        if end.is_up is False:
            yield failed(
                "link",
                end.node,
                f"{where} has no carrier",
                f"seat the cable at both ends; sudo ip link set {end.interface} up",
            )
        elif wants_rdma and not end.hcas:
            yield failed(
                "link",
                end.node,
                f"only {where} leads to the other node, and the recipe wants RDMA: {why}",
                "seat the cable at both ends, and see `4: ACTIVE`: cat /sys/class/infiniband/*/ports/1/state",
            )
        elif not end.is_same_network:
            yield warned(
                "link",
                end.node,
                f"no network is common to both nodes; they would meet at {where}, which this connection reaches",
                f"give the cable's interfaces addresses: {_ADDRESSES}",
            )
        else:
            by = f", {' and '.join(end.hcas)} ACTIVE" if end.hcas else ", no RDMA"
            yield passed("link", end.node, f"{where}{by}")


def _rate(looked: Looked, found: Mapping[str, Fabric]) -> Iterator[Gate]:
    for end in found.values():
        rate = end.rate_gbps if end.hcas else end.speed_mbps / 1000 if end.speed_mbps else None
        what = " and ".join(end.hcas) or end.interface
        if rate is None:
            yield unknown("rate", end.node, f"{what or 'the interface'} doesn't tell its rate")
        elif rate < FULL_GBPS * 0.99:
            yield warned(
                "rate",
                end.node,
                f"{what} at {rate:g} Gb/s, where a cabled port of a Spark has {FULL_GBPS:g}",
                f"ethtool {end.interface} | grep -i speed; reseat the cable, use one that NVIDIA lists for two Sparks",
            )
        else:
            yield passed("rate", end.node, f"{what} at {rate:g} Gb/s")


def _mtu(found: Mapping[str, Fabric]) -> Gate:
    one, other = found.values()
    if one.mtu is None or other.mtu is None:
        silent = " and ".join(end.interface or end.node for end in (one, other) if end.mtu is None)
        return unknown("mtu", "", f"{silent} doesn't tell its MTU")
    if one.mtu != other.mtu:
        low = min((one, other), key=lambda end: end.mtu or 0)
        return warned(
            "mtu",
            "",
            f"{one.mtu} on {one.node} ({one.interface}), {other.mtu} on {other.node} ({other.interface}): long "
            "messages of the larger end may be dropped, and a rank's start hangs",
            f"on {low.node}: sudo ip link set {low.interface} mtu {max(one.mtu, other.mtu)}; and in its netplan file",
        )
    return passed("mtu", "", f"{one.mtu} at both ends")


def _hca(looked: Looked, found: Mapping[str, Fabric]) -> Iterator[Gate]:
    one, other = found.values()
    if not one.hcas or not other.hcas:
        for end in found.values():
            if end.hcas:
                yield passed("hca", end.node, " and ".join(end.hcas))
                continue
            why = "; ".join(end.problems) or f"no RDMA device of {end.node} is up"
            if looked.order.recipe.requires.rdma:
                yield failed(
                    "hca", end.node, why, "ibdev2netdev   # (Up) on the cabled port's two devices, on both nodes"
                )
            else:
                yield passed("hca", end.node, f"none, and the recipe asks for none: {why}")
        return
    for end in found.values():
        spare = [said for said in end.problems if said.startswith(tuple(_devices(looked, end)))]
        if len(one.hcas) != len(other.hcas):
            yield warned(
                "hca",
                end.node,
                f"{len(one.hcas)} on {one.node} ({', '.join(one.hcas)}), {len(other.hcas)} on {other.node} "
                f"({', '.join(other.hcas)}): only as many as both have are used" + "".join(f"; {one}" for one in spare),
                f"give each interface of the cable its own address on both nodes: {_ADDRESSES}",
            )
        elif spare:
            yield warned(
                "hca",
                end.node,
                f"{', '.join(end.hcas)} of {len(end.hcas) + len(spare)} that are up: {'; '.join(spare)}",
                f"give it an address in a network of its own on both nodes: {_ADDRESSES}",
            )
        else:
            yield passed("hca", end.node, f"{', '.join(end.hcas)}, found on it")


def _devices(looked: Looked, end: Fabric) -> list[str]:
    view = looked.view(end.node)
    return [f"{port.device} " for port in view.network.rdma_ports] if view and view.network else []


def _gid(found: Mapping[str, Fabric]) -> Iterator[Gate]:
    for end in found.values():
        if not end.hcas:
            continue
        if end.gid_index is not None:
            yield passed("gid", end.node, f"RoCE v2 at index {end.gid_index} of {' and '.join(end.hcas)}")
        elif "differ" in end.gid_reason:
            yield passed("gid", end.node, f"left to NCCL: {end.gid_reason}")
        else:
            yield warned(
                "gid",
                end.node,
                f"{end.gid_reason or 'no RoCE v2 entry'}; NCCL is left to find one",
                f"on {end.node}: show_gids   # an entry v2 with the address; sudo ip link set {end.interface} down, up",
            )


# --- reaching each other


def _peer(looked: Looked, found: Mapping[str, Fabric]) -> Iterator[Gate]:
    survey = looked.survey
    for one, other in _ways(found):
        ping, meet, large = ping_ask(one, other), meet_ask(one, other), large_ask(one, other)
        to = f"{other.node} at {other.ip} from {one.ip}"
        met = survey.value(meet)
        told = met.strip() if isinstance(met, str) else ""
        by_hand = f"on {one.node}: {' '.join(ping.argv)}"
        if not _came_back(survey, ping):
            if told in ("open", "refused"):
                yield passed("peer", one.node, f"reaches {to} (by TCP)")
            elif told.startswith("failed:") or _is_loss(survey, ping):
                why = told.removeprefix("failed:").strip() or "no answer within 1 s"
                yield failed("peer", one.node, f"does not reach {to}: {why}", f"{by_hand}; ip -br -4 addr, on both")
            else:
                why = survey.problem(meet) or survey.problem(ping) or "it was not asked"
                yield unknown("peer", one.node, f"whether it reaches {to} is not known: {why}", by_hand)
        elif large is not None and large in survey.answers and not _came_back(survey, large):
            size = min(end.mtu or 0 for end in (one, other))
            yield failed(
                "peer",
                one.node,
                f"reaches {to} with small packets and not with those of {size} bytes, its MTU",
                f"on {one.node}: {' '.join(large.argv)}; set one MTU on both interfaces and on a switch between",
            )
        else:
            whole = f", with packets of {min(end.mtu or 0 for end in (one, other))} bytes too" if large else ""
            yield passed("peer", one.node, f"reaches {to}{whole}")


def _came_back(survey: Survey, ask: Output) -> bool:
    said = survey.value(ask)
    return isinstance(said, str) and not survey.problem(ask) and " 0% packet loss" in said


def _is_loss(survey: Survey, ask: Output) -> bool:
    said = survey.value(ask)
    return isinstance(said, str) and "packet loss" in said
