"""Network interfaces and RDMA ports, read in the scanner's child."""

from __future__ import annotations

import errno
import os
import re

from sparktop.probe.remote.host_facts import FACTS_S
from sparktop.probe.remote.system import boottime, list_folder, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = list[Any]

_VIRTUAL = re.compile(
    r"lo$|veth|docker|br-|virbr|ifb|dummy|cni|flannel|cali|sit\d|ip6tnl|tunl|gre|erspan|bonding_masters"
)
GID_HOLES = 32
"""Empty entries in a row after which a GID table ends; mlx5's has 255 entries, filled from the front."""


def parse_rdma_state(data: bytes) -> str:
    """ports/N/state: "4: ACTIVE" to "ACTIVE"."""
    return data.rpartition(b":")[2].strip().decode("ascii", "replace")


def parse_rdma_rate(data: bytes) -> float | None:
    """ports/N/rate: "200 Gb/sec (4X HDR)" to 200.0."""
    match = re.match(rb"\s*(\d{1,6}(?:\.\d{1,3})?) Gb/sec", data)
    return float(match.group(1)) if match else None


def parse_gid(data: bytes) -> str | None:
    """ports/N/gids/I: "0000:0000:0000:0000:0000:ffff:c0a8:640a" to its IPv4 address; None for a GID without one."""
    match = re.match(rb"(?:0000:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})\s*$", data)
    return ".".join(str(int(part, 16)) for part in match.groups()) if match else None


def parse_addresses(data: bytes, addresses: dict[int, list[str]]) -> bool:
    """Add one datagram of an RTM_GETADDR dump to interface index -> ["192.168.100.10/24"]; True at the dump's end."""
    import struct

    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < 16 or kind in (2, 3):  # NLMSG_ERROR, NLMSG_DONE
            return True
        if kind == 20 and at + 24 <= len(data):  # RTM_NEWADDR
            family, prefix, _, _, index = struct.unpack_from("=BBBBI", data, at + 16)
            end, part = min(at + length, len(data)), at + 24
            address = b""
            while family == 2 and part + 4 <= end:
                size, attribute = struct.unpack_from("=HH", data, part)
                if size < 4:
                    break
                if attribute == 2 or (attribute == 1 and not address):  # IFA_LOCAL; IFA_ADDRESS is the peer's
                    address = data[part + 4 : part + 8]
                part += (size + 3) & ~3
            if len(address) == 4:
                addresses.setdefault(index, []).append(".".join(map(str, address)) + f"/{prefix}")
        at += (length + 3) & ~3
    return False


def ipv4_addresses() -> dict[int, list[str]]:
    """IPv4 addresses by interface index, in one request to the kernel; none where it refuses."""
    import socket
    import struct

    addresses: dict[int, list[str]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
            link.settimeout(1.0)
            link.send(struct.pack("=IHHIIBBBBI", 24, 22, 0x301, 1, 0, 2, 0, 0, 0, 0))
            while not parse_addresses(link.recv(65536), addresses):
                pass
    except OSError:
        pass
    return addresses


class Changes:
    """The kernel's own news of interfaces and IPv4 addresses: an address or an MTU that was set is told at once."""

    LINKS_AND_ADDRESSES = 0x1 | 0x10  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR

    def __init__(self) -> None:
        import socket

        self.socket: socket.socket | None
        try:
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            self.socket.bind((0, self.LINKS_AND_ADDRESSES))
        except OSError:
            self.socket = None  # then they are known within a minute

    def __call__(self) -> bool:
        """Whether there was any since the last call."""
        is_news = False
        for _ in range(64 if self.socket is not None else 0):
            try:
                is_news = bool(self.socket is not None and self.socket.recv(65536)) or is_news
            except BlockingIOError:
                break
            except OSError:
                is_news = True  # ENOBUFS: more than the socket holds
        return is_news


class Network:
    """Interfaces and RDMA ports: links and traffic at every reading, the rest once a minute or when the kernel tells of
    a change.

    Files stay open and are pread. Counters are read of active ports alone: each read asks the card's firmware.
    """

    def __init__(
        self,
        root: str = "/sys/class",
        addresses: Callable[[], dict[int, list[str]]] = ipv4_addresses,
        changes: Callable[[], bool] = bool,
    ) -> None:
        self.root = root
        self.addresses = addresses
        self.changes = changes
        self.files: dict[str, int] = {}
        self.links: list[bytes | None] = []
        self.interfaces: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.slow_at = 0.0

    def read(self, now: float) -> dict[str, Any] | None:
        """The `network` message; None where nothing can have changed since the last one."""
        links = [self._pread(path) for path in self._link_files()]
        is_news = self.changes() or now >= self.slow_at or links != self.links
        if is_news:
            self.slow_at = now + FACTS_S
            self._read_all()
            self.links = [self._pread(path) for path in self._link_files()]
        rows = []
        for port in self.ports:
            row = dict(port)
            folder = row.pop("folder")
            if row["state"] == "ACTIVE":
                for key, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
                    words = self._pread(f"{folder}/counters/{counter}")
                    if words is not None and words.strip().isdigit():
                        row[key] = int(words) * 4  # the counters count words of four bytes
                        is_news = True
            rows.append(row)
        if not is_news:
            return None
        return {"kind": "network", "boot": round(boottime(), 3), "interfaces": self.interfaces, "rdma": rows}

    def _link_files(self) -> list[str]:
        names = [f"{self.root}/net/{row['name']}/carrier" for row in self.interfaces]
        return names + [f"{port['folder']}/state" for port in self.ports]

    def _read_all(self) -> None:
        """Read interfaces and ports anew, for all but traffic."""
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files = {}
        addresses = self.addresses()
        self.interfaces = []
        for name in list_folder(f"{self.root}/net")[:64]:
            folder = f"{self.root}/net/{name}"
            if _VIRTUAL.match(name) or os.path.isdir(folder + "/bridge"):
                continue
            row: dict[str, Any] = {"name": name, "addresses": addresses.get(_number_in(folder + "/ifindex") or 0, [])}
            try:
                row["up"] = read_file(folder + "/carrier", 16).strip() == b"1"
            except OSError as error:
                row["up"] = False if error.errno == errno.EINVAL else None  # it is down; or the file isn't readable
            row["mtu"] = _number_in(folder + "/mtu")
            row["speed"] = _number_in(folder + "/speed")
            self.interfaces.append(row)
        self.ports = [
            self._port(device, int(port))
            for device in list_folder(f"{self.root}/infiniband")[:16]
            for port in list_folder(f"{self.root}/infiniband/{device}/ports")[:4]
            if port.isdecimal()
        ]

    def _port(self, device: str, port: int) -> dict[str, Any]:
        folder = f"{self.root}/infiniband/{device}/ports/{port}"
        names = list_folder(f"{self.root}/infiniband/{device}/device/net")
        interface = names[0] if len(names) == 1 else _text_of(folder + "/gid_attrs/ndevs/0")
        gids = []
        holes = 0
        for index in sorted(int(name) for name in list_folder(folder + "/gid_attrs/types") if name.isdecimal()):
            kind = _text_of(f"{folder}/gid_attrs/types/{index}")  # reading an empty entry fails
            holes = 0 if kind else holes + 1
            if kind == "RoCE v2":
                address = parse_gid((_text_of(f"{folder}/gids/{index}") or "").encode())
                if address:
                    gids.append([index, address])
            if holes >= GID_HOLES:
                break
        return {
            "folder": folder,
            "device": device,
            "port": port,
            "interface": interface,
            "state": parse_rdma_state((_text_of(folder + "/state") or "").encode()),
            "rate": parse_rdma_rate((_text_of(folder + "/rate") or "").encode()),
            "gids": gids,
        }

    def _pread(self, path: str) -> bytes | None:
        """A file's text, through a descriptor that stays open; None where it can't be read."""
        try:
            if path not in self.files:
                self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.files[path], 64, 0)
        except OSError:
            return None


def _text_of(path: str) -> str | None:
    """A small file's text; None where it is empty or can't be read."""
    try:
        return read_file(path, 256).decode("ascii", "replace").strip() or None
    except OSError:
        return None


def _number_in(path: str) -> int | None:
    """A file's number; None where it has none (a speed reads -1, or not at all, while the link is down)."""
    text = _text_of(path) or ""
    return int(text) if text.isdecimal() and len(text) < 12 else None
