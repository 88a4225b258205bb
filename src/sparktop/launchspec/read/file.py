"""Reads a launch configuration on this machine, with the files beside it that it takes values from."""

from __future__ import annotations

from pathlib import Path

from sparktop import files, sanitise
from sparktop.launchspec.read.commands import Beside
from sparktop.launchspec.read.configuration import MAX_CHARS, Reading, read


def beside(folder: Path) -> Beside:
    """The texts of the files of a folder."""

    def text(path: str) -> str | None:
        try:
            return files.read(folder / path, MAX_CHARS).decode("utf-8", "replace")
        except OSError:
            return None

    return text


def read_file(path: Path, text: str) -> Reading:
    """The engines that the file with this text starts.

    Raises:
        ConfigError: the text is malformed.
    """
    return read(text, sanitise.line(str(path)), beside(path.parent))
