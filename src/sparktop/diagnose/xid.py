"""NVIDIA's Xid catalogue and what the field adds to it, as data (xid.toml; facts/gb10.md section 3)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sparktop.model.event import Advice, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a source other than the catalogue says of an Xid."""

    advice: Advice
    when: re.Pattern[str] | None = None
    """Looked for in the line after the Xid's number; None: the note always holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEntry:
    """One Xid's meaning. `advice` is everything known of it, the catalogue's word first."""

    code: int
    name: str
    severity: Severity
    meaning: str
    action: str
    immediate: str
    """NVIDIA's immediate-action bucket (RESTART_APP, RESET_GPU, RESTART_BM, IGNORE ...), empty where it gives none."""
    known: bool = True
    """False where the catalogue doesn't list the number."""
    seen_on_gb10: bool = False
    whole_gpu: bool = False
    """The event is the GPU's, whatever process the line names."""
    follows: frozenset[int] = frozenset()
    """The Xids that are its cause when they came first."""
    advice: tuple[Advice, ...] = ()
    notes: tuple[Note, ...] = ()
    distinction: tuple[str, ...] = ()
    """Why it isn't its look-alikes."""

    def advice_for(self, detail: str) -> tuple[Advice, ...]:
        """The advice that holds for a line, given its text after the Xid's number."""
        told = [note.advice for note in self.notes if note.when is None or note.when.search(detail)]
        return (self.advice[0], *told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What an Xid 154 line asks for."""

    wanted: str
    """As the driver names it: "GPU Reset Required", "Node Reboot Required", "None" ..."""
    severity: Severity
    summary: str


_RECOVERY = re.compile(r"recovery action changed from 0x[0-9a-fA-F]+ \([^()]*\) to 0x[0-9a-fA-F]+ \(([^()]*)\)")


def recovery(detail: str) -> Recovery | None:
    """The action an Xid 154 line names, None where it names none (a cut line)."""
    found = _RECOVERY.search(detail)
    if found is None:
        return None
    wanted = found[1].strip()
    words = wanted.lower()
    if words in ("", "none"):
        return Recovery(wanted=wanted, severity=Severity.INFO, summary="no recovery needed any more")
    if "reboot" in words:
        return Recovery(wanted=wanted, severity=Severity.CRITICAL, summary=f"the driver asks for a reboot ({wanted})")
    if "reset" in words:
        text = f"the driver asks for a GPU reset ({wanted})"
        return Recovery(wanted=wanted, severity=Severity.CRITICAL, summary=text)
    return Recovery(wanted=wanted, severity=Severity.WARNING, summary=f"the driver asks for: {wanted}")


def lookup(code: int) -> XidEntry:
    """The entry of an Xid; one that isn't listed gets an entry that says so."""
    return catalogue().get(code) or _unknown(code)


@cache
def catalogue() -> Mapping[int, XidEntry]:
    """Every listed Xid by number."""
    raw = _raw()
    reset = Note(advice=Advice(**raw["gpu_reset"]))
    entries: dict[int, XidEntry] = {}
    for row in raw["xid"]:
        for code in row["codes"]:
            if code in entries:
                raise ValueError(f"xid.toml lists Xid {code} twice")
            entries[code] = _entry(code, row, reset)
    return MappingProxyType(entries)


@cache
def _raw() -> dict[str, Any]:
    return tomllib.loads(files("sparktop.diagnose").joinpath("xid.toml").read_text("utf-8"))


def _unknown(code: int) -> XidEntry:
    return _entry(code, _raw()["unknown"], None)


def _entry(code: int, row: Mapping[str, Any], reset: Note | None) -> XidEntry:
    raw = _raw()
    action = row.get("action") or raw["actions"][row["immediate"]]
    source = row.get("source") or f"{raw['source']} ({raw['applicability']})"
    first = Advice(source=source, meaning=row["meaning"], action=action)
    notes = [
        Note(
            advice=Advice(source=note["source"], meaning=note["meaning"], action=note.get("action", "")),
            when=re.compile(note["when"]) if "when" in note else None,
        )
        for note in row.get("note", ())
    ]
    if reset is not None and (row["immediate"] == "RESET_GPU" or row.get("reset")):
        notes.append(reset)
    return XidEntry(
        code=code,
        name=row["name"],
        severity=Severity(row["severity"]),
        meaning=row["meaning"],
        action=action,
        immediate=row["immediate"],
        known=reset is not None,
        seen_on_gb10=row.get("gb10", False),
        whole_gpu=row.get("whole_gpu", False),
        follows=frozenset(row.get("follows", ())),
        advice=(first, *(note.advice for note in notes)),
        notes=tuple(notes),
        distinction=tuple(row.get("distinction", ())),
    )
