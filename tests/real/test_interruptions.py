"""A random part of what docs/interruptions.md has as right, played anew for three minutes: SPARKTOP_SEED says which.

Nothing may be lost, and nothing left without a word. `python -m tests.real.interruptions` plays the others.
"""

from __future__ import annotations

import os
import random
import time

from tests.real.conftest import need
from tests.real.interruptions.book import book
from tests.real.interruptions.faults import FAULTS
from tests.real.interruptions.plans import PLANS
from tests.real.interruptions.play import AS_BEFORE, AS_PLANNED, LOST, TOLD, UNTOLD, Cell, key
from tests.real.interruptions.pool import Pool

FOR_S = 170.0
"""No cell begins later, their grounds included."""


def test_a_random_tenth_is_not_lost_and_told() -> None:
    need("machine")
    seed = os.environ.get("SPARKTOP_SEED") or "2026-11-28"
    until, chance = time.monotonic() + FOR_S, random.Random(seed)
    with Pool(2) as pool:
        steps = pool.grounds(chance.sample(sorted(PLANS), max(2, len(PLANS) // 10)))
        all_cells = [
            Cell(name, number, fault, chance.randrange(1000))
            for name, own in steps.items()
            for number in range(len(own) + 1)
            for fault in FAULTS
        ]
        right = {name for name, cell in book()["cells"].items() if cell["verdict"] in (AS_BEFORE, AS_PLANNED, TOLD)}
        cells = [cell for cell in all_cells if key(cell, cell.step(steps[cell.plan])) in right]
        played = list(pool.played(chance.sample(cells, len(cells)), until))
    print(f"seed {seed}:", *(f"{key(one.cell, one.step)}: {one.verdict}" for one in played), sep="\n")
    assert any(one.verdict for one in played), [one.notes for one in played]
    wrong = [(key(one.cell, one.step), one.notes, one.log) for one in played if one.verdict in (LOST, UNTOLD)]
    assert not wrong, f"seed {seed}: {wrong}"
