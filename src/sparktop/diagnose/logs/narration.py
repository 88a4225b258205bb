"""Whether a text tells of errors that happened to nobody: a guide with its solutions, or source code. Pure but for what
it has counted."""

from __future__ import annotations

import re

HEADINGS = 2
"""A text with so many headings that also tells solutions is a guide."""
FIRST_LINES = 4_000
"""What a text is, is told by so many first lines."""
STATEMENTS_SHARE = 0.3
"""Of the lines of source code so many are statements that `_STATEMENT` knows."""
STATEMENTS = 8

_HEADING = re.compile(r"#{1,5} \S")
_ANSWER = re.compile(
    r"(?:#{1,5} |[*|_ -]++)(?:\d++[.)] ?)?(?:Solutions?|Fix|Workaround|Symptoms?|Troubleshooting|Common [Ii]ssues?)\b"
)
_STATEMENT = re.compile(
    r"\s*+(?:def |class |import \w|from \S+ import |return\b|elif |else:|try:|except\b|@\w|self\.|\w++ = |\w++\($"
    r"|[)\]}]++,?$"
    r"|(?:if|for|while|with) [^:]*+:$|func |package |#include|static |const |let |fn |pub )"
)
_FRAME = re.compile(r'\s+File "')


class Narration:
    """What the lines so far look like."""

    __slots__ = ("_has_answers", "_headings", "_is_in_frame", "_lines", "_statements")

    def __init__(self) -> None:
        self._lines = self._headings = self._statements = 0
        self._has_answers = self._is_in_frame = False

    def see(self, text: str) -> None:
        """One more line as it stands in the text; a log's lines have a prefix, and are none of these."""
        self._lines += 1
        if self._lines > FIRST_LINES:
            return
        if text.startswith(("#", "*", "|")):
            self._headings += _HEADING.match(text) is not None
            self._has_answers = self._has_answers or _ANSWER.match(text) is not None
        if not self._is_in_frame and _STATEMENT.match(text, 0, 200):
            self._statements += 1
        # A traceback shows statements, too.
        self._is_in_frame = _FRAME.match(text, 0, 200) is not None or (self._is_in_frame and text[:4] == "    ")

    @property
    def is_of_nobody(self) -> bool:
        """Whether what it shows has happened to nobody."""
        if self._headings >= HEADINGS and self._has_answers:
            return True
        return self._statements > max(STATEMENTS, STATEMENTS_SHARE * min(self._lines, FIRST_LINES))
