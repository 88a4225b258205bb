"""Whether the compositor answers on its session bus, asked in a child."""

from __future__ import annotations

import os
import re
import time

from sparktop.probe.remote.children import requests, tell
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.parsers import COMPOSITORS, parse_process_stat, parse_status
from sparktop.probe.remote.system import boottime, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Row = list[Any]

SILENT_S = 3.0
"""How long an answer may take; a busy shell answers within a second."""
_QUESTIONS = {
    "gnome-shell": ("org.gnome.Shell", "/org/gnome/Shell", "Get", ("org.gnome.Shell", "ShellVersion")),
    "cinnamon": ("org.Cinnamon", "/org/Cinnamon", "Get", ("org.Cinnamon", "CinnamonVersion")),
    "kwin_wayland": ("org.kde.KWin", "/KWin", "Introspect", ()),
    "kwin_x11": ("org.kde.KWin", "/KWin", "Introspect", ()),
}
"""Calls that the compositor's main loop must answer: (bus name, object path, method, arguments). Peer.Ping won't do:
GLib's GDBus answers it in the thread that reads the bus, even for a shell whose main loop hangs."""
_BUS = "org.freedesktop.DBus"
_MEMBERS = {"Get": _BUS + ".Properties", "Introspect": _BUS + ".Introspectable", "Hello": _BUS}
_MESSAGE_BYTES = 1 << 20


class BusError(Exception):
    """The session bus can't be asked; the text says why."""


def bus_message(serial: int, destination: str, path: str, member: str, arguments: Iterable[str] = ()) -> bytes:
    """A D-Bus method call with string arguments, flagged to start no service."""
    import struct

    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack("<I", len(raw)) + raw + b"\0"

    def padded(data: bytes, unit: int) -> bytes:
        return data + bytes(-len(data) % unit)

    body = b""
    for argument in arguments:
        body = padded(body, 4) + text(argument)
    fields = b""
    for code, kind, value in (
        (1, b"o", path), (2, b"s", _MEMBERS[member]), (3, b"s", member), (6, b"s", destination),
    ):  # fmt: skip
        fields = padded(fields, 8) + bytes((code, 1)) + kind + b"\0" + text(value)
    if body:
        signature = b"s" * len(tuple(arguments))
        fields = padded(fields, 8) + b"\x08\x01g\0" + bytes((len(signature),)) + signature + b"\0"
    head = struct.pack("<BBBBIII", ord("l"), 1, 2, 1, len(body), serial, len(fields))
    return padded(head + fields, 8) + body


def parse_bus_message(data: bytes) -> tuple[int, int, int | None, str] | None:
    """The first message in `data`: (length, type, serial it answers, error name); None while it isn't whole.

    Raises:
        ValueError: not a D-Bus message, or a larger one than we ever ask for.
    """
    import struct

    if len(data) < 16:
        return None
    order = {0x6C: "<", 0x42: ">"}.get(data[0])
    if order is None:
        raise ValueError("the answer is not a D-Bus message")
    body, _, fields = struct.unpack_from(order + "III", data, 4)
    length = 16 + fields + (-fields % 8) + body
    if length > _MESSAGE_BYTES:
        raise ValueError("the D-Bus answer is too large")
    if len(data) < length:
        return None
    answers, error, at = None, "", 16
    try:
        while at + 8 <= 16 + fields:
            code, signature = data[at], data[at + 2 : at + 3]
            at += 4
            if signature == b"u":
                (value,) = struct.unpack_from(order + "I", data, at)
                answers = value if code == 5 else answers
                at += 4
            elif signature in (b"s", b"o"):
                (size,) = struct.unpack_from(order + "I", data, at)
                if code == 4:
                    error = data[at + 4 : at + 4 + size].decode("ascii", "replace")[:100]
                at += 5 + size
            elif signature == b"g":
                at += 2 + data[at]
            else:
                break  # no field that we need
            at += -at % 8
    except (struct.error, IndexError) as failure:
        raise ValueError("the answer is not a D-Bus message") from failure
    return length, data[1], answers, error


class SessionBus:
    """A user's session bus over its socket: one call at a time, each with a deadline."""

    def __init__(self, address: str | bytes, deadline: float) -> None:
        import socket

        self.serial = 0
        self.pending = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            self.socket.connect(address)
            self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
            while b"\r\n" not in self.pending and len(self.pending) < 4096:
                self._more(deadline)
            if not self.pending.startswith(b"OK "):
                raise BusError("its session bus rejected the login")
            self.pending = self.pending.partition(b"\r\n")[2]
            self.socket.sendall(b"BEGIN\r\n")
            self.call(_BUS, "/org/freedesktop/DBus", "Hello", (), deadline)
        except BaseException:
            self.socket.close()
            raise

    def call(self, destination: str, path: str, member: str, arguments: Iterable[str], deadline: float) -> str:
        """Call a method; returns the error's name where the answer is an error, else nothing.

        Raises:
            TimeoutError: no answer by the deadline.
            OSError, ValueError, BusError: the bus itself failed.
        """
        self.serial += 1
        self.socket.settimeout(max(0.01, deadline - time.monotonic()))
        self.socket.sendall(bus_message(self.serial, destination, path, member, arguments))
        while True:
            message = parse_bus_message(self.pending)
            if message is None:
                self._more(deadline)
                continue
            length, kind, answers, error = message
            self.pending = self.pending[length:]
            if answers == self.serial and kind in (2, 3):
                return error or ("" if kind == 2 else "an error")

    def _more(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)
        chunk = self.socket.recv(65536)
        if not chunk:
            raise BusError("its session bus closed the connection")
        self.pending += chunk


class Desktop:
    """Watches one compositor: its state in /proc, and whether it answers where its session bus is this user's."""

    def __init__(self, root: str = "/proc", runtime: str = "/run/user") -> None:
        self.root = root
        self.runtime = runtime
        self.bus: SessionBus | None = None
        self.bus_of: tuple[int, int] | None = None
        self.watched: tuple[int, int] | None = None
        """(pid, start) of the compositor."""
        self.silent_since: float | None = None
        """When the first call without an answer was made (seconds since boot)."""
        self.blocked_since: float | None = None
        """Since when it waits in the kernel (state D) and hasn't run (seconds since boot)."""
        self.ticks = -1
        self.answers: bool | None = None
        self.reason = "not checked yet"

    def look(self, pids: Iterable[int], *, ask: bool) -> Iterator[dict[str, Any]]:
        """The `desktop` message; where the first call gets no answer, a second message after another call."""
        row = self._choose(pids)
        if row is None:
            self._forget()
            yield {"kind": "desktop", "boot": round(boottime(), 3), "reason": "no compositor runs"}
            return
        if self.watched != row["key"]:
            self._forget()
            self.watched = row["key"]
        self._judge_state(row)
        for _ in range(2 if ask else 1):
            if ask:
                self._ask(row)
            yield {
                "kind": "desktop",
                "boot": round(boottime(), 3),
                "compositor": row["comm"],
                "pid": row["key"][0],
                "uid": row["uid"],
                "state": row["state"],
                "wchan": row["wchan"],
                "answers": self.answers,
                "silent": self.silent_since,
                "blocked": self.blocked_since,
                "reason": self.reason,
                "greeter": row["greeter"],
            }
            if self.answers is not False:
                return

    def _forget(self) -> None:
        self._drop_bus()
        self.watched = self.silent_since = self.blocked_since = self.answers = None
        self.ticks = -1
        self.reason = "not checked yet"

    def _choose(self, pids: Iterable[int]) -> dict[str, Any] | None:
        """The compositor to watch: this user's first, a session's before a login screen's, then by COMPOSITORS."""
        rows = [row for row in map(self._row, sorted(pids)[:32]) if row is not None]
        mine = os.getuid()
        return min(
            rows, key=lambda row: (row["uid"] != mine, row["greeter"], COMPOSITORS.index(row["comm"])), default=None
        )

    def _row(self, pid: int) -> dict[str, Any] | None:
        try:
            data = read_file(f"{self.root}/{pid}/stat", 1024)
            uid = parse_status(read_file(f"{self.root}/{pid}/status", 8192)).get("uid", -1)
        except OSError:
            return None
        stat = parse_process_stat(data)
        if stat is None or stat[0] not in COMPOSITORS or stat[1] in "ZX":
            return None
        words = data[data.rfind(b")") + 2 :].split()
        try:
            channel = read_file(f"{self.root}/{pid}/wchan", 256).decode("utf-8", "replace")
        except OSError:
            channel = ""
        return {
            "key": (pid, stat[3]),
            "comm": stat[0],
            "state": stat[1],
            "uid": uid,
            "ticks": int(words[11]) + int(words[12]),
            "wchan": channel if channel not in ("", "0") else None,
            # Login screens run as system users; gdm 49 gives them uids from systemd's range for such users.
            "greeter": 0 < uid < 1000 or 60_000 < uid < 65_000,
        }

    def _judge_state(self, row: dict[str, Any]) -> None:
        """Set `blocked_since`: it waits in the kernel and used no CPU time since the last look."""
        if row["state"] != "D":
            self.blocked_since = None
        elif self.blocked_since is None or row["ticks"] != self.ticks:
            self.blocked_since = round(boottime(), 3)
        self.ticks = row["ticks"]

    def _ask(self, row: dict[str, Any]) -> None:
        question = _QUESTIONS.get(row["comm"])
        if row["uid"] != os.getuid():
            self._unasked(f"its session bus belongs to user {row['uid']}: log in as that user to check it")
            return
        if question is None:
            self._unasked(f"{row['comm']} has no name on a session bus")
            return
        name, path, member, arguments = question
        asked = round(boottime(), 3)
        deadline = time.monotonic() + SILENT_S
        try:
            if self.bus is None or self.bus_of != row["key"]:
                self._drop_bus()
                self.bus = SessionBus(self._address(row), deadline)
                self.bus_of = row["key"]
        except TimeoutError:
            self._unasked("its session bus doesn't answer")
            return
        except (OSError, ValueError, BusError) as error:
            self._unasked(f"its session bus: {error}")
            return
        try:
            error_name = self.bus.call(name, path, member, arguments, deadline)
        except TimeoutError:
            self._drop_bus()  # a late answer must not be taken for the next call's
            self.answers, self.reason = False, f"no answer within {SILENT_S:g} s"
            if self.silent_since is None:
                self.silent_since = asked
            return
        except (OSError, ValueError, BusError) as error:
            self._drop_bus()
            self._unasked(str(error))
            return
        if error_name:  # the bus, or the thread that reads it, has answered instead
            self._unasked(f"{name} gave an error: {error_name}")
            return
        self.answers, self.reason, self.silent_since = True, "", None

    def _unasked(self, reason: str) -> None:
        self.answers, self.reason, self.silent_since = None, reason[:200], None

    def _drop_bus(self) -> None:
        if self.bus is not None:
            self.bus.socket.close()
        self.bus = None

    def _address(self, row: dict[str, Any]) -> str | bytes:
        """Of the bus in its environment if that is readable (a shell with capabilities hides it), else the user's."""
        try:
            environ = read_file(f"{self.root}/{row['key'][0]}/environ", 131072)
        except OSError:
            environ = b""
        match = re.search(rb"(?:^|\0)DBUS_SESSION_BUS_ADDRESS=unix:(path|abstract)=([^,;\0]+)", environ)
        if match is None:
            return f"{self.runtime}/{row['uid']}/bus"
        return (b"\0" if match.group(1) == b"abstract" else b"") + match.group(2)


def desktop_child(control: int, data: int) -> None:
    """Answer "d ASK PIDS" with the state of the compositor among these; call it on its bus where ASK is 1."""
    desktop = Desktop()
    for ask, pids in requests(control, data):
        for message in desktop.look(pids, ask=ask):
            tell(data, "data", encode(message))
