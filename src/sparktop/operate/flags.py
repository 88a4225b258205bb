"""Flags of an engine's command line set and taken away, in the words that are there; nothing else is touched. Pure.

A flag is the same with dashes or underscores, joined by "=" or not, by its alias, or as its `--no-` form; a key of a
JSON value (`--compilation-config.cudagraph_mode`) is set inside the JSON where that stands (facts/engines.md 4, 5.3).
Of a flag given twice the last one counts, as argparse has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparktop.diagnose.lint.arguments import is_flag, is_switch, plain
from sparktop.model.engine import EngineKind

_LEVEL = re.compile(r"-O(\d)")
_MANY = frozenset({
    "served-model-name", "lora-modules", "lora-paths", "lora-target-modules", "api-key", "cuda-graph-bs",
    "cuda-graph-bs-decode", "cuda-graph-bs-prefill", "cudagraph-capture-sizes", "bucket-time-to-first-token",
    "bucket-inter-token-latency", "bucket-e2e-request-latency",
})  # fmt: skip
"""Flags with several values: all of them are the flag's."""


class CannotEdit(ValueError):
    """A command line that can't be changed safely; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One flag as it was and as it is."""

    name: str
    before: str | None
    """None: it wasn't there; "" a switch."""
    after: str | None


@dataclass(slots=True, kw_only=True)
class FlagEdits:
    """What to do with an engine's arguments, by their places."""

    replaced: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """New words for the word at an index; none: it is taken out."""
    appended: list[str] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flag:
    """One occurrence."""

    at: int
    word: str
    name: str
    joined: str | None = None
    """The value after "="."""
    values: tuple[int, ...] = ()
    """Where the words stand that may be its values."""

    @property
    def spelled(self) -> str:
        return self.word.partition("=")[0]


def flag_edits(
    arguments: Sequence[str | None], kind: EngineKind, changes: Mapping[str, str | None], *, open_at: Sequence[int] = ()
) -> FlagEdits:
    """How to make these changes to an engine's own arguments.

    Args:
        arguments: without the program; None for a word that only a shell could tell.
        changes: as Change.flags has them: a value, "" for a switch, None to take a flag away.
        open_at: indices of words that may stand for several, or none.

    Raises:
        CannotEdit: it can't be told safely what is whose; says why.
    """
    flags, loose = _parsed(arguments, kind)
    made = FlagEdits()
    if not changes:
        return made
    _refuse_unknown(arguments, loose, open_at)
    seen: set[str] = set()
    for given, value in changes.items():
        if not is_flag(given) and not _LEVEL.fullmatch(given):
            raise CannotEdit(f"{given[:60]!r} is no flag")
        if any("\0" in text for text in (given, value or "")):
            raise CannotEdit(f"{given[:60]!r} holds a character that no command line can")
        if level := _LEVEL.fullmatch(given):
            name, value = "optimization-level", None if value is None else level[1]
        else:
            name = _name(given, kind)
        if name in seen:
            raise CannotEdit(f"{given} is asked to be changed twice, under two of its names")
        seen.add(name)
        base, _, key = name.partition(".")
        if value is None:
            _remove(name, flags, loose, arguments, made)
        elif key:
            _set_key(given, name, base, key, value, flags, arguments, made)
        elif value == "":
            _switch_on(given, name, flags, made)
        else:
            _set(given, name, value, flags, loose, arguments, made, kind)
        flags, loose = _parsed_after(arguments, made, kind)
    return made


def meaning(arguments: Sequence[str], kind: EngineKind) -> dict[str, tuple[str, ...]]:
    """What the arguments say, by plain names: the last occurrence's values; loose words under ""."""
    flags, loose = _parsed(arguments, kind)
    out: dict[str, tuple[str, ...]] = {"": tuple(str(arguments[index]) for index in loose)} if loose else {}
    for one in flags:
        own = (one.joined,) if one.joined is not None else tuple(str(arguments[index]) for index in one.values)
        out.pop(_opposite(one.name), None)
        out[one.name] = own
    return out


def _name(word: str, kind: EngineKind) -> str:
    name = plain(word.partition("=")[0])
    return "model-path" if name == "model" and kind is EngineKind.SGLANG else name


def _opposite(name: str) -> str:
    return name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"


def _parsed(arguments: Sequence[str | None], kind: EngineKind) -> tuple[list[_Flag], list[int]]:
    """The flags, and the indices of words that are surely no flag's value (or of which nothing is known)."""
    flags: list[_Flag] = []
    loose: list[int] = []
    index = 0
    while index < len(arguments):
        word = arguments[index]
        at = index
        index += 1
        if word is None or not (is_flag(word) or _LEVEL.fullmatch(word)):
            loose.append(at)
            continue
        if level := _LEVEL.fullmatch(word):
            flags.append(_Flag(at=at, word=word, name="optimization-level", joined=level[1]))
            continue
        name = _name(word, kind)
        if "=" in word:
            flags.append(_Flag(at=at, word=word, name=name, joined=word.partition("=")[2]))
            continue
        values: list[int] = []
        if not is_switch(name):
            while index < len(arguments) and not is_flag(arguments[index] or ""):
                if values and name.partition(".")[0] not in _MANY:
                    break
                values.append(index)
                index += 1
        flags.append(_Flag(at=at, word=word, name=name, values=tuple(values)))
    return flags, loose


def _parsed_after(arguments: Sequence[str | None], made: FlagEdits, kind: EngineKind) -> tuple[list[_Flag], list[int]]:
    """Parsed again for the next change: words that are edited already are left alone by it."""
    flags, loose = _parsed(arguments, kind)
    return (
        [one for one in flags if one.at not in made.replaced and not any(at in made.replaced for at in one.values)],
        [index for index in loose if index not in made.replaced],
    )


def _refuse_unknown(arguments: Sequence[str | None], loose: Sequence[int], open_at: Sequence[int]) -> None:
    unknown = [index for index in loose if arguments[index] is None]
    if not unknown:
        return
    is_model = unknown[0] == loose[0] and unknown[0] not in open_at
    if unknown[1:] or not is_model:
        raise CannotEdit("part of its flags come from a shell variable, so nobody can tell from here what they are")


def _remove(
    name: str, flags: Sequence[_Flag], loose: Sequence[int], arguments: Sequence[str | None], made: FlagEdits
) -> None:
    own = [one for one in flags if one.name == name or one.name.startswith(f"{name}.")]
    base, _, key = name.partition(".")
    if not own and key and _set_json(base, key, None, flags, arguments, made):
        return
    for one in own:
        words = [index for index in one.values if arguments[index] is not None or len(one.values) == 1]
        has_model = bool(loose) or any(flag.name in ("model", "model-path") for flag in flags)
        if words and not has_model and one.name.partition(".")[0] not in _MANY:
            raise CannotEdit(
                f"it can't be told whether {arguments[words[0]]!r} is the value of {one.spelled} or the model"
            )
        for index in (one.at, *words):
            made.replaced[index] = ()
    if own:
        made.changed.append(Changed(name=own[-1].spelled, before=_said(own[-1], arguments), after=None))


def _switch_on(given: str, name: str, flags: Sequence[_Flag], made: FlagEdits) -> None:
    found = [one for one in flags if one.name in (name, _opposite(name))]
    last = found[-1] if found else None
    if last is None:
        made.appended.append(given)
        made.changed.append(Changed(name=given, before=None, after=""))
    elif last.name != name:
        made.replaced[last.at] = (given,)
        made.changed += [Changed(name=last.spelled, before="", after=None), Changed(name=given, before=None, after="")]
    elif (last.joined or "").lower() in ("false", "0"):
        made.replaced[last.at] = (last.spelled,)
        made.changed.append(Changed(name=last.spelled, before=last.joined, after=""))


def _set(
    given: str,
    name: str,
    value: str,
    flags: Sequence[_Flag],
    loose: Sequence[int],
    arguments: Sequence[str | None],
    made: FlagEdits,
    kind: EngineKind,
) -> None:
    own = [one for one in flags if one.name == name]
    for one in flags:
        if one.name.startswith(f"{name}."):  # a key of what is set whole
            for index in (one.at, *one.values):
                made.replaced[index] = ()
            made.changed.append(Changed(name=one.spelled, before=_said(one, arguments), after=None))
    if not own:
        if name == "model" and kind is EngineKind.VLLM and loose:
            made.replaced[loose[0]] = (value,)
            made.changed.append(Changed(name=given, before=arguments[loose[0]], after=value))
            return
        made.appended += _written(given, value)
        made.changed.append(Changed(name=given, before=None, after=value))
        return
    last = own[-1]
    before = _said(last, arguments)
    if before == value and len(last.values) < 2:
        return
    if level := _LEVEL.fullmatch(last.word):
        made.replaced[last.at] = (f"-O{value}",) if value.isdecimal() else (given, value)
        before = level[1]
    elif last.joined is not None:
        made.replaced[last.at] = (f"{last.spelled}={value}",)
    elif last.values and not value.startswith("-"):
        made.replaced[last.values[0]] = (value,)
        made.replaced.update(dict.fromkeys(last.values[1:], ()))
    else:
        made.replaced[last.at] = _written(last.word, value)
        made.replaced.update(dict.fromkeys(last.values, ()))
    made.changed.append(Changed(name=last.spelled, before=before, after=value))


def _written(name: str, value: str) -> tuple[str, ...]:
    """A value that begins with a dash would be taken for the next flag."""
    return (f"{name}={value}",) if value.startswith("-") else (name, value)


def _set_key(
    given: str,
    name: str,
    base: str,
    key: str,
    value: str,
    flags: Sequence[_Flag],
    arguments: Sequence[str | None],
    made: FlagEdits,
) -> None:
    own = [one for one in flags if one.name == name]
    if own:
        _set(given, name, value, own, (), arguments, made, EngineKind.VLLM)
    elif not _set_json(base, key, value, flags, arguments, made):
        made.appended += _written(given, value)
        made.changed.append(Changed(name=given, before=None, after=value))


def _set_json(
    base: str, key: str, value: str | None, flags: Sequence[_Flag], arguments: Sequence[str | None], made: FlagEdits
) -> bool:
    """Set a key inside a JSON value, or take it out; False where there is no such value."""
    last = next((one for one in reversed(flags) if one.name == base), None)
    if last is None:
        return False
    text = last.joined if last.joined is not None else arguments[last.values[0]] if last.values else None
    try:
        whole = json.loads(text or "")
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict):
        raise CannotEdit(f"the value of {last.spelled} is no JSON object, so {key} can't be set in it")
    inside: Any = whole
    *path, leaf = (_spelled_in(part) for part in key.split("."))
    for part in path:
        inside = inside.setdefault(part, {}) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise CannotEdit(f"{last.spelled} holds something else in the place of {key}")
    before = inside.get(leaf)
    if value is None:
        inside.pop(leaf, None)
    else:
        inside[leaf] = _typed(value, before)
    after = json.dumps(whole, ensure_ascii=False, separators=(", ", ": ") if ": " in (text or "") else (",", ":"))
    if whole == json.loads(text or "{}"):
        return True
    if last.joined is not None:
        made.replaced[last.at] = (f"{last.spelled}={after}",)
    else:
        made.replaced[last.values[0]] = (after,)
    made.changed.append(Changed(name=last.spelled, before=text, after=after))
    return True


def _spelled_in(part: str) -> str:
    """`plain` has made dashes of a key's underscores; inside JSON the engines' keys have underscores."""
    return part.replace("-", "_")


def _typed(value: str, before: Any) -> Any:
    """A number, true, a list ... where it reads as one and no text stood there."""
    if isinstance(before, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _said(flag: _Flag, arguments: Sequence[str | None]) -> str:
    if flag.joined is not None:
        return flag.joined
    return " ".join(arguments[index] or "(of a variable)" for index in flag.values)
