"""The console in a page (`sparktop serve`): a server that is gone ends it, as a terminal that is gone does."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any

from textual.app import App
from textual.drivers.web_driver import WebDriver


class PageDriver(WebDriver):
    """Textual's driver for textual-serve; Textual's own would go on without its server, and watch for ever."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(app, **options)
        self._write = self._put  # type: ignore[assignment]

    def _put(self, data: bytes) -> int:
        with suppress(BrokenPipeError):
            return os.write(self.fileno, data)
        self._leave()
        return len(data)

    def run_input_thread(self) -> None:
        """Dispatch what the page sends, until the server closes its end."""
        super().run_input_thread()
        self._leave()

    def _leave(self) -> None:
        """Quit the app; called on any thread."""
        if not self.exit_event.is_set():
            self._loop.call_soon_threadsafe(self._app.exit, 0)
