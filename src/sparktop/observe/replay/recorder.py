"""What was received of a node as entries of a tape, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sparktop.masking import mask_text
from sparktop.model.telemetry import Collector, KernelLines
from sparktop.observe.received import KINDS, Followed, Logged, Probed, Received, Scraped
from sparktop.record.tape import Entry
from sparktop.record.writer import TapeWriter
from sparktop.transport.lean import import_lean

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = import_lean("msgspec")

_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in KINDS}
_BATCHES_KEPT = 3
"""Of lines of a log: what a later file of the same recording begins with."""


class Recorder:
    """Keeps what is received of one node on its tape; implements `observe.intake.Tape`."""

    def __init__(self, writer: TapeWriter) -> None:
        self.writer = writer

    def keep(self, received: Received, at_s: float) -> None:
        """See Tape."""
        kind = type(received).__name__.lower()
        name, most = _kept(received)
        self.writer.put(at_s, kind, _packed(received), kept=f"{kind} {name}", most=most)

    @property
    def problem(self) -> str:
        """See Tape."""
        return self.writer.problem

    def close(self) -> None:
        """See Tape."""
        self.writer.close()


def unpacked(entry: Entry) -> Received | None:
    """What was received; None for a kind of a later version, or for what isn't as it should be."""
    kind = _KINDS.get(entry.kind)
    if kind is Probed:
        return Probed.of(entry.payload)
    try:
        received: Received | None = msgspec.convert(json.loads(entry.payload), type=kind) if kind else None
    except (ValueError, RecursionError):  # damaged, or not by us
        return None
    return received


def _packed(received: Received) -> bytes:
    if not isinstance(received, Probed):
        plain = msgspec.to_builtins(received, enc_hook=dict)  # what it doesn't know is a mapping that can't be changed
        return json.dumps(plain, separators=(",", ":")).encode()  # which writes a histogram's last bound, infinity
    if isinstance(received.message, KernelLines):
        return _masked(received.line)
    return received.line


def _masked(line: bytes) -> bytes:
    """A message with kernel lines; the rest the probe masks by itself."""
    words = json.loads(line)
    words["lines"] = [[mask_text(one) if isinstance(one, str) else one for one in row] for row in words["lines"]]
    return json.dumps(words, separators=(",", ":")).encode()


def _kept(received: Received) -> tuple[str, int]:
    """A name for what a later one replaces, and how many of them stand."""
    match received:
        case Probed(message=Collector() as message):
            return f"collector {message.name}", 1
        case Probed(message=message):
            return type(message).__name__, _BATCHES_KEPT if isinstance(message, KernelLines) else 1
        case Logged():
            return received.key, _BATCHES_KEPT
        case Scraped():
            return received.key, 2  # a rate is between two
        case Followed():
            return received.key, 1
    return "", 1
