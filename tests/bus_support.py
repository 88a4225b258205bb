"""A D-Bus peer in plain Python, to stand in for a desktop's shell or for its bus; little-endian only.

Run as a program it is a shell: it connects to DBUS_SESSION_BUS_ADDRESS, owns the name in its first argument, takes the
process name in its second, and answers every call.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from pathlib import Path

CALL, RETURN, ERROR = 1, 2, 3
Fields = dict[int, tuple[str, object]]


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def padded(data: bytes, unit: int) -> bytes:
    return data + bytes(-len(data) % unit)


def message(kind: int, serial: int, fields: Fields, body: bytes = b"") -> bytes:
    """One D-Bus message; `fields` by code: (signature, value)."""
    packed = b""
    for code, (signature, value) in fields.items():
        packed = padded(packed, 8) + bytes((code, 1)) + signature.encode() + b"\0"
        if signature == "u":
            packed += struct.pack("<I", value)
        elif signature == "g":
            packed += bytes((len(str(value)),)) + str(value).encode() + b"\0"
        else:
            packed += text(str(value))
    head = struct.pack("<BBBBIII", ord("l"), kind, 0, 1, len(body), serial, len(packed))
    return padded(head + packed, 8) + body


class Peer:
    """One end of a connection, past its authentication."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.serial = 0
        self.pending = b""

    def line(self) -> bytes:
        while b"\r\n" not in self.pending:
            self._more()
        found, _, self.pending = self.pending.partition(b"\r\n")
        return found

    def send(self, kind: int, fields: Fields, body: bytes = b"") -> int:
        self.serial += 1
        self.socket.sendall(message(kind, self.serial, fields, body))
        return self.serial

    def take(self) -> tuple[int, int, dict[int, object]]:
        """The next message: (type, serial, header fields)."""
        while len(self.pending) < 16:
            self._more()
        kind = self.pending[1]
        body, serial, length = struct.unpack_from("<III", self.pending, 4)
        total = 16 + length + (-length % 8) + body
        while len(self.pending) < total:
            self._more()
        fields: dict[int, object] = {}
        at = 16
        while at < 16 + length:
            code, signature = self.pending[at], self.pending[at + 2 : at + 3]
            at += 4
            if signature == b"u":
                fields[code] = struct.unpack_from("<I", self.pending, at)[0]
                at += 4
            elif signature == b"g":
                at += 2 + self.pending[at]
            else:
                size = struct.unpack_from("<I", self.pending, at)[0]
                fields[code] = self.pending[at + 4 : at + 4 + size].decode()
                at += 5 + size
            at += -at % 8
        self.pending = self.pending[total:]
        return kind, serial, fields

    def _more(self) -> None:
        chunk = self.socket.recv(65536)
        if not chunk:
            raise EOFError
        self.pending += chunk


class FakeBus:
    """A session bus with one shell on it. `answers`: "well", "nothing", "error", "rubbish", "closes" or "refuses"."""

    def __init__(self, path: Path, answers: str = "well") -> None:
        self.path = path
        self.answers = answers
        self.calls: list[dict[int, object]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connected: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._connected:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._connected.append(connected)
            with connected:
                try:
                    self._serve(Peer(connected))
                except (OSError, EOFError):
                    continue

    def _serve(self, peer: Peer) -> None:
        assert peer.line().startswith(b"\0AUTH EXTERNAL ")
        peer.socket.sendall(b"REJECTED EXTERNAL\r\n" if self.answers == "refuses" else b"OK 00\r\n")
        assert peer.line() == b"BEGIN"
        while True:
            kind, serial, fields = peer.take()
            assert kind == CALL
            if fields[3] == "Hello":
                peer.send(RETURN, {5: ("u", serial), 8: ("g", "s")}, text(":1.7"))
                peer.send(4, {1: ("o", "/org/freedesktop/DBus"), 2: ("s", "o.f.D"), 3: ("s", "NameAcquired")})
                continue
            self.calls.append(fields)
            if self.answers == "closes":
                return
            if self.answers == "rubbish":
                peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            elif self.answers == "error":
                peer.send(ERROR, {4: ("s", "org.freedesktop.DBus.Error.ServiceUnknown"), 5: ("u", serial)})
            elif self.answers == "well":
                peer.send(RETURN, {5: ("u", serial), 8: ("g", "v")}, b"\x01s\0\0" + text("46.2"))


def shell(name: str, command: str) -> None:
    """Be a desktop's shell on the session bus until the bus goes."""
    Path("/proc/self/comm").write_text(command)
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(os.environ["DBUS_SESSION_BUS_ADDRESS"].partition("path=")[2].partition(",")[0])
    peer = Peer(connected)
    connected.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
    assert peer.line().startswith(b"OK")
    connected.sendall(b"BEGIN\r\n")
    bus: Fields = {
        1: ("o", "/org/freedesktop/DBus"),
        2: ("s", "org.freedesktop.DBus"),
        6: ("s", "org.freedesktop.DBus"),
    }
    peer.send(CALL, bus | {3: ("s", "Hello")})
    wanted = peer.send(CALL, bus | {3: ("s", "RequestName"), 8: ("g", "su")}, padded(text(name), 4) + bytes(4))
    try:
        while True:
            kind, serial, fields = peer.take()
            if kind == RETURN and fields.get(5) == wanted:
                print("owned", flush=True)
            if kind == CALL:
                to = str(fields[7])
                if fields[3] == "Ping":
                    peer.send(RETURN, {5: ("u", serial), 6: ("s", to)})
                else:
                    reply: Fields = {5: ("u", serial), 6: ("s", to), 8: ("g", "v")}
                    peer.send(RETURN, reply, b"\x01s\0\0" + text("46.2"))
    except EOFError:
        return


if __name__ == "__main__":
    shell(*sys.argv[1:3])
