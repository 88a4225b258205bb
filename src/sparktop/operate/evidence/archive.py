"""The archive of evidence: items redacted together, then written as a .tar.gz that only the operator can read."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import SparktopError
from sparktop.files import private_folder
from sparktop.masking import MASK
from sparktop.operate.secrets.redaction import Redactor

LINE_CHARS = 16 * 1024
"""A longer line is cut, after redaction: a cut secret could no longer be recognised."""
_NAME = re.compile(r"[^A-Za-z0-9._@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One file of an archive: a text, JSON-ready data, or the reason why there is none."""

    name: str
    """ "spark1/kernel.log"; made of `file_name`s."""
    text: str | None = field(default=None, repr=False)
    data: Any = field(default=None, repr=False)
    problem: str = ""
    """Why it is missing, or incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenArchive:
    """The archive as written, and what is missing from it."""

    path: Path
    problems: tuple[str, ...]


def file_name(text: str) -> str:
    """A node's or container's name as one part of a path, safe against path traversal."""
    plain = _NAME.sub("_", text)[:80].lstrip(".-")
    return plain or "unnamed"


def plain_data(value: Any) -> Any:
    """Dataclasses, mappings and enums as JSON-ready data."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain_data(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain_data(key)): plain_data(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def write(
    items: Sequence[Item], *, folder: Path, stem: str, secrets: Sequence[str], preface: Sequence[str]
) -> WrittenArchive:
    """Redact the items and write them to FOLDER/STEM.tar.gz (0600), with a README.txt and a redaction-report.txt.

    Raises:
        SparktopError: the folder can't be written to.
    """
    redactor = Redactor(secrets)
    preface_lines = [_masked_line(redactor, line) for line in preface]
    reasons = [_masked_line(redactor, f"{item.name}: {item.problem}") for item in items if item.problem]
    left_out: list[str] = []
    bodies = dict(_redacted(items, redactor, left_out))
    problems = [redactor.finish_text("README.txt", text) for text in (*reasons, *left_out)]
    readme = _readme([redactor.finish_text("README.txt", line) for line in preface_lines], bodies, problems)
    report = "\n".join(["How many values were removed, where, and by which rule.", "", *redactor.report(), ""])
    bodies = {"README.txt": readme, "redaction-report.txt": report, **bodies}
    return WrittenArchive(path=_write(bodies, folder, stem), problems=tuple(problems))


# --- redaction -------------------------------------------------------------------------------------------------------


def _redacted(items: Sequence[Item], redactor: Redactor, problems: list[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of each item that could be redacted; for the others a problem is added."""
    learnt: list[tuple[Item, Any]] = []
    for item in items:
        if item.text is None and item.data is None:
            continue
        try:
            if item.text is not None:
                clean = "\n".join(sanitise.line(line, limit=4 * len(line) + 1) for line in item.text.split("\n"))
                learnt.append((item, redactor.learn_text(item.name, clean)))
            else:
                learnt.append((item, redactor.learn_data(item.name, plain_data(item.data))))
        except Exception as error:  # noqa: BLE001 - fail closed: what can't be redacted is not written
            problems.append(_left_out(item, error))
    for item, value in learnt:
        try:
            if isinstance(value, str) and item.text is not None:
                body = redactor.finish_text(item.name, value)
                body = "\n".join(_shortened(line) for line in body.split("\n"))
            else:
                data = redactor.finish_data(item.name, value)
                body = sanitise.json_text(json.dumps(data, indent=1, ensure_ascii=False)) + "\n"
            name = redactor.finish_text(item.name, item.name).replace(MASK, "masked")
            is_clean = not redactor.holds(body)
        except Exception as error:  # noqa: BLE001 - as above
            problems.append(_left_out(item, error))
            continue
        if is_clean:
            yield name, body
        else:
            problems.append(f"{item.name}: left out, because a secret still stood in it after redaction")


def _left_out(item: Item, error: Exception) -> str:
    return f"{item.name}: left out, because it could not be redacted ({type(error).__name__})"


def _shortened(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} … [{len(line) - LINE_CHARS} more characters cut]"


def _masked_line(redactor: Redactor, text: str) -> str:
    """A reason with secrets learnt and masked: it quotes what a remote machine said."""
    return redactor.learn_text("README.txt", sanitise.line(text, limit=400))


# --- writing ---------------------------------------------------------------------------------------------------------


_CAVEAT = """
Secrets were removed by name, by pattern and by value (redaction-report.txt says how many, and where). Host names,
addresses, user names, paths, and prompts that an engine logs, are no secrets to these rules: look before you hand it
on.
"""


def _readme(preface: Sequence[str], bodies: Mapping[str, str], problems: Sequence[str]) -> str:
    lines = [*preface, "", "What is in it:"]
    lines += [f"  {name}  {len(body.encode('utf-8', 'replace')):,} bytes" for name, body in sorted(bodies.items())]
    lines += ["", "What could not be had, and why:"]
    lines += [f"  {problem}" for problem in problems] or ["  nothing is missing"]
    return "\n".join(lines) + "\n" + _CAVEAT


def _write(bodies: Mapping[str, str], folder: Path, stem: str) -> Path:
    temporary = folder / f".{stem}.{os.getpid()}.part"
    now_s = int(time.time())
    try:
        private_folder(folder)
        target = _unused_path(folder / f"{stem}.tar.gz")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as raw:
                _pack(bodies, target.name.removesuffix(".tar.gz"), raw, now_s)
                raw.flush()
                os.fsync(raw.fileno())
            os.rename(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SparktopError(
            f"can't write the evidence to {folder}: {error.strerror or error}",
            hint="free disk space there, or set XDG_STATE_HOME to another folder",
        ) from error
    return target


def _pack(bodies: Mapping[str, str], stem: str, raw: IO[bytes], now_s: int) -> None:
    with (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=now_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, body in bodies.items():
            data = body.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), now_s, 0o600
            tar.addfile(entry, io.BytesIO(data))


def _unused_path(target: Path) -> Path:
    """A path that doesn't exist yet: an archive never replaces another."""
    count = 1
    stem = target.name.removesuffix(".tar.gz")
    while target.exists():
        count += 1
        target = target.with_name(f"{stem}-{count}.tar.gz")
    return target
