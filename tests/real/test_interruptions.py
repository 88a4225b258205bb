"""A random tenth of docs/interruptions.md played anew, as far as four minutes go: which one, SPARKTOP_SEED says, or the
day. Nothing may be lost, and nothing left without a word."""

from __future__ import annotations

import os
import random
import time
from datetime import date

from tests.real.conftest import need
from tests.real.interruptions.faults import FAULTS
from tests.real.interruptions.plans import PLANS
from tests.real.interruptions.play import LOST, UNTOLD, Cell, key
from tests.real.interruptions.pool import Pool

FOR_S = 170.0
"""No cell begins later, their grounds included."""


def test_a_random_tenth_is_not_lost_and_told() -> None:
    need("machine")
    seed = os.environ.get("SPARKTOP_SEED") or date.today().isoformat()
    until, chance = time.monotonic() + FOR_S, random.Random(seed)
    with Pool(2) as pool:
        steps = pool.grounds(chance.sample(sorted(PLANS), max(2, len(PLANS) // 10)))
        cells = [
            Cell(name, number, fault, chance.randrange(1000))
            for name, own in steps.items()
            for number in range(len(own) + 1)
            for fault in FAULTS
        ]
        played = list(pool.played(chance.sample(cells, len(cells)), until))
    print(f"seed {seed}:", *(f"{key(one.cell, one.step)}: {one.verdict}" for one in played), sep="\n")
    assert any(one.verdict for one in played), [one.notes for one in played]
    wrong = [(key(one.cell, one.step), one.notes, one.log) for one in played if one.verdict in (LOST, UNTOLD)]
    assert not wrong, f"seed {seed}: {wrong}"
