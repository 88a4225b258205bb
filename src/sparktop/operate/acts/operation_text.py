"""Operations as text: as a person would type them, or as the exact commands and calls. Pure.

Remote text is sanitised, and what looks like a secret is masked; known secrets are masked by who shows it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlencode

from sparktop import sanitise
from sparktop.masking import MASK, is_secret_name, mask_argv
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer

CREATE = "/containers/create"
_CONTENT = re.compile(r"'([\w=]*)\{content\}'")
"""In a command's words: the file with its text, see `Command`."""
_CHECKS = frozenset(("test", "grep", "cmp", "awk"))
"""Programs that change nothing."""
_SYSTEM_FOLDER = re.compile(r"^/usr/s?bin/")
_OWN_MANAGER = "XDG_RUNTIME_DIR=/run/user/"
"""A login has it already."""
MAX_BODY_CHARS = 300
"""A longer body is shown by its size only: it is docker inspect's, with the differences that the review shows."""
_SHOWN_VARIABLE = re.compile(r"HF_\w+=(?:\d{1,3}|/[\w./-]*)")
"""Variables of the hub's command line that are shown; the values of all others are masked."""
_CONTAINER_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def operation_lines(operation: Operation) -> Iterator[str]:
    """The exact command or call."""
    match operation:
        case Command():
            yield f"{_sudo(operation.privilege)}{''.join(_assignments(operation))}{joined(operation.argv)}"
        case Signal():
            yield f"{_sudo(operation.privilege)}{joined(operation.argv)}   # if it is still that process"
        case DockerCall():
            query = f"?{urlencode(operation.query)}" if operation.query else ""
            body = f"  {_body(operation)}" if operation.body else ""
            yield f"docker: {operation.method} {_short(operation.path)}{_short(query)}{body}{_only_where(operation)}"
        case Expect():
            yield f"docker: GET {_short(operation.path)} must say {_facts(operation)}"
        case ImagePull():
            yield f"docker pull {shlex.quote(sanitise.line(operation.image))}"
        case Transfer():
            yield from operation_lines(operation.command)


def _sudo(privilege: Privilege) -> str:
    return "sudo " if privilege is Privilege.ROOT else ""


def _assignments(command: Command) -> Iterator[str]:
    for name, value in command.environment.items():
        text = shlex.quote(value) if _SHOWN_VARIABLE.fullmatch(f"{name}={value}") and not is_secret_name(name) else MASK
        yield f"{shlex.quote(name)}={text} "


def joined(argv: Sequence[str]) -> str:
    """An argv as a shell would take it, secrets masked."""
    return shlex.join(mask_argv(argv))


def _facts(expected: Expect) -> str:
    return _short(", ".join(f"{name} = {json.dumps(value)}" for name, value in expected.equals.items()))


def _only_where(call: DockerCall) -> str:
    return f"  only where {_facts(call.only_where)}" if call.only_where else ""


def _body(call: DockerCall) -> str:
    text = json.dumps(_clean(call.body), ensure_ascii=False, default=str)
    if len(text) <= MAX_BODY_CHARS:
        return text
    count = len(call.body or {})
    return f"{{ {count} field{'s' if count != 1 else ''}, {len(text)} characters }}"


def _clean(value: Any) -> Any:
    """The value with all strings sanitised: JSON only escapes control characters, and a reader would restore them."""
    if isinstance(value, str):
        return sanitise.line(value)
    if isinstance(value, Mapping):
        return {sanitise.line(str(key)): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value


def _short(text: str) -> str:
    """The text with container ids cut to 12 characters, as Docker's tools show them."""
    return _CONTAINER_ID.sub(r"\1", text)


def container_in(path: str) -> str:
    """The container in a path of Docker's API: "/containers/ID/stop"; "" without one."""
    parts = path.split("/")
    return unquote(parts[2]) if len(parts) > 2 and parts[1] == "containers" else ""


def typed(operations: Iterable[Operation], names: dict[str, str]) -> Iterator[str]:
    """What they change, as a person would type it.

    `names`: of containers, by id or placeholder; what these operations check, create and rename is added.
    """
    for operation in operations:
        match operation:
            case Expect() if "Name" in operation.equals:
                names[container_in(operation.path)] = str(operation.equals["Name"]).lstrip("/")
            case DockerCall() if operation.path == CREATE:
                names[f"{{{operation.saves}}}"] = operation.query.get("name", operation.saves)
        yield from _typed(operation, names)
        if isinstance(operation, DockerCall) and operation.path.endswith("/rename") and "name" in operation.query:
            names[container_in(operation.path)] = operation.query["name"]


def typed_by_hand(operations: Sequence[Operation], names: dict[str, str]) -> Iterator[str]:
    """What does them by hand; nothing where they make a container, whose settings are too many for a line.

    A call that is made only where something holds is left out, and so is the kill after a stop, which kills by itself.
    """
    calls = [one for one in operations if isinstance(one, DockerCall)]
    if any(call.path == CREATE for call in calls):
        return
    kills = {f"{call.path.removesuffix('stop')}kill" for call in calls if call.path.endswith("/stop")}
    extra = [call for call in calls if call.only_where or call.path in kills]
    yield from typed([one for one in operations if one not in extra], names)


def _typed(operation: Operation, names: Mapping[str, str]) -> Iterator[str]:
    match operation:
        case Expect():
            return
        case Signal():
            yield f"{_sudo(operation.privilege)}kill -s {operation.signal} {operation.pid}"
        case DockerCall():
            key = container_in(operation.path)
            name = names.get(key, _short(key))
            is_placeholder = name == key and name.startswith("{")
            yield from _typed_call(operation, name if is_placeholder else shlex.quote(sanitise.line(name)))
        case Command():
            is_own = operation.argv[0] == "env" and operation.argv[1].startswith(_OWN_MANAGER)
            words = operation.argv[2:] if is_own else operation.argv
            argv = (_SYSTEM_FOLDER.sub("", words[0]), *words[1:])
            if argv[0] not in _CHECKS and "is-active" not in argv:
                yield from (_CONTENT.sub(r"\1…", line) for line in operation_lines(replace(operation, argv=argv)))
        case _:
            yield from operation_lines(operation)


def _typed_call(call: DockerCall, name: str) -> Iterator[str]:
    """The docker command that makes this call; one that only reads or waits has none."""
    verb, query, body = call.path.rpartition("/")[2], call.query, call.body or {}
    if call.method == "GET" or verb == "wait":
        return
    if call.method == "DELETE" and call.path.count("/") == 2:
        flags = "".join(f"-{flag[0]} " for flag in ("force", "v") if query.get(flag) == "true")
        yield f"docker rm {flags}{name}"
    elif verb == "create":
        made, image = (sanitise.line(str(text)) for text in (query.get("name", ""), body.get("Image", "")))
        yield f"docker create --name {shlex.quote(made)} … {shlex.quote(image) if image else ''}".rstrip()
    elif verb in ("stop", "restart") and "t" in query:
        yield f"docker {verb} -t {query['t']} {name}"
    elif verb == "kill":
        signal = query.get("signal", "KILL")
        yield f"docker kill {'' if signal == 'KILL' else f'-s {signal} '}{name}"
    elif verb == "rename":
        yield f"docker rename {name} {shlex.quote(sanitise.line(query.get('name', '')))}"
    elif verb == "update" and set(body) == {"RestartPolicy"}:
        policy = body["RestartPolicy"]
        most = f":{policy['MaximumRetryCount']}" if policy.get("MaximumRetryCount") else ""
        yield f"docker update --restart={shlex.quote(sanitise.line(str(policy['Name'])))}{most} {name}"
    elif verb in ("start", "stop", "restart", "pause", "unpause"):
        yield f"docker {verb} {name}"
    else:
        yield from operation_lines(call)
