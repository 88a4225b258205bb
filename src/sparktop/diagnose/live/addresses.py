"""Interfaces and addresses that a rank was told to use, against those its node has and its peer can reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from sparktop.diagnose.live.pair import Pair, addresses_of, networks_of, pair_of, said, variables
from sparktop.diagnose.live.ranks import Rank, flag
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Interface

_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_OWN_ADDRESS = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS")
_NOT_TOLD = ("br", "docker", "veth", "virbr", "tailscale", "wg", "tun", "tap", "cni", "flannel")
"""Interfaces that the probe leaves out, or that a reading may have missed: of these nothing is claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """One setting that can't work."""

    rank: Rank
    setting: str
    value: str
    what: str
    """What is wrong, as the end of a sentence."""
    is_certain: bool = True


def interface_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.interface-wrong: a rank was told an interface or address that its peer can't meet it on.

    An engine that came up has refuted it.
    """
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole or pair.is_up:
        return
    for rank in pair.ranks:
        box = rank.engine.container
        if box is not None and box.network_mode not in ("", "host"):
            continue  # names and addresses inside are its own
        for fault in (*_names_wrong(pair, rank), *_address_wrong(pair, rank), *_meeting_wrong(pair, rank)):
            yield _finding(pair, fault)


def _names_wrong(pair: Pair, rank: Rank) -> Iterator[_Fault]:
    interfaces, peer = _interfaces(rank.node), addresses_of(pair.other(rank).node)
    given = variables(rank)
    if not any(one.addresses for one in interfaces):
        return
    for setting in _INTERFACE_NAMES:
        value = given.get(setting, "")
        names = [name for name in value.removeprefix("=").split(",") if name]
        if not names or value.startswith("^"):
            continue
        exact = setting != "NCCL_SOCKET_IFNAME" or value.startswith("=")
        matching = [one for one in interfaces if any(_fits(one.name, name, exact=exact) for name in names)]
        if what := _wrong_with(names, matching, peer):
            certain = "network" not in what
            yield _Fault(rank=rank, setting=setting, value=value, what=what, is_certain=certain)


def _fits(name: str, wanted: str, *, exact: bool) -> bool:
    return name == wanted if exact else name.startswith(wanted)


def _wrong_with(names: list[str], matching: list[Interface], peer: frozenset[str]) -> str:
    if names == ["lo"]:
        return "lo reaches nothing but the node itself"
    if not matching:
        return "" if any(name.startswith(_NOT_TOLD) for name in names) else "there is no such interface"
    up = [one for one in matching if one.is_up is not False]
    if not up:
        return "it has no link"
    addressed = [one for one in up if one.addresses]
    if not addressed:
        return "it has no IPv4 address"
    if peer and not any(_holds(networks_of(one), peer) for one in addressed):
        return f"its network, {next(iter(networks_of(addressed[0])))}, holds no address of the other node"
    return ""


def _address_wrong(pair: Pair, rank: Rank) -> Iterator[_Fault]:
    own, other = addresses_of(rank.node), pair.other(rank).node
    peer = addresses_of(other)
    if not own:
        return
    given = variables(rank)
    for setting in _OWN_ADDRESS:
        value = given.get(setting, "")
        if not value or not _is_ipv4(value):
            continue
        if value not in own:
            whose = f"it is {other.name}'s" if value in peer else f"no interface of {rank.node.name} has it"
            yield _Fault(rank=rank, setting=setting, value=value, what=whose)
            continue
        held = next(one for one in _interfaces(rank.node) if value in {a.partition("/")[0] for a in one.addresses})
        if held.is_up is False:
            yield _Fault(rank=rank, setting=setting, value=value, what=f"{held.name}, which has it, has no link")
        elif peer and not _holds(networks_of(held), peer):
            what = f"its network, {next(iter(networks_of(held)))}, holds no address of {other.name}"
            yield _Fault(rank=rank, setting=setting, value=value, what=what, is_certain=False)


def _meeting_wrong(pair: Pair, rank: Rank) -> Iterator[_Fault]:
    """The address at which the ranks meet must be the head's."""
    head = addresses_of(pair.head.node)
    for setting in ("--master-addr", "--dist-init-addr", "--nccl-init-addr"):
        value = flag(rank.engine.argv, setting) or ""
        address = value.rpartition("://")[2].partition(":")[0]
        if not head or not _is_ipv4(address) or address in head or IPv4Address(address).is_unspecified:
            continue
        alone = IPv4Address(address).is_loopback
        what = (
            "each node finds only itself there" if alone else f"{pair.head.node.name}, where rank 0 runs, hasn't got it"
        )
        yield _Fault(rank=rank, setting=setting, value=value, what=what)


def _interfaces(node: NodeView) -> tuple[Interface, ...]:
    return node.network.interfaces if node.network else ()


def _holds(networks: frozenset[IPv4Network], addresses: frozenset[str]) -> bool:
    return any(IPv4Address(text) in network for network in networks for text in addresses if _is_ipv4(text))


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _finding(pair: Pair, fault: _Fault) -> Finding:
    rank, node = fault.rank, fault.rank.node
    setting = (
        f"{fault.setting}={fault.value}" if not fault.setting.startswith("-") else f"{fault.setting} {fault.value}"
    )
    good = [
        (one.name, address)
        for one in _interfaces(node)
        for address in one.addresses
        if one.is_up is not False and _holds(networks_of(one), addresses_of(pair.other(rank).node))
    ]
    change = _change(fault, good)
    fitting = ", ".join(f"{name} ({address})" for name, address in good) or "none that is known"
    return Finding(
        rule="cluster.interface-wrong",
        severity=Severity.CRITICAL if pair.is_coming else Severity.WARNING,
        confidence=Confidence.CONFIRMED if fault.is_certain else Confidence.SUSPECTED,
        title=f"{setting} can't work on {node.name}: {fault.what}",
        explanation=(
            "The ranks advertise this to one another and then wait, each for the other, until a time-out of ten "
            f"minutes or for ever, mostly without an error. Interfaces of {node.name} that share a network with "
            f"{pair.other(rank).node.name}: {fitting}. Names differ from host to host: give each its own."
        ),
        settles=""
        if fault.is_certain
        else "A route between the two networks would make it work: ping one from the other.",
        evidence=(
            said(rank, setting),
            *(
                Evidence(
                    source=f"{node.name} {one.name}",
                    text=f"{'up' if one.is_up else 'no link'}, {' '.join(one.addresses) or 'no address'}",
                )
                for one in _interfaces(node)[:6]
            ),
        ),
        remedies=(
            Remedy(
                title=f"Give {fault.setting} of {node.name} what lies in the peer's network",
                steps=(
                    "ip -br -4 addr   # on both nodes",
                    "ss -tn state syn-sent   # shows where a rank tries to connect, and gets no answer",
                    "start both ranks again",
                ),
                cost="the time to load",
                action="relaunch" if change is not None else None,
                change=change,
            ),
        ),
        references=("vllm-project/vllm#40991", "field report 002"),
        nodes=(node.name,),
        subject=fault.setting,
        brief=f"{setting}: {fault.what}",
    )


def _change(fault: _Fault, good: list[tuple[str, str]]) -> Change | None:
    """The setting with what fits, for that node alone; None where nothing is known to, or where more nodes have it."""
    if not good or fault.setting.startswith("-"):
        return None
    name, address = good[0]
    value = name if fault.setting in _INTERFACE_NAMES else address.partition("/")[0]
    return Change(by_node={fault.rank.node.name: Change(environment={fault.setting: value})})
