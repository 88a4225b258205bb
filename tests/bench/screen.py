"""From a sample to the screen and from a key to its paint, in quiet and while a log floods; memory under the flood."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

from tests.bench.lab import Lab, both_live, wait_s
from tests.bench.table import Row, median, percentile, ratio, spread
from tests.bench.terminal import COLUMNS, Program, Screen

INTERVAL_S = 0.25
STAMP = re.compile(r"\bt(\d+\.\d{1,4})\b")
HELP = "All keys, and what the signs on the screen mean."
LINES = 1_000_000

HOW_SAMPLE = (
    "Two hosts at 4 Hz (for more samples in less time), in the terminal grid as above. The frame of each node's pane "
    "shows the CLOCK_BOOTTIME its sample was taken at, put there at the edge of the console in place of the name of "
    "the operating system; the figure is CLOCK_BOOTTIME when the bench read the piece of output that shows it, less "
    "that. {windows}; all windows together. Beside it a bare Textual app that shows the time of its own update at 8 Hz."
)
HOW_RING = "`all kept`: 5,000 lines every 50 ms go into the feed of the log on the screen, in one piece."
HOW_PUMP = (
    "`offered`: a thread hands 100,000 records a second to the Docker follower's own pump, which gives the loop as "
    "many as it can prepare in 6 ms, some 30 times a second, drops the oldest beyond what it may hold, and says so in "
    "the log."
)
HOW_KEY = (
    "`?` typed at the pseudo-terminal opens the help and closes it again, in turn, at odd times; the time from just "
    "before it is written to the piece of output after which the grid shows, or no longer shows, the help's first "
    "sentence. `Space` in the same way pauses the log and follows it again, by the word in its frame. Each key was "
    "used twice before, so that nothing is imported while it is measured."
)
HOW_MEMORY = "VmRSS when 10^6 lines have come, less VmRSS just before the first, of the same process."


class Latencies:
    """Notes, for each half of the screen, how old a sample is when it first shows."""

    def __init__(self, halves: int) -> None:
        self.on = False
        self.ms: list[float] = []
        self._last = [""] * halves

    def __call__(self, screen: Screen, now_ns: int) -> None:
        size = COLUMNS // len(self._last)
        for number, last in enumerate(self._last):
            for line in screen.lines:
                found = STAMP.search("".join(line[number * size : (number + 1) * size]))
                if found:
                    if found[1] != last:
                        self._last[number] = found[1]
                        if self.on:
                            self.ms.append(now_ns / 1e6 - float(found[1]) * 1e3)
                    break

    def window(self, seconds: float) -> list[float]:
        """What is noted in so many seconds."""
        self.ms, self.on = [], True
        wait_s(seconds)
        self.on = False
        return self.ms


def notes(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lab.notes.read_text().splitlines()]


def press(console: Program, key: bytes, states: tuple[str, str], count: int) -> list[float]:
    """Milliseconds from a key to its paint; each press brings up the other of two texts, the first one first."""
    times = []
    for number in range(count):
        wait_s(0.11 + 0.037 * (number % 7))
        wanted, other = states if number % 2 == 0 else reversed(states)

        def painted(screen: Screen, wanted: str = wanted, other: str = other) -> bool:
            text = screen.text()
            return wanted in text if wanted else other not in text

        begun = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        came = console.expect(painted, send=key, what=f"the answer to {key!r}")
        times.append((came - begun) / 1e6)
    return times


HELP_KEY = (b"?", (HELP, ""))
PAUSE_KEY = (b" ", ("paused", "following"))


class Floods:
    """What the runs of one kind of flood gave."""

    def __init__(self) -> None:
        self.idle_ms: list[float] = []
        self.flood_ms: list[float] = []
        self.idle_help_ms: list[float] = []
        self.help_ms: list[float] = []
        self.pause_ms: list[float] = []
        self.grown_mb: list[float] = []
        self.rates: list[float] = []
        self.due = 0.0
        self.flood_cpu: list[float] = []

    def run(self, lab: Lab, kind: str, *, idle_s: float, flood_s: float, keys: int) -> None:
        lab.notes.write_text("")
        latencies = Latencies(2)
        console = lab.console("--gpu", "--stamp", f"--interval={INTERVAL_S}", f"--flood={kind}", seen=latencies)
        try:
            console.expect(both_live, what="data of both hosts")
            wait_s(4.0)
            press(console, *HELP_KEY, 2)
            if idle_s:
                self.idle_ms += latencies.window(idle_s)
                self.idle_help_ms += press(console, *HELP_KEY, keys)
            os.kill(console.pid, signal.SIGUSR1)
            wait_s(1.0)
            self.flood_ms += latencies.window(flood_s)
            self.due += flood_s / INTERVAL_S * 2
            self.help_ms += press(console, *HELP_KEY, keys)
            console.send(b"4")  # the log alone, with the focus
            press(console, *PAUSE_KEY, 2)
            self.pause_ms += press(console, *PAUSE_KEY, keys)
            os.kill(console.pid, signal.SIGUSR2)
            wait_s(0.5)
            said = notes(lab)
            begun = next(item for item in said if item["event"] == "flood")
            million = next((item for item in said if item["event"] == "million"), None)
            if million is not None:
                self.grown_mb.append(million["resident_mb"] - begun["resident_mb"])
            end = said[-1]
            self.rates.append(end["lines"] / (end["at_s"] - begun["at_s"]))
        finally:
            console.quit()


def rows(lab: Lab) -> Iterator[Row]:
    runs, window, keys = (1, 11.0, 20) if lab.quick else (3, 20.0, 50)
    ring, pump, bare = Floods(), Floods(), []
    for _ in range(runs):
        ring.run(lab, "ring", idle_s=window, flood_s=window, keys=keys)
        pump.run(lab, "pump", idle_s=0.0, flood_s=window, keys=keys)
        latencies = Latencies(1)
        app = lab.bare(8.0, seen=latencies)
        try:
            app.expect(lambda screen: "t" in screen.text(), what="the bare app")
            wait_s(1.0)
            bare += latencies.window(window / 2)
        finally:
            app.end()
    how = HOW_SAMPLE.format(windows=f"{runs} windows of {window:g} s")
    yield _latency("sample to screen, idle, p50 / p99, ms", ring.idle_ms, 30.0, how, bare)
    for kind, floods, told in (("all kept", ring, HOW_RING), ("offered", pump, HOW_PUMP)):
        yield _latency(
            f"the same with 100,000 log lines/s {kind}",
            floods.flood_ms,
            50.0,
            f"{how} {told}",
            note=f"{len(floods.flood_ms) / floods.due:.0%} of samples drawn; {median(floods.rates):,.0f} lines/s kept",
        )
    yield _latency("key to paint, help, idle, p50 / p99, ms", ring.idle_help_ms, None, HOW_KEY)
    for kind, floods in (("all kept", ring), ("offered", pump)):
        yield _latency(f"key to paint, help, under that flood ({kind})", floods.help_ms, 50.0, HOW_KEY)
        yield _latency(f"key to paint, pause, under that flood ({kind})", floods.pause_ms, 50.0, HOW_KEY)
    for kind, floods in (("all kept", ring), ("offered", pump)):
        yield Row(
            measure=f"memory after 10^6 lines ({kind}), MB",
            result=spread(floods.grown_mb, "{:+.1f}"),
            goal="+40",
            met=median(floods.grown_mb) <= 40 if floods.grown_mb else None,
            how=HOW_MEMORY,
        )


def _latency(
    measure: str, values: list[float], goal_ms: float | None, how: str, bare: list[float] | None = None, note: str = ""
) -> Row:
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    if bare:
        base = percentile(bare, 0.99)
        note = f"bare Textual {percentile(bare, 0.5):.1f} / {base:.1f}, {ratio(p99, base)}"
    return Row(
        measure=measure,
        result=f"{p50:.1f} / {p99:.1f} (of {len(values)})",
        baseline=note,
        goal="" if goal_ms is None else f"p99 {goal_ms:g}",
        met=None if goal_ms is None or not values else p99 <= goal_ms,
        how=how,
    )
