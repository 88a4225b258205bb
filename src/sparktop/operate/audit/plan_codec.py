"""Rollback steps as the audit keeps them, whole, so that a later console can still plan them. Pure.

Only steps that hold no secret and mean the same another day are kept. A step that would be masked, or that has file
contents, signals or pids, is not; then none of the rollback is kept. `masking.operation_entry` is for reading; this
is for doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, get_type_hints

from sparktop import sanitise
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.runner.codec import operation_of, operation_words
from sparktop.operate.secrets.masking import Masker
from sparktop.operate.step.act import Act
from sparktop.operate.step.plan import OnFailure, Step

Words = dict[str, Any]
_LOCAL: Mapping[str, type[Act]] = {
    kind.__name__: kind for kind in (AwaitGone, AwaitMemory, AwaitReady, AwaitServing, CollectEvidence, GuardOrder)
}


def encoded_steps(steps: Sequence[Step], masker: Masker) -> list[Words] | None:
    """The steps as JSON-ready data; None where one of them can't be kept."""
    encoded = [_encoded_step(step) for step in steps]
    complete = [words for words in encoded if words is not None]
    return complete if len(complete) == len(encoded) and masker.data(complete) == complete else None


def decoded_steps(data: object) -> tuple[Step, ...]:
    """The steps from that data; empty where it is not valid (anybody may have written the file)."""
    try:
        return tuple(_decoded_step(words) for words in data) if isinstance(data, list) else ()
    except (KeyError, ValueError, TypeError, AttributeError):
        return ()


def _encoded_step(step: Step) -> Words | None:
    act = _encoded_act(step.act)
    if act is None:
        return None
    return {
        "id": step.id,
        "title": step.title,
        "node": step.node,
        "limit_s": step.limit_s,
        "verifies": step.verifies,
        "undone_by": "; ".join(step.act.undoing()),
        "undoes": list(step.undoes),
        **({"stops": step.stops} if step.stops else {}),
        "on_failure": str(step.on_failure),
        "needs_nodes": list(step.needs_nodes),
        "do": act,
    }


def _encoded_act(act: Act) -> Words | None:
    if not act.is_kept:
        return None
    if isinstance(act, Remote):
        return {
            "remote": [operation_words(operation) for operation in act.operations],
            "undo": [operation_words(operation) for operation in act.undo],
        }
    words: Words = {"local": type(act).__name__}
    for field in fields(act):
        value = getattr(act, field.name)
        if field.default is MISSING or value != field.default:
            words[field.name] = _listed(value)
    return words


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _decoded_step(words: Mapping[str, Any]) -> Step:
    act = _decoded_act(words["do"])
    if isinstance(act, Remote):
        act = replace(act, reverse=sanitise.line(str(words["undone_by"])) or None)
    return Step(
        id=str(words["id"]),
        title=sanitise.line(str(words["title"])),
        node=str(words["node"]),
        act=act,
        limit_s=float(words["limit_s"]),
        verifies=sanitise.line(str(words["verifies"])),
        undoes=_texts(words["undoes"]),
        stops=sanitise.line(str(words.get("stops", ""))),
        on_failure=OnFailure(words["on_failure"]),
        needs_nodes=_texts(words["needs_nodes"]),
    )


def _decoded_act(words: Mapping[str, Any]) -> Act:
    if "remote" in words:
        act = Remote(operations=tuple(map(operation_of, words["remote"])), undo=tuple(map(operation_of, words["undo"])))
        if not act.is_kept:
            raise ValueError("no step of a way back")
        return act
    kind = _LOCAL[words["local"]]
    hints = get_type_hints(kind)
    arguments = {name: _checked(value, hints[name]) for name, value in words.items() if name != "local"}
    return kind(**arguments)


def _checked(value: Any, hint: object) -> Any:
    """A field's value, if it has the field's type.

    Raises:
        ValueError: it has another type.
    """
    if isinstance(value, list):
        checked: Any = tuple(tuple(item) if isinstance(item, list) else item for item in value)
        is_right = str(hint).startswith("tuple")
    else:
        checked = value
        types = {str: str, bool: bool, int: int}
        is_right = type(value) is types.get(hint, object) or (  # type: ignore[call-overload]
            isinstance(value, int | float) and not isinstance(value, bool) and "float" in str(hint)
        )
    if not is_right:
        raise ValueError(f"{value!r} is no {hint}")
    return checked


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("no list of texts")
    return tuple(value)
