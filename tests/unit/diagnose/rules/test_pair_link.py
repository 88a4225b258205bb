"""The fabric of two Sparks: each rule fires on its signals only (field report 002's settings; facts on dual Sparks)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.table import over
from tests.unit.diagnose.rules.pair_support import (
    ENV,
    SERVE,
    bare,
    box,
    fabric,
    facts,
    found,
    loading,
    picture,
    rank,
    spark,
)

from sparktop.model.engine import EngineRates, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import NetworkReading
from sparktop.observe.history import remembering


def with_env(*pairs: str, up: bool = True, node_2: NetworkReading | None = None, **more: Any) -> FleetState:
    """The pair with rank 1's variables set so on top of the usual ones; not yet up on request."""
    names = {pair.partition("=")[0] for pair in pairs}
    given = (*(pair for pair in ENV if pair.partition("=")[0] not in names), *(p for p in pairs if not p.endswith("=")))
    ranks = [
        (rank if up else loading)(0, held=box(0, environment=given if more.get("both") else ENV)),
        (rank if up else loading)(1, held=box(1, environment=given)),
    ]
    network = node_2 or fabric(2, gid=5)
    return picture(
        spark(1, engines=(ranks[0],), rdma_bytes_per_s=more.get("flow", 812e6)),
        spark(2, engines=(ranks[1],), network=network, rdma_bytes_per_s=more.get("flow", 812e6)),
    )


# --- the cable


def test_mtu_apart() -> None:
    fleet = picture(bare(1), bare(2, network=fabric(2, mtu=1500)))
    finding = found(fleet)["mtu-differs"]
    remedy = finding.remedies[0]
    assert remedy.title == "Set MTU 9000 on enp1s0f0np0 and enP2p1s0f0np0 on spark2"
    both = "sudo ip link set enp1s0f0np0 mtu 9000 && sudo ip link set enP2p1s0f0np0 mtu 9000"
    assert remedy.steps[0] == f"on spark2: {both}"
    assert "PEER" not in remedy.steps[2]
    assert finding.severity is Severity.WARNING
    assert "9000 on spark1, 1500 on spark2" in finding.title
    assert len(finding.evidence) == 4
    assert found(picture(bare(1, network=fabric(1, mtu=1500)), bare(2, network=fabric(2, mtu=1500)))) == {}


def test_an_mtu_of_the_office_is_nobodys_matter() -> None:
    other = fabric(2)
    office = tuple(replace(one, mtu=1400) if one.name == "enP7s7" else one for one in other.interfaces)
    assert found(picture(bare(1), bare(2, network=replace(other, interfaces=office)))) == {}


def test_a_slow_link() -> None:
    finding = found(picture(spark(1), spark(2, network=fabric(2, rate=100.0))))["link-slow"]
    assert finding.nodes == ("spark2",)
    assert "rocep1s0f0 100 and roceP2p1s0f0 100 Gb/s" in finding.title
    other = facts("spark2", product="PowerEdge")
    assert found(picture(spark(1), spark(2, facts=other, network=fabric(2, rate=100.0)))) == {}


def test_a_link_that_is_down() -> None:
    finding = found(picture(spark(1), spark(2, network=fabric(2, up=False))))["link-down"]
    assert finding.severity is Severity.CRITICAL
    assert "on spark2" in finding.title
    up = "on spark2: sudo ip link set enp1s0f0np0 up && sudo ip link set enP2p1s0f0np0 up"
    assert up in finding.remedies[0].steps
    both = found(picture(spark(1, network=fabric(1, up=False)), spark(2, network=fabric(2, up=False))))
    assert "on spark1 and spark2" in both["link-down"].title


def test_a_link_that_no_engine_uses() -> None:
    plugged = fabric(2, up=True)
    before = replace(plugged, interfaces=tuple(one for one in plugged.interfaces if one.name == "enp1s0f0np0"))
    gone = replace(before, interfaces=tuple(replace(one, is_up=False, addresses=()) for one in before.interfaces))
    cut = remembering(remembering(before, gone), gone)
    finding = found(picture(bare(1), bare(2, network=cut)))["link-down"]
    assert finding.severity is Severity.WARNING
    assert finding.nodes == ("spark1", "spark2")
    assert "enp1s0f0np0 of spark2" in finding.title
    quiet = (gone, remembering(cut, before), remembering(gone, gone))
    assert all(found(picture(bare(1), bare(2, network=network))) == {} for network in quiet)
    other_way = replace(cut, interfaces=(*cut.interfaces, replace(before.interfaces[0], name="enp1s0f1np1")))
    assert found(picture(bare(1), bare(2, network=other_way))) == {}


def test_the_port_without_a_cable_is_meant_to_be_down() -> None:
    every = "NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f0"
    assert found(with_env(every, both=True)) == {}


def test_a_pair_over_ethernet_has_no_link_to_lose() -> None:
    fleet = with_env("NCCL_IB_HCA=", both=True, node_2=replace(fabric(2), rdma_ports=()), flow=None)
    assert found(fleet) == {}


# --- NCCL on TCP


def flowing(tokens_per_s: float, first: float | None, second: float | None, **more: Any) -> FleetState:
    head = rank(0, rates=EngineRates(generation_tokens_per_s=tokens_per_s, progress_age_s=1.0))
    return picture(spark(1, engines=(head,), rdma_bytes_per_s=first, **more), spark(2, rdma_bytes_per_s=second, **more))


@over(
    "fleet, fires",
    [
        (flowing(28.0, 0.0, 0.0), True),
        (flowing(28.0, 900.0, 1200.0), True),
        (flowing(28.0, 4e8, 4e8), False),
        (flowing(28.0, 6e5, 6e5), False),
        (flowing(0.0, 0.0, 0.0), False),
        (flowing(1.0, 0.0, 0.0), False),
        (flowing(28.0, None, 0.0), False),
        (flowing(28.0, 0.0, 0.0, network=None), False),
    ],
    ids=["flat", "chatter", "tensor-parallel", "pipeline", "spin", "between", "unread", "no-rdma"],
)
def test_tokens_without_rdma(fleet: FleetState, fires: bool) -> None:
    finding = found(fleet).get("nccl-on-tcp")
    assert (finding is not None) is fires
    if finding is not None:
        assert finding.brief == "28 tok/s, RDMA flat"


def test_nccls_own_word_for_it() -> None:
    line = Evidence(source="log", text="NCCL INFO NET/IB : No device found.")
    told = Finding(rule="nccl.ib-none-found", severity=Severity.WARNING, title="x", evidence=(line,))
    log = LogFacts(findings=(told,))
    starting = picture(
        spark(1, engines=(loading(0, log=log),), rdma_bytes_per_s=0.0),
        spark(2, engines=(loading(1),), rdma_bytes_per_s=0.0),
    )
    finding = found(starting)["nccl-on-tcp"]
    assert line in finding.evidence
    refuted = picture(spark(1, engines=(loading(0, log=log),)), spark(2, engines=(loading(1),)))
    assert "nccl-on-tcp" not in found(refuted)


# --- NCCL_IB_HCA


@over(
    "value, up, severity",
    [
        ("rocep1s0f0,roceP2p1s0f0", True, None),
        ("rocep1s0f0", True, None),
        ("rocep1s0f0:1", True, None),
        ("=rocep1s0f0", True, None),
        ("roce", True, None),
        ("^rocep1s0f1", True, None),
        ("rocep1s0f1", False, Severity.CRITICAL),
        ("rocep1s0f1", True, Severity.WARNING),
        ("mlx5_0", False, Severity.CRITICAL),
        ("=roce", False, Severity.CRITICAL),
        ("rocep1s0f0:2", False, Severity.CRITICAL),
        ("rocep1s0f0,rocep2p1s0f0", False, Severity.WARNING),
    ],
)
def test_the_devices_named(value: str, up: bool, severity: Severity | None) -> None:
    claims = found(with_env(f"NCCL_IB_HCA={value}", up=up))
    finding = claims.get("hca-wrong")
    assert (finding.severity if finding else None) is severity
    if finding is not None:
        assert finding.nodes == ("spark2",)
        assert "NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0 on spark2" in finding.remedies[0].title


def test_devices_that_no_reading_tells_of_are_not_missed() -> None:
    assert "hca-wrong" not in found(with_env("NCCL_IB_HCA=mlx5_0", node_2=replace(fabric(2), rdma_ports=())))


def test_nothing_pins_the_devices() -> None:
    finding = found(with_env("NCCL_IB_HCA=", both=True))["hca-unset"]
    assert finding.severity is Severity.INFO
    (remedy,) = finding.remedies
    assert remedy.title.startswith("Set NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0 on spark1 and spark2")
    assert remedy.change is not None
    assert set(remedy.change.by_node) == {"spark1", "spark2"}, "in one relaunch"
    shelled = ("bash", "-c", f"export NCCL_IB_HCA=x; {' '.join(SERVE)}")
    held = box(1, environment=("A=b",), argv=shelled)
    fleet = picture(
        spark(1, engines=(rank(0, held=box(0, environment=("A=b",))),)), spark(2, engines=(rank(1, held=held),))
    )
    assert "hca-unset" not in found(fleet)
    assert "hca-unset" not in found(with_env("NCCL_IB_HCA=", both=True, node_2=replace(fabric(2), rdma_ports=())))


# --- NCCL_IB_GID_INDEX: 3 on one card, 5 on the next


@over(
    "index, up, severity",
    [
        ("5", False, None),
        ("3", False, Severity.CRITICAL),
        ("3", True, Severity.WARNING),
        ("-1", False, None),
        ("", False, None),
    ],
)
def test_the_gid_index(index: str, up: bool, severity: Severity | None) -> None:
    finding = found(with_env(f"NCCL_IB_GID_INDEX={index}", up=up)).get("gid-index")
    assert (finding.severity if finding else None) is severity
    if finding is not None:
        assert finding.nodes == ("spark2",)
        assert "5 for rocep1s0f0" in finding.explanation


def test_one_gid_index_for_two_different_cards() -> None:
    fleet = with_env("NCCL_IB_GID_INDEX=3", both=True, up=False)
    assert found(fleet)["gid-index"].nodes == ("spark2",)


def test_a_gid_table_that_was_not_read_proves_nothing() -> None:
    ports = tuple(replace(port, roce_v2_gids=()) for port in fabric(2).rdma_ports)
    assert "gid-index" not in found(
        with_env("NCCL_IB_GID_INDEX=3", node_2=replace(fabric(2), rdma_ports=ports), up=False)
    )


# --- interfaces and addresses


@over(
    "pair, words",
    [
        ("NCCL_SOCKET_IFNAME=enp1s0f0np0", None),
        ("NCCL_SOCKET_IFNAME=enp1s0f0", None),
        ("NCCL_SOCKET_IFNAME=enP7s7", None),
        ("NCCL_SOCKET_IFNAME=^docker,lo", None),
        ("NCCL_SOCKET_IFNAME=bridge7", None),
        ("NCCL_SOCKET_IFNAME=eth7,enp1s0f0np0", None),
        ("NCCL_SOCKET_IFNAME=enp1s0f0np7", "the interface doesn't exist"),
        ("NCCL_SOCKET_IFNAME==enp1s0f0", "the interface doesn't exist"),
        ("GLOO_SOCKET_IFNAME=enp1s0f0", "the interface doesn't exist"),
        ("GLOO_SOCKET_IFNAME=enp1s0f1np1", "has no link"),
        ("TP_SOCKET_IFNAME=lo", "only the node itself"),
        ("VLLM_HOST_IP=10.0.0.2", None),
        ("VLLM_HOST_IP=192.168.20.22", None),
        ("VLLM_HOST_IP=10.0.0.1", "it is spark1's"),
        ("VLLM_HOST_IP=10.9.9.9", "no interface of spark2 has it"),
        ("VLLM_HOST_IP=spark2.local", None),
    ],
)
def test_what_a_rank_was_told_to_use(pair: str, words: str | None) -> None:
    finding = found(with_env(pair, up=False)).get("interface-wrong")
    assert (finding is not None) is (words is not None), finding
    if finding is not None:
        assert words in finding.title
        assert finding.severity is Severity.CRITICAL
        assert finding.confidence is Confidence.CONFIRMED
        assert "enp1s0f0np0 (10.0.0.2/24)" in finding.explanation
        name, _, _ = pair.partition("=")
        fitting = "10.0.0.2" if name.endswith("_IP") else "enp1s0f0np0"
        assert finding.remedies[0].title == f"Set {name}={fitting} on spark2, in the network of spark1"
    assert "interface-wrong" not in found(with_env(pair, up=True)), "an engine that came up has refuted it"


def test_a_network_without_the_peer() -> None:
    apart = tuple(
        replace(one, addresses=("172.20.0.9/24",)) if one.name == "enP7s7" else one for one in fabric(2).interfaces
    )
    fleet = with_env("NCCL_SOCKET_IFNAME=enP7s7", up=False, node_2=replace(fabric(2, gid=5), interfaces=apart))
    finding = found(fleet)["interface-wrong"]
    assert finding.confidence is Confidence.SUSPECTED
    assert "172.20.0.0/24" in finding.title
    assert finding.settles


@over(
    "address, words",
    [
        ("10.0.0.1", None), ("192.168.20.21", None), ("spark1.local", None), ("0.0.0.0", None),
        ("10.0.0.2", "doesn't have it"), ("127.0.0.1", "only itself"),
    ],
)  # fmt: skip
def test_where_the_ranks_meet(address: str, words: str | None) -> None:
    argv = tuple(address if word == "10.0.0.1" else word for word in box(1).argv)
    held = box(1, argv=argv)
    fleet = picture(spark(1, engines=(loading(0),)), spark(2, engines=(loading(1, held=held),)))
    finding = found(fleet).get("interface-wrong")
    assert (finding is not None) is (words is not None)
    if finding is not None:
        assert words in finding.title


def test_inside_a_bridged_container_interfaces_have_other_names() -> None:
    held = box(1, network_mode="bridge", environment=("NCCL_SOCKET_IFNAME=eth0",))
    fleet = picture(spark(1, engines=(loading(0),)), spark(2, engines=(loading(1, held=held),)))
    claims = found(fleet)
    assert "interface-wrong" not in claims
    assert claims["bridge-network"].severity is Severity.CRITICAL


# --- what the containers were given


@over(
    "mode, fires",
    [("host", False), ("bridge", True), ("default", True), ("llm_default", True), ("container:ab", False)],
)
def test_the_containers_network(mode: str, fires: bool) -> None:
    fleet = picture(spark(1), spark(2, engines=(rank(1, held=box(1, network_mode=mode)),)))
    assert ("bridge-network" in found(fleet)) is fires


GIVEN: dict[str, Any] = {"is_privileged": False, "devices": ("/dev/infiniband",), "ulimits": ("memlock=-1:-1",)}


@over(
    "held, flow, rules",
    [
        ({"is_privileged": True, "ulimits": ()}, 0.0, set()),
        (GIVEN, 0.0, set()),
        (GIVEN | {"devices": ()}, 0.0, {"no-infiniband-device"}),
        (GIVEN | {"devices": ()}, 8e8, set()),
        (GIVEN | {"devices": (), "mounts": ("/dev/infiniband:/dev/infiniband",)}, 0.0, set()),
        (GIVEN | {"devices": ("/dev/infiniband/uverbs0",)}, 0.0, set()),
        (GIVEN | {"ulimits": ("memlock=8388608:8388608",)}, 0.0, {"memlock"}),
        (GIVEN | {"ulimits": ()}, None, {"memlock"}),
        (GIVEN | {"ulimits": ()}, 8e8, set()),
        (
            GIVEN | {"devices": (), "environment": (*ENV[:3], "NCCL_IB_DISABLE=1", *ENV[4:])},
            0.0,
            {"environment-differs"},
        ),
        ({"is_privileged": False, "ipc_mode": ""}, 0.0, set()),
    ],
)
def test_rdma_devices_and_locked_memory(held: dict[str, Any], flow: float | None, rules: set[str]) -> None:
    fleet = picture(
        spark(1, engines=(loading(0),), rdma_bytes_per_s=flow),
        spark(2, engines=(loading(1, held=box(1, **held)),), rdma_bytes_per_s=flow),
    )
    assert set(found(fleet)) == rules


def test_a_pair_that_serves_over_rdma_has_what_it_needs() -> None:
    held = box(1, is_privileged=False, ulimits=(), devices=("/dev/infiniband",))
    assert found(picture(spark(1), spark(2, engines=(rank(1, held=held),)))) == {}
    assert rank(0).state is EngineState.SERVING
