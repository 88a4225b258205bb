"""One engine's log: its lines, the state read from them, and where the log is found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.engine_state import EngineLogState, advance
from sparktop.diagnose.logs.routine import STATISTICS, routine
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.names import DOCKER_LOGS, names_of
from sparktop.engines.labels import SPARKRUN_LOG
from sparktop.masking import mask_text
from sparktop.model.engine import Engine, EngineKind, LogFacts
from sparktop.model.finding import Finding
from sparktop.model.telemetry import NOTE, LogLine
from sparktop.observe.frames import FrameReader
from sparktop.observe.log_ring import Entry, LineRing, entry_of

if TYPE_CHECKING:  # with the first engine
    from sparktop.diagnose.logs.reader import Lexicon

CAPACITY = 50_000
BEFORE_START_S = 0.1
"""Docker stamps a start once the process runs: its first line may be this much older, and it waits as long before
it starts a container again."""


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
        from sparktop.diagnose.logs.reader import LogReader

        self.title = title
        self.previous: Feed | None = None
        """The log of the container that had the engine's name before."""
        self.status = "not followed yet"
        self.command = "cat LOG"
        """What prints the output of a process outside containers, once it is followed."""
        self.ring = LineRing(CAPACITY)
        self.folded: Counter[str] = Counter()
        """The lines that `brief` leaves out, by what they are (`diagnose.logs.routine`)."""
        self.brief = LineRing(CAPACITY)
        self._was_folded = False
        self._is_scraped = False
        """Whether the engine's metrics were read: then its table has what its statistics lines say."""
        self._said = EngineLogState()
        self.started_s: float | None = None
        """When the container's newest run was started, node time."""
        self.is_awaited = False
        """Whether no line of that run has been read."""
        self._kind = kind
        self._reader = LogReader(rules, kind, mask=mask_text)
        self._before = _FailedRuns()
        self._last_line_wall_s: float | None = None
        self._rules = FrameReader[tuple[int, LogLine]](self._read, now=now)
        """Reads the ring's lines, with their numbers."""

    def name(self, engine: Engine) -> None:
        """Take the engine's names, which discovery may learn some seconds after its process."""
        if engine.metrics is not None and not self._is_scraped:
            self._is_scraped = True
            self._fold_again()
        self._reader.name(names_of(engine, log_source(engine).command or self.command))

    def accept(self, lines: tuple[LogLine, ...], arrived_wall_s: float | None = None) -> bool:
        """Append lines, and read for one frame at most; whether all is read, else call it again with ().

        Args:
            arrived_wall_s: the node's time now, for lines without a timestamp.
        """
        for line in lines:
            if self._keep(line) and line.priority != NOTE:
                self._rules.add([(self.ring.end, line)])
                self._last_line_wall_s = line.wall_s or arrived_wall_s or self._last_line_wall_s
        return self._rules.read_frame()

    def _keep(self, line: LogLine) -> bool:
        """Keep the line; whether it tells of the engine itself, and not that somebody asked it."""
        entry = entry_of(line)
        self.ring.add(entry)
        return self._fold(entry)

    def _fold(self, entry: Entry) -> bool:
        text, _, _, priority, replaces_last = entry
        kind = "" if priority == NOTE else routine(text)
        is_told = kind in ("", STATISTICS)
        if kind == STATISTICS and not self._is_scraped:
            kind = ""
        if kind:
            self.folded[kind] += 1
        else:  # what replaces a line that is folded replaces none of these
            replaces = replaces_last and not self._was_folded
            self.brief.add(entry if replaces == replaces_last else (*entry[:-1], replaces))
        self._was_folded = bool(kind)
        return is_told

    def _fold_again(self) -> None:
        self.brief, self._was_folded = LineRing(CAPACITY), False
        self.folded.clear()
        for entry in self.ring.snapshot().entries(self.ring.first, self.ring.end):
            self._fold((*entry[:-1], False))

    def begin(self, started_wall_s: float | None) -> None:
        """Take when the container's newest run was started, by Docker: what was logged before is of earlier runs."""
        if started_wall_s is None or started_wall_s == self.started_s:
            return
        self.started_s, self.is_awaited = started_wall_s, True
        self._rules.clear()
        again: list[tuple[int, LogLine]] = []  # Docker lists a start some seconds after its first lines
        for number in range(self.ring.end, self.ring.first, -1):
            (line,) = self.ring.slice(number - 1, number)
            if line.priority != NOTE and (line.wall_s is None or self._is_earlier(line)):
                break
            if routine(line.text) in ("", STATISTICS):
                again.append((number, line))
        self._rules.add(reversed(again))
        self._rules.read_frame()

    def _is_earlier(self, line: LogLine) -> bool:
        return line.wall_s is not None and line.wall_s < (self.started_s or 0.0) - BEFORE_START_S

    @property
    def said(self) -> EngineLogState:
        """The state by the newest run's lines."""
        return EngineLogState() if self.is_awaited else self._said

    def _read(self, numbered: tuple[int, LogLine]) -> None:
        number, line = numbered
        if line.priority == NOTE:
            return
        if self.is_awaited and not self._is_earlier(line):
            self._before, self.is_awaited = self._ended_runs(), False
            self._said = EngineLogState()
            self._reader.reset()
        self._said = advance(self._said, line, self._kind)
        self._reader.feed(line.text, line=number, wall_s=line.wall_s)

    def facts(self, *, is_restarted: bool = False) -> LogFacts:
        """What the log says about the current run, as input for the live rules.

        Args:
            is_restarted: Docker has started it again after a failure: what ended the run before stays told until this
                one serves, comes further than any before it, or tells of something itself.
        """
        said = self.said
        before = self._ended_runs() if self.is_awaited else self._before
        before = before if is_restarted and not said.has_served else _FailedRuns()
        has_come_further = before.phases is not None and not said.phases <= before.phases
        own = () if self.is_awaited else self._read_findings(before)
        findings = own or (() if has_come_further else before.findings)
        return LogFacts(
            phase=said.phase,
            progress=said.progress,
            moved_wall_s=said.moved_wall_s,
            last_line_wall_s=self._last_line_wall_s,
            failure=said.failure,
            is_stopping=said.stopping,
            has_served=said.has_served,
            ready_wall_s=said.ready_wall_s,
            loaded=said.loaded,
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

    def _ended_runs(self) -> _FailedRuns:
        """The runs that ended, the one read so far included."""
        before = _FailedRuns() if self._said.has_served else self._before
        return _FailedRuns(
            findings=tuple(_since_first_seen(finding) for finding in self._read_findings(before)) or before.findings,
            phases=(before.phases or frozenset()) | self._said.phases,
        )


def note(text: str, wall_s: float) -> LogLine:
    """A line by sparktop between those of a log: what happened to the connection, and when."""
    stamp = time.strftime("%H:%M:%S", time.localtime(wall_s))
    return LogLine(text=f"── {stamp} {text} ──", priority=NOTE)


def _since_first_seen(finding: Finding) -> Finding:
    if finding.since_wall_s is not None:
        return finding
    return replace(finding, since_wall_s=min((one.wall_s for one in finding.evidence if one.wall_s), default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """Where an engine's log is followed: of a container, or of a process outside any; else `words` says the next
    step."""

    words: str
    """"docker logs", a path, or why there is no log."""
    pid: int | None = None
    """The process whose output is read."""
    container_id: str | None = None
    path: str | None = None
    """A file inside the container, instead of the container's own log."""
    command: str = ""
    """What prints it, of {container}; empty where only the process tells."""


def log_source(engine: Engine) -> LogSource:
    """Where to follow an engine's log."""
    container = engine.container
    if container is None and not engine.key.startswith("pid:"):
        return LogSource(words="its container's log can't be read: see why the Docker Engine can't be asked")
    if container is None:
        return LogSource(words="the output of its process", pid=int(engine.key.removeprefix("pid:")))
    if container.name.startswith("sparkrun_") and engine.is_exec:
        return LogSource(
            words=SPARKRUN_LOG,
            container_id=container.container_id,
            path=SPARKRUN_LOG,
            command=f"docker exec {{container}} cat {SPARKRUN_LOG}",
        )
    words = "docker logs"
    if engine.is_exec:
        words += " (an engine started by `docker exec` may write to the terminal it was started in instead)"
    return LogSource(words=words, container_id=container.container_id, command=DOCKER_LOGS)
