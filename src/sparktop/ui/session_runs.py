"""The runs of this session, and the side that acts, once there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparktop.model.fleet import FleetState
from sparktop.operate.step.run import Run

if TYPE_CHECKING:
    from sparktop.operate.audit.interrupted_runs import InterruptedRun
    from sparktop.operate.run.operating import Operating

READ_ONLY = (
    "read-only: this console changes nothing. Start it without --read-only, or take read_only out of config.toml."
)


class SessionRuns:
    """Keeps the runs of this session, and those that an earlier console left interrupted."""

    def __init__(self, changed: Callable[[], None], *, is_read_only: bool, refusal: str) -> None:
        """`changed` is called when `shown` may have changed; `refusal`: why nothing can be done here, however one
        asks."""
        self.operating: Operating | None = None
        self.runs: dict[str, Run] = {}
        self.unread: set[str] = set()
        """Ids of runs that are over and whose result the operator hasn't opened."""
        self.refusal = refusal
        self.changed = changed
        self._is_read_only = is_read_only
        self._interrupted: dict[str, InterruptedRun] = {}
        """Those that the audit held when the console connected, and that weren't read."""

    async def attach(self, operating: Operating, picture: Callable[[], FleetState]) -> None:
        """Enable planning, and show the runs that the audit says were interrupted."""
        self.operating = operating
        self._interrupted = {interrupted.run.id: interrupted for interrupted in await operating.interrupted_runs()}
        self.see(picture())

    def see(self, picture: FleetState) -> None:
        """Take the newest fleet state: show or drop the interrupted runs that an earlier console left."""
        if not self._interrupted:
            return
        from sparktop.operate.audit.interrupted_runs import run_report

        for run_id, interrupted in self._interrupted.items():
            run = run_report(interrupted, picture)
            if run == self.runs.get(run_id):
                continue
            if run is None:
                del self.runs[run_id]
                self.unread.discard(run_id)
            else:
                self.runs[run_id] = run
                self.unread.add(run_id)
            self.changed()

    def read(self, run_id: str) -> None:
        """Mark a run as read; an interrupted one stays as it is shown now, and no later console shows it."""
        self.unread.discard(run_id)
        if self._interrupted.pop(run_id, None) is not None and self.operating is not None:
            self.operating.read(run_id)

    @property
    def is_read_only(self) -> bool:
        return self._is_read_only or (self.operating is not None and self.operating.is_read_only)

    @property
    def why_not(self) -> str:
        """Why nothing can be changed from here; empty: it can."""
        return self.refusal or (READ_ONLY if self.is_read_only else "")

    @property
    def under_way(self) -> tuple[Run, ...]:
        """The runs that are not over."""
        return tuple(run for run in self.runs.values() if not run.state.is_over)

    @property
    def shown(self) -> tuple[Run, ...]:
        """Runs for the console's top lines: those under way, then those that ended unread."""
        return (*self.under_way, *(run for run in self.runs.values() if run.id in self.unread))

    @property
    def has_read_run(self) -> bool:
        """Whether a run of this session has ended and has no line at the top any more."""
        return bool(self.runs) and not self.shown
