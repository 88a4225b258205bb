"""What a container's exit code means (container_exit.toml) and what it doesn't prove; findings of restart loops."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.diagnose.names import PLACEHOLDERS, fill, names
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.knowledge import rule_file
from sparktop.knowledge.card import found
from sparktop.model.engine import ORDINARY_EXITS, Container
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy

LOOPING = 3
"""From this many restarts, by Docker's or systemd's count, it is a restart loop (docs/facts/engines.md OPS-04)."""
TOO_SOON_S = 60.0
"""A start this soon after the last run's end is too soon: memory comes back over seconds to minutes (field report 004).
"""


def exit_detail(container: Container) -> str:
    """How the container ended, in one line: "killed, out of memory (exit code 137)"."""
    code = container.exit_code
    if code is None:
        return "ended"
    if container.oom_killed:
        return f"killed, out of memory (exit code {code})"
    meaning = _raw()["short"].get(str(code))
    if meaning is None:
        meaning = f"killed by signal {code - 128}" if 128 < code < 160 else "failed"
    return f"{meaning} (exit code {code})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What an exit code means: its rule, severity and the texts of its finding."""

    rule: str
    severity: Severity
    says: str
    """Follows the container's name in the title: "was killed (exit code 137)"."""
    explanation: str
    settles: str = ""
    remedies: tuple[Remedy, ...] = ()
    sources: tuple[str, ...] = ()

    def finding(self, name: str, evidence: tuple[Evidence, ...]) -> Finding:
        """The finding for a container that ended so; suspected while something else would have to settle it."""
        return Finding(
            rule=self.rule,
            severity=self.severity,
            confidence=Confidence.SUSPECTED if self.settles else Confidence.CONFIRMED,
            title=f"{name} {self.says}",
            explanation=self.explanation,
            settles=self.settles,
            evidence=evidence,
            remedies=self.remedies,
            references=self.sources,
            subject=name,
        )


def ending_of(
    exit_code: int | None, *, oom_killed: bool = False, called: Mapping[str, str] = PLACEHOLDERS
) -> Ending | None:
    """The meaning of an exit code; None for a clean end, an ordinary stop (143, 130) or no exit code.

    Args:
        called: the container and its image, for the remedies' commands (`diagnose.names`).
    """
    if not oom_killed and (exit_code is None or exit_code in ORDINARY_EXITS):
        return None
    by_code = endings()
    ending = by_code["oom"] if oom_killed else by_code.get(str(exit_code), by_code["other"])
    return replace(
        ending,
        says=ending.says.replace("{code}", str(exit_code)),
        settles=fill(ending.settles, called),
        remedies=tuple(
            replace(remedy, steps=tuple(fill(step, called) for step in remedy.steps)) for remedy in ending.remedies
        ),
    )


@cache
def endings() -> Mapping[str, Ending]:
    """The entries of container_exit.toml by exit code."""
    return {
        str(row["code"]): Ending(
            rule=row["rule"],
            severity=Severity(row["severity"]),
            says=row["says"],
            explanation=row["explanation"],
            settles=row.get("settles", ""),
            remedies=rule_file.remedies(row, "container_exit.toml"),
            sources=tuple(row["sources"]),
        )
        for row in _raw()["ending"]
    }


def cards() -> tuple[Rule, ...]:
    """The rule cards of container endings, seen live or in what Docker prints."""
    return tuple(
        Rule(
            id=ending.rule,
            kind=RuleKind.DOCUMENT,
            title=f"A container {ending.says.replace('{code}', 'other than the known')}",
            severity=ending.severity,
            scope="any container: live, docker inspect, docker ps",
            sources=ending.sources,
        )
        for code, ending in endings().items()
        if code != "log"
    )


def loop(name: str, restarts: int | None, *, policy: str = "", evidence: tuple[Evidence, ...]) -> Finding:
    """The finding for a container that Docker restarts again and again."""
    figures = {"name": name, "restarts": restarts and restart_count(restarts), "policy": policy}
    return found("restart.loop", "docker", {**figures, "shell_name": shell_name(name)}, evidence=evidence, subject=name)


def restart_count(restarts: int) -> str:
    """ "1 restart", "9 restarts"."""
    return f"{restarts} restart{'s' * (restarts != 1)}"


def shell_name(name: str) -> str:
    """The name if a shell needs no quotes for it, else NAME: it comes from another machine and isn't trusted."""
    return names(container=name)["container"]


@cache
def _raw() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("container_exit.toml").read_text("utf-8"))
