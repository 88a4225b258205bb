"""What xid.toml and patterns.toml know of a kernel rule besides its lines: its causes, and how long it matters."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.model.event import Advice, Severity


class Lasts(StrEnum):
    """What decides how long a failure matters, besides its age."""

    A_WHILE = "a-while"
    """Its age alone."""
    REBOOT = "until-reboot"
    """A critical one matters until the machine is rebooted."""
    GPU_ANSWERS = "until-gpu-answers"
    LINK_IS_DOWN = "while-link-down"
    TASK_IS_STUCK = "while-task-stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRule:
    """What is known of one kind of failure."""

    id: str
    """"kernel.xid-79", "kernel.link-down"."""
    follows: tuple[str, ...] = ()
    """Kernel rules that cause it, likeliest first; Xids among Xids: `XidEntry.follows`."""
    live_cause: str = ""
    """The live rule that causes it on a watched node, where the log names no cause."""
    sign_of: str = ""
    """The live rule that it is a sign of."""
    only_follows: bool = False
    """It reports the end of something: critical after another failure, and the remedy is that failure's."""
    critical_at: int | None = None
    """So many in one incident are critical, however long they took."""
    lasts: Lasts = Lasts.A_WHILE
    lasts_s: float | None = None
    """How long it matters by its age; None: half an hour, ten minutes at information level."""
    is_routine: bool = False
    """Nothing to remember once it is over, unless it was critical."""
    distinction: tuple[str, ...] = ()
    """How it differs from similar failures."""


def rule(rule_id: str, row: Mapping[str, Any], follows: tuple[str, ...]) -> KernelRule:
    """The rule of a table's row."""
    return KernelRule(
        id=rule_id,
        follows=follows,
        live_cause=row.get("live_cause", ""),
        sign_of=row.get("sign_of", ""),
        only_follows=row.get("only_follows", False),
        critical_at=row.get("critical_at"),
        lasts=Lasts(row.get("lasts", "a-while")),
        lasts_s=row.get("lasts_s"),
        is_routine=row.get("routine", False),
        distinction=tuple(row.get("distinction", ())),
    )


def finding_severity(row: Mapping[str, Any]) -> Severity:
    """The least severity of its finding: for somebody who asks why an engine died, not for the kernel pane."""
    return Severity(row.get("finding_severity", "info"))


def advice(row: Mapping[str, Any], source: str = "") -> Advice:
    """The advice in a table's row."""
    return Advice(
        source=source or row["source"],
        meaning=row["meaning"],
        remedy=row.get("remedy", ""),
        action=row.get("action"),
    )


@cache
def table(name: str) -> dict[str, Any]:
    """The table of this name, beside this module."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
