"""Explains a text of any kind: what the log rules, the kernel's lines and whole documents say of it, root cause first.

Pure: bytes are fed in as they come, and findings are asked for at the end. What is kept is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from sparktop.diagnose import documents, kernel, kernelfindings
from sparktop.diagnose.burst import Folder
from sparktop.diagnose.causes import linked
from sparktop.diagnose.logs import echo
from sparktop.diagnose.logs.claims import in_order
from sparktop.diagnose.logs.decode import Decoder, Line
from sparktop.diagnose.logs.reader import Lexicon, LogReader, Mask, plain
from sparktop.diagnose.logs.rules import LogRule
from sparktop.diagnose.logs.wrapping import Record, unwrap
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding
from sparktop.model.telemetry import LogLine
from sparktop.sanitise import line as sanitised

DOCUMENT_CHARS = 4 << 20
"""A longer text is no `docker inspect` and no nvidia-smi."""
_NAMES = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}
JOINED_LINES = 20_000
"""In so many lines of each stream, what a terminal's width cut is put together again; longer texts come from files."""
STREAMS = 64
"""So many services, units and containers of one text are told apart."""


_BOOT_STAMP = re.compile(r"(?:<\d{1,3}>)?\[ *\d{1,10}\.\d{6}\]")

_MARGIN = re.compile(r"^\s*(?:\d{1,7}[:|\t-]\s*(?=[\[<A-Z]|\d{4}-\d\d-))?")
"""Indentation and line numbers before a kernel line, from a terminal or a pager."""


class Explanation:
    """Takes one text in, piece by piece, and says what is wrong in it."""

    def __init__(self, source: str, rules: Sequence[LogRule], *, mask: Mask = lambda text: text) -> None:
        """`source` stands in the evidence ("stdin", a file's name); `mask` hides secrets there."""
        self._source = source
        self._mask = mask
        self._decoder = Decoder()
        self._rules = tuple(rules)
        self._lexicon = _lexicon(self._rules)
        self._kernel_words = frozenset(kernel.words())
        self._readers: dict[str, LogReader] = {}
        self._folder = Folder()
        self._whole: list[tuple[str, int]] | None = []
        """The lines so far and their numbers, while they are few enough to be a document."""
        self._chars = 0
        self._has_kernel_lines = False
        self._found: tuple[Finding, ...] | None = None
        self._has_documents = False
        self.lines = 0
        """How many lines came."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes in; how they were cut makes no difference."""
        self._take(self._decoder.feed(data))

    def finish(self) -> tuple[Finding, ...]:
        """What was found, root cause first; nothing may be fed afterwards."""
        if self._found is None:
            self._take(self._decoder.finish())
            claims = [claim for reader in self._readers.values() for claim in reader.claims()]
            others = [*kernelfindings.findings(self._folder.events, source=self._source)]
            others += self._of_documents()
            found = [*in_order(claims, self._source, mask=self._mask), *map(self._masked, others)]
            self._found = linked(found, self._rules)
        return self._found

    @property
    def seen(self) -> tuple[str, ...]:
        """What the text is of, as far as that was made out: "vLLM", "the kernel"."""
        kinds = {kind for reader in self._readers.values() for kind in reader.kinds}
        names = [_NAMES[kind] for kind in EngineKind if kind in kinds]
        names += ["the kernel"] if self._has_kernel_lines else []
        return (*names, *(["documents (docker, nvidia-smi, an API)"] if self._has_documents else []))

    def _of_documents(self) -> Iterable[Finding]:
        if self._whole is None:
            return
        said = documents.read("\n".join([line for line, _ in self._whole]), self._source)
        self._has_documents = said is not None
        numbers = [number for _, number in self._whole]
        for finding in said or ():
            evidence = tuple(
                replace(each, line=numbers[each.line - 1]) if each.line and each.line <= len(numbers) else each
                for each in finding.evidence
            )
            yield replace(finding, evidence=evidence)

    def _masked(self, finding: Finding) -> Finding:
        evidence = tuple(replace(each, text=self._mask(each.text)) for each in finding.evidence)
        return replace(finding, evidence=evidence)

    def _take(self, lines: Iterable[Line]) -> None:
        for number, text in lines:
            self.lines += 1
            if "\r" in text:  # each state of a progress bar, or the lines of an old Mac
                text = "\r".join([self._read(state, number) if state else "" for state in text.split("\r")])
            else:
                text = self._read(text, number)
            if self._whole is not None:
                self._keep(text, number)

    def _keep(self, text: str, number: int) -> None:
        self._chars += len(text) + 1
        if self._chars > DOCUMENT_CHARS:
            self._whole = None
        elif self._whole is not None:
            self._whole += ((line, number) for line in text.split("\n"))

    def _read(self, text: str, number: int) -> str:
        """Read one line; what it is without what carried it."""
        text = plain(text)
        record = unwrap(text)
        if record is None:
            self._tell(text, number, None)
            return text
        text = plain(record.text)
        for part in text.replace("\r", "\n").split("\n"):
            self._tell(part, number, record)
        return text

    def _tell(self, text: str, number: int, record: Record | None) -> None:
        hits = self._lexicon.gate.hits(text)
        if hits and (own := echo.without(text)) is not text:
            text, hits = own, self._lexicon.gate.hits(own)
        reader = self._reader(record.stream if record is not None else "")
        if not self._has_kernel_lines and (record.is_kernel if record is not None else text.startswith(("[", "<"))):
            self._has_kernel_lines = record is not None or _BOOT_STAMP.match(text) is not None
        if not hits:
            reader.take(text, hits)
            return
        wall_s = record.wall_s if record is not None else None
        reader.take(text, hits, line=number, wall_s=wall_s)
        if not self._kernel_words.isdisjoint(hits):
            boot_s = record.boot_s if record is not None else None
            bare = _MARGIN.sub("", text, count=1)
            event = kernel.read(LogLine(text=sanitised(bare), wall_s=wall_s, boot_s=boot_s))
            if event is not None:
                self._has_kernel_lines = True
                self._folder.add(replace(event, line=number))

    def _reader(self, stream: str) -> LogReader:
        reader = self._readers.get(stream)
        if reader is None:
            if len(self._readers) >= STREAMS and stream:
                return self._reader("")
            reader = self._readers[stream] = LogReader(
                self._lexicon, stream=sanitised(stream, limit=80), joined_lines=JOINED_LINES
            )
        return reader


def together(explanations: Sequence[Explanation], rules: Iterable[LogRule]) -> tuple[Finding, ...]:
    """The findings of several texts of one incident, root cause first: the kernel may tell why the engine died."""
    return linked([finding for each in explanations for finding in each.finish()], rules)


@cache
def _lexicon(rules: tuple[LogRule, ...]) -> Lexicon:
    return Lexicon(rules, kernel.words())
