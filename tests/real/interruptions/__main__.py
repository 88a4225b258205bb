"""Each plan, interrupted in each of its steps by each fault, on machines with systemd and Docker.

    python -m tests.real.interruptions --plans restart,launch --faults ctrl-c,kill,power --workers 3 --minutes 30

Cells that were tried are in book.json, and `docs/interruptions.md` is written from it. One that was tried is played
again only with --again; --failed plays those that are lost or untold. What each run said goes to --log.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.real.interruptions.book import book, noted
from tests.real.interruptions.faults import FAULTS
from tests.real.interruptions.plans import PLANS
from tests.real.interruptions.play import LOST, UNTOLD, Cell, key
from tests.real.interruptions.pool import Pool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.interruptions", description=__doc__)
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--steps", default="", help="ids; all without")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0, help="no cell begins after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="those that were tried, too")
    parser.add_argument("--failed", action="store_true", help="only those that are lost or untold")
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "interruptions")
    options = parser.parse_args()
    options.log.mkdir(parents=True, exist_ok=True)
    until, wrong = time.monotonic() + 60 * options.minutes, 0
    with Pool(options.workers) as pool:
        steps = pool.grounds(options.plans.split(","))
        noted(steps, ())
        cells, kept = [], book()["cells"]
        for fault in options.faults.split(","):
            for name, own in steps.items():
                for number, step in enumerate(("before", *(step for step, _ in own))):
                    cell = Cell(name, number, fault, options.seed)
                    old = kept.get(key(cell, step), {}).get("verdict")
                    is_wanted = old in (LOST, UNTOLD) if options.failed else options.again or old is None
                    if is_wanted and (not options.steps or step in options.steps.split(",")):
                        cells.append(cell)
        random.Random(options.seed).shuffle(cells)  # broad before deep
        for played in pool.played(cells, until):
            noted({}, (played,))
            wrong += played.verdict in (LOST, UNTOLD)
            name = key(played.cell, played.step)
            print(f"{time.strftime('%T')} {name}: {played.verdict or '-'} ({played.seconds:.0f} s)")
            print("".join(f"    {line}\n" for line in played.notes), end="", flush=True)
            log = options.log / f"{name.replace(' / ', '.').replace(' ', '-')}.txt"
            log.write_text("\n".join([played.verdict, *played.notes, "", played.log]))
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
