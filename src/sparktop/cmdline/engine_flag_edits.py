"""Sets and removes flags in an engine's command line, in its own spelling; nothing else is touched. Pure.

A flag is the same with dashes or underscores, joined by "=" or not, by its alias, or in its `--no-` form. A key of a
JSON value (`--compilation-config.cudagraph_mode`) is set inside the JSON (docs/facts/engines.md sections 4, 5.3). Of
a flag given twice the last one counts, as in argparse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparktop.cmdline.engine_argv import Flag, joined_words, opposite, parsed
from sparktop.cmdline.engine_flags import Arity, attached, is_flag, polar, spec_of
from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineKind


class CannotEdit(ValueError):
    """A command line that can't be changed safely; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
    """One flag or variable, before and after."""

    name: str
    before: str | None
    """None: it was absent; "": a switch."""
    after: str | None


def flag_edits(
    arguments: Sequence[str | None], kind: EngineKind, changes: Mapping[str, str | None], *, open_at: Sequence[int] = ()
) -> FlagEdits:
    """The edits that make these changes to an engine's own arguments.

    Args:
        arguments: without the program; None for a word that only a shell could tell.
        changes: as in Change.flags: a value, "" for a switch, None to remove a flag.
        open_at: indices of words that may expand to several words, or none.

    Raises:
        CannotEdit: a value can't be assigned to its flag safely; the text says why.
    """
    edits = FlagEdits(arguments, kind)
    if changes:
        _refuse_unknown(arguments, edits.loose, open_at)
    seen: set[str] = set()
    for flag_name, value in changes.items():
        if not is_flag(flag_name, kind):
            raise CannotEdit(f"{flag_name[:60]!r} is no flag")
        if any("\0" in text for text in (flag_name, value or "")):
            raise CannotEdit(f"{flag_name[:60]!r} holds a character that no command line can")
        spelled, _, text = attached(flag_name, kind) or flag_name.partition("=")
        if attached(flag_name, kind):  # -O3
            value = None if value is None else text
        name = polar(spelled, kind)
        if name in seen:
            raise CannotEdit(f"{flag_name} is asked to be changed twice, under two of its names")
        seen.add(name)
        edits.change(flag_name, name, value)
    return edits


def _refuse_unknown(arguments: Sequence[str | None], loose: Sequence[int], open_at: Sequence[int]) -> None:
    unknown = [index for index in loose if arguments[index] is None]
    if not unknown:
        return
    is_model = unknown[0] == loose[0] and unknown[0] not in open_at
    if unknown[1:] or not is_model:
        raise CannotEdit("part of its flags come from a shell variable, so sparktop can't know what they are")


class FlagEdits:
    """Edits of an engine's arguments, one change after the other; words edited already are no flags any more."""

    def __init__(self, arguments: Sequence[str | None], kind: EngineKind) -> None:
        self.arguments, self.kind = arguments, kind
        self.flags, self.loose = parsed(arguments, kind)
        self.replaced: dict[int, tuple[str, ...]] = {}
        """Index of a word -> new words for it; none: it is removed."""
        self.appended: list[str] = []
        self.changed: list[FlagChange] = []

    def change(self, flag_name: str, name: str, value: str | None) -> None:
        """Set or remove the flag with this canonical name."""
        base, _, key = name.partition(".")
        same = [flag for flag in self.flags if flag.name == name]
        if value is None:
            self._remove(name)
        elif key and not same:
            if not self._set_json(base, key, value):
                self._append(flag_name, value)
        elif value == "" and not key:
            self._switch_on(flag_name, name)
        elif same:
            self._set(flag_name, name, value, same[-1])
        elif name == "model" and self.kind is EngineKind.VLLM and self.loose:
            self.replaced[self.loose[0]] = (value,)
            self._note(flag_name, self.arguments[self.loose[0]], value)
        else:
            self._remove_keys(name)
            self._append(flag_name, value)
        edited = self.replaced.keys()
        self.flags = [flag for flag in self.flags if edited.isdisjoint((flag.at, *flag.values))]
        self.loose = [index for index in self.loose if index not in edited]

    def _note(self, name: str, before: str | None, after: str | None) -> None:
        self.changed.append(FlagChange(name=name, before=before, after=after))

    def _replace(self, indices: Iterable[int], words: tuple[str, ...] = ()) -> None:
        """New words in the place of the first, none in that of the others."""
        for index in indices:
            self.replaced[index] = words
            words = ()

    def _append(self, flag_name: str, value: str) -> None:
        self.appended += joined_words(flag_name, value, self.kind)
        self._note(flag_name, None, value)

    def _current(self, flag: Flag) -> str:
        if flag.joined is not None:
            return flag.joined
        return " ".join(self.arguments[index] or "(of a variable)" for index in flag.values)

    def _remove(self, name: str) -> None:
        occurrences = [flag for flag in self.flags if flag.name == name or flag.name.startswith(f"{name}.")]
        base, _, key = name.partition(".")
        if not occurrences and key and self._set_json(base, key, None):
            return
        has_model = bool(self.loose) or any(flag.name == "model" for flag in self.flags)
        for flag in occurrences:
            words = [index for index in flag.values if self.arguments[index] is not None or len(flag.values) == 1]
            if words and not has_model and spec_of(flag.name, self.kind).arity is not Arity.MANY:
                raise CannotEdit(
                    f"it is unclear whether {self.arguments[words[0]]!r} is the value of {flag.spelled} or the model"
                )
            self._replace((flag.at, *words))
        if occurrences:
            self._note(occurrences[-1].spelled, self._current(occurrences[-1]), None)

    def _remove_keys(self, name: str) -> None:
        """Remove the flags of single keys, where their value is set as a whole."""
        for flag in self.flags:
            if flag.name.startswith(f"{name}."):
                self._replace((flag.at, *flag.values))
                self._note(flag.spelled, self._current(flag), None)

    def _switch_on(self, flag_name: str, name: str) -> None:
        last = next((flag for flag in reversed(self.flags) if flag.name in (name, opposite(name))), None)
        if last is None:
            self.appended.append(flag_name)
            self._note(flag_name, None, "")
        elif last.name != name:
            self._replace((last.at,), (flag_name,))
            self._note(last.spelled, "", None)
            self._note(flag_name, None, "")
        elif (last.joined or "").lower() in ("false", "0"):
            self._replace((last.at,), (last.spelled,))
            self._note(last.spelled, last.joined, "")

    def _set(self, flag_name: str, name: str, value: str, last: Flag) -> None:
        if "." not in name:
            self._remove_keys(name)
        before = self._current(last)
        if before == value and len(last.values) < 2:
            return
        if attached(last.word, self.kind):
            self._replace((last.at,), (f"{last.spelled}{value}",) if value.isdecimal() else (flag_name, value))
        elif last.joined is not None:
            self._replace((last.at,), (f"{last.spelled}={value}",))
        elif last.values and not value.startswith("-"):
            self._replace(last.values, (value,))
        else:
            self._replace((last.at, *last.values), joined_words(last.word, value, self.kind))
        self._note(last.spelled, before, value)

    def _set_json(self, base: str, key: str, value: str | None) -> bool:
        """Set or remove a key inside a JSON value; False where there is no such value."""
        last = next((flag for flag in reversed(self.flags) if flag.name == base), None)
        if last is None:
            return False
        text = last.joined if last.joined is not None else self.arguments[last.values[0]] if last.values else None
        try:
            whole = json.loads(text or "")
        except (ValueError, RecursionError):
            whole = None
        if not isinstance(whole, dict):
            raise CannotEdit(f"the value of {last.spelled} is no JSON object, so {key} can't be set in it")
        inside: Any = whole
        *path, leaf = key.replace("-", "_").split(".")  # `polar` has made dashes of underscores
        for part in path:
            inside = inside.setdefault(part, {}) if isinstance(inside, dict) else None
        if not isinstance(inside, dict):
            raise CannotEdit(f"{last.spelled} holds something else in the place of {key}")
        before = inside.get(leaf)
        if value is None:
            inside.pop(leaf, None)
        else:
            inside[leaf] = _json_value(value, before)
        after = json.dumps(whole, ensure_ascii=False, separators=(", ", ": ") if ": " in (text or "") else (",", ":"))
        if whole == json.loads(text or "{}"):
            return True
        if last.joined is not None:
            self._replace((last.at,), (f"{last.spelled}={after}",))
        else:
            self._replace(last.values[:1], (after,))
        self._note(last.spelled, text, after)
        return True


def _json_value(value: str, before: Any) -> Any:
    """The value as JSON where it is valid and the old value was no text."""
    if isinstance(before, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
