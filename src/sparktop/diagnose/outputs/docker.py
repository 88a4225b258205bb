"""Reads `docker inspect`, `docker ps` and `docker compose ps` output: how the containers ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.container_exit import LOOPING, TOO_SOON_S, ending_of, loop
from sparktop.diagnose.logs.unwrap import values
from sparktop.diagnose.names import names
from sparktop.knowledge.card import found
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding

_NO_TIME = "0001-01-01"


def read_inspection(text: str, source: str) -> tuple[Finding, ...] | None:
    """The findings in `docker inspect` output; None if the text holds none."""
    findings: list[Finding] = []
    has_container = False
    for value, line in values(text, having='"ExitCode"'):
        for container in _containers(value):
            has_container = True
            findings += _container_findings(container, source, line)
    return tuple(findings) if has_container else None


def _containers(value: Any) -> Iterator[Mapping[str, Any]]:
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("State"), dict) and "ExitCode" in entry["State"]:
            yield entry
        elif "OOMKilled" in entry and "ExitCode" in entry:  # docker inspect -f '{{json .State}}'
            yield {"State": entry}


def _container_findings(entry: Mapping[str, Any], source: str, line: int) -> Iterator[Finding]:
    state, host = entry["State"], entry.get("HostConfig")
    identity = str(entry.get("Id") or "the container")
    name = sanitise.name(str(entry.get("Name") or (identity[:12] if entry.get("Id") else identity)).lstrip("/"))[:80]
    status = str(state.get("Status") or "")
    code = state.get("ExitCode") if isinstance(state.get("ExitCode"), int) else None
    counted = entry.get("RestartCount")
    restarts = counted if isinstance(counted, int) else 0
    policy = (host.get("RestartPolicy") or {}) if isinstance(host, dict) else {}
    says = (
        f"{name}: Status {status or '?'}, ExitCode {code}, OOMKilled {state.get('OOMKilled')}, RestartCount {restarts}"
    )
    if finished := _parsed_time(state.get("FinishedAt")):
        says += f", FinishedAt {finished:%Y-%m-%d %H:%M:%S}"
    if error := sanitise.line(str(state.get("Error") or ""), limit=300):
        says += f", Error: {error}"
    evidence = (Evidence(source=source, line=line, text=says),)
    looping = restarts >= LOOPING and status in ("restarting", "running")
    if looping or status == "restarting":
        yield loop(name, restarts, policy=str(policy.get("Name") or ""), evidence=evidence)
    if status not in ("running", "paused", "created") or looping:
        config = entry.get("Config")
        image = str(config.get("Image") or "") if isinstance(config, dict) else ""
        called = names(container=name, image=image)
        ending = ending_of(code, oom_killed=state.get("OOMKilled") is True, called=called)
        if ending is not None:
            finding = ending.finding(name, evidence)
            yield replace(finding, explanation=f"{ending.explanation} Docker said: {error}") if error else finding
    if status == "created" and error:
        figures = {"name": name, "error": error}
        yield found("restart.docker-refused", "created", figures, evidence=evidence, subject=name)
    yield from _restart_too_soon(name, state, evidence)


def _restart_too_soon(name: str, state: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    started, finished = _parsed_time(state.get("StartedAt")), _parsed_time(state.get("FinishedAt"))
    if started is None or finished is None or state.get("Status") != "running":
        return
    gap_s = (started - finished).total_seconds()
    if 0 <= gap_s < TOO_SOON_S:
        figures = {"name": name, "gap_s": gap_s}
        yield found("restart.too-soon", "after-exit", figures, evidence=evidence, subject=name)


def _parsed_time(text: Any) -> datetime | None:
    if not isinstance(text, str) or text.startswith(_NO_TIME):
        return None
    try:
        # nanoseconds are cut by fromisoformat from Python 3.11 on
        return datetime.fromisoformat(text)
    except ValueError:
        return None


CARDS = ("restart.unhealthy",)


_STATUS = re.compile(
    r"\b(?:(?P<ended>Exited|Restarting) \((?P<code>\d{1,3})\)(?: (?P<ago>[^ ].{0,30}?) ago)?"
    r"|Up [^()]{1,30}\((?P<health>unhealthy)\))"
)


_OLD = re.compile(r"\b(?:\d+|a) (?:days?|weeks?|months?|years?)\b|\b(?:2[4-9]|[3-9]\d) hours\b")


def read_processes(text: str, source: str) -> tuple[Finding, ...] | None:
    """The findings in `docker ps` tables; None if the text holds none."""
    if "STATUS" not in text:
        return None
    findings: list[Finding] = []
    has_table = False
    header = ""
    for number, line in enumerate(text.splitlines(), 1):
        if _is_header(line):
            has_table, header = True, line
        elif header and line.strip():
            findings += _row_findings(line, header, number, source)
        elif header and not line.strip():
            header = ""
    return tuple(findings) if has_table else None


def _is_header(line: str) -> bool:
    return "STATUS" in line and (("CONTAINER ID" in line and "NAMES" in line) or ("SERVICE" in line and "NAME" in line))


def _row_findings(line: str, header: str, number: int, source: str) -> Iterator[Finding]:
    status = _STATUS.search(line)
    if status is None:
        return
    # compose puts the name first, docker last; a narrow terminal may have wrapped the last column away.
    is_last = not header.lstrip().startswith("NAME") and status.end() < len(line.rstrip())
    name = sanitise.name(line.split()[-1 if is_last else 0])[:80]
    evidence = (Evidence(source=source, line=number, text=sanitise.line(line.strip(), limit=300)),)
    if status["health"]:
        yield found("restart.unhealthy", "up", {"name": name}, evidence=evidence, subject=name)
        return
    ending, ago = ending_of(int(status["code"]), called=names(container=name)), status["ago"] or ""
    if status["ended"] == "Restarting":
        yield loop(name, None, evidence=evidence)
    if ending is None:
        return
    # An old failure, or one whose exit code says nothing, is only a note.
    is_note = status["ended"] == "Exited" and (ending.rule == "restart.failed" or _OLD.search(ago) is not None)
    yield replace(
        ending.finding(name, evidence),
        severity=Severity.INFO if is_note else ending.severity,
        title=f"{name} {ending.says}" + (f" {ago} ago" if ago else ""),
    )
