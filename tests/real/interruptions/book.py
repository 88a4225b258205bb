"""The cells that were tried, in book.json, and the page made from them."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from tests.real.interruptions.faults import FAULTS
from tests.real.interruptions.look import STAMP
from tests.real.interruptions.play import AS_BEFORE, AS_PLANNED, LOST, TOLD, UNTOLD, Played, key
from tests.real.parts import FOLDER

BOOK = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[3] / "docs/interruptions.md"
MARKS = {AS_BEFORE: "b", AS_PLANNED: "p", TOLD: "t", LOST: "**L**", UNTOLD: "**U**"}


HEAD = """# Interruptions

What is left of each plan when it is interrupted at the beginning of a step, or up to 0.25 s later. Each cell is \
played on fresh machines with systemd 257 and Docker 26 (`python -m tests.real.interruptions`, which writes this \
page), and judged from outside: `docker inspect`, `systemctl`, the changed files of /etc and of the homes, `ip`, the \
engine's port. Then a way that sparktop gave is followed, and the plan is run once more.

**b** as before. **p** as planned. **t** told: the next console named what was left, and `restore`, `resume` or its \
commands repaired it. **L** lost: none of them repaired it. **U** untold: nothing was said, or something false. The \
engine is a stand-in. The network is cut for the seconds named; a freeze or a stopped dockerd lasts 20 s.

"""


def book() -> Any:
    """Plans with their steps, and the cells that were tried: "plan / step / fault" -> verdict, date, note."""
    return json.loads(BOOK.read_text()) if BOOK.exists() else {"plans": {}, "cells": {}}


def noted(steps: Mapping[str, Sequence[tuple[str, str]]], played: Sequence[Played]) -> None:
    """Add these plans' steps and these cells to the book, whoever else adds to it meanwhile, and write the page."""
    with (FOLDER / "interruptions.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = book()
        for name, own in steps.items():
            kept["plans"][name] = [(step, STAMP.sub("#", title)) for step, title in own]
        for one in played:
            if one.verdict:
                cell = {"verdict": one.verdict, "on": date.today().isoformat()}
                said = "" if one.verdict in (AS_BEFORE, AS_PLANNED) else "; ".join(one.notes)[:300]
                kept["cells"][key(one.cell, one.step)] = {**cell, **({"note": said} if said else {})}
        plans = ",\n".join(f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in kept["plans"].items())
        cells = ",\n".join(f"  {json.dumps(name)}: {json.dumps(kept['cells'][name])}" for name in sorted(kept["cells"]))
        BOOK.write_text(f'{{\n"plans": {{\n{plans}\n}},\n"cells": {{\n{cells}\n}}\n}}\n')
        PAGE.write_text(page(kept))


def page(kept: Any) -> str:
    """`docs/interruptions.md`."""
    cells = kept["cells"]
    rows, total, dates = [], 0, {cell["on"] for cell in cells.values()}
    for name, steps in kept["plans"].items():
        for number, (step, title) in enumerate((("before", "before its first step"), *steps)):
            marks = [MARKS.get(cells.get(f"{name} / {step} / {fault}", {}).get("verdict"), "") for fault in FAULTS]
            total += len(marks)
            rows.append(f"| {f'**{name}**' if number == 0 else number} | {title} | {' | '.join(marks)} |")
    count = {verdict: sum(cell["verdict"] == verdict for cell in cells.values()) for verdict in MARKS}
    wrong = [f"- {name}: {cell['note']}" for name, cell in cells.items() if cell["verdict"] in (LOST, UNTOLD)]
    tried = f"{len(cells)} of {total} cells were tried ({', '.join(sorted(dates))}): "
    tried += ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    return HEAD + "\n".join(
        [
            f"{tried}; {total - len(cells)} were not, and are blank.",
            "",
            f"| plan | step | {' | '.join(FAULTS)} |",
            f"| --- | --- |{' --- |' * len(FAULTS)}",
            *rows,
            *(["", "## Not as they should be", "", *sorted(wrong)] if wrong else []),
            "",
        ]
    )
