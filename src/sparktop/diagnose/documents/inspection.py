"""`docker inspect` of containers: how they ended, whether they restart again and again, and what Docker refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.documents.embedded import values
from sparktop.diagnose.exits import LOOPING, TOO_SOON_S, ending_of, loop
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding

_NO_TIME = "0001-01-01"


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """What the containers' states say; None where the text holds no `docker inspect`."""
    findings: list[Finding] = []
    is_one = False
    for value, line in values(text, having='"ExitCode"'):
        for container in _containers(value):
            is_one = True
            findings += _of_container(container, source, line)
    return tuple(findings) if is_one else None


def _containers(value: Any) -> Iterator[Mapping[str, Any]]:
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("State"), dict) and "ExitCode" in entry["State"]:
            yield entry
        elif "OOMKilled" in entry and "ExitCode" in entry:  # docker inspect -f '{{json .State}}'
            yield {"State": entry}


def _of_container(entry: Mapping[str, Any], source: str, line: int) -> Iterator[Finding]:
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
    if finished := _stamp(state.get("FinishedAt")):
        says += f", FinishedAt {finished:%Y-%m-%d %H:%M:%S}"
    if error := sanitise.line(str(state.get("Error") or ""), limit=300):
        says += f", Error: {error}"
    evidence = (Evidence(source=source, line=line, text=says),)
    looping = restarts >= LOOPING and status in ("restarting", "running")
    if looping or status == "restarting":
        yield loop(name, restarts, policy=str(policy.get("Name") or ""), evidence=evidence)
    if status not in ("running", "paused", "created") or looping:
        ending = ending_of(code, oom_killed=state.get("OOMKilled") is True, name=name)
        if ending is not None:
            yield Finding(
                rule=ending.rule,
                severity=ending.severity,
                confidence=Confidence.SUSPECTED if ending.settles else Confidence.CONFIRMED,
                title=f"{name} {ending.says}",
                explanation=ending.explanation + (f" Docker said: {error}" if error else ""),
                settles=ending.settles,
                evidence=evidence,
                remedies=ending.remedies,
                references=ending.sources,
                subject=name,
            )
    if status == "created" and error:
        yield Finding(
            rule="restart.docker-refused",
            severity=Severity.CRITICAL,
            title=f"{name} was created and could not be started",
            explanation=f"Docker made the container and failed to start it: {error}",
            evidence=evidence,
            references=("Docker Engine API: State.Error",),
            subject=name,
        )
    yield from _too_soon(name, state, evidence)


def _too_soon(name: str, state: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    started, finished = _stamp(state.get("StartedAt")), _stamp(state.get("FinishedAt"))
    if started is None or finished is None or state.get("Status") != "running":
        return
    gap_s = (started - finished).total_seconds()
    if 0 <= gap_s < TOO_SOON_S:
        yield Finding(
            rule="restart.too-soon",
            severity=Severity.INFO,
            title=f"{name} was started {gap_s:.0f} s after it ended",
            explanation=(
                "After an engine ends, the memory it held comes back over seconds to minutes on a Spark. An engine "
                "started before that measures too little, or dies of it with exit code 137. Where that happened, wait "
                "until MemAvailable stands still before the next start."
            ),
            evidence=evidence,
            references=("field report 004",),
            subject=name,
        )


def _stamp(text: Any) -> datetime | None:
    if not isinstance(text, str) or text.startswith(_NO_TIME):
        return None
    try:
        # Docker writes nanoseconds, which fromisoformat cuts only from Python 3.11 on, where this runs.
        return datetime.fromisoformat(text)
    except ValueError:
        return None
