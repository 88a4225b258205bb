"""What the live rules cost a picture, and how soon they tell: two nodes, every rule, histories at 1 Hz."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.lab import Lab
from tests.bench.table import Row, median, percentile
from tests.scenario_support import Stage

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.model.event import KernelEvent
from sparktop.model.finding import Confidence
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import LogLine

GOAL_MS = 2.0
HISTORY_S = 960.0
DEADLOCK_S = 150.0
PICTURES = 400

HOW_COST = (
    "Scenarios of the simulator are played through the product's own decoding and books, the healthy one for a quarter "
    "of an hour so that histories are full, the deadlock for 150 s; their last 30 pictures are given to all live rules "
    "again and again. Time of `Diagnosis.update` alone, in one thread; beside it the making of the two nodes' views, "
    "which publishing costs anyway."
)
HOW_TIMES = (
    "Scenario seconds from the onset to the picture in which the finding is first shown, at the console's own rate of "
    "one sample a second; three connections begun at different parts of a second, the slowest counts."
)


def rows(lab: Lab) -> Iterator[Row]:
    """The part of the table."""
    for name, what, events in (
        ("healthy", "nothing wrong", ()),
        ("spin-deadlock", "a spin deadlock on both nodes", ()),
        ("healthy", "every kernel line that we know on each", _kernel_events()),
    ):
        costs, views = _costs(name, PICTURES // 4 if lab.quick else PICTURES, events)
        yield Row(
            measure=f"{len(live_rules())} live rules over one picture of two nodes, {what}",
            result=f"{median(costs):.2f} ms (p95 {percentile(costs, 0.95):.2f})",
            baseline=f"the views themselves {median(views):.2f} ms",
            goal=f"< {GOAL_MS:g} ms",
            met=median(costs) < GOAL_MS,
            how=HOW_COST,
        )
    yield from _times()


def _kernel_events() -> tuple[KernelEvent, ...]:
    """One event of each kind there is, in the last minutes of the healthy scenario."""
    folder = IncidentGrouper()
    lines = [line for pattern in kernel.patterns() for line in pattern.examples]
    for number, line in enumerate(lines):
        boot_s = 60.0 + HISTORY_S * number / len(lines)
        if (event := kernel.read(LogLine(text=line, boot_s=boot_s))) is not None:
            folder.add(event)
    return tuple(folder.events)


def _costs(name: str, count: int, events: tuple[KernelEvent, ...]) -> tuple[list[float], list[float]]:
    stage = Stage(name, rules=())
    until_s = HISTORY_S if name == "healthy" else DEADLOCK_S
    pictures = list(stage.play(until_s))[-30:]
    if events:
        begun_s = pictures[0].nodes[0].sample.boot_s - until_s - 60.0
        placed = tuple(
            replace(event, first_boot_s=event.first_boot_s + begun_s, last_boot_s=event.last_boot_s + begun_s)
            for event in events
        )
        pictures = [
            replace(picture, nodes=tuple(replace(node, kernel_events=placed) for node in picture.nodes))
            for picture in pictures
        ]
    diagnosis = Diagnosis(live_rules())
    for picture in pictures:
        diagnosis.update(picture)
    costs, views = [], []
    gc.collect()
    for turn in range(count):
        picture: FleetState = pictures[turn % len(pictures)]
        began_s = time.perf_counter()
        diagnosis.update(picture)
        costs.append(1000 * (time.perf_counter() - began_s))
        for node in stage.nodes:
            node.book._view = None
        began_s = time.perf_counter()
        for node in stage.nodes:
            node.book.view()
        views.append(1000 * (time.perf_counter() - began_s))
    return costs, views


def _times() -> Iterator[Row]:
    for scenario, rule, confidence, onset_s, goal_s, words in (
        ("spin-deadlock", "gpu.spin-deadlock", Confidence.SUSPECTED, 15.2, 30.0, "spin deadlock, suspected"),
        ("spin-deadlock", "gpu.spin-deadlock", Confidence.CONFIRMED, 15.2, 60.0, "spin deadlock, confirmed"),
        ("desktop-freeze", "desktop.frozen", None, 14.0, 15.0, "desktop freeze"),
    ):
        taken = []
        for begin_s in (0.0, 0.35, 0.7):
            wanted = {} if confidence is None else {"confidence": confidence}
            at_s = Stage(scenario, begin_s=begin_s).run(onset_s + goal_s + 20).first(rule, **wanted)
            taken.append(float("inf") if at_s is None else at_s - onset_s)
        yield Row(
            measure=f"onset to verdict: {words}",
            result=f"{max(taken):.1f} s",
            goal=f"<= {goal_s:g} s",
            met=max(taken) <= goal_s,
            how=HOW_TIMES,
        )
    left = []
    for begin_s in (0.0, 0.35, 0.7):
        at_s = Stage("memory-spike", begin_s=begin_s).run(20.0).first("memory.falling")
        left.append(-1.0 if at_s is None else 20.0 - at_s)
    yield Row(
        measure="starvation told before nothing is left (field report 001's fall of 45 GiB in 6 s)",
        result=f"{min(left):.1f} s before",
        goal=">= 3 s before",
        met=min(left) >= 3.0,
        how=HOW_TIMES,
    )


if __name__ == "__main__":
    from tests.bench.table import plain

    print(plain(list(rows(Lab(folder=Path(), nodes=(), quick="--quick" in sys.argv)))))
