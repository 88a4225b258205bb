"""The host aliases of the ssh configuration: the names on its `Host` lines, included files' too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from glob import glob
from pathlib import Path

from sparktop.transport.ssh.config import home

_SYSTEM = Path("/etc/ssh/ssh_config")
_MAX_DEPTH = 16
"""OpenSSH's limit of files that include files."""
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")


def aliases(config: Path | None = None) -> tuple[str, ...]:
    """The aliases in the order of the files; patterns, and files that can't be read, are left out.

    Args:
        config: read instead of the user's and the system's, as `ssh -F` does.
    """
    user_folder = home() / ".ssh"
    files = [(config, user_folder)] if config else [(user_folder / "config", user_folder), (_SYSTEM, _SYSTEM.parent)]
    return tuple(dict.fromkeys(name for file, folder in files for name in _read(file, folder, 0)))


def _read(file: Path, folder: Path, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH or not file.is_file():
        return
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        match = _LINE.match(line)
        keyword = match[1].lower() if match else ""
        if match is None or keyword not in ("host", "include"):
            continue
        try:
            words = shlex.split(match[2], comments=True)
        except ValueError:  # a quote without its end
            continue
        if keyword == "host":
            yield from (word for word in words if word and not set(word) & set("*?!"))
            continue
        for word in words:
            for path in sorted(glob(str(folder / Path(word).expanduser()))):
                yield from _read(Path(path), folder, depth + 1)
