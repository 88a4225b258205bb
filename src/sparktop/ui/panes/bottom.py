"""The lower part of the console: the log, the kernel's events and the processes, mounted only after the first paint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
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


def _import_panes() -> None:
    """For a thread, as keys are answered meanwhile: it takes as long as everything that the first paint needs."""
    for name in ("events", "kernel", "log", "processes"):
        import_module(f"sparktop.ui.panes.{name}")


Contain = Callable[[str, Callable[[], object]], None]
"""Shows something in the pane of this name."""


class Bottom(Container):
    """Holds the panes; what it is given before they exist is shown once they do."""

    def __init__(self, clock: Clock, contain: Contain) -> None:
        """`contain` keeps a pane's fault from the others."""
        super().__init__(id="logs")
        self._clock = clock
        self._contain = contain
        self._fleet = FleetState()
        self._feed: LogFeed | None = None
        self._watch: Watch | None = None
        self._shown: tuple[str, ...] = ("log", "kernel")
        self.log_pane: LogPane | None = None
        self.kernel: KernelPane | None = None
        self.panes: dict[str, Widget] = {}
        """By the view in which each has the whole screen; empty until they are mounted."""
        self._fleet_panes: dict[str, KernelPane | ProcessPane | EventPane] = {}

    async def complete(self) -> None:
        """Import and mount the panes."""
        await asyncio.to_thread(_import_panes)
        from sparktop.ui.panes.events import EventPane
        from sparktop.ui.panes.kernel import KernelPane
        from sparktop.ui.panes.log import LogPane
        from sparktop.ui.panes.processes import ProcessPane

        self.log_pane, self.kernel = LogPane(clock=self._clock), KernelPane(clock=self._clock)
        self._fleet_panes = {"kernel": self.kernel, "processes": ProcessPane(), "events": EventPane()}
        self.panes = {"log": self.log_pane, **self._fleet_panes}
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

    def show(self, fleet: FleetState) -> None:
        """Show this fleet state in the panes other than the log."""
        self._fleet = fleet
        if self.log_pane is not None and self.kernel is not None:
            self.log_pane.note = Line() if self.kernel.display else self.kernel.note
            self.log_pane.log_view.update_polling()
            self.kernel.log_view.update_polling()
        for name, pane in self._fleet_panes.items():
            self._contain(name, partial(pane.show, fleet))

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
