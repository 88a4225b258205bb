"""`sparktop recipes`: lists, shows and validates recipes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.diagnose.findings import as_data, ordered
from sparktop.diagnose.lint.catalogue import cards, check
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.documents.finding import pages
from sparktop.documents.recipe import columns, detail_lines, nodes_text, recipe_row, row_line
from sparktop.errors import ConfigError
from sparktop.headless.findings import WORSE
from sparktop.headless.recipes.sources import source_data, source_line
from sparktop.headless.terminal import draw, width_of
from sparktop.launchspec.read.configuration import read as read_launch
from sparktop.masking import mask_text
from sparktop.model.finding import Finding
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.problems import Problem
from sparktop.recipe.read.recipe_file import Reading, render_made_up
from sparktop.recipe.read.shelf import Entry, entries, entry, own_folder, unreadable_folders
from sparktop.recipe.sources.sources import source, sources
from sparktop.recipe.weigh.settings import usual_nodes
from sparktop.text.lines import UNCUT, Line
from sparktop.text.table import heading

BROKEN = 2
"""The exit code for a file that isn't a valid recipe, as for configuration errors."""


def list_recipes(*, as_json: bool, of: str = "") -> int:
    """Print the table of recipes, or those `of` one source; an unreadable one with its first problem.

    Raises:
        UsageError: there is no source of that name.
    """
    wanted = source(of) if of else None
    shelf_entries, unread_folders = entries(), unreadable_folders()
    if wanted is not None:
        shelf_entries = tuple(item for item in shelf_entries if item.source == wanted)
    if as_json:
        data: dict[str, Any] = {"version": 1, "recipes": [_entry_data(item) for item in shelf_entries]}
        data |= {"unread": list(unread_folders)} if unread_folders else {}
        print(json.dumps(data, ensure_ascii=False, indent=1))
        return 0
    width = width_of(sys.stdout, most=UNCUT)
    rows = list(map(recipe_row, shelf_entries))
    shown = columns(rows, width, has_titles=True)
    draw([heading(shown), *(row_line(row, shown, width, {}) for row in rows)], sys.stdout)
    broken = sum(item.recipe is None for item in shelf_entries)
    counts = f"{len(shelf_entries)} recipes" + (f", {broken} of them with errors" if broken else "")
    print(f"sparktop: {counts}; yours belong in {own_folder()}; recipes show NAME tells all of one", file=sys.stderr)
    for each in (wanted,) if wanted is not None else sources():
        print(f"sparktop: {source_line(each, shelf_entries)}", file=sys.stderr)
    _print_unread(unread_folders)
    return 0


def _print_unread(unread_folders: Sequence[str]) -> None:
    for reason in unread_folders:
        print(f"sparktop: ▲ {reason}", file=sys.stderr)


def _entry_data(shelf_entry: Entry) -> dict[str, Any]:
    recipe = shelf_entry.recipe
    data: dict[str, Any] = {
        "id": shelf_entry.id,
        "origin": shelf_entry.origin.value,
        "path": sanitise.line(shelf_entry.path),
    }
    if shelf_entry.source is not None:
        data["source"] = source_data(shelf_entry.source)
    if shelf_entry.covers:
        data["covers"] = sanitise.line(shelf_entry.covers)
    if recipe is not None:
        data |= {
            "title": _line(recipe.title),
            "engine": recipe.engine.value,
            "nodes": [recipe.min_nodes, recipe.max_nodes],
            "model": _line(recipe.model),
            "image": _line(recipe.container),
        }
    return data | {"problems": [_problem_data(problem) for problem in shelf_entry.reading.problems]}


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
    """Print all details of a recipe, with `values` in place of its own.

    Raises:
        UsageError: there is no recipe of that name.
        ConfigError: it has errors, or a value is not valid.
    """
    shelf_entry = entry(name)
    recipe = shelf_entry.recipe
    command = _command(recipe, values) if recipe is not None else []
    lines = detail_lines(recipe_row(shelf_entry), width_of(sys.stdout), values=values, command=command)
    title = [Line.of((shelf_entry.id, "title"))] if recipe is not None and recipe.title else []
    draw([*title, *lines], sys.stdout)
    return BROKEN if recipe is None else 0


def _command(recipe: Recipe, values: Mapping[str, str]) -> list[str]:
    """The head's command for made-up nodes, without the operator's secrets."""
    try:
        rendered = render_made_up(recipe, usual_nodes(Order(recipe=recipe, values=values)), values)
    except CannotRender as error:
        raise ConfigError(error.reason, hint="\n".join(filter(None, error.remedies)) or None) from error
    return _typed(rendered.head.argv)


def _typed(argv: Sequence[str]) -> list[str]:
    """An argv as shell lines, one flag with its values per line."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("-") and word != "-m" and rows[0]:
            rows.append([])
        rows[-1].append(shlex.quote(word))
    *other_rows, last_row = (" ".join(row) for row in rows)
    return [*(f"{row} \\" for row in other_rows), last_row]


def validate(names: Sequence[str], *, is_all: bool, as_json: bool, own: Sequence[LintRule] = ()) -> int:
    """Check recipes by name or file: print their problems with lines, then the linter's findings.

    Returns: 0 nothing wrong, 1 findings of warning or above, 2 a file that isn't a valid recipe.

    Raises:
        UsageError: there is no recipe of that name.
    """
    shelf_entries = [*(entry(name) for name in names), *(entries() if is_all else ())]
    unread_folders = unreadable_folders() if is_all else ()
    worst, data = BROKEN if unread_folders else 0, []
    for item in shelf_entries:
        findings, muted, unreadable = _lint_result(item, own)
        is_found = any(finding.severity in WORSE for finding in findings)
        worst = max(worst, BROKEN if item.recipe is None else int(is_found))
        if as_json:
            quiet = [{"rule": rule, "reason": reason} for rule, reason in muted]
            findings_data = [as_data(finding) for finding in findings]
            data.append(_entry_data(item) | {"findings": findings_data, "muted": quiet})
            continue
        if item.adopted is not None:
            name = shlex.quote(item.path)
            ways = f"sparktop lint {shlex.quote(item.file)} checks the file itself"
            if item.recipe is not None:
                ways = (
                    f"sparktop launch {name} HOST launches it as one, sparktop recipes adopt {name} writes that, {ways}"
                )
            print(f"· {_line(item.path)} is a {item.adopted.kind}, no recipe: {ways}")
        for problem in item.reading.problems:
            print(mark(problem))
        if findings:
            draw(pages(findings, width_of(sys.stdout)), sys.stdout)
        for rule, reason in muted:
            print(f"· {rule} is muted: {_line(reason)}")
        for rule in unknown_rules(item.reading, own):
            print(f"· {rule} is muted, and there is no such rule: sparktop rules list names them")
        if unreadable:
            print(f"· not linted: {unreadable}")
        if item.recipe is not None and not is_found:
            print(f"✓ {_line(item.path)}: {item.recipe.engine}, {nodes_text(item.recipe)} node(s)")
    if as_json:
        print(json.dumps({"version": 1, "recipes": data}, ensure_ascii=False, indent=1))
    _print_unread(unread_folders)
    return worst


def mark(problem: Problem) -> str:
    """A problem as a line: FILE:LINE: key: text."""
    return f"{'✖' if problem.is_error else '·'} {problem}"


def _lint_result(
    shelf_entry: Entry, own_rules: Sequence[LintRule]
) -> tuple[tuple[Finding, ...], list[tuple[str, str]], str]:
    """(findings that are not muted, muted rules with their reasons, why it couldn't be linted)."""
    recipe = shelf_entry.recipe
    if recipe is None:
        return (), [], ""
    try:
        text = files.read(Path(shelf_entry.file)).decode("utf-8", "replace")
        specs = read_launch(text, sanitise.line(shelf_entry.path)).specs
    except (OSError, ConfigError) as error:
        return (), [], _line(str(error))
    findings = check(specs, mask=mask_text, own=own_rules)
    reasons = {muted.rule: muted.reason for muted in recipe.muted}
    found_rules = {result.rule for result in findings}
    muted = [(rule, reason) for rule, reason in reasons.items() if rule in found_rules]
    return ordered([active for active in findings if active.rule not in reasons]), muted, ""


def unknown_rules(reading: Reading, own: Sequence[LintRule] = ()) -> list[str]:
    """Rules that a recipe mutes and that do not exist."""
    rule_ids = {card.id for card in cards()} | {rule.id for rule in own}
    return [muted.rule for muted in reading.recipe.muted if muted.rule not in rule_ids] if reading.recipe else []


def _line(text: object) -> str:
    return sanitise.line(str(text)[:20_000])
