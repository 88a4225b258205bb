"""Where an engine's log can be read, or why it can't (facts/engines.md sections 5.1, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.diagnose.enginecommand import of_container
from sparktop.model.engine import Engine

SPARKRUN_LOG = "/tmp/sparkrun_serve.log"  # noqa: S108 - a path inside a container, where sparkrun writes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """One way to an engine's log; without a container there is none, and `words` says what would give one."""

    words: str
    """"docker logs", a path, or why there is none."""
    container_id: str | None = None
    path: str | None = None
    """A file inside the container, instead of the container's own log."""


def log_source(engine: Engine) -> LogSource:
    """Where to follow an engine's log."""
    box = engine.container
    if box is None and ":" not in engine.key and engine.key:
        return LogSource(words="its container's log can't be read: see why the Docker Engine can't be asked")
    if box is None:
        return LogSource(
            words="it runs outside containers: its log is where it was started (a terminal, or journalctl)"
        )
    if box.name.startswith("sparkrun_") and of_container(box.argv) is None:
        return LogSource(words=SPARKRUN_LOG, container_id=box.container_id, path=SPARKRUN_LOG)
    if of_container(box.argv) is None:
        words = "docker logs (an engine started by `docker exec` may write to the terminal it was started in instead)"
        return LogSource(words=words, container_id=box.container_id)
    return LogSource(words="docker logs", container_id=box.container_id)
