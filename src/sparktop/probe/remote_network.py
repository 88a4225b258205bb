"""The probe: interfaces and RDMA ports, looked at by the child that looks at processes (the rest: `remote`)."""

from __future__ import annotations

import errno
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = list[Any]
if __name__ != "sparktop_probe":  # on a Spark this text runs among the probe's own names
    from sparktop.probe.remote import FACTS_S, _listed, _read, boottime

_VIRTUAL = re.compile(
    r"lo$|veth|docker|br-|virbr|ifb|dummy|cni|flannel|cali|sit\d|ip6tnl|tunl|gre|erspan|bonding_masters"
)
GID_HOLES = 32
"""So many empty entries in a row end a GID table; mlx5's has 255 places, filled from the front."""


def parse_rdma_state(data: bytes) -> str:
    """ports/N/state: "4: ACTIVE" to "ACTIVE"."""
    return data.rpartition(b":")[2].strip().decode("ascii", "replace")


def parse_rdma_rate(data: bytes) -> float | None:
    """ports/N/rate: "200 Gb/sec (4X HDR)" to 200.0."""
    found = re.match(rb"\s*(\d{1,6}(?:\.\d{1,3})?) Gb/sec", data)
    return float(found.group(1)) if found else None


def parse_gid(data: bytes) -> str | None:
    """ports/N/gids/I: the IPv4 address of "0000:0000:0000:0000:0000:ffff:c0a8:640a"; None for any other."""
    found = re.match(rb"(?:0000:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})\s*$", data)
    return ".".join(str(int(part, 16)) for part in found.groups()) if found else None


def parse_addresses(data: bytes, found: dict[int, list[str]]) -> bool:
    """One datagram of an RTM_GETADDR dump into interface index -> ["192.168.100.10/24"]; True when the dump is over."""
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
                found.setdefault(index, []).append(".".join(map(str, address)) + f"/{prefix}")
        at += (length + 3) & ~3
    return False


def ipv4_addresses() -> dict[int, list[str]]:
    """Every interface's IPv4 addresses, in one question to the kernel; none where it may not be asked."""
    import socket
    import struct

    found: dict[int, list[str]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
            link.settimeout(1.0)
            link.send(struct.pack("=IHHIIBBBBI", 24, 22, 0x301, 1, 0, 2, 0, 0, 0, 0))
            while not parse_addresses(link.recv(65536), found):
                pass
    except OSError:
        pass
    return found


class Network:
    """Interfaces and RDMA ports: links and traffic at every look, the rest once a minute or when a link changes.

    Files are opened once and pread; counters only of active ports, because each read of one asks the card's firmware.
    """

    def __init__(
        self, root: str = "/sys/class", addresses: Callable[[], dict[int, list[str]]] = ipv4_addresses
    ) -> None:
        self.root = root
        self.addresses = addresses
        self.files: dict[str, int] = {}
        self.links: list[bytes | None] = []
        self.interfaces: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.slow_at = 0.0

    def read(self, now: float) -> dict[str, Any] | None:
        """The `network` message; None where nothing can have changed since the last."""
        links = [self._again(path) for path in self._link_files()]
        told = now >= self.slow_at or links != self.links
        if told:
            self.slow_at = now + FACTS_S
            self._look()
            self.links = [self._again(path) for path in self._link_files()]
        rows = []
        for port in self.ports:
            row = dict(port)
            folder = row.pop("folder")
            if row["state"] == "ACTIVE":
                for key, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
                    words = self._again(f"{folder}/counters/{counter}")
                    if words is not None and words.strip().isdigit():
                        row[key] = int(words) * 4  # the counters count words of four bytes
                        told = True
            rows.append(row)
        if not told:
            return None
        return {"kind": "network", "boot": round(boottime(), 3), "interfaces": self.interfaces, "rdma": rows}

    def _link_files(self) -> list[str]:
        names = [f"{self.root}/net/{row['name']}/carrier" for row in self.interfaces]
        return names + [f"{port['folder']}/state" for port in self.ports]

    def _look(self) -> None:
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files = {}
        addresses = self.addresses()
        self.interfaces = []
        for name in _listed(f"{self.root}/net")[:64]:
            folder = f"{self.root}/net/{name}"
            if _VIRTUAL.match(name) or os.path.isdir(folder + "/bridge"):
                continue
            row: dict[str, Any] = {"name": name, "addresses": addresses.get(_whole(folder + "/ifindex") or 0, [])}
            try:
                row["up"] = _read(folder + "/carrier", 16).strip() == b"1"
            except OSError as error:
                row["up"] = False if error.errno == errno.EINVAL else None  # switched off; or not told
            row["mtu"] = _whole(folder + "/mtu")
            row["speed"] = _whole(folder + "/speed")
            self.interfaces.append(row)
        self.ports = [
            self._port(device, int(port))
            for device in _listed(f"{self.root}/infiniband")[:16]
            for port in _listed(f"{self.root}/infiniband/{device}/ports")[:4]
            if port.isdecimal()
        ]

    def _port(self, device: str, port: int) -> dict[str, Any]:
        folder = f"{self.root}/infiniband/{device}/ports/{port}"
        names = _listed(f"{self.root}/infiniband/{device}/device/net")
        interface = names[0] if len(names) == 1 else _text(folder + "/gid_attrs/ndevs/0")
        gids = []
        holes = 0
        for index in sorted(int(name) for name in _listed(folder + "/gid_attrs/types") if name.isdecimal()):
            kind = _text(f"{folder}/gid_attrs/types/{index}")  # an empty entry refuses to be read
            holes = 0 if kind else holes + 1
            if kind == "RoCE v2":
                address = parse_gid((_text(f"{folder}/gids/{index}") or "").encode())
                if address:
                    gids.append([index, address])
            if holes >= GID_HOLES:
                break
        return {
            "folder": folder,
            "device": device,
            "port": port,
            "interface": interface,
            "state": parse_rdma_state((_text(folder + "/state") or "").encode()),
            "rate": parse_rdma_rate((_text(folder + "/rate") or "").encode()),
            "gids": gids,
        }

    def _again(self, path: str) -> bytes | None:
        """A file's text, through a descriptor that stays open; None where it refuses."""
        try:
            if path not in self.files:
                self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.files[path], 64, 0)
        except OSError:
            return None


def _text(path: str) -> str | None:
    try:
        return _read(path, 256).decode("ascii", "replace").strip() or None
    except OSError:
        return None


def _whole(path: str) -> int | None:
    """A count; None where there is none (a speed reads -1, or not at all, while the link is down)."""
    text = _text(path) or ""
    return int(text) if text.isdecimal() and len(text) < 12 else None
