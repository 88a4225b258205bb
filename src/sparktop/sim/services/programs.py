"""The programs of a simulated Spark: their output, exit codes and effects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from sparktop.sim.reaction import acts
from sparktop.sim.scenario.script import InterfaceScript, NodeScript, UnitScript
from sparktop.sim.services import proxy, ssh_files
from sparktop.sim.services.answers import captured, filled
from sparktop.sim.services.process import Call, Ran
from sparktop.sim.spark import probe_lines
from sparktop.sim.spark.spark import GIB, Spark
from sparktop.sim.spark.storage import home

_HEADERS = 28
"""Bytes of the IPv4 and ICMP headers."""
_NO_FILE = "No such file or directory\n"
_RSYNC = "rsync  version 3.2.7  protocol version 31\n"


def _which(call: Call) -> Ran:
    programs = {f"{home(call.spark.script)}/.local/bin/hf", "/usr/bin/rsync", "/usr/bin/ssh", "/usr/bin/nvidia-ctk"}
    programs |= {"/usr/sbin/nginx"}
    on_path = {path for path in programs if path.startswith("/usr/") and path.rpartition("/")[2] in call.argv[1:]}
    paths = sorted(on_path | (programs & set(call.argv)))  # ~/.local/bin isn't in the PATH of a command over SSH
    return Ran(code=0 if paths else 1, output="".join(f"{path}\n" for path in paths))


def _printenv(call: Call) -> Ran:
    """`printenv SSH_CONNECTION`."""
    own = [
        text.partition("/")[0] for interface in call.spark.script.interfaces for text in interface.addresses
        if text.startswith("192.168.20.")
    ]  # fmt: skip
    return Ran(output=f"192.168.20.5 51022 {own[0] if own else '127.0.0.1'} 22\n")


def _ping(call: Call) -> Ran:
    to, payload = call.argv[-1], int(call.flag("-s") or 56)
    head = f"PING {to} ({to}) from {call.flag('-I') or '0.0.0.0'} : {payload}({payload + _HEADERS}) bytes of data.\n"  # noqa: S104
    ends = [end for ip in (call.flag("-I") or "", to) if (end := node_at(call.spark, call.t, ip)) is not None]
    path_mtu = min((round(interface.mtu.at(call.t)) for _, interface in ends), default=0) if len(ends) == 2 else 0
    if payload + _HEADERS > path_mtu:
        summary_lost = "1 packets transmitted, 0 received, 100% packet loss, time 0ms"
        return Ran(code=1, output=f"{head}\n--- {to} ping statistics ---\n{summary_lost}\n", seconds=1.0)
    reply = f"{payload + 8} bytes from {to}: icmp_seq=1 ttl=64 time=0.318 ms\n"
    summary = "1 packets transmitted, 1 received, 0% packet loss, time 0ms"
    return Ran(output=f"{head}{reply}\n--- {to} ping statistics ---\n{summary}\n")


def _ssh(call: Call) -> Ran:
    """`ssh -o ... -- [USER@]IP COMMAND`."""
    words = call.argv[call.argv.index("--") + 1 :] if "--" in call.argv else call.argv[-2:]
    to = words[0].rpartition("@")[2] if words else ""
    end = node_at(call.spark, call.t, to)
    if end is None:
        return Ran(code=255, errors=f"ssh: connect to host {to} port 22: No route to host\n", seconds=3.0)
    if why := ssh_files.logs_in(call.spark.script, end[0], to):
        return Ran(code=255, errors=f"{why}\n", seconds=0.3)
    return Ran(output=_RSYNC if words[1:] == ("rsync --version",) else "")


def node_at(spark: Spark, t: float, ip: str) -> tuple[NodeScript, InterfaceScript] | None:
    """The node that has this address, and the interface, which is up."""
    for script in spark.scenario.nodes:
        current = script.at(t + spark.script.began_s)
        for interface in current.interfaces:
            if interface.up.at(t) > 0.5 and any(text.partition("/")[0] == ip for text in interface.addresses):
                return current, interface
    return None


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


def run(spark: Spark, t: float, argv: Sequence[str], *, is_root: bool = False) -> Ran | None:
    """The result of a program started at second `t`; None where there is no such program."""
    call = Call(spark=spark, t=t, argv=tuple(argv), is_root=is_root)
    name = argv[0].rpartition("/")[2] if argv else ""
    if name == "sudo":
        command = argv[argv.index("--") + 1 :]
        return run(spark, t, command, is_root=True)
    answer = captured(spark.script, " ".join((name, *argv[1:])))
    if answer is not None:
        if answer.is_missing:
            return None
        return Ran(
            code=answer.code, output=filled(answer.output, spark.script), errors=filled(answer.errors, spark.script)
        )
    program = _PROGRAMS.get(name)
    return program(call) if callable(program) else program


# Programs that change the machine


def _sysctl(call: Call) -> Ran:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    if not words or not words[0].startswith("vm.drop_caches"):
        return Ran(code=1, errors=f"sysctl: cannot stat /proc/sys/{'/'.join(words[:1])}: {_NO_FILE}")
    if "=" not in words[0]:
        return Ran(output="vm.drop_caches = 0\n")
    if not call.is_root:
        return Ran(code=1, errors='sysctl: permission denied on key "vm.drop_caches"\n')
    return Ran(output="vm.drop_caches = 3\n", act=acts.drop_caches(), seconds=0.8)


def _install(call: Call) -> Ran:
    """`install ... TEXT PATH`: the steps of simulated Sparks have a file's text in place of its name."""
    return Ran(act=acts.write_file(path=call.argv[-1], text=call.argv[-2].removeprefix("/")))


def _rm(call: Call) -> Ran:
    written = {answer.name for answer in call.spark.script.answers}
    paths = [path for path in call.argv[1:] if path in written]
    return Ran(act=acts.write_file(path=paths[0], text=None)) if call.is_root and paths else Ran()


def _nginx(call: Call) -> Ran:
    """`nginx -t` and `nginx -s reload`: it serves what `services.proxy` reads of its files."""
    conf = "/etc/nginx/nginx.conf"
    said = f"nginx: the configuration file {conf} syntax is ok\nnginx: configuration file {conf} test is successful\n"
    return Ran(errors=said if "-t" in call.argv else "")


def _netplan(call: Call) -> Ran:
    if not call.is_root:
        return Ran(code=1, errors="Permission denied\n")
    return Ran(act=acts.apply_netplan(), seconds=2.0) if call.argv[1:] == ("apply",) else Ran(seconds=0.5)


def _systemctl(call: Call) -> Ran:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb == "show":
        return Ran(output=_show(call, names))
    if verb == "is-active":
        active = [_is_active(call, name) for name in names]
        return Ran(code=0 if all(active) else 3, output="".join("active\n" if one else "inactive\n" for one in active))
    if not call.is_root:
        return Ran(code=1, errors="Failed to do it: Interactive authentication required.\n")
    if verb == "reboot":
        return Ran(act=acts.reboot(), seconds=0.3)
    if verb == "isolate":
        way = "manager" if names[:1] == ["graphical.target"] else "console"
        return Ran(act=acts.desktop(way=way), seconds=3.0)
    if verb in ("start", "stop", "restart") and names:
        if names[0] in _DISPLAY:
            way = "console" if verb == "stop" else "manager"
            return Ran(act=acts.desktop(way=way), seconds=4.0)
        if _unit(call, names[0]) is None:
            return Ran(code=5, errors=f"Failed to {verb} {names[0]}: Unit {names[0]} not found.\n")
        return Ran(act=acts.unit(verb=verb, name=names[0]), seconds=1.5)
    return Ran() if verb in ("daemon-reload", "reset-failed") else Ran(code=1, errors="Unknown command.\n")


_DISPLAY = ("display-manager.service", "gdm.service", "gdm3.service")
_RETURN = "sparktop-netplan-return.timer"
"""What `systemd-run` has armed; nothing comes of it here, as no node is lost by new addresses."""
_SYSTEM = ("docker.service", "containerd.service", "nvidia-persistenced.service", "ssh.service", _RETURN)


def _unit(call: Call, name: str) -> UnitScript | None:
    """A service of the scenario, or one that a scripted process belongs to."""
    units = call.spark.script.units
    scripted = next((unit for unit in units if unit.name == name), None)
    if scripted is not None:
        return scripted
    is_running = any(live.cgroup.endswith(f"/{name}") for live in call.spark.processes(call.t))
    is_scripted = any(script.cgroup.endswith(f"/{name}") for script in call.spark.script.processes)
    if not is_scripted and name not in _SYSTEM:
        return None
    return UnitScript(name=name, active="active" if is_running or name in _SYSTEM else "inactive")


def _is_active(call: Call, name: str) -> bool:
    if name in ("graphical.target", *_DISPLAY):
        return probe_lines.compositor(call.spark, call.t) is not None
    unit = _unit(call, name)
    return name == "multi-user.target" or (unit is not None and unit.active == "active")


def _show(call: Call, names: Sequence[str]) -> str:
    properties = [name for word, after in pairwise(call.argv) if word == "-p" for name in after.split(",")]
    blocks = []
    for name in (name for name in names if name not in properties and "," not in name):
        unit = _unit(call, name)
        display = name in _DISPLAY
        is_known = display or unit is not None
        values = {
            "Id": "gdm.service" if display else name,
            "LoadState": "loaded" if is_known else "not-found",
            "ActiveState": "active" if _is_active(call, name) else "inactive",
            "SubState": "running" if _is_active(call, name) else "dead",
            "ExecStart": "",
        }
        blocks.append("".join(f"{key}={values[key]}\n" for key in properties if key in values))
    return "\n".join(blocks)


# Programs that only read


def _cat(call: Call) -> Ran:
    output, errors = "", ""
    for path in _operands(call.argv[1:]):
        text = probe_lines.text(call.spark, call.t, path)
        output, errors = output + (text or ""), errors + (f"cat: {path}: {_NO_FILE}" if text is None else "")
    return Ran(code=1 if errors else 0, output=output, errors=errors)


def _head(call: Call) -> Ran:
    line_count = int(call.flag("-n") or 10)
    texts = {path: probe_lines.text(call.spark, call.t, path) for path in _operands(call.argv[1:])}
    blocks = [
        f"==> {path} <==\n" + "".join(text.splitlines(keepends=True)[:line_count])
        for path, text in texts.items()
        if text is not None
    ]
    return Ran(code=1 if None in texts.values() else 0, output="\n".join(blocks))


def _operands(words: Sequence[str]) -> list[str]:
    return list(words[words.index("--") + 1 :]) if "--" in words else [word for word in words if word.startswith("/")]


def _grep(call: Call) -> Ran:
    """`grep -qxF -e TEXT -- FILE`: whether any line is TEXT, with v whether any line differs from it."""
    if "-RsE" in call.argv:
        return _grep_folders(call)
    texts = [
        ssh_files.text_of(call.spark.script, path) or probe_lines.text(call.spark, call.t, path)
        for path in _operands(call.argv[1:])
    ]
    pattern = call.flag("-e")
    inverted = any(re.fullmatch(r"-[a-zA-Z]*v[a-zA-Z]*", word) for word in call.argv[1:])
    matches = [(line == pattern) is not inverted for text in texts if text is not None for line in text.splitlines()]
    return Ran(code=0 if any(matches) else 1 if None not in texts else 2)


def _grep_folders(call: Call) -> Ran:
    """`grep -RsE PATTERN FOLDER ...`: of the sites that sparktop wrote; nothing else is there."""
    pattern = re.compile(call.argv[2].replace(r"\s", "[ \t]"))
    rows = [
        f"{site.name.replace('sites-available', 'sites-enabled')}:{line}\n"
        for site in call.spark.script.answers
        if site.name.startswith(proxy.SITES)
        for line in site.output.splitlines()
        if pattern.search(line)
    ]
    return Ran(code=0 if rows else 1, output="".join(rows))


def _awk(call: Call) -> Ran:
    """Whether enough memory is free without dropping caches, or the first words of a file."""
    if (words := ssh_files.first_words(call)) is not None:
        return words
    need = re.fullmatch(r"need=(\d+)", call.flag("-v") or "")
    meminfo = probe_lines.meminfo(call.spark, call.t)
    free = meminfo["MemFree"] - min(meminfo["CmaFree"], meminfo["CmaTotal"])
    return Ran(code=0 if need is not None and free >= int(need[1]) else 1)


def _journalctl(call: Call) -> Ran:
    if "--boot=-1" in call.argv and not call.spark.script.boots:
        return Ran(code=1, errors="Specifying boot ID or boot offset has no effect, no persistent journal was found.\n")
    if "--boot=-1" in call.argv:
        return Ran(output="-- the boot before is not kept in this simulation --\n")
    host = call.spark.script.machine.hostname
    rows = probe_lines.kernel_rows(call.spark, float("-inf"), call.t)[-int(call.flag("-n") or 10_000) :]
    lines = [
        f"{probe_lines.stamp(call.spark, row[0] - call.spark.boot_s(0))} {host} kernel: {row[3]}\n" for row in rows
    ]
    return Ran(output="".join(lines))


def _dmesg(call: Call) -> Ran:
    if not call.is_root:
        return Ran(code=1, errors="dmesg: read kernel buffer failed: Operation not permitted\n")
    rows = probe_lines.kernel_rows(call.spark, float("-inf"), call.t)
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
    """A session at the screen since the start where there is a desktop, and a login of nine minutes ago."""
    user, lines, now_s = call.spark.script.machine.user, [], call.spark.wall_s(call.t)
    if probe_lines.compositor(call.spark, call.t) is not None:
        at_screen = _minute(now_s - call.spark.boot_s(call.t) + 40)
        lines.append(f"{user:8} :0           {at_screen}   ?          3620 (:0)\n")
    lines.append(f"{user:8} pts/0        {_minute(now_s - 540)}   .         21370 (192.168.20.5)\n")
    return Ran(output="".join(lines))


def _minute(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M")


def _loginctl(call: Call) -> Ran:
    machine, live = call.spark.script.machine, probe_lines.compositor(call.spark, call.t)
    if call.argv[1:2] in (("enable-linger",), ("disable-linger",)):
        return Ran(act=acts.linger(enabled=call.argv[1] == "enable-linger"), seconds=0.2)
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
    row = probe_lines.gpu(call.spark, call.t)["gpus"][0]
    head = (
        f"Driver Version                            : {row['driver']}\nAttached GPUs : 1\nGPU 0000000F:01:00.0\n"
        f"    Product Name                          : {row['name']}\n    GPU UUID : {row['uuid']}\n"
        "    FB Memory Usage\n        Total                             : N/A\n"
        f"    Utilization\n        GPU                               : {row['util']} %\n"
        f"    GPU Power Readings\n        Average Power Draw                : {row['power_mw'] / 1000:.2f} W\n"
    )
    processes = (
        f"        Process ID : {pid}\n            Name : {name}\n            Used GPU Memory : {used // 2**20} MiB\n"
        for pid, name, used, _ in row["procs"]
    )
    return Ran(output="".join([head, *processes]), seconds=0.6)


def _ip(call: Call) -> Ran:
    rows = []
    if call.argv[2:4] == ("route", "get"):
        return Ran(code=2 if node_at(call.spark, call.t, call.argv[4]) is None else 0)
    for interface in call.spark.script.interfaces:
        pairs = (address.partition("/") for address in interface.addresses)
        addresses = [{"family": "inet", "local": where, "prefixlen": int(bits or 32)} for where, _, bits in pairs]
        state = "UP" if interface.up.at(call.t) > 0.5 else "DOWN"
        mtu = round(interface.mtu.at(call.t))
        rows.append({"ifname": interface.name, "mtu": mtu, "operstate": state, "addr_info": addresses})
    return Ran(output=json.dumps(rows) + "\n")


def _rdma(call: Call) -> Ran:
    rows = [
        {"ifname": port["device"], "port": 1, "state": port["state"], "netdev": port["interface"]}
        for port in probe_lines.network(call.spark, call.t)["rdma"]
    ]
    return Ran(output=json.dumps(rows) + "\n")


def _test(call: Call) -> Ran:
    """`test [!] -e PATH`: a linger flag where the user lingers, nginx's files where they were written, all else."""
    path = call.argv[-1]
    if path.startswith("/etc/nginx/"):
        is_written = any(answer.name == path for answer in call.spark.script.answers)
        return Ran(code=0 if is_written is not ("!" in call.argv) else 1)
    is_there = call.spark.script.machine.lingers or not call.argv[-1].startswith("/var/lib/systemd/linger/")
    return Ran(code=0 if is_there is not ("!" in call.argv) else 1)


def _ls(call: Call) -> Ran:
    """`ls -d FOLDER ...`: Debian's folders are there."""
    return Ran(output="".join(f"{path}\n" for path in call.argv[1:] if path.startswith("/")))


def _sleep(call: Call) -> Ran:
    return Ran(seconds=float(call.argv[1]))


_PROGRAMS: dict[str, Callable[[Call], Ran] | Ran] = {
    "awk": _awk, "cat": _cat, "df": _df, "dmesg": _dmesg, "false": Ran(code=1),
    "chmod": Ran(), "dd": ssh_files.dd, "find": ssh_files.find, "getent": ssh_files.getent, "sed": ssh_files.sed,
    "ssh-keygen": ssh_files.ssh_keygen, "grep": _grep,
    "head": _head, "ip": _ip, "journalctl": _journalctl, "loginctl": _loginctl, "mkdir": Ran(),
    "nvidia-smi": _nvidia_smi, "ping": _ping, "printenv": _printenv, "ps": _ps, "python3": Ran(), "rdma": _rdma,
    "cmp": Ran(), "pgrep": Ran(output="812\n"), "cp": Ran(), "ln": Ran(), "ls": _ls, "mv": Ran(), "nginx": _nginx,
    "install": _install, "netplan": _netplan, "rm": _rm, "systemd-run": Ran(), "visudo": Ran(),
    "rsync": Ran(output=_RSYNC), "sleep": _sleep, "ssh": _ssh, "sync": Ran(seconds=0.4),
    "sysctl": _sysctl, "systemctl": _systemctl, "systemd-inhibit": Ran(), "test": _test, "true": Ran(), "which": _which,
    "who": _who,
    "docker": Ran(code=1, errors="this simulated Docker has no projects: no configuration file provided: not found\n"),
    "nvidia-ctk": Ran(output="NVIDIA Container Toolkit CLI version 1.18.1\ncommit: 0123456789abcdef\n"),
}  # fmt: skip
