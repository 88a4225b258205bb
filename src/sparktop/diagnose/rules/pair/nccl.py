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
from sparktop.diagnose.rule import SEVERITY, check_rule
from sparktop.diagnose.rules.pair.rank_problems import rank_problems
from sparktop.engines.pair import Team, addresses_of, engine_evidence, knows_all_variables, variables, whole
from sparktop.engines.ranks import EngineRank
from sparktop.knowledge.card import found, remedies
from sparktop.model.change import Change
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState


def hca_facts(pair: Team, rank: EngineRank) -> HcaFacts:
    """NCCL_IB_HCA of a rank, and the RDMA ports of its node."""
    settings = variables(rank)
    return HcaFacts(
        value=settings.get("NCCL_IB_HCA"),
        ports=rank.node.rdma_ports,
        knows_environment=knows_all_variables(rank),
        is_tcp=settings.get("NCCL_IB_DISABLE") == "1",
        serves=pair.is_up,
    )


@check_rule(judge_hca_names, hold_s=1.0, follows=("cluster.link-down",))
def hca_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-wrong: NCCL_IB_HCA names a device that doesn't exist, or none that is up."""
    for _, rank, facts, judgement in rank_problems(fleet, judge_hca_names, hca_facts):
        node, up = rank.node.name, [port.device for port in facts.ports if port.is_active]
        value = ",".join(named_items(facts.value) or ())
        missing = tuple(filter(None, str(judgement.figures["missing"]).split(",")))
        yield found(
            judge_hca_names.id,
            "misnamed",
            {
                "node": node,
                "value": value,
                "missing": missing,
                "is": "are" if len(missing) > 1 else "is",
                "dead": judgement.case == "dead",
                "up": ", ".join(up),
            },
            severity=SEVERITY[judgement.state],
            evidence=(
                engine_evidence(rank, f"NCCL_IB_HCA={value}"),
                *(
                    Evidence(source=f"{node} {port.device}", text=f"{port.state}, {port.interface or '?'}")
                    for port in facts.ports
                ),
            ),
            remedies=_pin_devices({node: up}),
            nodes=(node,),
            subject=rank.engine.name,
        )


def _pin_devices(up_of_node: Mapping[str, Sequence[str]]) -> tuple[Remedy, ...]:
    """Name each node's own devices that are up, all in one relaunch."""
    nodes_of: dict[str, list[str]] = {}
    for node, up in up_of_node.items():
        nodes_of.setdefault(",".join(up), []).append(node)
    is_known = all(up_of_node.values())
    settings = tuple(f"NCCL_IB_HCA={up} on {' and '.join(nodes)}" for up, nodes in nodes_of.items())
    changes = {node: Change(environment={"NCCL_IB_HCA": up}) for up, nodes in nodes_of.items() for node in nodes}
    figures = {"settings": settings, "change": Change(by_node=changes)} if is_known else {"nodes": tuple(up_of_node)}
    return remedies(judge_hca_pinned.id, "unset", figures)


@check_rule(judge_hca_pinned, hold_s=10.0)
def hca_unset(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-unset: nothing pins NCCL to the RDMA devices."""
    for pair in whole(fleet):
        judgements = [judge_hca_pinned(hca_facts(pair, rank)) for rank in pair.ranks]
        if not all(one.is_problem and one.is_certain for one in judgements):
            continue
        if not all(rank.node.rdma_ports for rank in pair.ranks):
            continue
        up = {rank.node.name: [port.device for port in rank.node.rdma_ports if port.is_active] for rank in pair.ranks}
        yield found(
            judge_hca_pinned.id,
            "unset",
            {"pair": pair.name},
            evidence=tuple(
                Evidence(source=f"{rank.node.name} RDMA", text=f"ACTIVE: {', '.join(up[rank.node.name])}")
                for rank in pair.ranks
            ),
            remedies=_pin_devices(up),
            nodes=pair.nodes,
            subject=pair.name,
        )


@check_rule(judge_gid, hold_s=1.0)
def gid_index(fleet: FleetState) -> Iterable[Finding]:
    """cluster.gid-index: NCCL_IB_GID_INDEX is no RoCE v2 IPv4 entry of a port in use."""
    for pair, rank, facts, judgement in rank_problems(fleet, judge_gid, _gid_facts):
        node, wrong = rank.node.name, ports_without_gid(facts)
        right = {port.device: [str(index) for index, _ in port.roce_v2_gids] for port in wrong}
        fitting = ", ".join(f"{' or '.join(indices) or 'none'} for {device}" for device, indices in right.items())
        yield found(
            judge_gid.id,
            "no-address",
            {"node": node, "value": facts.value, "fitting": fitting, "serves": pair.is_up},
            severity=SEVERITY[judgement.state],
            evidence=(
                engine_evidence(rank, f"NCCL_IB_GID_INDEX={facts.value}"),
                *(
                    Evidence(
                        source=f"{node} {port.device}",
                        text="RoCE v2: " + ", ".join(f"{index} is {address}" for index, address in port.roce_v2_gids),
                    )
                    for port in wrong
                ),
            ),
            nodes=(node,),
            subject=rank.engine.name,
        )


def _gid_facts(pair: Team, rank: EngineRank) -> GidFacts:
    return GidFacts(
        value=variables(rank).get("NCCL_IB_GID_INDEX"),
        ports=tuple(named_ports(hca_facts(pair, rank)) or rank.node.rdma_ports),
        serves=pair.is_up,
    )


@check_rule(judge_place, hold_s=1.0)
def interface_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.interface-wrong: a rank is configured with an interface or address at which its peer can't reach it.

    An engine that came up has disproved it.
    """
    for pair, rank in ((team, rank) for team in whole(fleet) if not team.is_up for rank in team.ranks):
        container = rank.engine.container
        if container is not None and container.network_mode not in ("", "host"):
            continue  # interfaces inside the container are its own
        settings = variables(rank)
        values = {setting: settings.get(setting) for setting in (*INTERFACE_SETTINGS, *ADDRESS_SETTINGS)}
        values |= {setting: rank.engine.command.value(setting) for setting in MEETING_SETTINGS}
        for setting, value in values.items():
            facts = PlaceFacts(
                setting=setting,
                value=value or "",
                interfaces=rank.node.interfaces,
                peer_addresses=frozenset[str]().union(*(addresses_of(other.node) for other in pair.others(rank))),
                head_addresses=addresses_of(pair.head.node),
                is_starting=pair.is_coming,
            )
            judgement = judge_place(facts)
            if judgement.is_problem:
                yield _finding(pair, rank, facts, judgement)


def _finding(pair: Team, rank: EngineRank, facts: PlaceFacts, judgement: Judgement) -> Finding:
    node, given = rank.node, _written(facts.setting, facts.value)
    good = [
        (interface.name, address)
        for interface in facts.interfaces
        for address in interface.addresses
        if interface.is_up is not False and reaches_peer(interface, facts.peer_addresses)
    ]
    value = _fitting_value(facts.setting, good)
    return found(
        judge_place.id,
        judgement.case,
        {
            **judgement.figures,
            "node": node.name,
            "peer": pair.others(rank)[0].node.name,
            "head": pair.head.node.name,
            "name": facts.setting,
            "given": given,
            "fitting": ", ".join(f"{name} ({address})" for name, address in good) or "none that is known",
            "wanted": _written(facts.setting, value) if value else None,
            "change": Change(by_node={node.name: Change(environment={facts.setting: value})}) if value else None,
        },
        severity=SEVERITY[judgement.state],
        confidence=Confidence.CONFIRMED if judgement.is_certain else Confidence.SUSPECTED,
        evidence=(
            engine_evidence(rank, given),
            *(
                Evidence(
                    source=f"{node.name} {interface.name}",
                    text=f"{'up' if interface.is_up else 'no link'}, {' '.join(interface.addresses) or 'no address'}",
                )
                for interface in node.interfaces[:6]
            ),
        ),
        nodes=(node.name,),
        subject=facts.setting,
        engine=rank.engine.name,
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
