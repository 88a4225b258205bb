"""A container's entrypoint and command with the engine's flags and variables changed, wherever the engine stands. Pure.

The engine may be the command itself, stand behind an entrypoint that is `vllm serve` already, or inside the string that
a shell runs (`bash -c "pip install x && vllm serve ..."`): there the words of that one command are edited in place.
Among a script's parameters (`sh -c 'ray start --head ...; exec "$@"' sh vllm serve ...`) it is edited there, and the
script is left as it is; a container that only joins that Ray has no flags to change.
Facts: facts/engines.md sections 5.3, 6.1.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktop.diagnose.enginecommand import joins_ray, server_at
from sparktop.model.engine import EngineKind
from sparktop.operate.flags import CannotEdit, Changed, flag_edits
from sparktop.operate.shelltext import Edit, ShellWord, Unclear, commands, edited, script_at

_ONLY_TALK = frozenset({"echo", "printf", "grep", "pgrep", "pkill", "which", "pip", "uv", "curl"})
_MODEL = re.compile(r"\$\{?\w*MODEL\w*\}?", re.IGNORECASE)
"""A variable that by its name holds one word: the model."""
MAX_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Entrypoint and command after the change."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    flags: tuple[Changed, ...] = ()
    variables: tuple[Changed, ...] = ()
    """Those that the shell's string assigns itself, over whatever the container is given."""


def changed(
    entrypoint: Sequence[str],
    command: Sequence[str],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str | None],
) -> CommandLine:
    """The command line with these flags and variables.

    Raises:
        CannotEdit: no engine is found in it, or it can't be edited safely; says why.
    """
    words = [*entrypoint, *command]
    place = _engine_at(words)
    if place is not None:
        kind, start = place
        edits = flag_edits(words[start:], kind, flags)
        out = [edits.replaced.get(index - start, (word,)) for index, word in enumerate(words)]
        out[:start] = [(word,) for word in words[:start]]
        split = len(entrypoint)
        return CommandLine(
            entrypoint=tuple(word for each in out[:split] for word in each),
            command=(*(word for each in out[split:] for word in each), *edits.appended),
            flags=tuple(edits.changed),
        )
    if joins_ray(words):
        return CommandLine(entrypoint=tuple(entrypoint), command=tuple(command))
    script = script_at(words)
    if script is None:
        if flags:
            raise CannotEdit("no engine is found in its command line: something else in the container starts it")
        return CommandLine(entrypoint=tuple(entrypoint), command=tuple(command))
    text, changes, variables = _script(words[script], flags, environment, 0)
    words[script] = text
    return CommandLine(
        entrypoint=tuple(words[: len(entrypoint)]),
        command=tuple(words[len(entrypoint) :]),
        flags=tuple(changes),
        variables=tuple(variables),
    )


def _engine_at(words: Sequence[str]) -> tuple[EngineKind, int] | None:
    """(kind, index of the first argument) where the engine's own words are words of the command line."""
    for start in range(len(words)):
        found = server_at(words, start)
        if found is not None:
            return found
    return None


def _engine_in(command: Sequence[ShellWord]) -> tuple[EngineKind, int] | None:
    texts = [word.text or "" for word in command]
    first = next((word.text or "" for word in command if not word.assigned), "")
    if first.rpartition("/")[2] in _ONLY_TALK and texts[1:2] != ["run"]:
        return None
    return _engine_at(texts)


def _script(
    text: str, flags: Mapping[str, str | None], environment: Mapping[str, str | None], depth: int
) -> tuple[str, list[Changed], list[Changed]]:
    try:
        found = commands(text)
    except Unclear as error:
        raise CannotEdit(f"a shell runs it, in whose text nothing can be changed safely: {error}") from None
    engines = [(one, place) for one in found if (place := _engine_in(one)) is not None]
    if len(engines) > 1:
        raise CannotEdit("the shell's text starts more than one engine: it can't be told which is meant")
    if not engines:
        return _nested(text, found, flags, environment, depth)
    command, (kind, start) = engines[0]
    before = found[: found.index(command) + 1]
    variables, edits = _assignments(before, environment)
    arguments = command[start:]
    open_at = [index for index, word in enumerate(arguments) if word.is_open and not _MODEL.fullmatch(word.raw)]
    made = flag_edits([word.text for word in arguments], kind, flags, open_at=open_at)
    edits += [Edit(word=arguments[index], words=words) for index, words in made.replaced.items()]
    if made.appended:
        edits.append(Edit(word=command[-1], words=tuple(made.appended), is_after=True))
    return edited(text, edits), made.changed, variables


def _nested(
    text: str,
    found: Sequence[Sequence[ShellWord]],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str | None],
    depth: int,
) -> tuple[str, list[Changed], list[Changed]]:
    """The engine in a shell's string within the shell's string."""
    for command in found:
        index = script_at([word.text for word in command])
        inside = command[index].text if index is not None else None
        if index is None or inside is None or depth >= MAX_DEPTH:
            continue
        new, changes, variables = _script(inside, flags, environment, depth + 1)
        edit = Edit(word=command[index], words=(), raw=shlex.quote(new))
        return (edited(text, [edit]) if new != inside else text), changes, variables
    if flags:
        raise CannotEdit("no engine is found in the text that its shell runs: a script in the container starts it")
    return text, [], []


def _assignments(
    found: Sequence[Sequence[ShellWord]], environment: Mapping[str, str | None]
) -> tuple[list[Changed], list[Edit]]:
    """Variables that the text assigns itself: what the container is given would never reach the engine."""
    changes: list[Changed] = []
    edits: list[Edit] = []
    for command in found:
        for index, word in enumerate(command):
            name = word.assigned
            is_prefix = all(one.assigned for one in command[:index])
            is_exported = (command[0].text or "") in ("export", "declare", "typeset", "env")
            if name not in environment or not (is_prefix or is_exported):
                continue
            value = environment[name]
            before = word.text.partition("=")[2] if word.text is not None else "(of a variable)"
            if value is None:
                if len(command) == 1 or is_exported:
                    raise CannotEdit(f"{name} is set by the text that its shell runs: take it out there by hand")
                edits.append(Edit(word=word, words=()))
            else:
                edits.append(Edit(word=word, words=(), raw=f"{name}={shlex.quote(value)}"))
            changes.append(Changed(name=name, before=before, after=value))
    return changes, edits
