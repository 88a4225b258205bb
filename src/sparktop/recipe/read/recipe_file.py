"""Read a recipe file: parse it, and check that it renders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

import yaml

from sparktop.cmdline.source import Document
from sparktop.cmdline.yaml_nodes import UnreadableYaml, root_of
from sparktop.dataclass import dataclass
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.container_spec import CannotRender, NodeContext, Rendered
from sparktop.recipe.operator_secrets import names_used
from sparktop.recipe.parameters import resolve
from sparktop.recipe.problems import Problem, ProblemKind
from sparktop.recipe.read.fields import Fields, Sheet
from sparktop.recipe.read.mods import Finder, nowhere
from sparktop.recipe.read.sparkrun import read_recipe
from sparktop.recipe.render.render import render
from sparktop.recipe.settings import made_up


def check_rendering(fields: Fields, recipe: Recipe) -> None:
    """Render the recipe for each allowed number of nodes; where all fail, the first reason becomes a problem.

    What `--set` can fix at the launch is reported there, not as a problem of the file.
    """
    refusals = []
    for nodes in range(recipe.min_nodes, recipe.max_nodes + 1):
        try:
            render_made_up(recipe, nodes)
        except CannotRender as error:
            refusals.append(error)
        else:
            return
    if not refusals or refusals[0].is_settable:
        return
    first = refusals[0]
    remedy = "; ".join(filter(None, first.remedies))
    top, _, rest = first.key.partition(".")
    key = next((name for name in (top, "command", "defaults") if name in fields), "model")
    text = f"{rest} {first.text}".strip() if key == top else first.reason
    fields.add(key, text, kind=ProblemKind.TEMPLATE, remedy=remedy)


def render_made_up(recipe: Recipe, nodes: int, values: Mapping[str, str] | None = None) -> Rendered:
    """The launch on imaginary nodes: detected values, secrets and settings that nobody gave are placeholders.

    Raises:
        CannotRender: the recipe can't become a launch.
    """
    secrets = {name: f"<{name}>" for name in names_used(recipe)}
    node_contexts = tuple(
        NodeContext(
            node=f"spark{index + 1}",
            index=index,
            home="/home/you",
            cache="/home/you/.cache/huggingface",
            fabric_ip=f"spark{index + 1}-fabric",
        )
        for index in range(nodes)
    )
    order = Order(recipe=recipe, values=made_up(recipe) | dict(values or {}), secrets=secrets)
    return render(resolve(order), node_contexts)


ENDINGS = (".yaml", ".yml")
MAX_CHARS = 200_000
"""A larger file is refused."""


_RECIPE_KEYS = frozenset(("model", "recipe_version", "runtime", "container", "defaults", "command"))


_NEXT_DOCUMENT = re.compile(r"^---(?:\s|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of reading a recipe file."""

    recipe: Recipe | None
    """None where any of the problems is an error."""
    problems: tuple[Problem, ...] = ()
    """In the order of their lines."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make the recipe unusable."""
        return tuple(problem for problem in self.problems if problem.is_error)


def read(text: str, path: str, find_mod: Finder = nowhere) -> Reading:
    """Parse the text of a recipe file; never raises."""
    text = text.removeprefix("\ufeff")
    document = Document(path, text)
    if "\0" in text:
        return unreadable(path, 1, "a binary file, not a recipe")
    if len(text) > MAX_CHARS:
        why = f"{len(text) // 1000:,} kB: too large for a recipe"
        return unreadable(path, 1, why, "a recipe is a YAML file of a few kB")
    try:
        root = root_of(document)
    except UnreadableYaml as error:
        return unreadable(path, error.line, error.what, error.hint or "")
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return unreadable(path, 1, "the file is empty", "a recipe needs at least `model`, `container` and `command`")
    line = document.line_of(root.start_mark.index)
    if not isinstance(root, yaml.MappingNode):
        return unreadable(path, line, "not a recipe: it is not a mapping of keys")
    sheet = Sheet(document)
    fields = Fields(sheet, root)
    if not _RECIPE_KEYS & set(fields):
        return unreadable(path, line, "it has no key of a recipe", "a recipe needs at least `model`")
    if following := _NEXT_DOCUMENT.search(text, root.end_mark.index):
        sheet.add(
            following.start(),
            "",
            "a second document begins here",
            kind=ProblemKind.BROKEN,
            remedy="write one recipe in each file",
        )
    recipe = read_recipe(fields, PurePath(path).stem, path, find_mod)
    if not any(problem.is_error for problem in sheet.problems):
        check_rendering(fields, recipe)
    problems = tuple(sorted(dict.fromkeys(sheet.problems), key=lambda problem: problem.line))
    return Reading(recipe=None if any(problem.is_error for problem in problems) else recipe, problems=problems)


def unreadable(path: str, line: int, text: str, remedy: str = "", *, kind: ProblemKind = ProblemKind.BROKEN) -> Reading:
    """The reading of a file that no recipe can be made of at all."""
    problem = Problem(file=path, line=max(line, 1), key="", text=text, remedy=remedy, kind=kind)
    return Reading(recipe=None, problems=(problem,))
