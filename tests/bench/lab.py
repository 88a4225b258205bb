"""Two real sshd on loopback, an ssh configuration for them, and a network that can be cut."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import family, nonce_of, probe_of
from tests.bench.terminal import CheckInputs, Program, Screen
from tests.integration.sshd import Sshd

HOSTS = ("spark1", "spark2")
INSIDE = "SPARKTOP_BENCH_NETWORK"


def enter_own_network(module: str, *also: str) -> None:
    """Start the module again in a network namespace of our own, where cutting hurts nobody; go on here without root or
    iptables. `also`: other options of unshare."""
    if os.environ.get(INSIDE) or os.getuid() or not all(map(shutil.which, ("unshare", "ip", "iptables"))):
        return
    script = "ip link set lo up && iptables -S >/dev/null && echo yes"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True)
    if tried.stdout.strip() != "yes":
        return
    os.environ[INSIDE] = "1"
    command = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--net", *also, "sh", "-c", 'ip link set lo up && exec "$@"', "bench", *command])


def end_by_signals() -> None:
    """End as an exception does, with all that was started: an engine left here is one for the next run's nodes."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def can_cut() -> bool:
    return bool(os.environ.get(INSIDE))


@contextlib.contextmanager
def cut(sshd: Sshd) -> Iterator[None]:
    """Drop every packet to and from its port while the block runs, as a dead switch does."""
    rules = [
        ["INPUT", "-p", "tcp", "-d", sshd.host, "--dport", str(sshd.port), "-j", "DROP"],
        ["INPUT", "-p", "tcp", "-s", sshd.host, "--sport", str(sshd.port), "-j", "DROP"],
    ]
    assert can_cut()
    for rule in rules:
        subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)


@dataclass
class Node:
    """One "Spark": an sshd of its own."""

    name: str
    sshd: Sshd

    @property
    def listener(self) -> int:
        assert self.sshd.process is not None
        return self.sshd.process.pid

    def probe(self) -> int | None:
        """The main process of the probe that runs here now."""
        return probe_of(self.listener)

    def probe_processes(self) -> list[int]:
        main = self.probe()
        return family(main) if main else []

    def nonces(self) -> set[bytes]:
        return {nonce for pid in family(self.listener) if (nonce := nonce_of(pid))}


@dataclass
class Lab:
    """The nodes and how programs are started against them."""

    folder: Path
    nodes: tuple[Node, ...]
    quick: bool

    @property
    def config(self) -> Path:
        return self.folder / "home" / ".ssh" / "config"

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def env(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("PATH", "VIRTUAL_ENV") if key in os.environ}
        return kept | {
            "HOME": str(self.folder / "home"),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "BENCH_NOTES": str(self.notes),
        }

    def sparktop(self, *options: str) -> Program:
        """The command as a user starts it."""
        hosts = [node.name for node in self.nodes]
        return Program([sys.executable, "-m", "sparktop", "-F", str(self.config), *options, *hosts], env=self.env)

    def console(self, *options: str, seen: CheckInputs | None = None) -> Program:
        """The bench's console."""
        hosts = [node.name for node in self.nodes]
        command = [sys.executable, "-m", "tests.bench.console", str(self.config), *hosts, *options]
        return Program(command, env=self.env, seen=seen)

    def bare(self, hertz: float = 1.0, seen: CheckInputs | None = None) -> Program:
        return Program([sys.executable, "-m", "tests.bench.bare", f"{hertz:g}"], env=self.env, seen=seen)

    def only(self, *nodes: Node) -> Lab:
        return Lab(folder=self.folder, nodes=nodes, quick=self.quick)

    def ssh(self, node: Node, *command: str) -> str:
        """Run a command there with OpenSSH's client; what it printed."""
        words = ["ssh", "-F", str(self.config), node.name, *command]
        done = subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().strip()


def both_live(screen: Screen) -> bool:
    """Both halves of the screen show a sample's figures."""
    return "GiB available" in screen.half(0) and "GiB available" in screen.half(1)


@contextlib.contextmanager
def nodes_started(folder: Path, names: Sequence[str]) -> Iterator[tuple[Node, ...]]:
    """One sshd a name, on 127.0.0.2 and on, known in the configuration of the lab's home."""
    home = folder / "home"
    with contextlib.ExitStack() as stack:
        nodes = []
        for number, name in enumerate(names):
            # A home of the lab's own there too, so that what this machine's user's shell reads is not measured.
            options = {"SetEnv": f"HOME={home}"}
            sshd = stack.enter_context(Sshd.start(folder / name, host=f"127.0.0.{number + 2}", options=options))
            known = sshd.trust(home)
            sshd.alias(
                name, home, UserKnownHostsFile=str(known), GlobalKnownHostsFile="/dev/null", IdentitiesOnly="yes"
            )
            nodes.append(Node(name, sshd))
        yield tuple(nodes)


def wait_s(seconds: float) -> None:
    """Let a measured window pass."""
    time.sleep(seconds)


def machine(lab: Lab) -> list[str]:
    """What the figures were measured on."""
    cpu = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("sparktop", "textual", "rich", "asyncssh")]
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True).stderr.strip()
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    commit = subprocess.run(["git", "log", "-1", "--format=%h"], capture_output=True, text=True).stdout.strip()
    where = (
        "Two sshd on 127.0.0.2 and 127.0.0.3 of this machine: both nodes share its cores with the console, and the "
        "network takes nearly no time. No GPU: where NVML is asked, a stand-in module answers as on a GB10."
    )
    remote = lab.ssh(lab.nodes[0], "python3 -V; command -v python3").replace("\n", " ")
    processor = f"{cpu or platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
    return [
        f"{time.strftime('%Y-%m-%d %H:%M %Z')}, commit {commit or 'unknown'}",
        f"{processor}; load at the start {load}",
        f"Python {platform.python_version()}; {', '.join(versions)}; {ssh}; on the nodes {remote}",
        where,
        "A figure is the median of its runs, with the smallest and the largest in brackets.",
    ]
