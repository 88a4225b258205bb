"""The one sanitiser: every string from a remote machine passes it before it is stored or shown.

Textual writes raw control bytes through to the terminal (docs/facts/reliability.md section 3.4: OSC 52 got
through every widget), so what is not removed here can script the operator's terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_LINE_CHARS = 4096
"""A longer line is cut and says by how much."""

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI, also unterminated
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # any other escape
)
_CONTROLS = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 but tab, DEL, C1
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u061c\u180e\ufff9-\ufffb"  # zero-width, bidi, separators
    r"\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, tags
)


def line(raw: bytes | str, *, limit: int = MAX_LINE_CHARS) -> str:
    """One line of plain text: no escape sequence, no control but tab, at most `limit` characters."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    cut = len(text) - limit * 4
    if cut > 0:  # bound the work before the regular expressions see it
        text = text[: limit * 4]
    if not text.isascii() or not text.isprintable():
        text = _SEQUENCES.sub("", text)
        text = _CONTROLS.sub("�", text).replace("\t", "    ")
    if len(text) > limit or cut > 0:
        over = max(cut, 0) + max(len(text) - limit, 0)
        text = f"{text[:limit]} … [{over} more characters cut]"
    return text


def json_text(text: str) -> str:
    """JSON in which every control but the line's end stands as \\uXXXX: it means the same, and scripts no terminal."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], text)


def name(raw: bytes | str) -> str:
    """A short identifier (container, process, host): one line of at most 128 characters."""
    return line(raw, limit=128).replace("�", "?").strip()


def mapping(value: object) -> dict[str, Any]:
    """A JSON object that may be something else, or missing: then an empty one."""
    return value if isinstance(value, dict) else dict(value) if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """A JSON array that may be something else, or missing: then an empty one."""
    return value if isinstance(value, list | tuple) else ()
