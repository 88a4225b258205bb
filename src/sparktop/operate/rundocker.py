"""A `docker run` command line with a change applied: Docker's options before the image, the engine's behind. Pure.

Whoever runs that line (a service) makes a new container of it each time. Words that nobody changes stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparktop.diagnose.lint.dockerrun import own_option
from sparktop.operate.commandline import changed
from sparktop.operate.flags import CannotEdit, Changed
from sparktop.operate.hostoptions import with_options
from sparktop.recipe.dockerline import host_options

PROGRAMS = ("docker", "podman", "nerdctl")
_SAME = {"net": "network"}


@dataclass(slots=True, kw_only=True)
class RunLine:
    """Its parts; joined again they are the line."""

    head: list[str]
    """Up to and with `run`."""
    options: list[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=list)
    """(long name, value, the words)."""
    image: str = ""
    command: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return [*self.head, *(word for *_, words in self.options for word in words), self.image, *self.command]

    def values(self, name: str) -> list[str | None]:
        return [value for own, value, _ in self.options if own == name]


def starts(words: Sequence[str]) -> bool:
    """Whether it is a container program's line at all."""
    return bool(words) and words[0].rpartition("/")[2] in PROGRAMS


def taken_apart(words: Sequence[str]) -> RunLine:
    """The line's parts.

    Raises:
        CannotEdit: it is no `docker run`, or an option isn't one of Docker's.
    """
    verbs = 2 if list(words[1:2]) == ["run"] else 3 if list(words[1:3]) == ["container", "run"] else 0
    if not verbs:
        raise CannotEdit(f"it is `{' '.join(words[:3])[:80]}`, not `docker run`: what it starts was made elsewhere")
    line = RunLine(head=list(words[:verbs]))
    at = verbs
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            line.image, line.command = word, list(words[at + 1 :])
            return line
        if word == "--":
            line.options.append(("", None, (word,)))
            at += 1
            continue
        found = own_option(word)
        if found is None:
            raise CannotEdit(f"{word[:40]!r} before the image is no option of Docker's")
        name, value, takes = found
        own = tuple(words[at : at + 2]) if takes else (word,)
        if takes:
            value = words[at + 1] if at + 1 < len(words) else None
        line.options.append((_SAME.get(name, name), value, own))
        at += len(own)
    raise CannotEdit("no image is named in it")


def edited(
    words: Sequence[str],
    *,
    environment: Mapping[str, str | None],
    flags: Mapping[str, str | None],
    options: Mapping[str, Any],
    image: str | None,
    inspect: Mapping[str, Any],
) -> tuple[list[str], tuple[Changed, ...]]:
    """(the line with the change, what became of the flags).

    Args:
        inspect: of the container that the line has made: what its image's own command is, and what its options are.

    Raises:
        CannotEdit: it can't be changed safely; says why.
    """
    line = taken_apart(words)
    _set_variables(line, environment)
    _set_options(line, options, inspect.get("HostConfig") or {})
    if image:
        line.image = image
    changes = _set_flags(line, flags, environment, inspect.get("Config") or {})
    return line.words, changes


def _set_variables(line: RunLine, environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        before = len(line.options)
        line.options = [
            one for one in line.options if not (one[0] == "env" and (one[1] or "").partition("=")[0] == name)
        ]
        if value is None:
            if len(line.options) == before and line.values("env-file"):
                raise CannotEdit(f"{name} may come from a file (--env-file): take it out there")
            continue
        line.options.append(("env", f"{name}={value}", (f"--env={name}={value}",)))


def _set_options(line: RunLine, options: Mapping[str, Any], host: Mapping[str, Any]) -> None:
    """One value replaces; what lists have is added to."""
    then = dict(host)
    if problem := with_options(then, options):
        raise CannotEdit(problem)
    for name, value in options.items():
        before = host.get(name)
        if value is None:
            gone = {own for own, _ in host_options({name: before})} if before else set()
            line.options = [one for one in line.options if one[0] not in gone]
            continue
        after = then[name]
        if isinstance(value, list):
            after = [one for one in after if one not in (before or ())]
        elif after == before:
            continue
        wanted = host_options({name: after})
        if not isinstance(value, list | Mapping) or name == "RestartPolicy":
            gone = {own for own, _ in (*wanted, *host_options({name: before}))}
            line.options = [one for one in line.options if one[0] not in gone]
        line.options += [(own, said, (f"--{own}",) if said is None else (f"--{own}={said}",)) for own, said in wanted]


def _set_flags(
    line: RunLine, flags: Mapping[str, str | None], environment: Mapping[str, str | None], config: Mapping[str, Any]
) -> tuple[Changed, ...]:
    entrypoint = [str(word) for word in config.get("Entrypoint") or ()]
    command = line.command or ([str(word) for word in config.get("Cmd") or ()] if flags else [])
    if not command and not flags:
        return ()
    made = changed(entrypoint, command, flags, environment)
    if list(made.entrypoint) != entrypoint:
        raise CannotEdit("what would have to be changed is in the image's own entrypoint")
    line.command = list(made.command)
    return made.flags
