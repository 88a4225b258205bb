"""What the console wants of its interpreter."""

from __future__ import annotations

import gc
import os
import sys


def prepare_for_console() -> None:
    """Set it up for a quick start and an event loop that answers; before the console's modules are imported."""
    # Collecting garbage while modules are imported takes a tenth of the start. The app enables it again.
    gc.disable()
    # Threads that import or read logs give the event loop its turn sooner than after 5 ms.
    sys.setswitchinterval(0.001)
    # Textual paints on a grid of so many times a second, and after a pause may leave one out: at its 60, what a key
    # changes waits up to 33 ms for its paint. Little is painted more often, as a pane paints only what changed.
    os.environ.setdefault("TEXTUAL_FPS", "250")
