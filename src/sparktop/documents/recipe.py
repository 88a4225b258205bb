"""Recipes as rows of a table, and all details of one recipe. Pure.

A recipe's text comes from somebody's file: it is sanitised and masked like text from a remote machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from rich.cells import cell_len

from sparktop.dataclass import dataclass
from sparktop.documents.prospect import FIT_SIGNS, risk_lines, signed
from sparktop.documents.step_text import masked
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Dialect, Executor, Expected, Order, Provenance, Recipe
from sparktop.recipe.problems import Problem
from sparktop.recipe.read import shelf
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.template import text_of
from sparktop.recipe.weigh.settings import EAGER, read
from sparktop.text.lines import UNCUT, Line, hanging, spaced, titled, wrapped
from sparktop.text.table import GAP, Column, fitted, table_row
from sparktop.text.units import bare_gib, duration

_QUANTISATIONS = re.compile(r"(?<![a-z])(nvfp4|mxfp4|fp8|awq|gptq|bf16|fp16|int4|int8|q4|q8)(?![a-z])", re.IGNORECASE)
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
Origin = Literal["shipped", "yours", "source", "a file"]
LABEL_CELLS = 12


class Group(StrEnum):
    """Where a row of the list comes from, by its heading, in their order."""

    RUNNING = "running here"
    FILES = "files beside them"
    RECIPES = "recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRow:
    """One recipe, or what one is made of, as the list shows it."""

    id: str
    path: str = ""
    origin: Origin = "shipped"
    source: str = ""
    """The source that it is from: its name, place and commit."""
    recipe: Recipe | None = None
    """None where the file can't be read as a recipe."""
    problems: tuple[str, ...] = ()
    """Errors, with file, line and key."""
    notes: tuple[str, ...] = ()
    """Warnings: what was read, but perhaps not as its author meant it."""
    group: Group = Group.RECIPES
    node: str = ""
    """Where it was found; "" for a recipe."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those that it holds, by the names that its recipe asks for."""


def in_order(rows: Sequence[RecipeRow], fleet: FleetState) -> tuple[RecipeRow, ...]:
    """The rows with what runs on these nodes first; where nothing of it does, the smallest model that no source has,
    for a first test."""
    running = {engine.model for view in fleet.nodes for engine in view.engines if is_alive(engine)}
    first = [row for row in rows if row.recipe is not None and row.recipe.model in running]
    if not first:
        sizes = {row.id: row.recipe.need.weights_gib for row in rows if row.recipe is not None and not row.source}
        known = [row for row in rows if sizes.get(row.id)]
        first = sorted(known, key=lambda row: sizes[row.id] or 0.0)[:1]
    return (*first, *(row for row in rows if row not in first))


_JOINED = {Executor.RAY: ", joined by Ray", Executor.NATIVE: ", joined by the engine itself"}
_ORIGINS: Mapping[shelf.Origin, Origin] = {
    shelf.Origin.SHIPPED: "shipped",
    shelf.Origin.OWN: "yours",
    shelf.Origin.SOURCE: "source",
    shelf.Origin.FILE: "a file",
}


def recipe_row(entry: shelf.Entry) -> RecipeRow:
    """A recipe file as the list shows it; problems name the file without its folder, which the details have."""

    def text(problem: Problem) -> str:
        return str(replace(problem, file=Path(problem.file).name))

    return RecipeRow(
        id=entry.id,
        path=entry.path,
        origin=_ORIGINS[entry.origin],
        source=entry.source.text if entry.source is not None else "",
        recipe=entry.recipe,
        problems=tuple(text(problem) for problem in entry.problems if problem.is_error),
        notes=(
            *((f"it replaces {entry.covers}",) if entry.covers else ()),
            *(text(problem) for problem in entry.problems if not problem.is_error),
        ),
    )


def adopted_row(adopted: Adopted, group: Group, node: str) -> RecipeRow:
    """A launch that was found on a node, as the list shows it."""
    problems = adopted.reading.problems
    return RecipeRow(
        id=adopted.name,
        path=next((problem.file for problem in problems), adopted.name),
        recipe=adopted.reading.recipe,
        problems=tuple(str(problem) for problem in problems if problem.is_error),
        notes=tuple(str(problem) for problem in problems if not problem.is_error),
        group=group,
        node=node,
        secrets=adopted.secrets,
    )


def one_line(text: str) -> str:
    """A recipe's text on one line, masked."""
    return masked(" ".join(text.split()))


def quantisation(recipe: Recipe) -> str:
    """The quantisation that the recipe names, else the one in its model's name, else ""."""
    for key in ("quantization", "model_dtype"):
        if named := str(recipe.metadata.get(key) or recipe.defaults.get(key) or ""):
            return _SHORT.get(one_line(named).lower(), one_line(named).lower())
    names = _QUANTISATIONS.findall(recipe.model)
    return names[-1].lower() if names else ""


def nodes_text(recipe: Recipe) -> str:
    """ "1", "2", "1-2"."""
    low, high = recipe.min_nodes, recipe.max_nodes
    return str(low) if low == high else f"{low}-{high}"


def speed_text(expected: Expected) -> str:
    """Expected tokens/s of a single stream: "52", "38-52"; "" where not known."""
    if expected.tokens_s is None:
        return ""
    highest = expected.tokens_s_most
    return f"{expected.tokens_s:.0f}" + (
        f"-{highest:.0f}" if highest is not None and highest != expected.tokens_s else ""
    )


class RecipeColumn(StrEnum):
    """The columns of the recipes' table, by their titles."""

    RECIPE = "RECIPE"
    ENGINE = "ENGINE"
    NODES = "NODES"
    QUANT = "QUANT"
    TOK_S = "TOK/S"
    FROM = "FROM"
    FIT = "FIT"
    MODEL = "MODEL"
    TITLE = "TITLE"


_COLUMNS = (
    Column(RecipeColumn.RECIPE, len("RECIPE")),
    Column(RecipeColumn.ENGINE, 6, turn=1),
    Column(RecipeColumn.NODES, 5, turn=2, is_right=True),
    Column(RecipeColumn.MODEL, 16, turn=7, grows=((8, UNCUT),)),
    Column(RecipeColumn.QUANT, 6, turn=3),
    Column(RecipeColumn.TOK_S, 6, turn=4, is_right=True),
    Column(RecipeColumn.FROM, 7, turn=5),
    Column(RecipeColumn.FIT, 3, turn=6),
    Column(RecipeColumn.TITLE, 16, turn=9, grows=((9, UNCUT),)),
)


def columns(
    rows: Sequence[RecipeRow], width: int, *, has_fits: bool = False, has_titles: bool = False
) -> tuple[Column, ...]:
    """The columns that fit: the name first, the model in the remaining cells; `has_fits` adds the verdicts,
    `has_titles` titles where the models leave room."""
    recipes = [row.recipe for row in rows if row.recipe is not None]
    names = max(len("RECIPE"), *(len(one_line(row.id)) for row in rows), 0)
    content: dict[StrEnum, int] = {}
    if has_titles:
        content[RecipeColumn.MODEL] = max((cell_len(one_line(one.model)) for one in recipes), default=0)
        content[RecipeColumn.TITLE] = max((cell_len(one_line(one.title)) for one in recipes), default=0)
    shown = {RecipeColumn.FIT: has_fits, RecipeColumn.TITLE: has_titles}
    first = replace(_COLUMNS[0], cells=min(names, max(12, width * 2 // 5)))
    return fitted([first, *(one for one in _COLUMNS[1:] if shown.get(RecipeColumn(one.key), True))], width, content)


def row_line(row: RecipeRow, columns: Sequence[Column], width: int, fits: Mapping[str, Fit]) -> Line:
    """One recipe in these columns; a broken one shows its first problem."""
    if row.recipe is None:
        more = f" (and {len(row.problems) - 1} more)" if row.problems[1:] else ""
        problem = one_line(row.problems[0]) + more if row.problems else "can't be read"
        name = Line.of((one_line(row.id), "quiet")).fit(columns[0].cells) if columns else Line()
        return (name + Line.of((GAP, ""), ("✖ ", "critical"), (problem, "warning"))).cut(width)
    recipe = row.recipe
    sign, tone = FIT_SIGNS[fits[row.id]] if row.id in fits else ("", "")
    values = {
        RecipeColumn.RECIPE: (one_line(row.id), "value"),
        RecipeColumn.ENGINE: (str(recipe.engine), ""),
        RecipeColumn.NODES: (nodes_text(recipe), ""),
        RecipeColumn.MODEL: (one_line(recipe.model), "quiet"),
        RecipeColumn.QUANT: (quantisation(recipe) or "–", ""),
        RecipeColumn.TOK_S: (speed_text(recipe.expected) or "–", "value" if recipe.expected.tokens_s else "quiet"),
        RecipeColumn.FROM: (one_line(row.node) or row.origin, "quiet" if row.origin == "shipped" else "info"),
        RecipeColumn.FIT: (sign, tone),
        RecipeColumn.TITLE: (one_line(recipe.title), "quiet"),
    }
    return table_row(columns, {key: Line.of(value) for key, value in values.items()})


def matches(row: RecipeRow, typed: str) -> bool:
    """Whether the recipe's texts contain all the typed words."""
    recipe = row.recipe
    texts = [row.id, row.node or row.origin, *row.problems]
    if recipe is not None:
        texts += [recipe.title, recipe.model, str(recipe.engine), quantisation(recipe), recipe.description]
    text = " ".join(texts).lower()
    return all(word in text for word in typed.lower().split())


def available_line(fleet: FleetState) -> Line:
    """The memory available on each node: "spark1 45.4 GiB available   spark2 46.0 GiB available"."""
    line = Line()
    for view in fleet.nodes:
        free = bare_gib(view.sample.memory.available_bytes) if view.sample is not None else None
        line += Line.of(("   " if line.runs else "", ""), (f"{masked(view.name)} ", "quiet"))
        line += Line.of((f"{free} GiB" if free else "not known", "value" if free else "quiet"), (" available", "quiet"))
    return line


def detail_lines(
    row: RecipeRow, width: int, *, values: Mapping[str, str] | None = None, command: Sequence[str] = ()
) -> list[Line]:
    """All details of a recipe, those that matter before a launch first.

    `values` are parameters in place of the recipe's own, `command` its head's command, a line each.
    """
    recipe = row.recipe
    if recipe is None:
        lines = [
            Line.of(("✖ ", "critical"), (f"{one_line(row.id)} can't be launched as it stands", "strong")).cut(width)
        ]
        for problem in row.problems:
            lines += hanging(Line.of(("› ", "faint")), one_line(problem), width)
        return [*lines, *_entry("source", row.source, width), *_entry("file", row.path, width)]
    environment = {**recipe.environment, **recipe.node_environment}
    head = [*wrapped(one_line(recipe.title or recipe.id), width, "title")]
    if recipe.description and recipe.description != recipe.title:
        head += wrapped(one_line(recipe.description), width)
    return spaced(
        [
            head,
            titled("Known risks", risk_lines(map(one_line, recipe.risks), width)),
            titled("As it was read", [line for n in row.notes for line in signed("•", "info", one_line(n), width)]),
            _facts(recipe, width),
            titled("Where it comes from", [line for source in recipe.provenance for line in _source(source, width)]),
            titled("Parameters", _parameters(recipe, values or {}, width)),
            titled("Environment", [line for pair in environment.items() for line in _variable(*pair, width)]),
            titled("Container", [
                line for name, value in recipe.options.items() for line in _variable(name, _value_text(value), width)
            ]),
            titled("Command", [Line.of("  ", masked(line)) for line in command]),
            titled("Against our own linter", [
                line for muted in recipe.muted for line in _entry(muted.rule, muted.reason, width)
            ]),
            [
                *_entry("source", row.source, width),
                *([] if recipe.dialect is Dialect.ADOPTED else [
                    *_entry("file", row.path or recipe.path, width), *_entry("written as", str(recipe.dialect), width),
                ]),
            ],
        ]
    )  # fmt: skip


def _value_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _eager_note(recipe: Recipe) -> str:
    """The note for a memory spike that the recipe avoids by eager mode, and that its budget doesn't count."""
    return f" unless {EAGER} is set, as it is here" if read(Order(recipe=recipe), {}).is_eager else ""


def _facts(recipe: Recipe, width: int) -> list[Line]:
    revision = f" at {recipe.model_revision}" if recipe.model_revision else ""
    several = recipe.max_nodes > 1
    nodes = f"{nodes_text(recipe)} node{'s' if several else ''}{_JOINED.get(recipe.executor, '') if several else ''}"
    need = recipe.need
    takes = [
        f"weights {need.weights_gib:g} GiB{' on all nodes together' if recipe.max_nodes > 1 else ''}"
        if need.weights_gib is not None else "",
        f"{need.spike_gib:g} GiB more at the first request{_eager_note(recipe)}"
        if need.spike_gib is not None else "",
        f"{need.reserve_gib:g} GiB left to the host" if need.reserve_gib is not None else "",
        f"{need.active_gib:g} GiB read per token" if need.active_gib is not None else "",
        f"{need.kv_bytes_per_token / 1024:g} KiB of KV cache per token" if need.kv_bytes_per_token is not None else "",
        f"a share of at most {need.share:g}" if need.share is not None else "",
    ]  # fmt: skip
    requires = recipe.requires
    requirements = [
        f"driver {requires.driver}" if requires.driver else "",
        "an image that carries Ray" if requires.ray else "",
        "an image that carries fastsafetensors" if requires.fastsafetensors else "",
        "lingering for the user (loginctl enable-linger)" if requires.linger else "",
    ]
    expected = recipe.expected
    speeds = [
        f"{speed_text(expected)} tokens/s" if expected.tokens_s is not None else "",
        f"first token in {expected.first_token_s:g} s" if expected.first_token_s is not None else "",
        f"loads in {duration(expected.load_s)}" if expected.load_s is not None else "",
        f"{expected.available_gib:g} GiB available when it serves" if expected.available_gib is not None else "",
    ]
    expectation = ", ".join(text for text in speeds if text)
    expectation += (f" ({expected.source})" if expectation else expected.source) if expected.source else ""
    pairs = (
        ("model", recipe.model + revision),
        ("with", ", ".join(recipe.more_models)),
        ("quantised", quantisation(recipe)),
        ("image", recipe.container + (f", where no node has it {recipe.pulls}" if recipe.pulls else "")),
        ("changed by", ", ".join(patch.name for patch in recipe.patches)),
        ("engine", f"{recipe.engine} on {nodes}"),
        ("takes", ", ".join(text for text in takes if text)),
        ("requires", ", ".join(text for text in requirements if text)),
        ("expected", expectation),
    )
    return [line for label, text in pairs for line in _entry(label, text, width)]


def _source(provenance: Provenance, width: int) -> list[Line]:
    date = f"  {one_line(provenance.date)}" if provenance.date else ""
    lines = [Line.of("› ", (one_line(provenance.source), "value"), (date, "quiet"))]
    if lines[0].width > width:
        lines = hanging(Line.of("› "), f"{one_line(provenance.source)}{date}", width, "value")
    for word, text in (("says ", provenance.says), ("here ", provenance.resolved)):
        if text:
            head = Line.of("  ", (word, "info"))
            lines += hanging(head, one_line(text), width, "" if word == "here " else "quiet")
    return lines


def _parameters(recipe: Recipe, set_values: Mapping[str, str], width: int) -> list[Line]:
    values = {str(name): text_of(value) for name, value in recipe.defaults.items()} | dict(set_values)
    if not values:
        return []
    cells = min(28, max(len(one_line(name)) for name in values))
    lines = []
    for name, value in values.items():
        head = Line.of((one_line(name), "quiet")).fit(cells) + Line.of(GAP)
        lines += hanging(head, one_line(f"{value}{'  (as you set it)' if name in set_values else ''}"), width, "value")
    return lines


def _variable(name: str, value: str, width: int) -> list[Line]:
    joined = masked(" ".join(f"{name}={value}".split()))  # as a pair: the name can show that the value is a secret
    return wrapped(joined, width, "quiet")


def _entry(label: str, text: str, width: int) -> list[Line]:
    if not text:
        return []
    cells = max(LABEL_CELLS, len(label) + 2)
    return hanging(Line.of((f"{one_line(label):<{cells}}", "quiet")), one_line(text), width)
