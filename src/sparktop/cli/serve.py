"""The command `unit`: an engine served on and on."""

from __future__ import annotations

import argparse

from sparktop.cli.launch import add_recipe_options, once_each, ordered
from sparktop.cli.options import HOST_HELP, add_run_options, parser, settings
from sparktop.errors import ConfigError, UsageError

_UNIT_USAGE = (
    "sparktop unit RECIPE|CONTAINER HOST [HOST] [--user]\n"
    "                     [--set NAME=VALUE] [--env-file FILE]\n"
    "       sparktop unit RECIPE|CONTAINER HOST [HOST] --install [--user]\n"
    "                     [--dry-run | --yes] [--json]\n"
    "       sparktop unit CONTAINER HOST [HOST] --remove [--dry-run | --yes] [--json]"
)


def unit(words: list[str]) -> int:
    """`sparktop unit`."""
    options = unit_arguments().parse_args(words)
    config = settings(options)
    if not options.recipe:
        raise UsageError("of which recipe or container?", hint="sparktop unit vllm spark1")
    is_change = options.install or options.remove
    if options.install and options.remove:
        raise UsageError("--install and --remove can't be used together")
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes can't be used together")
    if not is_change and (options.dry_run or options.yes or options.as_json):
        raise UsageError("without --install or --remove the unit is only printed: no other flag is needed")
    if not config.hosts:
        raise UsageError("on which Spark?", hint=f"sparktop unit {options.recipe} spark1")
    order = None
    if not options.remove:
        try:
            order, _ = ordered(options)
        except (ConfigError, UsageError):
            if options.recipe.endswith((".yaml", ".yml")) or _is_recipe(options.recipe):
                raise
    if order is None and (options.set or options.env_file):
        raise UsageError("--set and --env-file go with a recipe", hint="sparktop recipes list names all")
    import asyncio

    from sparktop.cli.composition import commanded, distinct
    from sparktop.headless.unit import UnitCommand, Verb
    from sparktop.headless.unit import unit as carry_out

    once_each(distinct(config.hosts), config.hosts)
    make, secret, output = commanded(config, options)
    verb = Verb.INSTALL if options.install else Verb.REMOVE if options.remove else Verb.PRINT
    command = UnitCommand(name=options.recipe, order=order, verb=verb, is_own=options.user)
    return asyncio.run(carry_out(make, command, output=output, secret=secret))


def _is_recipe(name: str) -> bool:
    from sparktop.recipe.read.shelf import names

    return name in names()


def unit_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop unit`."""
    argument_parser = parser("unit", _UNIT_USAGE)
    argument_parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE|CONTAINER", help="a recipe (see `sparktop recipes list`), or an engine"
    )
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument("--install", action="store_true", help="install, enable and start it on HOST")
    argument_parser.add_argument("--remove", action="store_true", help="stop and disable it on HOST, and remove it")
    argument_parser.add_argument(
        "--user", action="store_true", help="a unit of your own on HOST (systemctl --user), without root"
    )
    add_recipe_options(argument_parser)
    argument_parser.set_defaults(may_fetch=True)
    add_run_options(argument_parser)
    return argument_parser
