"""Two machines with a cable between them, each with network, mounts and processes of its own, and an OpenSSH server in
them: engines of other tests, on the same kernel, are none of theirs.

Both halves of a ConnectX-7 port have their usual names and are veth pairs. What the kernel has no hardware for is
played: RDMA devices in sysfs, and perftest, whose stand-in really listens, connects and counts.

    with cabled(folder) as cable:
        cable.mode = "slow"
        cable.machines["spark1"].sshd.connector("spark1")
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.sshd import Sshd
from tests.support import unavailable

HALVES = (("enp1s0f0np0", "rocep1s0f0"), ("enP2p1s0f0np0", "roceP2p1s0f0"))
_SETUP = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/class
mkdir -m 1777 /run/lock
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount -t sysfs sysfs /sys
mount --bind /sys/class /run/class
mount -t tmpfs tmpfs /sys/class
mkdir /sys/class/net /sys/class/infiniband
mount --bind /run/class/net /sys/class/net
cp -r "$1/infiniband/." /sys/class/infiniband
ip link set lo up
echo ready
exec sleep infinity
"""

PERFTEST = '''#!{python} -IS
"""Plays ib_write_bw and ib_write_lat of perftest: the server serves one client, the client loads and counts."""
import glob, os, socket, sys, time
here = os.path.dirname(os.path.abspath(sys.argv[0]))
words = sys.argv[1:]
is_latency = sys.argv[0].endswith("lat")
flag = lambda name: words[words.index(name) + 1]
peer = "" if words[-2].startswith("-") or not words[-1][0].isdigit() or words[-1].count(".") != 3 else words[-1]
mode = open(here + "/mode").read().strip()
open(here + "/pids", "a").write("%s %d\\n" % (os.readlink("/proc/self/ns/pid"), os.getpid()))
device, port = flag("-d"), int(flag("-p"))
kept = "/sys/class/infiniband/%s/ports/1/gids/%s" % (device, flag("-x"))
if not os.path.exists(kept):
    sys.exit(" Failed to modify QP 123 to RTR")
def count(name, size):
    path = "/sys/class/infiniband/%s/ports/1/counters/%s" % (device, name)
    with open(path, "r+") as file:
        was = int(file.read())
        file.seek(0)
        file.write("%d\\n" % (was + size // 4))
rule = "-" * 87
size, iterations = 65536, 1066790
gbps = {{"slow": "12.86"}}.get(mode, "{gbps}")
if not peer:
    if mode == "dead-server":
        sys.exit("Couldn't allocate MR")
    print(rule + "\\n\\n************************************\\n* Waiting for client to connect... *", flush=True)
    with socket.create_server(("", port)) as server:
        line = server.accept()[0]
        moved = b""
        while chunk := line.recv(100):
            moved += chunk
        if mode == "error":
            sys.exit("ethernet_read_keys: Couldn't read remote address\\n Unable to read to socket/rdma_cm")
        count("port_rcv_data", int(moved or 0))
    sys.exit(0)
if mode == "no-client":
    sys.exit("Couldn't connect to %s:%d" % (peer, port))
with socket.create_connection((peer, port), 5) as line:
    if mode == "hang":
        while True:
            time.sleep(1)
    if mode.startswith("error"):
        print(" Completion with error at client\\n Failed status 12: wr_id 0 syndrom 0x81")
        sys.exit(mode == "error")
    moved = 0 if mode == "elsewhere" else size * iterations
    count("port_xmit_data", moved)
    line.sendall(b"%d" % moved)
print(rule + "\\n Mtu             : 4096[B]\\n" + rule)
if is_latency:
    print(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
          "   99% percentile[usec]   99.9% percentile[usec] ")
    print(" 2       1000          1.38           5.12         1.42     \\t       1.43        \\t0.05   \\t1.57 5.12 ")
else:
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    print(" %d      %d          0.00               %s\\t\\t     0.213358" % (size, iterations, gbps))
print(rule)
'''
PING = """#!/bin/sh
# iputils' words; a mode "small" has a switch between that drops whole packets.
for last; do :; done
case "$(cat {folder}/mode) $*" in
  "small "*"-s 8972"*)
    echo "PING $last: 8972 data bytes"; echo
    echo "2 packets transmitted, 0 received, 100% packet loss, time 204ms"
    exit 1;;
esac
echo "PING $last ($last) from 10.0.0.1 : 8972(9000) bytes of data."
echo "8980 bytes from $last: icmp_seq=1 ttl=64 time=0.753 ms"
echo "8980 bytes from $last: icmp_seq=2 ttl=64 time=0.282 ms"
echo; echo "--- $last ping statistics ---"
echo "2 packets transmitted, 2 received, 0% packet loss, time 204ms"
"""


def _processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """(pid, (namespace, pid in it)) of each process that isn't a zombie."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (path / "status").read_text()
            names = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
            if names is not None and not re.search(r"^State:\s*Z", status, re.MULTILINE):
                yield int(path.name), (os.readlink(path / "ns/pid"), int(names[1].split()[-1]))


@dataclass
class Machine:
    """One of the two."""

    name: str
    number: int
    holder: subprocess.Popen[bytes]
    sshd: Sshd

    def outer_pid(self, pid: int) -> int:
        """What a process with this pid on the machine is called outside."""
        own = os.readlink(f"/proc/{self.holder.pid}/ns/pid_for_children")
        return next(outer for outer, name in _processes() if name == (own, pid))


@dataclass
class Cable:
    """Both machines, and how the programs on them behave."""

    folder: Path
    machines: dict[str, Machine]

    @property
    def mode(self) -> str:
        return (self.folder / "bin/mode").read_text()

    @mode.setter
    def mode(self, mode: str) -> None:
        (self.folder / "bin/mode").write_text(mode)

    @property
    def started(self) -> list[tuple[str, int]]:
        """(namespace, pid in it) of all stand-ins of perftest that have read their mode."""
        path = self.folder / "bin/pids"
        rows = path.read_text().splitlines() if path.exists() else []
        return [(row.partition(" ")[0], int(row.rpartition(" ")[2])) for row in rows]

    @property
    def alive(self) -> list[int]:
        """Pids, outside, of those that run."""
        started = set(self.started)
        return [pid for pid, name in _processes() if name in started]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        unavailable(f"{' '.join(argv)}: {done.stderr.strip()}")


def _sysfs(folder: Path, number: int) -> None:
    """What the kernel's RDMA core would show of a port with its address at GID 3."""
    for half, (interface, device) in enumerate(HALVES):
        port = folder / "infiniband" / device / "ports/1"
        for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs", "counters"):
            (port / name).mkdir(parents=True)
        (folder / "infiniband" / device / "device/net" / interface).mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
        (port / "gids/0").write_text("fe80:0000:0000:0000:4ebb:47ff:fe2c:0011\n")
        (port / "gid_attrs/types/0").write_text("IB/RoCE v1\n")
        (port / "gids/3").write_text(f"0000:0000:0000:0000:0000:ffff:0a00:{half:02x}{number:02x}\n")
        (port / "gid_attrs/types/3").write_text("RoCE v2\n")
        for index in (0, 3):
            (port / f"gid_attrs/ndevs/{index}").write_text(f"{interface}\n")
        for name in ("port_xmit_data", "port_rcv_data"):
            (port / "counters" / name).write_text("1000\n")


@contextlib.contextmanager
def cabled(folder: Path) -> Iterator[Cable]:
    """Both, until the block is left; everything goes with their namespaces."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here: apt-get install util-linux iproute2")
    if os.geteuid() != 0:
        unavailable("namespaces need root")
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "mode").write_text("")
    text = PERFTEST.format(python="/usr/bin/python3", gbps="111.86")
    for name, script in (("ib_write_bw", text), ("ib_write_lat", text), ("ping", PING.format(folder=programs))):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    tag = uuid.uuid4().hex[:5]
    with contextlib.ExitStack() as stack:
        machines = {
            name: stack.enter_context(_machine(folder / name, name, number, tag, programs))
            for number, name in enumerate(("spark1", "spark2"), 1)
        }
        first, second = (str(machine.holder.pid) for machine in machines.values())
        for half, (interface, _) in enumerate(HALVES):
            near, far = f"fa{tag}{half}", f"fb{tag}{half}"
            _run("ip", "link", "add", near, "netns", first, "type", "veth", "peer", "name", far, "netns", second)
            for number, (pid, name) in enumerate(((first, near), (second, far)), 1):
                inside = ("nsenter", "--target", pid, "--net", "ip")
                _run(*inside, "link", "set", name, "name", interface, "mtu", "9000")
                _run(*inside, "address", "add", f"10.0.{half}.{number}/24", "dev", interface)
                _run(*inside, "link", "set", interface, "up")
        yield Cable(folder, machines)


@contextlib.contextmanager
def _machine(folder: Path, name: str, number: int, tag: str, programs: Path) -> Iterator[Machine]:
    folder.mkdir()
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    _sysfs(folder, number)
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork",
         "--kill-child", "--mount-proc", "--propagation", "private",
         "sh", "-c", _SETUP, "sh", str(folder)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"ready\n":
            unavailable(f"no namespace can be made here: {holder.stderr.read().decode(errors='replace')[-300:]}")
        # sshd stays outside, so that it can be killed; what it starts is inside
        processes = f"--pid=/proc/{holder.pid}/ns/pid_for_children"
        inside = ("nsenter", "--target", str(holder.pid), "--net", "--mount")
        outer, inner = f"ma{tag}{number}", f"mb{tag}{number}"
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", str(holder.pid))
        third = 200 + int(tag[:2], 16) % 50
        _run("ip", "address", "add", f"10.{third}.{number}.1/30", "dev", outer)
        _run("ip", "link", "set", outer, "up")
        _run(*inside, "ip", "link", "set", inner, "name", "enP7s7")
        _run(*inside, "ip", "address", "add", f"10.{third}.{number}.2/30", "dev", "enP7s7")
        _run(*inside, "ip", "link", "set", "enP7s7", "up")
        path = f"PATH={programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        options = {"SetEnv": path}
        with Sshd.start(
            folder / "sshd",
            host=f"10.{third}.{number}.2",
            port=2200 + number,
            options=options,
            prefix=(*inside, processes, "--no-fork"),
        ) as server:
            yield Machine(name, number, holder, server)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
        for stream in (holder.stdout, holder.stderr):
            if stream is not None:
                stream.close()
