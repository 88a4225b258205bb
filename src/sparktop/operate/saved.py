"""Ids that a step has saved (a container made by it), put into later steps on the same node. Pure.

A plan is made before the container is: what it does to the new one afterwards (its policy, its guard, setting it aside
on the way back) says "{NEW}" where the id belongs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.plan import Act, AwaitReady, CollectEvidence, GuardOrder, Remote

_NAME = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


def filled(act: Act, saved: Mapping[str, str]) -> Act | None:
    """The act with what earlier steps on its node saved; None where it names what none of them did.

    Then there is nothing to act on: the container was never made, and the step is skipped.
    """
    if isinstance(act, GuardOrder | AwaitReady):
        name = _NAME.fullmatch(act.container_id)
        if name is None:
            return act
        return replace(act, container_id=saved[name[1]]) if name[1] in saved else None
    if isinstance(act, CollectEvidence):
        return None if act.needs and act.needs not in saved else act
    if not isinstance(act, Remote):
        return act
    own = {one.saves for one in act.operations if isinstance(one, DockerCall) and one.saves}
    known = {name: value for name, value in saved.items() if name not in own}
    operations = tuple(_operation(one, known) for one in act.operations)
    undo = tuple(_operation(one, known) for one in act.undo)
    if any(_unknown(one) - own for one in operations):
        return None
    return replace(act, operations=operations, undo=undo)


def _operation(operation: Operation, saved: Mapping[str, str]) -> Operation:
    if isinstance(operation, Expect):
        equals = {key: _text(value, saved) for key, value in operation.equals.items()}
        return replace(operation, path=_text(operation.path, saved), equals=equals)
    if isinstance(operation, DockerCall):
        done = operation.done_when
        return replace(
            operation,
            path=_text(operation.path, saved),
            body={key: _text(value, saved) for key, value in operation.body.items()}
            if operation.body
            else operation.body,
            done_when=replace(done, path=_text(done.path, saved)) if done else None,
        )
    return operation


def _text(value: Any, saved: Mapping[str, str]) -> Any:
    """Only a value of its own is a name: inside a longer text only a path's part is."""
    if not isinstance(value, str):
        return value
    if value.startswith("/"):
        return "/" + "/".join(str(_text(part, saved)) for part in value[1:].split("/"))
    name = _NAME.fullmatch(value)
    return saved.get(name[1], value) if name else value


def _unknown(operation: Operation) -> set[str]:
    texts: list[str] = []
    if isinstance(operation, DockerCall | Expect):
        texts += operation.path.split("/")
    if isinstance(operation, DockerCall) and operation.body:
        texts += [value for value in operation.body.values() if isinstance(value, str)]
    return {name[1] for text in texts if (name := _NAME.fullmatch(text))}
