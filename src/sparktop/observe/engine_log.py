"""One engine's log: its lines, the state read from them, and where the log is found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop.cmdline.engine_command import of_container
from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.engine_state import EngineLogState, advance
from sparktop.diagnose.logs.names import names_of
from sparktop.diagnose.logs.reader import Lexicon, LogReader
from sparktop.diagnose.logs.rule import LogRule
from sparktop.engines.labels import SPARKRUN_LOG
from sparktop.masking import mask_text
from sparktop.model.engine import Engine, EngineKind, LogFacts
from sparktop.model.finding import Finding
from sparktop.model.telemetry import NOTE, LogLine
from sparktop.observe.frames import FrameReader
from sparktop.observe.log_ring import LineRing

CAPACITY = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedRuns:
    """The runs that ended since one served, or since the log is followed."""

    findings: tuple[Finding, ...] = ()
    """Of the last run that had any, each since the first run that it was seen in."""
    phases: frozenset[str] | None = None
    """All that their loads came to; None where no run has ended."""


class Feed:
    """The lines of one engine's log and the state read from them; implements `observe.watch.LogFeed`."""

    def __init__(
        self,
        title: str,
        kind: EngineKind,
        rules: Sequence[LogRule] | Lexicon = (),
        *,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`rules` are the log rules to match; `now` tells how long that takes."""
        self.title = title
        self.previous: Feed | None = None
        """The log of the container that had the engine's name before."""
        self.status = "not followed yet"
        self.ring = LineRing(CAPACITY)
        self.said = EngineLogState()
        self._kind = kind
        self._reader = LogReader(rules, kind, mask=mask_text)
        self._before = _FailedRuns()
        self._last_line_wall_s: float | None = None
        self._rules = FrameReader[tuple[int, LogLine]](self._read, now=now)
        """Reads the ring's lines, with their numbers."""

    def name(self, engine: Engine) -> None:
        """Take the engine's names, which discovery may learn some seconds after its process."""
        self._reader.name(names_of(engine))

    def accept(self, lines: tuple[LogLine, ...], arrived_wall_s: float | None = None) -> bool:
        """Append lines, and read for one frame at most; whether all is read, else call it again with ().

        Args:
            arrived_wall_s: the node's time now, for lines without a timestamp.
        """
        number = self.ring.end
        self.ring.extend(lines)
        for line in lines:
            number += 0 if line.replaces_last and number else 1
            self._rules.add([(number, line)])
        if lines:
            self._last_line_wall_s = lines[-1].wall_s or arrived_wall_s or self._last_line_wall_s
        return self._rules.read_frame()

    def _read(self, numbered: tuple[int, LogLine]) -> None:
        number, line = numbered
        self.said = advance(self.said, line, self._kind)
        self._reader.feed(line.text, line=number, wall_s=line.wall_s)

    def facts(self, *, is_restarted: bool = False) -> LogFacts:
        """What the log says about the current run, as input for the live rules.

        Args:
            is_restarted: Docker has started it again after a failure: what ended the run before stays told until this
                one serves, comes further than any before it, or tells of something itself.
        """
        said = self.said
        before = self._before if is_restarted and not said.has_served else _FailedRuns()
        has_come_further = before.phases is not None and not said.phases <= before.phases
        findings = self._read_findings(before) or (() if has_come_further else before.findings)
        return LogFacts(
            phase=said.phase,
            progress=said.progress,
            moved_wall_s=said.moved_wall_s,
            last_line_wall_s=self._last_line_wall_s,
            failure=said.failure,
            is_stopping=said.stopping,
            has_served=said.has_served,
            ready_wall_s=said.ready_wall_s,
            has_come_further=has_come_further,
            findings=findings,
        )

    def _read_findings(self, before: _FailedRuns) -> tuple[Finding, ...]:
        """Of this run; what runs before it failed by, too, since it was first seen."""
        first_s = {finding.rule: finding.since_wall_s for finding in before.findings}
        return tuple(
            replace(finding, since_wall_s=first_s[finding.rule]) if finding.rule in first_s else finding
            for finding in self._reader.findings(self.title)
        )

    def forget(self) -> None:
        """Reset the state read from the log, at the end of a run; the lines stay."""
        before = _FailedRuns() if self.said.has_served else self._before
        self._before = _FailedRuns(
            findings=tuple(_since_first_seen(finding) for finding in self._read_findings(before)) or before.findings,
            phases=(before.phases or frozenset()) | self.said.phases,
        )
        self._rules.clear()
        self.said = EngineLogState()
        self._reader.reset()

    def note(self, text: str, wall_s: float) -> None:
        """Insert a line by sparktop: what happened to the connection, and when."""
        stamp = time.strftime("%H:%M:%S", time.localtime(wall_s))
        self.ring.extend([LogLine(text=f"── {stamp} {text} ──", priority=NOTE)])


def _since_first_seen(finding: Finding) -> Finding:
    if finding.since_wall_s is not None:
        return finding
    return replace(finding, since_wall_s=min((one.wall_s for one in finding.evidence if one.wall_s), default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """Where an engine's log is followed; without a container it can't be, and `words` says the next step."""

    words: str
    """"docker logs", a path, or why there is no log."""
    container_id: str | None = None
    path: str | None = None
    """A file inside the container, instead of the container's own log."""


def log_source(engine: Engine) -> LogSource:
    """Where to follow an engine's log."""
    container = engine.container
    if container is None and ":" not in engine.key and engine.key:
        return LogSource(words="its container's log can't be read: see why the Docker Engine can't be asked")
    if container is None:
        return LogSource(
            words="it runs outside containers: its log is where it was started (a terminal, or journalctl)"
        )
    if container.name.startswith("sparkrun_") and of_container(container.argv) is None:
        return LogSource(words=SPARKRUN_LOG, container_id=container.container_id, path=SPARKRUN_LOG)
    if of_container(container.argv) is None:
        words = "docker logs (an engine started by `docker exec` may write to the terminal it was started in instead)"
        return LogSource(words=words, container_id=container.container_id)
    return LogSource(words="docker logs", container_id=container.container_id)
