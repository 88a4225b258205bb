"""Operations, questions and answers in the runner's protocol (`probe.runner` describes it). Pure.

What a planner reads (an answer's value) stays exact, because a relaunch must be; every sentence meant for the
operator is sanitised here. No value from the node is assumed to have the right type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sparktop import bounds, sanitise
from sparktop.bounds import json_of, whole_or_none
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer
from sparktop.model.survey import (
    Answer,
    DockerGet,
    DockerLog,
    FileText,
    HubModel,
    ModelsOnDisk,
    NoteRun,
    OperatorKeys,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
    RunNotes,
)
from sparktop.operate.runner.api import LockHolder, OperationResult, Operations, Outcome, OutcomeState, Progress

Words = dict[str, Any]

RETURN_S = 60.0
"""How long the runner waits for a Docker Engine that is away, beyond an operation's own time."""
END_S = 15.0
"""For stopping what took too long: TERM, then KILL, on a slow node."""
GET_LIMIT_S = 10.0
PROBLEM_CHARS = 1000
MAX_SAVED = 64
"""Values that one step keeps for later ones: container ids, mostly."""


# --- operations


_KINDS: Mapping[str, type[Operation]] = {
    "command": Command,
    "docker": DockerCall,
    "expect": Expect,
    "signal": Signal,
    "pull": ImagePull,
    "transfer": Transfer,
}
_KEYS = {
    "privilege": "root", "limit_s": "limit", "within_s": "within", "started_ticks": "started",
    "ends_within_s": "ends_within", "total_bytes": "total", "again_s": "again",
}  # fmt: skip
"""The protocol's names of fields, where they differ."""


def operation_words(operation: Operation) -> Words:
    """One operation as JSON-ready data; empty fields are left out."""
    words: Words = {"do": next(name for name, kind in _KINDS.items() if isinstance(operation, kind))}
    for item in fields(operation):
        value = getattr(operation, item.name)
        if isinstance(value, Privilege):
            value = value is Privilege.ROOT
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Command | Expect):
            value = operation_words(value)
        if item.name == "body" or not (value is None or value is False or value in ("", {})):
            words[_KEYS.get(item.name, item.name)] = value
    return words


def operation_of(words: Mapping[str, Any]) -> Operation:
    """The operation from that data: for tests and simulators that stand in for a runner.

    Raises:
        KeyError, ValueError, TypeError: it is not a valid operation.
    """
    return _operation(_KINDS[words["do"]], words)


def _operation(kind: type[Operation], words: Mapping[str, Any]) -> Operation:
    values: Words = {"equals": {}} if kind is Expect else {}
    for name, key in ((item.name, _KEYS.get(item.name, item.name)) for item in fields(kind)):
        if key not in words:
            continue
        value = words[key]
        if name == "privilege":
            value = Privilege.ROOT if value else Privilege.USER
        elif name in ("argv", "accepts"):
            value = tuple(value)
        elif name in ("done_when", "only_where", "command"):
            value = _operation(Expect if kind is DockerCall else Command, value)
        values[name] = value
    return kind(**values)


def step_words(run_id: str, step_id: str, act: Operations) -> Words:
    """A whole step as JSON-ready data."""
    return {
        "run": run_id,
        "step": step_id,
        "operations": [operation_words(operation) for operation in act.operations],
        "undo": [operation_words(operation) for operation in act.undo],
        "limit": sum(longest_s(operation) + END_S for operation in act.operations),
    }


def longest_s(operation: Operation) -> float:
    """The longest that an operation may take, with a Docker Engine that restarts in the middle of it."""
    match operation:
        case Command():
            check_s = operation.done_when.limit_s if operation.done_when else 0.0
            return operation.limit_s + (operation.again_s or 0.0) + check_s
        case DockerCall():
            check_s = operation.done_when.within_s if operation.done_when else 0.0
            return operation.limit_s * 2 + (operation.again_s or 0.0) + check_s + RETURN_S
        case Expect():
            return operation.within_s + RETURN_S
        case Signal():
            return operation.ends_within_s + GET_LIMIT_S
        case ImagePull():
            return operation.limit_s + RETURN_S
        case Transfer():  # the same transfer by another run may have to end first
            return operation.command.limit_s + longest_s(operation.command)


# --- how it went


def result_of(words: Mapping[str, Any]) -> OperationResult:
    """The result of one operation."""
    code = words.get("code")
    return OperationResult(
        index=whole_or_none(words.get("index")) or 0,
        is_undo=words.get("undo") is True,
        ok=words.get("ok") is True,
        code=whole_or_none(code),
        output=text_of(words.get("output")),
        problem=sentence_of(words.get("problem")),
        seconds=_seconds(words.get("seconds")) or 0.0,
        was_done=words.get("was_done") is True,
        is_untouched=words.get("untouched") is True,
        was_ended=words.get("ended") is True,
        brought_bytes=whole_or_none(words.get("bytes")),
        free_bytes=whole_or_none(words.get("free")),
    )


def outcome_of(words: Mapping[str, Any]) -> Outcome:
    """The outcome of a step; an unknown state becomes GONE, which must be checked."""
    state = words.get("state")
    results = words.get("results")
    saved = words.get("saved")
    undone = words.get("undone")
    return Outcome(
        state=OutcomeState(state) if state in tuple(OutcomeState) else OutcomeState.GONE,
        results=tuple(result_of(result) for result in _list(results) if isinstance(result, dict)),
        problem=sentence_of(words.get("problem")),
        undone=undone if isinstance(undone, bool) else None,
        saved={sanitise.name(key): sanitise.name(str(value)) for key, value in list(saved.items())[:MAX_SAVED]}
        if isinstance(saved, dict)
        else {},
        progress=progress_of(words["progress"]) if isinstance(words.get("progress"), dict) else None,
    )


def progress_of(words: Mapping[str, Any]) -> Progress:
    """How far an operation is."""
    done, total = whole_or_none(words.get("done")), whole_or_none(words.get("total"))
    return Progress(
        index=whole_or_none(words.get("index")) or 0,
        done_bytes=done if done is not None and done >= 0 else None,
        total_bytes=total if total is not None and total > 0 else None,
        words=sentence_of(words.get("words")),
    )


def holder_of(words: Mapping[str, Any]) -> LockHolder:
    """Who holds the node's lock."""
    return LockHolder(
        who=sanitise.name(sentence_of(words.get("who"))),
        what=sentence_of(words.get("what")),
        since_wall_s=_seconds(words.get("since")),
    )


# --- questions


def question_words(question: Question) -> Words:
    """A question as JSON-ready data."""
    match question:
        case PrivilegesQuestion():
            return {"privileges": 1}
        case OperatorKeys():
            raise TypeError("the operator's keys are no question for a node")
        case DockerGet():
            return {"get": {"path": question.path, "seconds": GET_LIMIT_S}}
        case DockerLog():
            path = f"/containers/{question.container_id}/logs?stdout=1&stderr=1&timestamps=1&tail={question.lines}"
            return {"get": {"path": path, "seconds": question.limit_s, "limit": question.limit_bytes, "from_end": True}}
        case Output():
            return {
                "output": {
                    "argv": list(question.argv),
                    "seconds": question.limit_s,
                    "limit": question.limit_bytes,
                    "from_end": question.is_tail,
                }
            }
        case FileText():
            return {"file": {"path": question.path, "limit": question.limit_bytes, "from_end": question.is_tail}}
        case ModelsOnDisk():
            return {"models": {"roots": list(question.roots), "cache": question.cache, "seconds": question.limit_s}}
        case RunNotes():
            return {"notes": 1}
        case NoteRun():
            return {"note": {"run": question.run_id, "entry": question.entry}}
        case HubModel():
            hub = {"repo": question.repo, "revision": question.revision, "hub": question.hub, "token": question.token}
            return {"hub": {**hub, "seconds": question.limit_s}}


def question_limit_s(question: Question) -> float:
    """How long its answer may take on the node."""
    return question.limit_s if isinstance(question, Output | DockerLog | ModelsOnDisk | HubModel) else GET_LIMIT_S


def answer_of(question: Question, words: Mapping[str, Any], text: str) -> Answer:
    """An answer: `words` is the last part of the reply, `text` all chunks before it.

    A command that failed has a problem, and its output until then as the value.
    """
    problem = sentence_of(words.get("problem"))
    if words.get("kind") == "refused":
        return Answer(problem=problem or "the runner refused it")
    if isinstance(question, PrivilegesQuestion):
        return Answer(value=privileges_of(words))
    code = whole_or_none(words.get("code"))
    if words.get("found") is not True:
        return Answer(problem=problem, code=code)
    if isinstance(question, DockerGet | ModelsOnDisk | HubModel | RunNotes):
        source = "Docker" if isinstance(question, DockerGet) else "the runner"
        if words.get("cut") is True:
            return Answer(problem=f"{source}'s answer is too long")
        try:
            return Answer(value=json_of(text), problem=problem, code=code)
        except ValueError:
            return Answer(problem=f"{source}'s answer can't be read")
    return Answer(value=text, problem=problem, code=code)


def privileges_of(words: Mapping[str, Any]) -> Privileges:
    """What the user may do on the node."""
    rules = words.get("sudo_rules")
    has_compose = words.get("has_compose")
    docker, sudo = words.get("docker"), words.get("sudo")
    return Privileges(
        is_root=words.get("is_root") is True,
        user=sanitise.name(str(words.get("user") or "")),
        docker=docker if docker in ("open", "denied") else "missing",
        sudo=sudo if sudo in ("free", "listed", "password", "denied", "tty") else "missing",
        sudo_rules=tuple(sanitise.line(str(rule)) for rule in _list(rules)),
        has_compose=has_compose if isinstance(has_compose, bool) else None,
    )


# --- values


def sentence_of(value: object) -> str:
    """One sanitised line for the operator."""
    return sanitise.line(" ".join(value.split()), limit=PROBLEM_CHARS) if isinstance(value, str) else ""


def text_of(value: object) -> str:
    """Several lines, each sanitised."""
    return "\n".join(sanitise.line(line) for line in value.splitlines()) if isinstance(value, str) else ""


def _seconds(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else bounds.seconds_of(value)
    except (TypeError, ValueError):
        return None


def _list(value: object) -> Sequence[Any]:
    """A list, cut where it is too long; empty for anything else."""
    return value[: bounds.MAX_ROWS] if isinstance(value, list) else ()
