"""What a watcher keeps for the next one: when it last ran, what it announced, and which messages are on their way."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.bounds import seconds_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.incidents import Incident
from sparktop.errors import UsageError
from sparktop.headless.watch.message import Message, read_message
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

VERSION = 1
_BROKEN = (KeyError, TypeError, ValueError)


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
    by_id = {one.id: asdict(one) for queue in (*kept.queues.values(), kept.held) for one in queue}
    data = {
        "version": VERSION,
        "alive_wall_s": kept.alive_wall_s,
        "heartbeat_wall_s": kept.heartbeat_wall_s,
        "incidents": [_incident(incident) for incident in kept.incidents],
        "messages": by_id,
        "queues": {name: [one.id for one in queue] for name, queue in kept.queues.items()},
        "held": [one.id for one in kept.held],
        "sent_wall_s": list(kept.sent_wall_s),
    }
    files.write_private(file, json.dumps(data))


def read(file: Path) -> Kept:
    """What the last watcher kept; of what can't be read nothing."""
    data = files.read_json(file)
    by_id: dict[str, Message] = {}
    for row in sanitise.mapping(data.get("messages")).values():
        with suppress(*_BROKEN):
            one = read_message(row)
            by_id[one.id] = one

    def queue(ids: object) -> tuple[Message, ...]:
        return tuple(by_id[one] for one in map(str, sanitise.items(ids)) if one in by_id)

    incidents = []
    for row in sanitise.items(data.get("incidents")):
        with suppress(*_BROKEN):
            incidents.append(_read_incident(row))
    return Kept(
        alive_wall_s=_seconds(data.get("alive_wall_s")),
        heartbeat_wall_s=_seconds(data.get("heartbeat_wall_s")),
        incidents=tuple(incidents),
        queues={name: queue(ids) for name, ids in sanitise.mapping(data.get("queues")).items()},
        held=queue(data.get("held")),
        sent_wall_s=tuple(map(_seconds, sanitise.items(data.get("sent_wall_s")))),
    )


def _seconds(value: object) -> float:
    try:
        return seconds_of(value)
    except _BROKEN:
        return 0.0


_TEXTS = ("rule", "subject", "title", "brief")
"""Of a finding, for the messages that may still follow."""


def _incident(incident: Incident) -> dict[str, Any]:
    root = incident.announced or incident.root
    texts = {name: getattr(root, name) for name in _TEXTS}
    return texts | {
        "id": incident.id,
        "severity": incident.severity,
        "keys": sorted(incident.keys),
        "nodes": root.nodes,
        "since_wall_s": root.since_wall_s,
    }


def _read_incident(row: Mapping[str, Any]) -> Incident:
    severity, nodes = Severity(row["severity"]), tuple(map(str, row["nodes"]))
    since_wall_s = None if row["since_wall_s"] is None else seconds_of(row["since_wall_s"])
    texts = {name: str(row[name]) for name in _TEXTS}
    root = Finding(severity=severity, nodes=nodes, since_wall_s=since_wall_s, **texts)  # type: ignore[arg-type]
    keys = frozenset((str(rule), tuple(map(str, names)), str(subject)) for rule, names, subject in row["keys"])
    return Incident(id=str(row["id"]), root=root, keys=keys, severity=severity, announced=root)
