"""The command that reads recipes: recipes list, show, validate."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.cli.compose import own_rules
from sparktop.cli.options import parser, settings
from sparktop.errors import UsageError

_USAGE = "sparktop recipes list [--json] | show RECIPE [--set NAME=VALUE] | validate FILE|RECIPE ... [--all] [--json]"


def recipes(words: list[str]) -> int:
    """`sparktop recipes`."""
    made = parser(_USAGE)
    made.add_argument("what", choices=("list", "show", "validate"), help="what to do")
    made.add_argument("names", nargs="*", metavar="RECIPE", help="a recipe by its name, or a file")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="show: as it is with this set")
    made.add_argument("--all", action="store_true", dest="is_all", help="validate: every recipe there is")
    made.add_argument("--json", action="store_true", dest="as_json", help="list and validate: as JSON")
    options = made.parse_args(words)
    settings(options)
    from sparktop.headless.recipes import list_recipes, show_recipe, validate

    if options.set and options.what != "show":
        raise UsageError(
            "--set goes with recipes show", hint="sparktop launch RECIPE HOST --set NAME=VALUE launches it"
        )
    if options.what == "list":
        if options.names:
            raise UsageError("recipes list takes no name", hint=f"sparktop recipes show {options.names[0]}")
        return list_recipes(as_json=options.as_json)
    if options.what == "show":
        if len(options.names) != 1:
            raise UsageError("which recipe?", hint="sparktop recipes show NAME · sparktop recipes list")
        return show_recipe(options.names[0], _values(options.set))
    if not options.names and not options.is_all:
        raise UsageError("which recipes?", hint="sparktop recipes validate FILE · sparktop recipes validate --all")
    own = own_rules()
    return validate(
        options.names,
        is_all=options.is_all,
        as_json=options.as_json,
        own=own.strict().lint if own is not None else (),
    )


def _values(given: Sequence[str]) -> dict[str, str]:
    values = {}
    for each in given:
        name, is_set, value = each.partition("=")
        if not is_set or not name.strip():
            raise UsageError(f"--set {each}: NAME=VALUE is wanted", hint="--set max_model_len=65536")
        values[name.strip()] = value
    return values
