"""What consoles are compared with: a Textual app of one Static that shows the time of its own update."""

from __future__ import annotations

import sys
import time

from textual.app import App, ComposeResult
from textual.widgets import Static


class BareApp(App[None]):
    """`t<CLOCK_BOOTTIME in seconds>` so many times a second."""

    def __init__(self, hertz: float) -> None:
        super().__init__()
        self._hertz = hertz
        self._static = Static("bare", markup=False)

    def compose(self) -> ComposeResult:
        yield self._static

    def on_mount(self) -> None:
        self.set_interval(1 / self._hertz, self._tick)

    def _tick(self) -> None:
        self._static.update(f"t{time.clock_gettime(time.CLOCK_BOOTTIME):.4f}")


if __name__ == "__main__":
    BareApp(float(sys.argv[1])).run()
