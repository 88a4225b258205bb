"""Puts lines together again that a terminal's width or whoever pasted them cut in two or more. Pure."""

from __future__ import annotations

import re

JOINED_CHARS = 2000
"""A line that would become longer is not put together further."""
SEAM_CHARS = 100
"""How much of both sides is looked at for a text that the cut went through."""

_BEGINS = re.compile(
    r"  |\t|\((?:\w+ )?\w+ ?pid=|\[|\d{4}[-/]\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL)\b"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:|Traceback|[\w.]+(?:Error|Exception)\b|NVRM:|[{<#$|]|[-*+] |==|$"
)
"""How a line begins that goes on no other."""


class Joiner:
    """Takes lines in and says of each what it makes together with those before, where it may go on them."""

    __slots__ = ("_spaced", "_tight", "line")

    def __init__(self) -> None:
        self._spaced = self._tight = ""
        self.line: int | None = None
        """The number of the first of the lines that belong together."""

    def add(self, text: str, line: int | None) -> tuple[tuple[str, str], ...]:
        """The line put together so far, as cut between words and as cut anywhere, with its seams; () for a new line."""
        before, tight = self._spaced, self._tight
        if not before or _BEGINS.match(text) or len(before) + len(text) > JOINED_CHARS:
            self._spaced, self._tight = text.rstrip(), text
            self.line = line
            return ()
        self._spaced, self._tight = f"{before} {text.strip()}", f"{tight}{text}"
        head = text.strip()[:SEAM_CHARS]
        return (
            (self._spaced, f"{before[-SEAM_CHARS:]} {head}"),
            (self._tight, f"{tight[-SEAM_CHARS:]}{text[:SEAM_CHARS]}"),
        )
