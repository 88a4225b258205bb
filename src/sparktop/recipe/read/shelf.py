"""Find recipes: those shipped with sparktop, the operator's own, which override them by name, those of sources as
`@SOURCE/NAME`, or any file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.config import config_home, resource_dir, shown
from sparktop.dataclass import dataclass
from sparktop.errors import ConfigError, UsageError, nearest_names
from sparktop.model.recipe import Recipe, RecipeSource
from sparktop.recipe.problems import Problem, ProblemKind
from sparktop.recipe.read.adopt import Adopted, read_launch
from sparktop.recipe.read.mods import finder
from sparktop.recipe.read.recipe_file import ENDINGS, MAX_CHARS, Reading, read, unreadable
from sparktop.recipe.sources.sources import sources
from sparktop.recipe.sources.tree import is_recipe
from sparktop.recipe.sources.tree import names as source_names

MAX_DEPTH = 4
"""How many levels of the operator's own folders are searched."""
MAX_FILES = 2_000
WHAT_STARTS = "give a recipe, a compose file, a `docker run` script or a unit; sparktop recipes list names the recipes"
"""The next step for a file that starts nothing."""


class Origin(StrEnum):
    """Where a recipe comes from."""

    SHIPPED = "sparktop"
    OWN = "yours"
    SOURCE = "a source"
    FILE = "a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recipe file and the result of reading it."""

    id: str
    """The name the recipe is requested by: its file name without the ending, with its folders before it."""
    path: str
    origin: Origin
    reading: Reading
    covers: str = ""
    """The recipe of the same id that it replaces: a shipped one, or one of a source."""
    source: RecipeSource | None = None
    adopted: Adopted | None = None
    """Where the file is no recipe, but starts an engine: a compose file, a script, a unit."""

    @property
    def file(self) -> str:
        """Its path without the name of the engine in it."""
        return _without_engine(self.path)[0]

    @property
    def recipe(self) -> Recipe | None:
        """None where the file has an error."""
        return self.reading.recipe

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Errors and notes of the file."""
        return self.reading.problems


def own_folder() -> Path:
    """The folder of the operator's own recipes."""
    return config_home() / "recipes"


def recipe_argument(recipe: Recipe) -> str:
    """The recipe as a command line names it: by its id where it is listed, else by its file."""
    is_listed = any(Path(recipe.path).is_relative_to(folder) for folder in (own_folder(), resource_dir("recipes")))
    return recipe.id if is_listed or recipe.source is not None else recipe.path


def names() -> tuple[str, ...]:
    """The id of every recipe: shipped, the operator's own, of a source; no recipe is read."""
    return tuple(sorted(_found()))


def entries() -> tuple[Entry, ...]:
    """All recipes by id, those of sources last; unreadable ones are included."""
    known = sources()
    found = _found(known)
    ids = sorted(found, key=lambda name: (name.startswith("@"), name))
    return tuple(_entry(name, *found[name], known=known) for name in ids)


Found = tuple[Path, Origin, RecipeSource | None, str]
"""A recipe file, its origin, its source, and the file that it replaces."""


def _entry(
    name: str,
    path: Path,
    origin: Origin,
    source: RecipeSource | None,
    covers: str,
    *,
    known: Sequence[RecipeSource] | None = None,
) -> Entry:
    reading = read_file(path, known)
    if reading.recipe is not None:
        reading = replace(reading, recipe=replace(reading.recipe, id=name, source=source))
    return Entry(id=name, path=str(path), origin=origin, reading=reading, covers=covers, source=source)


def _found(known: Sequence[RecipeSource] | None = None) -> dict[str, Found]:
    """Every recipe file by its id; `known` are all sources."""
    found: dict[str, Found] = {}
    for source in sources() if known is None else known:
        tree, folders = Path(source.tree), tuple(map(Path, source.folders))
        is_whole = folders == (tree,)  # its other YAML files are no recipes
        paths = [(path, folder) for folder in folders for path in _files(folder) if not is_whole or is_recipe(path)]
        found |= {
            f"@{source.name}/{name}": (path, Origin.SOURCE, source, "")
            for name, path in source_names(tree, paths).items()
        }
    for origin, folder in ((Origin.SHIPPED, resource_dir("recipes")), (Origin.OWN, own_folder())):
        for path in _files(folder):
            name = sanitise.line(path.relative_to(folder).with_suffix("").as_posix())
            found[name] = (path, origin, None, str(found[name][0]) if name in found else "")
    return found


def unreadable_folders() -> tuple[str, ...]:
    """Folders of the operator's own, and of sources, that can't be listed, each with the reason and the next step."""
    failed: list[tuple[Path, OSError]] = []
    _files(own_folder(), failed)
    gone = tuple(
        f"the folder of @{source.name} can't be read: {shown(Path(source.tree))}; if it is gone for good, sparktop "
        f"recipes source remove {source.name}"
        for source in sources()
        if not os.access(source.tree, os.R_OK | os.X_OK)
    )
    return (*(_why_unreadable(folder, error) for folder, error in failed), *gone)


def _why_unreadable(folder: Path, error: OSError) -> str:
    if isinstance(error, NotADirectoryError):
        return f"{shown(folder)} is a file, but must be the folder of your recipes: move the file away"
    why = (error.strerror or type(error).__name__).lower()
    return f"{shown(folder)} can't be read ({why}), so the list lacks your recipes: ls -ld {shown(folder)}"


def entry(name: str, image: Mapping[str, Any] | None = None) -> Entry:
    """A recipe by its id, or by the path of its file.

    Args:
        image: as for `read_launch`.

    Raises:
        UsageError: no recipe of that name; the hint has similar names.
        ConfigError: the file can't be read at all.
    """
    if _is_path(name):
        return _of_file(name, image)
    found = _found()
    if name in found:
        return _entry(name, *found[name])
    if os.path.isfile(_without_engine(name)[0]):
        return _of_file(name, image)
    near = near_names(name, found) or [each for each in found if name and name.lower() in each.lower()][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "sparktop recipes list shows all"
    hint = "\n".join((hint, *unreadable_folders()))
    raise UsageError(f"there is no recipe {sanitise.line(name, limit=128) or repr(name)}", hint=hint)


def near_names(name: str, found: Collection[str], *, least: float = 0.5) -> list[str]:
    """The recipes that are called so in a source or a folder, else those of similar names, at least so similar."""
    lower = {each.lower(): each for each in found}
    named = [each for each in found if name and each.rpartition("/")[2] == name]
    return named[:3] or [lower[each] for each in nearest_names(name.lower(), lower, least=least, most=3)]


def entries_of_file(name: str) -> tuple[Entry, ...]:
    """Each engine that a file starts; the one entry of a recipe, or of a file that can't be read.

    Raises:
        UsageError, ConfigError: as `entry`.
    """
    whole = entry(name)
    engines = whole.adopted.engines if whole.adopted is not None else ()
    return tuple(entry(f"{whole.path}#{engine}") for engine in engines) or (whole,)


def _of_file(name: str, image: Mapping[str, Any] | None) -> Entry:
    """A file's recipe, or the one that is made of the engine it starts."""
    file, engine = _without_engine(name)
    path = _expanded(file)
    if not os.path.isfile(path):
        raise _no_file(file, path)
    reading = read_file(path)
    is_none = reading.recipe is None and all(problem.kind is ProblemKind.BROKEN for problem in reading.errors)
    adopted = _adopted(path, engine, image) if is_none else None
    if adopted is None:
        return Entry(id=path.stem, path=str(path), origin=Origin.FILE, reading=reading)
    entry_id = adopted.name or path.stem
    return Entry(id=entry_id, path=name, origin=Origin.FILE, reading=adopted.reading, adopted=adopted)


def _without_engine(name: str) -> tuple[str, str]:
    """(the file, the engine in it) of FILE#ENGINE."""
    file, _, engine = name.rpartition("#")
    return (name, "") if not file or os.path.exists(name) else (file, engine)


def _adopted(path: Path, engine: str, image: Mapping[str, Any] | None) -> Adopted | None:
    try:
        text = files.read(path, MAX_CHARS * 4).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # the reading says so
    return read_launch(text, path, engine, image)


def _no_file(name: str, path: Path) -> UsageError:
    shown_name = sanitise.line(name, limit=256)
    if os.path.isdir(path):
        return UsageError(f"{shown_name} is a folder", hint=f"name the files in it: {shown_name.rstrip('/')}/*.yaml")
    if os.path.lexists(path):
        return UsageError(f"{shown_name} is not a readable file", hint=f"ls -l {shown_name}")
    hint = f"did you mean the recipe {path.stem}?" if path.stem in _found() else "sparktop recipes list shows all"
    return UsageError(f"{shown_name}: there is no such file", hint=hint)


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~USER with an unknown user
        return Path(name)


def is_there(name: str) -> bool:
    """Whether it is a recipe's id, or a file."""
    file, _ = _without_engine(name)
    is_path = _is_path(name) and (not file.startswith("/") or os.path.lexists(file))  # else it may be one of a Spark
    return is_path or name in names() or os.path.isfile(file)


def image_wanted(name: str) -> str:
    """The image whose own command starts what the file launches; "" where its command is known, or it is none.

    Raises:
        UsageError, ConfigError: as `entry`.
    """
    adopted = entry(name).adopted
    return adopted.image if adopted is not None else ""


def launchable(name: str, image: Mapping[str, Any] | None = None) -> Entry:
    """A recipe that can be launched, or a file that one can be made of.

    Args:
        image: as for `read_launch`.

    Raises:
        UsageError: no recipe of that name; the hint has similar names.
        ConfigError: it has errors; the message lists them all.
    """
    chosen = entry(name, image)
    if chosen.recipe is None:
        errors = chosen.reading.errors
        is_none = all(problem.kind is ProblemKind.BROKEN for problem in errors)
        hint = WHAT_STARTS if is_none else f"sparktop recipes validate {sanitise.line(name)}"
        raise ConfigError("\n  ".join(map(str, errors)), hint=hint)
    return chosen


def recipe(name: str) -> Recipe:
    """The recipe of `launchable`."""
    chosen = launchable(name).recipe
    assert chosen is not None  # its errors were raised
    return chosen


def read_file(path: Path, known: Sequence[RecipeSource] | None = None) -> Reading:
    """Read one recipe file; a file that can't be opened, or is no text, becomes a problem.

    `known` are the sources to look for its mods in; None: all.
    """
    shown = sanitise.line(str(path))
    try:
        raw = files.read(path, MAX_CHARS * 4)
    except OSError as error:
        return unreadable(shown, 1, f"it can't be read: {error.strerror or error}")
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        return unreadable(shown, raw.count(b"\n", 0, error.start) + 1, "binary, or not UTF-8", WHAT_STARTS)
    return read(text, shown, finder(path, sources() if known is None else known))


def _is_path(name: str) -> bool:
    if name.startswith("@"):
        return False
    file, _ = _without_engine(name)
    is_folder = "/" in name and (name.startswith(("/", "./", "../", "~")) or os.path.isfile(file))
    return is_folder or file.endswith(ENDINGS)


def _files(folder: Path, failed: list[tuple[Path, OSError]] | None = None) -> tuple[Path, ...]:
    return tuple(islice(_walk(folder, MAX_DEPTH, [] if failed is None else failed), MAX_FILES))


def _walk(folder: Path, depth: int, failed: list[tuple[Path, OSError]]) -> Iterator[Path]:
    """The recipe files below a folder; `failed` collects folders that can't be listed."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        if os.path.lexists(folder) or not isinstance(error, FileNotFoundError):
            failed.append((folder, error))
        return
    for path in children:
        if path.name.startswith("."):
            continue
        is_folder = os.path.isdir(path)  # Path's own raises where the folder may be listed and not entered
        if is_folder and depth > 1 and not path.is_symlink():
            yield from _walk(path, depth - 1, failed)
        elif path.suffix in ENDINGS and not is_folder:
            yield path
