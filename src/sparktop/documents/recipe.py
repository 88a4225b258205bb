"""Recipes as rows of a table, and all details of one recipe. Pure.

A recipe's text comes from somebody's file: it is sanitised and masked like text from a remote machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path

from rich.cells import cell_len

from sparktop.dataclass import dataclass
from sparktop.documents.prospect import FIT_SIGNS
from sparktop.documents.step_text import masked
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Dialect, Executor, Expected, Order, Provenance, Recipe
from sparktop.recipe import gguf
from sparktop.recipe.parameters import resolve
from sparktop.recipe.problems import Problem
from sparktop.recipe.read import shelf
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.settings import made_up
from sparktop.recipe.template import text_of
from sparktop.recipe.weigh.settings import EAGER, read
from sparktop.text.lines import UNCUT, Line, Run, hanging, noted, spaced, titled, wrapped
from sparktop.text.sentences import phrases
from sparktop.text.table import GAP, Column, fitted, table_row
from sparktop.text.units import bare_gib, duration

_QUANTISATIONS = re.compile(r"(?<![a-z])(nvfp4|mxfp4|fp8|awq|gptq|bf16|fp16|int4|int8|q4|q8)(?![a-z])", re.IGNORECASE)
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
LABEL_CELLS = 12


class Group(StrEnum):
    """Where a row of the list comes from, by its heading, in their order."""

    RUNNING = "running here"
    FILES = "files"
    RECIPES = "recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRow:
    """One recipe, or what one is made of, as the list shows it."""

    id: str
    path: str = ""
    origin: shelf.Origin = shelf.Origin.SHIPPED
    source: str = ""
    """The source that it is from: its name, place and commit."""
    recipe: Recipe | None = None
    """None where the file can't be read as a recipe."""
    problems: tuple[str, ...] = ()
    """Errors, with file, line and key."""
    notes: tuple[str, ...] = ()
    """Warnings: what was read, but perhaps not as its author meant it."""
    fit: Fit | None = None
    """The verdict of this session; None: not weighed."""
    group: Group = Group.RECIPES
    node: str = ""
    """Where it was found; "" for a recipe."""
    adopted: Adopted | None = field(default=None, repr=False)
    """The launch of somebody else's that it is."""


def in_order(rows: Sequence[RecipeRow], fleet: FleetState) -> tuple[RecipeRow, ...]:
    """The rows with what runs on these nodes first; where nothing of it does, the smallest model that no source has,
    for a first test."""
    running = {engine.model for view in fleet.nodes for engine in view.engines if is_alive(engine)}
    first = [row for row in rows if row.recipe is not None and gguf.wanted(row.recipe.model).repository in running]
    if not first:
        sizes = {row.id: row.recipe.need.weights_gib for row in rows if row.recipe is not None and not row.source}
        known = [row for row in rows if sizes.get(row.id)]
        first = sorted(known, key=lambda row: sizes[row.id] or 0.0)[:1]
    return (*first, *(row for row in rows if row not in first))


_JOINED = {Executor.RAY: ", joined by Ray", Executor.NATIVE: ", joined by the engine itself"}
_FROM = {shelf.Origin.SHIPPED: "shipped", shelf.Origin.SOURCE: "source"}
"""Words of the column FROM, where they aren't the origin's own."""


def recipe_row(entry: shelf.Entry) -> RecipeRow:
    """A recipe file as the list shows it; problems name the file without its folder, which the details have."""
    problems = [replace(problem, file=Path(problem.file).name) for problem in entry.problems]
    return RecipeRow(
        id=entry.id,
        path=entry.path,
        origin=entry.origin,
        source=entry.source.text if entry.source is not None else "",
        recipe=entry.recipe,
        problems=_said(problems, is_error=True),
        notes=(*((f"it replaces {entry.covers}",) if entry.covers else ()), *_said(problems, is_error=False)),
    )


def given_row(entry: shelf.Entry) -> RecipeRow:
    """A file of this machine that the console was started with, as the list shows it."""
    return replace(recipe_row(entry), group=Group.FILES, adopted=entry.adopted)


def adopted_row(adopted: Adopted, group: Group, node: str) -> RecipeRow:
    """A launch that was found on a node, as the list shows it."""
    problems, recipe = adopted.reading.problems, adopted.reading.recipe
    path = recipe.path if recipe is not None else next((problem.file for problem in problems), adopted.name)
    return RecipeRow(
        id=adopted.name or path.rpartition("/")[2],
        path=path,
        recipe=recipe,
        problems=_said(problems, is_error=True),
        notes=_said(problems, is_error=False),
        group=group,
        node=node,
        adopted=adopted,
    )


def _said(problems: Sequence[Problem], *, is_error: bool) -> tuple[str, ...]:
    return tuple(str(problem) for problem in problems if problem.is_error is is_error)


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


def _of(cell: Callable[[Recipe], Run]) -> Callable[[RecipeRow], Line]:
    return lambda row: Line.of(cell(row.recipe)) if row.recipe is not None else Line()


def _speed_cell(recipe: Recipe) -> Run:
    return (speed_text(recipe.expected) or "–", "value" if recipe.expected.tokens_s else "quiet")


def _from_cell(row: RecipeRow) -> Line:
    return Line.of((_place(row), "quiet" if row.origin is shelf.Origin.SHIPPED else "info"))


def _place(row: RecipeRow) -> str:
    return one_line(row.node) or _FROM.get(row.origin, row.origin.value)


_COLUMNS: tuple[Column[RecipeRow], ...] = (
    Column("RECIPE", len("RECIPE"), lambda row: Line.of((one_line(row.id), "value"))),
    Column("ENGINE", 6, _of(lambda recipe: (str(recipe.engine), "")), turn=1),
    Column("NODES", 5, _of(lambda recipe: (nodes_text(recipe), "")), turn=2, is_right=True),
    Column("MODEL", 16, _of(lambda recipe: (one_line(recipe.model), "quiet")), turn=7, grows=((8, UNCUT),)),
    Column("QUANT", 6, _of(lambda recipe: (quantisation(recipe) or "–", "")), turn=3),
    Column("TOK/S", 6, _of(_speed_cell), turn=4, is_right=True),
    Column("FROM", 7, _from_cell, turn=5),
    Column("FIT", 3, lambda row: Line.of(FIT_SIGNS[row.fit] if row.fit is not None else ""), turn=6),
    Column("TITLE", 16, _of(lambda recipe: (one_line(recipe.title), "quiet")), turn=9, grows=((9, UNCUT),)),
)


def columns(
    rows: Sequence[RecipeRow], width: int, *, has_fits: bool = False, has_titles: bool = False
) -> tuple[Column[RecipeRow], ...]:
    """The columns that fit: the name first, the model in the remaining cells; `has_fits` adds the verdicts,
    `has_titles` titles where the models leave room."""
    recipes = [row.recipe for row in rows if row.recipe is not None]
    names = max(len("RECIPE"), *(len(one_line(row.id)) for row in rows), 0)
    content: dict[str, int] = {}
    if has_titles:
        content["MODEL"] = max((cell_len(one_line(one.model)) for one in recipes), default=0)
        content["TITLE"] = max((cell_len(one_line(one.title)) for one in recipes), default=0)
    shown = {"FIT": has_fits, "TITLE": has_titles}
    first = replace(_COLUMNS[0], cells=min(names, max(12, width * 2 // 5)))
    return fitted([first, *(one for one in _COLUMNS[1:] if shown.get(one.title, True))], width, content)


def row_line(row: RecipeRow, columns: Sequence[Column[RecipeRow]], width: int, fits: Mapping[str, Fit]) -> Line:
    """One recipe in these columns; a broken one shows its first problem."""
    if row.recipe is None:
        more = f" (and {len(row.problems) - 1} more)" if row.problems[1:] else ""
        problem = one_line(row.problems[0]) + more if row.problems else "can't be read"
        name = Line.of((one_line(row.id), "quiet")).fit(columns[0].cells) if columns else Line()
        return (name + Line.of((GAP, ""), ("✖ ", "critical"), (problem, "warning"))).cut(width)
    return table_row(columns, replace(row, fit=fits.get(row.id)))


def searched_text(row: RecipeRow) -> str:
    """What a filter of the recipes looks at."""
    recipe = row.recipe
    texts = [row.id, _place(row), *row.problems]
    if recipe is not None:
        texts += [recipe.title, recipe.model, str(recipe.engine), quantisation(recipe), recipe.description]
    return " ".join(texts)


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
        why = Line.of(("✖ ", "critical"), (f"{one_line(row.id)} can't be launched as it stands", "strong")).cut(width)
        problems = noted("›", "faint", map(one_line, row.problems), width)
        return [why, *problems, *_entry("source", row.source, width), *_entry("file", row.path, width)]
    environment = {**recipe.environment, **recipe.node_environment}
    risks = recipe.risks if recipe.compose is None else recipe.compose.risks
    head = [*wrapped(one_line(recipe.title or recipe.id), width, "title")]
    if recipe.description and recipe.description != recipe.title:
        head += wrapped(one_line(recipe.description), width)
    return spaced(
        [
            head,
            titled("Known risks", noted("▲", "warning", map(one_line, risks), width)),
            titled("As it was read", noted("•", "info", map(one_line, row.notes), width)),
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


def _facts(recipe: Recipe, width: int) -> list[Line]:
    revision = f" at {recipe.model_revision}" if recipe.model_revision else ""
    several = recipe.max_nodes > 1
    nodes = f"{nodes_text(recipe)} node{'s' if several else ''}{_JOINED.get(recipe.executor, '') if several else ''}"
    # A budget doesn't count a spike that the recipe avoids by eager mode.
    is_eager = read(resolve(Order(recipe=recipe, values=made_up(recipe)))).is_eager
    need, requires, expected = recipe.need, recipe.requires, recipe.expected
    takes = phrases(
        (f"weights {{:g}} GiB{' on all nodes together' if several else ''}", need.weights_gib),
        (f"{{:g}} GiB more at the first request{f' unless {EAGER} is set, as it is here' if is_eager else ''}",
         need.spike_gib),
        ("{:g} GiB left to the host", need.reserve_gib),
        ("{:g} GiB read per token", need.active_gib),
        ("{:g} KiB of KV cache per token", None if need.kv_bytes_per_token is None else need.kv_bytes_per_token / 1024),
        ("a share of at most {:g}", need.share),
    )  # fmt: skip
    requirements = phrases(
        ("driver {}", requires.driver),
        ("an image that carries Ray", requires.ray),
        ("an image that carries fastsafetensors", requires.fastsafetensors),
        ("lingering for the user (loginctl enable-linger)", requires.linger),
    )
    speeds = phrases(
        ("{} tokens/s", speed_text(expected)),
        ("first token in {:g} s", expected.first_token_s),
        ("loads in {}", None if expected.load_s is None else duration(expected.load_s)),
        ("{:g} GiB available when it serves", expected.available_gib),
    )
    source = expected.source and (f" ({expected.source})" if speeds else expected.source)
    pairs = (
        ("model", recipe.model + revision),
        ("with", ", ".join(recipe.more_models)),
        ("quantised", quantisation(recipe)),
        ("image", recipe.container + (f", where no node has it {recipe.pulls}" if recipe.pulls else "")),
        ("changed by", ", ".join(patch.name for patch in recipe.patches)),
        ("engine", f"{recipe.engine} on {nodes}"),
        ("started by", _starter(recipe)),
        ("then runs", " · ".join(recipe.post_exec)),
        ("takes", ", ".join(takes)),
        ("requires", ", ".join(requirements)),
        ("expected", ", ".join(speeds) + source),
    )
    return [line for label, text in pairs for line in _entry(label, text, width)]


def _starter(recipe: Recipe) -> str:
    service = recipe.compose
    if service is None:
        return ""
    return (
        f"compose on {service.node}, as {service.name} of the project {service.project}; with other values or nodes by "
        "sparktop, as a container of its own"
    )


def _source(provenance: Provenance, width: int) -> list[Line]:
    date = f"  {one_line(provenance.date)}" if provenance.date else ""
    lines = [Line.of("› ", (one_line(provenance.source), "value"), (date, "quiet"))]
    if lines[0].width > width:
        lines = hanging(Line.of("› "), f"{one_line(provenance.source)}{date}", width, "value")
    for word, text, tone in (("says ", provenance.says, "quiet"), ("here ", provenance.resolved, "")):
        if text:
            lines += hanging(Line.of("  ", (word, "info")), one_line(text), width, tone)
    return lines


def _parameters(recipe: Recipe, set_values: Mapping[str, str], width: int) -> list[Line]:
    values = {name: f"not set: {place} uses it" for name, place in recipe.settings.items()}
    values |= {str(name): text_of(value) for name, value in recipe.defaults.items()} | dict(set_values)
    cells = min(28, max((len(one_line(name)) for name in values), default=0))
    lines: list[Line] = []
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
