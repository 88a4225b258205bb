"""A path as a compose file or a script writes it, from its own folder: `./models`, `$(dirname "$0")/models`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparktop.cmdline.shell import Dialect, ShellWord, tokens
from sparktop.cmdline.source import Word

_START = re.compile(r"\.\.?(?=/|\Z)|\$PWD(?=/|\Z)|\$\{PWD\}|`pwd`")


def from_folder(text: str) -> str | None:
    """The path from the document's folder ("", "models", "../models"); None where it is none: absolute, or unknown."""
    match = _START.match(text)
    if match is not None:
        rest = text if match[0].startswith(".") else text[match.end() :]
    elif text.startswith("$("):
        word = next(tokens(text, Dialect.DRAFT))
        end = word.pieces[0].end if isinstance(word, ShellWord) else 0
        inside = text[2 : end - 1]
        is_folder = inside.strip() == "pwd" or ("dirname" in inside and re.search(r"\$0|BASH_SOURCE", inside))
        if not is_folder:
            return None
        rest = "../" * len(re.findall(r"/\.\.(?![\w.])", inside)) + text[end:].lstrip("/")
    else:
        return None
    rest = rest.strip("/").removeprefix("./")
    return None if re.search(r"[$`*?]", rest) else "" if rest == "." else rest


def with_folders(text: str, values: Mapping[str, Sequence[Word]]) -> str:
    """A `$(cd "$DIR/.." && pwd)` with the folder in it written out, where DIR is known as one itself."""

    def folder(match: re.Match[str]) -> str:
        words = values.get(match[1]) or ()
        known = words[0].text if len(words) == 1 else ""
        return known if known.startswith("$(") else match[0]

    return re.sub(r"\$\{?([A-Za-z_]\w*)\}?", folder, text) if text.startswith("$(cd ") else text
