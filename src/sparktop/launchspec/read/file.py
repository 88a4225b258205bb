"""Reads a launch configuration on this machine, with the files beside it that it takes values from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from sparktop import files, sanitise
from sparktop.launchspec.read.commands import Beside
from sparktop.launchspec.read.configuration import MAX_CHARS, Reading, read
from sparktop.masking import is_secret


def beside(folder: Path) -> Beside:
    """The texts of the files of a folder."""

    def text(path: str) -> str | None:
        try:
            return files.read(folder / path, MAX_CHARS).decode("utf-8", "replace")
        except OSError:
            return None

    return text


_ELSEWHERE = frozenset({"HOME", "PWD", "OLDPWD", "PATH", "USER", "LOGNAME", "SHELL", "HOSTNAME", "UID", "_"})
"""Variables that are others on the Spark."""


def read_file(path: Path, text: str, environment: Mapping[str, str] = MappingProxyType({})) -> Reading:
    """The engines that the file with this text starts.

    Args:
        environment: of who starts it; secrets, and what is another on the Spark, aren't taken from there.

    Raises:
        ConfigError: the text is malformed.
    """
    own = {
        name: value
        for name, value in environment.items()
        if name not in _ELSEWHERE and value.isprintable() and not is_secret(name, value) and name in text
    }
    return read(text, sanitise.line(str(path)), beside(path.parent), own)
