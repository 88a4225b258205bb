"""Explain any pasted text or file: logs, kernel lines and whole command outputs, with causes linked across them.

Each reader links causes within its own kind (logs by rank, Xids by NVIDIA's catalogue); this module links the findings
of different readers. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from sparktop.diagnose.findings import ordered
from sparktop.diagnose.kernel import findings
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.diagnose.logs.decode import Decoder, Line
from sparktop.diagnose.logs.matches import findings_of
from sparktop.diagnose.logs.narration import Narration
from sparktop.diagnose.logs.reader import Lexicon, LogReader, Mask, without_escapes
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.logs.unwrap import Record, unwrap
from sparktop.diagnose.outputs import reader as outputs_reader
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.telemetry import LogLine
from sparktop.sanitise import line as sanitise_line

_CONTAINER_ENDS = ("restart.failed", "restart.aborted", "restart.segfault", "restart.loop", "docker.restart-loop")
"""A container ended by itself: the cause is in its log."""


_ANY_CAUSE = ("killed", "gpu-lost", "gpu-fault")
"""What in the kernel log may have ended a container, by the names in kernel/patterns.toml."""


_REPLACED_BY = {"docker.exit-137": "restart.exit-137", "docker.oom-killed": "restart.oom-killed"}
"""Rules on log lines, and the document rule that replaces each: it has names and times."""


def link_causes(findings: Sequence[Finding], rules: Iterable[LogRule]) -> tuple[Finding, ...]:
    """The findings in reading order, with causes of another kind filled in."""
    by_id = {rule.id: rule for rule in rules}
    present = {finding.rule for finding in findings}
    findings = [finding for finding in findings if _REPLACED_BY.get(finding.rule) not in present]
    present = {finding.rule for finding in findings}
    consequences = {name for name in present if name in _CONTAINER_ENDS or (name in by_id and by_id[name].consequence)}
    roots = [
        finding.rule
        for finding in findings
        if finding.severity is Severity.CRITICAL
        and finding.caused_by is None
        and finding.rule in by_id
        and finding.rule not in consequences
    ]

    def cause_of(name: str) -> str | None:
        explaining = kernel_line.explaining(name)
        candidates = [*(by_id[name].follows if name in by_id else ()), *explaining]
        if name.startswith("cuda."):
            candidates += kernel_line.causes("gpu-lost")
        if name in consequences:
            any_cause = () if explaining else _ANY_CAUSE
            candidates += [*(rule for group in any_cause for rule in kernel_line.causes(group)), *roots]
        return next((cause for cause in candidates if cause in present and cause != name), None)

    return ordered(
        [
            finding if finding.caused_by in present else replace(finding, caused_by=cause_of(finding.rule))
            for finding in findings
        ]
    )


DOCUMENT_CHARS = 4 << 20
"""A longer text can't be the output of `docker inspect` or `nvidia-smi`."""


JOINED_LINES = 20_000
"""In this many first lines of each stream, lines cut by a terminal's width are joined again.

Longer texts come from files, where no terminal cut them.
"""


STREAMS = 64
"""At most this many services, units and containers of one text are told apart."""


_BOOT_STAMP = re.compile(r"(?:<\d{1,3}>)?\[ *\d{1,10}\.\d{6}\]")


_MARGIN = re.compile(r"^\s*(?:\d{1,7}[:|\t-]\s*(?=[\[<A-Z]|\d{4}-\d\d-))?")
"""Indentation and line numbers before a kernel line, from a terminal or a pager."""


_STARTED = '"StartedAt": "'
"""In `docker inspect`: what the container's log says from then on is of a new run."""


_ENDED = re.compile(
    r"(?P<unit>[\w@.\\:-]+)\.service: (?:Main process exited, code=exited, status=[1-9]|Failed with result 'exit-code')"
    r"|^(?P<container>[\w.-]+) exited with code (?!0\b|13[07]\b|143\b)\d"
)
"""systemd, or Docker Compose, says that a program ended with an error."""


_ENDED_WORDS = frozenset(("code=exited, status=", "result 'exit-code'", " exited with code "))


_TELLERS = frozenset(("systemd", "kernel", "init.scope"))
"""Streams that tell of other programs."""


ENDED_LINES = 8
"""A program whose name differs from its unit's said its last words at most so many lines before systemd says it."""


_QUOTED_STAMP = re.compile(r"""["'`](?:<\d+>)?(?:\[ *\d+\.\d+\]|NVRM:)""")
"""A kernel line within quotes: source code, or a test's data."""


CLIENT_LINES = 150
"""In a log of so many lines one refused request is a client's slip; a shorter text was copied for its sake."""


class Explanation:
    """Reads one text piece by piece and finds what is wrong in it."""

    def __init__(self, source: str, rules: Sequence[LogRule], *, mask: Mask = lambda text: text) -> None:
        """`source` names the text in the evidence ("stdin", a file name); `mask` hides secrets there."""
        self._source = source
        self._mask = mask
        self._decoder = Decoder()
        self._rules = tuple(rules)
        self._lexicon = _lexicon(self._rules)
        self._kernel_words = frozenset(kernel_line.words())
        self._readers: dict[str, LogReader] = {}
        self._incidents = IncidentGrouper()
        self._document_lines: list[tuple[str, int]] | None = []
        """The lines so far with their numbers; None once they are too long to be a document."""
        self._chars = 0
        self._has_kernel_lines = False
        self._findings: tuple[Finding, ...] | None = None
        self._has_documents = False
        self._narration = Narration()
        self._spoke: tuple[str, int] = ("", 0)
        """The program that spoke last, by its stream, and at which line."""
        self._started_s: float | None = None
        """The only container's StartedAt, until a line that was written later is read."""
        self.lines = 0
        """Number of lines read."""

    def feed(self, data: bytes) -> None:
        """Read the next bytes; they may be cut anywhere."""
        self._read_lines(self._decoder.feed(data))

    def finish(self) -> tuple[Finding, ...]:
        """The findings, root cause first. Don't feed anything afterwards."""
        if self._findings is None:
            self._read_lines(self._decoder.finish())
            is_one = len(self._readers) == 1 and not self._has_kernel_lines
            claims = [
                claim for reader in self._readers.values() for claim in reader.claims(is_over=is_one or reader.is_known)
            ]
            whole_text_findings = [*findings.findings(self._incidents.events, source=self._source)]
            whole_text_findings += self._document_findings()
            findings_in_order = [
                *findings_of(claims, self._source, mask=self._mask),
                *map(self._masked, whole_text_findings),
            ]
            if self.lines >= CLIENT_LINES:
                alone = {claim.rule.id for claim in claims if claim.rule.of_clients and claim.count == 1}
                findings_in_order = [
                    replace(one, severity=Severity.INFO) if one.rule in alone else one for one in findings_in_order
                ]
            if self._narration.is_of_nobody:
                findings_in_order = [replace(finding, severity=Severity.INFO) for finding in findings_in_order]
            self._findings = link_causes(findings_in_order, self._rules)
        return self._findings

    @property
    def seen(self) -> tuple[str, ...]:
        """What kinds of text were recognised: "vLLM", "the kernel"."""
        kinds = {kind for reader in self._readers.values() for kind in reader.kinds}
        names = [kind.traits.name for kind in EngineKind if kind in kinds]
        names += ["the kernel"] if self._has_kernel_lines else []
        return (*names, *(["documents (docker, nvidia-smi, an API)"] if self._has_documents else []))

    def _document_findings(self) -> Iterable[Finding]:
        if self._document_lines is None:
            return
        document_findings = outputs_reader.read("\n".join([line for line, _ in self._document_lines]), self._source)
        self._has_documents = document_findings is not None
        numbers = [number for _, number in self._document_lines]
        for finding in document_findings or ():
            evidence = tuple(
                replace(entry, line=numbers[entry.line - 1]) if entry.line and entry.line <= len(numbers) else entry
                for entry in finding.evidence
            )
            yield replace(finding, evidence=evidence)

    def _masked(self, finding: Finding) -> Finding:
        evidence = tuple(replace(entry, text=self._mask(entry.text)) for entry in finding.evidence)
        return replace(finding, evidence=evidence)

    def _read_lines(self, lines: Iterable[Line]) -> None:
        for number, text in lines:
            self.lines += 1
            if "\r" in text:  # a progress bar's states, or lines with old Mac line ends
                text = "\r".join([self._read(state, number) if state else "" for state in text.split("\r")])
            else:
                text = self._read(text, number)
            if self._document_lines is not None:
                self._keep_for_documents(text, number)

    def _keep_for_documents(self, text: str, number: int) -> None:
        self._chars += len(text) + 1
        if self._chars > DOCUMENT_CHARS:
            self._document_lines = None
        elif self._document_lines is not None:
            self._document_lines += ((line, number) for line in text.split("\n"))

    def _read(self, text: str, number: int) -> str:
        """Read one line; returns it without its wrapping (JSON, journal prefix, quote)."""
        text = without_escapes(text)
        record = unwrap(text)
        if record is None:
            self._read_record(text, number, None)
            return text
        text = without_escapes(record.text)
        if record.stamp and (at := text.find(record.stamp[:5])) > 0 and unwrap(text[at:]) is not None:
            # Docker's last line of a run had no end: the next run's first follows on it.
            return f"{self._read(record.stamp + ' ' + text[:at], number)}\n{self._read(text[at:], number)}"
        for line in text.replace("\r", "\n").split("\n"):
            self._read_record(line, number, record)
        return text

    def _read_record(self, text: str, number: int, record: Record | None) -> None:
        text, hits = self._lexicon.own_text(text)
        if record is None:
            self._narration.see(text)
        stream = record.stream if record is not None else ""
        reader = self._reader(stream)
        if stream and stream not in _TELLERS:
            self._spoke = (stream, number)
        if not self._has_kernel_lines and (record.is_kernel if record is not None else text.startswith(("[", "<"))):
            self._has_kernel_lines = record is not None or _BOOT_STAMP.match(text) is not None
        if not hits:
            reader.take(text, hits, line=number)
            return
        if not _ENDED_WORDS.isdisjoint(hits) and (ended := _ENDED.search(text)) is not None:
            self._end(ended["unit"] or ended["container"], number, is_container=ended["container"] is not None)
        wall_s = record.wall_s if record is not None else None
        if _STARTED in hits:
            stamp = text.partition(_STARTED)[2].partition('"')[0]
            self._started_s = Record(text="", stamp=stamp).wall_s
        elif self._started_s is not None and wall_s is not None and wall_s >= self._started_s:
            self._started_s = None
            reader.begin_run()
        reader.take(text, hits, line=number, wall_s=wall_s)
        if not self._kernel_words.isdisjoint(hits) and _QUOTED_STAMP.search(text) is None:
            boot_s = record.boot_s if record is not None else None
            bare = _MARGIN.sub("", text, count=1)
            event = kernel_line.read(LogLine(text=sanitise_line(bare), wall_s=wall_s, boot_s=boot_s))
            if event is not None:
                self._has_kernel_lines = True
                self._incidents.add(replace(event, line=number))

    def _end(self, name: str, number: int, *, is_container: bool) -> None:
        """The program of this name has ended: whose last words these are, by its name or by who spoke just before."""
        stem = name.partition("@")[0]
        named = [stream for stream in self._readers if stream and stream.removesuffix(".service") in (name, stem)]
        stream, line = self._spoke
        if named or (stream and number - line <= ENDED_LINES):
            self._readers[named[0] if named else stream].end(name, is_container=is_container)

    def _reader(self, stream: str) -> LogReader:
        if stream not in self._readers:
            if len(self._readers) >= STREAMS and stream:
                return self._reader("")
            name = sanitise_line(stream, limit=80)
            self._readers[stream] = LogReader(self._lexicon, stream=name, joined_lines=JOINED_LINES)
        return self._readers[stream]


def explain_together(explanations: Sequence[Explanation], rules: Iterable[LogRule]) -> tuple[Finding, ...]:
    """The findings of several texts about one incident, root cause first, linked across the texts."""
    return link_causes([finding for explanation in explanations for finding in explanation.finish()], rules)


@cache
def _lexicon(rules: tuple[LogRule, ...]) -> Lexicon:
    return Lexicon(rules, (*kernel_line.words(), _STARTED, *_ENDED_WORDS))
