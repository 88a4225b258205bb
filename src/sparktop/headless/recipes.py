"""`sparktop recipes`: lists every recipe, tells all that one says, and checks the files."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.lint.reading import read as read_launch
from sparktop.diagnose.lint.rules import cards, check
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.order import ordered
from sparktop.errors import ConfigError
from sparktop.headless.findings import WORSE, as_data, as_rows
from sparktop.headless.paper import WIDEST, lines_for
from sparktop.headless.recipe_list import ENGINES, nodes_of, table, width_of
from sparktop.model.finding import Finding
from sparktop.model.recipe import Executor, Expected, Need, Recipe
from sparktop.probe.remote import mask_text
from sparktop.recipe.problems import Problem
from sparktop.recipe.reading import Reading
from sparktop.recipe.rendercheck import made_up
from sparktop.recipe.rendered import CannotRender
from sparktop.recipe.shelf import Entry, Origin, entries, entry, own_folder, unread
from sparktop.recipe.template import text_of

_WHOSE = {Origin.SHIPPED: "comes with sparktop", Origin.OWN: "yours", Origin.FILE: "a file"}
BROKEN = 2
"""The exit code of a file that is no recipe: design.md's for configuration."""


def list_recipes(*, as_json: bool) -> int:
    """A table of them; one that can't be read is there with its first problem."""
    found, lacking = entries(), unread()
    if as_json:
        data: dict[str, Any] = {"version": 1, "recipes": [_entry_data(one) for one in found]}
        data |= {"unread": list(lacking)} if lacking else {}
        print(json.dumps(data, ensure_ascii=False, indent=1))
        return 0
    for line in table(found, width_of(sys.stdout)):
        print(line)
    sys.stdout.flush()
    broken = sum(one.recipe is None for one in found)
    told = f"{len(found)} recipes" + (f", {broken} of them with errors" if broken else "")
    print(f"sparktop: {told}; yours belong in {own_folder()}; recipes show NAME tells all of one", file=sys.stderr)
    _say_unread(lacking)
    return 0


def _say_unread(lacking: Sequence[str]) -> None:
    for each in lacking:
        print(f"sparktop: ▲ {each}", file=sys.stderr)


def _entry_data(one: Entry) -> dict[str, Any]:
    recipe = one.recipe
    data: dict[str, Any] = {"id": one.id, "origin": one.origin.value, "path": sanitise.line(one.path)}
    if one.covers:
        data["covers"] = sanitise.line(one.covers)
    if recipe is not None:
        data |= {
            "title": _line(recipe.title),
            "engine": recipe.engine.value,
            "nodes": [recipe.min_nodes, recipe.max_nodes],
            "model": _line(recipe.model),
            "image": _line(recipe.container),
        }
    return data | {"problems": [_problem_data(each) for each in one.reading.problems]}


def _problem_data(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "key": problem.key,
        "kind": problem.kind.value,
        "text": problem.text,
        "nearest": problem.nearest,
        "remedy": problem.remedy,
        "is_error": problem.is_error,
    }


def show_recipe(name: str, values: Mapping[str, str]) -> int:
    """All that a recipe says, in plain words; with `values` set over its own.

    Raises:
        UsageError: there is none of that name.
        ConfigError: it has errors, or a value can't be one of its.
    """
    found = entry(name)
    recipe = found.recipe
    if recipe is None:
        for problem in found.reading.problems:
            print(mark(problem))
        return BROKEN
    lines = list(_page(found, recipe, values))
    for line in lines:
        print(line if len(line) <= WIDEST or line.startswith("      ") else _broken(line, WIDEST))
    return 0


def _broken(line: str, width: int) -> str:
    indent = len(line) - len(line.lstrip())
    hanging = " " * (indent + (2 if line.lstrip().startswith(("- ", "! ")) else 0))
    return textwrap.fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _page(found: Entry, recipe: Recipe, values: Mapping[str, str]) -> Iterator[str]:
    yield found.id
    if recipe.title:
        yield f"  {_line(recipe.title)}"
    if recipe.description and recipe.description != recipe.title:
        yield f"  {_line(' '.join(recipe.description.split()))}"
    yield ""
    yield f"  {_line(recipe.model)}{f' at {_line(recipe.model_revision)}' if recipe.model_revision else ''}"
    for more in recipe.more_models:
        yield f"  with {_line(more)}"
    yield f"  {ENGINES[recipe.engine]} in {_line(recipe.container)}"
    yield f"  {_nodes_words(recipe)}"
    yield f"  {_line(found.path)} ({recipe.dialect.value}, {_WHOSE[found.origin]})"
    if found.covers:
        yield f"  in place of sparktop's own: {_line(found.covers)}"
    if recipe.risks:
        yield from ("", "risks:", *(f"  ! {_line(each)}" for each in recipe.risks))
    yield from ("", "parameters (--set NAME=VALUE):")
    given = dict(values)
    for name, value in ({str(k): text_of(v) for k, v in recipe.defaults.items()} | given).items():
        yield f"  {name} = {mask_text(_line(value))}" + ("  (as you set it)" if name in given else "")
    yield from _section("needs", _needs(recipe.need, recipe))
    yield from _section("expected", _expected(recipe.expected))
    environment = [f"{name}={value}" for name, value in {**recipe.environment, **recipe.node_environment}.items()]
    yield from _section("environment", [mask_text(_line(each)) for each in environment])
    options = [f"{name}: {_line(value)}" for name, value in recipe.options.items()]
    yield from _section("container", [mask_text(each) for each in options])
    yield from _section("command", [mask_text(_line(each)) for each in _command(recipe, values)], indent=6)
    yield from _section("rules it is right not to follow", [f"- {m.rule}: {_line(m.reason)}" for m in recipe.muted])
    for source in recipe.provenance:
        yield ""
        yield f"from: {_line(source.source)} ({_line(source.date) or 'undated'})"
        yield from ([f"  says: {_line(source.says)}"] if source.says else [])
        yield from ([f"  taken: {_line(source.resolved)}"] if source.resolved else [])
    yield from _section(
        "notes", [f"- line {each.line}: {each.key}: {each.sentence}" for each in found.reading.problems]
    )


def _section(heading: str, lines: Sequence[str], indent: int = 2) -> Iterator[str]:
    if lines:
        yield from ("", f"{heading}:", *(" " * indent + line for line in lines))


def _nodes_words(recipe: Recipe) -> str:
    how = {Executor.RAY: ", joined by Ray", Executor.NATIVE: ", joined by the engine itself"}.get(recipe.executor, "")
    if recipe.max_nodes == 1:
        return "one Spark"
    return f"two Sparks{how}" if recipe.min_nodes == 2 else f"one Spark, or two{how}"


def _needs(need: Need, recipe: Recipe) -> list[str]:
    figures = (
        ("weights", need.weights_gib, "GiB, on all nodes together"),
        ("read for a token", need.active_gib, "GiB"),
        ("cache for a token", need.kv_bytes_per_token, "bytes"),
        ("beyond its share", need.spike_gib, "GiB: graphs, compilation, the first request"),
        ("left to the host", need.reserve_gib, "GiB at the least"),
        ("share of the memory", need.share, "at the most"),
    )
    found = [f"{name} {value:g} {unit}" for name, value, unit in figures if value is not None]
    requires = recipe.requires
    found += [f"driver {requires.driver}"] if requires.driver else []
    found += ["an image that carries Ray"] if requires.ray else []
    found += ["an image that carries fastsafetensors"] if requires.fastsafetensors else []
    found += ["lingering for the user (loginctl enable-linger)"] if requires.linger else []
    return found


def _expected(expected: Expected) -> list[str]:
    speed = "" if expected.tokens_s is None else f"{expected.tokens_s:g}"
    if expected.tokens_s_most is not None:
        speed += f" to {expected.tokens_s_most:g}"
    found = [f"{speed} tokens/s, one stream"] if speed else []
    figures = (
        (expected.first_token_s, "s to the first token"),
        (expected.load_s, "s until it is ready"),
        (expected.available_gib, "GiB available when it serves"),
    )
    found += [f"{value:g} {unit}" for value, unit in figures if value is not None]
    said = _line(expected.source)  # of figures where they come from; of none why
    return [*found, *([f"source: {said}" if found else said] if said else [])]


def _command(recipe: Recipe, values: Mapping[str, str]) -> list[str]:
    """The head's, as it would run on nodes that nobody has looked at, without the operator's secrets."""
    try:
        rendered = made_up(recipe, recipe.min_nodes, values)
    except CannotRender as error:
        raise ConfigError(error.reason, hint="\n".join(filter(None, error.remedies)) or None) from error
    return _typed(rendered.head.argv)


def _typed(argv: Sequence[str]) -> list[str]:
    """An argv as it would be typed, a flag with its values a line."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("-") and word != "-m" and rows[0]:
            rows.append([])
        rows[-1].append(shlex.quote(word))
    *others, last = (" ".join(row) for row in rows)
    return [*(f"{row} \\" for row in others), last]


def validate(names: Sequence[str], *, is_all: bool, as_json: bool, own: Sequence[LintRule] = ()) -> int:
    """Check files or recipes by name: problems with their lines, then what our linter says of each.

    Returns: 0 nothing wrong, 1 findings at warning or above, 2 a file that is no recipe that can be launched.

    Raises:
        UsageError: there is none of that name.
    """
    found = [*(entry(name) for name in names), *(entries() if is_all else ())]
    lacking = unread() if is_all else ()
    worst, data = BROKEN if lacking else 0, []
    for one in found:
        findings, muted, unreadable = _linted(one, own)
        is_found = any(each.severity in WORSE for each in findings)
        worst = max(worst, BROKEN if one.recipe is None else int(is_found))
        if as_json:
            quiet = [{"rule": rule, "reason": reason} for rule, reason in muted]
            findings_data = [as_data(each) for each in findings]
            data.append(_entry_data(one) | {"findings": findings_data, "muted": quiet})
            continue
        for problem in one.reading.problems:
            print(mark(problem))
        for line in lines_for(as_rows(findings), sys.stdout):
            print(line)
        for rule, reason in muted:
            print(f"· {rule} is muted: {_line(reason)}")
        for rule in unknown_rules(one.reading, own):
            print(f"· {rule} is muted, and there is no such rule: sparktop rules list names them")
        if unreadable:
            print(f"· not linted: {unreadable}")
        if one.recipe is not None and not is_found:
            print(f"✓ {_line(one.path)}: {ENGINES[one.recipe.engine]}, {nodes_of(one.recipe)} node(s)")
    if as_json:
        print(json.dumps({"version": 1, "recipes": data}, ensure_ascii=False, indent=1))
    _say_unread(lacking)
    return worst


def mark(problem: Problem) -> str:
    """A problem as a line: FILE:LINE: key: text."""
    return f"{'✖' if problem.is_error else '·'} {problem}"


def _linted(one: Entry, own: Sequence[LintRule]) -> tuple[tuple[Finding, ...], list[tuple[str, str]], str]:
    """(findings that count, what was muted with its reason, why it couldn't be linted)."""
    recipe = one.recipe
    if recipe is None:
        return (), [], ""
    try:
        specs = read_launch(Path(one.path).read_text("utf-8", "replace"), sanitise.line(one.path)).specs
    except (OSError, ConfigError) as error:
        return (), [], _line(str(error))
    found = check(specs, mask=mask_text, own=own)
    reasons = {muted.rule: muted.reason for muted in recipe.muted}
    said = {finding.rule for finding in found}
    muted = [(rule, reason) for rule, reason in reasons.items() if rule in said]
    return ordered([each for each in found if each.rule not in reasons]), muted, ""


def unknown_rules(reading: Reading, own: Sequence[LintRule] = ()) -> list[str]:
    """Rules that a recipe mutes and that don't exist."""
    known = {card.id for card in cards()} | {rule.id for rule in own}
    return [muted.rule for muted in reading.recipe.muted if muted.rule not in known] if reading.recipe else []


def _line(text: object) -> str:
    return sanitise.line(str(text)[:20_000])
