"""Recipes as rows of a table, and all that one says of itself. Pure.

A recipe's text is somebody's file: it is sanitised and masked like text of a remote machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Expected, Order, Provenance, Recipe
from sparktop.operate.wording import masked
from sparktop.recipe.settings import EAGER, read
from sparktop.recipe.template import text_of
from sparktop.ui.format import duration, gib
from sparktop.ui.panes.budget_bar import spaced
from sparktop.ui.panes.prospect import FIT_SIGNS, risk_lines, signed, titled
from sparktop.ui.widgets.ink import Line, wrapped

_QUANTISATIONS = re.compile(r"(?<![a-z])(nvfp4|mxfp4|fp8|awq|gptq|bf16|fp16|int4|int8|q4|q8)(?![a-z])", re.IGNORECASE)
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
Origin = Literal["shipped", "yours"]
GAP = "  "
LABEL_CELLS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """One recipe file as the list shows it."""

    id: str
    path: str = ""
    origin: Origin = "shipped"
    recipe: Recipe | None = None
    """None where the file can't be understood."""
    problems: tuple[str, ...] = ()
    """Why not, with file, line and key."""
    notes: tuple[str, ...] = ()
    """What was taken, but perhaps not as its author meant it."""


def said(text: str) -> str:
    """A recipe's text on one line, fit to be shown."""
    return masked(" ".join(text.split()))


def quantisation(recipe: Recipe) -> str:
    """What the recipe says of it, else what its model's name does; empty: neither."""
    for key in ("quantization", "model_dtype"):
        if told := str(recipe.metadata.get(key) or recipe.defaults.get(key) or ""):
            return _SHORT.get(said(told).lower(), said(told).lower())
    found = _QUANTISATIONS.findall(recipe.model)
    return found[-1].lower() if found else ""


def nodes_text(recipe: Recipe) -> str:
    """ "1", "2", "1-2"."""
    low, high = recipe.min_nodes, recipe.max_nodes
    return str(low) if low == high else f"{low}-{high}"


def speed_text(expected: Expected) -> str:
    """Tokens/s of a single stream: "52", "38-52"; empty: nobody said."""
    if expected.tokens_s is None:
        return ""
    most = expected.tokens_s_most
    return f"{expected.tokens_s:.0f}" + (f"-{most:.0f}" if most is not None and most != expected.tokens_s else "")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table; the rightmost of those that have no room is left out first."""

    title: str
    cells: int
    is_right: bool = False


def columns(rows: Sequence[Shelved], width: int, *, has_fits: bool = False) -> list[Column]:
    """Those that have room: the name first, the model with what is left; `has_fits`: there are verdicts to show."""
    name = min(max([len("RECIPE"), *(len(said(row.id)) for row in rows)]), max(12, width * 2 // 5))
    kept = [Column("RECIPE", name)]
    used = name
    for column in (
        Column("ENGINE", 6),
        Column("NODES", 5, True),
        Column("QUANT", 6),
        Column("TOK/S", 6, True),
        Column("FROM", 7),
        Column("FIT", 3),
    ):
        if column.title == "FIT" and not has_fits:
            continue
        if used + len(GAP) + column.cells <= width:
            kept.append(column)
            used += len(GAP) + column.cells
    room = width - used - len(GAP)
    if room >= 16:
        kept.insert(3, Column("MODEL", room))
    return kept


def heading(shown: Sequence[Column]) -> Line:
    """The titles of the columns."""
    return Line.of((GAP.join(_padded(column.title, column) for column in shown), "quiet"))


def row_line(row: Shelved, shown: Sequence[Column], width: int, fits: Mapping[str, Fit]) -> Line:
    """One recipe; a broken one says what is wrong with it first."""
    if row.recipe is None:
        problem = said(row.problems[0]) if row.problems else "can't be read"
        name = Line.of((said(row.id), "quiet")).fit(shown[0].cells) if shown else Line()
        return (name + Line.of((GAP, ""), ("✖ ", "critical"), (problem, "warning"))).cut(width)
    recipe = row.recipe
    sign, tone = FIT_SIGNS[fits[row.id]] if row.id in fits else ("", "")
    values: Mapping[str, tuple[str, str]] = {
        "RECIPE": (said(row.id), "value"),
        "ENGINE": (str(recipe.engine), ""),
        "NODES": (nodes_text(recipe), ""),
        "MODEL": (said(recipe.model), "quiet"),
        "QUANT": (quantisation(recipe) or "–", ""),
        "TOK/S": (speed_text(recipe.expected) or "–", "value" if recipe.expected.tokens_s else "quiet"),
        "FROM": (row.origin, "quiet" if row.origin == "shipped" else "info"),
        "FIT": (sign, tone),
    }
    line = Line()
    for column in shown:
        text, tone = values[column.title]
        cell = Line.of((text, tone))
        line += (Line.of(GAP) if line.runs else Line()) + (
            cell.right(column.cells) if column.is_right else cell.fit(column.cells)
        )
    return line


def matches(row: Shelved, typed: str) -> bool:
    """Whether all the words typed are somewhere in what the list shows of it."""
    recipe = row.recipe
    texts = [row.id, row.origin, *row.problems]
    if recipe is not None:
        texts += [recipe.title, recipe.model, str(recipe.engine), quantisation(recipe), recipe.description]
    held = " ".join(texts).lower()
    return all(word in held for word in typed.lower().split())


def available_line(fleet: FleetState) -> Line:
    """What there is at the moment: "spark1 45.4 GiB available, spark2 46.0"."""
    line = Line()
    for view in fleet.nodes:
        free = gib(view.sample.memory.available_bytes) if view.sample is not None else None
        line += Line.of(("   " if line.runs else "", ""), (f"{masked(view.name)} ", "quiet"))
        line += Line.of((f"{free} GiB" if free else "not known", "value" if free else "quiet"), (" available", "quiet"))
    return line


def detail_lines(row: Shelved, width: int) -> list[Line]:
    """All that a recipe says of itself, what matters before a launch first."""
    recipe = row.recipe
    if recipe is None:
        lines = [Line.of(("✖ ", "critical"), (f"{said(row.id)} can't be launched as it stands", "strong")).cut(width)]
        for problem in row.problems:
            first, *rest = wrapped(said(problem), width - 2)
            lines += [Line.of(("› ", "faint")) + first, *(Line.of("  ") + line for line in rest)]
        return [*lines, *_entry("file", row.path, width)]
    head = [*wrapped(said(recipe.title or recipe.id), width, "title")]
    if recipe.description:
        head += wrapped(said(recipe.description), width)
    return spaced(
        [
            head,
            titled("Known risks", risk_lines(map(said, recipe.risks), width)),
            titled("As it was read", [line for note in row.notes for line in signed("•", "info", said(note), width)]),
            _facts(recipe, width),
            titled("Where it comes from", [line for one in recipe.provenance for line in _source(one, width)]),
            titled("Parameters", _parameters(recipe, width)),
            titled("Environment", [line for pair in recipe.environment.items() for line in _variable(*pair, width)]),
            titled("Against our own linter", [
                line for one in recipe.muted for line in _entry(one.rule, one.reason, width)
            ]),
            [*_entry("file", row.path or recipe.path, width), *_entry("written as", str(recipe.dialect), width)],
        ]
    )  # fmt: skip


def _without_eager(recipe: Recipe) -> str:
    """Of a spike that doesn't come as the recipe stands, and isn't counted in its budget."""
    return f" unless {EAGER} is set, as it is here" if read(Order(recipe=recipe), {}).is_eager else ""


def _facts(recipe: Recipe, width: int) -> list[Line]:
    revision = f" at {recipe.model_revision}" if recipe.model_revision else ""
    nodes = nodes_text(recipe) + (f", {recipe.executor}" if recipe.max_nodes > 1 else "")
    need = recipe.need
    takes = [
        f"weights {need.weights_gib:g} GiB{' on all nodes together' if recipe.max_nodes > 1 else ''}"
        if need.weights_gib is not None else "",
        f"{need.spike_gib:g} GiB more at the first request{_without_eager(recipe)}"
        if need.spike_gib is not None else "",
        f"{need.reserve_gib:g} GiB left to the host" if need.reserve_gib is not None else "",
    ]  # fmt: skip
    expected = recipe.expected
    speeds = [
        f"{speed_text(expected)} tokens/s" if expected.tokens_s is not None else "",
        f"first token in {expected.first_token_s:g} s" if expected.first_token_s is not None else "",
        f"loads in {duration(expected.load_s)}" if expected.load_s is not None else "",
        f"{expected.available_gib:g} GiB available when it serves" if expected.available_gib is not None else "",
    ]
    told = ", ".join(text for text in speeds if text)
    told += (f" ({expected.source})" if told else expected.source) if expected.source else ""
    pairs = (
        ("model", recipe.model + revision),
        ("quantised", quantisation(recipe)),
        ("image", recipe.container),
        ("engine", f"{recipe.engine} on {nodes} node{'s' if recipe.max_nodes > 1 else ''}"),
        ("takes", ", ".join(text for text in takes if text)),
        ("expected", told),
    )
    return [line for label, text in pairs for line in _entry(label, text, width)]


def _source(one: Provenance, width: int) -> list[Line]:
    date = f"  {said(one.date)}" if one.date else ""
    lines = [Line.of("› ", (said(one.source), "value"), (date, "quiet"))]
    if lines[0].width > width:
        first, *rest = wrapped(f"{said(one.source)}{date}", width - 2, "value")
        lines = [Line.of("› ") + first, *(Line.of("  ") + line for line in rest)]
    for word, text in (("says ", one.says), ("here ", one.resolved)):
        if text:
            first, *rest = wrapped(said(text), width - 7, "" if word == "here " else "quiet")
            lines += [Line.of("  ", (word, "info")) + first, *(Line.of(" " * 7) + line for line in rest)]
    return lines


def _parameters(recipe: Recipe, width: int) -> list[Line]:
    if not recipe.defaults:
        return []
    cells = min(28, max(len(said(name)) for name in recipe.defaults))
    lines = []
    for name, value in recipe.defaults.items():
        head = Line.of((said(name), "quiet")).fit(cells) + Line.of(GAP)
        first, *rest = wrapped(said(text_of(value)), max(10, width - cells - 2), "value")
        lines += [head + first, *(Line.of(" " * (cells + 2)) + line for line in rest)]
    return lines


def _variable(name: str, value: str, width: int) -> list[Line]:
    joined = masked(" ".join(f"{name}={value}".split()))  # together: a name can tell that its value is a secret
    return wrapped(joined, width, "quiet")


def _entry(label: str, text: str, width: int) -> list[Line]:
    if not text:
        return []
    cells = max(LABEL_CELLS, len(label) + 2)
    first, *rest = wrapped(said(text), max(10, width - cells))
    return [
        Line.of((f"{said(label):<{cells}}", "quiet")) + first,
        *(Line.of(" " * cells) + line for line in rest),
    ]


def _padded(text: str, column: Column) -> str:
    return text.rjust(column.cells) if column.is_right else text.ljust(column.cells)
