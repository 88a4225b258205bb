"""The command `launch`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.options import HOST_HELP, add_run_options, need_spark, parser, set_pairs, settings
from sparktop.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from sparktop.model.recipe import Order, Recipe
    from sparktop.recipe.operator_secrets import SecretValues

_USAGE = (
    "sparktop launch RECIPE|FILE|CONTAINER HOST... [--set NAME=VALUE]\n"
    "                       [--stop ENGINE] [--env-file FILE] [--no-fetch] [--json]\n"
    "                       [--dry-run | --yes | --export compose|run|systemd]"
)
EXPORTS = ("compose", "run", "systemd")


def launch(words: list[str]) -> int:
    """`sparktop launch`."""
    options = launch_arguments().parse_args(words)
    config = settings(options)
    if not options.recipe:
        raise UsageError("which recipe?", hint="sparktop recipes list names all")
    if sum((options.dry_run, options.yes, bool(options.export))) > 1:
        raise UsageError("--dry-run, --yes and --export can't be used together")
    if options.export and options.as_json:
        raise UsageError("--export prints a file: --json goes with --dry-run or --yes")
    from sparktop.recipe.read.shelf import is_there

    is_container = bool(config.hosts) and not is_there(options.recipe)
    order, notes = (None, ()) if is_container else ordered(options)
    need_spark(options, config, f"sparktop launch {options.recipe}")
    import asyncio

    from sparktop.cli.composition import distinct, session_for_command
    from sparktop.headless.launch import Launch
    from sparktop.headless.launch import launch as carry_out

    once_each(distinct(config.hosts), config.hosts)
    make, secret, output = session_for_command(config, options)
    command = Launch(
        order=order,
        container=options.recipe if is_container else "",
        order_of=lambda adopted: order_of(adopted.reading.recipe, options, adopted.secrets),
        stops=tuple(options.stop),
        options={"grace_s": options.grace} if options.grace else {},
        export=options.export,
        notes=notes,
    )
    return asyncio.run(carry_out(make, command, output=output, secret=secret))


def once_each(names: Sequence[str], hosts: Sequence[str]) -> None:
    """Refuse a host that is named twice."""
    if len(names) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError(f"{twice} is named twice", hint="name each Spark once; the first is the head")


def ordered(options: argparse.Namespace) -> tuple[Order, tuple[str, ...]]:
    """(what is wanted of the recipe, where its secrets come from), from the arguments of a command that takes one."""
    from sparktop.recipe.read.shelf import launchable

    entry = launchable(options.recipe)
    adopted = entry.adopted
    order, notes = order_of(entry.recipe, options, adopted.secrets if adopted is not None else {})
    taken = f"{options.recipe} is a {adopted.kind}: made into a recipe and launched" if adopted is not None else ""
    return order, (*filter(None, [taken]), *notes)


def order_of(
    chosen_recipe: Recipe | None, options: argparse.Namespace, held: Mapping[str, str]
) -> tuple[Order, tuple[str, ...]]:
    """(what is wanted of the recipe, where its secrets come from); `held`: secrets that its source has."""
    from sparktop.model.recipe import Order

    assert chosen_recipe is not None  # its errors were raised
    values = _values(options.set)
    secrets = _secrets(chosen_recipe, options.env_file)
    own = {name: value for name, value in held.items() if name not in secrets.values}
    order = Order(
        recipe=chosen_recipe,
        values=values,
        secrets={**own, **secrets.values},
        secret_problems=secrets.problems,
        may_fetch=options.may_fetch,
    )
    if hub := os.environ.get("HF_ENDPOINT", "").rstrip("/"):
        order = replace(order, hub=hub)
    _check(order)
    kept = (f"taken from it: {', '.join(own)}",) if own else ()
    return order, (*_notes(secrets), *kept)


def launch_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop launch`."""
    argument_parser = parser("launch", _USAGE)
    argument_parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE|FILE|CONTAINER",
        help="a recipe's name (see `sparktop recipes list`); a recipe file, a compose file, a `docker run` script or a "
        "unit (FILE#NAME where it starts several engines); or a container that runs on HOST",
    )
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"{HOST_HELP}; the first is the head")
    add_recipe_options(argument_parser)
    argument_parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="ENGINE",
        help="stop this engine first, on each HOST that runs it",
    )
    argument_parser.add_argument(
        "--no-fetch", action="store_false", dest="may_fetch", help="download nothing: use what is on the disks"
    )
    argument_parser.add_argument(
        "--grace", default="", metavar="SECONDS", help="time between SIGTERM and SIGKILL for stopped engines"
    )
    argument_parser.add_argument(
        "--export", default="", choices=EXPORTS, help="print a file that launches it, and change nothing"
    )
    add_run_options(argument_parser)
    return argument_parser


def add_recipe_options(argument_parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what is wanted of a recipe."""
    argument_parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="set a parameter of the recipe"
    )
    argument_parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="a file of secrets, NAME=value lines, mode 0600"
    )


def _values(texts: Sequence[str]) -> Mapping[str, str]:
    """The parameters given with `--set`; refuses secrets, as other users can see arguments."""
    from sparktop.masking import is_secret_name, mask_text

    pairs = set_pairs(texts)
    for name, value in pairs:
        if value and (is_secret_name(name) or mask_text(value) != value):
            raise UsageError(
                f"{name} looks like a secret, and every user of this machine can see an argument",
                hint="give it in your environment, or with --env-file: HF_TOKEN, VLLM_API_KEY",
            )
    return dict(pairs)


def _check(order: Order) -> None:
    """Check the parameters before connecting to any node.

    Raises:
        UsageError: a parameter's name or value is not valid; with the remedies.
    """
    from sparktop.recipe import parameters
    from sparktop.recipe.container_spec import CannotRender

    try:
        parameters.resolve(order).checked()
    except CannotRender as error:
        raise UsageError(error.reason, hint="\n  ".join(filter(None, error.remedies)) or None) from error


def _secrets(recipe: Recipe, named: Path | None) -> SecretValues:
    """The secrets that the recipe takes, from the environment, else from files that only the operator can read.

    Raises:
        ConfigError: the file `named` doesn't exist or can't be read; for other files a gate reports it.
    """
    from sparktop.recipe.operator_secrets import read_secrets

    if named is not None and not named.is_file():
        raise ConfigError(f"{named} is no file" if named.exists() else f"{named}: there is no such file")
    secrets = read_secrets(recipe, named)
    if named is not None and secrets.problems:
        raise ConfigError("\n  ".join(problem.text for problem in secrets.problems))
    return secrets


def _notes(secrets: SecretValues) -> tuple[str, ...]:
    sources = ", ".join(f"{name} {source}" for name, source in secrets.sources.items() if source)
    return (f"taken: {sources}",) if sources else ()
