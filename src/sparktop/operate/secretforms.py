"""How a secret may look where a program prints it: percent-encoded, base64, inside JSON, quoted for a shell. Pure."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from sparktop import sanitise

LINE_CHARS = 8
"""A line of a secret of many lines that is worth looking for by itself."""


def forms(value: str) -> tuple[str, ...]:
    """The value in all its forms, each once, longest first; none is empty."""
    found = dict.fromkeys(form for form in _forms(value) if form.strip())
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def _forms(value: str) -> Iterator[str]:
    yield value
    yield sanitise.line(value, limit=4 * len(value) + 1)
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
    yield from (quote(value, errors="replace"), quote(value, safe="", errors="replace"))
    yield quote_plus(value, errors="replace")
    yield shlex.quote(value)
    yield shlex.quote(value)[1:-1] if "'" in value else value
    yield repr(value)[1:-1]
    raw = value.encode("utf-8", "replace")
    yield from (raw.hex(), raw.hex().upper())
    yield from _base64(raw)
    lines = value.splitlines()
    if len(lines) > 1:  # a key of many lines is printed line by line
        yield from (line.strip() for line in lines if len(line.strip()) >= LINE_CHARS)


def _base64(raw: bytes) -> Iterator[str]:
    """What is the same in the base64 of any text that holds the value, for each of the three places it may begin at."""
    for shift in range(3):
        whole = (shift + len(raw)) // 3 * 3
        """Bytes of whole groups; what follows mixes with what comes after the value."""
        first = -(-shift * 4 // 3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + raw).decode("ascii").rstrip("=")
            yield text[first : max(first, whole * 4 // 3)]
            if shift == 0:
                yield text
