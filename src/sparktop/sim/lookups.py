"""Programs of a simulated Spark that a launch asks before it begins: what is installed, who answers, how much room."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.sim.disk import home
from sparktop.sim.program import Call, Ran
from sparktop.sim.script import NodeScript
from sparktop.sim.spark import GIB

_HEADERS = 28
"""Of IPv4 and ICMP."""
_RSYNC = "rsync  version 3.2.7  protocol version 31\n"


def _which(call: Call) -> Ran:
    there = {f"{home(call.spark.script)}/.local/bin/hf", "/usr/bin/rsync", "/usr/bin/ssh", "/usr/bin/nvidia-ctk"}
    found = [path for path in sorted(there) if path in call.argv or path.rpartition("/")[2] in call.argv[1:]]
    # What lies in ~/.local/bin isn't in the PATH of a command over SSH.
    found = [path for path in found if path in call.argv or not path.startswith("/home/")]
    return Ran(code=0 if found else 1, output="".join(f"{path}\n" for path in found))


def _rsync(call: Call) -> Ran:
    return Ran(output=_RSYNC) if "--version" in call.argv else Ran(code=1)


def _nvidia_ctk(call: Call) -> Ran:
    return Ran(output="NVIDIA Container Toolkit CLI version 1.18.1\ncommit: 0123456789abcdef\n")


def _printenv(call: Call) -> Ran:
    if call.argv[1:] != ("SSH_CONNECTION",):
        return Ran(code=1)
    own = [
        text.partition("/")[0] for one in call.spark.script.interfaces for text in one.addresses
        if text.startswith("192.168.")
    ]  # fmt: skip
    return Ran(output=f"192.168.20.5 51022 {own[0] if own else '127.0.0.1'} 22\n")


def _ping(call: Call) -> Ran:
    to, payload = call.argv[-1], int(call.flag("-s") or 56)
    head = f"PING {to} ({to}) from {call.flag('-I') or '0.0.0.0'} : {payload}({payload + _HEADERS}) bytes of data.\n"  # noqa: S104
    reached = _reached(call, call.flag("-I") or "", to)
    if reached is None or payload + _HEADERS > reached:
        lost = "1 packets transmitted, 0 received, 100% packet loss, time 0ms"
        return Ran(code=1, output=f"{head}\n--- {to} ping statistics ---\n{lost}\n", seconds=1.0)
    came = f"{payload + 8} bytes from {to}: icmp_seq=1 ttl=64 time=0.318 ms\n"
    whole = "1 packets transmitted, 1 received, 0% packet loss, time 0ms"
    return Ran(output=f"{head}{came}\n--- {to} ping statistics ---\n{whole}\n")


def _ssh(call: Call) -> Ran:
    """`ssh -o ... -- [USER@]IP COMMAND`: the nodes let one another in by their keys."""
    words = call.argv[call.argv.index("--") + 1 :] if "--" in call.argv else call.argv[-2:]
    to = words[0].rpartition("@")[2] if words else ""
    if node_at(call, to) is None:
        return Ran(code=255, errors=f"ssh: connect to host {to} port 22: No route to host\n", seconds=3.0)
    return Ran(output=_RSYNC if words[1:] == ("rsync --version",) else "")


def node_at(call: Call, ip: str) -> NodeScript | None:
    """The node that has an address, on an interface that is up."""
    showing_s = call.t + call.spark.script.began_s
    for script in call.spark.scenario.nodes:
        now = script.at(showing_s)
        for one in now.interfaces:
            if one.up.at(call.t) > 0.5 and any(text.partition("/")[0] == ip for text in one.addresses):
                return now
    return None


def _reached(call: Call, own: str, to: str) -> int | None:
    """The largest packet between two addresses; None where none comes through."""
    sizes = []
    for ip in (own, to):
        script = node_at(call, ip)
        if script is None:
            return None
        sizes += [
            round(one.mtu.at(call.t)) for one in script.interfaces
            if any(text.partition("/")[0] == ip for text in one.addresses)
        ]  # fmt: skip
    return min(sizes)


def _df(call: Call) -> Ran:
    machine = call.spark.script.machine
    if any(word.startswith("--output=avail,target") for word in call.argv):
        free = int(machine.disk_free_gib * GIB)
        return Ran(output=f"{'Avail':>14} Mounted on\n{free:>14} /\n")
    used = machine.disk_gib - machine.disk_free_gib
    share = f"{100 * used / machine.disk_gib:.0f}%"
    return Ran(
        output="Filesystem     Type  Size  Used Avail Use% Mounted on\n"
        f"/dev/nvme0n1p2 ext4  {machine.disk_gib:.0f}G  {used:.0f}G {machine.disk_free_gib:.0f}G {share:>4} /\n"
    )


def _mkdir(call: Call) -> Ran:
    return Ran()


PROGRAMS: dict[str, Callable[[Call], Ran]] = {
    "df": _df, "mkdir": _mkdir, "nvidia-ctk": _nvidia_ctk, "ping": _ping, "printenv": _printenv, "rsync": _rsync,
    "ssh": _ssh, "which": _which,
}  # fmt: skip
