"""Reads one kernel log line: Xids by NVIDIA's catalogue, other relevant lines by patterns.toml.

Almost every boot line is irrelevant, so a line meets plain substring tests first and a regular expression only after a
hit (formats: docs/facts/gb10.md section 3 and docs/facts/engines.md section 2.6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from sparktop.bounds import number_in
from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel import knowledge, xid
from sparktop.diagnose.kernel.knowledge import KernelRule
from sparktop.diagnose.logs.literals import Gate
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.telemetry import LogLine
from sparktop.text.expression import Match, expression

MATCHED_CHARS = 1024
"""The kernel's own lines aren't longer (LOG_LINE_MAX), and this bounds the cost of a hostile line."""
_SCANNED_CHARS = MATCHED_CHARS + 512  # room for the prefix
BOOT_PHASE_S = 180.0
"""While a machine boots, links that are down and ports without a cable are normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One row of patterns.toml."""

    id: str
    kind: str
    rule: str
    """The rule of its findings; empty: nothing is wrong, and only the kernel pane shows it."""
    undoes: str
    """The rule whose findings it ends, where both name the same things."""
    severity: Severity
    finding_severity: Severity
    """The least severity of its finding; the kernel pane is milder."""
    of_process: re.Pattern[str] | None
    """The processes for which `finding_severity` holds; None: any."""
    boot_severity: Severity | None
    literals: tuple[str, ...]
    regex: str
    title: str
    detail: str
    advice: tuple[Advice, ...]
    examples: tuple[str, ...]
    quiet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Number of lines of one kind, and in what time, that is worse than one line alone."""

    count: int
    within_s: float | None
    """None: no time limit."""
    severity: Severity
    advice: Advice


def read(line: LogLine) -> KernelEvent | None:
    """The event in a kernel line; None for irrelevant lines. Pure; never raises."""
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
    """The event with its container's name, looked up by container id (64 hex digits, or Docker's first 12)."""
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
    """(the line without time, host and "kernel:", cut to MATCHED_CHARS; the boot seconds that dmesg printed)."""
    at, boot_s = 0, None
    for _ in range(6):
        prefix = _PREFIX.match(text, at)
        if prefix is None:
            break
        at = prefix.end()
        if prefix["boot"] is not None and boot_s is None:
            boot_s = number_in(prefix["boot"])
    return text[at : at + MATCHED_CHARS], boot_s


# --- Xids -----------------------------------------------------------------------------------------------------------

_XID = re.compile(r"NVRM: Xid \([^()]{1,80}\): (?P<code>\d{1,5})\b(?P<rest>.*)")
_OFF_THE_BUS = re.compile(r"NVRM: (?:GPU \S{1,20}: GPU has )?fallen off the bus")
_PID = re.compile(r", ?pid=(?:'?<[^<>]*>'?|'?(?P<pid>\d{1,10})'?)")
_NAME = re.compile(r", ?name=")
_MESSAGE = re.compile(r"channel |Ch |[A-Z0-9\[]")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,5})")
_COMMAND_CHARS = 15
"""The kernel cuts process names to this length (TASK_COMM_LEN without the final zero)."""


def _read_xid(body: str, line: LogLine) -> KernelEvent | None:
    match = _XID.search(body)
    if match is None:
        if _OFF_THE_BUS.search(body) is None:
            return None
        code, detail = 79, ""  # the driver also logs this without a number
    else:
        code, detail = int(match["code"]), match["rest"]
    entry = xid.lookup(code)
    pid, process = _blame(detail)
    recovery = xid.recovery(detail) if code == 154 else None
    severity, summary = recovery or (entry.severity, entry.name)
    cause = _CAUSE.search(detail)
    return KernelEvent(
        kind="xid",
        severity=severity,
        title=f"Xid {code}",
        detail=summary,
        text=line.text,
        code=code,
        pid=pid,
        process=process,
        follows=int(cause[1]) if cause is not None else None,
        advice=entry.advice_for(detail),
    )


def _blame(detail: str) -> tuple[int | None, str | None]:
    """(pid, process name) of an Xid line; None for what the driver doesn't know."""
    pid_match = _PID.match(detail)
    if pid_match is None:
        return None, None
    pid = int(pid_match["pid"]) if pid_match["pid"] else None
    name_match = _NAME.match(detail, pid_match.end())
    if name_match is None:
        return pid, None
    # Names may hold spaces and commas ("KMS thread") and aren't quoted. The right comma is the one followed by text
    # that starts like a driver message, within the length a name can have.
    pieces = detail[name_match.end() :].split(", ")
    name = pieces[0]
    for upto in range(1, len(pieces)):
        candidate = ", ".join(pieces[:upto])
        if len(candidate) > _COMMAND_CHARS:
            break
        if _MESSAGE.match(pieces[upto]):
            name = candidate
            break
    name = name.strip().strip("'")
    is_name = bool(name) and not (name.startswith("<") and name.endswith(">"))
    return pid, name[:64] if is_name else None


# --- everything else ------------------------------------------------------------------------------------------------

_OWN_FIELDS = ("pid", "process")
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def recognise(body: str) -> tuple[Pattern, Match] | None:
    """The first pattern that matches a line without its prefix, and the match."""
    for pattern in patterns():
        for literal in pattern.literals:
            if literal in body:
                match = expression(pattern.regex).search(body)
                if match is not None:
                    return pattern, match
                break
    return None


def _read_pattern(body: str, line: LogLine, boot_s: float | None) -> KernelEvent | None:
    hit = recognise(body)
    if hit is None:
        return None
    pattern, match = hit
    values = {name: (value or "").strip() for name, value in match.groups.items()}
    severity = pattern.severity
    if pattern.boot_severity is not None and boot_s is not None and boot_s < BOOT_PHASE_S:
        severity = pattern.boot_severity
    return KernelEvent(
        kind=pattern.kind,
        pattern=pattern.id,
        severity=severity,
        title=_filled(pattern.title, values),
        detail=_filled(pattern.detail, values).replace(" :", ":").strip(" ,:"),
        figures=tuple((name, value) for name, value in values.items() if value and name not in _OWN_FIELDS),
        text=line.text,
        pid=int(values["pid"]) if values.get("pid") else None,
        process=values.get("process", "")[:64] or None,
        container_id=container_id(values.get("cgroup", "")),
        advice=pattern.advice,
    )


def container_id(cgroup: str) -> str | None:
    """The container id (64 hex digits) in a control group path, the innermost one."""
    ids = _CONTAINER.findall(cgroup)
    return str(ids[-1]) if ids else None


def _filled(template: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda slot: values.get(slot[1], ""), template)


@cache
def words() -> tuple[str, ...]:
    """Fixed texts of which every relevant line holds at least one."""
    literals = ["NVRM: Xid (", "fallen off the bus"]
    literals.extend(literal for pattern in patterns() for literal in pattern.literals)
    return tuple(dict.fromkeys(literals))


@cache
def _gate() -> Gate:
    return Gate(words())


@cache
def patterns() -> tuple[Pattern, ...]:
    """The rows of patterns.toml, in order."""
    return tuple(
        Pattern(
            id=row["id"],
            kind=row["kind"],
            rule=row.get("rule", "kernel." + row["id"].removeprefix("kernel.").replace(".", "-")),
            undoes=row.get("undoes", ""),
            severity=Severity(row["severity"]),
            finding_severity=knowledge.finding_severity(row),
            of_process=re.compile(row["of_process"]) if "of_process" in row else None,
            boot_severity=Severity(row["boot_severity"]) if "boot_severity" in row else None,
            literals=tuple(row["any"]),
            regex=row["regex"],
            title=row["title"],
            detail=row.get("detail", ""),
            advice=(knowledge.advice(row),),
            examples=tuple(row["examples"]),
            quiet=tuple(row.get("quiet", ())),
        )
        for row in knowledge.table("patterns")["pattern"]
    )


@cache
def pattern_by_id() -> Mapping[str, Pattern]:
    """The rows of patterns.toml by id."""
    return {pattern.id: pattern for pattern in patterns()}


@cache
def rules() -> Mapping[str, KernelRule]:
    """What is known of each rule that patterns feed; with several, their first row has it."""
    known: dict[str, KernelRule] = {}
    for pattern, row in zip(patterns(), knowledge.table("patterns")["pattern"], strict=True):
        if pattern.rule and pattern.rule not in known:
            named = [causes(name) or (name,) for name in row.get("follows", ())]
            known[pattern.rule] = knowledge.rule(pattern.rule, row, tuple(rule for rules in named for rule in rules))
    return known


def causes(name: str) -> tuple[str, ...]:
    """The kernel rules that this name of [causes] stands for, likeliest first; none for another name."""
    return tuple(knowledge.table("patterns")["causes"].get(name, ()))


@cache
def explaining(rule: str) -> tuple[str, ...]:
    """The kernel rules that explain a finding of an engine's log or a command's output, likeliest first."""
    return tuple(
        cause
        for name, explained in knowledge.table("patterns")["explains"].items()
        if rule in explained
        for cause in causes(name)
    )


@cache
def bursts() -> Mapping[str, tuple[Burst, ...]]:
    """The burst limits of patterns.toml by kind."""
    by_kind: dict[str, tuple[Burst, ...]] = {}
    for row in knowledge.table("patterns")["burst"]:
        burst = Burst(
            count=row["count"],
            within_s=row.get("within_s"),
            severity=Severity(row["severity"]),
            advice=knowledge.advice(row),
        )
        by_kind[row["kind"]] = (*by_kind.get(row["kind"], ()), burst)
    return by_kind
