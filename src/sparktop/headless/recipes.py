"""`sparktop recipes`: lists, shows and validates recipes; lists, adds, updates, trusts and removes their sources."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.config import shown
from sparktop.diagnose.findings import as_data, firing_at, ordered
from sparktop.diagnose.lint.catalogue import cards, check
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.documents.data import fields, fields_or_none, plain
from sparktop.documents.finding import pages
from sparktop.documents.recipe import columns, detail_lines, nodes_text, recipe_row, row_line
from sparktop.errors import ConfigError, SparktopError, UsageError
from sparktop.headless.terminal import draw, put_json, say, width_of
from sparktop.launchspec.read.configuration import read as read_launch
from sparktop.masking import mask_text
from sparktop.model.finding import Finding
from sparktop.model.recipe import Order, Recipe, RecipeSource, SourceKind
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.parameters import resolve
from sparktop.recipe.read.recipe_file import Reading, render_made_up
from sparktop.recipe.read.shelf import Entry, Origin, entries, entry, own_folder, unreadable_folders
from sparktop.recipe.settings import made_up, missing
from sparktop.recipe.sources import sources
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
    wanted = sources.source(of) if of else None
    unread_folders = unreadable_folders()
    shelf_entries = entries() if wanted is None else _of(wanted, entries())
    if as_json:
        unread = {"unread": list(unread_folders)} if unread_folders else {}
        put_json({"recipes": [_entry_data(item) for item in shelf_entries], **unread}, indent=1)
        return 0
    width = width_of(sys.stdout, most=UNCUT)
    rows = list(map(recipe_row, shelf_entries))
    shown_columns = columns(rows, width, has_titles=True)
    draw([heading(shown_columns), *(row_line(row, shown_columns, width, {}) for row in rows)], sys.stdout)
    say(f"sparktop: {_counted(shelf_entries)}; yours belong in {own_folder()}; recipes show NAME tells all of one")
    for each in (wanted,) if wanted is not None else sources.sources():
        say(f"sparktop: {source_line(each, shelf_entries)}")
    _print_unread(unread_folders)
    return 0


def _print_unread(unread_folders: Sequence[str]) -> None:
    for reason in unread_folders:
        say(f"sparktop: ▲ {reason}")


def _of(source: RecipeSource, shelf_entries: Sequence[Entry]) -> list[Entry]:
    return [item for item in shelf_entries if item.source == source]


def _counted(shelf_entries: Sequence[Entry]) -> str:
    """ "37 recipes, 22 of them with errors"."""
    broken = sum(item.recipe is None for item in shelf_entries)
    errors = f", {broken} of them with errors" if broken else ""
    return f"{len(shelf_entries)} recipe{'s' if len(shelf_entries) != 1 else ''}{errors}"


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
    return data | {
        "problems": [plain(problem) | {"is_error": problem.is_error} for problem in shelf_entry.reading.problems]
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
    row = recipe_row(shelf_entry)
    if shelf_entry.origin is Origin.FILE:  # it was asked for by its file
        row = replace(row, id=sanitise.line(Path(shelf_entry.path).name))
    lines = detail_lines(row, width_of(sys.stdout), values=values, command=command)
    title = [Line.of((row.id, "title"))] if recipe is not None and recipe.title else []
    draw([*title, *lines], sys.stdout)
    return BROKEN if recipe is None else 0


def _command(recipe: Recipe, values: Mapping[str, str]) -> list[str]:
    """The head's command for made-up nodes, without the operator's secrets; none where a setting is missing."""
    try:
        resolve(Order(recipe=recipe, values={**made_up(recipe), **values})).checked()
        if missing(Order(recipe=recipe, values=values)):
            return []
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
        is_found = bool(firing_at(findings))
        worst = max(worst, BROKEN if item.recipe is None else is_found)
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
            print(f"{'✖' if problem.is_error else '·'} {problem}")
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
        put_json({"recipes": data}, indent=1)
    _print_unread(unread_folders)
    return worst


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


def source_command(words: Sequence[str], *, as_json: bool) -> int:
    """Do what the words say; the exit code. Without words, list the sources.

    Raises:
        UsageError: the words are no such command, or name no source.
        SparktopError: a repository can't be read, or nothing can be written.
    """
    verb, names = (words[0], words[1:]) if words else ("", ())
    counts, does = VERBS.get(verb, ((), _print_source))
    if words and len(names) not in counts:
        hint = "sparktop recipes source add NAME URL|FOLDER · update [NAME] · trust NAME · remove NAME"
        raise UsageError(f"recipes source {' '.join(words)}: no such command", hint=hint)
    try:
        if not words:
            return _list_sources(as_json=as_json)
        if verb == "add":
            return _print_source(sources.add(*names))
        chosen = [sources.source(name) for name in names] or [
            each for each in sources.sources() if each.kind is SourceKind.GIT
        ]
        return max(map(does, chosen), default=0)
    except BrokenPipeError:
        raise  # whoever read the output has gone
    except OSError as error:
        raise SparktopError(f"the sources of recipes can't be kept: {error}") from error


def source_data(source: RecipeSource) -> dict[str, Any]:
    """A source as JSON-ready data."""
    return {
        **fields(source, "name", "kind", "place"),
        **fields_or_none(source, "commit", "day"),
        "folder": source.tree,
        "trusted": source.is_trusted,
    }


def source_line(source: RecipeSource, shelf_entries: Sequence[Entry]) -> str:
    """ "@arena: https://github.com/a/b at 3075780 of 2026-06-13, 37 recipes, 22 of them with errors"."""
    hides = f"; hides sparkrun's registry of that name, {source.covers}" if source.covers else ""
    return f"{source.text}, {_counted(_of(source, shelf_entries))}{hides}"


def _list_sources(*, as_json: bool) -> int:
    known, shelf_entries = sources.sources(), entries()
    if as_json:
        put_json({"sources": list(map(source_data, known))}, indent=1)
        return 0
    for each in known:
        print(f"{source_line(each, shelf_entries)}; {each.kind}, {'' if each.is_trusted else 'not yet '}agreed to")
    _print_unread(unreadable_folders())
    if not known:
        say("sparktop: no source of recipes\n  sparktop recipes source add NAME URL|FOLDER")
    return 0


def _print_source(source: RecipeSource) -> int:
    """Print what a source holds."""
    own = _of(source, entries())
    print(source_line(source, own))
    if not own:
        say("sparktop: no recipe in it: no YAML file there has a `model` or a `recipe_version`")
    print(f"  files in {shown(Path(source.tree))}; sparktop recipes list @{source.name}")
    return 0


def _update_source(old: RecipeSource) -> int:
    """Copy a repository again, and print which recipes are new, changed and gone."""
    if old.kind is not SourceKind.GIT:
        hint = f"sparkrun registry update {old.name}" if old.kind is SourceKind.SPARKRUN else ""
        print(f"@{old.name} is read where it lies: {shown(Path(old.tree))}{f'; {hint}' if hint else ''}")
        return 0
    before = _recipe_texts(old)
    try:
        new = sources.update(old)
    except SparktopError as error:
        say(f"sparktop: @{old.name} stays at {old.commit[:7]}: {error}")
        return error.exit_code
    after = _recipe_texts(new)
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


def _recipe_texts(source: RecipeSource) -> dict[str, bytes]:
    return {item.id: Path(item.path).read_bytes() for item in _of(source, entries())}


def _trust_source(source: RecipeSource) -> int:
    sources.trust(source)
    print(f"{source.text}: agreed to; sparktop launch asks no more{' at this commit' if source.commit else ''}")
    return 0


def _remove_source(source: RecipeSource) -> int:
    if source.kind is SourceKind.SPARKRUN:
        raise UsageError(f"@{source.name} is sparkrun's", hint=f"sparkrun registry disable {source.name}")
    sources.remove(source)
    kept = "" if source.kind is SourceKind.GIT else f"; {shown(Path(source.tree))} stays as it is"
    print(f"removed: {source.text}{kept}")
    return 0


VERBS: Mapping[str, tuple[tuple[int, ...], Callable[[RecipeSource], int]]] = {
    "add": ((2,), _print_source),
    "update": ((0, 1), _update_source),
    "trust": ((1,), _trust_source),
    "remove": ((1,), _remove_source),
}
"""With how many names each goes, and what is done to a source of that name."""
