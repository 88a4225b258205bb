"""Interfaces and RDMA ports: from a tree made like a Spark's /sys/class, and from this machine's own kernel."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.telemetry import NetworkReading
from sparktop.probe.remote.network import (
    Changes,
    Network,
    ipv4_addresses,
    parse_addresses,
    parse_gid,
    parse_rdma_rate,
    parse_rdma_state,
)
from sparktop.wire.decode import decode

Tree = Callable[[Mapping[str, str]], None]

INTERFACES = {
    "net/enp1s0f0np0/carrier": "1\n",
    "net/enp1s0f0np0/mtu": "9000\n",
    "net/enp1s0f0np0/speed": "200000\n",
    "net/enp1s0f0np0/ifindex": "4\n",
    "net/enp1s0f1np1/carrier": "0\n",
    "net/enp1s0f1np1/mtu": "1500\n",
    "net/enp1s0f1np1/speed": "-1\n",
    "net/enp1s0f1np1/ifindex": "5\n",
    "net/lo/mtu": "65536\n",
    "net/docker0/mtu": "1500\n",
    "net/veth12ab/mtu": "1500\n",
    "net/office/bridge/bridge_id": "8000.000000000000\n",
    "net/bonding_masters": "bond0\n",
}

PORT = "infiniband/rocep1s0f0/ports/1"
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000\n"
RDMA = {
    f"{PORT}/state": "4: ACTIVE\n",
    f"{PORT}/rate": "200 Gb/sec (4X HDR)\n",
    f"{PORT}/counters/port_rcv_data": "1000\n",
    f"{PORT}/counters/port_xmit_data": "2500\n",
    f"{PORT}/gid_attrs/types/0": "IB/RoCE v1\n",
    f"{PORT}/gid_attrs/types/1": "RoCE v2\n",
    f"{PORT}/gid_attrs/types/2": "IB/RoCE v1\n",
    f"{PORT}/gid_attrs/types/3": "RoCE v2\n",
    f"{PORT}/gids/0": "fe80:0000:0000:0000:4ebb:47ff:fe00:0001\n",
    f"{PORT}/gids/1": "fe80:0000:0000:0000:4ebb:47ff:fe00:0001\n",
    f"{PORT}/gids/2": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
    f"{PORT}/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
    "infiniband/rocep1s0f0/device/net/enp1s0f0np0/mtu": "9000\n",
    "infiniband/rocep1s0f1/ports/1/state": "1: DOWN\n",
    "infiniband/rocep1s0f1/ports/1/rate": "40 Gb/sec (4X QDR)\n",
    "infiniband/rocep1s0f1/ports/1/counters/port_rcv_data": "7\n",
    "infiniband/rocep1s0f1/ports/1/gid_attrs/ndevs/0": "enp1s0f1np1\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def write(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def network(root: Path) -> Network:
    return Network(str(root), addresses=lambda: {4: ["10.0.0.1/24"]})


def reading(body: dict[str, Any] | None) -> NetworkReading:
    assert body is not None
    message = decode(json.dumps(body).encode())
    assert isinstance(message, NetworkReading), message
    return message


def test_the_ports_of_a_spark(tree: Tree, tmp_path: Path) -> None:
    tree(INTERFACES | RDMA)
    told = reading(network(tmp_path).read(100.0))
    assert [(one.name, one.is_up, one.mtu, one.speed_mbps, one.addresses) for one in told.interfaces] == [
        ("enp1s0f0np0", True, 9000, 200_000, ("10.0.0.1/24",)),
        ("enp1s0f1np1", False, 1500, None, ()),
    ]
    active, down = told.rdma_ports
    assert (active.device, active.port, active.interface, active.state) == ("rocep1s0f0", 1, "enp1s0f0np0", "ACTIVE")
    assert active.rate_gbps == 200.0
    assert (active.received_bytes, active.sent_bytes) == (4000, 10_000)
    assert active.roce_v2_gids == ((3, "10.0.0.1"),)
    assert (down.device, down.interface, down.state) == ("rocep1s0f1", "enp1s0f1np1", "DOWN")
    assert down.received_bytes is None  # its counters are left alone


def test_traffic_is_told_at_every_look_and_the_rest_is_not_read_again(tree: Tree, tmp_path: Path) -> None:
    tree(INTERFACES | RDMA)
    looked = network(tmp_path)
    looked.read(100.0)
    tree({f"{PORT}/counters/port_rcv_data": "1500\n", "net/enp1s0f0np0/mtu": "1500\n"})
    told = reading(looked.read(105.0))
    assert told.rdma_ports[0].received_bytes == 6000
    assert told.interfaces[0].mtu == 9000
    assert reading(looked.read(161.0)).interfaces[0].mtu == 1500


@pytest.mark.parametrize(
    "change", [{"net/enp1s0f1np1/carrier": "1\n"}, {"infiniband/rocep1s0f1/ports/1/state": "4: ACTIVE\n"}]
)
def test_a_link_that_changes_is_told_at_once(tree: Tree, tmp_path: Path, change: dict[str, str]) -> None:
    tree(INTERFACES | RDMA)
    looked = network(tmp_path)
    before = reading(looked.read(100.0))
    tree(change)
    after = reading(looked.read(105.0))
    assert (before.interfaces, before.rdma_ports[1]) != (after.interfaces, after.rdma_ports[1])


def test_what_the_kernel_tells_of_is_read_at_once(tree: Tree, tmp_path: Path) -> None:
    tree(INTERFACES | RDMA)
    news = [False]
    looked = Network(str(tmp_path), addresses=dict, changes=lambda: news[0])
    looked.read(100.0)
    tree({"net/enp1s0f0np0/mtu": "1500\n"})
    assert reading(looked.read(105.0)).interfaces[0].mtu == 9000
    news[0] = True
    assert reading(looked.read(106.0)).interfaces[0].mtu == 1500


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="an address is set on lo: root and ip")
def test_the_kernel_tells_of_an_address_that_is_set_and_of_nothing_twice() -> None:
    changes = Changes()
    assert not changes()
    address = f"127.{os.getpid() % 200 + 20}.7.7/32"
    subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
    try:
        assert changes()
    finally:
        subprocess.run(["ip", "address", "del", address, "dev", "lo"], check=True)
    assert changes()


def test_without_rdma_nothing_is_repeated(tree: Tree, tmp_path: Path) -> None:
    tree(INTERFACES)
    looked = network(tmp_path)
    assert looked.read(100.0) is not None
    assert looked.read(105.0) is None
    assert looked.read(159.0) is None
    assert looked.read(160.0) is not None


def test_no_tree_is_no_error(tmp_path: Path) -> None:
    told = reading(network(tmp_path / "absent").read(100.0))
    assert (told.interfaces, told.rdma_ports) == ((), ())


def test_a_port_that_goes_away_is_gone(tree: Tree, tmp_path: Path) -> None:
    tree(INTERFACES | RDMA)
    looked = network(tmp_path)
    looked.read(100.0)
    (tmp_path / "infiniband").rename(tmp_path / "pulled")
    assert reading(looked.read(160.0)).rdma_ports == ()


def test_a_gid_table_is_read_to_its_holes_and_no_further(tree: Tree, tmp_path: Path) -> None:
    """mlx5 shows 255 places of which a handful are filled; an entry in the middle may have been taken back."""
    places = {f"{PORT}/gid_attrs/types/{index}": "" for index in range(4, 255)}
    late = {
        f"{PORT}/gid_attrs/types/9": "RoCE v2\n",
        f"{PORT}/gids/9": "0000:0000:0000:0000:0000:ffff:c0a8:640a\n",
        f"{PORT}/gid_attrs/types/200": "RoCE v2\n",
        f"{PORT}/gids/200": "0000:0000:0000:0000:0000:ffff:c0a8:650a\n",
    }
    tree(RDMA | places | late)
    assert reading(network(tmp_path).read(1.0)).rdma_ports[0].roce_v2_gids == ((3, "10.0.0.1"), (9, "192.168.100.10"))


@over(
    "text, address",
    [
        (b"0000:0000:0000:0000:0000:ffff:c0a8:640a\n", "192.168.100.10"),
        (b"0000:0000:0000:0000:0000:ffff:0a00:0001", "10.0.0.1"),
        (b"fe80:0000:0000:0000:4ebb:47ff:fe00:0001\n", None),
        (EMPTY.encode(), None),
        (b"", None),
        (b"0000:0000:0000:0000:0000:ffff:c0a8", None),
    ],
)
def test_gids(text: bytes, address: str | None) -> None:
    assert parse_gid(text) == address


@over("text, rate", [(b"200 Gb/sec (4X HDR)\n", 200.0), (b"2.5 Gb/sec (1X SDR)\n", 2.5), (b"", None), (b"fast", None)])
def test_rates(text: bytes, rate: float | None) -> None:
    assert parse_rdma_rate(text) == rate


def test_states() -> None:
    assert [parse_rdma_state(text) for text in (b"4: ACTIVE\n", b"1: DOWN", b"", b"\xff")] == [
        "ACTIVE",
        "DOWN",
        "",
        "�",
    ]


def _address(index: int, prefix: int, *attributes: tuple[int, bytes]) -> bytes:
    body = struct.pack("=BBBBI", 2, prefix, 0, 0, index)
    for kind, value in attributes:
        body += struct.pack("=HH", 4 + len(value), kind) + value
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_one_dump_of_addresses() -> None:
    found: dict[int, list[str]] = {}
    dump = _address(4, 24, (1, bytes([10, 0, 0, 1])), (2, bytes([10, 0, 0, 1])), (3, b"enp1\0\0\0\0"))
    dump += _address(
        4, 32, (1, bytes([10, 9, 0, 2])), (2, bytes([10, 9, 0, 1]))
    )  # point to point: ours is the local one
    assert not parse_addresses(dump, found)
    assert parse_addresses(struct.pack("=IHHIII", 20, 3, 2, 1, 0, 0), found)
    assert found == {4: ["10.0.0.1/24", "10.9.0.1/32"]}


@given(st.binary(max_size=120))
def test_a_datagram_of_anything_ends(data: bytes) -> None:
    found: dict[int, list[str]] = {}
    parse_addresses(data, found)
    for addresses in found.values():
        assert [str(ipaddress.ip_interface(address)) for address in addresses] == addresses


def test_this_machine_tells_its_own_addresses() -> None:
    if not os.path.isdir("/sys/class/net/lo"):
        pytest.skip("no sysfs here")
    loopback = int(Path("/sys/class/net/lo/ifindex").read_text())
    assert "127.0.0.1/8" in ipv4_addresses()[loopback]
