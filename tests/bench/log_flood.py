"""Measures the log pane under a flood, in a pseudo-terminal of 120x40: python -m tests.bench.log_flood [--json].

Three runs of the same app, which sanitises and stores lines as the follower does: no lines, 100 lines/s, 100,000
lines/s. For each: CPU of the process, a sample's way from the moment it is set to the terminal, a key's way from the
moment it is typed to the paint it causes (space: "paused" or "following" in the frame), and memory before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.ui.log_stage import Feed, Stage
from textual.widgets import Static

from sparktop import sanitise
from sparktop.model.telemetry import LogLine
from sparktop.ui.panes.log import LogPane

ROOT = Path(__file__).resolve().parents[2]
LINES_TOTAL = 1_000_000
SAMPLE_HZ = 10
_SAMPLE = re.compile(rb"SAMPLE (\d+)")
_SEQUENCES = re.compile(rb"\x1b\[[0-9;:?]*[a-zA-Z]")


class FloodApp(Stage):
    """A log pane, a line that shows each sample, and a source of lines."""

    def __init__(self, lines_per_s: int) -> None:
        self.log_pane = LogPane()
        self.sample = Static("SAMPLE 0", markup=False)
        self.sample.styles.height = 1
        super().__init__(self.sample, self.log_pane)
        self._lines_per_s = lines_per_s
        self._feed = Feed()

    def on_ready(self) -> None:
        self.log_pane.show(self._feed)
        self.log_pane.focus()
        self.set_interval(1 / SAMPLE_HZ, self._take_sample)
        if self._lines_per_s:
            self.run_worker(self._flood())

    def _take_sample(self) -> None:
        self.sample.update(f"SAMPLE {time.monotonic_ns()}", layout=False)

    async def _flood(self) -> None:
        begun, sent = time.monotonic(), 0
        while sent < LINES_TOTAL * 3:
            due = min(int((time.monotonic() - begun) * self._lines_per_s) - sent, 600)
            raw = [
                b"(EngineCore_DP0 pid=214) INFO 11-20 02:14:02 [worker.py:352] step %d took 31.2 ms, %d tokens"
                % (number, number * 7 % 4096)
                for number in range(sent, sent + due)
            ]
            self._feed.ring.extend([LogLine(text=sanitise.line(line)) for line in raw])
            sent += due
            await asyncio.sleep(0.005)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


class Run:
    """One app in a pseudo-terminal, watched from outside."""

    def __init__(self, lines_per_s: int) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.bench.log_flood", "--child", str(lines_per_s)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.terminal = ours
        self._partial = b""
        self.samples_ms: list[float] = []
        self.keys_ms: list[float] = []
        self.bytes = 0

    def read(self, until_s: float, wanted: bytes = b"") -> bool:
        """Take in what is written; True as soon as `wanted` stands in the text."""
        seen = b""
        while (left := until_s - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], left)[0]:
                return False
            piece = os.read(self.terminal, 1 << 16)
            now = time.monotonic_ns()
            self.bytes += len(piece)
            text = self._partial + piece
            for found in _SAMPLE.finditer(text):
                if found.end() < len(text) and int(found[1]):
                    self.samples_ms.append((now - int(found[1])) / 1e6)
            self._partial = text[-40:] if b"SAMPLE" in text[-40:] and not _SAMPLE.search(text[-40:]) else b""
            seen = _SEQUENCES.sub(b"", seen[-200:] + piece)
            if wanted and wanted in seen:
                return True
        return False

    def press_space(self, count: int) -> None:
        """Pause and follow in turn, at odd times."""
        for number in range(count):
            self.read(time.monotonic() + random.uniform(0.15, 0.45))
            begun = time.monotonic()
            os.write(self.terminal, b" ")
            if self.read(begun + 2, b"following" if number % 2 else b"paused"):
                self.keys_ms.append((time.monotonic() - begun) * 1000)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


def measure(lines_per_s: int, *, seconds: float, keys: int) -> dict[str, float]:
    run = Run(lines_per_s)
    try:
        if not run.read(time.monotonic() + 20, b"following" if lines_per_s else b"No line yet"):
            raise SystemExit("the app did not come up")
        run.read(time.monotonic() + 1)
        resident_mb = run.resident_mb()
        run.samples_ms.clear()
        begun, cpu_s, written = time.monotonic(), run.cpu_s(), run.bytes
        run.read(begun + seconds)
        took_s = time.monotonic() - begun
        result = {
            "lines_per_s": lines_per_s,
            "cpu_percent": (run.cpu_s() - cpu_s) / took_s * 100,
            "terminal_kb_per_s": (run.bytes - written) / took_s / 1000,
            "samples_seen_percent": len(run.samples_ms) / (took_s * SAMPLE_HZ) * 100,
            "sample_p50_ms": percentile(run.samples_ms, 0.5),
            "sample_p99_ms": percentile(run.samples_ms, 0.99),
            "resident_start_mb": resident_mb,
            "resident_end_mb": run.resident_mb(),
        }
        if lines_per_s:
            run.press_space(keys)
            result["key_p50_ms"] = percentile(run.keys_ms, 0.5)
            result["key_p99_ms"] = percentile(run.keys_ms, 0.99)
            result["keys_painted_percent"] = len(run.keys_ms) / keys * 100
            result["resident_after_pauses_mb"] = run.resident_mb()
        return result
    finally:
        run.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", type=int)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.child is not None:
        FloodApp(options.child).run()
        return
    results = [measure(rate, seconds=options.seconds, keys=options.keys) for rate in (0, 100, 100_000)]
    if options.json:
        print(json.dumps(results))
        return
    for name in results[-1]:
        print(f"{name:<26}", *(f"{result[name]:>12.1f}" if name in result else " " * 12 for result in results))


if __name__ == "__main__":
    main()
