"""Reads texts that are a whole and not a log: what `docker inspect`, `docker ps`, `nvidia-smi` and an API "
"answer say."""

from __future__ import annotations

from sparktop.diagnose.documents import answer, capture, inspection, processes, smi
from sparktop.diagnose.rule import Rule
from sparktop.model.finding import Finding

READERS = (inspection.read, processes.read, smi.read, answer.read, capture.read)


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """What the documents in a text say; None where there is none, an empty tuple where they tell of nothing wrong.

    They may stand between other lines, as in a terminal's copy. Pure; never raises.
    """
    said = [found for reader in READERS if (found := reader(text, source)) is not None]
    return tuple(finding for found in said for finding in found) if said else None


def cards() -> tuple[Rule, ...]:
    """What documents are read for, besides how containers end (`exits.cards`)."""
    return (*processes.CARDS, *smi.CARDS, *answer.CARDS, *capture.CARDS)
