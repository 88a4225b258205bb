"""Unit files as systemd reads them: their settings, the words of a command line, and words quoted for a file. Pure.

systemd.syntax(7) "Quoting", systemd.service(5) "Command lines": both kinds of quotes, C escapes inside and outside
of them, `%` specifiers, `$$`, `${NAME}` and `$NAME` from the service's environment. Signs that systemd expands are
kept apart from the same signs taken literally: LIVE and LIVE_PERCENT stand for a `$` and a `%` that are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from sparktop.cmdline import source
from sparktop.cmdline.shell import Variables
from sparktop.cmdline.source import Word
from sparktop.dataclass import dataclass

LIVE = "\ue000"
LIVE_PERCENT = "\ue001"
PREFIXES = "-@:+!|"
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
    "s": " ",
}  # fmt: skip
_NUMBERS = (("x", 2, 16), ("u", 4, 16), ("U", 8, 16))
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SECTION = re.compile(r"\[([^\]]+)\]")
_VARIABLE = re.compile(rf"{LIVE}\{{([A-Za-z_][A-Za-z0-9_]*)\}}")
_HEX = re.compile(r"[0-9A-Fa-f]+")


class Unreadable(ValueError):
    """A line that can't be split safely; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One `Name=value` of a unit file, continued lines joined by a blank."""

    file: str
    section: str
    name: Word
    value: Word


def settings(text: str, files: Collection[str] = ()) -> Iterator[Setting]:
    """The settings of a unit file, or of the output of `systemctl cat`, where each of `files` begins with its name."""
    whole = Word(text, range(len(text)))
    file, section, offset = "", "", 0
    pieces: list[Word] = []
    for row in text.splitlines(keepends=True):
        start, offset = offset, offset + len(row)
        line = row.rstrip("\r\n")
        stripped = line.strip()
        if line.startswith("# ") and line[2:].strip() in files and not pieces:
            file, section = line[2:].strip(), ""
        if stripped.startswith(("#", ";")) or (not stripped and not pieces):
            continue
        is_continued = line.endswith("\\")
        pieces.append(whole.part(start, start + len(line) - is_continued))
        if is_continued and offset < len(text):
            continue
        statement, pieces = _stripped(source.joined(pieces, between=" ")), []
        name, equals, _ = statement.text.partition("=")
        if match := _SECTION.fullmatch(statement.text):
            section = match[1]
        elif equals:
            yield Setting(
                file, section, _stripped(statement.part(0, len(name))), _stripped(statement.part(len(name) + 1))
            )


def _stripped(word: Word) -> Word:
    return word.part(len(word.text) - len(word.text.lstrip()), len(word.text.rstrip()))


def split(text: str, *, fills: bool = True) -> list[str]:
    """The words of a command line, or of a list of assignments.

    Args:
        fills: whether `$` is expanded there: not in Environment=, and not after the prefix ":".

    Raises:
        Unreadable: it isn't well-formed, or has several commands.
    """
    return [word.text for word in _split(Word(text), fills=fills, is_draft=False)]


def draft_words(line: Word, variables: Variables, *, fills: bool = True) -> list[Word]:
    """The words of a line that a lint reads, with known variables filled in; what systemd would refuse is kept."""
    words: list[Word] = []
    for word in _split(line, fills=fills, is_draft=True):
        if is_open(word.text) and (values := variables.words(word.text[1:])):
            words += [values[0].part(*match.span()) for match in re.finditer(r"\S+", values[0].text)]
            continue
        pieces, done = [], 0
        for match in _VARIABLE.finditer(word.text):
            if values := variables.words(match[1]):
                pieces += [word.part(done, match.start()), values[0]]
                done = match.end()
        whole = source.joined([*pieces, word.part(done)])
        words.append(Word(shown(whole.text), whole.at))
    return words


def _split(line: Word, *, fills: bool, is_draft: bool) -> Iterator[Word]:
    """The words, each character at its place; an escape at that of its backslash."""
    text = line.text
    if not is_draft and (LIVE in text or LIVE_PERCENT in text or "\0" in text):
        raise Unreadable("it holds a character that stands for nothing")
    word: list[str] = []
    at: list[int] = []
    is_begun, quote, position = False, "", 0
    while position < len(text):
        sign, length = text[position], 1
        is_separator = re.compile(r"\\?;(?:\s|\Z)").match(text, position) if fills and not is_begun else None
        if not quote and sign in " \t\n\r":
            if is_begun:
                yield Word("".join(word), at)
                word, at, is_begun = [], [], False
            position += 1
            continue
        if sign == ";" and is_separator and not is_draft:
            raise Unreadable("it holds several commands")
        is_begun = True
        if sign == quote or (not quote and sign in "'\""):
            quote = "" if quote else sign
            position += 1
            continue
        if sign == "\\" and is_separator:
            sign, length = ";", 2
        elif sign == "\\":
            try:
                sign, length = _escape(text, position)
            except Unreadable:
                if not is_draft:
                    raise
                sign, length = text[position + 1 : position + 2] or "\\", 2
        elif sign == "%" or (sign == "$" and fills):
            is_doubled = text.startswith(sign * 2, position)
            sign, length = (sign, 2) if is_doubled else (LIVE if sign == "$" else LIVE_PERCENT, 1)
        word.append(sign)
        at += line.at[position : position + 1]
        position += length
    if quote and not is_draft:
        raise Unreadable("a quote in it is never closed")
    if is_begun:
        yield Word("".join(word), at)


def joined(words: Sequence[str], *, fills: bool = True) -> str:
    """The words as a line that systemd splits into the same words."""
    return " ".join(quoted(word, fills=fills) for word in words)


def quoted(word: str, *, fills: bool = True) -> str:
    """One word, quoted; LIVE signs in it stay expanded.

    Raises:
        Unreadable: it has a character that no unit file can have.
    """
    if "\0" in word or any("\ud800" <= sign <= "\udfff" for sign in word):
        raise Unreadable("it holds a character that no unit file can")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = text.replace("$", "$$") if fills else text
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda sign: _escape_of(sign[0]), text)
    text = text.replace(LIVE, "$").replace(LIVE_PERCENT, "%")
    return text if _PLAIN.fullmatch(word) else f'"{text}"'


def prefix(text: str) -> tuple[str, str]:
    """(the signs before the program: "-", "@" ..., the rest)."""
    rest = text.lstrip(PREFIXES)
    return text[: len(text) - len(rest)], rest


def is_open(word: str) -> bool:
    """Whether systemd may make any number of words of it: `$NAME` alone."""
    return bool(re.fullmatch(rf"{LIVE}[A-Za-z_][A-Za-z0-9_]*", word))


def shown(word: str) -> str:
    """The word as shown to a reader."""
    return word.replace(LIVE, "$").replace(LIVE_PERCENT, "%")


def _escape(text: str, at: int) -> tuple[str, int]:
    """(the character of the escape here, its length)."""
    following = text[at + 1 : at + 2]
    if following in _ESCAPES and following:
        return _ESCAPES[following], 2
    for letter, digits, base in _NUMBERS:
        number = text[at + 2 : at + 2 + digits]
        if following == letter and len(number) == digits and _HEX.fullmatch(number):
            return _character(int(number, base), is_byte=letter == "x"), 2 + digits
    octal = text[at + 1 : at + 4]
    if re.fullmatch(r"[0-3][0-7]{2}", octal):
        return _character(int(octal, 8), is_byte=True), 4
    raise Unreadable(f"systemd doesn't know the escape {text[at : at + 4]!r} in it")


def _character(number: int, *, is_byte: bool) -> str:
    """The character of an escape; a byte above 127 is only a part of one, and refused."""
    if not 0 < number < 0x110000 or 0xD800 <= number < 0xE000 or (is_byte and number > 127):
        raise Unreadable("an escape in it stands for no character")
    return chr(number)


def _escape_of(sign: str) -> str:
    names = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return names.get(sign) or (f"\\x{ord(sign):02x}" if ord(sign) < 0x80 else f"\\u{ord(sign):04x}")
