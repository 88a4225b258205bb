"""The sources that the operator has: those that sparktop keeps a note of, and sparkrun's registries where they lie.

A note is one JSON file; beside it lies the copy of a repository, in a folder named by its commit. A note is replaced
in one step and only once the new copy is whole, so a repository that is gone, or an update that is cut off, leaves the
last state.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sparktop import files, sanitise
from sparktop.config import shown, state_home
from sparktop.errors import UsageError
from sparktop.masking import mask_text
from sparktop.model.recipe import RecipeSource, SourceKind
from sparktop.recipe.sources import git
from sparktop.recipe.sources.tree import below, read_yaml, recipe_folders

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def sources() -> tuple[RecipeSource, ...]:
    """All sources, by name; one that the operator added wins over sparkrun's registry of the same name."""
    by_name = {each.name: each for each in _registries()}
    for each in _kept():
        hidden = by_name.get(each.name)
        by_name[each.name] = replace(each, covers=hidden.place) if hidden is not None else each
    return tuple(by_name[name] for name in sorted(by_name))


def source(name: str) -> RecipeSource:
    """The source of that name, with or without its `@`.

    Raises:
        UsageError: there is none.
    """
    by_name = {each.name: each for each in sources()}
    if (found := by_name.get(name.removeprefix("@"))) is not None:
        return found
    hint = f"there is {', '.join(by_name)}" if by_name else "sparktop recipes source add NAME URL|FOLDER"
    raise UsageError(f"there is no source of recipes {sanitise.line(name, limit=64)!r}", hint=hint)


def add(name: str, place: str) -> RecipeSource:
    """Note a folder, or copy a git repository.

    Raises:
        UsageError: the name is taken or not valid, or the place is neither a folder nor a URL.
        GitFailed: the repository can't be read.
        OSError: nothing can be written.
    """
    name = name.removeprefix("@")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{sanitise.line(name, limit=64)!r} can't be a name", hint="letters, digits, . _ and -")
    if (taken := next((each for each in sources() if each.name == name), None)) is not None:
        again = f", or copy it again: sparktop recipes source update {name}" if place == taken.place else ""
        raise UsageError(f"@{name} is {taken.place} already", hint=f"take another name{again}")
    if place.startswith(("/", "./", "../", "~")) or place in (".", "..") or os.path.isdir(place):
        folder = Path(os.path.expanduser(place)).resolve()  # Path's own raises for a user that nobody is
        if not os.path.isdir(folder):  # Path's own raises where it may not be looked at
            raise UsageError(f"{shown(folder)} is no folder", hint=f"ls -ld {shown(folder)}")
        files.write_private(_note(name), json.dumps({"place": str(folder)}))
    else:
        git.check_url(place)
        _copy(name, place)
    return source(name)


def update(old: RecipeSource) -> RecipeSource:
    """The source after its repository was copied again; the old copy is removed.

    Raises:
        GitFailed: the repository can't be read; the source is as it was.
    """
    _copy(old.name, old.place)
    return source(old.name)


def remove(old: RecipeSource) -> None:
    """Forget a source and remove the copy of its repository; a folder stays."""
    _note(old.name).unlink(missing_ok=True)
    _remove_copies(old.name)


def trust(trusted: RecipeSource) -> None:
    """Note that the operator agrees to launch from a source, as it is at its commit.

    Raises:
        OSError: it can't be written.
    """
    files.write_private(_consent(trusted), f"{trusted.place} {trusted.commit}\n")


def _home() -> Path:
    return state_home() / "recipe-sources"


def _note(name: str) -> Path:
    return _home() / f"{name}.json"


def _consent(of: RecipeSource) -> Path:
    return _home() / "trusted" / hashlib.sha256(f"{of.place}\n{of.commit}".encode()).hexdigest()


def _copy(name: str, url: str) -> None:
    """Copy the repository, then have the note say so."""
    partial = Path(tempfile.mkdtemp(prefix=f".{name}@", dir=files.private_folder(_home())))
    try:
        commit, day = git.clone(url, partial)
        copy = _home() / f"{name}@{commit}"
        if not copy.is_dir():
            partial.rename(copy)
        files.write_private(_note(name), json.dumps({"place": url, "commit": commit, "day": day}))
        _remove_copies(name, but=copy)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_copies(name: str, *, but: Path | None = None) -> None:
    """Remove the copies of a source's repository but for one, and those that were cut off."""
    for folder in (*_home().glob(f"{name}@*"), *_home().glob(f".{name}@*")):
        if folder != but:
            shutil.rmtree(folder, ignore_errors=True)


def _kept() -> Iterator[RecipeSource]:
    for path in sorted(_home().glob("*.json")):
        note = files.read_json(path)
        place, commit = (sanitise.line(str(note.get(key, ""))) for key in ("place", "commit"))
        if not _NAME.fullmatch(path.stem) or not place:
            continue
        if commit:
            tree = _home() / f"{path.stem}@{commit}"
            day = sanitise.line(str(note.get("day", "")))
            yield _made(path.stem, SourceKind.GIT, place, tree, recipe_folders(tree), (commit, day))
        else:
            yield _made(path.stem, SourceKind.FOLDER, place, Path(place), recipe_folders(Path(place)))


def _registries() -> Iterator[RecipeSource]:
    """sparkrun's registries that are enabled and in its cache, as docs/facts/engines.md section 5.2 has its layout."""
    config = Path.home() / ".config/sparkrun"
    cache = Path(os.path.expanduser(str(read_yaml(config / "config.yaml").get("cache_dir") or "~/.cache/sparkrun")))
    for each in map(sanitise.mapping, sanitise.items(read_yaml(config / "registries.yaml").get("registries"))):
        name, url = (sanitise.line(str(each.get(key, ""))) for key in ("name", "url"))
        if not _NAME.fullmatch(name) or each.get("enabled") is False:
            continue
        tree = cache / "registries" / name
        if (folder := below(tree, each.get("subpath", ""))) is not None:
            yield _made(name, SourceKind.SPARKRUN, mask_text(url), tree, (folder,))  # it may hold a password


def _made(
    name: str, kind: SourceKind, place: str, tree: Path, folders: tuple[Path, ...], at: tuple[str, str] | None = None
) -> RecipeSource:
    commit, day = at or git.head(tree)
    made = RecipeSource(
        name=name,
        kind=kind,
        place=place,
        tree=str(tree),
        folders=tuple(map(str, folders)),
        commit=commit,
        day=day,
    )
    return replace(made, is_trusted=os.path.isfile(_consent(made)))
