"""A container's entrypoint and command with the engine's flags and variables changed, wherever the engine is. Pure.

The engine may be the command itself, follow an entrypoint that is `vllm serve` already, or be inside the string that
a shell runs (`bash -c "pip install x && vllm serve ..."`): there the words of that one command are edited in place.
Among a script's parameters (`sh -c 'ray start --head ...; exec "$@"' sh vllm serve ...`) it is edited there, and the
script is left as it is; a container that only joins that Ray has no flags to change. Facts: docs/facts/engines.md
sections 5.3, 6.1.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from sparktop.cmdline.engine_command import joins_ray, server_in
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange, flag_edits
from sparktop.cmdline.shell import Edit, ShellWord, Unclear, edited, script_at, simple_commands
from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineKind

_NO_ENGINE_PROGRAMS = frozenset({"echo", "printf", "grep", "pgrep", "pkill", "which", "pip", "uv", "curl"})
_MODEL = re.compile(r"\$\{?\w*MODEL\w*\}?", re.IGNORECASE)
"""A variable that by its name holds one word: the model."""
MAX_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Entrypoint and command after the change."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    flags: tuple[FlagChange, ...] = ()
    variables: tuple[FlagChange, ...] = ()
    """Variables that the shell's string assigns itself, overriding the container's."""


def changed(
    entrypoint: Sequence[str],
    command: Sequence[str],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str | None],
) -> CommandLine:
    """The command line with these flags and variables.

    Raises:
        CannotEdit: no engine is found in it, or it can't be edited safely; the text says why.
    """
    words = [*entrypoint, *command]
    server = server_in(words)
    if server is not None:
        kind, start = server
        edits = flag_edits(words[start:], kind, flags)
        new_words = [edits.replaced.get(index - start, (word,)) for index, word in enumerate(words)]
        split = len(entrypoint)
        return CommandLine(
            entrypoint=tuple(word for replacement in new_words[:split] for word in replacement),
            command=(*(word for replacement in new_words[split:] for word in replacement), *edits.appended),
            flags=tuple(edits.changed),
        )
    joins, script = joins_ray(words), script_at(words)
    if script is None and flags and not joins:
        raise CannotEdit("no engine is found in its command line: something else in the container starts it")
    if script is None or joins:
        return CommandLine(entrypoint=tuple(entrypoint), command=tuple(command))
    text, changes, variables = _changed_script(words[script], flags, environment, 0)
    words[script] = text
    return CommandLine(
        entrypoint=tuple(words[: len(entrypoint)]),
        command=tuple(words[len(entrypoint) :]),
        flags=tuple(changes),
        variables=tuple(variables),
    )


def _engine_in(command: Sequence[ShellWord]) -> tuple[EngineKind, int] | None:
    texts = [word.text or "" for word in command]
    first = next((word.text or "" for word in command if not word.assigned), "")
    if first.rpartition("/")[2] in _NO_ENGINE_PROGRAMS and texts[1:2] != ["run"]:
        return None
    return server_in(texts)


def _changed_script(
    text: str, flags: Mapping[str, str | None], environment: Mapping[str, str | None], depth: int
) -> tuple[str, list[FlagChange], list[FlagChange]]:
    try:
        shell_commands = list(simple_commands(text))
    except Unclear as error:
        raise CannotEdit(f"a shell runs it, and sparktop can't change the shell's text safely: {error}") from None
    engines = [(command, server) for command in shell_commands if (server := _engine_in(command)) is not None]
    if len(engines) > 1:
        raise CannotEdit("the shell's text starts more than one engine: it is unclear which one to change")
    if not engines:
        return _changed_nested(text, shell_commands, flags, environment, depth)
    command, (kind, start) = engines[0]
    before = shell_commands[: shell_commands.index(command) + 1]
    variables, edits = _changed_assignments(before, environment)
    arguments = command[start:]
    open_at = [index for index, word in enumerate(arguments) if word.is_open and not _MODEL.fullmatch(word.raw)]
    flag_changes = flag_edits([word.text for word in arguments], kind, flags, open_at=open_at)
    edits += [Edit(word=arguments[index], words=words) for index, words in flag_changes.replaced.items()]
    if flag_changes.appended:
        edits.append(Edit(word=command[-1], words=tuple(flag_changes.appended), is_after=True))
    return edited(text, edits), flag_changes.changed, variables


def _changed_nested(
    text: str,
    shell_commands: Sequence[Sequence[ShellWord]],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str | None],
    depth: int,
) -> tuple[str, list[FlagChange], list[FlagChange]]:
    """The change to an engine in a shell's string within the shell's string."""
    for command in shell_commands:
        index = script_at([word.text for word in command])
        nested_text = command[index].text if index is not None else None
        if index is None or nested_text is None or depth >= MAX_DEPTH:
            continue
        new_text, changes, variables = _changed_script(nested_text, flags, environment, depth + 1)
        edit = Edit(word=command[index], words=(), raw=shlex.quote(new_text))
        return (edited(text, [edit]) if new_text != nested_text else text), changes, variables
    if flags:
        raise CannotEdit("no engine is found in the text that its shell runs: a script in the container starts it")
    return text, [], []


def _changed_assignments(
    shell_commands: Sequence[Sequence[ShellWord]], environment: Mapping[str, str | None]
) -> tuple[list[FlagChange], list[Edit]]:
    """The change to variables that the text assigns itself, which override the container's."""
    changes: list[FlagChange] = []
    edits: list[Edit] = []
    for command in shell_commands:
        for index, word in enumerate(command):
            name = word.assigned
            is_prefix = all(earlier.assigned for earlier in command[:index])
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
            changes.append(FlagChange(name=name, before=before, after=value))
    return changes, edits
