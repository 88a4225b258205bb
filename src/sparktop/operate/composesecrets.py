"""What of a change must not stand in an override file: it is named there, and given by the shell's environment. Pure.

A secret variable becomes `${NAME:?...}`: whoever brings the project up without it is told, and nothing starts blank. So
does a word of the command that is a secret, or holds one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.operate.changing import Changing
from sparktop.operate.commandline import CommandLine
from sparktop.operate.composefiles import Project
from sparktop.operate.composegiven import environment_of
from sparktop.operate.composevalues import escaped, references
from sparktop.operate.knownsecrets import secret_words, secrets_of
from sparktop.operate.overridefile import Reference
from sparktop.probe.remote import mask_text
from sparktop.recipe.secretnames import is_secret

WHY = "a secret that is kept in no file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A change as the file may say it, and what the shell gives beside it."""

    environment: Mapping[str, str | None]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    given: Mapping[str, str] = field(repr=False)


def sealed(one: Changing, line: CommandLine, project: Project) -> Sealed:
    """The change's variables and the new command line, secrets named."""
    given: dict[str, str] = {}
    environment: dict[str, str | None] = {}
    for name, value in one.change.environment.items():
        if value is None or not is_secret(name, value):
            environment[name] = value
            continue
        variable = _variable(name, value, project)
        given[variable] = value
        environment[name] = _reference(variable)
    known = set(secrets_of(one.raw.get("Config") or {}, one.change.environment))
    entrypoint = _words(line.entrypoint, known, project, given)
    return Sealed(
        environment=environment,
        entrypoint=entrypoint,
        command=_words(line.command, known, project, given),
        given=given,
    )


def _variable(name: str, value: str, project: Project) -> str:
    """Its own name; another where the files use that one for something else too."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and project.given.get(name, value) == value:
        return name
    others = sum(
        ref.name == name
        for each in project.definitions
        for key, text in environment_of(each).items()
        if key != name and text is not None
        for ref in references(text)
    )
    return f"SPARKTOP_{re.sub(r'[^A-Za-z0-9]', '_', name)}" if others or not name.isidentifier() else name


def _words(words: Sequence[str], known: set[str], project: Project, given: dict[str, str]) -> tuple[str, ...]:
    secrets = {word for word in (*secret_words(words), *known) if word.strip()}
    out: list[str] = []
    for index, word in enumerate(words):
        value = next((one for one in sorted(secrets, key=len, reverse=True) if word == one or word.endswith(f"={one}")),
                     None)  # fmt: skip
        if value is None and (mask_text(word) != word or any(len(one) >= 6 and one in word for one in known)):
            value = word  # a secret somewhere inside: the whole word is given
        if value is None:
            out.append(word)
            continue
        flag = word.partition("=")[0] if word != value else words[index - 1] if index else ""
        variable = _known(value, project, given) or _free(flag, index, value, given)
        given[variable] = value
        out.append(Reference(escaped(word[: len(word) - len(value)]) + _reference(variable)))
    return tuple(out)


def _known(value: str, project: Project, given: Mapping[str, str]) -> str:
    """A variable that the project takes from the shell, and that has this value anyway."""
    return next((name for name, its in {**project.given, **given}.items() if its == value), "")


def _free(flag: str, index: int, value: str, given: Mapping[str, str]) -> str:
    said = re.sub(r"[^A-Za-z0-9]+", "_", flag.lstrip("-")).strip("_").upper() if flag.startswith("-") else ""
    name = f"SPARKTOP_{said[:60] or f'WORD_{index}'}"
    return name if given.get(name, value) == value else f"{name}_{index}"


def _reference(variable: str) -> Reference:
    return Reference(f"${{{variable}:?{WHY}}}")
