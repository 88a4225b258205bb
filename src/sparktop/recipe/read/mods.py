"""What a recipe changes in its image before the engine starts: its `pre_exec` commands, then its mods.

A mod is a folder with `run.sh`. As sparkrun does, it is looked for beside the recipe, in the recipe's repository, then
in the sources of recipes (docs/facts/engines.md section 5.1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sparktop import files
from sparktop.config import shown as shown_path
from sparktop.errors import ConfigError
from sparktop.model.recipe import Patch, PatchFile, RecipeSource
from sparktop.recipe.problems import shown
from sparktop.recipe.read.fields import Fields

Finder = Callable[[str], Patch]
"""A mod by its name; raises ConfigError where its files can't be had."""
BUILT_IN = "drop-caches"
"""What every launch does anyway."""
MAX_BYTES, MAX_FILES = 5_000_000, 500
_LEVELS = 4
"""Folders above a recipe that may hold its mods, where it is in no repository."""
_EUGR = "add eugr's mods: sparktop recipes source add eugr https://github.com/eugr/spark-vllm-docker"
_NAME = re.compile(r"(?:@(?P<scope>[\w.-]+)/)?(?P<rel>[\w-][\w.-]*(?:/[\w-][\w.-]*)*)")
_IN_BACKGROUND = re.compile(r"(?<![&>])&\s*(?:$|;)|\bnohup\b|\bsetsid\b", re.MULTILINE)


def nowhere(name: str) -> Patch:
    """The finder of a recipe that is in no folder."""
    raise ConfigError("the recipe is in no folder")


def read_patches(fields: Fields, config: Fields, find: Finder) -> tuple[Patch, ...]:
    """`pre_exec`, and the mods of the recipe and of its `runtime_config`; problems go to the sheet."""
    mods = dict.fromkeys((*_mods(fields, find), *_mods(config, find)))  # one that both name is applied once
    return (*_commands(fields), *mods)


def _commands(fields: Fields) -> Iterator[Patch]:
    value = fields.plain("pre_exec")
    for number, item in enumerate(value if isinstance(value, list) else [value] if value else (), 1):
        if not isinstance(item, str):
            text = "copies a file of another machine into the container"
            fields.unsupported("pre_exec", text, "make it a mod: a folder with run.sh")
        elif _stays_in_image(fields, "pre_exec", item, item):
            yield Patch(name=f"pre_exec {number}", command=item)


def _stays_in_image(fields: Fields, key: str, name: str, script: str) -> bool:
    """Whether a script leaves only files behind; else that is told."""
    if not _IN_BACKGROUND.search(script):
        return True
    text = f"`{shown(name)}` leaves a process running, which an image can't keep"
    fields.unsupported(key, text, "start it in the image's entrypoint")
    return False


def _mods(fields: Fields, find: Finder) -> Iterator[Patch]:
    value = fields.plain("mods")
    for name in value if isinstance(value, list) else [value] if value else ():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            fields.add("mods", f"`{shown(name)}` is no name of a mod", remedy="write a list of folder names")
        elif name.rpartition("/")[2] == BUILT_IN:
            fields.note("mods", f"not needed for `{BUILT_IN}`: sparktop drops caches once, before every launch")
        else:
            try:
                patch = find(name)
            except ConfigError as error:
                fields.missing("mods", f"`{shown(name)}`: {error.message}", error.hint or "")
                continue
            script = next((file.content for file in patch.files if file.path == "run.sh"), b"")
            if _stays_in_image(fields, "mods", name, script.decode("utf-8", "replace")):
                yield patch


def finder(recipe: Path, sources: Sequence[RecipeSource]) -> Finder:
    """Finds the mods of a recipe's file on this machine."""

    def find(name: str) -> Patch:
        match = _NAME.fullmatch(name)
        assert match is not None  # checked by who asks
        rel = match["rel"].removeprefix("mods/")
        for folder, source in _places(recipe.absolute(), match["scope"] or "", sources):
            if os.path.isfile(folder / rel / "run.sh"):  # Path's own raises where the name is too long
                return Patch(name=name, files=_files(folder / rel), source=source)
        where = f"@{match['scope']}" if match["scope"] else f"{shown_path(recipe.absolute().parent)} and its repository"
        raise ConfigError(f"no folder of that name with run.sh in {where}, nor in a source of recipes", hint=_EUGR)

    return find


def _places(recipe: Path, scope: str, sources: Sequence[RecipeSource]) -> Iterator[tuple[Path, RecipeSource | None]]:
    """(folder that holds mods, the source it is in where that isn't the recipe's), the nearest first; those of a scope
    are in a folder or source that is named for it."""
    home = Path.home()
    own = next((source for source in sources if recipe.is_relative_to(source.tree)), None)
    for level, folder in enumerate(recipe.parents[:_LEVELS]):
        if level and (folder == home or folder in home.parents):
            break
        if not scope or any(scope in part for part in folder.parts):
            yield from ((place, None) for place in _with_mods(folder))
        if os.path.exists(folder / ".git") or (own is not None and folder == Path(own.tree)):
            break
    for source in sources:
        if not scope or source.name == scope or source.name.startswith(f"{scope}-"):
            other = None if source is own else source
            yield from ((place, other) for place in _with_mods(Path(source.tree)))
    if scope in ("", "eugr"):
        yield home / "spark-vllm-docker" / "mods", None


def _with_mods(folder: Path) -> Iterator[Path]:
    yield folder
    yield from sorted(folder.glob("*mods"))


def _files(folder: Path) -> tuple[PatchFile, ...]:
    """All files below the folder."""
    found: list[PatchFile] = []
    left = MAX_BYTES
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted((*names, *(each for each in folders if os.path.islink(os.path.join(where, each))))):
            path = Path(where, name)
            if path.is_symlink():  # to whatever on this machine: nothing of that goes into a container
                raise ConfigError(f"{shown_path(path)} is a link: put the file there")
            try:
                content = files.read(path, left + 1)
            except OSError as error:
                raise ConfigError(f"{shown_path(path)} can't be read: {error.strerror or error}") from error
            left -= len(content)
            if left < 0 or len(found) >= MAX_FILES:
                raise ConfigError(f"{shown_path(folder)} has more than {MAX_BYTES // 10**6} MB or {MAX_FILES} files")
            is_program = os.access(path, os.X_OK)
            found.append(PatchFile(path=path.relative_to(folder).as_posix(), content=content, is_program=is_program))
    return tuple(found)
