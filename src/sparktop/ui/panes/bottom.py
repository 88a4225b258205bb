"""The lower part of the console: an engine's log and the kernel's events, mounted only after the first paint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Container

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import LogFeed, Watch

if TYPE_CHECKING:
    from sparktop.ui.panes.kernel import KernelPane
    from sparktop.ui.panes.log import LogPane


class Bottom(Container):
    """Holds both panes; what it is told before they exist is shown once they do."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="logs")
        self._clock = clock
        self._fleet = FleetState()
        self._feed: LogFeed | None = None
        self._watch: Watch | None = None
        self._shown = (True, True)
        self.log_pane: LogPane | None = None
        self.kernel: KernelPane | None = None

    async def complete(self) -> None:
        """Import and mount the panes: their modules take as long as everything that the first paint needs."""
        from sparktop.ui.panes.kernel import KernelPane
        from sparktop.ui.panes.log import LogPane

        self.log_pane = LogPane(clock=self._clock, id="log")
        self.kernel = KernelPane(clock=self._clock, id="kernel")
        self.show_only(log=self._shown[0], kernel=self._shown[1])
        await self.mount(self.log_pane, self.kernel)
        if self._watch is not None:
            self.kernel.attach(self._watch)
        self.kernel.show(self._fleet)
        self.log_pane.show(self._feed)

    def attach(self, watch: Watch) -> None:
        """From now on whole kernel logs can be asked for."""
        self._watch = watch
        if self.kernel is not None:
            self.kernel.attach(watch)

    def show(self, fleet: FleetState) -> None:
        """Show this picture's kernel events."""
        self._fleet = fleet
        if self.kernel is not None:
            self.kernel.show(fleet)

    def follow(self, feed: LogFeed | None) -> None:
        """Follow this engine's log."""
        self._feed = feed
        if self.log_pane is not None:
            self.log_pane.show(feed)

    def show_only(self, *, log: bool, kernel: bool) -> None:
        """Which of the two are shown."""
        self._shown = (log, kernel)
        if self.log_pane is not None and self.kernel is not None:
            self.log_pane.display, self.kernel.display = log, kernel

    @property
    def shown(self) -> list[LogPane | KernelPane]:
        """The panes that can be seen, in order."""
        panes = [pane for pane in (self.log_pane, self.kernel) if pane is not None and pane.display]
        return panes if self.display else []
