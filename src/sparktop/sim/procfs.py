"""Files of a simulated Spark that are read by their path: /proc as far as it is asked about, and two of /etc."""

from __future__ import annotations

import json
import re
import time

from sparktop.sim import disk, lines
from sparktop.sim.spark import GIB, LiveProcess, Spark

TICKS_PER_S = 100
_SOCKETS = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
_PAGE = 4096


def text(spark: Spark, t: float, path: str) -> str | None:
    """A file's text; None where it isn't there."""
    path = re.sub(r"/+", "/", path)
    if found := re.fullmatch(r"/proc/(\d+)/(\w+)", path):
        live = next((one for one in spark.processes(t) if one.pid == int(found[1])), None)
        return _of_process(spark, live, found[2]) if live is not None else None
    if path.startswith("/proc/pressure/"):
        return _pressure(spark, t, path.rpartition("/")[2])
    machine = spark.script.machine
    known: dict[str, str] = {
        "/proc/loadavg": _load(spark, t),
        "/proc/uptime": f"{spark.boot_s(t):.2f} {19.2 * spark.boot_s(t):.2f}\n",
        "/proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{machine.kernel} root=UUID=simulated ro quiet splash\n",
        "/proc/version": f"Linux version {machine.kernel} (simulated) #1 SMP PREEMPT_DYNAMIC\n",
        "/proc/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n",
        "/proc/buddyinfo": "Node 0, zone      DMA    402    310    122     61     30     11      5      311\n",
        "/proc/slabinfo": "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize>\n",
        "/proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {machine.driver}  Release Build\n"
        ),
        "/proc/sys/kernel/random/boot_id": f"{spark.boot_id}\n",
        "/proc/sys/vm/drop_caches": "0\n",
        "/etc/dgx-release": f'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="{machine.dgx}"\n',
        "/etc/os-release": f'PRETTY_NAME="{machine.os_name}"\nID=ubuntu\n',
        "/etc/hostname": f"{machine.hostname}\n",
    }
    if path in ("/proc/net/tcp", "/proc/net/tcp6"):
        return _sockets(spark, t) if path.endswith("tcp") else _SOCKETS
    if path.startswith("/home/") and (config := disk.config_text(spark.script, path)) is not None:
        return json.dumps(config, indent=2) + "\n"
    if path == "/proc/meminfo":
        return _meminfo(spark, t)
    if path == "/proc/vmstat":
        return "".join(f"{key} {value}\n" for key, value in lines.vmstat(spark, t).items())
    return known.get(path)


def started_ticks(spark: Spark, live: LiveProcess) -> int:
    """Field 22 of its stat."""
    return round(max(0.0, spark.boot_s(live.started_s)) * TICKS_PER_S)


def _of_process(spark: Spark, live: LiveProcess, name: str) -> str | None:
    script, parent = live.script, live.script.parent_pid
    if name == "stat":
        threads, resident = (62 if live.gpu_gib else 4), int(live.resident_gib * GIB / _PAGE)
        rest = f"{script.state} {parent} {live.pid} {live.pid} 0 -1 4194560 91133 0 12 0 4410 918 0 0 20 0 {threads} 0"
        rest = f"{rest} {started_ticks(spark, live)} 7516192768 {resident} 18446744073709551615"
        return f"{live.pid} ({script.comm}) {rest}\n"
    if name == "status":
        uid = "\t".join([str(script.user_id)] * 4)
        resident, swapped = (int(part * GIB / 1024) for part in (live.resident_gib, live.swapped_gib))
        return (
            f"Name:\t{script.comm}\nState:\t{script.state}\nTgid:\t{live.pid}\nPid:\t{live.pid}\nPPid:\t{parent}\n"
            f"Uid:\t{uid}\nVmRSS:\t{resident} kB\nVmSwap:\t{swapped} kB\n"
        )
    if name == "wchan":
        return script.wait_channel or "0"
    if name == "stack":
        return f"[<0>] {script.wait_channel or 'do_sys_poll'}+0x1c/0x40\n[<0>] el0t_64_sync+0x1b8/0x1bc\n"
    if name == "cmdline":
        return "\0".join([*script.argv, ""]) if script.argv else f"{script.comm}\0"
    if name == "cgroup":
        return f"0::{live.cgroup}\n"
    return f"{script.comm}\n" if name == "comm" else None


def _meminfo(spark: Spark, t: float) -> str:
    return "".join(
        f"{key + ':':<16}{value:>8}{'' if key.startswith('HugePages_') else ' kB'}\n"
        for key, value in {"MemTotal": 0, **lines.meminfo(spark, t)}.items()
    )


def _pressure(spark: Spark, t: float, what: str) -> str | None:
    track = {"memory": "psi", "io": "psi_io", "cpu": "psi_cpu"}.get(what)
    if track is None:
        return None
    some10, some60, full10, full60 = lines.pressure(spark, track, t)
    return (
        f"some avg10={some10:.2f} avg60={some60:.2f} avg300=0.00 total=0\n"
        f"full avg10={full10:.2f} avg60={full60:.2f} avg300=0.00 total=0\n"
    )


def _sockets(spark: Spark, t: float) -> str:
    """Who listens: sshd, and the engines that serve."""
    ports = [22, *sorted({one.port for one in spark.script.engines if one.serves_at(t)})]
    rest = "00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0"
    rows = (f"{i:4d}: 00000000:{port:04X} {rest} {18_000 + i} 1 0000000000000000" for i, port in enumerate(ports))
    return _SOCKETS + "".join(f"{row} 100 0 0 10 0\n" for row in rows)


def _load(spark: Spark, t: float) -> str:
    load = spark.script.tracks["load"]
    means = " ".join(f"{max(0.0, load.mean(t - window, t)):.2f}" for window in (15, 75, 225))
    return f"{means} 1/412 21377\n"


def stamp(spark: Spark, t: float) -> str:
    """A second as journalctl's short-iso-precise writes it."""
    wall_s = spark.wall_s(t)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_s))}.{int(wall_s % 1 * 1e6):06d}+00:00"
