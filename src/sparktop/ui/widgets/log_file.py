"""A log saved to a file of the operator's own, secrets masked, readable by nobody else."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from sparktop.config import state_home
from sparktop.observe.lines import Entry

_NAMES = r"(?:api[-_]?key|token|secret|passw(?:or)?d|passphrase)"
_VALUE = r"(?:\"[^\"]{3,}\"|'[^']{3,}'|[^\s\"',;]{6,})"
_SECRETS = re.compile(
    r"(?P<url>://[^\s:/@]*:)[^\s/@]+(?=@)"
    rf"|(?P<header>\bauthorization[\"']?\s*[=:]\s*[\"']?(?:basic|bearer|token)?\s*|\bbearer\s+){_VALUE}"
    rf"|(?P<named>{_NAMES}[\"']?\s*[=:]\s*|--[\w-]*{_NAMES}\s+){_VALUE}"
    r"|\bhf_[A-Za-z0-9]{20,}|\bnvapi-[\w-]{16,}|\bsk-[\w-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.IGNORECASE,
)
_HINTS = (
    "bearer",
    "authorization",
    "://",
    "key",
    "token",
    "secret",
    "passw",
    "hf_",
    "nvapi-",
    "sk-",
    "akia",
    "eyj",
    "gh",
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def mask(text: str) -> str:
    """The text with what looks like a secret replaced (facts/reliability.md section 3.5)."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    return _SECRETS.sub(lambda found: f"{found['url'] or found['header'] or found['named'] or ''}***", text)


def save(entries: Iterable[Entry], *, title: str, wall_s: float, directory: Path | None = None) -> Path:
    """Write the lines to a new file of mode 0600 in a directory of mode 0700; the path.

    Raises:
        OSError: the directory or the file can't be made or written.
    """
    directory = directory or state_home() / "logs"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = _UNSAFE.sub("-", title).strip("-.")[:80] or "log"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_s))
    for attempt in range(100):
        path = directory / f"{name}-{stamp}{f'-{attempt}' if attempt else ''}.log"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with open(handle, "w", encoding="utf-8", errors="replace") as out:
            out.writelines(
                f"{'' if line_wall_s is None else _iso(line_wall_s)}{mask(text)}\n" for text, line_wall_s, *_ in entries
            )
        return path
    raise FileExistsError(f"{directory} already has a hundred logs of this second")


def _iso(wall_s: float | None) -> str:
    if wall_s is None:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z ", time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # a node's clock can say anything
        return ""
