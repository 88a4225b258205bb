"""Measures what sparktop promises, and prints one table: python -m tests.bench [--quick] [--only NAME ...].

Nothing here is asserted. Needs a real sshd; the rows that cut a network need root, for a network namespace of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bench import cost, diagnosis, explain, leftovers, links, reading, screen, start, watching
from tests.bench.lab import HOSTS, Lab, end_by_signals, enter_own_network, machine, nodes_started
from tests.bench.table import Row, markdown, plain

PARTS: dict[str, Callable[[Lab], Iterator[Row]]] = {
    "start": start.rows,
    "cost": cost.rows,
    "screen": screen.rows,
    "links": links.rows,
    "explain": explain.rows,
    "reading": reading.rows,
    "diagnosis": diagnosis.rows,
    "leftovers": leftovers.rows,
    "watching": watching.rows,
}
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="shorter windows and fewer runs; RESULTS.md stays as it is"
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be given several times")
    options = parser.parse_args()
    enter_own_network("tests.bench")
    end_by_signals()
    try:
        return measure(options.only or list(PARTS), quick=options.quick, write=not options.quick and not options.only)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:  # how the tests' sshd says that it can't start
        print(f"nothing can be measured here: {reason}", file=sys.stderr)
        return 1


def measure(names: list[str], *, quick: bool, write: bool) -> int:
    """Run these parts and print their table; keep it in RESULTS.md when asked to."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sparktop-bench-") as folder, nodes_started(Path(folder), HOSTS) as nodes:
        lab = Lab(folder=Path(folder), nodes=nodes, quick=quick)
        facts = machine(lab)
        for name in names:
            print(f"measuring: {name}", file=sys.stderr, flush=True)
            try:
                rows += PARTS[name](lab)
            except Exception as error:  # one part that fails must not cost the others their figures
                traceback.print_exc()
                rows.append(Row(measure=name, result=f"failed: {type(error).__name__}", met=False))
    print("\n".join(facts), plain(rows), sep="\n\n")
    if write:
        RESULTS.write_text(markdown(rows, facts))
        print(f"\nwritten to {RESULTS}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
