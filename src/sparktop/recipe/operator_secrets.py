"""The operator's secrets for a launch: which ones a recipe uses, and their values from the environment and .env files.

`read_secrets` is the one rule for where they come from, on the command line and in the console. A file that others can
read is refused, with the reason. No value is ever part of a problem, a source or a repr.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path

from sparktop.cmdline.variables import env_lines, unquoted
from sparktop.config import config_home, resource_dir, shown
from sparktop.dataclass import dataclass
from sparktop.files import read as read_file
from sparktop.model.recipe import Recipe, SecretProblem

HUB_TOKEN = "HF_TOKEN"  # noqa: S105 (a name)
"""Useful to every recipe: a gated model can't be downloaded without it."""
MAX_FILE_BYTES = 1 << 16
REFERENCE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^{}$]*))?\}|(?P<plain>[A-Za-z_]\w*))")
"""A variable of the operator's in a recipe's environment: $NAME, ${NAME} or ${NAME:-default}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretValues:
    """Values of the secrets a recipe uses, where each came from, and the files that could not be read."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name -> "from the environment", "from PATH"; empty: no value."""
    given: frozenset[str] = frozenset()
    """Those given for this command: by its environment, or by the one file that it names."""
    problems: tuple[SecretProblem, ...] = ()
    """Files or values that were refused, each with the reason and the next step."""


def names_used(recipe: Recipe) -> tuple[str, ...]:
    """Every secret a recipe can use: each "$NAME" of its environment, the engine's key, the hub's token last."""
    named = [name for name, _ in _references(recipe)]
    key = recipe.engine.traits.key_variable
    return tuple(dict.fromkeys((*named, *((key,) if key else ()), HUB_TOKEN)))


def names_required(recipe: Recipe) -> tuple[str, ...]:
    """The secrets without which the recipe can't be launched."""
    names = (name for name, default in _references(recipe) if default is None and name != HUB_TOKEN)
    return tuple(dict.fromkeys(names))


def _references(recipe: Recipe) -> Iterator[tuple[str, str | None]]:
    """(name, default) of the variables that the recipe's environment refers to, in order."""
    for text in (*recipe.environment.values(), *recipe.node_environment.values()):
        yield from ((match["braced"] or match["plain"], match["default"]) for match in REFERENCE.finditer(text))


def read_secrets(recipe: Recipe, named: Path | None = None) -> SecretValues:
    """The recipe's secrets from the operator's environment and .env files; `named`: the one .env file to read
    instead."""
    beside = recipe.path if recipe.source is None else ""  # a source's files are somebody else's
    found = collect(names_used(recipe), os.environ, env_files(beside, named))
    return replace(found, given=frozenset(name for name in found.values if named is not None or os.environ.get(name)))


def env_files(path: str, named: Path | None = None) -> tuple[Path, ...]:
    """The .env files that apply to a recipe file, the nearest first.

    `named` alone where it is given. Else the one next to a recipe that is the operator's own, then the operator's own
    for sparktop. Never the current folder's: that file was written for another program, or by somebody else.
    """
    if named is not None:
        return (named,)
    file = Path(path)
    is_own = os.path.isfile(file) and not file.resolve().is_relative_to(resource_dir("recipes").resolve())
    beside = (file.parent / ".env",) if is_own else ()
    return tuple(dict.fromkeys((*beside, own_file())))


CLIENT_KEYS = ("SPARKTOP_API_KEY", "VLLM_API_KEY")
"""Variables that hold the key which clients of an exposed engine send, the first that is set."""


def client_key(named: Path | None = None) -> tuple[str, tuple[SecretProblem, ...]]:
    """(the key of CLIENT_KEYS from the environment, else from the operator's own .env file or `named`, why files were
    refused); "" where there is none."""
    found = collect(CLIENT_KEYS, os.environ, (named,) if named is not None else (own_file(),))
    return next((found.values[name] for name in CLIENT_KEYS if name in found.values), ""), found.problems


def own_file() -> Path:
    """The operator's own .env file for sparktop."""
    return config_home() / ".env"


def env_path() -> str:
    """The operator's own .env file, as remedies name it."""
    return shown(own_file())


def collect(names: Iterable[str], environment: Mapping[str, str], paths: Iterable[Path]) -> SecretValues:
    """The values of these names; the environment wins over files, an earlier file over a later one."""
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    problems: list[SecretProblem] = []
    wanted_names = tuple(dict.fromkeys(names))
    for name in wanted_names:
        environment_value = environment.get(name, "")
        sources[name] = "from the environment" if environment_value and environment_value.isprintable() else ""
        if not environment_value.isprintable():
            text = f"the environment: {_unusable(name, 'it has a line break or another control character')}"
            problems.append(SecretProblem(text=text, name=name))
        elif environment_value:
            values[name] = environment_value
    for path in paths:
        file_values, damaged, problem = read(path)
        if problem is not None:
            problems.append(problem)
        problems += [
            SecretProblem(text=f"{path} {damaged[name]}", name=name)
            for name in wanted_names
            if not sources[name] and name in damaged
        ]
        for name in wanted_names:
            if not sources[name] and file_values.get(name):
                values[name], sources[name] = file_values[name], f"from {path}"
    return SecretValues(values=values, sources=sources, problems=tuple(problems))


def read(path: Path) -> tuple[Mapping[str, str], Mapping[str, str], SecretProblem | None]:
    """(NAME=value lines of a .env file, unusable names with the reason, why it was refused); a missing file is no
    problem."""
    try:
        text = read_file(path, MAX_FILE_BYTES, is_private=True).decode("utf-8-sig")
    except FileNotFoundError:
        return {}, {}, None
    except PermissionError as error:
        if error.errno != errno.EPERM:
            return _refused(path, "can't be read (PermissionError)")
        remedy = f"chmod 600 {shown(path)}"
        return _refused(path, f"is readable by other users, so sparktop didn't read it: {remedy}", remedy)
    except UnicodeDecodeError:
        return _refused(path, "is not UTF-8: sparktop didn't read it")
    except OSError as error:
        return _refused(path, f"can't be read: {error.strerror}: sparktop didn't read it")
    return (*_parse_lines(text), None)


def _refused(path: Path, why: str, remedy: str = "") -> tuple[Mapping[str, str], Mapping[str, str], SecretProblem]:
    return {}, {}, SecretProblem(text=f"{path} {why}", remedy=remedy or f"ls -l {path}")


def _parse_lines(text: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Parse a .env file as a shell and Docker do; lines that set nothing are skipped, the last line of a name wins."""
    values: dict[str, str] = {}
    damaged: dict[str, str] = {}
    for number, name, written in env_lines(text):
        if written is None:
            damaged[name] = f"line {number}: {_unusable(name, 'it is not NAME=value')}"
            continue
        value = unquoted(written)
        values.pop(name, None)
        damaged.pop(name, None)
        if value is None or not value.isprintable():
            why = "its closing quote is missing or not at its end" if value is None else "it has a control character"
            damaged[name] = f"line {number}: {_unusable(name, why)}"
        else:
            values[name] = value
    return values, damaged


def _unusable(name: str, why: str) -> str:
    return f"the value of {name} is not valid: {why}"
