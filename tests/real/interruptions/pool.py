"""Plays cells in several processes: each has machines, a bridge between them and a home of its own."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.real.interruptions.look import Facts
from tests.real.interruptions.play import Cell, Played, Steps, play, undisturbed
from tests.real.parts import FOLDER


class Pool:
    """So many at once."""

    def __init__(self, workers: int) -> None:
        os.environ["SPARKTOP_REAL"] = str(FOLDER)
        self._workers = workers
        # Not forked: the bridge of a process's machines is called by its id.
        self._pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        self._grounds: dict[str, tuple[Steps, Facts, Facts]] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def grounds(self, names: Sequence[str]) -> Mapping[str, Steps]:
        """Run these plans once without any fault; their steps."""
        self._grounds |= dict(zip(names, self._pool.map(_undisturbed, names), strict=True))
        return {name: self._grounds[name][0] for name in names}

    def played(self, cells: Sequence[Cell], until_s: float) -> Iterator[Played]:
        """Each as it ends; none begins after that moment."""
        waiting, running = list(cells), set[Future[Played]]()
        while running or (waiting and time.monotonic() < until_s):
            while waiting and len(running) < self._workers and time.monotonic() < until_s:
                cell = waiting.pop(0)
                running.add(self._pool.submit(_played, cell, *self._grounds[cell.plan]))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                yield one.result()


def _undisturbed(name: str) -> tuple[Steps, Facts, Facts]:
    """Twice where it has to be: all else is measured by it."""
    try:
        return undisturbed(name)
    except AssertionError:
        return undisturbed(name)


def _played(cell: Cell, steps: Steps, before: Facts, planned: Facts) -> Played:
    try:
        return play(cell, steps, before, planned)
    except Exception:
        return Played(cell, cell.step(steps), notes=["NOT PLAYED", traceback.format_exc()[-1500:]])
