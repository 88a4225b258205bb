"""Explains a text of any kind: what the log rules, the kernel's lines and whole documents say of it, root cause first.

Pure: bytes are fed in as they come, and findings are asked for at the end. What is kept is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparktop.diagnose import kernel
from sparktop.diagnose.burst import Folder
from sparktop.diagnose.logs.reader import LogReader, Mask
from sparktop.diagnose.logs.rules import LogRule
from sparktop.diagnose.order import ordered
from sparktop.model.finding import Finding
from sparktop.model.telemetry import LogLine
from sparktop.sanitise import line as sanitised

DOCUMENT_BYTES = 4 << 20
"""A longer text is no `docker inspect` and no nvidia-smi."""


class Explanation:
    """Takes one text in, piece by piece, and says what is wrong in it."""

    def __init__(self, source: str, rules: Sequence[LogRule], *, mask: Mask = lambda text: text) -> None:
        self._source = source
        self._reader = LogReader(rules, mask=mask)
        self._folder = Folder()
        self._number = 0
        self._head = b""

    def feed(self, data: bytes) -> None:
        self._head += data

    def findings(self) -> tuple[Finding, ...]:
        """What was found, root cause first."""
        text = self._head.decode("utf-8", "replace")
        for line in text.split("\n"):
            self._number += 1
            self._reader.feed(line, line=self._number)
            event = kernel.read(LogLine(text=sanitised(line)))
            if event is not None:
                self._folder.add(replace(event, line=self._number))
        found = [*self._reader.findings(self._source), *self._of_kernel(), *self._of_document(text)]
        return ordered(found)

    def _of_kernel(self) -> tuple[Finding, ...]:
        from sparktop.diagnose import kernelfindings

        return kernelfindings.findings(self._folder.events, source=self._source)

    def _of_document(self, text: str) -> tuple[Finding, ...]:
        from sparktop.diagnose import documents

        return documents.read(text, self._source) or ()
