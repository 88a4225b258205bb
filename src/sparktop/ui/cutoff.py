"""Runs that an earlier console has left half-way, told here until they are read or all is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Run

if TYPE_CHECKING:
    from sparktop.operate.cutoff import CutOff
    from sparktop.operate.operating import Operating


class CutOffRuns:
    """What the audit knew of them when the console connected, and which are told now."""

    def __init__(self) -> None:
        self._operating: Operating | None = None
        self._found: dict[str, CutOff] = {}
        self._told: dict[str, Run] = {}

    async def recall(self, operating: Operating) -> None:
        """Look into the audit."""
        self._operating = operating
        self._found = {one.run.id: one for one in await operating.cut_off()}

    def news(self, picture: FleetState) -> Iterator[tuple[str, Run | None]]:
        """Those that are told otherwise than before; None: nothing of it is left to be told."""
        if not self._found:
            return
        from sparktop.operate.cutleft import shown

        for run_id, one in self._found.items():
            run = shown(one, picture)
            if run == self._told.get(run_id):
                continue
            if run is None:
                del self._told[run_id]
            else:
                self._told[run_id] = run
            yield run_id, run

    def read(self, run_id: str) -> None:
        """The operator has it open: from now on it stands as it was then, and no later console tells of it."""
        if self._found.pop(run_id, None) is not None and self._operating is not None:
            self._operating.read(run_id)
