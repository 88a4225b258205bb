"""Where recipes are: those that come with sparktop, the operator's own, which win over them by name, or any file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from sparktop import sanitise
from sparktop.config import config_home, resource_dir, shown
from sparktop.errors import ConfigError, UsageError
from sparktop.model.recipe import Recipe
from sparktop.recipe.problems import Problem, ProblemKind
from sparktop.recipe.reading import MAX_CHARS, Reading, read

ENDINGS = (".yaml", ".yml")
MAX_DEPTH = 4
"""Folders within folders of the operator's own that are looked into."""
MAX_FILES = 2_000


class Origin(StrEnum):
    """Whose recipe it is."""

    SHIPPED = "sparktop"
    OWN = "yours"
    FILE = "a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recipe file, read."""

    id: str
    """What it is asked for by: its file's name without the ending, its folders before it."""
    path: str
    origin: Origin
    reading: Reading
    covers: str = ""
    """The shipped recipe of the same id that it stands in for."""

    @property
    def recipe(self) -> Recipe | None:
        """None where there is an error in it."""
        return self.reading.recipe

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with it, and what should be known of it."""
        return self.reading.problems

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with sparktop."""
        return self.origin is Origin.SHIPPED


def own_folder() -> Path:
    """Where the operator's own recipes belong."""
    return config_home() / "recipes"


def entries() -> tuple[Entry, ...]:
    """All shipped recipes and the operator's own, in the order of their ids; one that can't be read is there too."""
    shipped = {_id(path, folder): path for folder in (resource_dir("recipes"),) for path in _files(folder)}
    own = {_id(path, own_folder()): path for path in _files(own_folder())}
    made = []
    for name in sorted({*shipped, *own}):
        path = own.get(name) or shipped[name]
        covered = str(shipped[name]) if name in own and name in shipped else ""
        origin = Origin.OWN if name in own else Origin.SHIPPED
        made.append(
            Entry(id=name, path=str(path), origin=origin, reading=_named(read_file(path), name), covers=covered)
        )
    return tuple(made)


def unread() -> tuple[str, ...]:
    """Folders of the operator's own that can't be looked into, each with why and what to do: their recipes lack."""
    failed: list[tuple[Path, OSError]] = []
    for _ in zip(range(MAX_FILES), _walked(own_folder(), MAX_DEPTH, failed), strict=False):
        pass
    return tuple(_why_unread(folder, error) for folder, error in failed)


def _why_unread(folder: Path, error: OSError) -> str:
    if isinstance(error, NotADirectoryError):
        return f"{shown(folder)} is a file, where the folder of your recipes belongs: move it away"
    why = (error.strerror or type(error).__name__).lower()
    return f"{shown(folder)} can't be read ({why}), so your recipes in it are not listed: ls -ld {shown(folder)}"


def entry(name: str) -> Entry:
    """A recipe by its id, or by the path of its file.

    Raises:
        UsageError: there is none of that name; the nearest are named.
        ConfigError: the file can't be read at all.
    """
    if _is_path(name):
        path = _expanded(name)
        if not os.path.isfile(path):
            raise _no_file(name, path)
        return Entry(id=path.stem, path=str(path), origin=Origin.FILE, reading=read_file(path))
    known = {each.id: each for each in entries()}
    if name in known:
        return known[name]
    lower = {each.lower(): each for each in known}
    near = [lower[each] for each in get_close_matches(name.lower()[:128], lower, n=3, cutoff=0.5)]
    near = near or [each for each in known if name and name.lower() in each.lower()][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "sparktop recipes list names all"
    if os.path.isfile(name):
        hint = f"to take the file: ./{sanitise.line(name)}"
    hint = "\n".join((hint, *unread()))
    raise UsageError(f"there is no recipe {sanitise.line(name, limit=128) or repr(name)}", hint=hint)


def _no_file(name: str, path: Path) -> UsageError:
    shown = sanitise.line(name, limit=256)
    if os.path.isdir(path):
        return UsageError(f"{shown} is a folder", hint=f"name the files in it: {shown.rstrip('/')}/*.yaml")
    if os.path.lexists(path):
        return UsageError(f"{shown} is no file that can be read", hint=f"ls -l {shown}")
    known = {each.id for each in entries()}
    hint = f"did you mean the recipe {path.stem}?" if path.stem in known else "sparktop recipes list names all"
    return UsageError(f"{shown}: there is no such file", hint=hint)


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # a user whom nobody knows
        return Path(name)


def find(name: str) -> Reading:
    """What a recipe says, by its id or its path; it may have problems.

    Raises:
        UsageError: there is none of that name; the nearest are named.
        ConfigError: the file can't be read at all.
    """
    return entry(name).reading


def recipe(name: str) -> Recipe:
    """A recipe that can be launched.

    Raises:
        UsageError: there is none of that name; the nearest are named.
        ConfigError: it has errors, all of them named.
    """
    reading = find(name)
    if reading.recipe is None:
        first, *others = (str(problem) for problem in reading.errors)
        raise ConfigError("\n  ".join((first, *others)), hint=f"sparktop recipes validate {sanitise.line(name)}")
    return reading.recipe


def read_file(path: Path) -> Reading:
    """The recipe of one file; a file that can't be opened, or is no text, is a problem too."""
    shown = sanitise.line(str(path))
    try:
        # Without waiting: a FIFO has nobody at its other end, and one in the folder would hold up every command.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _unread(shown, "no file of text: a FIFO, a device or the like")
            raw = file.read(MAX_CHARS * 4 + 1)
    except OSError as error:
        return _unread(shown, f"it can't be read: {error.strerror or error}")
    if len(raw) > MAX_CHARS * 4:
        return _unread(shown, f"more than {MAX_CHARS * 4 // 1000} kB are no recipe")
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unread(shown, "binary, or no UTF-8", line)
    return read(text, shown)


def _named(reading: Reading, name: str) -> Reading:
    """A recipe within a folder is named with it, so that its id finds it again."""
    if reading.recipe is None or reading.recipe.id == name:
        return reading
    return replace(reading, recipe=replace(reading.recipe, id=name))


def _unread(path: str, text: str, line: int = 1) -> Reading:
    return Reading(recipe=None, problems=(Problem(file=path, line=line, key="", text=text, kind=ProblemKind.BROKEN),))


def _is_path(name: str) -> bool:
    is_folder = "/" in name and (name.startswith(("/", "./", "../", "~")) or os.path.isfile(name))
    return is_folder or name.endswith(ENDINGS)


def _id(path: Path, folder: Path) -> str:
    return sanitise.line(path.relative_to(folder).with_suffix("").as_posix())


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(path for _, path in zip(range(MAX_FILES), _walked(folder, MAX_DEPTH, []), strict=False))


def _walked(folder: Path, depth: int, failed: list[tuple[Path, OSError]]) -> Iterator[Path]:
    """The files below it; `failed` gets the folders that can't be looked into."""
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        if os.path.lexists(folder) or not isinstance(error, FileNotFoundError):
            failed.append((folder, error))
        return
    for path in found:
        if path.name.startswith("."):
            continue
        is_folder = os.path.isdir(path)  # Path's own raises where the folder may be listed and not entered
        if is_folder and depth > 1 and not path.is_symlink():
            yield from _walked(path, depth - 1, failed)
        elif path.suffix in ENDINGS and not is_folder:
            yield path
