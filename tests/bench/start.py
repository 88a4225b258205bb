"""From the command to the first paint, and to figures of both hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.lab import Lab, both_live
from tests.bench.table import Row, median, ratio, spread

HOW = (
    "`python -m sparktop -F CONFIG spark1 spark2` in a pseudo-terminal of 120x40, whose output is drawn into a grid "
    "of cells; the time from just before the start of the process to the piece of output after which the grid shows "
    "`spark1` (first paint), and `GiB available` in its left and its right half (first data). After one run that "
    "isn't counted, in turn with a Textual app of one Static until its text shows, and with `ssh spark1 true`."
)


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
        goal="1.0",
        met=data_s <= 1.0,
        how=HOW,
    )
