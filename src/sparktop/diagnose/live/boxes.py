"""What the containers of a two-node engine were not given, or are about to lose: network, RDMA devices, locked memory,
Ray's memory monitor switched off, and IPC objects that outlive a login."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live.hca import is_active
from sparktop.diagnose.live.links import FLOWING_BYTES_PER_S
from sparktop.diagnose.live.pair import Pair, knows_all_variables, pair_of, said, variables
from sparktop.diagnose.live.ranks import Rank, flag
from sparktop.model.change import INFINIBAND, MEMLOCK, Change
from sparktop.model.engine import Container
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState

MEMLOCK_BYTES = 1 << 30
FIRST_USER_ID = 1000
"""Below it are system users, whose objects logind leaves alone."""


def _relaunch(title: str, *steps: str, change: Change) -> Remedy:
    return Remedy(title=title, steps=steps, cost="the time to load", action="relaunch", change=change)


def bridge_network(fleet: FleetState) -> Iterable[Finding]:
    """cluster.bridge-network: a rank's container is on Docker's bridge."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    for rank in pair.ranks:
        box = rank.engine.container
        if box is None or not (box.network_mode in ("bridge", "default") or box.network_mode.endswith("_default")):
            continue
        yield Finding(
            rule="cluster.bridge-network",
            severity=Severity.WARNING if pair.is_up else Severity.CRITICAL,
            title=f"The rank of {pair.name} on {rank.node.name} is on Docker's bridge network",
            explanation=(
                "A rank advertises the address it sees, and on the bridge that is one the other node can't reach: the "
                "rendezvous of NCCL and Gloo hangs. RDMA devices have no addresses there. A two-node engine needs "
                "`--network host`."
            ),
            evidence=(said(rank, f"network mode {box.network_mode}"),),
            remedies=(
                _relaunch(
                    "Start both ranks on the host's network",
                    "docker run --network host --ipc host ...   # compose: network_mode: host",
                    change=Change(options={"NetworkMode": "host", "IpcMode": "host"}),
                ),
            ),
            references=("field report 002",),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief=f"network mode {box.network_mode}",
        )


def no_infiniband_device(fleet: FleetState) -> Iterable[Finding]:
    """cluster.no-infiniband-device: a rank's container can't open the RDMA devices that the node has."""
    pair = pair_of(fleet)
    for rank, box in _boxed(pair):
        if _sees_infiniband(box) or not _has_rdma(rank) or variables(rank).get("NCCL_IB_DISABLE") == "1":
            continue
        if (rank.node.rdma_bytes_per_s or 0.0) > FLOWING_BYTES_PER_S:
            continue
        yield Finding(
            rule="cluster.no-infiniband-device",
            severity=Severity.WARNING,
            title=f"The container of {rank.engine.name} on {rank.node.name} was not given /dev/infiniband",
            explanation=(
                "The node has RDMA ports that are up, and the container may not open them: NCCL finds no device "
                "(`NET/IB : No device found`) and takes TCP, without an error and several times slower."
            ),
            evidence=(
                said(rank, f"not privileged; devices: {' '.join(box.devices) or 'none'}"),
                Evidence(source=f"{rank.node.name} RDMA", text=f"ACTIVE: {_names(rank)}"),
            ),
            remedies=(
                _relaunch(
                    "Give both containers the devices",
                    "--device=/dev/infiniband --ulimit memlock=-1   # or --privileged, as two-node launchers do",
                    change=INFINIBAND,
                ),
            ),
            references=("field report 002", "NVIDIA developer forum 366325"),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief="no /dev/infiniband",
        )


def memlock(fleet: FleetState) -> Iterable[Finding]:
    """cluster.memlock: a rank's container has the RDMA devices and no leave to lock memory for them."""
    pair = pair_of(fleet)
    for rank, box in _boxed(pair):
        if not _sees_infiniband(box) or not _has_rdma(rank) or _memlock_bytes(box) >= MEMLOCK_BYTES:
            continue
        if (rank.node.rdma_bytes_per_s or 0.0) > FLOWING_BYTES_PER_S or (pair is not None and pair.is_up):
            continue
        yield Finding(
            rule="cluster.memlock",
            severity=Severity.WARNING,
            confidence=Confidence.SUSPECTED,
            title=f"The container of {rank.engine.name} on {rank.node.name} may lock too little memory for RDMA",
            explanation=(
                "RDMA registers its buffers as locked memory, and Docker's default limit is a few MiB: NCCL then fails "
                "with `ibv_reg_mr` or `ibv_create_cq` and `Cannot allocate memory`. It needs `--ulimit memlock=-1`."
            ),
            settles=f"`docker exec {box.name} sh -c 'ulimit -l'`: unlimited is well; the daemon's own default may be.",
            evidence=(said(rank, f"ulimits: {' '.join(box.ulimits) or 'none given'}"),),
            remedies=(
                _relaunch(
                    "Lift the limit on both ranks",
                    "--ulimit memlock=-1",
                    change=MEMLOCK,
                ),
            ),
            references=("field report 002",),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief="memlock not lifted",
        )


def ray_monitor(fleet: FleetState) -> Iterable[Finding]:
    """cluster.ray-monitor: Ray's memory monitor may kill the workers of an engine."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole or not _uses_ray(pair):
        return
    bare = [
        rank for rank in pair.ranks if (given := variables(rank)) and given.get("RAY_memory_monitor_refresh_ms") != "0"
    ]
    if not bare:
        return
    sure = all(knows_all_variables(rank) or _starts_ray(rank) for rank in bare)
    where = " and ".join(rank.node.name for rank in bare)
    yield Finding(
        rule="cluster.ray-monitor",
        severity=Severity.WARNING,
        confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
        title=f"Ray's memory monitor is on for {pair.name} on {where}",
        explanation=(
            "Ray kills a worker when 95 % of the machine's memory is taken, and looks four times a second. On a Spark "
            "the GPU's memory is the machine's, so a model that fills it as it should is killed in the middle of its "
            "work. `RAY_memory_monitor_refresh_ms=0` switches it off; it must be there when `ray start` runs."
        ),
        settles="" if sure else "A script inside the container may set it: look at the environment of its raylet.",
        evidence=tuple(
            said(
                rank,
                f"RAY_memory_monitor_refresh_ms={variables(rank).get('RAY_memory_monitor_refresh_ms', ' not set')}",
            )
            for rank in bare
        ),
        remedies=(
            _relaunch(
                "Switch it off on both nodes, before `ray start`",
                "docker run -e RAY_memory_monitor_refresh_ms=0 ...",
                change=Change(environment={"RAY_memory_monitor_refresh_ms": "0"}),
            ),
        ),
        references=("field report 002", "Ray documentation: memory monitor, 250 ms and 0.95 by default"),
        nodes=pair.nodes,
        subject=pair.name,
        brief="RAY_memory_monitor_refresh_ms is not 0",
    )


def linger(fleet: FleetState) -> Iterable[Finding]:
    """cluster.linger: at the user's logout logind removes the IPC objects of an engine that runs under that user."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    for rank in pair.ranks:
        facts, box = rank.node.facts, rank.engine.container
        if facts is None or facts.removes_ipc is not True or facts.is_lingering is not False:
            continue
        if facts.user_id is None or facts.user_id < FIRST_USER_ID or (box is not None and box.ipc_mode != "host"):
            continue
        rows = rank.node.processes.processes if rank.node.processes else ()
        if not any(row.pid in rank.engine.pids and row.user_id == facts.user_id for row in rows):
            continue  # root's objects stay
        yield Finding(
            rule="cluster.linger",
            severity=Severity.WARNING,
            title=f"When {facts.user} logs out of {rank.node.name}, {rank.engine.name} loses its shared memory",
            explanation=(
                f"It runs under {facts.user}'s id and shares the host's IPC. logind has RemoveIPC=yes and the user "
                "doesn't linger, so the end of the last session removes the semaphores and shared memory it needs. "
                "A start over ssh that returns at once does it: the worker dies in `SemLock._rebuild` with a "
                "FileNotFoundError, and the head waits for it for ever. This console is such a session too."
            ),
            evidence=(
                Evidence(source=f"{rank.node.name} facts", text=f"RemoveIPC=yes, Linger=no for {facts.user}"),
                said(rank, f"ipc {box.ipc_mode if box else 'of the host'}, user id {facts.user_id}"),
            ),
            remedies=(
                Remedy(
                    title="Let the user linger",
                    steps=(f"sudo loginctl enable-linger {facts.user}   # on both nodes; at once",),
                    cost="nothing",
                ),
            ),
            references=("eugr/spark-vllm-docker#352", "spark-arena/sparkrun#285"),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief="RemoveIPC=yes, Linger=no",
        )


def _boxed(pair: Pair | None) -> Iterable[tuple[Rank, Container]]:
    """Ranks in containers that are not privileged and were inspected."""
    for rank in pair.ranks if pair is not None and pair.is_whole else ():
        box = rank.engine.container
        if box is not None and not box.is_privileged and box.ipc_mode:
            yield rank, box


def _sees_infiniband(box: Container) -> bool:
    mounted = any(mount.startswith(("/dev/infiniband", "/dev:")) for mount in box.mounts)
    return mounted or any(device.startswith("/dev/infiniband") for device in box.devices)


def _memlock_bytes(box: Container) -> float:
    for limit in box.ulimits:
        name, _, values = limit.partition("=")
        soft = values.partition(":")[0]
        if name == "memlock":
            return float("inf") if soft == "-1" else float(soft) if soft.isdecimal() else 0.0
    return 0.0


def _has_rdma(rank: Rank) -> bool:
    return bool(_names(rank))


def _names(rank: Rank) -> str:
    ports = rank.node.network.rdma_ports if rank.node.network else ()
    return ", ".join(port.device for port in ports if is_active(port))


def _uses_ray(pair: Pair) -> bool:
    return any(
        flag(rank.engine.argv, "--distributed-executor-backend") == "ray"
        or bool(rank.engine.argv and rank.engine.argv[0].startswith("ray::"))
        or _starts_ray(rank)
        for rank in pair.ranks
    )


def _starts_ray(rank: Rank) -> bool:
    argv = rank.engine.container.argv if rank.engine.container else ()
    return "ray start" in " ".join(argv)
