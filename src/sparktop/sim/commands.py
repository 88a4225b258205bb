"""Programs of a simulated Spark: what they say, and what they do to it. Those that nobody asks for aren't there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop.sim import acts, lines, lookups, procfs
from sparktop.sim.program import Call, Ran
from sparktop.sim.script import UnitScript
from sparktop.sim.spark import GIB, Spark


def run(spark: Spark, t: float, argv: Sequence[str], *, is_root: bool = False) -> Ran | None:
    """How a program ends that is started at second `t`; None where there is none of that name."""
    call = Call(spark=spark, t=t, argv=tuple(argv), is_root=is_root)
    name = argv[0].rpartition("/")[2] if argv else ""
    if name == "sudo":
        rest = argv[argv.index("--") + 1 :] if "--" in argv else [word for word in argv[1:] if word != "-n"]
        return _sudo_list(call) if "-l" in argv else run(spark, t, rest, is_root=True)
    if name == "timeout":
        words = [word for word in argv[1:] if not word.startswith("-")]
        numbers = [i for i, word in enumerate(words) if re.fullmatch(r"[\d.]+[smh]?", word)]
        return run(spark, t, words[numbers[-1] + 1 :], is_root=is_root) if numbers else Ran(code=125)
    found = _PROGRAMS.get(name)
    return found(call) if found is not None else None


def _sudo_list(call: Call) -> Ran:
    machine = call.spark.script.machine
    return Ran(output=f"User {machine.user} may run the following commands:\n    (ALL : ALL) NOPASSWD: ALL\n")


# What changes the machine


def _sync(call: Call) -> Ran:
    return Ran(seconds=0.4)


def _sysctl(call: Call) -> Ran:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    if not words or not words[0].startswith("vm.drop_caches"):
        return Ran(code=1, errors=f"sysctl: cannot stat /proc/sys/{'/'.join(words[:1])}: No such file or directory\n")
    if "=" not in words[0]:
        return Ran(output="vm.drop_caches = 0\n")
    if not call.is_root:
        return Ran(code=1, errors='sysctl: permission denied on key "vm.drop_caches"\n')
    return Ran(output="vm.drop_caches = 3\n", act=acts.DropCaches(), seconds=0.8)


def _kill(call: Call) -> Ran:
    pids = [word for word in call.argv[1:] if word.isdecimal()]
    signal = (call.flag("-s") or "TERM").removeprefix("SIG")
    live = next((one for one in call.spark.processes(call.t) if pids and one.pid == int(pids[-1])), None)
    if live is None:
        return Ran(code=1, errors=f"kill: ({pids[-1] if pids else ''}) - No such process\n")
    if not call.is_root and live.script.user_id != call.spark.script.machine.user_id:
        return Ran(code=1, errors=f"kill: ({live.pid}) - Operation not permitted\n")
    return Ran(act=acts.SignalProcess(pid=live.pid, signal=signal))


def _systemctl(call: Call) -> Ran:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb == "show":
        return Ran(output=_show(call, names))
    if verb == "is-active":
        known = [_is_active(call, name) for name in names]
        return Ran(code=0 if all(known) else 3, output="".join("active\n" if one else "inactive\n" for one in known))
    if not call.is_root:
        return Ran(code=1, errors="Failed to do it: Interactive authentication required.\n")
    if verb in ("reboot", "poweroff"):
        return Ran(act=acts.Reboot(), seconds=0.3)
    if verb == "isolate":
        way = "manager" if names[:1] == ["graphical.target"] else "console"
        return Ran(act=acts.Desktop(way=way), seconds=3.0)
    if verb in ("start", "stop", "restart") and names:
        if names[0] in _DISPLAY:
            way = "console" if verb == "stop" else "manager"
            return Ran(act=acts.Desktop(way=way), seconds=4.0)
        if _unit(call, names[0]) is None:
            return Ran(code=5, errors=f"Failed to {verb} {names[0]}: Unit {names[0]} not found.\n")
        return Ran(act=acts.Unit(verb=verb, name=names[0]), seconds=1.5)
    return (
        Ran() if verb in ("daemon-reload", "set-default", "reset-failed") else Ran(code=1, errors="Unknown command.\n")
    )


_DISPLAY = ("display-manager.service", "gdm.service", "gdm3.service")
_SYSTEM = ("docker.service", "containerd.service", "nvidia-persistenced.service", "ssh.service")


def _unit(call: Call, name: str) -> UnitScript | None:
    """A service of the scenario, or one that a process of it belongs to."""
    units = call.spark.script.units
    told = next((one for one in units if one.name == name), None)
    if told is not None:
        return told
    lives = any(live.cgroup.endswith(f"/{name}") for live in call.spark.processes(call.t))
    ours = any(script.cgroup.endswith(f"/{name}") for script in call.spark.script.processes)
    if not ours and name not in _SYSTEM:
        return None
    return UnitScript(name=name, active="active" if lives or name in _SYSTEM else "inactive")


def _is_active(call: Call, name: str) -> bool:
    if name in ("graphical.target", *_DISPLAY):
        return lines.compositor(call.spark, call.t) is not None
    unit = _unit(call, name)
    return name == "multi-user.target" or (unit is not None and unit.active == "active")


def _show(call: Call, names: Sequence[str]) -> str:
    wanted: list[str] = []
    for word, after in zip(call.argv, call.argv[1:], strict=False):
        if word in ("-p", "--property"):
            wanted += after.split(",")
    blocks = []
    for name in (one for one in names if one not in wanted and "," not in one):
        unit = _unit(call, name)
        display = name in _DISPLAY
        known = display or unit is not None
        values = {
            "Id": "gdm.service" if display else name,
            "LoadState": "loaded" if known else "not-found",
            "ActiveState": "active" if _is_active(call, name) else "inactive",
            "SubState": "running" if _is_active(call, name) else "dead",
            "ExecStart": "",
        }
        blocks.append("".join(f"{key}={values[key]}\n" for key in wanted or values if key in values))
    return "\n".join(blocks)


# What only looks


def _cat(call: Call) -> Ran:
    output, errors = "", ""
    for path in _operands(call.argv[1:]):
        text = procfs.text(call.spark, call.t, path)
        output, errors = output + (text or ""), errors + ("" if text is not None else _missing("cat", path))
    return Ran(code=1 if errors else 0, output=output, errors=errors)


def _head(call: Call) -> Ran:
    paths = _operands(call.argv[1:])
    wanted, code, parts = int(call.flag("-n") or 10), 0, []
    for path in paths:
        text = procfs.text(call.spark, call.t, path)
        code = 1 if text is None else code
        if text is not None:
            parts.append(f"==> {path} <==\n" + "".join(text.splitlines(keepends=True)[:wanted]))
    return Ran(code=code, output="\n".join(parts))


def _operands(words: Sequence[str]) -> list[str]:
    return list(words[words.index("--") + 1 :]) if "--" in words else [word for word in words if word.startswith("/")]


def _missing(program: str, path: str) -> str:
    return f"{program}: {path}: No such file or directory\n"


def _grep(call: Call) -> Ran:
    """`grep -qvxF -e TEXT -- FILE`: whether a line is another."""
    said = [procfs.text(call.spark, call.t, path) for path in _operands(call.argv[1:])]
    wanted = call.flag("-e")
    inverted = any(re.fullmatch(r"-[a-zA-Z]*v[a-zA-Z]*", word) for word in call.argv[1:])
    matches = [(line == wanted) is not inverted for text in said if text is not None for line in text.splitlines()]
    return Ran(code=0 if any(matches) else 1 if None not in said else 2)


def _awk(call: Call) -> Ran:
    """The one question that is asked so: whether enough memory is free without dropping caches."""
    need = re.fullmatch(r"need=(\d+)", call.flag("-v") or "")
    meminfo = lines.meminfo(call.spark, call.t)
    free = meminfo["MemFree"] - min(meminfo["CmaFree"], meminfo["CmaTotal"])
    return Ran(code=0 if need is not None and free >= int(need[1]) else 1)


def _journalctl(call: Call) -> Ran:
    earlier = any(word in ("-b=-1", "--boot=-1") for word in call.argv) or call.flag("-b") == "-1"
    if earlier and not call.spark.script.boots:
        return Ran(code=1, errors="Specifying boot ID or boot offset has no effect, no persistent journal was found.\n")
    if earlier:
        return Ran(output="-- the boot before is not kept in this simulation --\n")
    host = call.spark.script.machine.hostname
    rows = lines.kernel_rows(call.spark, float("-inf"), call.t)[-int(call.flag("-n") or 10_000) :]
    said = [f"{procfs.stamp(call.spark, row[0] - call.spark.boot_s(0))} {host} kernel: {row[3]}\n" for row in rows]
    return Ran(output="".join(said))


def _dmesg(call: Call) -> Ran:
    if not call.is_root:
        return Ran(code=1, errors="dmesg: read kernel buffer failed: Operation not permitted\n")
    rows = lines.kernel_rows(call.spark, float("-inf"), call.t)
    return Ran(output="".join(f"[{row[0]:12.6f}] {row[3]}\n" for row in rows))


def _ps(call: Call) -> Ran:
    alive = sorted(call.spark.processes(call.t), key=lambda live: -live.resident_gib)
    machine = call.spark.script.machine
    rows = ["    PID    PPID USER                 STAT ELAPSED   RSS NLWP WCHAN                            COMMAND\n"]
    for live in alive:
        user = machine.user if live.script.user_id == machine.user_id else "root"
        elapsed, resident = int(call.t - live.started_s), int(live.resident_gib * GIB / 1024)
        channel = live.script.wait_channel or "-"
        rows.append(
            f"{live.pid:7d} {live.script.parent_pid:7d} {user:20} {live.script.state:4} {elapsed:7d} {resident:9d} "
            f"{62 if live.gpu_gib else 4:4d} {channel:32} {live.script.comm}\n"
        )
    return Ran(output="".join(rows), seconds=0.2)


def _who(call: Call) -> Ran:
    """One at the screen where there is one, and the console's own login."""
    user, said = call.spark.script.machine.user, []
    if lines.compositor(call.spark, call.t) is not None:
        said.append(f"{user:8} :0           2026-11-17 09:12   ?          3620 (:0)\n")
    said.append(f"{user:8} pts/0        2026-11-21 02:58   .         21370 (192.168.20.5)\n")
    return Ran(output="".join(said))


def _loginctl(call: Call) -> Ran:
    machine, live = call.spark.script.machine, lines.compositor(call.spark, call.t)
    if "list-sessions" in call.argv:
        rows = [f"      2 {machine.user_id} {machine.user} seat0 tty2\n"] if live is not None else []
        return Ran(output="".join([*rows, f"     14 {machine.user_id} {machine.user}       -\n"]))
    blocks = []
    for session in call.argv[1:]:
        if session == "2" and live is not None:
            kind = "x11" if "x11" in live.cgroup else "wayland"
            words = {"Type": kind, "Class": "user", "State": "active", "Remote": "no", "Seat": "seat0"}
        elif session == "14":
            words = {"Type": "tty", "Class": "user", "State": "active", "Remote": "yes", "Seat": ""}
        else:
            continue
        words = {"Id": session, "User": str(machine.user_id), "Name": machine.user, **words}
        blocks.append("".join(f"{key}={value}\n" for key, value in words.items()))
    return Ran(output="\n".join(blocks))


def _nvidia_smi(call: Call) -> Ran:
    row = lines.gpu(call.spark, call.t)["gpus"][0]
    said = [
        f"Driver Version                            : {row['driver']}\n",
        "Attached GPUs : 1\nGPU 0000000F:01:00.0\n",
    ]
    said.append(f"    Product Name                          : {row['name']}\n    GPU UUID : {row['uuid']}\n")
    said.append("    FB Memory Usage\n        Total                             : N/A\n")
    said.append(f"    Utilization\n        GPU                               : {row['util']} %\n")
    said.append(f"    GPU Power Readings\n        Average Power Draw                : {row['power_mw'] / 1000:.2f} W\n")
    said += [
        f"        Process ID : {pid}\n            Name : {name}\n            Used GPU Memory : {held // 2**20} MiB\n"
        for pid, name, held, _ in row["procs"]
    ]
    return Ran(output="".join(said), seconds=0.6)


def _ip(call: Call) -> Ran:
    rows = []
    for one in call.spark.script.interfaces:
        pairs = (address.partition("/") for address in one.addresses)
        addresses = [{"family": "inet", "local": where, "prefixlen": int(bits or 32)} for where, _, bits in pairs]
        state = "UP" if one.up.at(call.t) > 0.5 else "DOWN"
        mtu = round(one.mtu.at(call.t))
        rows.append({"ifname": one.name, "mtu": mtu, "operstate": state, "addr_info": addresses})
    return Ran(output=json.dumps(rows) + "\n")


def _rdma(call: Call) -> Ran:
    rows = [
        {"ifname": port["device"], "port": 1, "state": port["state"], "netdev": port["interface"]}
        for port in lines.network(call.spark, call.t)["rdma"]
    ]
    return Ran(output=json.dumps(rows) + "\n")


def _docker(call: Call) -> Ran:
    if call.argv[1:3] == ("compose", "version"):
        return Ran(output="Docker Compose version v2.39.1\n")
    return Ran(code=1, errors="this simulated Docker has no projects: no configuration file provided: not found\n")


def _nothing(call: Call) -> Ran:
    return Ran()


def _sleep(call: Call) -> Ran:
    return Ran(seconds=float(call.argv[1]))


def _false(call: Call) -> Ran:
    return replace(Ran(), code=1)


_PROGRAMS: dict[str, Callable[[Call], Ran]] = {
    **lookups.PROGRAMS, "awk": _awk, "cat": _cat, "dmesg": _dmesg, "docker": _docker, "false": _false,
    "find": _nothing, "grep": _grep, "head": _head, "ip": _ip, "journalctl": _journalctl, "kill": _kill,
    "loginctl": _loginctl, "nvidia-smi": _nvidia_smi, "ps": _ps, "python3": _nothing, "rdma": _rdma,
    "rm": _nothing, "sleep": _sleep, "sync": _sync, "sysctl": _sysctl, "systemctl": _systemctl,
    "systemd-inhibit": _nothing, "test": _nothing, "true": _nothing, "who": _who,
}  # fmt: skip
