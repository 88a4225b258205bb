"""Rules on what the containers of an engine over several nodes lack or are about to lose.

Network, RDMA devices, locked memory, Ray's memory monitor switched off, and IPC objects that outlive a login.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.container import NetworkFacts, RdmaAccessFacts, judge_memlock, judge_network, judge_rdma_devices
from sparktop.checks.host import LingerFacts, judge_linger
from sparktop.checks.node_facts import engine_user_id
from sparktop.checks.ray import MONITOR, RayFacts, judge_memory_monitor
from sparktop.diagnose.rule import SEVERITY, check_rule
from sparktop.diagnose.rules.pair.link import ON_TCP
from sparktop.diagnose.rules.pair.rank_problems import rank_problems, team_problems
from sparktop.engines.pair import Team, engine_evidence, knows_all_variables, variables
from sparktop.engines.ranks import EngineRank
from sparktop.knowledge.card import found
from sparktop.model.finding import Confidence, Evidence, Finding, Phase
from sparktop.model.fleet import FleetState


@check_rule(judge_network, hold_s=1.0)
def bridge_network(fleet: FleetState) -> Iterable[Finding]:
    """cluster.bridge-network: a rank's container is on Docker's bridge."""
    for pair, rank, facts, judgement in rank_problems(fleet, judge_network, _network):
        node, is_bridge = rank.node.name, judgement.case == "bridge"
        yield found(
            judge_network.id,
            "isolated",
            {"pair": pair.name, "node": node, "on_bridge": is_bridge, "mode": facts.mode},
            severity=SEVERITY[judgement.state],
            evidence=(engine_evidence(rank, f"network mode {facts.mode}"),),
            nodes=(node,),
            subject=rank.engine.name,
        )


@check_rule(judge_rdma_devices, hold_s=10.0)
def no_infiniband_device(fleet: FleetState) -> Iterable[Finding]:
    """cluster.no-infiniband-device: the containers of some ranks can't open their node's RDMA devices."""
    for pair, problems in team_problems(fleet, judge_rdma_devices, _rdma_access):
        rank, *_ = problems[0]
        nodes = tuple(other.node.name for other, _, _ in problems)
        told = next(
            (
                one
                for one in fleet.findings
                if one.rule == ON_TCP and one.phase is Phase.FIRING and one.subject == pair.name
            ),
            None,
        )
        yield found(
            judge_rdma_devices.id,
            "closed",
            {
                "pair": pair.name,
                "nodes": nodes,
                "on_tcp": told is not None,
                "engine": rank.engine.name if told is None and len(nodes) == 1 else None,
                "pair_lacks": told is None and len(nodes) > 1,
                "seen": told.brief if told is not None else None,
            },
            evidence=tuple(
                line
                for other, facts, _ in problems
                for line in (
                    engine_evidence(other, f"not privileged; devices: {' '.join(facts.devices) or 'none'}"),
                    Evidence(source=f"{other.node.name} RDMA", text=f"ACTIVE: {_names(other)}"),
                )
            ),
            nodes=tuple(name for name in pair.nodes if name in nodes),
            subject=rank.engine.name,
        )


@check_rule(judge_memlock, hold_s=10.0)
def memlock(fleet: FleetState) -> Iterable[Finding]:
    """cluster.memlock: a rank's container has the RDMA devices but may not lock memory for them."""
    for _, rank, facts, _ in rank_problems(fleet, judge_memlock, _rdma_access):
        if judge_rdma_devices(facts).is_problem:  # whose remedy lifts the limit too
            continue
        engine, node = rank.engine, rank.node.name
        yield found(
            judge_memlock.id,
            "limited",
            {
                "engine": engine.name,
                "node": node,
                "container": engine.container.name if engine.container else engine.name,
            },
            evidence=(engine_evidence(rank, f"ulimits: {' '.join(facts.ulimits) or 'none given'}"),),
            nodes=(node,),
            subject=engine.name,
        )


@check_rule(judge_memory_monitor, hold_s=1.0)
def ray_monitor(fleet: FleetState) -> Iterable[Finding]:
    """cluster.ray-monitor: Ray's memory monitor may kill the engine's workers."""
    for pair, problems in team_problems(fleet, judge_memory_monitor, _ray):
        bare = [rank for rank, _, _ in problems]
        is_sure = all(judgement.is_certain for *_, judgement in problems)
        yield found(
            judge_memory_monitor.id,
            "on",
            {"pair": pair.name, "nodes": tuple(rank.node.name for rank in bare)},
            confidence=Confidence.CONFIRMED if is_sure else Confidence.SUSPECTED,
            evidence=tuple(
                engine_evidence(rank, f"{MONITOR}={variables(rank).get(MONITOR, ' not set')}") for rank in bare
            ),
            nodes=pair.nodes,
            subject=pair.name,
        )


@check_rule(judge_linger, hold_s=1.0)
def linger(fleet: FleetState) -> Iterable[Finding]:
    """cluster.linger: logind removes the IPC objects of an engine when the user it runs under logs out."""
    for _, rank, facts, judgement in rank_problems(fleet, judge_linger, _linger):
        host, container, node = facts.host, rank.engine.container, rank.node.name
        removes = "RemoveIPC=yes" if host.removes_ipc else "RemoveIPC=yes by default"
        yield found(
            judge_linger.id,
            "at-logout",
            {"engine": rank.engine.name, "node": node, "user": host.user, "removes": removes},
            severity=SEVERITY[judgement.state],
            evidence=(
                Evidence(source=f"{node} facts", text=f"{removes}, Linger=no for {host.user}"),
                engine_evidence(
                    rank, f"ipc {container.ipc_mode if container else 'of the host'}, user id {host.user_id}"
                ),
            ),
            nodes=(node,),
            subject=rank.engine.name,
        )


def _network(pair: Team, rank: EngineRank) -> NetworkFacts:
    container = rank.engine.container
    return NetworkFacts(mode=(container.network_mode or None) if container else None, serves=pair.is_up)


def _rdma_access(pair: Team, rank: EngineRank) -> RdmaAccessFacts | None:
    """None: its container wasn't inspected."""
    container = rank.engine.container
    if container is None or not container.ipc_mode:
        return None
    return RdmaAccessFacts(
        is_privileged=container.is_privileged,
        devices=container.devices,
        mounts=container.mounts,
        ulimits=container.ulimits,
        is_tcp=variables(rank).get("NCCL_IB_DISABLE") == "1",
        has_rdma=bool(_names(rank)),
        bytes_per_s=rank.node.rdma_bytes_per_s or 0.0,
        serves=pair.is_up,
    )


def _names(rank: EngineRank) -> str:
    return ", ".join(port.device for port in rank.node.rdma_ports if port.is_active)


def _linger(_: Team, rank: EngineRank) -> LingerFacts | None:
    host, container = rank.node.facts, rank.engine.container
    if host is None:
        return None
    return LingerFacts(
        host=host,
        shares_ipc=container is None or container.ipc_mode == "host",
        engine_user_id=engine_user_id(rank.node, rank.engine.pids),
    )


def _ray(pair: Team, rank: EngineRank) -> RayFacts:
    environment = variables(rank)
    return RayFacts(
        uses_ray=_uses_ray(pair),
        setting=environment.get(MONITOR),
        is_readable=bool(environment),
        knows_environment=knows_all_variables(rank) or _starts_ray(rank),
    )


def _uses_ray(pair: Team) -> bool:
    return any(
        rank.engine.command.value("--distributed-executor-backend") == "ray"
        or bool(rank.engine.argv and rank.engine.argv[0].startswith("ray::"))
        or _starts_ray(rank)
        for rank in pair.ranks
    )


def _starts_ray(rank: EngineRank) -> bool:
    argv = rank.engine.container.argv if rank.engine.container else ()
    return "ray start" in " ".join(argv)
