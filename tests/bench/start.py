"""From the command to the first paint, and to figures of both hosts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.bench.lab import Lab, both_live, wait_s
from tests.bench.table import Row, median, ratio, spread

HOW = (
    "`python -m sparktop -F CONFIG spark1 spark2` in a pseudo-terminal of 120x40, whose output is drawn into a grid "
    "of cells; the time from just before the start of the process to the piece of output after which the grid shows "
    "`spark1` (first paint), and `GiB available` in its left and its right half (first data). After one run that "
    "isn't counted, in turn with a Textual app of one Static until its text shows, and with `ssh spark1 true`."
)

HOW_HELD = (
    "A process of this machine is named as vLLM's server is, so both nodes have an engine. In the console, from the "
    "start of watching just after the first paint, a task sleeps 1 ms again and again; the figure is how late it woke "
    "at worst up to {settle:g} s after both engines are shown: connecting, importing, reading rules, the first lint of "
    "what runs, and the last collection of garbage are in it."
)
HELD_MS = 30.0
SETTLE_S = 4.5


def rows(lab: Lab) -> Iterator[Row]:
    paints, datas, bares, sshs = [], [], [], []
    for number in range(3 if lab.quick else 9):
        counted = number > 0
        console = lab.sparktop()
        try:
            paint = console.expect(lambda screen: "spark1" in screen.text(), what="the first paint")
            data = console.expect(both_live, what="data of both hosts")
            if counted:
                paints.append((paint - console.started_ns) / 1e9)
                datas.append((data - console.started_ns) / 1e9)
        finally:
            console.quit()
        bare = lab.bare()
        try:
            shown = bare.expect(lambda screen: "bare" in screen.text(), what="the bare app")
            if counted:
                bares.append((shown - bare.started_ns) / 1e9)
        finally:
            bare.end()
        begun = time.monotonic()
        lab.ssh(lab.nodes[0], "true")
        if counted:
            sshs.append(time.monotonic() - begun)
    paint_s, data_s = median(paints), median(datas)
    yield Row(
        measure="command to first paint, s",
        result=spread(paints),
        baseline=f"bare Textual {spread(bares)}, {ratio(paint_s, median(bares))}",
        goal="0.4",
        met=paint_s <= 0.4,
        how=HOW,
    )
    yield Row(
        measure="command to first data from both hosts, s",
        result=spread(datas),
        baseline=f"`ssh host true` {spread(sshs)}, {ratio(data_s, median(sshs))}",
        goal="1.0, x 3.0",
        met=data_s <= 1.0 and round(data_s / median(sshs), 1) <= 3,
        how=HOW,
    )
    yield _held_up(lab)


def _held_up(lab: Lab) -> Row:
    """The longest time in which no key was answered while watching began."""
    server = lab.folder / "vllm"
    server.write_text("import time\ntime.sleep(3600)\n")
    command = [sys.executable, str(server), "serve", "bench/model", "--port", "18999"]
    worst_ms = []
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(subprocess.Popen(command))
        stack.callback(engine.kill)
        for _ in range(1 if lab.quick else 7):
            lab.notes.unlink(missing_ok=True)
            console = lab.console("--late")
            try:
                console.expect(lambda screen: screen.text().count("vllm:18999") >= 2, what="both engines")
                wait_s(SETTLE_S)
                os.kill(console.pid, signal.SIGUSR1)
                wait_s(0.3)
            finally:
                console.quit()
            worst_ms += [1000 * json.loads(line)["late_s"] for line in lab.notes.read_text().splitlines()]
    return Row(
        measure="longest hold-up of the console while it starts, ms",
        result=spread(worst_ms, "{:.0f}"),
        goal=f"{HELD_MS:g}",
        met=median(worst_ms) <= HELD_MS,
        how=HOW_HELD.format(settle=SETTLE_S),
    )
