"""A recipe file into a `Recipe`, or what is wrong with it: file, line, key, and the nearest right key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

import yaml

from sparktop.diagnose.lint.place import Document
from sparktop.diagnose.lint.yamlnodes import UnreadableYaml, root_of
from sparktop.model.recipe import Recipe
from sparktop.recipe.fields import Fields, Sheet
from sparktop.recipe.problems import Problem, ProblemKind
from sparktop.recipe.rendercheck import check_rendering
from sparktop.recipe.sparkrun import read_recipe

MAX_CHARS = 200_000
"""A larger file is no recipe."""
_SHAPE = frozenset(("model", "recipe_version", "runtime", "container", "defaults", "command"))
_NEXT_DOCUMENT = re.compile(r"^---(?:\s|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of a file."""

    recipe: Recipe | None
    """None where any of the problems is an error."""
    problems: tuple[Problem, ...] = ()
    """In the order of their lines."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Those for which there is no recipe."""
        return tuple(problem for problem in self.problems if problem.is_error)


def read(text: str, path: str) -> Reading:
    """The recipe of a file's text; it raises nothing, whatever the text is."""
    text = text.removeprefix("\ufeff")
    document = Document(path, text)
    if "\0" in text:
        return _broken(path, 1, "binary, no recipe")
    if len(text) > MAX_CHARS:
        return _broken(path, 1, f"{len(text) // 1000:,} kB are no recipe", "a recipe is a YAML file of a few kB")
    try:
        root = root_of(document)
    except UnreadableYaml as error:
        return _broken(path, error.line, error.what, error.hint or "")
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return _broken(path, 1, "the file is empty", "a recipe names at least `model`, `container` and a `command`")
    if not isinstance(root, yaml.MappingNode):
        return _broken(path, document.line_of(root.start_mark.index), "no mapping of keys, so no recipe")
    sheet = Sheet(document)
    fields = Fields(sheet, root)
    if not _SHAPE & set(fields):
        return _broken(
            path, document.line_of(root.start_mark.index), "none of its keys is a recipe's", "a recipe names `model`"
        )
    if following := _NEXT_DOCUMENT.search(text, root.end_mark.index):
        sheet.add(
            following.start(), "", "a second document begins here", kind=ProblemKind.BROKEN, remedy="one recipe a file"
        )
    recipe = read_recipe(fields, PurePath(path).stem, path)
    if not any(each.is_error for each in sheet.problems):
        check_rendering(fields, recipe)
    problems = tuple(sorted(dict.fromkeys(sheet.problems), key=lambda each: each.line))
    return Reading(recipe=None if any(each.is_error for each in problems) else recipe, problems=problems)


def _broken(path: str, line: int, text: str, remedy: str = "") -> Reading:
    problem = Problem(file=path, line=max(line, 1), key="", text=text, remedy=remedy, kind=ProblemKind.BROKEN)
    return Reading(recipe=None, problems=(problem,))
