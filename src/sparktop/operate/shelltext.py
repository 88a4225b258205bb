"""Shell text as simple commands whose words know their places, so that one of them can be changed and no other. Pure.

No shell is run. What only a shell could tell (a variable's value, a command's output) is a word without a text; what
can't be kept apart safely (a here-document, a quote that is never closed) is no text to edit at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_OPERATORS = ";&|()\n"
_PLAIN = re.compile(r"[^\s;&|()<>\\'\"$`]+")
_NAME = re.compile(r"\w+|[@*#?!$-]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")


class Unclear(ValueError):
    """A text that can't be edited safely; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """One word as it stands in the text."""

    start: int
    end: int
    raw: str
    text: str | None
    """What the program gets; None where only the shell knows."""

    @property
    def is_open(self) -> bool:
        """Whether it may become several words, or none: unquoted variables, "$@", arrays."""
        if self.text is not None:
            return False
        return not (self.raw.startswith('"') and self.raw.endswith('"')) or bool(
            re.search(r"\$[@*]|\[[@*]\]", self.raw)
        )

    @property
    def assigned(self) -> str:
        """The variable it assigns to, where it is an assignment."""
        found = _ASSIGNMENT.match(self.raw)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """New words in the place of one (none: it is taken out), or after it."""

    word: ShellWord
    words: tuple[str, ...]
    is_after: bool = False
    raw: str | None = None
    """Shell text to put there as it is, instead of words."""


def commands(text: str) -> list[list[ShellWord]]:
    """The simple commands, redirections left out.

    Raises:
        Unclear: it holds a here-document, or a quote or substitution that is never closed.
    """
    return _Reader(text).commands()


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits; everything else is as it was, to the last space."""
    pieces: list[tuple[int, int, int, str]] = []
    for number, edit in enumerate(edits):
        new = edit.raw if edit.raw is not None else shlex.join(edit.words)
        if edit.is_after:
            pieces.append((edit.word.end, edit.word.end, number, f" {new}" if new else ""))
        elif new:
            pieces.append((edit.word.start, edit.word.end, number, new))
        else:
            pieces.append((_gap_before(text, edit.word.start), edit.word.end, number, ""))
    for start, end, _, new in sorted(pieces, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _gap_before(text: str, start: int) -> int:
    """Where the white space before a word begins, a continued line's end included."""
    while start > 0:
        if text[start - 1] in " \t":
            start -= 1
        elif text[start - 2 : start] == "\\\n":
            start -= 2
        else:
            break
    return start


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def commands(self) -> list[list[ShellWord]]:
        out: list[list[ShellWord]] = []
        words: list[ShellWord] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._starts("\\\n"):
                self._at += 2
            elif char in " \t":
                self._at += 1
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._starts("&>"):
                self._redirection()
            elif char in _OPERATORS:
                self._at += 1
                out.append(words)
                words = []
            elif char in "<>":
                self._redirection()
            else:
                word = self._word()
                is_descriptor = word.raw.isdecimal() and self._text[self._at : self._at + 1] in ("<", ">")
                if not is_descriptor:
                    words.append(word)
        return [one for one in (*out, words) if one]

    def _starts(self, mark: str) -> bool:
        return self._text.startswith(mark, self._at)

    def _redirection(self) -> None:
        if self._starts("<<") and not self._starts("<<<"):
            raise Unclear("it holds a here-document")
        if self._starts("<(") or self._starts(">("):
            raise Unclear("it holds a process substitution")
        found = re.compile(r"&>>?|<<<|<>|>>|>\||[<>]&?").match(self._text, self._at)
        self._at = found.end() if found else self._at + 1
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] not in _OPERATORS:
            self._word()

    def _word(self) -> ShellWord:
        start = self._at
        text: list[str] = []
        is_known = True
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t<>" or char in _OPERATORS:
                break
            if char == "\\":
                if not self._starts("\\\n"):
                    text.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif char == "'":
                end = self._find("'", self._at + 1)
                text.append(self._text[self._at + 1 : end])
                self._at = end + 1
            elif char == '"':
                is_known &= self._double_quoted(text)
            elif char in "$`":
                is_known &= self._expansion(text)
            else:
                run = _PLAIN.match(self._text, self._at)
                end = run.end() if run else self._at + 1
                text.append(self._text[self._at : end])
                self._at = end
        self._at = min(self._at, len(self._text))
        return ShellWord(
            start=start, end=self._at, raw=self._text[start : self._at], text="".join(text) if is_known else None
        )

    def _double_quoted(self, text: list[str]) -> bool:
        is_known = True
        self._at += 1
        while not self._starts('"'):
            if self._at >= len(self._text):
                raise Unclear("a quote is opened in it and never closed")
            char = self._text[self._at]
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                text.append(self._text[self._at + 1].replace("\n", ""))
                self._at += 2
            elif char in "$`":
                is_known &= self._expansion(text)
            else:
                text.append(char)
                self._at += 1
        self._at += 1
        return is_known

    def _expansion(self, text: list[str]) -> bool:
        """Past what a `$` or a backquote begins; True where it stands for itself."""
        if self._starts("`"):
            self._at = self._find("`", self._at + 1) + 1
        elif self._starts("$'"):
            self._at = self._closing_ansi(self._at + 2)
        elif self._starts("$("):
            self._at = self._closing(self._at + 2, "(", ")")
        elif self._starts("${"):
            self._at = self._closing(self._at + 2, "{", "}")
        elif name := _NAME.match(self._text, self._at + 1):
            self._at = name.end()
        else:
            text.append("$")
            self._at += 1
            return True
        return False

    def _find(self, mark: str, at: int) -> int:
        end = self._text.find(mark, at)
        if end < 0:
            raise Unclear("a quote is opened in it and never closed")
        return end

    def _closing_ansi(self, at: int) -> int:
        found = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL).match(self._text, at)
        if found is None:
            raise Unclear("a quote is opened in it and never closed")
        return found.end()

    def _closing(self, at: int, left: str, right: str) -> int:
        depth, quote = 1, ""
        while at < len(self._text):
            char = self._text[at]
            if char == "\\" and quote != "'":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in (left, right):
                depth += 1 if char == left else -1
                if depth == 0:
                    return at + 1
            at += 1
        raise Unclear("a substitution is opened in it and never closed")


def is_shell(program: str) -> bool:
    """Whether a program runs the string after its -c."""
    return program.rpartition("/")[2] in ("bash", "sh", "dash", "ash", "zsh", "su", "runuser")


def script_at(words: Sequence[str | None]) -> int | None:
    """The index of the string that a shell among these words runs (`bash -lc STRING`); None where there is none."""
    for index, word in enumerate(words[:-1]):
        if word and re.fullmatch(r"-[a-zA-Z]*c", word) and any(is_shell(one or "") for one in words[:index]):
            return index + 1
    return None
