"""The messages the probe would send and the files it would read, computed from a simulated Spark."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from sparktop.masking import mask_argv
from sparktop.probe.remote.desktop import SILENT_S
from sparktop.probe.remote.parsers import COMPOSITORS, MEMINFO_KEYS
from sparktop.sim.scenario.script import KernelEntry, Repeat
from sparktop.sim.spark import storage
from sparktop.sim.spark.spark import GIB, LiveProcess, Spark

TICKS_PER_S = 100
_SOCKETS = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
_PAGE = 4096
FULL_SHARE = 0.7
"""Of the time in which some task waits, that in which all do."""


def text(spark: Spark, t: float, path: str) -> str | None:
    """A file's text; None where there is no such file."""
    path = re.sub(r"/+", "/", path)
    if match := re.fullmatch(r"/proc/(\d+)/(\w+)", path):
        live = spark.process(int(match[1]), t)
        return _process_file(spark, live, match[2]) if live is not None else None
    if path.startswith("/proc/pressure/"):
        return _pressure(spark, t, path.rpartition("/")[2])
    machine = spark.script.machine
    texts: dict[str, str] = {
        "/proc/loadavg": _load(spark, t),
        "/proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{machine.kernel} root=UUID=simulated ro quiet splash\n",
        "/proc/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n",
        "/proc/buddyinfo": "Node 0, zone      DMA    402    310    122     61     30     11      5      311\n",
        "/proc/slabinfo": "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize>\n",
        "/proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {machine.driver}  Release Build\n"
        ),
        "/proc/sys/kernel/random/boot_id": f"{spark.boot_id}\n",
        "/etc/dgx-release": f'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="{machine.dgx}"\n',
    }
    if path in ("/proc/net/tcp", "/proc/net/tcp6"):
        return _sockets(spark, t) if path.endswith("tcp") else _SOCKETS
    if path.startswith("/home/") and (config := storage.config_text(spark.script, path)) is not None:
        return json.dumps(config, indent=2) + "\n"
    if path == "/proc/meminfo":
        return _meminfo(spark, t)
    if path == "/proc/vmstat":
        return "".join(f"{key} {value}\n" for key, value in vmstat(spark, t).items())
    return texts.get(path)


def started_ticks(spark: Spark, live: LiveProcess) -> int:
    """Field 22 of the process's stat: its start in clock ticks."""
    return round(max(0.0, spark.boot_s(live.started_s)) * TICKS_PER_S)


def _process_file(spark: Spark, live: LiveProcess, name: str) -> str | None:
    script, parent = live.script, live.script.parent_pid
    if name == "stat":
        threads, resident = (62 if live.gpu_gib else 4), int(live.resident_gib * GIB / _PAGE)
        fields = (
            f"{script.state} {parent} {live.pid} {live.pid} 0 -1 4194560 91133 0 12 0 4410 918 0 0 20 0 {threads} 0"
        )
        fields = f"{fields} {started_ticks(spark, live)} 7516192768 {resident} 18446744073709551615"
        return f"{live.pid} ({script.comm}) {fields}\n"
    if name == "status":
        uid = "\t".join([str(script.user_id)] * 4)
        resident, swapped = (int(size * GIB / 1024) for size in (live.resident_gib, live.swapped_gib))
        return (
            f"Name:\t{script.comm}\nState:\t{script.state}\nTgid:\t{live.pid}\nPid:\t{live.pid}\nPPid:\t{parent}\n"
            f"Uid:\t{uid}\nVmRSS:\t{resident} kB\nVmSwap:\t{swapped} kB\n"
        )
    if name == "wchan":
        return script.wait_channel or "0"
    if name == "stack":
        return f"[<0>] {script.wait_channel or 'do_sys_poll'}+0x1c/0x40\n[<0>] el0t_64_sync+0x1b8/0x1bc\n"
    return None


def _meminfo(spark: Spark, t: float) -> str:
    return "".join(
        f"{key + ':':<16}{value:>8}{'' if key.startswith('HugePages_') else ' kB'}\n"
        for key, value in {"MemTotal": 0, **meminfo(spark, t)}.items()
    )


def _pressure(spark: Spark, t: float, resource: str) -> str | None:
    track = {"memory": "psi", "io": "psi_io", "cpu": "psi_cpu"}.get(resource)
    if track is None:
        return None
    some10, some60, full10, full60, full_s = pressure(spark, track, t)
    return (
        f"some avg10={some10:.2f} avg60={some60:.2f} avg300=0.00 total={full_s / FULL_SHARE * 1e6:.0f}\n"
        f"full avg10={full10:.2f} avg60={full60:.2f} avg300=0.00 total={full_s * 1e6:.0f}\n"
    )


def _sockets(spark: Spark, t: float) -> str:
    """Listening sockets: sshd, and the engines that serve."""
    ports = [22, *sorted({engine.port for engine in spark.script.engines if engine.serves_at(t)})]
    fields = "00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0"
    rows = (f"{i:4d}: 00000000:{port:04X} {fields} {18_000 + i} 1 0000000000000000" for i, port in enumerate(ports))
    return _SOCKETS + "".join(f"{row} 100 0 0 10 0\n" for row in rows)


def _load(spark: Spark, t: float) -> str:
    load = spark.script.tracks["load"]
    means = " ".join(f"{max(0.0, load.mean(t - window, t)):.2f}" for window in (15, 75, 225))
    return f"{means} 1/412 21377\n"


def stamp(spark: Spark, t: float) -> str:
    """A second in journalctl's short-iso-precise format."""
    wall_s = spark.wall_s(t)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_s))}.{int(wall_s % 1 * 1e6):06d}+00:00"


KERNEL_BATCH = 80
"""Kernel lines per message: about 10 KiB."""
Row = list[Any]


_FACTS = (
    "hostname", "boot_id", "machine_digest", "kernel", "arch", "os", "dgx", "product", "driver", "cpus", "python",
    "user", "uid", "disks", "gaps",
)  # fmt: skip


def facts(spark: Spark) -> dict[str, Any]:
    """The facts in `hello`."""
    machine = spark.script.machine
    own = {
        "boot_id": spark.boot_id, "machine_digest": spark.machine_digest, "arch": "aarch64", "os": machine.os_name,
        "uid": machine.user_id, "disks": [], "gaps": {"disks": "not read yet"},
    }  # fmt: skip
    return {name: own[name] if name in own else getattr(machine, name) for name in _FACTS}


def slow_facts(spark: Spark, t: float) -> dict[str, Any]:
    """The body of `facts`: those in `hello`, and facts that take longer to read."""
    machine = spark.script.machine
    return {
        **facts(spark),
        "disks": [["/", int(machine.disk_gib * GIB), int(machine.disk_free_gib * GIB)]],
        "gaps": {},
        "installed": machine.driver_installed or machine.driver,
        "next_kernel": machine.next_kernel or machine.kernel,
        "next_driver": machine.next_driver,
        "lingers": machine.lingers,
        "removes_ipc": machine.removes_ipc,
        "graphical": machine.graphical,
        "units": [
            [unit.name, unit.active, unit.sub, unit.result, int(unit.restarts.at(t)), unit.restart, unit.delay_s,
             unit.main_pid, unit.exit_status]
            for unit in spark.script.units
        ],
    }  # fmt: skip


def network(spark: Spark, t: float) -> dict[str, Any]:
    """A `network` message."""
    up = {interface.name: interface.up.at(t) > 0.5 for interface in spark.script.interfaces}
    active = [port for port in spark.script.rdma if up.get(port.interface)]
    moved = 0.4 * spark.script.boot_age_s * 1e6 + max(0.0, spark.script.tracks["rdma_mb_s"].integral(t)) * 1e6
    rows = []
    for port in spark.script.rdma:
        is_active = port in active
        rows.append({
            "device": port.name, "port": 1, "interface": port.interface, "state": "ACTIVE" if is_active else "DOWN",
            "rate": port.rate_gbps if is_active else 40.0, "gids": [list(gid) for gid in port.gids],
        })  # fmt: skip
        if is_active:
            rows[-1] |= {"rx": int(moved / len(active)) // 4 * 4, "tx": int(moved * 1.01 / len(active)) // 4 * 4}
    interfaces = [
        {
            "name": one.name, "addresses": list(one.addresses), "up": up[one.name], "mtu": round(one.mtu.at(t)),
            "speed": one.speed_mbps if up[one.name] else None,
        } for one in spark.script.interfaces
    ]  # fmt: skip
    return {"kind": "network", "boot": round(spark.boot_s(t), 3), "interfaces": interfaces, "rdma": rows}


def sample(spark: Spark, t: float, *, interval_s: float, skipped: int, running_s: float) -> dict[str, Any]:
    """A `sample` message; `running_s` is how long this probe has run, for its own cost."""
    psi = {name: pressure(spark, track, t) for name, track in (("memory", "psi"), ("io", "psi_io"), ("cpu", "psi_cpu"))}
    load = spark.script.tracks["load"]
    return {
        "kind": "sample",
        "boot": round(spark.boot_s(t), 4),
        "wall": round(spark.wall_s(t), 4),
        "interval": interval_s,
        "meminfo": meminfo(spark, t),
        "psi": psi,
        "vmstat": vmstat(spark, t),
        "cpu": _cpu(spark, t),
        "load": [
            round(max(0.0, load.mean(t - window, t) + 0.04 * spark.jitter("load", t)), 2) for window in (15, 75, 225)
        ],
        "cost": [round(0.028 + 0.0011 * running_s, 4), 13_912],
        "skipped": skipped,
    }


def meminfo(spark: Spark, t: float) -> dict[str, int]:
    """/proc/meminfo in kB, every key the probe sends."""
    memory = spark.memory(t)
    file_pages = max(0.0, memory.cached - memory.shared)
    gib = {
        "MemFree": memory.free,
        "MemAvailable": memory.available,
        "Buffers": memory.buffers,
        "Cached": memory.cached,
        "SwapCached": memory.swap_used * 0.02,
        "Active(file)": file_pages * 0.45,
        "Inactive(file)": file_pages * 0.55,
        "SwapTotal": memory.swap_total,
        "SwapFree": memory.swap_total - memory.swap_used,
        "AnonPages": memory.anonymous,
        "Mapped": min(1.8, file_pages * 0.6),
        "Shmem": memory.shared,
        "KReclaimable": memory.slab_reclaimable,
        "SReclaimable": memory.slab_reclaimable,
        "SUnreclaim": memory.slab_unreclaimable,
        "KernelStack": memory.kernel_stack,
        "PageTables": memory.page_tables,
        "CommitLimit": memory.total / 2 + memory.swap_total,
        "Committed_AS": memory.anonymous * 2.1 + memory.shared,
    }
    kib = {key: round(value * 1024 * 1024) for key, value in gib.items()}
    kib |= {"MemTotal": spark.script.machine.total_kib, "Unevictable": 98_404, "Mlocked": 98_404}
    kib |= {"Dirty": 412 + int(300 * abs(spark.jitter("dirty", t))), "Writeback": 0}
    kib |= {"CmaTotal": 65_536, "CmaFree": 61_184, "HugePages_Total": 0, "HugePages_Free": 0, "Hugepagesize": 2048}
    return {key: kib[key] for key in MEMINFO_KEYS}


def pressure(spark: Spark, track: str, t: float) -> Row:
    """[some10, some60, full10, full60] in percent, and the seconds of full."""
    some = spark.script.tracks[track]
    full = 0.0 if track == "psi_cpu" else FULL_SHARE
    latest, minute = some.at(t), some.mean(t - 60, t)
    full_s = full * max(0.0, some.integral(t)) / 100.0
    return [round(latest, 2), round(minute, 2), round(latest * full, 2), round(minute * full, 2), round(full_s, 3)]


def vmstat(spark: Spark, t: float) -> dict[str, int]:
    """Counters since boot."""
    swap, psi = spark.script.tracks["swap_gib"], spark.script.tracks["psi"]
    out = swap.at(0) + swap.risen(max(t, 0.0))
    stalled = max(0.0, psi.integral(t))
    return {
        "pswpin": int(max(0.0, out - swap.at(t)) * 0.8 * GIB / _PAGE),
        "pswpout": int(out * GIB / _PAGE),
        "pgmajfault": 48_211 + int(max(0.0, spark.boot_s(t)) * 0.3 + 60 * stalled),
        "oom_kill": spark.oom_kills(t),
        "allocstall": int(12 * stalled),
    }


def _cpu(spark: Spark, t: float) -> Row:
    boot_s, cores = spark.boot_s(t), spark.script.machine.cpus
    share = spark.script.tracks["cpu_percent"]
    before = 0.021 * spark.script.boot_age_s
    busy = before + share.integral(t) / 100
    return [int(busy * cores * TICKS_PER_S), int(boot_s * cores * TICKS_PER_S)]


def gpu(spark: Spark, t: float) -> dict[str, Any]:
    """A `gpu` message as NVML gives it on GB10: no memory figures, and memory utilisation always 0."""
    util = spark.figure("util", t)
    if util > 1:
        util = min(96.0, util + 1.2 * spark.jitter("util", t))
    power_w = max(3.0, spark.figure("power_w", t) + _power_swing(spark, t))
    temperature = spark.figure("temp_c", t) + 0.4 * spark.jitter("temp", t)
    mask = int(spark.figure("throttle", t)) or (1 if util < 1 else 0)
    row = {
        "name": "NVIDIA GB10", "uuid": spark.gpu_uuid, "driver": spark.script.machine.driver, "sm_max_mhz": 3003,
        "power_mw": round(power_w * 1000), "sm_mhz": round(spark.figure("sm_mhz", t)), "temp_c": round(temperature),
        "pstate": 8 if power_w < 6 and util < 1 else 0, "throttle": mask, "util": round(util), "mem_util": 0,
        "procs": [
            [live.pid, live.script.gpu_name or live.script.comm, int(live.gpu_gib * GIB), live.script.gpu_kind]
            for live in spark.processes(t)
            if live.gpu_gib is not None
        ],
        "gaps": {"mem_total": "not supported", "mem_used": "not supported"},
    }  # fmt: skip
    return {"kind": "gpu", "boot": round(spark.boot_s(t), 3), "gpus": [row]}


def _power_swing(spark: Spark, t: float) -> float:
    return (0.25 if spark.figure("util", t) < 1 else 0.02 * spark.figure("power_w", t)) * spark.jitter("power", t)


def processes(spark: Spark, t: float) -> dict[str, Any]:
    """A `processes` message."""
    alive = spark.processes(t)
    total = 412 + int(6 * spark.jitter("processes", t)) + len(alive)
    return {
        "kind": "processes",
        "boot": round(spark.boot_s(t), 3),
        "total": total,
        "zombies": sum(live.script.state == "Z" for live in alive),
        "rows": [_process(spark, live) for live in sorted(alive, key=lambda live: live.pid)],
    }


def _process(spark: Spark, live: LiveProcess) -> dict[str, Any]:
    script = live.script
    row: dict[str, Any] = {
        "pid": live.pid, "ppid": script.parent_pid, "comm": script.comm, "state": script.state,
        "rss": int(live.resident_gib * GIB), "start": round(max(0.0, spark.boot_s(live.started_s)), 2),
        "uid": script.user_id, "shm": int(live.shared_gib * GIB), "swap": int(live.swapped_gib * GIB),
        "cgroup": live.cgroup,
    }  # fmt: skip
    if script.wait_channel:
        row["wchan"] = script.wait_channel
    if script.argv:
        row["argv"] = mask_argv(script.argv)
    return row


def compositor(spark: Spark, t: float) -> LiveProcess | None:
    """The process that draws the desktop, as the probe chooses it; None on a machine without one."""
    alive = [live for live in spark.processes(t) if live.script.comm in COMPOSITORS]
    return min(alive, key=lambda live: COMPOSITORS.index(live.script.comm), default=None)


def desktop(
    spark: Spark, t: float, live: LiveProcess, *, answers: bool | None, silent_s: float | None
) -> dict[str, Any]:
    """A `desktop` message; `silent_s` is the second since which questions have gone unanswered."""
    script = live.script
    reason = "" if answers else f"no answer within {SILENT_S:g} s"
    if answers is None:
        reason = f"its session bus is user {script.user_id}'s: log in as that user to have it asked"
    return {
        "kind": "desktop", "boot": round(spark.boot_s(t), 3), "compositor": script.comm, "pid": live.pid,
        "uid": script.user_id, "state": script.state, "wchan": script.wait_channel or None, "answers": answers,
        "silent": None if silent_s is None else round(spark.boot_s(silent_s), 3), "blocked": None, "reason": reason,
        "greeter": False,
    }  # fmt: skip


def kernel_rows(spark: Spark, after_s: float, until_s: float) -> list[Row]:
    """[boot, wall, priority, text] of the kernel lines after `after_s` up to `until_s`, in order."""
    rows: list[Row] = [
        [round(spark.boot_s(at), 6), round(spark.wall_s(at), 6), entry.priority, spark.kernel_text(entry)]
        for entry in spark.script.kernel
        for at in _times(spark, entry, after_s, until_s)
        if spark.boot_s(at) >= 0
    ]
    rows.sort(key=lambda row: float(row[0]))
    return rows


def kernel_messages(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """`kernel` messages of a bounded size."""
    for start in range(0, len(rows), KERNEL_BATCH):
        yield {"kind": "kernel", "source": "journal", "dropped": 0, "lines": rows[start : start + KERNEL_BATCH]}


def _times(spark: Spark, entry: KernelEntry, after_s: float, until_s: float) -> Iterator[float]:
    length_s = spark.scenario.length_s
    loops = spark.scenario.repeat is Repeat.LOOP and entry.at_s >= 0 and not spark.script.boots  # it boots once
    first = max(0, int((after_s - entry.at_s - entry.over_s) // length_s)) if loops and after_s > 0 else 0
    base = entry.at_s + first * length_s
    while base <= until_s:
        for i in range(entry.count):
            at = base + entry.over_s * i / entry.count
            if after_s < at <= until_s:
                yield at
        if not loops:
            return
        base += length_s
