"""What a step has saved, put into later steps: ids of containers that it created, public keys that it made. Pure.

A plan is made before the container exists: what is done to the new one later (its policy, its guard, moving it aside
on rollback) says "{NEW}" where its id belongs. "{KEY0}" in a command is a public key that a step, on whatever node, has
saved under that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.model.operation import Command, DockerCall, Expect, Operation

_NAME = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


_KEY = re.compile(r"(?<!\$)\{(KEY[0-9]+)\}")
"""Not a shell's own "${KEY0}", as in a recipe's commands."""
PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}={0,2}")


def saved_for(node: str, saved: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What a step on this node may use, of what all nodes have saved: its own, and the public keys of every node."""
    keys = {name: value for values in saved.values() for name, value in values.items() if PUBLIC_KEY.fullmatch(value)}
    return {**keys, **saved.get(node, {})}


def fill_id(container_id: str, saved: Mapping[str, str]) -> str | None:
    """The id that an earlier step saved, for its placeholder; None where it was never saved."""
    name = _NAME.fullmatch(container_id)
    return container_id if name is None else saved.get(name[1])


def fill_operations(
    saved: Mapping[str, str], operations: Sequence[Operation], *undoing: Sequence[Operation]
) -> tuple[tuple[Operation, ...], ...] | None:
    """Operations, and what undoes them, with the ids that earlier steps on their node saved; None where an id was
    never saved."""
    own_names = {operation.saves for operation in operations if isinstance(operation, DockerCall) and operation.saves}
    ids = {name: value for name, value in saved.items() if name not in own_names}
    filled = tuple(tuple(_fill_operation(operation, ids) for operation in part) for part in (operations, *undoing))
    return None if any(_placeholders(operation) - own_names for operation in filled[0]) else filled


def fill_command(command: str, saved: Mapping[str, str]) -> str:
    """The command with the ids in short; empty where one was never saved."""
    for name, value in saved.items():
        command = command.replace("{" + name + "}", value if PUBLIC_KEY.fullmatch(value) else value[:12])
    return "" if _NAME.search(command) else command


def _fill_operation(operation: Operation, saved: Mapping[str, str]) -> Operation:
    if isinstance(operation, Expect):
        equals = {key: _fill_text(value, saved) for key, value in operation.equals.items()}
        return replace(operation, path=_fill_text(operation.path, saved), equals=equals)
    if isinstance(operation, DockerCall):
        done, only = operation.done_when, operation.only_where
        return replace(
            operation,
            path=_fill_text(operation.path, saved),
            body={key: _fill_text(value, saved) for key, value in operation.body.items()}
            if operation.body
            else operation.body,
            done_when=replace(done, path=_fill_text(done.path, saved)) if done else None,
            only_where=replace(only, path=_fill_text(only.path, saved)) if only else None,
        )
    return _fill_keys(operation, saved) if isinstance(operation, Command) else operation


def _fill_keys(command: Command, saved: Mapping[str, str]) -> Command:
    def fill(text: str) -> str:
        return _KEY.sub(lambda name: saved.get(name[1], name[0]), text)

    return replace(
        command,
        argv=tuple(map(fill, command.argv)),
        content=fill(command.content),
        done_when=_fill_keys(command.done_when, saved) if command.done_when else None,
    )


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
    if isinstance(operation, Command):
        return {name for text in (*operation.argv, operation.content) for name in _KEY.findall(text)}
    texts: list[str] = []
    if isinstance(operation, DockerCall | Expect):
        texts += operation.path.split("/")
    if isinstance(operation, DockerCall) and operation.body:
        texts += [value for value in operation.body.values() if isinstance(value, str)]
    return {name[1] for text in texts if (name := _NAME.fullmatch(text))}
