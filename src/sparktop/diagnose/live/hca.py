"""Which RDMA devices NCCL may use and what it calls them: NCCL_IB_HCA and NCCL_IB_GID_INDEX against what is there."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live.pair import Pair, knows_all_variables, pair_of, said, variables
from sparktop.diagnose.live.ranks import Rank
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import RdmaPort


def is_active(port: RdmaPort) -> bool:
    return port.state == "ACTIVE"


def hca_items(rank: Rank) -> list[str] | None:
    """The devices NCCL_IB_HCA names; None where it is not set, or only excludes."""
    value = variables(rank).get("NCCL_IB_HCA", "")
    if not value or value.startswith("^"):
        return None
    return [item.strip() for item in value.removeprefix("=").split(",") if item.strip()] or None


def devices_named(rank: Rank) -> list[RdmaPort] | None:
    """The ports of the node that NCCL_IB_HCA stands for; None where it names none or the node's are not known."""
    items = hca_items(rank)
    network = rank.node.network
    if items is None or network is None or not network.rdma_ports:
        return None
    return [port for port in network.rdma_ports if any(_stands_for(item, port, rank) for item in items)]


def _stands_for(item: str, port: RdmaPort, rank: Rank) -> bool:
    """As NCCL matches: by the beginning of the name unless the list begins with =, and by port where one is given."""
    name, _, number = item.partition(":")
    if number.isdecimal() and int(number) != port.port:
        return False
    exact = variables(rank).get("NCCL_IB_HCA", "").startswith("=")
    return port.device == name if exact else port.device.startswith(name)


def hca_wrong(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-wrong: NCCL_IB_HCA names a device that isn't there, or none that is up."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    for rank in pair.ranks:
        items, named = hca_items(rank), devices_named(rank)
        if items is None or named is None:
            continue
        ports = rank.node.network.rdma_ports if rank.node.network else ()
        missing = [item for item in items if not any(_stands_for(item, port, rank) for port in ports)]
        up = [port.device for port in ports if is_active(port)]
        is_dead = not any(map(is_active, named))
        if not missing and not (is_dead and up):
            continue
        value = ",".join(items)
        what = (
            f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not there"
            if missing
            else "none of them is up"
        )
        yield Finding(
            rule="cluster.hca-wrong",
            severity=Severity.CRITICAL if is_dead and not pair.is_up else Severity.WARNING,
            title=f"NCCL_IB_HCA={value} doesn't fit {rank.node.name}: {what}",
            explanation=(
                "The names depend on the port that is cabled and may differ from one Spark to the other. "
                + (
                    "With no device of that name NCCL takes TCP without an error, or waits for its peer for ever."
                    if is_dead
                    else "The devices that are named and there are used; half of the bandwidth is lost, since a cable "
                    "has two of them."
                )
            ),
            evidence=(
                said(rank, f"NCCL_IB_HCA={value}"),
                *(
                    Evidence(source=f"{rank.node.name} {port.device}", text=f"{port.state}, {port.interface or '?'}")
                    for port in ports
                ),
            ),
            remedies=(_name_them(rank, up),),
            references=("field report 002", "NVIDIA/nccl: NCCL_IB_HCA"),
            nodes=(rank.node.name,),
            subject=rank.engine.name,
            brief=f"NCCL_IB_HCA={value}; up: {', '.join(up) or 'none'}",
        )


def _name_them(rank: Rank, up: list[str]) -> Remedy:
    return Remedy(
        title=f"Name the devices of {rank.node.name} that are up, for that host alone",
        steps=(
            "ibdev2netdev | grep Up   # or: grep . /sys/class/infiniband/*/ports/1/state",
            f"NCCL_IB_HCA={','.join(up) or 'DEVICE,DEVICE'}",
        ),
        cost="the time to load",
        action="relaunch",
        change=Change(by_node={rank.node.name: Change(environment={"NCCL_IB_HCA": ",".join(up)})}) if up else None,
    )


def hca_unset(fleet: FleetState) -> Iterable[Finding]:
    """cluster.hca-unset: nothing pins NCCL to the RDMA devices."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    bare = [rank for rank in pair.ranks if knows_all_variables(rank) and "NCCL_IB_HCA" not in variables(rank)]
    up = {rank.node.name: _up(rank) for rank in bare}
    if len(bare) < 2 or not all(up.values()):
        return
    yield Finding(
        rule="cluster.hca-unset",
        severity=Severity.INFO,
        title=f"{pair.name} runs without NCCL_IB_HCA: NCCL chooses its RDMA devices by itself",
        explanation=(
            "Most often it chooses well. A field report found that without NCCL_IB_HCA two Sparks can hang silently at "
            "the start, with no error and no output; naming the devices that are cabled leaves it no choice."
        ),
        evidence=tuple(
            Evidence(source=f"{rank.node.name} RDMA", text=f"ACTIVE: {', '.join(up[rank.node.name])}") for rank in bare
        ),
        remedies=tuple(_name_them(rank, up[rank.node.name]) for rank in bare),
        references=("field report 002",),
        nodes=pair.nodes,
        subject=pair.name,
        brief="NCCL_IB_HCA is not set",
    )


def _up(rank: Rank) -> list[str]:
    return [port.device for port in (rank.node.network.rdma_ports if rank.node.network else ()) if is_active(port)]


def gid_index(fleet: FleetState) -> Iterable[Finding]:
    """cluster.gid-index: NCCL_IB_GID_INDEX is no RoCE v2 IPv4 entry of a port in use."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    for rank in pair.ranks:
        value = variables(rank).get("NCCL_IB_GID_INDEX", "")
        if not value.isdecimal():
            continue
        ports = devices_named(rank) or (rank.node.network.rdma_ports if rank.node.network else ())
        wrong = [
            port
            for port in ports
            if is_active(port) and port.roce_v2_gids and int(value) not in {index for index, _ in port.roce_v2_gids}
        ]
        if wrong:
            yield _gid_finding(pair, rank, value, wrong)


def _gid_finding(pair: Pair, rank: Rank, value: str, wrong: list[RdmaPort]) -> Finding:
    node = rank.node.name
    right = {port.device: [str(index) for index, _ in port.roce_v2_gids] for port in wrong}
    fitting = ", ".join(f"{device} {' or '.join(indices)}" for device, indices in right.items())
    return Finding(
        rule="cluster.gid-index",
        severity=Severity.WARNING if pair.is_up else Severity.CRITICAL,
        title=f"NCCL_IB_GID_INDEX={value} is no RoCE v2 address of {node}",
        explanation=(
            f"On {node} the RoCE v2 IPv4 entries are: {fitting}. The index differs from one card to the next and moves "
            "after a reboot or a change of addresses; a wrong one hangs silently at NCCL's initialisation. Left out, "
            "NCCL finds the right one by itself."
            + (" It came up this time; the next start may not." if pair.is_up else "")
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
                title="Leave NCCL_IB_GID_INDEX out on both nodes, and start both ranks again",
                cost="the time to load",
                action="relaunch",
                change=Change(environment={"NCCL_IB_GID_INDEX": None}),
            ),
        ),
        references=("NVIDIA/nccl: NCCL_IB_GID_INDEX (default -1, chosen by NCCL)", "field report 002"),
        nodes=(node,),
        subject=rank.engine.name,
        brief=f"index {value}; there: {fitting}",
    )
