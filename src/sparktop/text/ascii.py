"""Text in plain ASCII of the same width, for a terminal that shows nothing else. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import get_character_cell_size

_SIGNS = {
    "x": "✖╳×",
    "!": "▲",
    "*": "●◉■◆•",
    "o": "○◌◍⊘",
    "c": "◔",
    "C": "◑",
    "v": "✓✔▼↓",
    "^": "↑",
    ">": "›▸▶→",
    "<": "‹◂←⌫⏎",
    ".": "…·",
    "-": "–—▱─━╌╸╺▔",
    "|": "│┃╹╻▏▎▍▌▐",
    "#": "▰█▇▆▅▄▃▓",
    "=": "▒",
    ":": "░",
    "_": "▂▁",
    '"': "“”",
    "'": "’‘°",
    "/ ": "🔎",
    "?": "\N{REPLACEMENT CHARACTER}",
}
_BY_CHARACTER = {char: sign for sign, characters in _SIGNS.items() for char in characters}
_BRAILLE = " ..::++##"
"""By the number of dots, so that a graph keeps its shape."""


def wants_ascii(environ: Mapping[str, str]) -> bool:
    """Whether the terminal or the locale of this environment has no more than ASCII; a locale that isn't set has."""
    if environ.get("TERM") == "dumb":
        return True
    kind, usual = environ.get("LC_CTYPE", ""), environ.get("LANG", "")
    if kind == "C.UTF-8" and usual:
        kind = ""  # Python itself set it, for a C locale (PEP 538)
    name = environ.get("LC_ALL") or kind or usual
    return bool(name) and "utf8" not in name.lower().replace("-", "")


def ascii_text(text: str) -> str:
    """The text in ASCII, as wide as it was: what looks like a character stands for it, else a question mark."""
    return text if text.isascii() else "".join(map(_ascii, text))


@lru_cache(maxsize=1024)
def _ascii(char: str) -> str:
    if char.isascii():
        return char
    if sign := _BY_CHARACTER.get(char):
        return sign
    code = ord(char)
    if 0x2800 <= code <= 0x28FF:
        return _BRAILLE[(code - 0x2800).bit_count()]
    if 0x2500 <= code <= 0x257F:
        return "+"
    plain = "".join(part for part in unicodedata.normalize("NFKD", char) if part.isascii())
    width = get_character_cell_size(char)
    return plain if len(plain) == width else "?" * width
