"""Ids that a step has saved (of a container it created), put into later steps on the same node. Pure.

A plan is made before the container exists: what is done to the new one later (its policy, its guard, moving it aside
on rollback) says "{NEW}" where its id belongs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.plan import Act, AwaitReady, AwaitServing, CollectEvidence, GuardOrder, Remote

_NAME = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


def fill_placeholders(act: Act, saved: Mapping[str, str]) -> Act | None:
    """The act with the ids that earlier steps on its node saved; None where an id was never saved.

    None means there is nothing to act on: the container was never created, and the step is skipped. What is filled
    in needs nothing more: the step can stand in a later run, which has saved nothing.
    """
    if isinstance(act, GuardOrder | AwaitReady | AwaitServing):
        name = _NAME.fullmatch(act.container_id)
        if name is None:
            return act
        return replace(act, container_id=saved[name[1]]) if name[1] in saved else None
    if isinstance(act, CollectEvidence):
        if not act.needs:
            return act
        return replace(act, needs="") if act.needs in saved else None
    if not isinstance(act, Remote):
        return act
    own_names = {
        operation.saves for operation in act.operations if isinstance(operation, DockerCall) and operation.saves
    }
    ids = {name: value for name, value in saved.items() if name not in own_names}
    operations = tuple(_fill_operation(operation, ids) for operation in act.operations)
    undo = tuple(_fill_operation(operation, ids) for operation in act.undo)
    if any(_placeholders(operation) - own_names for operation in operations):
        return None
    return replace(act, operations=operations, undo=undo)


def fill_command(command: str, saved: Mapping[str, str]) -> str:
    """The command with the ids in short; empty where one was never saved."""
    for name, container_id in saved.items():
        command = command.replace("{" + name + "}", container_id[:12])
    return "" if _NAME.search(command) else command


def _fill_operation(operation: Operation, saved: Mapping[str, str]) -> Operation:
    if isinstance(operation, Expect):
        equals = {key: _fill_text(value, saved) for key, value in operation.equals.items()}
        return replace(operation, path=_fill_text(operation.path, saved), equals=equals)
    if isinstance(operation, DockerCall):
        done = operation.done_when
        return replace(
            operation,
            path=_fill_text(operation.path, saved),
            body={key: _fill_text(value, saved) for key, value in operation.body.items()}
            if operation.body
            else operation.body,
            done_when=replace(done, path=_fill_text(done.path, saved)) if done else None,
        )
    return operation


def _fill_text(value: Any, saved: Mapping[str, str]) -> Any:
    """The value with its id filled in: only a whole value, or a whole part of a path, is a placeholder."""
    if not isinstance(value, str):
        return value
    if value.startswith("/"):
        return "/" + "/".join(str(_fill_text(part, saved)) for part in value[1:].split("/"))
    name = _NAME.fullmatch(value)
    return saved.get(name[1], value) if name else value


def _placeholders(operation: Operation) -> set[str]:
    """The placeholders that an operation still has."""
    texts: list[str] = []
    if isinstance(operation, DockerCall | Expect):
        texts += operation.path.split("/")
    if isinstance(operation, DockerCall) and operation.body:
        texts += [value for value in operation.body.values() if isinstance(value, str)]
    return {name[1] for text in texts if (name := _NAME.fullmatch(text))}
