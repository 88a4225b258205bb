"""Words of a systemd command line, as systemd takes them apart and as they are written for it. Pure.

systemd.syntax(7) "Quoting", systemd.service(5) "Command lines": quotes of both kinds, C escapes in and outside of them,
`%` specifiers, `$$`, `${NAME}` and `$NAME` from the service's environment. What systemd fills in is kept apart from
the same signs meant as they are: LIVE and LIVE_PERCENT stand for a `$` and a `%` that mean something.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LIVE = "\ue000"
LIVE_PERCENT = "\ue001"
PREFIXES = "-@:+!|"
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
    "s": " ",
}  # fmt: skip
_NUMBERS = (("x", 2, 16), ("u", 4, 16), ("U", 8, 16))
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_HEX = re.compile(r"[0-9A-Fa-f]+")


class Unreadable(ValueError):
    """A line that can't be taken apart safely; says why."""


def split(text: str, *, fills: bool = True) -> list[str]:
    """The words of a command line, or of a list of assignments.

    Args:
        fills: whether `$` means something there: not in Environment=, and not behind the prefix ":".

    Raises:
        Unreadable: it isn't well-formed, or holds several commands.
    """
    if LIVE in text or LIVE_PERCENT in text or "\0" in text:
        raise Unreadable("it holds a character that stands for nothing")
    words: list[str] = []
    word: list[str] | None = None
    quote, at = "", 0
    while at < len(text):
        sign = text[at]
        if not quote and sign in " \t\n\r":
            if word is not None:
                words.append("".join(word))
                word = None
            at += 1
            continue
        if word is None and fills and re.match(r";(?:\s|\Z)", text[at:]):
            raise Unreadable("it holds several commands")
        word = [] if word is None else word
        if sign == "\\":
            if fills and not word and not quote and re.match(r"\\;(?:\s|\Z)", text[at:]):
                said, at = ";", at + 2
            else:
                said, at = _escape(text, at)
            word.append(said)
        elif quote and sign == quote:
            quote, at = "", at + 1
        elif not quote and sign in "'\"":
            quote, at = sign, at + 1
        elif sign in "%$":
            doubled = text.startswith(sign * 2, at)
            live = {"%": LIVE_PERCENT, "$": LIVE if fills else "$"}[sign]
            word.append(sign if doubled and (sign == "%" or fills) else live)
            at += 2 if doubled and (sign == "%" or fills) else 1
        else:
            word.append(sign)
            at += 1
    if quote:
        raise Unreadable("a quote in it is never closed")
    return [*words, "".join(word)] if word is not None else words


def joined(words: Sequence[str], *, fills: bool = True) -> str:
    """The words as a line that systemd takes apart into the same ones."""
    return " ".join(quoted(word, fills=fills) for word in words)


def quoted(word: str, *, fills: bool = True) -> str:
    """One word; what is LIVE in it stays so.

    Raises:
        Unreadable: it holds what no unit file can.
    """
    if "\0" in word or any("\ud800" <= sign <= "\udfff" for sign in word):
        raise Unreadable("it holds a character that no unit file can")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = text.replace("$", "$$") if fills else text
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda sign: _written(sign[0]), text)
    text = text.replace(LIVE, "$").replace(LIVE_PERCENT, "%")
    return text if _PLAIN.fullmatch(word) else f'"{text}"'


def prefix(text: str) -> tuple[str, str]:
    """(what stands before the program: "-", "@" ..., the rest)."""
    rest = text.lstrip(PREFIXES)
    return text[: len(text) - len(rest)], rest


def is_open(word: str) -> bool:
    """Whether systemd makes any number of words of it: `$NAME` alone."""
    return bool(re.fullmatch(rf"{LIVE}[A-Za-z_][A-Za-z0-9_]*", word))


def shown(word: str) -> str:
    """As a reader knows it."""
    return word.replace(LIVE, "$").replace(LIVE_PERCENT, "%")


def _escape(text: str, at: int) -> tuple[str, int]:
    following = text[at + 1 : at + 2]
    if following in _ESCAPES and following:
        return _ESCAPES[following], at + 2
    for letter, digits, base in _NUMBERS:
        number = text[at + 2 : at + 2 + digits]
        if following == letter and len(number) == digits and _HEX.fullmatch(number):
            return _character(int(number, base), is_byte=letter == "x"), at + 2 + digits
    octal = text[at + 1 : at + 4]
    if re.fullmatch(r"[0-3][0-7]{2}", octal):
        return _character(int(octal, 8), is_byte=True), at + 4
    raise Unreadable(f"systemd doesn't know the escape {text[at : at + 4]!r} in it")


def _character(number: int, *, is_byte: bool) -> str:
    """A byte above 127 is part of a character at most."""
    if not 0 < number < 0x110000 or 0xD800 <= number < 0xE000 or (is_byte and number > 127):
        raise Unreadable("an escape in it stands for no character")
    return chr(number)


def _written(sign: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return known.get(sign) or (f"\\x{ord(sign):02x}" if ord(sign) < 0x80 else f"\\u{ord(sign):04x}")
