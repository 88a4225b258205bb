"""How a container ended, in words: its exit code's meaning (facts/engines.md section 2.7)."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.model.engine import Container

MEANINGS: Mapping[int, str] = {
    0: "ended by itself",
    1: "failed: its log says why",
    2: "did not accept its command line",
    125: "could not be started by Docker",
    126: "its command can't be executed",
    127: "its command was not found",
    134: "aborted (SIGABRT): a check in native code failed",
    137: "killed (SIGKILL): out of memory, `docker kill`, or a stop that took too long",
    139: "crashed (SIGSEGV)",
    143: "stopped (SIGTERM)",
}


def exit_detail(container: Container) -> str:
    """One line about how it ended."""
    code = container.exit_code
    if code is None:
        return "ended"
    if container.oom_killed:
        return f"killed, out of memory (exit code {code})"
    meaning = MEANINGS.get(code)
    if meaning is None:
        meaning = f"killed by signal {code - 128}" if 128 < code < 160 else "failed: its log says why"
    return f"{meaning} (exit code {code})"
