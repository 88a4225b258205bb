"""Operations, questions and answers as the runner's protocol has them (`probe.runner` describes it). Pure.

What a planner reads (an answer's value) stays exact, because a relaunch has to be; every sentence meant for the
operator is sanitised here. Nothing of the node's is believed to have the type it should have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparktop import sanitise
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer
from sparktop.model.plan import Remote
from sparktop.operate.line import LockHolder, OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.survey import (
    Answer,
    Ask,
    AskPrivileges,
    DockerGet,
    DockerLog,
    FileText,
    HubModel,
    ModelsOnDisk,
    Output,
    Privileges,
)

Words = dict[str, Any]

RETURN_S = 60.0
"""How long the runner waits for a Docker Engine that went away, beyond an operation's own time."""
END_S = 15.0
"""For ending what took too long: TERM, then KILL, and a slow node."""
GET_LIMIT_S = 10.0
PROBLEM_CHARS = 1000


# --- operations


def operation_words(operation: Operation) -> Words:
    """One operation; what is empty is left out."""
    match operation:
        case Command():
            words: Words = {
                "do": "command",
                "argv": list(operation.argv),
                "root": operation.privilege is Privilege.ROOT,
                "limit": operation.limit_s,
                "accepts": list(operation.accepts),
                "environment": dict(operation.environment),
                "content": operation.content,
                "done_when": operation_words(operation.done_when) if operation.done_when else None,
            }
        case DockerCall():
            words = {
                "do": "docker",
                "method": operation.method,
                "path": operation.path,
                "query": dict(operation.query),
                "body": None if operation.body is None else dict(operation.body),
                "accepts": list(operation.accepts),
                "saves": operation.saves,
                "limit": operation.limit_s,
                "done_when": operation_words(operation.done_when) if operation.done_when else None,
            }
        case Expect():
            words = {
                "do": "expect",
                "path": operation.path,
                "equals": dict(operation.equals),
                "otherwise": operation.otherwise,
                "within": operation.within_s,
            }
        case Signal():
            words = {
                "do": "signal",
                "pid": operation.pid,
                "started": operation.started_ticks,
                "signal": operation.signal,
                "root": operation.privilege is Privilege.ROOT,
                "ends_within": operation.ends_within_s,
                "must_end": operation.must_end,
            }
        case ImagePull():
            words = {"do": "pull", "image": operation.image, "limit": operation.limit_s}
        case Transfer():
            words = {
                "do": "transfer",
                "command": operation_words(operation.command),
                "grows": operation.grows,
                "key": operation.key,
                "total": operation.total_bytes,
            }
    return {key: value for key, value in words.items() if key == "body" or not _is_left_out(value)}


def _is_left_out(value: object) -> bool:
    return value is None or value is False or value == "" or value == {}


def operation_of(words: Mapping[str, Any]) -> Operation:
    """The operation that these words mean: for whoever stands in for a runner.

    Raises:
        KeyError, ValueError, TypeError: they mean none.
    """
    match words["do"]:
        case "command":
            return _command(words)
        case "docker":
            done_when = words.get("done_when")
            return DockerCall(
                method=words["method"],
                path=words["path"],
                query=words.get("query", {}),
                body=words.get("body"),
                accepts=tuple(words["accepts"]),
                saves=words.get("saves", ""),
                limit_s=words["limit"],
                done_when=_expect(done_when) if done_when else None,
            )
        case "expect":
            return _expect(words)
        case "signal":
            return Signal(
                pid=words["pid"],
                started_ticks=words["started"],
                signal=words["signal"],
                privilege=Privilege.ROOT if words.get("root") else Privilege.USER,
                ends_within_s=words.get("ends_within", 0.0),
                must_end=words.get("must_end", False),
            )
        case "pull":
            return ImagePull(image=words["image"], limit_s=words["limit"])
        case "transfer":
            return Transfer(
                command=_command(words["command"]),
                grows=words["grows"],
                key=words["key"],
                total_bytes=words.get("total"),
            )
    raise ValueError("no operation of this protocol")


def _command(words: Mapping[str, Any]) -> Command:
    return Command(
        argv=tuple(words["argv"]),
        privilege=Privilege.ROOT if words.get("root") else Privilege.USER,
        limit_s=words["limit"],
        accepts=tuple(words["accepts"]),
        environment=words.get("environment", {}),
        content=words.get("content", ""),
        done_when=_command(words["done_when"]) if words.get("done_when") else None,
    )


def _expect(words: Mapping[str, Any]) -> Expect:
    return Expect(
        path=words["path"],
        equals=words.get("equals", {}),
        otherwise=words.get("otherwise", ""),
        within_s=words.get("within", 0.0),
    )


def step_words(run_id: str, step_id: str, act: Remote) -> Words:
    """A whole step."""
    return {
        "run": run_id,
        "step": step_id,
        "operations": [operation_words(operation) for operation in act.operations],
        "undo": [operation_words(operation) for operation in act.undo],
        "limit": sum(longest_s(operation) + END_S for operation in act.operations),
    }


def longest_s(operation: Operation) -> float:
    """The longest that an operation may take, with a Docker Engine that is restarted in the middle of it."""
    match operation:
        case Command():
            return operation.limit_s + (operation.done_when.limit_s if operation.done_when else 0.0)
        case DockerCall():
            asked_s = operation.done_when.within_s if operation.done_when else 0.0
            return operation.limit_s * 2 + asked_s + RETURN_S
        case Expect():
            return operation.within_s + RETURN_S
        case Signal():
            return operation.ends_within_s + GET_LIMIT_S
        case ImagePull():
            return operation.limit_s + RETURN_S
        case Transfer():  # the same one of another run may have to be waited for first
            return operation.command.limit_s + longest_s(operation.command)


# --- how it went


def result_of(words: Mapping[str, Any]) -> OperationResult:
    """One operation's end."""
    code = words.get("code")
    return OperationResult(
        index=whole_of(words.get("index")) or 0,
        is_undo=words.get("undo") is True,
        ok=words.get("ok") is True,
        code=whole_of(code),
        output=text_of(words.get("output")),
        problem=sentence_of(words.get("problem")),
        seconds=_number(words.get("seconds")) or 0.0,
        was_done=words.get("was_done") is True,
        is_untouched=words.get("untouched") is True,
        was_ended=words.get("ended") is True,
        brought_bytes=whole_of(words.get("bytes")),
    )


def outcome_of(words: Mapping[str, Any]) -> Outcome:
    """How a step ended. A state that isn't one of ours means that it has to be looked at."""
    state = words.get("state")
    results = words.get("results")
    saved = words.get("saved")
    undone = words.get("undone")
    return Outcome(
        state=OutcomeState(state) if state in tuple(OutcomeState) else OutcomeState.GONE,
        results=tuple(result_of(one) for one in results if isinstance(one, dict)) if isinstance(results, list) else (),
        problem=sentence_of(words.get("problem")),
        undone=undone if isinstance(undone, bool) else None,
        saved={sanitise.name(key): sanitise.name(str(value)) for key, value in saved.items()}
        if isinstance(saved, dict)
        else {},
        progress=progress_of(words["progress"]) if isinstance(words.get("progress"), dict) else None,
    )


def progress_of(words: Mapping[str, Any]) -> Progress:
    """How far an operation is."""
    done, total = whole_of(words.get("done")), whole_of(words.get("total"))
    return Progress(
        index=whole_of(words.get("index")) or 0,
        done_bytes=done if done is not None and done >= 0 else None,
        total_bytes=total if total is not None and total > 0 else None,
        words=sentence_of(words.get("words")),
    )


def holder_of(words: Mapping[str, Any]) -> LockHolder:
    """Who has the node."""
    return LockHolder(
        who=sanitise.name(str(words.get("who") or "")),
        what=sentence_of(words.get("what")),
        since_wall_s=_number(words.get("since")),
    )


# --- questions


def ask_words(ask: Ask) -> Words:
    """A question."""
    match ask:
        case AskPrivileges():
            return {"privileges": 1}
        case DockerGet():
            return {"get": {"path": ask.path, "seconds": GET_LIMIT_S}}
        case DockerLog():
            path = f"/containers/{ask.container_id}/logs?stdout=1&stderr=1&timestamps=1&tail={ask.lines}"
            return {"get": {"path": path, "seconds": ask.limit_s, "limit": ask.limit_bytes, "from_end": True}}
        case Output():
            return {
                "output": {
                    "argv": list(ask.argv),
                    "seconds": ask.limit_s,
                    "limit": ask.limit_bytes,
                    "from_end": ask.is_tail,
                }
            }
        case FileText():
            return {"file": {"path": ask.path, "limit": ask.limit_bytes, "from_end": ask.is_tail}}
        case ModelsOnDisk():
            return {"models": {"roots": list(ask.roots), "seconds": ask.limit_s}}
        case HubModel():
            hub = {"repo": ask.repo, "revision": ask.revision, "hub": ask.hub, "token": ask.token}
            return {"hub": {**hub, "seconds": ask.limit_s}}


def ask_limit_s(ask: Ask) -> float:
    """How long its answer may take on the node."""
    return ask.limit_s if isinstance(ask, Output | DockerLog | ModelsOnDisk | HubModel) else GET_LIMIT_S


def answer_of(ask: Ask, words: Mapping[str, Any], text: str) -> Answer:
    """An answer: `words` are the last of the reply, `text` all chunks before.

    A command that ended badly has a problem, and what it had said by then as its value.
    """
    problem = sentence_of(words.get("problem"))
    if words.get("kind") == "refused":
        return Answer(problem=problem or "the runner refused it")
    if isinstance(ask, AskPrivileges):
        return Answer(value=privileges_of(words))
    if words.get("found") is not True:
        return Answer(problem=problem)
    if isinstance(ask, DockerGet | ModelsOnDisk | HubModel):
        who = "Docker" if isinstance(ask, DockerGet) else "the runner"
        if words.get("cut") is True:
            return Answer(problem=f"{who}'s answer is too long")
        try:
            return Answer(value=json.loads(text), problem=problem)
        except (ValueError, RecursionError):
            return Answer(problem=f"{who}'s answer can't be read")
    return Answer(value=text, problem=problem)


def privileges_of(words: Mapping[str, Any]) -> Privileges:
    rules = words.get("sudo_rules")
    has_compose = words.get("has_compose")
    docker, sudo = words.get("docker"), words.get("sudo")
    return Privileges(
        is_root=words.get("is_root") is True,
        user=sanitise.name(str(words.get("user") or "")),
        docker=docker if docker in ("open", "denied") else "missing",
        sudo=sudo if sudo in ("free", "listed", "password", "denied", "tty") else "missing",
        sudo_rules=tuple(sanitise.line(str(rule)) for rule in rules) if isinstance(rules, list) else (),
        has_compose=has_compose if isinstance(has_compose, bool) else None,
    )


# --- values


def sentence_of(value: object) -> str:
    """One line for the operator."""
    return sanitise.line(" ".join(value.split()), limit=PROBLEM_CHARS) if isinstance(value, str) else ""


def text_of(value: object) -> str:
    """Several lines, each sanitised."""
    return "\n".join(sanitise.line(line) for line in value.splitlines()) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole_of(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
