"""NVIDIA's Xid catalogue and field experience with it (xid.toml; facts: docs/facts/gb10.md section 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel import knowledge
from sparktop.diagnose.kernel.knowledge import KernelRule
from sparktop.model.event import Advice, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEntry:
    """The meaning of one Xid; `advice` lists every source, NVIDIA's catalogue first."""

    code: int
    name: str
    rule: KernelRule
    severity: Severity
    finding_severity: Severity
    """The least severity of its finding; the kernel pane is milder."""
    immediate: str
    """NVIDIA's immediate-action bucket (RESTART_APP, RESET_GPU, RESTART_BM, IGNORE ...); empty if it names none."""
    seen_on_gb10: bool = False
    whole_gpu: bool = False
    """The event affects the whole GPU, whatever process the line names."""
    follows: frozenset[int] = frozenset()
    """Xids that cause this one if they came first."""
    advice: tuple[Advice, ...] = ()
    conditions: tuple[re.Pattern[str] | None, ...] = ()
    """For each advice: searched in the line after the Xid's number; None: it always applies."""

    def advice_for(self, detail: str) -> tuple[Advice, ...]:
        """The advice that applies to a line, given its text after the Xid's number."""
        by_condition = zip(self.advice, self.conditions, strict=True)
        return tuple(advice for advice, when in by_condition if when is None or when.search(detail))


_RECOVERY = re.compile(r"recovery action changed from 0x[0-9a-fA-F]+ \([^()]*\) to 0x[0-9a-fA-F]+ \(([^()]*)\)")


def recovery(detail: str) -> tuple[Severity, str] | None:
    """(severity, summary) of the recovery action that an Xid 154 line asks for; None if the line is cut."""
    match = _RECOVERY.search(detail)
    if match is None:
        return None
    action = match[1].strip()
    words = action.lower()
    if words in ("", "none"):
        return Severity.INFO, "no recovery needed any more"
    if "reboot" in words:
        return Severity.CRITICAL, f"the driver asks for a reboot ({action})"
    if "reset" in words:
        return Severity.CRITICAL, f"the driver asks for a GPU reset ({action})"
    return Severity.WARNING, f"the driver asks for: {action}"


def lookup(code: int) -> XidEntry:
    """The entry of an Xid; an unlisted number gets an entry that says so."""
    return catalogue().get(code) or _entry(code, knowledge.table("xid")["unknown"])


@cache
def catalogue() -> Mapping[int, XidEntry]:
    """Every listed Xid by number."""
    entries: dict[int, XidEntry] = {}
    for row in knowledge.table("xid")["xid"]:
        for code in row["codes"]:
            if code in entries:
                raise ValueError(f"xid.toml lists Xid {code} twice")
            entries[code] = _entry(code, row)
    return MappingProxyType(entries)


def _entry(code: int, row: Mapping[str, Any]) -> XidEntry:
    raw = knowledge.table("xid")
    remedy = {} if "remedy" in row else raw["remedies"][row["immediate"]]
    source = row.get("source") or f"{raw['source']} ({raw['applicability']})"
    notes = [*row.get("note", ())]
    if row["immediate"] == "RESET_GPU" or row.get("reset"):
        notes.append(raw["gpu_reset"])
    return XidEntry(
        code=code,
        name=row["name"],
        rule=knowledge.rule(f"kernel.xid-{code}", row, tuple(row.get("follows_rules", ()))),
        severity=Severity(row["severity"]),
        finding_severity=knowledge.finding_severity(row),
        immediate=row["immediate"],
        seen_on_gb10=row.get("gb10", False),
        whole_gpu=row.get("whole_gpu", False),
        follows=frozenset(row.get("follows", ())),
        advice=(knowledge.advice({**row, **remedy}, source), *map(knowledge.advice, notes)),
        conditions=(None, *(re.compile(note["when"]) if "when" in note else None for note in notes)),
    )
