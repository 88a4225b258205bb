"""The operator's secrets for a launch: which a recipe wants, and what the environment and the .env files hold of them.

`held` is the one rule for where they come from, on the command line and in the console. A file that others
can read is not read: it says so instead. No value is ever part of a problem, a source or a repr.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparktop.config import config_home, resource_dir, shown
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Recipe

HUB_TOKEN = "HF_TOKEN"  # noqa: S105 (a name)
"""Of use to every recipe: a gated model can't be fetched without it."""
ENGINE_KEY = "VLLM_API_KEY"
"""Of use to every recipe on vLLM: its requests want it then."""
MAX_FILE_BYTES = 1 << 16
_NAMED = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_UNUSABLE = "the value of "
_NAME = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\b")
_QUOTED = re.compile(r"(['\"])(.*?)\1(?:\s+#.*)?")
_COMMENT = re.compile(r"(?:^|\s+)#.*")
_PAIR = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of the names that were wanted."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name -> "from the environment", "from PATH"; empty: it is missing."""
    problems: tuple[str, ...] = ()
    """Files that weren't read, and what would do."""

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, source in self.sources.items() if not source)


def wanted(recipe: Recipe) -> tuple[str, ...]:
    """What a recipe takes of its operator: each "$NAME" of its environment, the engine's key, the hub's token last."""
    named = _named(recipe)
    key = (ENGINE_KEY,) if recipe.engine is EngineKind.VLLM else ()
    return tuple(dict.fromkeys((*named, *key, HUB_TOKEN)))


def needed(recipe: Recipe) -> tuple[str, ...]:
    """Those of them without which it can't be launched."""
    return tuple(name for name in dict.fromkeys(_named(recipe)) if name != HUB_TOKEN)


def _named(recipe: Recipe) -> list[str]:
    texts = (*recipe.environment.values(), *recipe.node_environment.values())
    return [braced or plain for text in texts for braced, plain in _NAMED.findall(text)]


def held(recipe: Recipe, named: Path | None = None) -> Found:
    """What the operator's environment and .env files hold of what a recipe wants; `named`: the file they asked for."""
    return found(wanted(recipe), os.environ, places(recipe.path, named))


def places(path: str, named: Path | None = None) -> tuple[Path, ...]:
    """The .env files of a recipe's file, the nearest first.

    The one that was asked for and no other; else the one beside a recipe that is the operator's own, then theirs for
    sparktop. Never the current folder's: what lies there was written for another program, and may be another's.
    """
    if named is not None:
        return (named,)
    file = Path(path)
    is_own = file.is_file() and not file.resolve().is_relative_to(resource_dir("recipes").resolve())
    beside = (file.parent / ".env",) if is_own else ()
    return tuple(dict.fromkeys((*beside, own_file())))


def own_file() -> Path:
    """The operator's own .env for sparktop, whatever the recipe."""
    return config_home() / ".env"


def place() -> str:
    """The same as remedies name it."""
    return shown(own_file())


def found(names: Iterable[str], environment: Mapping[str, str], paths: Iterable[Path]) -> Found:
    """The environment wins over a file, and a file over the next; an empty value is none."""
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    asked = tuple(dict.fromkeys(names))
    for name in asked:
        given = environment.get(name, "")
        sources[name] = "from the environment" if given and given.isprintable() else ""
        if not given.isprintable():
            problems.append(f"the environment: {_unusable(name, 'there is a line break or the like in it')}")
        elif given:
            values[name] = given
    for path in paths:
        held, damaged, problem = _read(path)
        if problem:
            problems.append(problem)
        problems += [f"{path} {damaged[name]}" for name in asked if not sources[name] and name in damaged]
        for name in asked:
            if not sources[name] and held.get(name):
                values[name], sources[name] = held[name], f"from {path}"
    return Found(values=values, sources=sources, problems=tuple(problems))


def read(path: Path) -> tuple[Mapping[str, str], str]:
    """(NAME=value lines of a .env file, why it wasn't read); a file that isn't there is no problem."""
    held, _, problem = _read(path)
    return held, problem


def _read(path: Path) -> tuple[Mapping[str, str], Mapping[str, str], str]:
    """(values, names whose line can't be meant and why, why the file wasn't read)."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return {}, {}, f"{path} is no file: it was not read"
        if status.st_mode & 0o077:
            return {}, {}, f"{path} can be read by others, so it was not read: chmod 600 {shown(path)}"
        if status.st_size > MAX_FILE_BYTES:
            return {}, {}, f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB: it was not read"
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return {}, {}, ""
    except UnicodeDecodeError:
        return {}, {}, f"{path} is no UTF-8: it was not read"
    except OSError as error:
        return {}, {}, f"{path} could not be read ({type(error).__name__})"
    return _lines(text)


def _lines(text: str) -> tuple[Mapping[str, str], Mapping[str, str], str]:
    """As a shell and Docker read it, whatever is no secret's line aside; the last line of a name is its."""
    values: dict[str, str] = {}
    damaged: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            if named := _NAME.match(line):
                damaged[named[1]] = f"line {number}: {_unusable(named[1], 'it is no NAME=value')}"
            continue
        name, value = pair[1], _value(pair[2].strip())
        values.pop(name, None)
        damaged.pop(name, None)
        if value is None or not value.isprintable():
            what = "its quotes don't end where it ends" if value is None else "there is a control character in it"
            damaged[name] = f"line {number}: {_unusable(name, what)}"
        else:
            values[name] = value
    return values, damaged, ""


def _unusable(name: str, why: str) -> str:
    return f"{_UNUSABLE}{name} can't be taken: {why}"


def unusable(problem: str) -> str:
    """The name of a secret that is given and can't be taken, where a problem says that; else empty."""
    return problem.partition(_UNUSABLE)[2].partition(" ")[0]


def _value(text: str) -> str | None:
    """Without its quotes and without a comment behind it; None where a quote is left open."""
    if text[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(text)
        return quoted[2] if quoted else None
    return _COMMENT.sub("", text)
