"""The lower part of the console: the log, the kernel's events and the processes, mounted only after the first paint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.containers import Container
from textual.widget import Widget

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import LogFeed, Watch
from sparktop.text.lines import Line

if TYPE_CHECKING:
    from sparktop.ui.panes.events import EventPane
    from sparktop.ui.panes.kernel import KernelPane
    from sparktop.ui.panes.log import LogPane
    from sparktop.ui.panes.processes import ProcessPane


def _pane_types() -> tuple[type[EventPane], type[KernelPane], type[LogPane], type[ProcessPane]]:
    """The panes' classes, imported; for a thread, as keys are answered meanwhile."""
    from sparktop.ui.panes.events import EventPane
    from sparktop.ui.panes.kernel import KernelPane
    from sparktop.ui.panes.log import LogPane
    from sparktop.ui.panes.processes import ProcessPane

    return EventPane, KernelPane, LogPane, ProcessPane


Contain = Callable[[str, Callable[[], object]], None]
"""Shows something in the pane of this name."""


class Bottom(Container):
    """Holds the panes; what it is given before they exist is shown once they do."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="logs")
        self._clock = clock
        self._fleet = FleetState()
        self._feed: LogFeed | None = None
        self._watch: Watch | None = None
        self._shown: tuple[str, ...] = ("log", "kernel")
        self.log_pane: LogPane | None = None
        self.kernel: KernelPane | None = None
        self.panes: dict[str, Widget] = {}
        """By the view in which each has the whole screen; empty until they are mounted."""
        self._fleet_panes: tuple[KernelPane | ProcessPane | EventPane, ...] = ()

    async def complete(self) -> None:
        """Import and mount the panes: their imports take as long as everything that the first paint needs."""
        EventPane, KernelPane, LogPane, ProcessPane = await asyncio.to_thread(_pane_types)  # noqa: N806 - classes
        self.log_pane = LogPane(clock=self._clock)
        self.kernel = KernelPane(clock=self._clock)
        processes, events = ProcessPane(), EventPane()
        self._fleet_panes = (self.kernel, processes, events)
        self.panes = {"log": self.log_pane, "kernel": self.kernel, "processes": processes, "events": events}
        self.show_only(self._shown)
        await self.mount(*self.panes.values())
        if self._watch is not None:
            self.kernel.attach(self._watch)
        self.show(self._fleet)
        self.log_pane.show(self._feed)

    def attach(self, watch: Watch) -> None:
        """Take the Watch, which has the whole kernel logs."""
        self._watch = watch
        if self.kernel is not None:
            self.kernel.attach(watch)

    def show(self, fleet: FleetState, contain: Contain | None = None) -> None:
        """Show this fleet state in the panes other than the log; `contain` keeps a pane's fault from the others."""
        self._fleet = fleet
        if self.log_pane is not None and self.kernel is not None:
            self.log_pane.note = Line() if self.kernel.display else self.kernel.note
        for log in (self.log_pane, self.kernel):
            if log is not None:
                log.log_view.update_polling()
        for pane in self._fleet_panes:
            if contain is None:
                pane.show(fleet)
            else:
                contain(pane.id or "", partial(pane.show, fleet))

    def follow(self, feed: LogFeed | None) -> None:
        """Show this engine's log."""
        self._feed = feed
        if self.log_pane is not None:
            self.log_pane.show(feed)

    def show_only(self, names: tuple[str, ...]) -> None:
        """Show only these of the panes."""
        self._shown = names
        for name, pane in self.panes.items():
            pane.display = name in names

    @property
    def is_kernel_quiet(self) -> bool:
        """Whether the kernel pane has nothing to look at; so it is until it is mounted."""
        return self.kernel is None or self.kernel.is_quiet

    @property
    def shown(self) -> list[Widget]:
        """The visible panes, in order."""
        return [pane for pane in self.panes.values() if pane.display] if self.display else []

    @property
    def shown_logs(self) -> list[LogPane | KernelPane]:
        """Those of the visible panes that show a log."""
        return [pane for pane in (self.log_pane, self.kernel) if pane is not None and pane in self.shown]
