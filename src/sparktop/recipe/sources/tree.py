"""Where a source keeps its recipes, and what each is called."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from sparktop import files, sanitise
from sparktop.cmdline.yaml_nodes import values_of

_MANIFEST = ".sparkrun/registry.yaml"
_RECIPE_LINE = re.compile(rb"^[\"']?(model|recipe_version)[\"']?\s*:", re.MULTILINE)


def recipe_folders(tree: Path) -> tuple[Path, ...]:
    """The folders of a tree's recipes: those of its sparkrun manifest, else `recipes`, else the whole tree."""
    declared = [
        folder
        for each in map(sanitise.mapping, sanitise.items(read_yaml(tree / _MANIFEST).get("registries")))
        if (folder := below(tree, each.get("subpath", each.get("recipes", "recipes")))) is not None
    ]
    if not declared and os.path.isdir(tree / "recipes"):
        declared = [tree / "recipes"]
    return tuple(dict.fromkeys(declared)) or (tree,)


def below(tree: Path, subpath: object) -> Path | None:
    """A folder that is named by a path inside a tree; None where it isn't there, or leads out of the tree."""
    path = PurePosixPath(str(subpath))
    folder = tree / path
    try:
        is_inside = folder.resolve().is_relative_to(tree.resolve())
    except (OSError, RuntimeError, ValueError):
        return None
    return folder if is_inside and os.path.isdir(folder) else None


def read_yaml(path: Path) -> Mapping[str, object]:
    """The mapping in a YAML file; empty where there is none that can be read."""
    try:
        return sanitise.mapping(values_of(files.read(path).decode()))
    except (OSError, ValueError):
        return {}


def is_recipe(path: Path) -> bool:
    """Whether a YAML file of a tree that keeps other files too has a key which only a recipe has."""
    try:
        return _RECIPE_LINE.search(files.read(path)) is not None
    except OSError:
        return False


def names(tree: Path, paths: Iterable[tuple[Path, Path]]) -> Mapping[str, Path]:
    """Recipes by name: a file's own, where only one has it or one stands above the others, else with its folders.

    Args:
        tree: the source's folder.
        paths: each recipe file, and the recipe folder that it is in.
    """
    inner = {path: path.relative_to(folder).with_suffix("").as_posix() for path, folder in paths}
    stems, uses = Counter(path.stem for path in inner), Counter(inner.values())

    def name(path: Path) -> str:
        if uses[inner[path]] > 1:
            return path.relative_to(tree).as_posix()
        return path.stem if stems[path.stem] == 1 else inner[path]

    return {sanitise.line(name(path)): path for path in inner}
