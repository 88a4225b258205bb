"""The commands that need no Spark: explain, lint, rules, recipes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from sparktop.cli.composition import own_rules
from sparktop.cli.options import ExitCode, argument, need_spark, set_pairs, settings, takes, timeout
from sparktop.errors import UsageError


@takes(
    argument("files", "a log or other output; - or no FILE reads standard input", "FILE", nargs="*"),
    argument("--json", "print the findings as JSON"),
)
def explain(options: Namespace) -> int:
    settings(options)
    from sparktop.diagnose.logs.rule import shipped
    from sparktop.headless.explain import explain as tell

    return tell(options.files, (*shipped(), *own_rules().strict().log), as_json=options.json)


@takes(
    argument("files", "a launch configuration; - reads standard input", "FILE", nargs="+"),
    argument("--json", "print the findings as JSON"),
)
def lint(options: Namespace) -> int:
    settings(options)
    from sparktop.headless.explain import lint as tell

    return tell(options.files, as_json=options.json, own=own_rules().strict().lint)


@takes(
    argument("what", "list all, show one, or test your own", choices=("list", "show", "check")),
    argument(
        "names",
        "the rule to show, or the files to check (default ~/.config/sparktop/rules/*.toml)",
        "ID|FILE",
        nargs="*",
    ),
    argument("--json", "list: print JSON"),
    usage="sparktop rules list [--json] | show ID | check [FILE ...]",
)
def rules(options: Namespace) -> int:
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
        return list_rules(user_rules, as_json=options.json)
    if len(options.names) != 1:
        raise UsageError("which rule?", hint="sparktop rules show gpu.spin-deadlock · sparktop rules list")
    return show_rule(options.names[0], user_rules)


@takes(
    argument(
        "what",
        "list all, show one, check files, make one of a compose file, a script or a running container; sources of "
        "others'",
        choices=("list", "show", "validate", "adopt", "source"),
    ),
    argument("names", "a recipe's name, a file, or @SOURCE", "RECIPE|FILE", nargs="*"),
    argument("--save", "adopt: write it among your own recipes, not to standard output"),
    timeout(30.0),
    argument("--set", "show: with this parameter set", "NAME=VALUE", repeats=True),
    argument("--all", "validate: check every recipe"),
    argument("--json", "all but show: print JSON"),
    usage="sparktop recipes list [@SOURCE] [--json]\n"
    "       sparktop recipes show RECIPE [--set NAME=VALUE]\n"
    "       sparktop recipes validate FILE|RECIPE ... [--all] [--json]\n"
    "       sparktop recipes adopt FILE|CONTAINER [HOST] [--save]\n"
    "       sparktop recipes source [add NAME URL|FOLDER | update [NAME] |\n"
    "                                trust NAME | remove NAME] [--json]",
)
def recipes(options: Namespace) -> ExitCode:
    settings(options)
    from sparktop.headless.recipes import list_recipes, show_recipe, validate

    if options.set and options.what != "show":
        raise UsageError(
            "--set goes with recipes show", hint="sparktop launch RECIPE HOST --set NAME=VALUE launches it"
        )
    if options.what == "source":
        from sparktop.headless.recipes import source_command

        return source_command(options.names, as_json=options.json)
    if options.what == "list":
        if options.names[1:] or not all(name.startswith("@") for name in options.names):
            raise UsageError("recipes list takes one @SOURCE alone", hint=f"sparktop recipes show {options.names[0]}")
        return list_recipes(as_json=options.json, of="".join(options.names))
    if options.what == "show":
        if len(options.names) != 1:
            raise UsageError("which recipe?", hint="sparktop recipes show NAME · sparktop recipes list")
        return show_recipe(options.names[0], dict(set_pairs(options.set)))
    if options.what == "adopt":
        return _adopt(options)
    if not options.names and not options.all:
        raise UsageError("which recipes?", hint="sparktop recipes validate FILE · sparktop recipes validate --all")
    return validate(options.names, is_all=options.all, as_json=options.json, own=own_rules().strict().lint)


def _adopt(options: Namespace) -> ExitCode:
    from sparktop.headless.launch import adopt_file, adopt_there, needs_node
    from sparktop.recipe.read.shelf import is_there

    if not options.names:
        raise UsageError("which file or container?", hint="sparktop recipes adopt compose.yaml · adopt vllm spark1")
    name, *hosts = options.names
    if hosts[1:]:
        raise UsageError(
            f"recipes adopt takes one HOST, not {len(hosts)}", hint=f"sparktop recipes adopt {name} {hosts[0]}"
        )
    if is_there(name) and not (hosts and needs_node(name)):
        return adopt_file(name, saves=options.save)
    from sparktop.cli.composition import invocation

    options.hosts, options.dry_run = hosts, True
    config = settings(options)
    need_spark(options, config, f"sparktop recipes adopt {name}")
    return adopt_there(invocation(config, options), name, saves=options.save)
