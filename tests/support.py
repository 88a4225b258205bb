"""What tests of several kinds share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip with the reason; fail instead where SPARKTOP_REQUIRE_INTEGRATION=1 says nothing may be skipped."""
    if os.environ.get("SPARKTOP_REQUIRE_INTEGRATION") == "1":
        pytest.fail(f"required, and unavailable: {reason}")
    pytest.skip(reason)


def poll(condition: Callable[[], object], *, within_s: float = 10.0, what: str = "the condition") -> None:
    """Wait for a condition by asking, never by sleeping a fixed time; fails when it doesn't come true."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within_s} s")
        time.sleep(0.02)


def interruptible() -> None:
    """For `preexec_fn`: a program started in a shell's background ignores SIGINT, and so would what tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
