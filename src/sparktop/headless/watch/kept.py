"""What a watcher keeps for the next one: when it last ran, what it announced, and which messages are on their way."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sparktop import files, sanitise
from sparktop.bounds import seconds_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.incidents import Incident
from sparktop.documents.data import fields, plain
from sparktop.errors import UsageError
from sparktop.headless.watch.message import Message
from sparktop.model.finding import Finding, FindingKey

VERSION = 2
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """All of it; times on the operator's wall clock."""

    alive_wall_s: float = 0.0
    """When a watcher last ran; 0: never."""
    heartbeat_wall_s: float = 0.0
    incidents: tuple[Incident, ...] = ()
    queues: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """Target -> what it hasn't got yet, oldest first."""
    held: tuple[Message, ...] = ()
    """Held back by quiet hours or by the limit an hour."""
    sent_wall_s: tuple[float, ...] = ()
    """When messages were sent, of the last hour."""


@contextmanager
def only_watcher(folder: Path) -> Iterator[None]:
    """Hold the lock of the one watcher that this user runs.

    Raises:
        UsageError: another one runs.
    """
    handle = files.opened(files.private_folder(folder) / "watch.lock", os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "name all hosts to one watcher; systemctl --user status sparktop-watch"
            raise UsageError("another `sparktop watch` of yours runs here: each message would be sent twice",
                             hint=hint) from None  # fmt: skip
        yield
    finally:
        os.close(handle)


def write(file: Path, kept: Kept) -> None:
    """Replace the file.

    Raises:
        OSError: it can't be written.
    """
    incidents = [_incident(incident) for incident in kept.incidents]
    data = {"version": VERSION, **plain(replace(kept, incidents=())), "incidents": incidents}
    files.write_private(file, json.dumps(data))


def read(file: Path) -> Kept:
    """What the last watcher kept; of what can't be read nothing."""
    data = files.read_json(file)

    def queue(rows: object) -> tuple[Message, ...]:
        return tuple(_each(sanitise.items(rows), _read_message))

    def moment(name: str) -> float:
        return next(_each([data.get(name)], seconds_of), 0.0)

    return Kept(
        alive_wall_s=moment("alive_wall_s"),
        heartbeat_wall_s=moment("heartbeat_wall_s"),
        incidents=tuple(_each(sanitise.items(data.get("incidents")), _read_incident)),
        queues={name: queue(rows) for name, rows in sanitise.mapping(data.get("queues")).items()},
        held=queue(data.get("held")),
        sent_wall_s=tuple(_each(sanitise.items(data.get("sent_wall_s")), seconds_of)),
    )


def _each(rows: Iterable[Any], read_one: Callable[[Any], _T]) -> Iterator[_T]:
    """What can be read of these rows."""
    for row in rows:
        with suppress(KeyError, TypeError, ValueError, msgspec.ValidationError):
            yield read_one(row)


def _read_message(row: Any) -> Message:
    message = msgspec.convert(row, Message)
    seconds_of(message.wall_s)
    return message


def _incident(incident: Incident) -> dict[str, Any]:
    """What the messages that may still follow want of it."""
    root = incident.announced or incident.root
    about = fields(root, "rule", "subject", "title", "brief", "nodes", "since_wall_s")
    return about | fields(incident, "id", "severity", "keys")


def _read_incident(row: Mapping[str, Any]) -> Incident:
    root = msgspec.convert(row, Finding)
    seconds_of(root.since_wall_s or 0.0)
    keys = msgspec.convert(row["keys"], frozenset[FindingKey])
    return Incident(id=str(row["id"]), root=root, keys=keys, severity=root.severity, announced=root)
