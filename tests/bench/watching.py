"""What it costs to watch 32 hosts: `watch`, `exporter` scraped as Prometheus does, and the console with its tapes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.lab import Lab
from tests.bench.processes import process_cpu_ns, resident_mb
from tests.bench.table import Row
from tests.bench.terminal import Program
from tests.sim_hosts import simulated_hosts

HOSTS, SCRAPE_S, SETTLE_S, PATIENCE_S = 32, 15.0, 10.0, 300.0
NO = ("--no-record",)
PROGRAM = """
import sys
from sparktop.cli import main
from sparktop.headless.look import is_known
from sparktop.headless.watch.watcher import Watcher
see = Watcher.see
def seen(self, state):
    see(self, state)
    print(sum(node.link.state == "live" and is_known(node) for node in state.nodes), flush=True)
Watcher.see = seen
sys.exit(main())
"""
"""`watch` that prints each second how many hosts are live and known."""
CONSOLE = """
import os, sys
from sparktop.cli import main
from sparktop.observe.pictures import Pictures
make, told = Pictures.make, []
def made(self, **more):
    state = make(self, **more)
    live = sum(n.link.state == "live" and n.containers.is_asked and n.has_looked_for_engines for n in state.nodes)
    if live > max(told, default=0):
        told.append(live)
        with open(os.environ["BENCH_LIVE"], "a") as file:
            print(live, file=file)
    return state
Pictures.make = made
sys.exit(main())
"""
"""The console, which writes into a file how many hosts are live and known."""
HOW_CONSOLE = (
    "`sparktop HOST...` at 120x40, with tapes of all hosts, and with --no-record, one after the other; the rest as for "
    "`watch` above."
)
HOW = (
    "{hosts} simulated Sparks on loopback (the demo's healthy pair; one process of their own, which shares the cores), "
    "at 1 Hz. To all live: from the start of the command until every host is live, for `watch` with containers and "
    "engines known. Then, after {settle:g} s, user and system time of the process over {window:g} s, and VmRSS at the "
    "end; the exporter is scraped every {scrape:g} s."
)


def rows(lab: Lab) -> Iterator[Row]:
    hosts, window_s = (8, 15.0) if lab.quick else (HOSTS, 60.0)
    how = HOW.format(hosts=hosts, settle=SETTLE_S, window=window_s, scrape=SCRAPE_S)
    with tempfile.TemporaryDirectory(prefix="sparktop-bench-") as folder, \
            simulated_hosts("healthy", Path(folder), hosts) as config:  # fmt: skip
        given = ["-F", str(config), *(f"spark{number + 1}" for number in range(hosts))]
        watch = ["-c", PROGRAM, "watch", *given]
        exporter = ["-m", "sparktop", "exporter", "--listen", "127.0.0.1:0", *given]
        for name, words, live in (("watch", watch, _printed), ("exporter", exporter, _scraped)):
            live_s, cpu_percent, memory_mb = _measured(words, Path(folder), live, hosts, window_s)
            yield Row(measure=f"{name}: {hosts} hosts, command to all live, s", result=f"{live_s:.1f}", how=how)
            yield Row(measure=f"{name}: {hosts} hosts, CPU, % of a core", result=f"{cpu_percent:.1f}", how=how)
            yield Row(measure=f"{name}: {hosts} hosts, memory, MB", result=f"{memory_mb:.0f}", how=how)
        for count in (2, hosts):
            recorded, bare = (_console(given[: 2 + count], Path(folder), count, window_s, more) for more in ((), NO))
            for at, what in enumerate(("command to all live, s", "CPU, % of a core", "memory, MB")):
                result = f"{recorded[at]:.1f}"
                without = f"--no-record {bare[at]:.1f}"
                yield Row(measure=f"console: {count} hosts, {what}", result=result, baseline=without, how=HOW_CONSOLE)


Live = Callable[[str], float]
"""How many hosts are live, by the newest line or by the address that was printed."""


def _measured(words: list[str], home: Path, live: Live, hosts: int, window_s: float) -> tuple[float, float, float]:
    """(seconds to all live, CPU in percent of a core, MB)"""
    begun_s = time.monotonic()
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            while live(line) < hosts:
                assert time.monotonic() - begun_s < PATIENCE_S, f"{live(line):.0f} of {hosts} are live"
                if select.select([process.stdout], [], [], 0.5)[0]:
                    line = process.stdout.readline() or line
            live_s = time.monotonic() - begun_s
            _pass(SETTLE_S, process.stdout.fileno())
            start_s, cpu_ns = time.monotonic(), process_cpu_ns(process.pid)
            while (spent_s := time.monotonic() - start_s) < window_s:
                live(line)
                _pass(min(SCRAPE_S, window_s - spent_s), process.stdout.fileno())
            cpu_percent = (process_cpu_ns(process.pid) - cpu_ns) / 1e7 / (time.monotonic() - start_s)
            return live_s, cpu_percent, resident_mb(process.pid)
        finally:
            process.terminate()


def _console(
    words: list[str], home: Path, hosts: int, window_s: float, more: tuple[str, ...]
) -> tuple[float, float, float]:
    """(seconds to all live, CPU in percent of a core, MB)"""
    told = home / f"live-{hosts}-{len(more)}"
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": "",
        "XDG_CONFIG_HOME": "",
        "TERM": "xterm-256color",
    }
    environment["BENCH_LIVE"] = str(told)
    begun_s = time.monotonic()
    program = Program([sys.executable, "-c", CONSOLE, *words, *more], env=environment)
    try:
        while not told.exists() or int((told.read_text() or "0").split()[-1]) < hosts:
            assert time.monotonic() - begun_s < PATIENCE_S, program.screen.text()
            time.sleep(0.1)
        live_s = time.monotonic() - begun_s
        time.sleep(SETTLE_S)
        start_s, cpu_ns = time.monotonic(), process_cpu_ns(program.pid)
        time.sleep(window_s)
        cpu_percent = (process_cpu_ns(program.pid) - cpu_ns) / 1e7 / (time.monotonic() - start_s)
        return live_s, cpu_percent, resident_mb(program.pid)
    finally:
        program.end()


def _pass(seconds: float, output: int) -> None:
    """Let the time pass, and read what is printed."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if select.select([output], [], [], left_s)[0]:
            os.read(output, 65536)


def _printed(line: str) -> float:
    return float(line) if line.strip().isdecimal() else 0


def _scraped(line: str) -> float:
    with urllib.request.urlopen(line.strip(), timeout=60) as reply:
        text = reply.read().decode()
    return sum(float(row.split()[-1]) for row in text.splitlines() if row.startswith("sparktop_up{"))
