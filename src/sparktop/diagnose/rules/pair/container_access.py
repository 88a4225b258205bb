"""Rules on what the containers of a two-node engine lack or are about to lose.

Network, RDMA devices, locked memory, Ray's memory monitor switched off, and IPC objects that outlive a login.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.container import NetworkFacts, RdmaAccessFacts, judge_memlock, judge_network, judge_rdma_devices
from sparktop.checks.host import LingerFacts, judge_linger
from sparktop.checks.node_facts import engine_user_id
from sparktop.checks.ray import MONITOR, RayFacts, judge_memory_monitor
from sparktop.cmdline.engine_command import command_of
from sparktop.diagnose.rule import SEVERITY, check_rule, remedies_of
from sparktop.diagnose.rules.pair.link import ON_TCP
from sparktop.diagnose.rules.pair.rank_problems import rank_problems
from sparktop.engines.pair import Pair, knows_all_variables, said, variables
from sparktop.engines.ranks import EngineRank
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState


@check_rule(judge_network, Severity.CRITICAL, hold_s=1.0)
def bridge_network(fleet: FleetState) -> Iterable[Finding]:
    """cluster.bridge-network: a rank's container is on Docker's bridge."""
    for pair, rank, facts, judgement in rank_problems(fleet, judge_network, _network):
        place = "on Docker's bridge network" if judgement.case == "bridge" else "not on the host's network"
        yield Finding(
            rule=judge_network.id,
            severity=SEVERITY[judgement.state],
            title=f"The rank of {pair.name} on {rank.node.name} is {place}",
            explanation=(
                "A rank advertises its own address, and the other node can't reach one on the bridge. The rendezvous "
                "of NCCL and Gloo hangs. RDMA devices have no addresses there. A two-node engine needs `--network "
                "host`."
            ),
            evidence=(said(rank, f"network mode {facts.mode}"),),
            remedies=remedies_of(judgement),
            references=judge_network.sources,
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief=f"network mode {facts.mode}",
        )


@check_rule(judge_rdma_devices, Severity.WARNING, hold_s=10.0)
def no_infiniband_device(fleet: FleetState) -> Iterable[Finding]:
    """cluster.no-infiniband-device: the containers of one or both ranks can't open their node's RDMA devices."""
    problems = list(rank_problems(fleet, judge_rdma_devices, _rdma_access))
    if not problems:
        return
    pair, rank, _, judgement = problems[0]
    nodes = [other.node.name for _, other, _, _ in problems]
    whose = f"The container of {rank.engine.name} on {rank.node.name} lacks"
    if len(nodes) > 1:
        whose = f"The containers of {pair.name} on {' and '.join(nodes)} lack"
    told = next((one for one in fleet.findings if one.rule == ON_TCP and one.phase is Phase.FIRING), None)
    yield Finding(
        rule=judge_rdma_devices.id,
        severity=SEVERITY[judgement.state],
        title=f"{pair.name} uses TCP, not RDMA: no /dev/infiniband on {' and '.join(nodes)}"
        if told is not None
        else f"{whose} /dev/infiniband",
        explanation=(
            "The node has RDMA ports that are up, but the container can't open them. NCCL finds no device "
            "(`NET/IB : No device found`) and uses TCP, without an error and several times slower."
        ),
        evidence=tuple(
            line
            for _, other, facts, _ in problems
            for line in (
                said(other, f"not privileged; devices: {' '.join(facts.devices) or 'none'}"),
                Evidence(source=f"{other.node.name} RDMA", text=f"ACTIVE: {_names(other)}"),
            )
        ),
        remedies=remedies_of(judgement),
        references=("field report 002", "NVIDIA developer forum 366325"),
        nodes=tuple(name for name in pair.nodes if name in nodes),
        subject=rank.engine.name,
        brief=told.brief if told is not None else "no /dev/infiniband",
    )


@check_rule(judge_memlock, Severity.WARNING, hold_s=10.0)
def memlock(fleet: FleetState) -> Iterable[Finding]:
    """cluster.memlock: a rank's container has the RDMA devices but may not lock memory for them."""
    for _, rank, facts, judgement in rank_problems(fleet, judge_memlock, _rdma_access):
        if judge_rdma_devices(facts).is_problem:  # whose remedy lifts the limit too
            continue
        name = rank.engine.container.name if rank.engine.container else rank.engine.name
        yield Finding(
            rule=judge_memlock.id,
            severity=SEVERITY[judgement.state],
            confidence=Confidence.SUSPECTED,
            title=f"The container of {rank.engine.name} on {rank.node.name} may lock too little memory for RDMA",
            explanation=(
                "RDMA locks its buffers in memory, and Docker's default limit is a few MiB. NCCL then fails with "
                "`ibv_reg_mr` or `ibv_create_cq` and `Cannot allocate memory`. It needs `--ulimit memlock=-1`."
            ),
            settles=f"`docker exec {name} sh -c 'ulimit -l'`: unlimited is fine; the daemon's own default may be.",
            evidence=(said(rank, f"ulimits: {' '.join(facts.ulimits) or 'none given'}"),),
            remedies=remedies_of(judgement),
            references=judge_memlock.sources,
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief="memlock not lifted",
        )


@check_rule(judge_memory_monitor, Severity.WARNING, hold_s=1.0)
def ray_monitor(fleet: FleetState) -> Iterable[Finding]:
    """cluster.ray-monitor: Ray's memory monitor may kill the engine's workers."""
    problems = list(rank_problems(fleet, judge_memory_monitor, _ray))
    if not problems:
        return
    pair, _, _, judgement = problems[0]
    bare = [rank for _, rank, _, _ in problems]
    sure = all(judgement.is_certain for *_, judgement in problems)
    where = " and ".join(rank.node.name for rank in bare)
    yield Finding(
        rule=judge_memory_monitor.id,
        severity=SEVERITY[judgement.state],
        confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
        title=f"Ray's memory monitor is on for {pair.name} on {where}",
        explanation=(
            "Ray kills a worker when 95 % of the machine's memory is used, and checks four times a second. On a "
            "Spark the GPU's memory is the machine's, so Ray kills a model that fills it as intended. "
            "`RAY_memory_monitor_refresh_ms=0` disables the monitor; set it before `ray start` runs."
        ),
        settles="" if sure else "A script inside the container may set it: check the environment of its raylet.",
        evidence=tuple(said(rank, f"{MONITOR}={variables(rank).get(MONITOR, ' not set')}") for rank in bare),
        remedies=remedies_of(judgement),
        references=("field report 002", "Ray documentation: memory monitor, 250 ms and 0.95 by default"),
        nodes=pair.nodes,
        subject=pair.name,
        brief="RAY_memory_monitor_refresh_ms is not 0",
    )


@check_rule(judge_linger, Severity.WARNING, hold_s=1.0)
def linger(fleet: FleetState) -> Iterable[Finding]:
    """cluster.linger: logind removes the IPC objects of an engine when the user it runs under logs out."""
    for _, rank, facts, judgement in rank_problems(fleet, judge_linger, _linger):
        host, container = facts.host, rank.engine.container
        removes = "RemoveIPC=yes" if host.removes_ipc else "RemoveIPC=yes by default"
        yield Finding(
            rule=judge_linger.id,
            severity=SEVERITY[judgement.state],
            title=f"{rank.engine.name} loses its shared memory when user {host.user} logs out of {rank.node.name}",
            explanation=(
                f"It runs under {host.user}'s id and shares the host's IPC. logind has {removes} and the user "
                "doesn't linger. So when the last session ends, logind removes the engine's semaphores and shared "
                "memory. A start over ssh that returns at once is enough. The worker dies in `SemLock._rebuild` with "
                "a FileNotFoundError, and the head waits for it for ever. This console is such a session too."
            ),
            evidence=(
                Evidence(source=f"{rank.node.name} facts", text=f"{removes}, Linger=no for {host.user}"),
                said(rank, f"ipc {container.ipc_mode if container else 'of the host'}, user id {host.user_id}"),
            ),
            remedies=(
                Remedy(
                    title="Enable linger for the user",
                    steps=(f"sudo loginctl enable-linger {host.user}   # on both nodes; at once",),
                    cost="nothing",
                    action="enable-linger",
                ),
            ),
            references=("eugr/spark-vllm-docker#352", "spark-arena/sparkrun#285"),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief=f"{removes}, Linger=no",
        )


def _network(pair: Pair, rank: EngineRank) -> NetworkFacts:
    container = rank.engine.container
    return NetworkFacts(mode=(container.network_mode or None) if container else None, serves=pair.is_up)


def _rdma_access(pair: Pair, rank: EngineRank) -> RdmaAccessFacts | None:
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


def _linger(_: Pair, rank: EngineRank) -> LingerFacts | None:
    host, container = rank.node.facts, rank.engine.container
    if host is None:
        return None
    return LingerFacts(
        host=host,
        shares_ipc=container is None or container.ipc_mode == "host",
        engine_user_id=engine_user_id(rank.node, rank.engine.pids),
    )


def _ray(pair: Pair, rank: EngineRank) -> RayFacts:
    environment = variables(rank)
    return RayFacts(
        uses_ray=_uses_ray(pair),
        setting=environment.get(MONITOR),
        is_readable=bool(environment),
        knows_environment=knows_all_variables(rank) or _starts_ray(rank),
    )


def _uses_ray(pair: Pair) -> bool:
    return any(
        command_of(rank.engine).value("--distributed-executor-backend") == "ray"
        or bool(rank.engine.argv and rank.engine.argv[0].startswith("ray::"))
        or _starts_ray(rank)
        for rank in pair.ranks
    )


def _starts_ray(rank: EngineRank) -> bool:
    argv = rank.engine.container.argv if rank.engine.container else ()
    return "ray start" in " ".join(argv)
