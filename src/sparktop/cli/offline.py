"""The commands that need no Spark: explain, lint, rules, recipes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from sparktop.cli.composition import own_rules
from sparktop.cli.options import add_timeout, need_spark, parser, set_pairs, settings
from sparktop.errors import UsageError


def explain(words: list[str]) -> int:
    """`sparktop explain`."""
    options = explain_arguments().parse_args(words)
    settings(options)
    from sparktop.diagnose.logs.rule import shipped
    from sparktop.headless.explain import explain as tell

    return tell(options.files, (*shipped(), *own_rules().strict().log), as_json=options.as_json)


def explain_arguments() -> ArgumentParser:
    """The arguments of `sparktop explain`."""
    argument_parser = parser("explain", "sparktop explain [options] [FILE ...]")
    argument_parser.add_argument(
        "files", nargs="*", metavar="FILE", help="a log or other output; - or no FILE reads standard input"
    )
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="print the findings as JSON")
    return argument_parser


def lint(words: list[str]) -> int:
    """`sparktop lint`."""
    options = lint_arguments().parse_args(words)
    settings(options)
    from sparktop.headless.explain import lint as tell

    return tell(options.files, as_json=options.as_json, own=own_rules().strict().lint)


def lint_arguments() -> ArgumentParser:
    """The arguments of `sparktop lint`."""
    argument_parser = parser("lint", "sparktop lint [options] FILE [FILE ...]")
    argument_parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a launch configuration; - reads standard input"
    )
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="print the findings as JSON")
    return argument_parser


def rules(words: list[str]) -> int:
    """`sparktop rules`."""
    options = rules_arguments().parse_args(words)
    from sparktop.config import read_rule_file, user_rule_files
    from sparktop.diagnose.catalogue import read_own
    from sparktop.headless.rules import check_files, list_rules, show_rule

    if options.what == "check":
        files = [(name, read_rule_file(Path(name))) for name in options.names]
        return check_files(files or user_rule_files())
    user_rules = read_own(user_rule_files()).strict()
    if options.what == "list":
        if options.names:
            raise UsageError("rules list takes no name", hint=f"sparktop rules show {options.names[0]}")
        return list_rules(user_rules, as_json=options.as_json)
    if len(options.names) != 1:
        raise UsageError("which rule?", hint="sparktop rules show gpu.spin-deadlock · sparktop rules list")
    return show_rule(options.names[0], user_rules)


def rules_arguments() -> ArgumentParser:
    """The arguments of `sparktop rules`."""
    argument_parser = parser("rules", "sparktop rules list [--json] | show ID | check [FILE ...]")
    argument_parser.add_argument("what", choices=("list", "show", "check"), help="list all, show one, or test your own")
    argument_parser.add_argument(
        "names",
        nargs="*",
        metavar="ID|FILE",
        help="the rule to show, or the files to check (default ~/.config/sparktop/rules/*.toml)",
    )
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="list: print JSON")
    return argument_parser


_USAGE = (
    "sparktop recipes list [@SOURCE] [--json]\n"
    "       sparktop recipes show RECIPE [--set NAME=VALUE]\n"
    "       sparktop recipes validate FILE|RECIPE ... [--all] [--json]\n"
    "       sparktop recipes adopt FILE|CONTAINER [HOST] [--save]\n"
    "       sparktop recipes source [add NAME URL|FOLDER | update [NAME] |\n"
    "                                trust NAME | remove NAME] [--json]"
)


def recipes(words: list[str]) -> int:
    """`sparktop recipes`."""
    options = recipes_arguments().parse_args(words)
    settings(options)
    from sparktop.headless.recipes.recipes import list_recipes, show_recipe, validate

    if options.set and options.what != "show":
        raise UsageError(
            "--set goes with recipes show", hint="sparktop launch RECIPE HOST --set NAME=VALUE launches it"
        )
    if options.what == "source":
        from sparktop.headless.recipes.sources import source_command

        return source_command(options.names, as_json=options.as_json)
    if options.what == "list":
        if options.names[1:] or not all(name.startswith("@") for name in options.names):
            raise UsageError("recipes list takes one @SOURCE alone", hint=f"sparktop recipes show {options.names[0]}")
        return list_recipes(as_json=options.as_json, of="".join(options.names))
    if options.what == "show":
        if len(options.names) != 1:
            raise UsageError("which recipe?", hint="sparktop recipes show NAME · sparktop recipes list")
        return show_recipe(options.names[0], dict(set_pairs(options.set)))
    if options.what == "adopt":
        return _adopt(options)
    if not options.names and not options.is_all:
        raise UsageError("which recipes?", hint="sparktop recipes validate FILE · sparktop recipes validate --all")
    return validate(options.names, is_all=options.is_all, as_json=options.as_json, own=own_rules().strict().lint)


def _adopt(options: Namespace) -> int:
    """`sparktop recipes adopt`."""
    from sparktop.headless.recipes.adopt import adopt_container, adopt_file
    from sparktop.recipe.read.shelf import is_there

    if not options.names:
        raise UsageError("which file or container?", hint="sparktop recipes adopt compose.yaml · adopt vllm spark1")
    name, *hosts = options.names
    if is_there(name):
        return adopt_file(name, saves=options.save)
    import asyncio

    from sparktop.cli.composition import session_for_command

    options.hosts, options.dry_run, options.yes = hosts, True, False
    config = settings(options)
    need_spark(options, config, f"sparktop recipes adopt {name}")
    make, _, output = session_for_command(config, options)
    return asyncio.run(adopt_container(make, name, output=output, saves=options.save))


def recipes_arguments() -> ArgumentParser:
    """The arguments of `sparktop recipes`."""
    argument_parser = parser("recipes", _USAGE)
    argument_parser.add_argument(
        "what",
        choices=("list", "show", "validate", "adopt", "source"),
        help="list all, show one, check files, make one of a compose file, a script or a running container; sources "
        "of others'",
    )
    argument_parser.add_argument("names", nargs="*", metavar="RECIPE|FILE", help="a recipe's name, a file, or @SOURCE")
    argument_parser.add_argument(
        "--save", action="store_true", help="adopt: write it among your own recipes, not to standard output"
    )
    add_timeout(argument_parser, default_s=30.0)
    argument_parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="show: with this parameter set"
    )
    argument_parser.add_argument("--all", action="store_true", dest="is_all", help="validate: check every recipe")
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="all but show: print JSON")
    return argument_parser
