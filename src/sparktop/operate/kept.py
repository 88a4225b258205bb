"""A way back as the audit keeps it, whole, so that a console that comes later can still plan it. Pure.

Only what holds no secret and still means the same another day: what would be masked, files' contents, signals and pids
are not kept, and then none of the way back is. `described` is for reading; this is for doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from sparktop import sanitise
from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.model.plan import (
    Act,
    AwaitGone,
    AwaitMemory,
    AwaitReady,
    CollectEvidence,
    GuardOrder,
    OnFailure,
    Remote,
    Step,
)
from sparktop.operate.masking import Masker
from sparktop.operate.runnerwords import operation_of, operation_words

Words = dict[str, Any]
Local = AwaitGone | AwaitMemory | AwaitReady | CollectEvidence | GuardOrder
_LOCAL: tuple[type[Local], ...] = (AwaitGone, AwaitMemory, AwaitReady, CollectEvidence, GuardOrder)
_BY_NAME = {one.__name__: one for one in _LOCAL}


def kept(steps: Sequence[Step], masker: Masker) -> list[Words] | None:
    """The steps as JSON-ready data; None where one of them can't be kept."""
    found = [_step(step) for step in steps]
    whole = [words for words in found if words is not None]
    return whole if len(whole) == len(found) and masker.data(whole) == whole else None


def steps_of(data: object) -> tuple[Step, ...]:
    """The steps again; empty where they are none: the file is somebody's."""
    try:
        return tuple(_step_of(words) for words in data) if isinstance(data, list) else ()
    except (KeyError, ValueError, TypeError, AttributeError):
        return ()


def _step(step: Step) -> Words | None:
    act = _act(step.act)
    if act is None:
        return None
    return {
        "id": step.id,
        "title": step.title,
        "node": step.node,
        "limit_s": step.limit_s,
        "verifies": step.verifies,
        "undone_by": step.undone_by,
        "undoes": list(step.undoes),
        "on_failure": str(step.on_failure),
        "needs_nodes": list(step.needs_nodes),
        "do": act,
    }


def _act(act: Act) -> Words | None:
    if isinstance(act, Remote):
        operations = (*act.operations, *act.undo)
        if not operations or act.takes_link or not all(map(_can_be_kept, operations)):
            return None
        return {
            "remote": [operation_words(one) for one in act.operations],
            "undo": [operation_words(one) for one in act.undo],
        }
    if not isinstance(act, _LOCAL) or (isinstance(act, AwaitGone) and act.pids):
        return None
    words: Words = {"local": type(act).__name__}
    for one in fields(act):
        value = getattr(act, one.name)
        if one.default is MISSING or value != one.default:
            words[one.name] = _listed(value)
    return words


def _can_be_kept(operation: object) -> bool:
    if isinstance(operation, Command):
        return not (operation.content or operation.environment)
    return isinstance(operation, DockerCall | Expect)


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


def _step_of(words: Mapping[str, Any]) -> Step:
    return Step(
        id=str(words["id"]),
        title=sanitise.line(str(words["title"])),
        node=str(words["node"]),
        act=_act_of(words["do"]),
        limit_s=float(words["limit_s"]),
        verifies=sanitise.line(str(words["verifies"])),
        undone_by=sanitise.line(str(words["undone_by"])),
        undoes=_texts(words["undoes"]),
        on_failure=OnFailure(words["on_failure"]),
        needs_nodes=_texts(words["needs_nodes"]),
    )


def _act_of(words: Mapping[str, Any]) -> Act:
    if "remote" in words:
        act = Remote(operations=tuple(map(operation_of, words["remote"])), undo=tuple(map(operation_of, words["undo"])))
        if not act.operations or not all(map(_can_be_kept, (*act.operations, *act.undo))):
            raise ValueError("no step of a way back")
        return act
    made = _BY_NAME[words["local"]]
    hints = get_type_hints(made)
    given = {name: _checked(value, hints[name]) for name, value in words.items() if name != "local"}
    return made(**given)


def _checked(value: Any, hint: object) -> Any:
    """A field's value, if it is of the field's kind.

    Raises:
        ValueError: it isn't.
    """
    if isinstance(value, list):
        found: Any = tuple(tuple(one) if isinstance(one, list) else one for one in value)
        right = str(hint).startswith("tuple")
    else:
        found = value
        kinds = {str: str, bool: bool, int: int}
        right = type(value) is kinds.get(hint, object) or (  # type: ignore[call-overload]
            isinstance(value, int | float) and not isinstance(value, bool) and "float" in str(hint)
        )
    if not right:
        raise ValueError(f"{value!r} is no {hint}")
    return found


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("no list of texts")
    return tuple(value)
