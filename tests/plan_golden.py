"""Golden files of plans: every field of a plan as text, and the comparison with the file that is kept.

A rewrite that changes no plan changes none of these files. The text names no Python module and no class, which may be
renamed: operations stand as the runner's protocol has them, acts under the words below, everything else by field names.

    title: Restart vllm on spark1
    steps:
      - id: stop
        act: remote
          operations:
            - {"do": "docker", "method": "POST", "path": "/containers/0123/stop", "query": {"t": "60"}, ...}

What is empty by default is left out. A string with line breaks stands as a block of lines, each after "| "; a secret as
<secret 1>, by its place in Plan.secrets; a recipe as its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from hashlib import blake2s
from typing import Any, get_args

from tests.golden import compare

from sparktop.masking import is_secret_name
from sparktop.model.operation import Operation
from sparktop.model.prospect import Prospect
from sparktop.model.recipe import Recipe
from sparktop.operate.runner.codec import operation_words
from sparktop.operate.step.act import Act
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step

WIDTH = 120
WORD_CHARACTERS, WORD_BLANKS = 60, 5
"""A value up to so long is a word: a mapping's words stand first, side by side."""
OPERATIONS = get_args(Operation)
ACTS = {
    "AwaitGone": "wait until gone",
    "AwaitMemory": "wait for memory",
    "AwaitReady": "wait until ready",
    "AwaitServing": "check that it serves",
    "AwaitResolved": "wait until resolved",
    "AwaitBack": "wait until back",
    "CheckExposed": "check what is exposed",
    "CheckLogin": "check the login",
    "MeasureLink": "measure the link",
    "MeasureCollective": "measure the collective",
    "MeasurePower": "measure the power",
    "GuardOrder": "guard",
}
"""What acts are called here whose names in words, "smoke test", read worse."""


def _act_word(act: Act) -> str:
    name = type(act).__name__
    return ACTS.get(name) or re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


def compare_plan(name: str, plan: Plan | Refusal, *, with_files: bool = True) -> None:
    """Compare every field with tests/cases/plans/NAME.txt."""
    compare(f"plans/{name}", dump(plan, with_files=with_files))


def dump(plan: Plan | Refusal, *, with_files: bool = True) -> str:
    """Every field of a plan or refusal, what it contains included.

    Args:
        with_files: a launch's exported files in full; else their sizes and digests.
    """
    return "\n".join(_lines(_Reader(_secrets(plan), with_files=with_files).tree(plan)))


def _secrets(plan: Plan | Refusal) -> tuple[str, ...]:
    request = plan.request
    known = [
        *(plan.secrets if isinstance(plan, Plan) else ()),
        *(request.order.secrets.values() if request.order is not None else ()),
        *(value for name, value in request.change.environment.items() if value and is_secret_name(name)),
    ]
    return tuple(dict.fromkeys(filter(None, known)))


# --- from a plan to names and plain values


class _Named(dict[str, Any]):
    """A dataclass's fields; `word` says which act it is."""

    word = ""


class _Reader:
    """Dataclasses, mappings and sequences as plain values, without secrets."""

    def __init__(self, secrets: Sequence[str], *, with_files: bool) -> None:
        numbered = [(one, f"<secret {number}>") for number, one in enumerate(secrets, 1)]
        self._secrets = sorted(numbered, key=lambda pair: len(pair[0]), reverse=True)
        self._with_files = with_files
        self._way_back: Sequence[Step] = ()

    def tree(self, value: Any) -> Any:
        if isinstance(value, OPERATIONS):
            return self.tree(operation_words(value))
        if isinstance(value, Recipe):  # what was asked for, not what became of it
            return value.id
        if is_dataclass(value) and not isinstance(value, type):
            return self._named(value)
        if isinstance(value, Enum):
            return self.tree(value.value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self.tree(item) for key, item in value.items()}
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, set | frozenset):
            return [self.tree(item) for item in sorted(value)]
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        assert value is None or isinstance(value, bool | int | float), f"no text for {value!r}"
        return value

    def _named(self, value: Any) -> _Named:
        named = _Named()
        self._way_back = value.rollback if isinstance(value, Plan) else self._way_back
        named.word = _act_word(value) if isinstance(value, Act) else ""
        for field in fields(value):
            if field.name == "reverse" and isinstance(value, Act):
                continue  # never carried out: its step has what is typed
            item = self.tree(getattr(value, field.name))
            if isinstance(value, Prospect) and field.name == "files" and not self._with_files:
                item = {kind: {name: _digest(text) for name, text in files.items()} for kind, files in item.items()}
            if not (_is_empty(item) and self._is_default(item, field)):
                named[field.name] = item
        if isinstance(value, Step):
            named |= {"undone_by": self._text("; ".join(undoing))} if (undoing := value.act.undoing()) else {}
            if any(value is one for one in self._way_back) or value.on_failure is OnFailure.FAIL_AT_END:
                named |= {"by_hand": self._text("; ".join(typed))} if (typed := value.act.commands()) else {}
        return named

    def _is_default(self, item: Any, field: Field[Any]) -> bool:
        if field.default_factory is not MISSING:
            return bool(item == self.tree(field.default_factory()))
        return field.default is not MISSING and bool(item == self.tree(field.default))

    def _text(self, text: str) -> str:
        for secret, shown in self._secrets:
            text = text.replace(secret, shown)
        return text


def _digest(text: str) -> str:
    return f"{len(text.splitlines())} lines, BLAKE2s {blake2s(text.encode(), digest_size=8).hexdigest()}"


def _is_empty(item: Any) -> bool:
    """Numbers never are."""
    if isinstance(item, _Named):
        return not item and not item.word
    return item is None or item is False or (isinstance(item, str | list | dict) and not item)


# --- from plain values to text


def _lines(value: Any, indent: int = 0) -> Iterator[str]:
    """A mapping's words, then its other entries; or a sequence's items, each on one line where it fits."""
    pad = " " * indent
    if isinstance(value, dict):
        words = {key: item for key, item in value.items() if _is_word(item)}
        yield from _joined([f"{_key(key, value)}: {_plain_word(item)}" for key, item in words.items()], pad)
        for key, item in value.items():
            if key not in words:
                yield from _entry(f"{pad}{_key(key, value)}:", item, indent)
        return
    for item in value:
        if _fits(item, indent + 2):
            yield f"{pad}- {_inline(item)}"
        elif isinstance(item, dict | list):
            first, *rest = _lines(item, indent + 2)
            yield f"{pad}- {first.lstrip()}"
            yield from rest
        else:
            yield from _entry(f"{pad}-", item, indent)


def _is_word(item: Any) -> bool:
    if _has_block(item) or (isinstance(item, str) and item.count(" ") > WORD_BLANKS):
        return False
    return len(_plain(item)) <= WORD_CHARACTERS


def _plain_word(item: Any) -> str:
    return _inline(item) if isinstance(item, str) and "," in item else _plain(item)


def _entry(head: str, item: Any, indent: int) -> Iterator[str]:
    pad = " " * (indent + 2)
    if isinstance(item, str) and "\n" in item:
        yield f"{head} |"
        yield from (f"{pad}| {line}" if line else f"{pad}|" for line in item.split("\n"))
    elif not isinstance(item, dict | list):
        yield f"{head} {_plain(item)}"
    elif isinstance(item, _Named) and item.word:
        yield f"{head} {item.word}"
        yield from _lines(item, indent + 2)
    elif _fits(item, len(head) + 1):
        yield f"{head} {_inline(item)}"
    else:
        yield head
        yield from _joined([*map(_inline, item)], pad) if _is_words(item) else _lines(item, indent + 2)


def _is_words(item: Any) -> bool:
    """An argv or the like: short strings side by side, not sentences."""
    return (
        isinstance(item, list)
        and all(not isinstance(one, dict | list | str) or (isinstance(one, str) and "\n" not in one) for one in item)
        and sum(isinstance(one, str) and one.count(" ") > 3 for one in item) * 2 < len(item)
    )


def _joined(texts: Sequence[str], pad: str) -> Iterator[str]:
    """As many on a line as fit, with a comma between two."""
    line = ""
    for text in texts:
        if line and len(pad) + len(line) + len(text) + 3 > WIDTH:
            yield f"{pad}{line},"
            line = text
        else:
            line = f"{line}, {text}" if line else text
    if line:
        yield pad + line


def _key(key: str, owner: dict[str, Any]) -> str:
    return key if isinstance(owner, _Named) else json.dumps(key, ensure_ascii=False)


def _fits(item: Any, indent: int) -> bool:
    return not _has_block(item) and len(_inline(item)) + indent <= WIDTH


def _has_block(item: Any) -> bool:
    """It has to be told on lines of its own."""
    if isinstance(item, _Named) and item.word:
        return True
    if isinstance(item, dict | list):
        return any(_has_block(one) for one in (item.values() if isinstance(item, dict) else item))
    return isinstance(item, str) and "\n" in item


def _inline(item: Any) -> str:
    if isinstance(item, dict):
        return "{" + ", ".join(f"{_key(key, item)}: {_inline(one)}" for key, one in item.items()) + "}"
    if isinstance(item, list):
        return "[" + ", ".join(map(_inline, item)) + "]"
    return json.dumps(item, ensure_ascii=False)


def _plain(item: Any) -> str:
    """A string without quotes where it can be taken for nothing else."""
    quoted = _inline(item)
    if not isinstance(item, str) or not item[:1].isalpha() or item != item.strip() or not item.isprintable():
        return quoted
    return quoted if item in ("true", "false", "null", "NaN", "Infinity") else item
