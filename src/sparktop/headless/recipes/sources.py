"""`sparktop recipes source`: lists, adds, updates, trusts and removes sources of recipes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktop.config import shown
from sparktop.errors import SparktopError, UsageError
from sparktop.headless.terminal import say
from sparktop.model.recipe import RecipeSource, SourceKind
from sparktop.recipe.read.shelf import Entry, entries, unreadable_folders
from sparktop.recipe.sources import sources

VERBS = ("add", "update", "trust", "remove")


def source_command(words: Sequence[str], *, as_json: bool) -> int:
    """Do what the words say; the exit code. Without words, list the sources.

    Raises:
        UsageError: the words are no such command, or name no source.
        SparktopError: a repository can't be read, or nothing can be written.
    """
    verb, names = (words[0], list(words[1:])) if words else ("", [])
    counts: Mapping[str, tuple[int, ...]] = {"": (0,), "add": (2,), "update": (0, 1), "trust": (1,), "remove": (1,)}
    if len(names) not in counts.get(verb, ()):
        hint = "sparktop recipes source add NAME URL|FOLDER · update [NAME] · trust NAME · remove NAME"
        raise UsageError(f"recipes source {' '.join(words)}: no such command", hint=hint)
    try:
        if verb == "":
            return _list(as_json=as_json)
        if verb == "add":
            return _told(sources.add(*names))
        chosen = [sources.source(name) for name in names] or [
            each for each in sources.sources() if each.kind is SourceKind.GIT
        ]
        return max((_VERBS[verb](each) for each in chosen), default=0)
    except BrokenPipeError:
        raise  # whoever read the output has gone
    except OSError as error:
        raise SparktopError(f"the sources of recipes can't be kept: {error}") from error


def source_data(source: RecipeSource) -> dict[str, Any]:
    """A source as JSON-ready data."""
    return {
        "name": source.name,
        "kind": source.kind.value,
        "place": source.place,
        "folder": source.tree,
        "commit": source.commit or None,
        "day": source.day or None,
        "trusted": source.is_trusted,
    }


def source_line(source: RecipeSource, shelf_entries: Sequence[Entry]) -> str:
    """ "@arena: https://github.com/a/b at 3075780 of 2026-06-13, 37 recipes, 22 of them with errors"."""
    own = [item for item in shelf_entries if item.source == source]
    broken = sum(item.recipe is None for item in own)
    count = f"{len(own)} recipe{'s' if len(own) != 1 else ''}"
    errors = f", {broken} of them with errors" if broken else ""
    hides = f"; hides sparkrun's registry of that name, {source.covers}" if source.covers else ""
    return f"{source.text}, {count}{errors}{hides}"


def _list(*, as_json: bool) -> int:
    known, shelf_entries = sources.sources(), entries()
    if as_json:
        print(json.dumps({"version": 1, "sources": list(map(source_data, known))}, ensure_ascii=False, indent=1))
        return 0
    for each in known:
        print(f"{source_line(each, shelf_entries)}; {each.kind}, {'' if each.is_trusted else 'not yet '}agreed to")
    for text in unreadable_folders():
        say(f"sparktop: ▲ {text}")
    if not known:
        say("sparktop: no source of recipes\n  sparktop recipes source add NAME URL|FOLDER")
    return 0


def _told(source: RecipeSource) -> int:
    """Print what a source holds."""
    own = [item for item in entries() if item.source == source]
    print(source_line(source, own))
    if not own:
        say("sparktop: no recipe in it: no YAML file there has a `model` or a `recipe_version`")
    print(f"  files in {shown(Path(source.tree))}; sparktop recipes list @{source.name}")
    return 0


def _update(old: RecipeSource) -> int:
    """Copy a repository again, and print which recipes are new, changed and gone."""
    if old.kind is not SourceKind.GIT:
        hint = f"sparkrun registry update {old.name}" if old.kind is SourceKind.SPARKRUN else ""
        print(f"@{old.name} is read where it lies: {shown(Path(old.tree))}{f'; {hint}' if hint else ''}")
        return 0
    before = _texts(old)
    try:
        new = sources.update(old)
    except SparktopError as error:
        say(f"sparktop: @{old.name} stays at {old.commit[:7]}: {error}")
        return error.exit_code
    after = _texts(new)
    if new.commit == old.commit:
        print(f"{new.text}: nothing new")
        return 0
    print(f"{new.text}, {old.commit[:7]} before")
    for what, names in (
        ("new", after.keys() - before.keys()),
        ("changed", {name for name in after.keys() & before.keys() if after[name] != before[name]}),
        ("gone", before.keys() - after.keys()),
    ):
        if names:
            print(f"  {what}: {', '.join(sorted(names))}")
    return 0


def _texts(source: RecipeSource) -> dict[str, bytes]:
    return {item.id: Path(item.path).read_bytes() for item in entries() if item.source == source}


def _trust(source: RecipeSource) -> int:
    sources.trust(source)
    print(f"{source.text}: agreed to; sparktop launch asks no more{' at this commit' if source.commit else ''}")
    return 0


def _remove(source: RecipeSource) -> int:
    if source.kind is SourceKind.SPARKRUN:
        raise UsageError(f"@{source.name} is sparkrun's", hint=f"sparkrun registry disable {source.name}")
    sources.remove(source)
    kept = "" if source.kind is SourceKind.GIT else f"; {shown(Path(source.tree))} stays as it is"
    print(f"removed: {source.text}{kept}")
    return 0


_VERBS: Mapping[str, Callable[[RecipeSource], int]] = {"update": _update, "trust": _trust, "remove": _remove}
