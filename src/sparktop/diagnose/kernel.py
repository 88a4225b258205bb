"""Reads one kernel log line: Xids by the catalogue, other lines that matter by kernel_patterns.toml.

Nearly every line of a boot is of no interest, so a line meets plain substring tests first and a regular
expression only after one of them hit (facts/gb10.md section 3 has the formats, facts/engines.md 2.6 the rest).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from sparktop.diagnose import xid
from sparktop.diagnose.logs.gate import Gate
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.telemetry import LogLine

MATCHED_CHARS = 1024
"""The kernel's own lines aren't longer (LOG_LINE_MAX), and it bounds what a hostile line can cost."""

_SCANNED_CHARS = MATCHED_CHARS + 512  # the prefix comes on top

BOOT_PHASE_S = 180.0
"""While a machine starts, links that are down and ports without a cable are no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One row of kernel_patterns.toml."""

    id: str
    kind: str
    severity: Severity
    boot_severity: Severity | None
    literals: tuple[str, ...]
    regex: str
    title: str
    advice: tuple[Advice, ...]
    examples: tuple[str, ...]
    quiet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """From how many lines of a kind on, in which time, it is worse than one alone."""

    kind: str
    count: int
    within_s: float | None
    """None: however long it took."""
    severity: Severity
    advice: Advice


def read(line: LogLine) -> KernelEvent | None:
    """The event a kernel line is, None for the lines that don't matter. Pure; never raises."""
    text = line.text[:_SCANNED_CHARS]
    if not _gate().hits(text):
        return None
    body, stamp_s = split_prefix(text)
    boot_s = line.boot_s if line.boot_s is not None else stamp_s
    event = _read_xid(body, line) or _read_pattern(body, line, boot_s)
    if event is None:
        return None
    return replace(event, first_boot_s=boot_s, last_boot_s=boot_s, first_wall_s=line.wall_s, last_wall_s=line.wall_s)


def with_container(event: KernelEvent, names: Mapping[str, str]) -> KernelEvent:
    """The event with its container's name, by the container's id (64 hex digits, or Docker's first 12)."""
    if event.container_id is None:
        return event
    name = names.get(event.container_id) or names.get(event.container_id[:12])
    return event if name is None or name == event.container else replace(event, container=name)


# --- prefixes -------------------------------------------------------------------------------------------------------

_HOST = r"(?:[\w.-]{1,64} (?=kernel: |[\w./@-]{1,64}\[\d{1,10}\]: ))?"
_PREFIX = re.compile(
    r"<\d{1,3}>"  # syslog priority
    rf"|\[ *(?P<boot>\d{{1,10}}\.\d{{1,9}})\] ?{_HOST}"  # dmesg; journalctl -o short-monotonic adds the host
    r"|\[ *\+?\d{1,10}\.\d{1,9}\] ?"  # dmesg -d
    r"|\[ *[TC]\d{1,8}\] ?"  # the caller, where the kernel prints it
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ?"  # dmesg -T
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})? {_HOST}"  # journalctl, syslog
    rf"|\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d)? {_HOST}"  # ISO
    r"|kernel: ?"
)


def split_prefix(text: str) -> tuple[str, float | None]:
    """A line without its time, host and "kernel:", and the boot seconds dmesg printed. At most MATCHED_CHARS long."""
    at, boot_s = 0, None
    for _ in range(6):
        found = _PREFIX.match(text, at)
        if found is None:
            break
        at = found.end()
        if found["boot"] is not None and boot_s is None:
            boot_s = float(found["boot"])
    return text[at : at + MATCHED_CHARS], boot_s


# --- Xids -----------------------------------------------------------------------------------------------------------

_XID = re.compile(r"NVRM: Xid \([^()]{1,80}\): (?P<code>\d{1,5})\b(?P<rest>.*)")
_OFF_THE_BUS = re.compile(r"NVRM: (?:GPU \S{1,20}: GPU has )?fallen off the bus")
_PID = re.compile(r", ?pid=(?:'?<[^<>]*>'?|'?(?P<pid>\d{1,10})'?)")
_NAME = re.compile(r", ?name=")
_MESSAGE = re.compile(r"channel |Ch |[A-Z0-9\[]")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,5})")
_COMMAND_CHARS = 15
"""The kernel cuts a process's name there (TASK_COMM_LEN less its end)."""


def _read_xid(body: str, line: LogLine) -> KernelEvent | None:
    found = _XID.search(body)
    if found is None:
        if _OFF_THE_BUS.search(body) is None:
            return None
        code, rest = 79, ""  # the driver says it without a number too
    else:
        code, rest = int(found["code"]), found["rest"]
    entry = xid.lookup(code)
    pid, process = _blame(rest)
    severity, summary, follows = entry.severity, entry.name, None
    wanted = xid.recovery(rest) if code == 154 else None
    if wanted is not None:
        severity, summary = wanted.severity, wanted.summary
    cause = _CAUSE.search(rest)
    if cause is not None:
        follows = int(cause[1])
        summary = f"{summary}, after Xid {follows}"
    return KernelEvent(
        kind="xid",
        severity=severity,
        title=f"Xid {code}  {summary}",
        text=line.text,
        code=code,
        pid=pid,
        process=process,
        follows=follows,
        advice=entry.advice_for(rest),
    )


def _blame(rest: str) -> tuple[int | None, str | None]:
    """The pid and process name of an Xid line; either is None where the driver doesn't know it."""
    found = _PID.match(rest)
    if found is None:
        return None, None
    pid = int(found["pid"]) if found["pid"] else None
    named = _NAME.match(rest, found.end())
    if named is None:
        return pid, None
    # Names hold spaces and even commas ("KMS thread"), and nothing quotes them: the message that follows
    # the right comma starts as the driver's messages do, within the length a name can have.
    pieces = rest[named.end() :].split(", ")
    name = pieces[0]
    for upto in range(1, len(pieces)):
        candidate = ", ".join(pieces[:upto])
        if len(candidate) > _COMMAND_CHARS:
            break
        if _MESSAGE.match(pieces[upto]):
            name = candidate
            break
    name = name.strip().strip("'")
    known = bool(name) and not (name.startswith("<") and name.endswith(">"))
    return pid, name[:64] if known else None


# --- everything else ------------------------------------------------------------------------------------------------

_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def recognise(body: str) -> tuple[Pattern, re.Match[str]] | None:
    """The first pattern that has a line (its prefix already split off), and what matched."""
    for pattern in patterns():
        for literal in pattern.literals:
            if literal in body:
                found = _compiled(pattern.regex).search(body)
                if found is not None:
                    return pattern, found
                break
    return None


def _read_pattern(body: str, line: LogLine, boot_s: float | None) -> KernelEvent | None:
    hit = recognise(body)
    if hit is None:
        return None
    pattern, found = hit
    said = {name: (value or "").strip() for name, value in found.groupdict().items()}
    severity = pattern.severity
    if pattern.boot_severity is not None and boot_s is not None and boot_s < BOOT_PHASE_S:
        severity = pattern.boot_severity
    return KernelEvent(
        kind=pattern.kind,
        pattern=pattern.id,
        severity=severity,
        title=_title(pattern.title, said),
        text=line.text,
        pid=int(said["pid"]) if said.get("pid") else None,
        process=said.get("process", "")[:64] or None,
        container_id=container_id(said.get("cgroup", "")),
        advice=pattern.advice,
    )


def container_id(cgroup: str) -> str | None:
    """The 64 hex digits of a container in a control group's path; the innermost one."""
    found = _CONTAINER.findall(cgroup)
    return str(found[-1]) if found else None


def _title(template: str, said: Mapping[str, str]) -> str:
    """The template filled in; what the line didn't say leaves no stray comma or colon behind."""
    head, _, tail = template.partition("  ")
    filled = re.sub(r"\{(\w+)\}", lambda slot: said.get(slot[1], ""), head)
    rest = re.sub(r"\{(\w+)\}", lambda slot: said.get(slot[1], ""), tail).replace(" :", ":").strip(" ,:")
    return f"{filled}  {rest}" if rest else filled


@cache
def words() -> tuple[str, ...]:
    """The fixed texts that make a line worth a closer look; one with none of them is no event."""
    literals = ["NVRM: Xid (", "fallen off the bus"]
    literals.extend(literal for pattern in patterns() for literal in pattern.literals)
    return tuple(dict.fromkeys(literals))


@cache
def _gate() -> Gate:
    return Gate(words())


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compiled on first use: most patterns never are."""
    return re.compile(regex)


@cache
def patterns() -> tuple[Pattern, ...]:
    """The rows of kernel_patterns.toml in their order."""
    return tuple(
        Pattern(
            id=row["id"],
            kind=row["kind"],
            severity=Severity(row["severity"]),
            boot_severity=Severity(row["boot_severity"]) if "boot_severity" in row else None,
            literals=tuple(row["any"]),
            regex=row["regex"],
            title=row["title"],
            advice=(Advice(source=row["source"], meaning=row["meaning"], action=row.get("action", "")),),
            examples=tuple(row["examples"]),
            quiet=tuple(row.get("quiet", ())),
        )
        for row in _raw()["pattern"]
    )


@cache
def bursts() -> Mapping[str, tuple[Burst, ...]]:
    """What many lines of one kind mean, by kind."""
    by_kind: dict[str, list[Burst]] = {}
    for row in _raw()["burst"]:
        burst = Burst(
            kind=row["kind"],
            count=row["count"],
            within_s=row.get("within_s"),
            severity=Severity(row["severity"]),
            advice=Advice(source=row["source"], meaning=row["meaning"], action=row.get("action", "")),
        )
        by_kind.setdefault(burst.kind, []).append(burst)
    return {kind: tuple(rows) for kind, rows in by_kind.items()}


@cache
def _raw() -> dict[str, Any]:
    return tomllib.loads(files("sparktop.diagnose").joinpath("kernel_patterns.toml").read_text("utf-8"))
