"""Rules on NCCL's settings: RDMA devices, GID index, interface, address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparktop.checks.judgement import Judgement
from sparktop.checks.nccl import (
    ADDRESS_SETTINGS,
    INTERFACE_SETTINGS,
    MEETING_SETTINGS,
    GidFacts,
    HcaFacts,
    PlaceFacts,
    judge_gid,
    judge_hca_names,
    judge_hca_pinned,
    judge_place,
    named_items,
    named_ports,
    ports_without_gid,
    reaches_peer,
)
from sparktop.cmdline.engine_command import command_of
from sparktop.diagnose.rule import SEVERITY, check_rule
from sparktop.diagnose.rules.pair.rank_problems import rank_problems
from sparktop.engines.pair import Pair, addresses_of, knows_all_variables, pair_of, said, variables
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState


def hca_facts(pair: Pair, rank: EngineRank) -> HcaFacts:
    """NCCL_IB_HCA of a rank, and the RDMA ports of its node."""
    settings = variables(rank)
    return HcaFacts(
        value=settings.get("NCCL_IB_HCA"),
        ports=rank.node.rdma_ports,
        knows_environment=knows_all_variables(rank),
        is_tcp=settings.get("NCCL_IB_DISABLE") == "1",
        serves=pair.is_up,
    )


@check_rule(judge_hca_names, Severity.CRITICAL, hold_s=1.0, follows=("cluster.link-down",))
def hca_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-wrong: NCCL_IB_HCA names a device that doesn't exist, or none that is up."""
    for _, rank, facts, judgement in rank_problems(fleet, judge_hca_names, hca_facts):
        up = [port.device for port in facts.ports if port.is_active]
        value = ",".join(named_items(facts.value) or ())
        missing = str(judgement.figures["missing"]).split(",") if judgement.figures["missing"] else []
        problem = (
            f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not there"
            if missing
            else "none of them is up"
        )
        yield Finding(
            rule=judge_hca_names.id,
            severity=SEVERITY[judgement.state],
            title=f"NCCL_IB_HCA={value} doesn't fit {rank.node.name}: {problem}",
            explanation=(
                "The names depend on the cabled port and may differ between two Sparks. "
                + (
                    "Without a device of that name NCCL uses TCP without an error, or waits for its peer for ever."
                    if judgement.case == "dead"
                    else (
                        "NCCL uses only the named devices that exist. Half of the bandwidth is lost, because a cable "
                        "has two."
                    )
                )
            ),
            evidence=(
                said(rank, f"NCCL_IB_HCA={value}"),
                *(
                    Evidence(source=f"{rank.node.name} {port.device}", text=f"{port.state}, {port.interface or '?'}")
                    for port in facts.ports
                ),
            ),
            remedies=(_pin_devices({rank.node.name: up}),),
            references=("field report 002", "NVIDIA/nccl: NCCL_IB_HCA"),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief=f"NCCL_IB_HCA={value}; up: {', '.join(up) or 'none'}",
        )


def _pin_devices(up_of_node: Mapping[str, Sequence[str]]) -> Remedy:
    """Name each node's own devices that are up, all in one relaunch."""
    nodes_of: dict[str, list[str]] = {}
    for node, up in up_of_node.items():
        nodes_of.setdefault(",".join(up), []).append(node)
    is_known = all(up_of_node.values())
    settings = " and ".join(f"NCCL_IB_HCA={up} on {' and '.join(nodes)}" for up, nodes in nodes_of.items())
    changes = {node: Change(environment={"NCCL_IB_HCA": up}) for up, nodes in nodes_of.items() for node in nodes}
    return Remedy(
        title=f"Set {settings}: the devices that are up"
        if is_known
        else f"Set NCCL_IB_HCA on {' and '.join(up_of_node)} to the devices that are up",
        steps=() if is_known else ("ibdev2netdev | grep Up   # or: grep . /sys/class/infiniband/*/ports/1/state",),
        cost="the time to load",
        action="relaunch",
        change=Change(by_node=changes) if is_known else None,
    )


@check_rule(judge_hca_pinned, Severity.INFO, hold_s=10.0)
def hca_unset(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-unset: nothing pins NCCL to the RDMA devices."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    up: dict[str, list[str]] = {}
    for rank in pair.ranks:
        judgement = judge_hca_pinned(hca_facts(pair, rank))
        if not judgement.is_problem or not judgement.is_certain or not rank.node.rdma_ports:
            return
        up[rank.node.name] = [port.device for port in rank.node.rdma_ports if port.is_active]
    yield Finding(
        rule=judge_hca_pinned.id,
        severity=Severity.INFO,
        title=f"{pair.name} runs without NCCL_IB_HCA: NCCL chooses its RDMA devices by itself",
        explanation=(
            "Most often it chooses well. A field report found that without NCCL_IB_HCA two Sparks can hang at the "
            "start, with no error and no output. Naming the cabled devices prevents that."
        ),
        evidence=tuple(
            Evidence(source=f"{rank.node.name} RDMA", text=f"ACTIVE: {', '.join(up[rank.node.name])}")
            for rank in pair.ranks
        ),
        remedies=(_pin_devices(up),),
        references=("field report 002",),
        nodes=pair.nodes,
        subject=pair.name,
        brief="NCCL_IB_HCA is not set",
    )


@check_rule(judge_gid, Severity.CRITICAL, hold_s=1.0)
def gid_index(fleet: FleetState) -> Iterable[Finding]:
    """cluster.gid-index: NCCL_IB_GID_INDEX is no RoCE v2 IPv4 entry of a port in use."""
    for pair, rank, facts, judgement in rank_problems(fleet, judge_gid, _gid_facts):
        yield _gid_finding(pair, rank, facts, judgement)


def _gid_facts(pair: Pair, rank: EngineRank) -> GidFacts:
    return GidFacts(
        value=variables(rank).get("NCCL_IB_GID_INDEX"),
        ports=tuple(named_ports(hca_facts(pair, rank)) or rank.node.rdma_ports),
        serves=pair.is_up,
    )


def _gid_finding(pair: Pair, rank: EngineRank, facts: GidFacts, judgement: Judgement) -> Finding:
    node, value, wrong = rank.node.name, facts.value, ports_without_gid(facts)
    right = {port.device: [str(index) for index, _ in port.roce_v2_gids] for port in wrong}
    fitting = ", ".join(f"{' or '.join(indices) or 'none'} for {device}" for device, indices in right.items())
    return Finding(
        rule=judge_gid.id,
        severity=SEVERITY[judgement.state],
        title=f"NCCL_IB_GID_INDEX={value} isn't a RoCE v2 address of {node}",
        explanation=(
            f"On {node} the index of a RoCE v2 IPv4 address is {fitting}. The index differs between cards and changes "
            "after a reboot or a change of addresses. A wrong one hangs silently at NCCL's initialisation. If it isn't "
            "set, NCCL finds the right one by itself."
            + (" It started this time; the next start may not." if pair.is_up else "")
        ),
        evidence=(
            said(rank, f"NCCL_IB_GID_INDEX={value}"),
            *(
                Evidence(
                    source=f"{node} {port.device}",
                    text="RoCE v2: " + ", ".join(f"{index} is {address}" for index, address in port.roce_v2_gids),
                )
                for port in wrong
            ),
        ),
        remedies=(
            Remedy(
                title="Unset NCCL_IB_GID_INDEX on both nodes, and restart both ranks",
                cost="the time to load",
                action="relaunch",
                change=Change(environment={"NCCL_IB_GID_INDEX": None}),
            ),
        ),
        references=("NVIDIA/nccl: NCCL_IB_GID_INDEX (default -1, chosen by NCCL)", "field report 002"),
        nodes=(node,),
        subject=rank.engine.name,
        brief=f"index {value}; right there: {fitting}",
    )


@check_rule(judge_place, Severity.CRITICAL, hold_s=1.0)
def interface_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.interface-wrong: a rank is configured with an interface or address at which its peer can't reach it.

    An engine that came up has disproved it.
    """
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole or pair.is_up:
        return
    for rank in pair.ranks:
        container = rank.engine.container
        if container is not None and container.network_mode not in ("", "host"):
            continue  # interfaces inside the container are its own
        settings = variables(rank)
        values = {setting: settings.get(setting) for setting in (*INTERFACE_SETTINGS, *ADDRESS_SETTINGS)}
        values |= {setting: command_of(rank.engine).value(setting) for setting in MEETING_SETTINGS}
        for setting, value in values.items():
            facts = PlaceFacts(
                setting=setting,
                value=value or "",
                interfaces=rank.node.interfaces,
                peer_addresses=addresses_of(pair.other(rank).node),
                head_addresses=addresses_of(pair.head.node),
                is_starting=pair.is_coming,
            )
            judgement = judge_place(facts)
            if judgement.is_problem:
                yield _finding(pair, rank, facts, judgement)


def _problem(pair: Pair, rank: EngineRank, judgement: Judgement) -> str:
    """What is wrong, as the end of a sentence."""
    peer, figures = pair.other(rank).node.name, judgement.figures
    whose = "the other node" if judgement.subject in INTERFACE_SETTINGS else peer
    return {
        "loopback": "lo reaches only the node itself",
        "no-interface": "the interface doesn't exist",
        "no-link": "it has no link",
        "no-address": "it has no IPv4 address",
        "other-network": f"its network, {figures.get('network')}, holds no address of {whose}",
        "peers": f"it is {peer}'s",
        "nobodys": f"no interface of {rank.node.name} has it",
        "address-no-link": f"{figures.get('interface')}, which has it, has no link",
        "meets-itself": "each node reaches only itself there",
        "not-head": f"{pair.head.node.name}, where rank 0 runs, doesn't have it",
    }[judgement.case]


def _finding(pair: Pair, rank: EngineRank, facts: PlaceFacts, judgement: Judgement) -> Finding:
    node, problem, peer = rank.node, _problem(pair, rank, judgement), pair.other(rank).node.name
    setting = _written(facts.setting, facts.value)
    good = [
        (interface.name, address)
        for interface in facts.interfaces
        for address in interface.addresses
        if interface.is_up is not False and reaches_peer(interface, facts.peer_addresses)
    ]
    value = _fitting_value(facts.setting, good)
    change = Change(by_node={node.name: Change(environment={facts.setting: value})}) if value else None
    fitting = ", ".join(f"{name} ({address})" for name, address in good) or "none that is known"
    return Finding(
        rule=judge_place.id,
        severity=SEVERITY[judgement.state],
        confidence=Confidence.CONFIRMED if judgement.is_certain else Confidence.SUSPECTED,
        title=f"{setting} can't work on {node.name}: {problem}",
        explanation=(
            "The ranks advertise this and then wait for each other, until a timeout of ten minutes or for ever, "
            f"mostly without an error. Interfaces of {node.name} that share a network with "
            f"{peer}: {fitting}. Names differ from host to host: set each host's own."
        ),
        settles=""
        if judgement.is_certain
        else "A route between the two networks would make it work: ping one from the other.",
        evidence=(
            said(rank, setting),
            *(
                Evidence(
                    source=f"{node.name} {interface.name}",
                    text=f"{'up' if interface.is_up else 'no link'}, {' '.join(interface.addresses) or 'no address'}",
                )
                for interface in node.interfaces[:6]
            ),
        ),
        remedies=(
            Remedy(
                title=(
                    f"Set {_written(facts.setting, value)} on {node.name}, in the network of {peer}"
                    if value
                    else f"Set {facts.setting} on {node.name} to an interface or address in the network of {peer}"
                ),
                steps=(
                    *(() if value else ("ip -br -4 addr   # on both nodes",)),
                    "ss -tn state syn-sent   # shows where a rank tries to connect and gets no answer",
                    "start both ranks again",
                ),
                cost="the time to load",
                action="relaunch" if change is not None else None,
                change=change,
            ),
        ),
        references=("vllm-project/vllm#40991", "field report 002"),
        nodes=(node.name,),
        subject=facts.setting,
        engine=rank.engine.name,
        brief=f"{setting}: {problem}",
    )


def _written(setting: str, value: str) -> str:
    return f"{setting}{' ' if setting.startswith('-') else '='}{value}"


def _fitting_value(setting: str, good: list[tuple[str, str]]) -> str:
    """The interface or address to set; empty where none is known, or where the setting is a flag: it is the head's
    address, on each node."""
    if not good or setting.startswith("-"):
        return ""
    name, address = good[0]
    return name if setting in INTERFACE_SETTINGS else address.partition("/")[0]
